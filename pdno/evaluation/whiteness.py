"""Tests whether residuals are white noise: uncorrelated between neighbouring nodes, and unrelated to the input there."""

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from .principal import principal

__all__ = ["components_look_gaussian", "depends_on_input", "is_uncorrelated", "looks_gaussian", "neighbour_correlation"]

WHITE = 0.03  # correlation of neighbouring nodes above which residuals never count as white
NEGLIGIBLE = 0.004  # correlation below which they always do
CORRELATION_SIGMAS = 4  # standard errors that the correlation of white noise may differ from 0, between the two
BINS = 20  # of values of the input
SIGMAS = 6  # standard deviations of χ² above its mean, beyond which residuals depend on the input
FEWEST = 100  # fields needed to distinguish a Gaussian from other distributions
COMPONENTS = 4  # principal components of fields whose distribution is tested
MOMENT_SIGMAS = 4  # standard errors that skewness and excess kurtosis may differ from 0


def neighbour_correlation(residual: Array, mask: Array | None = None) -> float:
    """Return the correlation of neighbouring nodes, the largest over the axes.

    Args:
        residual: (sample, channel, *grid); channels have equal weights.
        mask: True where it is observed.
    """
    return _largest_correlation(residual, mask)[0]


def is_uncorrelated(residual: Array, mask: Array | None = None) -> bool:
    """Test whether neighbouring nodes are uncorrelated, as far as so many values can show.

    The correlation of N values of white noise has the standard error 1/√N, and a larger one if sizes of fields or places
    differ. That of a mean with a smooth error beside white noise is the share of the error in the variance: with many values, a
    few thousandths are significant, and worth removing.

    Args:
        residual: (sample, channel, *grid).
        mask: True where it is observed.
    """
    correlation, stderr = _largest_correlation(residual, mask)
    return abs(correlation) < float(np.clip(CORRELATION_SIGMAS * stderr, NEGLIGIBLE, WHITE))


def _largest_correlation(residual: Array, mask: Array | None) -> tuple[float, float]:
    """Return the correlation of neighbouring nodes along the axis where it is largest, and its error for white noise."""
    known = np.ones(residual.shape, dtype=bool) if mask is None else np.asarray(mask) > 0
    r, axes = np.where(known, residual, 0.0), (0, *range(2, residual.ndim))
    size = np.sqrt(np.square(r).sum(axis=axes, keepdims=True) / np.maximum(known.sum(axis=axes, keepdims=True), 1))
    r = np.divide(r, size, out=np.zeros(r.shape), where=size > 0)
    power = float(np.mean(r[known] ** 2)) if known.any() else 0.0
    if power == 0:
        return 0.0, 0.0
    found = []
    for k in (k for k in range(2, r.ndim) if r.shape[k] > 1):
        (x, y), (of_x, of_y) = ([np.take(v, range(i, v.shape[k] - 1 + i), k) for i in (0, 1)] for v in (r, known))
        products = (x * y)[of_x & of_y]  # of neighbours that are observed together
        if products.size:
            found.append((float(products.mean()) / power, float(np.sqrt(np.mean(products**2) / products.size)) / power))
    return max(found, key=lambda each: abs(each[0])) if found else (1.0, 0.0)


def depends_on_input(residual: Array, pairs: Pairs, bins: int = BINS) -> bool:
    """Test whether the mean of residuals depends on the input at the same or at a neighbouring node.

    Args:
        residual: (sample, channel, *grid).
        pairs: whose inputs are compared. Without a test, the result is False: with a mask, or inputs on another grid.
        bins: into which the values of the input are divided.
    """
    a = pairs.a
    if a.shape[2:] != residual.shape[2:] or pairs.mask is not None:
        return False
    nearby = [a, *(np.roll(a, shift, axis) for axis in range(2, a.ndim) for shift in (-1, 1))]
    for values in (x[:, c] for x in nearby for c in range(a.shape[1])):
        edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
        label = np.digitize(values, edges).ravel()
        count = np.maximum(np.bincount(label, minlength=len(edges) + 1), 1)
        for r in (residual[:, c].ravel() for c in range(residual.shape[1])):
            between = float((np.bincount(label, r, minlength=len(count)) ** 2 / count).sum())
            if between > (bins + SIGMAS * np.sqrt(2 * bins)) * float(np.mean(r**2)):  # quantile of χ² with this number of bins
                return True
    return False


def looks_gaussian(r: Array, mask: Array | None = None) -> bool:
    """Test whether fields look like white Gaussian noise: uncorrelated, homoscedastic, without skewness or excess kurtosis.

    Third and fourth moments are averaged over each field and tested over the fields, whose nodes may be dependent.

    Args:
        r: normalised residuals, (sample, channel, *grid).
        mask: True where they are observed; with a mask no test is made and the result is False.
    """
    if len(r) < FEWEST or mask is not None or abs(neighbour_correlation(r)) > WHITE:
        return False
    axes = tuple(range(1, r.ndim))
    skewness, kurtosis = (r**3).mean(axis=axes), (r**4).mean(axis=axes) - 3 * np.mean(r**2) ** 2
    size, points = (r**2).mean(axis=axes), r[0].size
    if size.var() > 2 / points * size.mean() ** 2 * (1 + 6 / np.sqrt(len(size))):  # more than χ² with this number of nodes
        return False
    return all(abs(each.mean()) < MOMENT_SIGMAS * each.std(ddof=1) / np.sqrt(len(each)) for each in (skewness, kurtosis))


def components_look_gaussian(fields: Array) -> bool:
    """Test whether the leading principal components of fields are Gaussian: what a whole field shares, such as its branch.

    Nodes of a normalised field may look Gaussian although their average has two values only.

    Args:
        fields: residuals, (sample, channel, *grid); channels have equal weights.

    Returns:
        False if the skewness or the excess kurtosis of a component differs significantly from 0.
    """
    size = np.sqrt(np.mean(fields**2, axis=(0, *range(2, fields.ndim)), keepdims=True))
    flat = np.divide(fields, size, out=np.zeros(fields.shape), where=size > 0).reshape(len(fields), -1)
    scores = (flat - flat.mean(axis=0)) @ principal(flat, COMPONENTS)[0].T
    scores = scores[:, scores.std(axis=0) > 0]
    scores = scores / scores.std(axis=0)
    skewness, kurtosis = np.abs((scores**3).mean(axis=0)), np.abs((scores**4).mean(axis=0) - 3)
    limits = MOMENT_SIGMAS * np.sqrt(np.array([6.0, 24.0]) / len(flat))
    return bool((skewness < limits[0]).all() and (kurtosis < limits[1]).all())
