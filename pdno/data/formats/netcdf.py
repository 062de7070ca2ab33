"""netCDF-3, and the conventions that netCDF-4 shares with it: marks for "missing", bytes that stand for bool.

A netCDF-3 file is mapped into memory, so that only what is copied is read. A netCDF-4 file is one of HDF5 and read by `hdf5`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .entry import Found, quiet

__all__ = ["fill_values", "filled", "is_bool", "list_netcdf3", "text"]


@contextmanager
def _netcdf3(path: Path) -> Iterator[Any]:
    from scipy.io import netcdf_file

    with quiet(), netcdf_file(path, "r", mmap=True) as file:
        yield file


def list_netcdf3(found: Found) -> None:
    with _netcdf3(found.path) as file:
        for name, variable in file.variables.items():
            attrs, shape, dtype = dict(variable._attributes), tuple(variable.shape), variable.data.dtype
            fill = fill_values(attrs, dtype)
            dtype = np.dtype(bool) if is_bool(attrs, dtype) else dtype
            found.add(name, shape, dtype, partial(_fetch_netcdf3, found.path, name, fill), tuple(variable.dimensions))
            del variable  # the map cannot be closed while anything looks into it


def _fetch_netcdf3(path: Path, name: str, fill: tuple[float, ...], first: int, end: int) -> NDArray[Any]:
    with _netcdf3(path) as file:
        data = file.variables[name].data
        values = np.array(data[first:end] if data.ndim else data)
        del data
    return filled(values, fill)


def text(attribute: Any) -> str:
    return attribute.decode("latin1") if isinstance(attribute, bytes) else str(attribute)


def is_bool(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """netCDF has no bool; xarray, and `write`, store bytes and say so in an attribute."""
    return dtype.kind in "iu" and dtype.itemsize == 1 and text(attrs.get("dtype", "")) == "bool"


def fill_values(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, ...]:
    """The values that stand for "missing" in a float variable."""
    marks = [np.ravel(attrs[key]) for key in ("_FillValue", "missing_value") if dtype.kind == "f" and key in attrs]
    return tuple(float(x) for mark in marks if mark.dtype.kind in "iuf" for x in mark)


def filled(values: NDArray[Any], fill: Sequence[float]) -> NDArray[Any]:
    if not fill:
        return values
    return np.where(np.isin(values, np.array(fill, values.dtype)), values.dtype.type(np.nan), values)
