"""netCDF-3, and the conventions that it shares with netCDF-4: fill values for missing values, bytes for bool.

A netCDF-3 file is mapped into memory, so that only the copied rows are read. A netCDF-4 file is an HDF5 file, see `hdf5`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from .entry import Listing, labels_of, without_warnings

__all__ = ["fill_values", "filled", "is_bool", "list_netcdf3", "text"]


@contextmanager
def _netcdf3(path: Path) -> Iterator[Any]:
    from scipy.io import netcdf_file

    with without_warnings(), netcdf_file(path, "r", mmap=True) as file:
        yield file


def list_netcdf3(listing: Listing) -> None:
    """List the arrays of a netCDF-3 file."""
    with _netcdf3(listing.path) as file:
        for name, variable in file.variables.items():
            attrs, shape, dtype = dict(variable._attributes), tuple(variable.shape), variable.data.dtype
            fill = fill_values(attrs, dtype)
            dtype = np.dtype(bool) if is_bool(attrs, dtype) else dtype
            fetch, dims = partial(_fetch_netcdf3, listing.path, name, fill), tuple(variable.dimensions)
            listing.add(name, shape, dtype, fetch, dims, labels=labels_of(attrs))
            del variable  # the map cannot be closed while anything refers to it


def _fetch_netcdf3(path: Path, name: str, fill: tuple[float, ...], first: int, end: int) -> Array:
    with _netcdf3(path) as file:
        data = file.variables[name].data
        values = np.array(data[first:end] if data.ndim else data)
        del data
    return filled(values, fill)


def text(attribute: Any) -> str:
    """Return an attribute as text."""
    return attribute.decode("latin1") if isinstance(attribute, bytes) else str(attribute)


def is_bool(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """Return whether a variable is bool: netCDF has none; xarray and `write` store bytes with an attribute."""
    return dtype.kind in "iu" and dtype.itemsize == 1 and text(attrs.get("dtype", "")) == "bool"


def fill_values(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, ...]:
    """Return the values that mark missing values of a float variable."""
    declared = [np.ravel(attrs[key]) for key in ("_FillValue", "missing_value") if dtype.kind == "f" and key in attrs]
    return tuple(float(x) for values in declared if values.dtype.kind in "iuf" for x in values)


def filled(values: Array, fill: Sequence[float]) -> Array:
    """Return values with NaN in place of the fill values."""
    if not fill:
        return values
    return np.where(np.isin(values, np.array(fill, values.dtype)), values.dtype.type(np.nan), values)
