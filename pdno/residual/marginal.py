r"""The distribution of single values, by their scale: quantile functions that turn a Gaussian field into any other.

    e = q_l(Φ(g)),        g = Φ⁻¹(F_l(e)),        l = level of the scale σ,

q_l is the empirical quantile function of the values at nodes whose scale is in level l, F_l its inverse. Levels divide the
nodes such that each has an equal share of the sum of σ: the few nodes with the largest scale have levels of their own.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from .._typing import Array
from ..draw import generator
from ..work.state import State

__all__ = ["Marginal"]

LEVELS = 6  # at most
PER_LEVEL = 4000  # values that a level needs
QUANTILES = 1001  # of each level
MOST = 2**21  # values from which the quantiles are computed


@dataclass(frozen=True, eq=False)
class Marginal:
    """Quantile functions for levels of σ.

    Args:
        edges: of the levels, for each channel: (channel, level − 1).
        quantiles: of equally spaced probabilities, (channel, level, quantile).

    >>> rng = np.random.default_rng(0)
    >>> marginal = Marginal.of(rng.choice([-1.0, 1.0], size=(500, 1, 64)), np.ones((500, 1, 64)))
    >>> draws = marginal(rng.normal(size=(100, 1, 64)), np.ones((100, 1, 64)))
    >>> bool(np.isin(draws, [-1.0, 1.0]).mean() > 0.99)
    True
    """

    edges: Array
    quantiles: Array

    @classmethod
    def of(cls, values: Array, scale: Array, mask: Array | None = None) -> "Marginal":
        """Compute the quantile functions.

        Args:
            values: e, (sample, channel, *grid).
            scale: σ, likewise.
            mask: True where values are observed.
        """
        some = slice(None, None, max(1, values.size // MOST))
        values, scale = values[some], scale[some]
        seen = np.ones(values.shape, bool) if mask is None else mask[some]
        channels = [(values[:, c][seen[:, c]], scale[:, c][seen[:, c]]) for c in range(values.shape[1])]
        count = int(np.clip(min(len(e) for e, _ in channels) // PER_LEVEL, 1, LEVELS))
        edges = np.stack([_edges(sigma, count) for _, sigma in channels])
        grid = np.linspace(0, 1, QUANTILES)
        quantiles = [
            [_quantiles(e, np.searchsorted(edge, sigma) == level, grid) for level in range(count)]
            for (e, sigma), edge in zip(channels, edges, strict=True)
        ]
        return cls(edges, np.asarray(quantiles))

    def __call__(self, g: Array, scale: Array) -> Array:
        """Return q_l(Φ(g)) for normal scores g and scales σ, both (row, channel, *grid)."""
        return self._each(lambda x, q: np.interp(x, np.linspace(0, 1, QUANTILES), q), ndtr(g), scale)

    def scores(self, values: Array, scale: Array, seed: int = 0) -> Array:
        """Return normal scores g = Φ⁻¹(F_l(e)); ranks of equal values are drawn."""
        uniform = generator(seed, "marginal", 0).random(values.shape)
        low = self._each(lambda x, q: np.searchsorted(q, x, "left").astype(np.float64), values, scale)
        high = self._each(lambda x, q: np.searchsorted(q, x, "right").astype(np.float64), values, scale)
        rank = (low + uniform * np.maximum(high - low, 1.0)) / (QUANTILES + 1)
        return np.asarray(ndtri(np.clip(rank, 0.25 / QUANTILES, 1 - 0.25 / QUANTILES)))

    def _each(self, function: "type[Array] | object", values: Array, scale: Array) -> Array:
        """Return function(values, quantiles of the level) for all nodes."""
        out = np.empty(values.shape)
        for c, edge in enumerate(self.edges):
            levels = np.searchsorted(edge, scale[:, c])
            for level, quantiles in enumerate(self.quantiles[c]):
                here = levels == level
                out[:, c][here] = function(values[:, c][here], quantiles)  # type: ignore[operator]
        return out

    def state(self) -> State:
        """Return edges and quantiles, to be saved."""
        return State({}, {"edges": self.edges, "quantiles": self.quantiles})

    @classmethod
    def from_state(cls, state: State) -> "Marginal":
        """Restore what `state` returned."""
        return cls(np.asarray(state.arrays["edges"]), np.asarray(state.arrays["quantiles"]))


def _edges(scale: Array, count: int) -> Array:
    """Return values of σ that divide the sum of σ into equal shares."""
    order = np.sort(scale)
    total = order.cumsum()
    return np.asarray(order[np.searchsorted(total, total[-1] * np.arange(1, count) / count).clip(max=len(order) - 1)])


def _quantiles(values: Array, here: Array, grid: Array) -> Array:
    return np.quantile(values[here] if here.any() else values, grid)
