r"""The distribution of single values, by their scale and by m(a): quantile functions that turn a Gaussian field into any other.

    e = q_l(Φ(g)),        g = Φ⁻¹(F_l(e)),        l = level of the scale σ and of m(a),

q_l is the empirical quantile function of the values at nodes in level l, F_l its inverse. Levels of σ divide the nodes such
that each has an equal share of the sum of σ: the few nodes with the largest scale have levels of their own. Each is
divided into levels of m(a) with equal numbers of nodes: next to a bound of u, for example, values are skewed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from .._typing import Array
from ..draw import generator
from ..work.state import State

__all__ = ["Marginal"]

SCALES = 6  # levels of σ, at most
MEANS = 3  # levels of m(a) for each of them
PER_LEVEL = 2000  # values that a level needs
QUANTILES = 1001  # of each level
SCORES = np.linspace(-4.0, 4.0, QUANTILES)  # normal scores of the quantiles: dense in the tails, where q is steep
BLOCK_VALUES = 2**21  # that are transformed at a time
MOST = 2**21  # values from which the quantiles are computed


@dataclass(frozen=True, eq=False)
class Marginal:
    """Quantile functions for levels of σ and of m(a).

    Args:
        edges: of the levels of σ, for each channel: (channel, level of σ − 1).
        mean_edges: of the levels of m(a), (channel, level of σ, level of m(a) − 1).
        quantiles: of equally spaced normal scores, (channel, level of σ, level of m(a), quantile).

    >>> rng = np.random.default_rng(0)
    >>> ones = np.ones((500, 1, 64))
    >>> marginal = Marginal.of(rng.choice([-1.0, 1.0], size=ones.shape), ones, ones)
    >>> draws = marginal(rng.normal(size=(100, 1, 64)), ones[:100], ones[:100])
    >>> bool(np.isin(draws, [-1.0, 1.0]).mean() > 0.99)
    True
    """

    edges: Array
    mean_edges: Array
    quantiles: Array

    @classmethod
    def of(cls, values: Array, scale: Array, mean: Array, mask: Array | None = None) -> "Marginal":
        """Compute the quantile functions.

        Args:
            values: e, (sample, channel, *grid).
            scale: σ, likewise.
            mean: m(a), likewise.
            mask: True where values are observed.
        """
        some = slice(None, None, max(1, values.size // MOST))
        seen = np.ones(values[some].shape, bool) if mask is None else mask[some]
        channels = [[x[some][:, c][seen[:, c]] for x in (values, scale, mean)] for c in range(values.shape[1])]
        fewest = min(len(e) for e, *_ in channels)
        scales = int(np.clip(fewest // PER_LEVEL, 1, SCALES))
        means = int(np.clip(fewest // (scales * PER_LEVEL), 1, MEANS))
        parts = [_levels(e, sigma, m, scales, means) for e, sigma, m in channels]
        return cls(*(np.asarray(each) for each in zip(*parts, strict=True)))

    def __call__(self, g: Array, scale: Array, mean: Array) -> Array:
        """Return q_l(Φ(g)) for normal scores g, scales σ and m(a), all (row, channel, *grid)."""
        return self._each(lambda x, q: np.interp(x, SCORES, q), g, scale, mean)

    def scores(self, values: Array, scale: Array, mean: Array, seed: int = 0) -> Array:
        """Return normal scores g = Φ⁻¹(F_l(e)); ranks of equal values are drawn."""
        uniform, edges = generator(seed, "marginal", 0).random(values.shape), np.array([0.0, *ndtr(SCORES), 1.0])
        low = self._each(lambda x, q: edges[np.searchsorted(q, x, "left")], values, scale, mean)
        high = self._each(lambda x, q: edges[1 + np.searchsorted(q, x, "right")], values, scale, mean)
        return np.asarray(ndtri(np.clip(low + uniform * (high - low), edges[1], edges[-2])))

    def _each(self, function: Callable[[Array, Array], Array], values: Array, scale: Array, mean: Array) -> Array:
        """Return function(values, quantiles of the level) for all nodes."""
        out, size = np.empty(values.shape), max(1, BLOCK_VALUES // max(1, values[:1].size))
        for low in range(0, len(values), size):
            some = slice(low, low + size)
            self._fill(out[some], function, values[some], scale[some], mean[some])
        return out

    def _fill(self, out: Array, function: Callable[[Array, Array], Array], values: Array, scale: Array, mean: Array) -> None:
        """Write function(values, quantiles of the level) of some rows."""
        for c, edge in enumerate(self.edges):
            levels = np.searchsorted(edge, scale[:, c])
            for level, (mean_edge, rows) in enumerate(zip(self.mean_edges[c], self.quantiles[c], strict=True)):
                here = np.nonzero(levels == level)
                inner = np.searchsorted(mean_edge, mean[:, c][here])
                for number, quantiles in enumerate(rows):
                    places = tuple(axis[inner == number] for axis in here)
                    out[:, c][places] = function(values[:, c][places], quantiles)

    def state(self) -> State:
        """Return edges and quantiles, to be saved."""
        return State({}, {"edges": self.edges, "mean_edges": self.mean_edges, "quantiles": self.quantiles})

    @classmethod
    def from_state(cls, state: State) -> "Marginal":
        """Restore what `state` returned."""
        return cls(*(np.asarray(state.arrays[name]) for name in ("edges", "mean_edges", "quantiles")))


def _levels(e: Array, sigma: Array, m: Array, scales: int, means: int) -> tuple[Array, Array, Array]:
    """Return edges of σ, edges of m(a) and quantiles of one channel."""
    order = np.sort(sigma)
    total = order.cumsum()
    edges = order[np.searchsorted(total, total[-1] * np.arange(1, scales) / scales).clip(max=len(order) - 1)]
    probabilities, mean_edges, quantiles = np.array([0.0, *ndtr(SCORES[1:-1]), 1.0]), [], []
    for level in range(scales):
        here = np.searchsorted(edges, sigma) == level
        here = here if here.any() else np.ones(len(e), bool)
        mean_edges.append(np.quantile(m[here], np.arange(1, means) / means))
        inner = np.searchsorted(mean_edges[-1], m[here])
        parts = (e[here][inner == number] for number in range(means))
        quantiles.append([np.quantile(part if part.size else e[here], probabilities) for part in parts])
    return edges, np.asarray(mean_edges), np.asarray(quantiles)
