"""Formats of NumPy: an .npy file is a header and the bytes, an .npz file a zip archive of them. Nothing is unpickled."""

import math
import os
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from .entry import Listing, size_text, without_warnings

__all__ = ["list_npy", "list_npz"]

BLOCK = 2**20  # bytes that are decompressed at a time


def list_npy(listing: Listing) -> None:
    """List the array of an .npy file."""
    path = listing.path
    with path.open("rb") as stream:
        shape, fortran, dtype = _npy_header(stream)
        offset = stream.tell()
    declared, size = math.prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if dtype.kind != "O" and declared > size:
        raise UserError(f"{path} is truncated: it declares {size_text(declared)} and has {size_text(size)}; get it again")
    listing.add(path.stem, shape, dtype, partial(_fetch_npy, path, shape, dtype, fortran, offset))


def list_npz(listing: Listing) -> None:
    """List the arrays of an .npz file."""
    with zipfile.ZipFile(listing.path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                if name == member.filename or stream.read(6) != b"\x93NUMPY":
                    listing.skip(name, "is not an array")
                    continue
                stream.seek(0)
                shape, fortran, dtype = _npy_header(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.kind != "O" and size != member.file_size - stream.tell():
                    listing.skip(name, "is truncated or damaged")
                    continue
            fetch = partial(_fetch_npz, listing.path, member.filename)
            listing.add(name, shape, dtype, fetch, least=size if fortran else 0)


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    with without_warnings():
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)  # version 3.0 only differs in names of compound types


def _fetch_npy(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, offset: int, first: int, end: int
) -> Array:
    values = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return np.array(values[first:end] if shape else values, order="C", subok=False)


def _fetch_npz(path: Path, member: str, first: int, end: int) -> Array:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        shape, fortran, dtype = _npy_header(stream)
        if fortran or not shape:
            values = _stream(stream, shape[::-1], dtype).T
            return values[first:end] if shape else values
        stream.seek(first * math.prod(shape[1:]) * dtype.itemsize, os.SEEK_CUR)
        values = _stream(stream, (end - first, *shape[1:]), dtype)
        if end == shape[0]:
            stream.read(1)  # the checksum is compared at the end of the member
        return values


def _stream(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Read an array from a stream block by block, without a second copy in memory."""
    values = np.empty(shape, dtype)
    view, done = values.reshape(-1).view(np.uint8), 0
    while done < len(view):
        part = stream.read(min(BLOCK, len(view) - done))
        if not part:
            raise ValueError("it is truncated")
        view[done : done + len(part)] = np.frombuffer(part, np.uint8)
        done += len(part)
    return values
