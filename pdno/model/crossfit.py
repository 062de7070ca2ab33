r"""Out-of-fold residuals of a mean that is costly to train, such as a network, within a share of the remaining time.

    r_i = c (u_i − m_{−k}(a_i)),    pair i in fold k,    c² = Σ (held-out residuals)² / Σ (u_i − m_{−k}(a_i))²  per channel.

The copies m_{−k} are trained for a shorter time and on fewer pairs than m: their residuals have the structure of those of m,
but not the size, which comes from the held-out pairs.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from ..data.split import folds
from ..learning.budget import Terms
from ..mean.base import Mean
from ..residual.sizes import root_mean_square

__all__ = ["cross_fitted", "number_of_folds", "scaled_to"]

SHARE = 0.5  # of the remaining time, for all copies together
FULL = 0.25  # of the training time of the mean, that a copy gets if there is enough time
LEAST = 0.04  # of the training time of the mean, below which a copy would not resemble it
FEWEST_SECONDS = 1.0  # for a copy
FEWEST_FOLDS = 2
MOST_FOLDS = 5
TINY = 1e-300


def number_of_folds(seconds: float, left: float | None) -> tuple[int, float]:
    """Return how many copies can be trained, and the seconds for each; no copies if there is too little time.

    Args:
        seconds: training time of the mean.
        left: remaining seconds; None if there is no deadline, so that the user's settings limit the training, not the time.

    >>> number_of_folds(100.0, 1000.0), number_of_folds(100.0, 40.0), number_of_folds(100.0, 4.0)
    ((5, 25.0), (2, 10.0), (0, 0.0))
    """
    if left is None:
        return 0, 0.0
    count = int(np.clip(SHARE * left / max(FULL * seconds, FEWEST_SECONDS), FEWEST_FOLDS, MOST_FOLDS))
    each = min(SHARE * left / count, max(FULL * seconds, FEWEST_SECONDS))
    return (count, each) if each >= max(LEAST * seconds, FEWEST_SECONDS) else (0, 0.0)


def cross_fitted(mean: Mean, pairs: Pairs, count: int, seconds: float, terms: Terms) -> Array:
    """Return u − m_{−k}(a) of training pairs, zero where u is missing: (sample, channel, *grid).

    Args:
        mean: trained; copies of it are trained again.
        pairs: its training pairs.
        count: number of folds.
        seconds: for each copy.
        terms: seed, folder and devices.
    """
    out = np.zeros(pairs.u.shape)
    for k, (kept, left) in enumerate(folds(len(pairs), count, pairs.shared_labels(), terms.seed)):
        quiet = replace(terms.below(f"fold-{k}").within(seconds), progress=False)
        copy = deepcopy(mean).learn(pairs[kept], None, quiet)
        some = pairs[left]
        out[left] = some.filled - copy(some.a, some.scalars)
    return out if pairs.mask is None else np.where(pairs.mask, out, 0.0)


def scaled_to(values: Array, mask: Array | None, size: Array) -> Array:
    """Return residuals multiplied such that they have this root mean square per channel.

    Args:
        values: (sample, channel, *grid), zero where missing.
        mask: True where they are observed.
        size: (1, channel, 1, …).
    """
    return np.asarray(values * (size / np.maximum(root_mean_square(values, mask), TINY)))
