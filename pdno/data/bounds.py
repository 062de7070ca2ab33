"""Bounds that outputs attain: rain is not negative, a concentration is at most 1.

If many training values are equal to the smallest or the largest one, up to rounding, this value is a bound of the quantity, and
not merely the most extreme observation: members are clipped to it.
"""

import numpy as np

from .._typing import Array, Floats

__all__ = ["attained_bounds"]

SHARE = 0.01  # of the values of a channel that are at a bound
ROUNDING = 1e-9  # distance from the bound, in units of the range of the values


def attained_bounds(u: Array, mask: Array | None = None) -> Floats | None:
    """Return the lower and the upper bound of each channel, infinite where there is none.

    Args:
        u: outputs, (sample, channel, *grid).
        mask: True where they are observed.

    Returns:
        (channel, 2), or None if no channel has a bound.

    >>> rng = np.random.default_rng(0)
    >>> attained_bounds(np.maximum(rng.normal(size=(50, 1, 20)), 0)).tolist()
    [[0.0, inf]]
    """
    bounds = np.array([_of_channel(u[:, c] if mask is None else u[:, c][mask[:, c]]) for c in range(u.shape[1])])
    return bounds if np.isfinite(bounds).any() else None


def _of_channel(values: Array) -> tuple[float, float]:
    if not values.size:
        return -np.inf, np.inf
    low, high = float(values.min()), float(values.max())
    near = ROUNDING * (high - low)
    if near == 0:
        return -np.inf, np.inf
    at_low, at_high = np.mean(values <= low + near), np.mean(values >= high - near)
    return (low if at_low >= SHARE else -np.inf), (high if at_high >= SHARE else np.inf)
