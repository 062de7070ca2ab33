"""Normalisation: (x − mean)/std with mean and standard deviation of the training set.

"none"        no normalisation
"scalar"      one mean and std per channel (the paper's "data normalized: yes")
"pointwise"   a mean and std per channel and node
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from .._typing import Array, Mask
from ..errors import UserError, nearest
from ..work.state import State

__all__ = ["Normalisation", "Normalise"]

Normalise = Literal["none", "scalar", "pointwise"]
BLOCK_BYTES = 2**25  # of values that are read at a time: they may be mapped from a file
ROUNDING = 1e-13  # relative to the mean: a smaller standard deviation is rounding error
STEADY = 1e-6  # relative to the whole channel: nodes that vary less (boundary values) are not scaled by their own std


@dataclass(frozen=True, eq=False)
class Normalisation:
    """Mean and standard deviation, which broadcast against (sample, channel, *grid).

    >>> normalisation = Normalisation.of(np.array([[[1.0, 3.0]], [[5.0, 7.0]]]), "scalar")
    >>> normalisation.mean.ravel(), normalisation.normalise(np.array([[[4.0, 4.0]]])).ravel()
    (array([4.]), array([0., 0.]))
    """

    mean: Array
    std: Array

    @classmethod
    def of(cls, values: Array, by: Normalise, mask: Array | None = None) -> "Normalisation":
        """Estimate mean and standard deviation.

        Args:
            values: (sample, channel, *grid).
            by: "none", "scalar" or "pointwise", see the table of the module.
            mask: True where values are observed, in the shape of values; others are ignored.

        Raises:
            UserError: if `by` is unknown.
        """
        if by not in get_args(Normalise):
            raise UserError(f"normalise {by!r} is unknown; {nearest(str(by), get_args(Normalise))}")
        shape = values.shape[1:]
        ones = (1,) * (len(shape) - 1)
        if by == "none":
            return cls(np.zeros((1, *ones)), np.ones((1, *ones)))
        observed = (lambda rows: np.ones_like(values[rows])) if mask is None else (lambda rows: mask[rows])
        mean, std = _moments(values, observed, by == "scalar")
        if by == "pointwise":
            std = np.where(_varies(mean, std), std, 0.0)
            overall = np.sqrt(np.mean(std**2, axis=tuple(range(1, std.ndim)), keepdims=True))  # of each channel
            return cls(mean, np.where(std > STEADY * overall, std, np.where(overall > 0, overall, 1.0)))
        return cls(mean.reshape(-1, *ones), np.where(_varies(mean, std), std, 1.0).reshape(-1, *ones))

    def normalise(self, values: Array) -> Array:
        """Return (values − mean)/std."""
        return np.asarray((values - self.mean) / self.std)

    def restore(self, values: Array) -> Array:
        """Return the inverse of `normalise`."""
        return np.asarray(values * self.std + self.mean)

    def state(self) -> State:
        """Return mean and std, to be saved."""
        return State({}, {"mean": self.mean, "std": self.std})

    @classmethod
    def from_state(cls, state: State) -> "Normalisation":
        """Restore what `state` returned."""
        return cls(state.arrays["mean"], state.arrays["std"])


def _varies(mean: Array, std: Array) -> Mask:
    return np.asarray(std > ROUNDING * np.abs(mean))


def _moments(values: Array, observed: Callable[[slice], Array], by_channel: bool) -> tuple[Array, Array]:
    """Return mean and std per channel, or per channel and node, over the observed values."""
    axes = (0, *range(2, values.ndim)) if by_channel else (0,)
    rows = max(1, BLOCK_BYTES // max(1, values[:1].nbytes))
    blocks = [slice(lo, lo + rows) for lo in range(0, len(values), rows)]

    def mean(of: Callable[[Array], Array]) -> Array:
        total: Array | float = 0.0
        count: Array | float = 0.0
        for block in blocks:
            weight = np.asarray(observed(block), dtype=np.float64)
            filled = np.where(weight > 0, values[block], 0.0).astype(np.float64)
            total, count = total + (weight * of(filled)).sum(axis=axes), count + weight.sum(axis=axes)
        return np.asarray(total / np.maximum(count, 1))

    centre = mean(lambda x: x)
    wide = centre.reshape(-1, *(1,) * (values.ndim - 2)) if by_channel else centre
    return centre, np.sqrt(mean(lambda x: (x - wide) ** 2))
