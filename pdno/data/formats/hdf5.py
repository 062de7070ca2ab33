"""HDF5 and what is built on it: netCDF-4 and MATLAB v7.3, whose axes come in reverse. Nothing outside the file is opened."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .entry import NOT_NUMERIC, Found, library
from .matlab import CLASSES
from .netcdf import fill_values, filled, is_bool, text
from .parent import ask, fetch_from_child

__all__ = ["Hdf5", "list_hdf5"]


def list_hdf5(found: Found, kind: str = "hdf5") -> None:
    """Arrays of an HDF5 file; `kind` is hdf5, netcdf or mat v7.3.

    A damaged file can hang or crash HDF5, so that a child makes the list and reads what lies in chunks. What it survived,
    opening a contiguous array, is then safe to do here, where it is fast.
    """
    listing, _ = ask(found.path, kind)
    found.notes.extend(listing["notes"])
    for item in listing["entries"]:
        shape, dtype = tuple(item["shape"]), np.dtype(item["dtype"])
        place = {"name": item["target"], "fill": item["fill"]}
        if item["chunked"]:
            fetch = partial(fetch_from_child, found.path, kind, place, item["chunk"], math.prod(shape[1:]) * dtype.itemsize)
        else:
            fetch = partial(_fetch_hdf5, found.path, kind, item["target"], item["fill"])
        found.add(item["name"], shape, dtype, fetch, item["dims"] and tuple(item["dims"]), item["chunk"])


class Hdf5:
    """The reader that runs in the child."""

    def __init__(self, kind: str, path: str, limit: Callable[[], None]) -> None:
        self.h5py, self.kind, self.path = library("h5py"), kind, Path(path)
        limit()

    def listing(self) -> dict[str, Any]:
        found, items = Found(self.path, 0, {}, []), list[dict[str, Any]]()
        with self.h5py.File(self.path, "r", locking=False) as file:
            for name, target in _targets(self.h5py, file, found, self.kind):
                item = _describe(self.kind, file[target])
                if not isinstance(item, str):
                    items.append({**item, "name": name, "target": target})
                elif item:
                    found.pass_over(name, item)
        return {"entries": items, "notes": found.notes}

    def values(self, name: str, first: int, end: int, fill: list[float]) -> NDArray[Any]:
        return _fetch_hdf5(self.path, self.kind, name, fill, first, end)


def _targets(h5py: Any, file: Any, found: Found, kind: str) -> Iterator[tuple[str, str]]:
    """Name and place of each dataset, without leaving the file and without going round in circles."""
    seen, stack = set(), [("", file)]
    while stack:
        prefix, group = stack.pop()
        for child in group:
            name, link = prefix + child, group.get(child, getlink=True)
            if kind == "mat v7.3" and name.startswith("#"):  # what cells and objects refer to
                continue
            target = f"/{name}" if isinstance(link, h5py.HardLink) else _resolve(h5py, file, f"/{name}")
            if target is None:
                found.pass_over(name, "is a link to another file or to nothing")
                continue
            item = file[target]
            if isinstance(item, h5py.Dataset):
                yield name, target
            elif isinstance(item, h5py.Group) and isinstance(link, h5py.HardLink):
                place = h5py.h5o.get_info(item.id)
                if kind == "mat v7.3" and "MATLAB_class" in item.attrs:
                    found.pass_over(name, f"is of MATLAB class {text(item.attrs['MATLAB_class'])}, stored as a group")
                elif place.addr not in seen:
                    seen.add(place.addr)
                    stack.append((f"{name}/", item))


def _resolve(h5py: Any, file: Any, path: str, jumps: int = 16) -> str | None:
    """Where a path with soft links leads inside the file. HDF5 itself would follow external links on the way."""
    here, parts = "", [part for part in path.split("/") if part not in ("", ".")]
    for i, part in enumerate(parts):
        group = file[here or "/"]
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if isinstance(link, h5py.SoftLink) and jumps:
            onward = link.path if link.path.startswith("/") else f"{here}/{link.path}"
            return _resolve(h5py, file, "/".join([onward, *parts[i + 1 :]]), jumps - 1)
        if not isinstance(link, h5py.HardLink):
            return None
        here = f"{here}/{part}"
    return here


def _describe(kind: str, dataset: Any) -> dict[str, Any] | str:
    """What there is to know of a dataset without reading it, or why it is passed over (empty: not worth a note)."""
    if dataset.is_virtual or dataset.external:
        return "keeps its values in other files, which are not opened"
    if dataset.shape is None:
        return "is empty"
    try:
        dtype = np.dtype(dataset.dtype)
    except TypeError:
        return "has a type that NumPy does not know"
    shape, dims, attrs = tuple(int(n) for n in dataset.shape), _dims(dataset), dataset.attrs
    if kind == "mat v7.3":
        mclass = text(attrs.get("MATLAB_class", ""))
        if mclass and mclass not in CLASSES:
            return f"is of MATLAB class {mclass}"
        if attrs.get("MATLAB_empty") and dataset.size <= 32:  # the values are the shape
            shape = tuple(int(n) for n in dataset[()])[::-1]
            if math.prod(shape):
                return "is declared empty and has a size"
            dtype = np.dtype(CLASSES.get(mclass, "f8"))
        shape, dims = shape[::-1], dims and dims[::-1]
        dtype = np.dtype(bool) if mclass == "logical" and dtype.kind in "biu" else dtype
    fill: tuple[float, ...] = ()
    if kind == "netcdf":
        if text(attrs.get("NAME", "")).startswith("This is a netCDF dimension but not a netCDF variable"):
            return ""
        fill = fill_values(attrs, dtype)
        dtype = np.dtype(bool) if is_bool(attrs, dtype) else dtype
    if dtype.kind not in "biuf":
        return f"is {NOT_NUMERIC.get(dtype.kind, 'not numeric')}"
    chunked = dataset.chunks is not None
    chunk = math.prod(dataset.chunks) * dtype.itemsize if chunked else 0
    return {"shape": shape, "dtype": dtype.str, "dims": dims, "fill": fill, "chunked": chunked, "chunk": chunk}


def _fetch_hdf5(path: Path, kind: str, target: str, fill: Sequence[float], first: int, end: int) -> NDArray[Any]:
    with library("h5py").File(path, "r", locking=False) as file:
        dataset = file[target]
        if not dataset.shape:
            return filled(np.asarray(dataset[()]), fill)
        return np.asarray(dataset[..., first:end].T if kind == "mat v7.3" else filled(dataset[first:end], fill))


def _dims(dataset: Any) -> tuple[str, ...] | None:
    """Names of the axes: a label, else the name of a dimension scale; a coordinate is its own."""
    if dataset.ndim == 1 and dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
        return (dataset.name.rsplit("/", 1)[-1],)
    names = [axis.label or (axis[0].name.rsplit("/", 1)[-1] if len(axis) else "") for axis in dataset.dims]
    return tuple(names) if all(names) else None
