"""Write arrays in each of the formats, completely or not at all."""

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..._typing import Array
from ...errors import UserError
from ...work.files import replacing
from .entry import library, size_text
from .kinds import suffix_of

__all__ = ["write"]

Arrays = Mapping[str, Array]
Names = Mapping[str, tuple[str, ...]]  # of the axes, by array

CHUNK_BYTES = 2**21  # of a chunk of a Zarr array, at least one row


def write(path: str | Path, arrays: Arrays, dims: Names | None = None) -> None:
    """Write arrays in the format of the suffix, completely or not at all; an existing file is never overwritten.

    Args:
        path: of the file.
        arrays: by name; bool, integer or real.
        dims: names of the axes by array, which HDF5, netCDF and Zarr store.

    Raises:
        UserError: if the file exists, cannot be written, or cannot represent the arrays.
    """
    path = Path(path)
    suffix = suffix_of(path)
    if path.exists():
        raise UserError(f"{path} exists already and is never overwritten; remove it, or choose another name")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} of {path.name} does not exist; create it first")
    plain = _checked(path, arrays)
    names = {name: tuple(axes) for name, axes in (dims or {}).items()}
    for name, axes in names.items():
        if name in plain and len(axes) != plain[name].ndim:
            raise UserError(f"{name!r} has {plain[name].ndim} axes and the dims {axes}; give one name for each axis")
    try:
        with replacing(path, sync=True) as partial:
            WRITERS[suffix](partial, plain, names)
    except OSError as error:
        raise UserError(f"{path} could not be written ({error}); nothing was left behind, choose another folder") from None


def _checked(path: Path, arrays: Arrays) -> dict[str, Array]:
    """Return the arrays, native and in C order, if the file can represent their types and names."""
    if not arrays:
        raise UserError(f"no arrays were given to write to {path}; give at least one")
    if path.suffix.lower() == ".npy" and len(arrays) > 1:
        raise UserError(f"{path} can hold one array and {len(arrays)} were given; write an .npz instead")
    plain = {}
    for name, values in arrays.items():
        values = np.asarray(values, order="C")
        if values.dtype.kind not in "biuf":
            raise UserError(f"{name!r} has dtype {values.dtype}; only bool, integer and real arrays are written")
        if values.dtype.itemsize > 8 or (values.dtype == np.float16 and path.suffix.lower() in (".mat", ".nc")):
            raise UserError(
                f"{name!r} has dtype {values.dtype}, which {path.name} cannot hold; convert it to float32 or float64"
            )
        if any(part in ("", ".", "..") or part.startswith("__") for part in name.split("/")) or "\\" in name:
            raise UserError(f"{name!r} cannot be the name of an array; write 'name' or 'group/name'")
        if any(other.startswith(f"{name}/") for other in arrays):
            raise UserError(f"{name!r} is the name of an array and of a group; rename one of them")
        plain[name] = values.astype(values.dtype.newbyteorder("="), copy=False)
    return plain


def _write_npy(path: Path, arrays: Arrays, dims: Names) -> None:
    with path.open("wb") as stream:
        for values in arrays.values():
            np.save(stream, values, allow_pickle=False)


def _write_npz(path: Path, arrays: Arrays, dims: Names) -> None:
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:  # np.savez cannot write an array named 'file'
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)


def _write_mat(path: Path, arrays: Arrays, dims: Names) -> None:
    from scipy.io import savemat

    for name, values in arrays.items():
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,30}", name):
            raise UserError(f"{name!r} cannot be a name in a .mat file; use up to 31 letters, digits and _, first a letter")
        if values.nbytes >= 2**31:
            raise UserError(f"{name!r} takes {size_text(values.nbytes)} and a .mat file holds 2 GiB; write an .h5 file")
    savemat(str(path), dict(arrays), appendmat=False, oned_as="row")


def _write_hdf5(path: Path, arrays: Arrays, dims: Names) -> None:
    with library("h5py").File(path, "w") as file:
        for name, values in arrays.items():
            dataset = file.create_dataset(name, data=values)
            for axis, label in enumerate(dims.get(name, ())):
                dataset.dims[axis].label = label


def _write_netcdf(path: Path, arrays: Arrays, dims: Names) -> None:
    named = _axes(arrays, dims)
    with library("h5netcdf").File(path, "w") as file:
        for name, values in arrays.items():
            for axis, size in zip(named[name], values.shape, strict=True):
                if axis not in file.dimensions:
                    file.dimensions[axis] = size
        for name, values in arrays.items():
            is_bool = values.dtype == bool  # netCDF has none: bytes with the attribute of xarray
            variable = file.create_variable(name, named[name], data=values.astype(np.int8) if is_bool else values)
            if is_bool:
                variable.attrs["dtype"] = "bool"


def _axes(arrays: Arrays, dims: Names) -> dict[str, tuple[str, ...]]:
    """Return names for all axes, each of one length: dim_0, …, or dim_0_128 where first axes have different lengths."""
    lengths: dict[str, int] = {}
    named = {}
    sizes = [{a.shape[i] for n, a in arrays.items() if n not in dims and a.ndim > i} for i in range(64)]
    for name, values in arrays.items():
        default = tuple(f"dim_{i}" if len(sizes[i]) == 1 else f"dim_{i}_{n}" for i, n in enumerate(values.shape))
        named[name] = dims.get(name, default)
        for axis, size in zip(named[name], values.shape, strict=True):
            if lengths.setdefault(axis, size) != size:
                raise UserError(
                    f"the axis {axis!r} of {name!r} has length {size}, elsewhere {lengths[axis]}; give them different names"
                )
    return named


def _write_torch(path: Path, arrays: Arrays, dims: Names) -> None:
    torch = library("torch")
    torch.save({name: torch.from_numpy(values.copy()) for name, values in arrays.items()}, path)


def _write_zarr(path: Path, arrays: Arrays, dims: Names) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    group = zarr.create_group(path, zarr_format=3)
    for name, values in arrays.items():
        array = group.create_array(
            name,
            shape=values.shape,
            chunks=_chunks(values),
            dtype=values.dtype,
            compressors=[ZstdCodec(level=3, checksum=True)],
            dimension_names=dims.get(name),
            config={"write_empty_chunks": True},  # every chunk is a file, so that a missing one is detected
        )
        array[...] = values


def _chunks(values: Array) -> tuple[int, ...]:
    """Return the shape of chunks of whole rows."""
    if not values.ndim:
        return ()
    rows = max(1, CHUNK_BYTES // max(1, values[:1].nbytes))
    return tuple(max(1, n) for n in (min(len(values), rows), *values.shape[1:]))


WRITERS: dict[str, Callable[[Path, Arrays, Names], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    ".mat": _write_mat,
    ".h5": _write_hdf5,
    ".hdf5": _write_hdf5,
    ".nc": _write_netcdf,
    ".pt": _write_torch,
    ".pth": _write_torch,
    ".zarr": _write_zarr,
}
