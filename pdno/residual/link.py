r"""Outputs with bounds as functions of values without: u = h(z).

h(z) = b + c max(z, 0)^p                  if u is not below b,
h(z) = b − c max(−z, 0)^p                 if u is not above b,
h(z) = b + c min(max(z, 0), 1)            if u is between b and b + c,
h(z) = c z                                if u has no bound
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from .._typing import Array
from ..data.support import Support

__all__ = ["Link"]

FAR = 1400.0  # square of a number of standard deviations beyond which a density is 0
TINY = 1e-300
ROUNDING = 1e-9  # distance to a bound, in units of c, that counts as none


@dataclass(frozen=True, eq=False)
class Link:
    """h, for each channel.

    Args:
        bounds: lowest and highest output, (channel, 2), infinite where there is no bound.
        unit: c, (channel,).
        power: p.

    >>> link = Link(np.array([[0.0, np.inf]]), np.array([2.0]), 2)
    >>> link(np.array([[[-1.0, 3.0]]])).tolist(), link.latent(np.array([[[0.0, 18.0]]])).tolist()
    ([[[0.0, 18.0]]], [[[0.0, 3.0]]])
    """

    bounds: Array
    unit: Array
    power: int

    @classmethod
    def of(cls, u: Array, mask: Array | None, power: int) -> "Link":
        """Return h for training outputs, (sample, channel, *grid)."""
        support = Support.of(u, mask)
        bounds = np.tile([-np.inf, np.inf], (u.shape[1], 1)) if support is None else support.bounds
        channels = [u[:, c].ravel() if mask is None else u[:, c][mask[:, c]] for c in range(u.shape[1])]
        unit = [_unit(x, *bound) for x, bound in zip(channels, bounds, strict=True)]
        return cls(bounds, np.array(unit), power)

    def __call__(self, z: Array) -> Array:
        """Return u = h(z), (…, channel, *grid)."""
        return self._each(z, _output)

    def latent(self, u: Array) -> Array:
        """Return z = h⁻¹(u), at the limit where u is at a bound."""
        return self._each(u, _latent)

    def expectation(self, mean: Array, std: Array) -> Array:
        """Return E h(z) for z ~ N(mean, std²) at each node, (…, channel, *grid) both.

        E max(z, 0)^p = I_p with I_0 = Φ, I_1 = mean Φ + std φ, I_p = mean I_{p−1} + (p − 1) std² I_{p−2}.
        """
        out, std = np.empty(mean.shape), np.broadcast_to(std, mean.shape)
        for c, (bounds, unit) in enumerate(zip(self.bounds, self.unit, strict=True)):
            low, high = bounds
            out[:, c] = _expected(mean[:, c], std[:, c], low, high, unit, self.power)
        return out

    def clipped(self, u: Array) -> Array:
        """Return outputs within the bounds."""
        low, high = (bound.reshape(-1, *(1,) * (u.ndim - 2)) for bound in self.bounds.T)
        return np.clip(u, low, high)

    def sides(self, u: Array) -> Array:
        """Return +1 where u is at its lower bound, so that z has an upper limit, −1 at its upper bound, and 0 elsewhere."""
        low, high = (bound.reshape(-1, *(1,) * (u.ndim - 2)) for bound in self.bounds.T)
        near = ROUNDING * self.unit.reshape(-1, *(1,) * (u.ndim - 2))
        return np.where(u <= low + near, 1.0, np.where(u >= high - near, -1.0, 0.0))

    def _each(self, values: Array, function: Any) -> Array:
        out = np.empty(values.shape)
        for c, (bounds, unit) in enumerate(zip(self.bounds, self.unit, strict=True)):
            out[:, c] = function(values[:, c], *bounds, unit, self.power)
        return out


def _unit(x: Array, low: float, high: float) -> float:
    """Return the distance of two bounds, or the root mean square distance from one bound, or from 0."""
    if np.isfinite(low) and np.isfinite(high):
        return high - low
    origin = low if np.isfinite(low) else high if np.isfinite(high) else 0.0
    return float(np.sqrt(np.mean(np.square(x - origin)))) or 1.0


def _output(z: Array, low: float, high: float, unit: float, power: int) -> Array:
    if np.isfinite(low) and np.isfinite(high):
        return low + unit * np.clip(z, 0.0, 1.0)
    if np.isfinite(low):
        return low + unit * np.maximum(z, 0.0) ** power
    return high - unit * np.maximum(-z, 0.0) ** power if np.isfinite(high) else unit * z


def _expected(mean: Array, std: Array, low: float, high: float, unit: float, power: int) -> Array:
    if np.isfinite(low) and np.isfinite(high):
        return low + unit * (_positive_part(mean, std, 1) - _positive_part(mean - 1, std, 1))
    if np.isfinite(low):
        return low + unit * _positive_part(mean, std, power)
    return high - unit * _positive_part(-mean, std, power) if np.isfinite(high) else unit * mean


def _positive_part(mean: Array, std: Array, power: int) -> Array:
    """Return E max(z, 0)^p for z ~ N(mean, std²)."""
    t = mean / np.maximum(std, TINY)
    before, now = ndtr(t), mean * ndtr(t) + std * np.exp(-0.5 * np.minimum(t**2, FAR)) / np.sqrt(2 * np.pi)
    for p in range(2, power + 1):
        before, now = now, mean * now + (p - 1) * std**2 * before
    return np.asarray(np.maximum(now, 0.0))


def _latent(u: Array, low: float, high: float, unit: float, power: int) -> Array:
    if np.isfinite(low) and np.isfinite(high):
        return (u - low) / unit
    if np.isfinite(low):
        return np.asarray((np.maximum(u - low, 0.0) / unit) ** (1 / power))
    return np.asarray(-((np.maximum(high - u, 0.0) / unit) ** (1 / power))) if np.isfinite(high) else u / unit
