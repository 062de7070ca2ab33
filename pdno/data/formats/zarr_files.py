"""Zarr, a folder of chunks, of other programs and of pdno.

Links out of the folder are refused, only codecs that move or compress bytes are run, and missing chunks, which Zarr would read
as fill values, are errors.
"""

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from .entry import Listing, labels_of, without_warnings

__all__ = ["chunk_files", "list_zarr", "missing_chunks", "open_arrays"]

CODECS = {
    *("adler32", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "endian", "gzip", "lz4", "lzma", "sharding_indexed"),
    *("shuffle", "transpose", "zlib", "zstd"),
}
"""Zarr codecs that only move or compress bytes; others (one is called pickle) are not run."""


def list_zarr(listing: Listing) -> None:
    """List the arrays of a Zarr folder."""
    root = listing.path.resolve()
    for place, array in open_arrays(root):
        name = place or listing.path.stem
        if isinstance(array, str):
            listing.skip(name, array)
            continue
        names: Any = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
        dims = tuple(map(str, names)) if len(names) == array.ndim and None not in names else None
        dtype, shape = np.dtype(array.dtype), tuple(array.shape)
        fetch = partial(_fetch_zarr, root, place, array.metadata.zarr_format, missing_chunks(root, place, array))
        least = math.prod(array.shards or array.chunks) * dtype.itemsize
        listing.add(name, shape, dtype, fetch, dims, least, labels_of(dict(array.attrs)))


def open_arrays(root: Path) -> Iterator[tuple[str, Any]]:
    """Open the arrays of a Zarr folder without reading them.

    Yields:
        The place of each array in the folder, and the `zarr.Array`; in its place the reason, as text, if it is not opened.

    Raises:
        UserError: if the folder has links out of it, or anything else than files and folders.
    """
    for path in root.rglob("*"):
        _check_inside(root.resolve(), root, path)
    for file in sorted((*root.rglob(".zarray"), *root.rglob("zarr.json"))):
        metadata = json.loads(file.read_bytes())
        if file.name == ".zarray" or metadata.get("node_type") == "array":
            place = "/".join(file.parent.relative_to(root).parts)
            yield place, _open_array(root, place, metadata, 2 if file.name == ".zarray" else 3)


def _check_inside(inside: Path, root: Path, path: Path) -> None:
    """Refuse links out of the folder or to folders, and anything that is neither a file nor a folder."""
    link = path.is_symlink()
    if link and (path.is_dir() or not path.resolve().is_relative_to(inside)):
        raise UserError(f"{root}: {path.relative_to(root)} is a link out of the folder or to a folder; copy what it points to")
    if not link and not path.is_dir() and not path.is_file():
        raise UserError(f"{root}: {path.relative_to(root)} is neither a file nor a folder; remove it")


def _open_array(root: Path, place: str, metadata: Any, zarr_format: Any) -> Any:
    """Return the array with these metadata, or the reason, as text, why it is not opened."""
    import zarr

    unsafe = [codec for codec in _codec_names(metadata) if codec.removeprefix("numcodecs.") not in CODECS]
    if unsafe:
        return f"is stored by the codec {unsafe[0]!r}, which is not run"
    with without_warnings():
        try:
            array = zarr.open_array(root, path=place, mode="r", zarr_format=zarr_format)
            np.dtype(array.dtype)
        except Exception as error:  # zarr raises nearly any exception for a damaged array
            return f"cannot be read ({' '.join(str(error).split())[:100]})"
    return array


def _codec_names(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs of an array, also of those inside shards."""
    configurations = [*(metadata.get("codecs") or []), *(metadata.get("index_codecs") or []), metadata.get("compressor")]
    for codec in (*configurations, *(metadata.get("filters") or []), *(metadata.get("storage_transformers") or [])):
        if codec is not None:
            yield codec if isinstance(codec, str) else str(codec.get("name") or codec.get("id"))
            yield from _codec_names(codec.get("configuration") or {}) if isinstance(codec, dict) else ()


def missing_chunks(root: Path, place: str, array: Any) -> int:
    """Return the number of chunks of an array that have no file."""
    expected = math.prod(_chunk_counts(array))
    files = sum(path.is_file() for path in (root / place).rglob("*"))
    if expected > files:  # also for a shape of any size that a header declares
        return expected - files
    return sum(not path.is_file() for path in chunk_files(root, place, array))


def chunk_files(root: Path, place: str, array: Any) -> Iterator[Path]:
    """Yield the files of all chunks of an array, in the order of its elements."""
    for index in np.ndindex(*_chunk_counts(array)):
        yield root / place / array.metadata.encode_chunk_key(index)


def _chunk_counts(array: Any) -> list[int]:
    """Return the number of chunks (or shards) along each axis."""
    return [-(-n // step) for n, step in zip(array.shape, array.shards or array.chunks, strict=True)]


def _fetch_zarr(root: Path, place: str, zarr_format: Any, missing: int, first: int, end: int) -> Array:
    import zarr

    if missing > 0:
        raise UserError(
            f"{root}: {missing} chunks of {place or 'the array'} are missing; get them, or write it again with all chunks "
            "(zarr omits chunks that only contain the fill value, unless write_empty_chunks is set)"
        )
    with without_warnings():
        array = zarr.open_array(root, path=place, mode="r", zarr_format=zarr_format)
        return np.asarray(array[first:end] if array.ndim else array[()])
