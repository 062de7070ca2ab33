r"""Normal scores of outputs: a monotone map of the values of each channel to a Gaussian scale.

    y = Φ⁻¹(F(u)),        F = (1 − w) F_u + w U

F_u is the distribution of all training values of a channel, and U the uniform one between the smallest and the largest, with
which gaps between values keep some of their width. Outputs that saturate, such as two phases with a front between them, have
most of their values within a hair of a bound: an error of a network of that size decides on the maximum of the field, and on
where it is attained. Their normal scores are smooth functions without bounds, and errors of them do not leave the range of u.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .._typing import Array
from ..data.support import Support
from ..work.state import State
from .law import Inputs, Residuals

__all__ = ["NormalScores"]

UNIFORM = 0.01  # w
KNOTS = 2000  # quantiles between which F is linear
MOST = 2**21  # values from which they are computed
NEAR = 0.01  # of the range of a channel: distance of values that count as close to the smallest or the largest one
LEAST_SHARE = 0.1  # of the values of a channel, that are close to these, for a map to be used


@dataclass(frozen=True, eq=False)
class NormalScores:
    """The maps of all channels, linear between knots and constant beyond.

    Args:
        values: u at the knots, (channel, knot).
        scores: y there, likewise.

    >>> u = np.tanh(np.linspace(-9, 9, 4001)).reshape(1, 1, -1)
    >>> scores = NormalScores.of(u)
    >>> y = scores(u)
    >>> bool(np.abs(scores.restored(y) - u).max() < 1e-3), bool(np.ptp(y) > 6)
    (True, True)
    """

    values: Array
    scores: Array

    @classmethod
    def of(cls, u: Array, mask: Array | None = None) -> "NormalScores":
        """Return the maps for training outputs, (sample, channel, *grid)."""
        knots = [_knots(x) for x in _channels(u, mask)]
        return cls(*(np.stack([each[k] for each in knots]) for k in range(2)))

    @classmethod
    def if_saturated(cls, u: Array, mask: Array | None = None) -> "NormalScores | None":
        """Return the maps if many values of a channel are close to its extremes, without being among a few values."""
        support = Support.of(u, mask)
        few = np.zeros(u.shape[1], bool) if support is None else np.isfinite(support.values).any(axis=1)
        shares = [_share_near_extremes(x) for x in _channels(u, mask)]
        return cls.of(u, mask) if max(shares) > LEAST_SHARE and not few.any() else None

    def __call__(self, u: Array) -> Array:
        """Return y, (sample, channel, *grid)."""
        return _mapped(u, self.values, self.scores)

    def restored(self, y: Array) -> Array:
        """Return u for scores, (row, channel, *grid)."""
        return _mapped(y, self.scores, self.values)

    def residuals(self, given: Residuals) -> Residuals:
        """Return y − y(m(a)) for residuals u − m(a)."""
        mask, pairs = given.mask, given.pairs
        y, mean = self(pairs.filled), self(given.inputs.mean)
        values = y - mean if mask is None else np.where(mask, y - mean, 0.0)
        return Residuals(pairs.with_outputs(y), values, (), given.periodic, mean)

    def inputs(self, inputs: Inputs) -> Inputs:
        """Return the inputs with y(m(a))."""
        return inputs.once("normal scores", lambda: Inputs(inputs.a, self(inputs.mean), inputs.scalars))

    def state(self) -> State:
        """Return the knots, to be saved."""
        return State({}, {"values": self.values, "scores": self.scores})

    @classmethod
    def from_state(cls, state: State) -> "NormalScores":
        """Restore what `state` returned."""
        return cls(np.asarray(state.arrays["values"]), np.asarray(state.arrays["scores"]))


def _channels(u: Array, mask: Array | None) -> list[Array]:
    """Return the observed values of each channel."""
    return [u[:, c].ravel() if mask is None else u[:, c][mask[:, c]] for c in range(u.shape[1])]


def _share_near_extremes(x: Array) -> float:
    low, high = float(x.min(initial=np.inf)), float(x.max(initial=-np.inf))
    near = NEAR * (high - low)
    return float(np.mean((x <= low + near) | (x >= high - near))) if near > 0 else 0.0


def _knots(x: Array) -> tuple[Array, Array]:
    """Return KNOTS increasing values and their scores; equal values have the score in their middle."""
    some = x[:: max(1, x.size // MOST)]
    half = 0.5 / len(some)
    p = np.concatenate([[0.0], (np.arange(KNOTS - 2) + 0.5) / (KNOTS - 2), [1.0]])
    distinct, first, count = np.unique(np.quantile(some, p), return_index=True, return_counts=True)
    p = (0.5 * (p[first] + p[first + count - 1])).clip(half, 1 - half)
    uniform = half + (1 - 2 * half) * (distinct - distinct[0]) / max(np.ptp(distinct), np.finfo(float).tiny)
    scores = ndtri((1 - UNIFORM) * p + UNIFORM * uniform)
    missing = KNOTS - len(distinct)  # channels have equal numbers of knots
    return np.pad(distinct, (0, missing), mode="edge"), np.pad(scores, (0, missing), mode="edge")


def _mapped(x: Array, knots: Array, values: Array) -> Array:
    out = np.empty(x.shape)
    for c, (here, there) in enumerate(zip(knots, values, strict=True)):
        out[:, c] = np.interp(x[:, c], here, there)
    return out
