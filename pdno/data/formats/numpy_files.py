"""NumPy's own formats: a header, then the bytes. An .npz is a zip of them. Nothing is unpickled."""

import math
import os
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from .entry import Found, quiet, size_text

__all__ = ["list_npy", "list_npz"]

BLOCK = 2**20  # bytes of a streamed read


def list_npy(found: Found) -> None:
    path = found.path
    with path.open("rb") as stream:
        shape, fortran, dtype = _npy_header(stream)
        offset = stream.tell()
    declared, there = math.prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if dtype.kind != "O" and declared > there:
        raise UserError(f"{path} is cut short: it declares {size_text(declared)} and has {size_text(there)}; get it again")
    found.add(path.stem, shape, dtype, partial(_fetch_npy, path, shape, dtype, fortran, offset))


def list_npz(found: Found) -> None:
    with zipfile.ZipFile(found.path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                if name == member.filename or stream.read(6) != b"\x93NUMPY":
                    found.pass_over(name, "is not an array")
                    continue
                stream.seek(0)
                shape, fortran, dtype = _npy_header(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.kind != "O" and size != member.file_size - stream.tell():
                    found.pass_over(name, "is cut short or damaged")
                    continue
            found.add(name, shape, dtype, partial(_fetch_npz, found.path, member.filename), least=size if fortran else 0)


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    with quiet():
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)  # 3.0 differs in the names of compound types only


def _fetch_npy(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, offset: int, first: int, end: int
) -> NDArray[Any]:
    values = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return np.array(values[first:end] if shape else values, order="C", subok=False)


def _fetch_npz(path: Path, member: str, first: int, end: int) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        shape, fortran, dtype = _npy_header(stream)
        if fortran or not shape:
            values = _stream(stream, shape[::-1], dtype).T
            return values[first:end] if shape else values
        stream.seek(first * math.prod(shape[1:]) * dtype.itemsize, os.SEEK_CUR)
        values = _stream(stream, (end - first, *shape[1:]), dtype)
        if end == shape[0]:
            stream.read(1)  # the end of the member is where its checksum is compared
        return values


def _stream(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    values = np.empty(shape, dtype)
    view, done = values.reshape(-1).view(np.uint8), 0
    while done < len(view):
        part = stream.read(min(BLOCK, len(view) - done))
        if not part:
            raise ValueError("it is cut short")
        view[done : done + len(part)] = np.frombuffer(part, np.uint8)
        done += len(part)
    return values
