"""Values that `learn` has computed and `residuals` needs again, if it is called with the same arrays.

    mean.learn(pairs, …)                        computes leave-one-out residuals on the way
    mean.residuals(pairs.a, pairs.filled, …)    returns them, without solving again

Arrays are compared by a digest, as equal ones need not be the same object: outputs of data with a mask are filled on each use.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from .._typing import Array

__all__ = ["Reusable"]


@dataclass(frozen=True, eq=False)
class Reusable:
    """Values together with the digest of the arrays and the seed that they were computed from.

    It is neither saved nor copied: copies of a mean share it, and replace it when they are trained.

    >>> a, u = np.zeros((2, 1, 3)), np.ones((2, 1, 3))
    >>> reusable = Reusable.of(u, a, u, None, seed=0)
    >>> reusable.fits(a.copy(), u, None, seed=0), reusable.fits(a, 2 * u, None, seed=0), reusable.fits(a, u, None, seed=1)
    (True, False, False)
    """

    digest: bytes
    values: Array | None

    @classmethod
    def of(
        cls, values: Array | None, a: Array, u: Array, scalars: Array | None, seed: int, labels: Array | None = None
    ) -> Self:
        """Keep values that were computed from these arrays; None for "there are none, do not compute them again"."""
        return cls(_digest(seed, a, u, scalars, labels), values)

    def fits(self, a: Array, u: Array, scalars: Array | None, seed: int, labels: Array | None = None) -> bool:
        """Return whether the values were computed from the same arrays and seed."""
        return self.digest == _digest(seed, a, u, scalars, labels)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _digest(seed: int, *arrays: Array | None) -> bytes:
    digest = blake2b(f"{seed} {[values is None for values in arrays]}".encode())
    for values in (values for values in arrays if values is not None):
        dense = np.ascontiguousarray(values)
        digest.update(f"{dense.shape} {dense.dtype.str}".encode())
        digest.update(dense.data if dense.size else b"")
    return digest.digest()
