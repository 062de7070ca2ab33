r"""Mean squares of modes from fields with missing values, by the covariance as a function of the lag.

    E c_k² = Σ_l ρ_l e^{−ik·l},        ρ_l = average of x_i x_j over the observed pairs of nodes with lag l,

with bounded axes continued by reflection, so that c_k are the coefficients of the real orthonormal modes (`pdno.basis`).
Without missing values this is exactly the mean square. With missing values it may be negative, by its own error: the largest
such error is the smallest value returned.
"""

from collections.abc import Iterable

import numpy as np
import scipy.fft as fft

from .._typing import Floats, Mask
from ..basis import Waves, mirror

__all__ = ["power_by_lag"]

FEWEST_PAIRS = 0.5  # observed pairs of a lag, below which its covariance is taken as 0; counts are whole numbers


def power_by_lag(blocks: Iterable[tuple[Floats, Mask]], periodic: Waves) -> Floats:
    """Return mean squares of the coefficients of fields: (channel, *grid).

    Args:
        blocks: fields (sample, channel, *grid) and where they are observed.
        periodic: whether each axis is periodic.
    """
    sums = [
        (_autocorrelation(np.where(observed, x, 0.0), periodic), _autocorrelation(observed.astype(np.float64), periodic))
        for x, observed in blocks
    ]
    products, pairs = np.sum(sums, axis=0)
    covariance = np.divide(products, pairs, where=pairs > FEWEST_PAIRS, out=np.zeros(products.shape))
    axes = tuple(range(1, covariance.ndim))
    power = fft.fftn(covariance, axes=axes).real
    for axis, wave in zip(axes, periodic, strict=True):
        if not wave:
            power = np.take(power, range(power.shape[axis] // 2), axis=axis)
            power[(slice(None),) * axis + (slice(0, 1),)] /= 2
    power = (power + mirror(power, periodic)) / 2
    error = np.maximum(-power.min(axis=axes, keepdims=True), 0.0)
    return np.asarray(np.maximum(power, error))


def _autocorrelation(x: Floats, periodic: Waves) -> Floats:
    """Return Σ over samples and nodes i of x_i x_{i+l}, for each lag l: (channel, *grid), bounded axes twice as long."""
    axes = tuple(range(2, x.ndim))
    for axis, wave in zip(axes, periodic, strict=True):
        x = x if wave else np.concatenate([x, np.flip(x, axis)], axis=axis)
    power = np.square(np.abs(fft.fftn(x, axes=axes))).sum(axis=0)
    return np.asarray(fft.ifftn(power, axes=tuple(range(1, power.ndim))).real)
