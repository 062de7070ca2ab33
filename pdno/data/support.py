"""The values that outputs can take: bounds that they attain, or a few values.

Rain is not negative, a concentration is at most 1: if many training values are equal to the smallest or the largest one, up to
rounding, this value is a bound of the quantity, and not merely the most extreme observation. A phase is 0 or 1: if all training
values of a channel are among a few, the others are impossible; a channel that is constant up to rounding has one value. Members
are moved to the nearest possible value.
"""

from dataclasses import dataclass

import numpy as np

from .._typing import Array
from ..work.state import State

__all__ = ["Support"]

SHARE = 0.01  # of the values of a channel that are at a bound
CONSTANT = 1e-12  # range of the values of a channel, relative to the largest, below which they are equal
ROUNDING = 1e-9  # distance between equal values, in units of their range
MOST_VALUES = 8  # that count as a few
FEWEST_EACH = 20  # values of a channel for each of them, on average


@dataclass(frozen=True, eq=False)
class Support:
    """Bounds and values of each channel.

    Args:
        bounds: lowest and highest value, (channel, 2), infinite where there is no bound.
        values: all possible values, (channel, MOST_VALUES), in order; NaN where there are fewer, or any value is possible.

    >>> rng = np.random.default_rng(0)
    >>> support = Support.of(np.maximum(rng.normal(size=(50, 1, 20)), 0))
    >>> support.bounds.tolist(), support.nearest(np.array([[[-0.3, 0.2]]])).tolist()
    ([[0.0, inf]], [[[0.0, 0.2]]])
    """

    bounds: Array
    values: Array

    @classmethod
    def of(cls, u: Array, mask: Array | None = None) -> "Support | None":
        """Return the support of training outputs.

        Args:
            u: outputs, (sample, channel, *grid).
            mask: True where they are observed.

        Returns:
            None if any value is possible in all channels.
        """
        channels = [u[:, c].ravel() if mask is None else u[:, c][mask[:, c]] for c in range(u.shape[1])]
        bounds, values = np.array([_bounds(x) for x in channels]), np.array([_values(x) for x in channels])
        return cls(bounds, values) if np.isfinite(bounds).any() or np.isfinite(values).any() else None

    def clipped(self, u: Array) -> Array:
        """Return values (row, channel, *grid) within the bounds; the value of a channel that has only one."""
        only = np.where(np.isfinite(self.values).sum(axis=1) == 1, self.values[:, 0], np.nan)
        low, high, only = (x.reshape(-1, *(1,) * (u.ndim - 2)) for x in (*self.bounds.T, only))
        return np.where(np.isnan(only), np.clip(u, low, high), only)

    def nearest(self, u: Array) -> Array:
        """Return the nearest possible values, (row, channel, *grid)."""
        out = self.clipped(u)
        for c, values in enumerate(self.values):
            some = values[np.isfinite(values)]
            if some.size:
                out[:, c] = some[np.searchsorted((some[1:] + some[:-1]) / 2, out[:, c])]
        return out

    def state(self) -> State:
        """Return bounds and values, to be saved."""
        return State({}, {"bounds": self.bounds, "values": self.values})

    @classmethod
    def from_state(cls, state: State) -> "Support":
        """Restore what `state` returned."""
        return cls(state.arrays["bounds"], state.arrays["values"])


def _bounds(x: Array) -> tuple[float, float]:
    """Return the bounds that values attain."""
    if not x.size or _is_constant(x):
        return -np.inf, np.inf
    low, high, near = float(x.min()), float(x.max()), ROUNDING * float(np.ptp(x))
    at_low, at_high = np.mean(x <= low + near), np.mean(x >= high - near)
    return (low if at_low >= SHARE else -np.inf), (high if at_high >= SHARE else np.inf)


def _is_constant(x: Array) -> bool:
    """Return whether values are equal up to rounding."""
    return bool(np.ptp(x) <= CONSTANT * np.abs(x).max())


def _values(x: Array) -> Array:
    """Return all values if they are a few, NaN otherwise: (MOST_VALUES,)."""
    out = np.full(MOST_VALUES, np.nan)
    if x.size and _is_constant(x):
        out[0] = np.median(x)
    if not x.size or _is_constant(x) or np.unique(x[: 4 * MOST_VALUES]).size > MOST_VALUES:
        return out
    distinct = np.unique(x)
    if distinct.size <= MOST_VALUES and len(x) >= FEWEST_EACH * distinct.size:
        out[: distinct.size] = distinct
    return out
