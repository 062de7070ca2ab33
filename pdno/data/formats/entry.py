"""An array in a file: what is known of it before it is read, and what reading it may cost.

A reader lists a file's arrays by their headers alone and adds them to a `Found`. What an array takes is checked against a
budget before memory is asked for, and whatever a library raises becomes one `UserError`. No handle outlives a call, so entries
survive a fork and can be pickled.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError

__all__ = ["DEFAULT_BUDGET", "NOT_NUMERIC", "Entry", "Found", "honest", "library", "quiet", "size_text"]

DEFAULT_BUDGET = 8 * 2**30  # bytes that a single read may take
NOT_NUMERIC = {"O": "Python objects", "U": "text", "S": "text", "T": "text", "c": "complex", "V": "a compound type"}
"""What the kinds of dtype are that are passed over."""

Fetch = Callable[[int, int], NDArray[Any]]


@dataclass(frozen=True)
class Entry:
    """An array in a file, not yet read."""

    name: str  # 'group/name' inside groups
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # as stored
    dims: tuple[str, ...] | None  # names of the axes, where the file has them
    read: Callable[[slice], NDArray[Any]]  # rows of the first axis, slice(None) for all; a 0-d array ignores the slice


@dataclass
class Found:
    """What a reader finds: the arrays, and what was passed over and why."""

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
    ) -> None:
        """Take up an array; `least` is what the smallest read takes in bytes (a chunk, or all of it)."""
        if dtype.kind not in "biuf":
            self.pass_over(name, f"is {NOT_NUMERIC.get(dtype.kind, 'not numeric')}")
        elif len(shape) > 32 or any(n < 0 for n in shape):
            self.pass_over(name, f"has the impossible shape {shape}")
        else:
            read = partial(_read, self.path, name, shape, dtype, fetch, least, self.budget)
            self.entries[name] = Entry(name, shape, dtype, dims, read)

    def pass_over(self, name: str, reason: str) -> None:
        self.notes.append(f"{name!r} {reason}")


def _read(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], fetch: Fetch, least: int, budget: int, rows: slice
) -> NDArray[Any]:
    """The rows as a native C-ordered array, after a look at what they take."""
    span = range(shape[0])[rows] if shape else range(0)
    first, end = (min(span[0], span[-1]), max(span[0], span[-1]) + 1) if span else (0, 0)
    expected = (end - first, *shape[1:]) if shape else ()
    size = math.prod(expected) * dtype.itemsize
    if max(size, least if size else 0) > budget:
        raise UserError(
            f"{path}: reading {name!r} takes {size_text(max(size, least))}, the budget is {size_text(budget)}; "
            "read fewer rows, or give contents() a larger budget in bytes"
        )
    native = dtype.newbyteorder("=")
    with honest(path):
        values = np.asarray(fetch(first, end)) if size else np.empty(expected, native)
        if values.shape != expected:
            raise ValueError(f"{name!r} has shape {values.shape} where {expected} was declared")
        values = np.asarray(values, dtype=native, order="C")
        return np.asarray(values[:: span.step], order="C") if shape and span.step != 1 else values


@contextmanager
def honest(path: Path) -> Iterator[None]:
    """Turn whatever a library raises for a bad file into one sentence."""
    try:
        yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path} does not fit into memory; read fewer rows, or use a machine with more") from None
    except Exception as error:  # the libraries raise nearly every type there is
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read, it is damaged or not what its name says ({reason}); get it again") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that libraries give about odd files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def library(name: str) -> Any:
    """An optional package, loaded when a file needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"files of this kind need the package {name}; install it with `pip install {name}`") from None


def size_text(size: float) -> str:
    """
    >>> size_text(3 * 2**30)
    '3 GiB'
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(len(units) - 1, max(0, int(size).bit_length() - 1) // 10)
    return f"{size / 1024**power:.3g} {units[power]}"
