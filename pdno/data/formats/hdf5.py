"""HDF5 and the formats based on it: netCDF-4, and MATLAB v7.3 with reversed axes. Nothing outside the file is opened."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from .entry import LABELS, NOT_NUMERIC, Listing, labels_of, library
from .matlab import CLASSES
from .netcdf import fill_values, filled, is_bool, text
from .parent import fetch_from_child, request_listing

__all__ = ["Hdf5", "list_hdf5"]

MOST_LINKS = 16  # soft links that are followed one after another


def list_hdf5(listing: Listing, file_format: str = "hdf5") -> None:
    """List the arrays of an HDF5 file; the format is hdf5, netcdf or mat v7.3.

    A damaged file can hang or crash HDF5. A child therefore lists the file, and reads the arrays that are stored in chunks.
    Contiguous arrays, which it has opened without a crash, are read in this process, where it is faster.
    """
    path, reply = listing.path, request_listing(listing.path, file_format)
    listing.notes.extend(reply["notes"])
    for item in reply["entries"]:
        shape, dtype = tuple(item["shape"]), np.dtype(item["dtype"])
        place = {"name": item["target"], "fill": item["fill"]}
        if item["chunked"]:
            row = math.prod(shape[1:]) * dtype.itemsize
            fetch = partial(fetch_from_child, path, file_format, place, item["chunk"], row)
        else:
            fetch = partial(_fetch_hdf5, path, file_format, item["target"], item["fill"])
        listing.add(item["name"], shape, dtype, fetch, item["dims"] and tuple(item["dims"]), item["chunk"], item["labels"])


class Hdf5:
    """The reader that runs in the child."""

    def __init__(self, file_format: str, path: str, limit: Callable[[], None]) -> None:
        self.h5py, self.format, self.path = library("h5py"), file_format, Path(path)
        limit()

    def listing(self) -> dict[str, Any]:
        """Return the descriptions of all arrays, and notes on what is skipped."""
        skipped, items = Listing(self.path, 0, {}, []), list[dict[str, Any]]()
        with self.h5py.File(self.path, "r", locking=False) as file:
            for name, target in _targets(self.h5py, file, skipped, self.format):
                item = _describe(self.format, file[target])
                if not isinstance(item, str):
                    items.append({**item, "name": name, "target": target})
                elif item:
                    skipped.skip(name, item)
        return {"entries": items, "notes": skipped.notes}

    def values(self, name: str, first: int, end: int, fill: list[float]) -> Array:
        """Return rows of an array."""
        return _fetch_hdf5(self.path, self.format, name, fill, first, end)


def _targets(h5py: Any, file: Any, listing: Listing, file_format: str) -> Iterator[tuple[str, str]]:
    """Yield name and path of each dataset, without following links out of the file or in circles."""
    seen, stack = set(), [("", file)]
    while stack:
        prefix, group = stack.pop()
        for child in group:
            name, link = prefix + child, group.get(child, getlink=True)
            if file_format == "mat v7.3" and name.startswith("#"):  # targets of the references in cells and objects
                continue
            target = f"/{name}" if isinstance(link, h5py.HardLink) else _resolve(h5py, file, f"/{name}")
            if target is None:
                listing.skip(name, "is a link to another file or to nothing")
                continue
            item = file[target]
            if isinstance(item, h5py.Dataset):
                yield name, target
            elif isinstance(item, h5py.Group) and isinstance(link, h5py.HardLink):
                place = h5py.h5o.get_info(item.id)
                if file_format == "mat v7.3" and "MATLAB_class" in item.attrs:
                    listing.skip(name, f"is of MATLAB class {text(item.attrs['MATLAB_class'])}, stored as a group")
                elif place.addr not in seen:
                    seen.add(place.addr)
                    stack.append((f"{name}/", item))


def _resolve(h5py: Any, file: Any, path: str, links: int = MOST_LINKS) -> str | None:
    """Return the path inside the file that a path with soft links leads to. HDF5 itself would also follow external links."""
    here, parts = "", [part for part in path.split("/") if part not in ("", ".")]
    for i, part in enumerate(parts):
        group = file[here or "/"]
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if isinstance(link, h5py.SoftLink) and links:
            onward = link.path if link.path.startswith("/") else f"{here}/{link.path}"
            return _resolve(h5py, file, "/".join([onward, *parts[i + 1 :]]), links - 1)
        if not isinstance(link, h5py.HardLink):
            return None
        here = f"{here}/{part}"
    return here


def _describe(file_format: str, dataset: Any) -> dict[str, Any] | str:
    """Return the description of a dataset, or the reason to skip it (empty: without a note)."""
    if dataset.is_virtual or dataset.external:
        return "has its values in other files, which are not opened"
    if dataset.shape is None:
        return "is empty"
    try:
        dtype = np.dtype(dataset.dtype)
    except TypeError:
        return "has a type that NumPy does not have"
    shape, dims, attrs = tuple(int(n) for n in dataset.shape), _dims(dataset), dataset.attrs
    if file_format == "mat v7.3":
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
    if file_format == "netcdf":
        if text(attrs.get("NAME", "")).startswith("This is a netCDF dimension but not a netCDF variable"):
            return ""
        fill = fill_values(attrs, dtype)
        dtype = np.dtype(bool) if is_bool(attrs, dtype) else dtype
    if dtype.kind not in "biuf":
        return f"is {NOT_NUMERIC.get(dtype.kind, 'not numeric')}"
    chunked = dataset.chunks is not None
    chunk = math.prod(dataset.chunks) * dtype.itemsize if chunked else 0
    described = {"shape": shape, "dtype": dtype.str, "dims": dims, "fill": fill, "chunked": chunked, "chunk": chunk}
    return {**described, "labels": labels_of({name: attrs[name] for name in LABELS if name in attrs})}


def _fetch_hdf5(path: Path, file_format: str, target: str, fill: Sequence[float], first: int, end: int) -> Array:
    with library("h5py").File(path, "r", locking=False) as file:
        dataset = file[target]
        if not dataset.shape:
            return filled(np.asarray(dataset[()]), fill)
        return np.asarray(dataset[..., first:end].T if file_format == "mat v7.3" else filled(dataset[first:end], fill))


def _dims(dataset: Any) -> tuple[str, ...] | None:
    """Return the names of the axes: a label, else the name of a dimension scale, which a coordinate has itself."""
    if dataset.ndim == 1 and dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
        return (dataset.name.rsplit("/", 1)[-1],)
    names = [axis.label or (axis[0].name.rsplit("/", 1)[-1] if len(axis) else "") for axis in dataset.dims]
    return tuple(names) if all(names) else None
