"""Arrays in files of NumPy, MATLAB, HDF5, netCDF, torch and Zarr, and in meshes, behind one interface.

    contents("burgers.mat").entries["u"].read(slice(0, 100))   the first hundred rows, as a native array
    write("burgers.nc", {"u": u}, {"u": ("sample", "x")})

Files may be damaged or malicious: the size of an array is compared with a budget before memory is allocated, nothing that could
run code is unpickled, nothing outside the file is opened, and every exception of a library becomes a `UserError`.

    format      names        read by
    npy, npz    .npy .npz    `numpy_files`
    mat v5      .mat         `matlab`, in a child process
    mat v7.3    .mat         `hdf5`
    hdf5        .h5 .hdf5    `hdf5`: listed in a child process, chunked arrays also read there
    netcdf      .nc          `hdf5` (netCDF-4) or `netcdf` (netCDF-3)
    torch       .pt .pth     `torch_files`, in a child process
    zarr        .zarr        `zarr_files`
    mesh        .vtu .vtk .msh .xdmf, or a folder of them    `meshes`, through meshio

The format of a file is determined by its content; a suffix of another format is an error (`kinds`). An entry and the limits of
a read are in `entry`, the two sides of the child process in `parent` and `child`, and `write` in `writers`.

MATLAB has no arrays with less than two axes: in ``.mat`` files n values are read back as (1, n), a single value as (1, 1).
"""

from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from .entry import DEFAULT_BUDGET, Entry, Listing, user_errors
from .hdf5 import list_hdf5
from .kinds import SUFFIXES, format_of
from .meshes import is_mesh, list_meshes
from .netcdf import list_netcdf3
from .numpy_files import list_npy, list_npz
from .parent import list_in_child
from .writers import write
from .zarr_files import list_zarr

__all__ = ["DEFAULT_BUDGET", "SUFFIXES", "Contents", "Entry", "contents", "write"]


@dataclass(frozen=True)
class Contents:
    """The arrays of a file.

    Args:
        path: of the file.
        format: npz, npy, mat v5, mat v7.3, hdf5, netcdf, torch, zarr or mesh.
        entries: numeric arrays (bool, integer, real) by name; that of a `.npy` file has the name of the file.
        notes: what was skipped, and why.
    """

    path: Path
    format: str
    entries: dict[str, Entry]
    notes: tuple[str, ...]


def contents(path: str | Path, budget: int = DEFAULT_BUDGET) -> Contents:
    """List the arrays of a file by their headers.

    Args:
        path: of the file.
        budget: bytes that a single read may need.

    Raises:
        UserError: if the file cannot be read or has no numeric array.
    """
    path = Path(path)
    listing = Listing(path, budget, {}, [])
    with user_errors(path):
        file_format = "mesh" if is_mesh(path) else format_of(path)
        if file_format == "mesh":
            list_meshes(listing)
        elif file_format == "npz":
            list_npz(listing)
        elif file_format == "npy":
            list_npy(listing)
        elif file_format == "zarr":
            list_zarr(listing)
        elif file_format == "netcdf-3":
            list_netcdf3(listing)
        elif file_format in ("mat v5", "torch"):
            list_in_child(listing, file_format)
        else:
            file_format = "netcdf" if path.suffix.lower() == ".nc" else file_format
            list_hdf5(listing, file_format)
    if not listing.entries:
        reasons = f" ({'; '.join(listing.notes[:5])})" if listing.notes else ""
        raise UserError(f"{path} has no numeric array{reasons}; expected at least one of bool, integer or real numbers")
    return Contents(path, file_format.removesuffix("-3"), listing.entries, tuple(listing.notes))
