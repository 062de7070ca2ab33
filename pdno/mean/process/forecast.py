r"""The error with more runs, by the posterior of processes whose hyper-parameters are known.

    S(n)² = mean over x of Σ_k w_k s_k² v_k(x; n runs),        N² = Σ_k w_k s_k² ν_k,        w_k = mean square of φ_k

v depends on the positions of runs only. S(n) is that of designs of n runs (Latin hypercubes) with the distributions of the
parameters of the present ones; smooth processes gain more by twice the runs than rough ones. N is the noise, which stays.
"""

import numpy as np

from ..._typing import Floats
from ...draw import generator
from ..base import powers
from .fitted import Fitted
from .promise import new_rows, quantiles
from .regression import Regression

__all__ = ["posterior_sizes"]

DESIGNS = 2  # of each number of runs
MOST_NEW = 400  # inputs x
TINY = 1e-150  # in place of no error at all


def posterior_sizes(fitted: Fitted, counts: tuple[int, ...], seed: int) -> tuple[Floats, float]:
    """Return S(n) for these numbers of runs, geometric means over designs, and N."""
    weights = powers(fitted.basis.fields) * fitted.regression.variance
    new, sizes = new_rows(fitted.x, seed)[:MOST_NEW], np.empty((DESIGNS, len(counts)))
    for design, sized in enumerate(sizes):
        for place, count in enumerate(counts):
            rng = generator(seed, f"design of {count}", design)
            order, within = rng.random((2, count, fitted.x.shape[1]))
            p = (np.argsort(order, axis=0) + within) / count
            x = np.stack([quantiles(column, each) for column, each in zip(fitted.x.T, p.T, strict=True)], axis=1)
            v = Regression(x, np.zeros((count, len(weights))), fitted.hyper)(new)[1]
            sized[place] = np.sqrt((v @ weights).mean())
    return np.exp(np.log(np.maximum(sizes, TINY)).mean(axis=0)), float(np.sqrt(weights @ fitted.hyper.nugget))
