"""Arrays in other people's files: NumPy, MATLAB, HDF5, netCDF, torch and Zarr behind one interface.

    contents("burgers.mat").entries["u"].read(slice(0, 100))   the first hundred rows, as a native array
    write("burgers.nc", {"u": u}, {"u": ("sample", "x")})

The files may be damaged or hostile: what an array takes is checked against a budget before memory is asked for, nothing that
could run code is unpickled, nothing outside the file is opened, and whatever a library raises becomes one `UserError`.

    format      names        read by
    npy, npz    .npy .npz    `numpy_files`
    mat v5      .mat         `matlab`, in a child process
    mat v7.3    .mat         `hdf5`
    hdf5        .h5 .hdf5    `hdf5`: listed in a child process, chunked arrays also read there
    netcdf      .nc          `hdf5` (netCDF-4) or `netcdf` (netCDF-3)
    torch       .pt .pth     `torch_files`, in a child process
    zarr        .zarr        `zarr_files`

The content decides what a file is, not its name; a name that says something else is an error (`kinds`). What an entry is and
what a read may cost is in `entry`, the two sides of the child process are `process` and `child`, and `writers` has `write`.

MATLAB has no arrays of less than two axes: in ``.mat`` files an array of n values comes back as (1, n), a single value as
(1, 1).
"""

from dataclasses import dataclass
from pathlib import Path

from ...errors import UserError
from .entry import DEFAULT_BUDGET, Entry, Found, honest
from .hdf5 import list_hdf5
from .kinds import SUFFIXES, kind_of
from .netcdf import list_netcdf3
from .numpy_files import list_npy, list_npz
from .parent import list_in_child
from .writers import write
from .zarr_files import list_zarr

__all__ = ["DEFAULT_BUDGET", "SUFFIXES", "Contents", "Entry", "contents", "write"]


@dataclass(frozen=True)
class Contents:
    """What a file holds. Only numeric arrays (bool, integer, real) are entries; a `.npy` has one, named by the file's stem."""

    path: Path
    format: str  # npz, npy, mat v5, mat v7.3, hdf5, netcdf, torch or zarr
    entries: dict[str, Entry]
    notes: tuple[str, ...]  # what was passed over and why


def contents(path: str | Path, budget: int = DEFAULT_BUDGET) -> Contents:
    """List a file's arrays by their headers; `budget` is what a single read may take, in bytes."""
    path = Path(path)
    found = Found(path, budget, {}, [])
    with honest(path):
        kind = kind_of(path)
        if kind == "npz":
            list_npz(found)
        elif kind == "npy":
            list_npy(found)
        elif kind == "zarr":
            list_zarr(found)
        elif kind == "netcdf-3":
            list_netcdf3(found)
        elif kind in ("mat v5", "torch"):
            list_in_child(found, kind)
        else:
            kind = "netcdf" if path.suffix.lower() == ".nc" else kind
            list_hdf5(found, kind)
    if not found.entries:
        reasons = f" ({'; '.join(found.notes[:5])})" if found.notes else ""
        raise UserError(f"{path} has no numeric array{reasons}; expected at least one of bool, integer or real numbers")
    return Contents(path, kind.removesuffix("-3"), found.entries, tuple(found.notes))
