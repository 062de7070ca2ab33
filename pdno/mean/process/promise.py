"""The error that new inputs will show, from that of runs that are left out.

A run that is left out of a space-filling design is farther from the others than a new input usually is, and there is one run
less. The posterior standard deviation of a process knows both: the error at new inputs is that of left-out runs times the ratio
of posterior sizes. Parameters of new inputs are taken as independent, each with the distribution of its training values. If
parameters depend on each other, or inputs are fields, the distribution of new inputs is not known, and the ratio is 1.
"""

import numpy as np

from ..._typing import Array
from ...data.pairs import Pairs
from ...draw import generator
from ..base import Components, Componentwise, Mean, powers

__all__ = ["inputs_are_known", "new_rows", "quantiles", "size_at_new_inputs"]

NEW = 1000  # inputs at which posterior sizes are computed
SIGMAS = 4  # standard errors of a correlation of independent parameters
DISTINCT = 0.5  # share of different values of a parameter, below which it takes no values between them


def size_at_new_inputs(mean: Mean, pairs: Pairs, seed: int) -> float:
    """Return the average size of errors at new inputs, relative to that at left-out runs; 1 if new inputs are not known.

    Args:
        mean: trained, after `residuals`; the ratio is 1 without a posterior of components.
        pairs: its training pairs.
        seed: of the new inputs.
    """
    x = pairs.scalars
    if not isinstance(mean, Componentwise) or x is None or not inputs_are_known(pairs):
        return 1.0
    new = new_rows(x, seed)
    sizes = [
        _size(each).mean() for each in (mean.components(np.repeat(pairs.a[:1], NEW, axis=0), new), mean.left_out_components())
    ]
    return float(sizes[0] / sizes[1]) if sizes[1] > 0 else 1.0


def inputs_are_known(pairs: Pairs) -> bool:
    """Return whether the distribution of new inputs is that of independent parameters."""
    x = pairs.scalars
    return x is not None and np.ptp(pairs.a, axis=0).max(initial=0.0) == 0 and not _are_dependent(x)


def new_rows(x: Array, seed: int) -> Array:
    """Return NEW inputs with independent parameters, each with the distribution of a column of x (sample, parameter)."""
    rng = generator(seed, "new inputs", 0)
    return np.stack([quantiles(column, rng.random(NEW)) for column in x.T], axis=1)


def _are_dependent(x: Array) -> bool:
    """Return whether some parameters are correlated by more than chance allows."""
    varying = x[:, np.ptp(x, axis=0) > 0]
    ranks = np.argsort(np.argsort(varying, axis=0, kind="stable"), axis=0, kind="stable")
    correlation = np.atleast_2d(np.corrcoef(ranks, rowvar=False)) - np.eye(varying.shape[1])
    return bool(np.abs(correlation).max(initial=0.0) > SIGMAS / np.sqrt(len(x)))


def quantiles(column: Array, p: Array) -> Array:
    """Return quantiles of a parameter: between its values, or, if these are few, equal to them."""
    few = len(np.unique(column)) < DISTINCT * len(column)
    return np.asarray(np.quantile(column, p, method="inverted_cdf" if few else "linear"))


def _size(components: Components) -> Array:
    """Return the root mean square over the field of the posterior standard deviation, (sample,)."""
    return np.asarray(np.sqrt(np.square(components.std) @ powers(components.fields)))
