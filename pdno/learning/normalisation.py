"""Normalisation: (x − mean)/std with the mean and the standard deviation of the training set.

"none"        as it is
"scalar"      one mean and std for each channel (the paper's "data normalized: yes")
"pointwise"   a mean and std for each channel and node
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, nearest

__all__ = ["Normalise", "Scaling"]

Array = NDArray[Any]
Normalise = Literal["none", "scalar", "pointwise"]
BLOCK_BYTES = 2**25


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and std that broadcast against (sample, channel, *grid).

    >>> scaling = Scaling.of(np.array([[[1.0, 3.0]], [[5.0, 7.0]]]), "scalar")
    >>> scaling.mean.ravel(), scaling.normalise(np.array([[[4.0, 4.0]]])).ravel()
    (array([4.]), array([0., 0.]))
    """

    mean: Array
    std: Array

    @classmethod
    def of(cls, values: Array, kind: Normalise, mask: Array | None = None) -> "Scaling":
        """From (sample, channel, …), in blocks, as they may be mapped from a file; values where the mask is 0 do not count."""
        if kind not in get_args(Normalise):
            raise UserError(f"normalise {kind!r} is unknown; {nearest(str(kind), get_args(Normalise))}")
        shape = values.shape[1:]
        if kind == "none":
            ones = (1,) * len(shape)
            return cls(np.zeros(ones), np.ones(ones))
        known = (lambda rows: np.ones_like(values[rows])) if mask is None else (lambda rows: mask[rows])
        mean, std = _moments(values, known, kind == "scalar")
        if kind == "pointwise":  # nodes that never change (boundary values) have nothing to be scaled by
            std = np.where(_varies(mean, std), std, 0.0)
            overall = float(np.sqrt(np.mean(std**2))) or 1.0
            return cls(mean, np.where(std > 1e-6 * overall, std, overall))
        ones = (1,) * (len(shape) - 1)
        return cls(mean.reshape(-1, *ones), np.where(_varies(mean, std), std, 1.0).reshape(-1, *ones))

    def normalise(self, values: Array) -> Array:
        return np.asarray((values - self.mean) / self.std)

    def restore(self, values: Array) -> Array:
        """The inverse of `normalise`."""
        return np.asarray(values * self.std + self.mean)


def _varies(mean: Array, std: Array) -> NDArray[np.bool_]:
    """Whether a deviation is more than the rounding of a mean."""
    return np.asarray(std > 1e-13 * np.abs(mean))


def _moments(values: Array, known: Callable[[slice], Array], by_channel: bool) -> tuple[Array, Array]:
    """Mean and std of each channel, or of each channel and node, over the values that are known."""
    axes = (0, *range(2, values.ndim)) if by_channel else (0,)
    rows = max(1, BLOCK_BYTES // max(1, values[:1].nbytes))
    blocks = [slice(lo, lo + rows) for lo in range(0, len(values), rows)]

    def mean(of: Callable[[Array], Array]) -> Array:
        total: Any = 0.0
        count: Any = 0.0
        for block in blocks:
            weight = np.asarray(known(block), dtype=np.float64)
            filled = np.where(weight > 0, values[block], 0.0).astype(np.float64)
            total, count = total + (weight * of(filled)).sum(axis=axes), count + weight.sum(axis=axes)
        return np.asarray(total / np.maximum(count, 1))

    centre = mean(lambda x: x)
    wide = centre.reshape(-1, *(1,) * (values.ndim - 2)) if by_channel else centre
    return centre, np.sqrt(mean(lambda x: (x - wide) ** 2))
