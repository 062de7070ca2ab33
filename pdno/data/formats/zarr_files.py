"""Zarr, a folder of chunks: links out of the folder are refused, and so are missing chunks, which would read as fill values."""

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from .entry import Listing, without_warnings

__all__ = ["list_zarr"]

CODECS = {
    *("adler32", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "endian", "gzip", "lz4", "lzma", "sharding_indexed"),
    *("shuffle", "transpose", "zlib", "zstd"),
}
"""Zarr codecs that only move or compress bytes; others (one is called pickle) are not run."""


def list_zarr(listing: Listing) -> None:
    """List the arrays of a Zarr folder."""
    root = listing.path.resolve()
    for path in root.rglob("*"):
        _check_inside(root, path)
    for file in sorted((*root.rglob("zarr.json"), *root.rglob(".zarray"))):
        metadata = json.loads(file.read_bytes())
        if file.name == ".zarray" or metadata.get("node_type") == "array":
            _add_zarr(listing, root, file.parent.relative_to(root).as_posix().removeprefix("."), metadata)


def _check_inside(root: Path, path: Path) -> None:
    """Refuse links out of the folder or to folders, and anything that is neither a file nor a folder."""
    link = path.is_symlink()
    if link and (path.is_dir() or not path.resolve().is_relative_to(root)):
        raise UserError(f"{root}: {path.relative_to(root)} is a link out of the folder or to a folder; copy what it points to")
    if not link and not path.is_dir() and not path.is_file():
        raise UserError(f"{root}: {path.relative_to(root)} is neither a file nor a folder; remove it")


def _codec_names(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs of an array, also of those inside shards."""
    configurations = [*(metadata.get("codecs") or []), *(metadata.get("index_codecs") or []), metadata.get("compressor")]
    for codec in (*configurations, *(metadata.get("filters") or []), *(metadata.get("storage_transformers") or [])):
        if codec is not None:
            yield codec if isinstance(codec, str) else str(codec.get("name") or codec.get("id"))
            yield from _codec_names(codec.get("configuration") or {}) if isinstance(codec, dict) else ()


def _add_zarr(listing: Listing, root: Path, place: str, metadata: Any) -> None:
    """Add the array at a path inside the folder."""
    import zarr

    name = place or listing.path.stem
    unsafe = [codec for codec in _codec_names(metadata) if codec.removeprefix("numcodecs.") not in CODECS]
    if unsafe:
        return listing.skip(name, f"is stored by the codec {unsafe[0]!r}, which is not run")
    with without_warnings():
        try:
            array = zarr.open_array(root, path=place, mode="r")
            dtype = np.dtype(array.dtype)
        except Exception as error:  # zarr raises nearly any exception for a damaged array
            return listing.skip(name, f"cannot be read ({' '.join(str(error).split())[:100]})")
    names: Any = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    dims = tuple(map(str, names)) if len(names) == array.ndim and None not in names else None
    outer = array.shards or array.chunks
    expected = math.prod(-(-n // step) for n, step in zip(array.shape, outer, strict=True))
    files = (path for path in (root / place).rglob("*") if path.is_file())
    missing = expected - sum(1 for path in files if path.name != "zarr.json" and not path.name.startswith("."))
    fetch = partial(_fetch_zarr, root, place, missing)
    listing.add(name, tuple(array.shape), dtype, fetch, dims, math.prod(outer) * dtype.itemsize)
    return None


def _fetch_zarr(root: Path, place: str, missing: int, first: int, end: int) -> Array:
    import zarr

    if missing > 0:
        raise UserError(
            f"{root}: {missing} chunks of {place or 'the array'} are missing; get them, or write it again with all chunks "
            "(zarr omits chunks that only contain the fill value, unless write_empty_chunks is set)"
        )
    with without_warnings():
        array = zarr.open_array(root, path=place, mode="r")
        return np.asarray(array[first:end] if array.ndim else array[()])
