r"""Shrinkage of variances that are estimated from few squares towards an average over neighbours.

    log v  ←  c + (log v − c) ω²/(ω² + τ²),      ω² = average of (log v − c)² − τ²,

where v is the mean of ν squares of Gaussian values, τ² = ψ′(ν/2) is the sampling variance of log v, and c is the average of
log v over neighbours. ω² is the variance of log v that sampling does not explain: if it is large, as for spectra that fall by
many decades or have gaps, v hardly changes.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from .._typing import Floats
from ..basis import Waves, mirror

__all__ = ["FLOOR", "shrunk", "spectrum"]

Widths = NDArray[np.intp]
FLOOR = 1e-8  # of the largest s; smaller values are rounding errors of the transforms
ENOUGH = 200  # squares from which the variance of a mode need not be shrunk; averages are over as many, if possible
NEAR = 4  # neighbours of mode k differ from it by at most k/NEAR
TINY = 1e-40  # variance in place of zero, which has no logarithm


def shrunk(variance: Floats, squares: Floats, average: Callable[[Floats], Floats], size: Floats) -> Floats:
    """Return shrunk variances.

    Args:
        variance: v, means of squares.
        squares: ν, number of squares of each; 0 where v is unknown and the average takes its place.
        average: returns the average over neighbours of each value.
        size: number of neighbours of each value.
    """
    half = np.maximum(squares, 1) / 2
    log = np.log(np.maximum(variance, TINY)) - digamma(half) + np.log(half)  # without the bias of log v
    sampling = np.asarray(polygamma(1, half))  # τ²
    rest = log - average(log)
    spread = np.maximum(average(np.where(size > 1, np.square(rest) * size / np.maximum(size - 1, 1) - sampling, 0.0)), 0.0)
    return np.asarray(np.exp(log - np.where(squares > 0, sampling / (spread + sampling), 1.0) * rest))


def spectrum(power: Floats, samples: float, periodic: Waves) -> Floats:
    """Return standard deviations s of modes with mean square one, (channel, *grid); neighbours of k are k − h … k + h.

    Args:
        power: mean squares of the coefficients, (channel, *grid).
        samples: number of independent samples that they are means of.
        periodic: whether each axis is periodic.
    """
    power = (power + mirror(power, periodic)) / 2
    grid = tuple(range(1, power.ndim))
    power = np.where(power.any(axis=grid, keepdims=True), power, 1.0)
    power = np.maximum(power, FLOOR**2 * power.max(axis=grid, keepdims=True))
    index = np.arange(power[0].size).reshape(1, *power.shape[1:])
    squares = samples * np.where(mirror(index, periodic) == index, 1.0, 2.0)
    wanted = (ENOUGH / squares.max()) ** (1 / len(periodic))
    if wanted > 1:
        half = int(np.ceil((wanted - 1) / 2))
        widths = [_width(n, bool(wave), half) for n, wave in zip(power.shape[1:], periodic, strict=True)]
        size = np.asarray(reduce(np.multiply.outer, [2 * h + 1 for h in widths]), np.float64)
        power = shrunk(power, np.broadcast_to(squares, power.shape), lambda x: _boxes(x, widths), size)
    return np.asarray(np.sqrt(power / power.mean(axis=grid, keepdims=True)))


def _width(count: int, periodic: bool, half: int) -> Widths:
    """Return h for each mode of an axis: at most `half`, k/NEAR and the distance to the highest mode."""
    j = np.arange(count)
    k, top = (np.minimum(j, count - j), count // 2) if periodic else (j, count - 1)
    return np.minimum(np.minimum(half, k // NEAR), top - k)


def _boxes(x: Floats, widths: Sequence[Widths]) -> Floats:
    """Return averages over k − h … k + h along all axes of (channel, *grid)."""
    for axis, h in enumerate(widths, start=1):
        sums, k = np.insert(np.cumsum(x, axis=axis), 0, 0.0, axis=axis), np.arange(len(h))
        total = np.take(sums, k + h + 1, axis=axis) - np.take(sums, k - h, axis=axis)
        x = np.moveaxis(np.moveaxis(total, axis, -1) / (2 * h + 1), -1, axis)
    return x
