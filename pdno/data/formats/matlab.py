"""MATLAB's files up to v7 (`mat v5`), read in a child; those of v7.3 are HDF5 and share the classes."""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASSES", "Matlab"]

CLASSES = {
    "double": "f8",
    "single": "f4",
    "logical": "?",
    **{f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}
"""MATLAB's numeric classes and their dtypes."""


class Matlab:
    """The reader that runs in the child."""

    def __init__(self, path: str, limit: Callable[[], None]) -> None:
        import scipy.io

        self.io: Any = scipy.io
        self.path = path
        limit()

    def listing(self) -> dict[str, Any]:
        entries, notes = [], []
        variables = self.io.whosmat(self.path, appendmat=False)
        for (name, shape, mclass), is_complex in zip(variables, self._complex(), strict=True):
            if mclass not in CLASSES or is_complex:
                notes.append(f"{name!r} is {'complex' if is_complex else f'of MATLAB class {mclass}'}")
            else:
                entries.append((name, [int(n) for n in shape], CLASSES[mclass]))
        return {"entries": entries, "notes": notes}

    def values(self, name: str, first: int, end: int) -> NDArray[Any]:
        values = self.io.loadmat(self.path, appendmat=False, variable_names=[name], mat_dtype=True)[name]
        return np.asarray(values[first:end], order="C")

    def _complex(self) -> Iterator[bool]:
        """Whether each variable is complex, which whosmat does not say: the flags are the first thing of an element."""
        with open(self.path, "rb") as stream:
            order = "<" if stream.read(128)[126:] == b"IM" else ">"
            while len(tag := stream.read(8)) == 8:
                (kind, size), place = struct.unpack(f"{order}II", tag), stream.tell()
                start = stream.read(min(size, 4096))
                if kind == 15:  # compressed, with a tag of its own inside
                    start = zlib.decompressobj().decompress(start, 64)[8:]
                yield bool(struct.unpack(f"{order}I", start[8:12])[0] & 0x800)
                stream.seek(place + size)
