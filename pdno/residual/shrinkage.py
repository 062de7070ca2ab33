r"""Variances that are known from few squares, each moved towards an average as far as chance alone could have moved it away.

The logarithm of a variance v of ν squares has the variance τ² = ψ′(ν/2) by chance; with an average c of neighbours,

    log v  ←  c + (log v − c) ω²/(ω² + τ²),      ω² = average of (log v − c)², less τ²,

so that spectra that fall by many decades, or have holes, stay as they are.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from ..modes import Waves, mirror

__all__ = ["FLOOR", "shrunk", "spectrum"]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
FLOOR = 1e-8  # of the largest s: less is the rounding of transforms
ENOUGH = 200  # squares that the variance of a mode is averaged over, if so many neighbours are near
NEAR = 4  # neighbours of mode k differ by k/4 at most


def shrunk(variance: Array, squares: Array, average: Callable[[Array], Array], size: Array) -> Array:
    """v as above, from numbers of squares ν and a way to average over `size` values."""
    half = np.maximum(squares, 1) / 2
    log = np.log(np.maximum(variance, 1e-40)) - digamma(half) + np.log(half)  # log v is biased
    chance = np.asarray(polygamma(1, half))
    rest = log - average(log)
    spread = np.maximum(average(np.where(size > 1, np.square(rest) * size / np.maximum(size - 1, 1) - chance, 0.0)), 0.0)
    return np.asarray(np.exp(log - np.where(squares > 0, chance / (spread + chance), 1.0) * rest))


def spectrum(power: Array, samples: float, periodic: Waves) -> Array:
    """s, of mean square one, from the mean squares of modes, (channel, *grid); the average of k is over k − h … k + h."""
    power = (power + mirror(power, periodic)) / 2
    grid = tuple(range(1, power.ndim))
    power = np.where(power.any(axis=grid, keepdims=True), power, 1.0)
    power = np.maximum(power, FLOOR**2 * power.max(axis=grid, keepdims=True))
    index = np.arange(power[0].size).reshape(1, *power.shape[1:])
    squares = samples * np.where(mirror(index, periodic) == index, 1.0, 2.0)
    wanted = (ENOUGH / squares.max()) ** (1 / len(periodic))
    if wanted > 1:
        half = int(np.ceil((wanted - 1) / 2))
        widths = [_width(n, wave, half) for n, wave in zip(power.shape[1:], periodic, strict=True)]
        size = np.asarray(reduce(np.multiply.outer, [2 * h + 1 for h in widths]), np.float64)
        power = shrunk(power, np.broadcast_to(squares, power.shape), lambda x: _boxes(x, widths), size)
    return np.asarray(np.sqrt(power / power.mean(axis=grid, keepdims=True)))


def _width(count: int, periodic: bool, half: int) -> Rows:
    """h for each mode of an axis: at most `half`, k/4 and the distance to the highest mode."""
    j = np.arange(count)
    k, top = (np.minimum(j, count - j), count // 2) if periodic else (j, count - 1)
    return np.minimum(np.minimum(half, k // NEAR), top - k)


def _boxes(x: Array, widths: Sequence[Rows]) -> Array:
    """Averages over k − h … k + h, along all axes of (channel, *grid)."""
    for axis, h in enumerate(widths, start=1):
        sums, k = np.insert(np.cumsum(x, axis=axis), 0, 0.0, axis=axis), np.arange(len(h))
        total = np.take(sums, k + h + 1, axis=axis) - np.take(sums, k - h, axis=axis)
        x = np.moveaxis(np.moveaxis(total, axis, -1) / (2 * h + 1), -1, axis)
    return x
