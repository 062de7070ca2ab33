"""An array in a file: its description before it is read, and the limits of reading it.

A reader lists the arrays of a file by their headers alone and adds them to a `Listing`. The size of an array is compared with a
budget before memory is allocated, and every exception of a library becomes a `UserError`. No file handle outlives a call, so
that entries survive a fork and can be pickled.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import UserError

__all__ = [
    "DEFAULT_BUDGET",
    "LABELS",
    "NOT_NUMERIC",
    "Entry",
    "Listing",
    "labels_of",
    "library",
    "size_text",
    "user_errors",
    "without_warnings",
]

DEFAULT_BUDGET = 8 * 2**30  # bytes that a single read may need
NOT_NUMERIC = {"O": "Python objects", "U": "text", "S": "text", "T": "text", "c": "complex", "V": "a compound type"}
"""Descriptions of the kinds of dtype that are skipped."""
LABELS = ("units", "long_name")  # attributes that describe an array for people
LONGEST_LABEL = 60  # characters
MOST_AXES = 32  # as in NumPy before version 2

Fetch = Callable[[int, int], Array]  # rows from the first to before the second number


@dataclass(frozen=True)
class Entry:
    """An array in a file, not yet read.

    Args:
        name: 'group/name' inside groups.
        shape: of the array.
        dtype: as stored.
        dims: names of the axes, None if the file has none.
        read: function of a slice of the first axis, slice(None) for all rows; a 0-d array ignores the slice.
        labels: its units and long_name, if the file has them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...] | None
    read: Callable[[slice], Array]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Listing:
    """The arrays that a reader finds in a file, and notes on what it skips.

    Args:
        path: of the file.
        budget: bytes that a single read may need.
        entries: arrays by name.
        notes: what was skipped, and why.
    """

    path: Path
    budget: int
    entries: dict[str, Entry]
    notes: list[str]

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fetch: Fetch,
        dims: tuple[str, ...] | None = None,
        least: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Add an array.

        Args:
            name, shape, dtype, dims, labels: as in `Entry`.
            fetch: function that reads rows.
            least: bytes that the smallest read needs: those of a chunk, or of the whole array.
        """
        if dtype.kind not in "biuf":
            self.skip(name, f"is {NOT_NUMERIC.get(dtype.kind, 'not numeric')}")
        elif len(shape) > MOST_AXES or any(n < 0 for n in shape):
            self.skip(name, f"has the impossible shape {shape}")
        else:
            read = partial(_read, self.path, name, shape, dtype, fetch, least, self.budget)
            self.entries[name] = Entry(name, shape, dtype, dims, read, labels or {})

    def skip(self, name: str, reason: str) -> None:
        """Note that an array is not listed, and why."""
        self.notes.append(f"{name!r} {reason}")


def _read(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], fetch: Fetch, least: int, budget: int, rows: slice
) -> Array:
    """Return rows as a native C-ordered array, if their size is within the budget."""
    span = range(shape[0])[rows] if shape else range(0)
    first, end = (min(span[0], span[-1]), max(span[0], span[-1]) + 1) if span else (0, 0)
    expected = (end - first, *shape[1:]) if shape else ()
    size = math.prod(expected) * dtype.itemsize
    if max(size, least if size else 0) > budget:
        raise UserError(
            f"{path}: reading {name!r} needs {size_text(max(size, least))}, the budget is {size_text(budget)}; "
            "read fewer rows, or give contents() a larger budget in bytes"
        )
    native = dtype.newbyteorder("=")
    with user_errors(path):
        values = np.asarray(fetch(first, end)) if size else np.empty(expected, native)
        if values.shape != expected:
            raise ValueError(f"{name!r} has shape {values.shape} where {expected} was declared")
        values = np.asarray(values, dtype=native, order="C")
        return np.asarray(values[:: span.step], order="C") if shape and span.step != 1 else values


def labels_of(attrs: Mapping[str, Any]) -> dict[str, str]:
    """Return units and long_name among the attributes of an array, as short texts.

    >>> labels_of({"units": b"km", "long_name": "position", "scale": 3})
    {'units': 'km', 'long_name': 'position'}
    """
    found = {key: attrs[key] for key in LABELS if key in attrs and isinstance(attrs[key], str | bytes)}
    texts = {key: v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for key, v in found.items()}
    return {key: text for key, v in texts.items() if (text := " ".join(v.split())[:LONGEST_LABEL])}


@contextmanager
def user_errors(path: Path) -> Iterator[None]:
    """Turn every exception that a library raises for a damaged file into a `UserError` of one sentence."""
    try:
        yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path} does not fit into memory; read fewer rows, or use a machine with more") from None
    except Exception as error:  # libraries raise nearly any exception for a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(
            f"{path} cannot be read, it is damaged or of another format than its name says ({reason}); get it again"
        ) from None


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of libraries about unusual files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def library(name: str) -> Any:
    """Import an optional package when a file needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"files of this format need the package {name}; install it with `pip install {name}`") from None


def size_text(size: float) -> str:
    """Return a number of bytes as text.

    >>> size_text(3 * 2**30)
    '3 GiB'
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(len(units) - 1, max(0, int(size).bit_length() - 1) // 10)
    return f"{size / 1024**power:.3g} {units[power]}"
