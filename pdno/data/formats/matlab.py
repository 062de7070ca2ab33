"""MATLAB files up to v7 (`mat v5`), read in a child process; those of v7.3 are HDF5 files with the same classes."""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..._typing import Array

__all__ = ["CLASSES", "Matlab"]

CLASSES = {
    "double": "f8",
    "single": "f4",
    "logical": "?",
    **{f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}
"""MATLAB's numeric classes and their dtypes."""
COMPRESSED = 15  # type of an element that is compressed
COMPLEX = 0x800  # flag of a complex array


class Matlab:
    """The reader that runs in the child."""

    def __init__(self, path: str, limit: Callable[[], None]) -> None:
        import scipy.io

        self.io: Any = scipy.io
        self.path = path
        limit()

    def listing(self) -> dict[str, Any]:
        """Return name, shape and dtype of all arrays, and notes on what is skipped."""
        entries, notes = [], []
        variables = self.io.whosmat(self.path, appendmat=False)
        for (name, shape, mclass), is_complex in zip(variables, self._complex(), strict=True):
            if mclass not in CLASSES or is_complex:
                notes.append(f"{name!r} is {'complex' if is_complex else f'of MATLAB class {mclass}'}")
            else:
                entries.append((name, [int(n) for n in shape], CLASSES[mclass]))
        return {"entries": entries, "notes": notes}

    def values(self, name: str, first: int, end: int) -> Array:
        """Return rows of an array."""
        values = self.io.loadmat(self.path, appendmat=False, variable_names=[name], mat_dtype=True)[name]
        return np.asarray(values[first:end], order="C")

    def _complex(self) -> Iterator[bool]:
        """Yield whether each variable is complex, by the flags at the beginning of its element; whosmat does not return it."""
        with open(self.path, "rb") as stream:
            order = "<" if stream.read(128)[126:] == b"IM" else ">"
            while len(tag := stream.read(8)) == 8:
                (kind, size), place = struct.unpack(f"{order}II", tag), stream.tell()
                start = stream.read(min(size, 4096))
                if kind == COMPRESSED:  # with a tag of its own inside
                    start = zlib.decompressobj().decompress(start, 64)[8:]
                yield bool(struct.unpack(f"{order}I", start[8:12])[0] & COMPLEX)
                stream.seek(place + size)
