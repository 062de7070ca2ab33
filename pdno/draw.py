"""Every random number is a function of (seed, purpose, index): never of batch size, process count or what was drawn before.

The counter-based generator Philox makes this free of any book-keeping: seed and purpose are the key, index and step sit
in the upper half of the 256-bit counter, and each (index, step) owns the 2¹²⁸ numbers below.
"""

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

__all__ = ["check_numbers", "generator", "normals"]


@lru_cache(maxsize=256)
def _key(seed: int, purpose: str) -> int:
    return int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, index: int, step: int = 0) -> np.random.Generator:
    """The stream that belongs to (seed, purpose, index, step).

    >>> a, b = generator(0, "field", 7), generator(0, "field", 7)
    >>> bool(a.standard_normal() == b.standard_normal())
    True
    """
    # A list of Python integers: NumPy turns it into four 64-bit words, the last one being the most significant.
    return np.random.Generator(np.random.Philox(key=_key(int(seed), purpose), counter=[0, 0, step, index]))


def check_numbers(first: int, count: int) -> None:
    """Refuse to draw a negative number of samples, or samples with negative numbers."""
    if count < 0 or first < 0:
        raise UserError(f"count = {count}, first = {first}: expected numbers that are not negative")


def normals(seed: int, purpose: str, first: int, count: int, size: int, step: int = 0) -> NDArray[np.float64]:
    """Standard normals of the samples first … first + count − 1: (count, size); fewer are a prefix of more."""
    check_numbers(first, count)
    z = np.empty((count, size))
    for i in range(count):
        generator(seed, purpose, first + i, step).standard_normal(out=z[i])
    return z
