"""Comparison of candidates for the mean by their errors on held-out pairs."""

from collections.abc import Mapping

import numpy as np

from .._typing import Array, Ints
from ..data.pairs import Pairs
from ..evaluation.dependence import stderr_of_mean

__all__ = ["equally_good", "mean_absolute", "unit_of_errors"]

EQUAL = 0.02  # relative difference of errors that is never decisive
CONSTANT = 1e-12  # spread of a channel, relative to its size, below which it is constant


def equally_good(errors: Mapping[str, Array], labels: Ints | None) -> list[str]:
    """Return the candidates whose errors, (pair, channel), are as small as the smallest one but for chance, cheapest first.

    Pairs with equal labels, (pair,), are not independent.
    """
    leader = min(errors, key=lambda name: float(errors[name].mean()))
    equal = []
    for name in errors:
        gain = (errors[name] - errors[leader]).mean(axis=1)
        if gain.mean() <= min(stderr_of_mean(gain, labels), EQUAL * float(errors[leader].mean())):
            equal.append(name)
    return equal


def unit_of_errors(held_out: Pairs, centre: Array) -> Array:
    """Return the mean absolute error of the training mean per channel; of zero for a channel that is constant."""
    size, spread = (mean_absolute(v, held_out.mask).mean(axis=0) for v in (held_out.u, held_out.u - centre))
    unit = np.where(spread > CONSTANT * size, spread, size)
    return np.where(unit > 0, unit, 1.0)


def mean_absolute(values: Array, mask: Array | None) -> Array:
    """Return the mean absolute value per sample and channel, over observed nodes."""
    axes = tuple(range(2, values.ndim))
    if mask is None:
        return np.asarray(np.abs(values).mean(axis=axes))
    return np.asarray(np.where(mask, np.abs(values), 0).sum(axis=axes) / np.maximum(mask.sum(axis=axes), 1))
