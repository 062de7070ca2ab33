"""Random numbers as functions of (seed, purpose, index, step), independent of batch size, process count and earlier draws.

The counter-based generator Philox needs no stored state for this: seed and purpose determine the key; index and step fill the
upper half of the 256-bit counter, so that each (index, step) has a stream of 2¹²⁸ numbers of its own.
"""

from functools import lru_cache
from hashlib import blake2b

import numpy as np

from ._typing import Floats
from .errors import UserError

__all__ = ["check_range", "generator", "normals"]


@lru_cache(maxsize=256)
def _key(seed: int, purpose: str) -> int:
    """Return a 128-bit key for (seed, purpose)."""
    return int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, index: int, step: int = 0) -> np.random.Generator:
    """Return the random stream of (seed, purpose, index, step).

    Args:
        seed: seed of the experiment.
        purpose: name of the random quantity; different purposes have independent streams.
        index: number of the sample.
        step: number of the draw for this sample, for instance the epoch.

    >>> a, b = generator(0, "field", 7), generator(0, "field", 7)
    >>> bool(a.standard_normal() == b.standard_normal())
    True
    """
    # NumPy turns a list of Python integers into four 64-bit words, the last of which is the most significant.
    return np.random.Generator(np.random.Philox(key=_key(int(seed), purpose), counter=[0, 0, step, index]))


def check_range(first: int, count: int) -> None:
    """Raise UserError unless the samples first … first + count − 1 have non-negative indices and a non-negative count."""
    if count < 0 or first < 0:
        raise UserError(f"count = {count}, first = {first}: both must not be negative")


def normals(seed: int, purpose: str, first: int, count: int, size: int, step: int = 0) -> Floats:
    """Draw standard normal numbers for the samples first … first + count − 1.

    Returns:
        (count, size). A smaller `size` gives a prefix of the same numbers.
    """
    check_range(first, count)
    z = np.empty((count, size))
    for i in range(count):
        generator(seed, purpose, first + i, step).standard_normal(out=z[i])
    return z
