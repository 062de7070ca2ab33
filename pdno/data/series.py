r"""Serial dependence: consecutive samples that are alike, as frames of a simulation or of an experiment.

    R = Σ_i ‖x_{i+1} − x_i‖² / 2 Σ_i ‖x_i − x̄‖²        (von Neumann's ratio)

is 1 for independent samples, but for chance, and about 1 − ρ for a series with lag-1 autocorrelation ρ; x are some values of a
pair, each of unit variance. A random split of a series puts neighbours of each training sample among the held-out ones, whose
errors are then too small. Blocks of consecutive samples are held out instead, each some correlation times long.

Samples that are sorted by a parameter are alike as well, but independent given that parameter: they are no series.
"""

import numpy as np

from .._typing import Array, Floats, Ints

__all__ = ["blocks", "is_series", "ratio"]

MOST_SAMPLES = 4096  # consecutive ones that are compared
MOST_VALUES = 64  # of a pair, in a and in u
FEWEST = 30  # samples below which no dependence is recognised
ALIKE = 0.7  # R below which samples are a series, unless it is so by chance
SIGMAS = 5  # standard errors of R for independent samples
SORTED = 0.98  # share of changes in one direction, from which samples are sorted by a value
TIMES = 10  # length of a block / correlation time
FEWEST_BLOCKS = 10
MOST_BLOCKS = 40


def is_series(*arrays: Array | None) -> bool:
    """Return whether consecutive samples are alike, and not merely sorted.

    Args:
        arrays: (sample, …), such as inputs, outputs and scalars; None is ignored.

    >>> rng = np.random.default_rng(0)
    >>> white = rng.normal(size=(200, 5))
    >>> is_series(np.cumsum(white, axis=0)), is_series(white), is_series(np.sort(white, axis=0))
    (True, False, False)
    """
    x = _values(arrays)
    if len(x) < FEWEST or not x.shape[1]:
        return False
    up, down = (np.diff(x, axis=0) > 0).sum(axis=0), (np.diff(x, axis=0) < 0).sum(axis=0)
    if (np.maximum(up, down) > SORTED * (up + down)).any():
        return False
    return bool(ratio(x) < min(ALIKE, 1 - SIGMAS / np.sqrt(len(x))))


def blocks(*arrays: Array | None) -> Ints:
    """Return the number of the block of each sample of a series, (sample,).

    Args:
        arrays: (sample, …), such as inputs, outputs and scalars; None is ignored.
    """
    count, rho = len(next(x for x in arrays if x is not None)), 1 - ratio(_values(arrays))
    time = -1 / np.log(np.clip(rho, 0.01, 1 - 1 / count))  # of an autoregressive process
    number = int(np.clip(count / (TIMES * time), FEWEST_BLOCKS, MOST_BLOCKS))
    return np.arange(count) * number // count


def ratio(x: Floats) -> float:
    """Return R of (sample, value); 1 if no value varies."""
    total = 2 * np.square(x - x.mean(axis=0)).sum()
    return float(np.square(np.diff(x, axis=0)).sum() / total) if total > 0 else 1.0


def _values(arrays: tuple[Array | None, ...]) -> Floats:
    """Return some values of each sample that vary, of unit variance: (sample, value)."""
    parts = [np.zeros((0, 0))]
    for array in (x for x in arrays if x is not None):
        flat = np.asarray(array[:MOST_SAMPLES], dtype=np.float64).reshape(min(len(array), MOST_SAMPLES), -1)
        some = flat[:, :: max(1, flat.shape[1] // MOST_VALUES)]
        parts.append(np.where(np.isfinite(some), some, 0.0))
    x = np.concatenate(parts[1:] or parts, axis=1)
    std = x.std(axis=0) if len(x) else np.zeros(x.shape[1])
    varies = std > 1e-12 * np.abs(x).max(axis=0, initial=0.0)
    return np.asarray((x / np.where(varies, std, 1.0))[:, varies])
