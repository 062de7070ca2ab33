r"""Which samples depend on each other, and the standard error of a mean of dependent values.

Values v_i of one group are not independent; groups may still depend on the group before them, as fields of a time series do:

    s_g = Σ_{i∈g} (v_i − v̄),        ρ = Σ_g s_g s_{g+1} / Σ_g s_g²,        n_eff = G · (1 − ρ)/(1 + ρ),

    stderr² = (G / n_eff) · G/(G − 1) · Σ_g s_g² / n²,

for G groups with n values together. For groups of equal size it is the standard error of the group averages. ρ is the lag-1
autocorrelation, which is all of it in a first-order autoregressive process; a negative ρ counts as 0.
"""

import numpy as np

from .._typing import Array, Ints
from ..data.pairs import Pairs
from ..data.series import blocks
from ..errors import UserError

__all__ = ["groups_of", "stderr_of_mean"]

LARGEST_CORRELATION = 0.99  # of consecutive groups, so that the effective sample size is not 0


def groups_of(pairs: Pairs) -> Ints | None:
    """Return a label for each pair, equal for pairs that are not independent; None if all are.

    These are the user's groups, else repeated inputs, else blocks of consecutive samples of a series.
    """
    labels = pairs.shared_labels()
    if labels is None and pairs.group is None and pairs.is_series():
        return blocks(pairs.a, pairs.u, pairs.scalars)
    return labels


def stderr_of_mean(values: Array, groups: Ints | None) -> float:
    """Return the standard error of the mean of values that may be dependent.

    Args:
        values: (sample,), in order of time if they are a series.
        groups: a label for each sample, (sample,); samples of a group are not independent. Default: each is a group.

    Returns:
        The standard error; ∞ with a single group, from which no error can be estimated.

    Raises:
        UserError: if shapes do not fit.

    >>> round(stderr_of_mean(np.array([3.0, -3.0, 3.0, -3.0]), None) ** 2, 6)
    3.0
    """
    v = np.asarray(values, dtype=np.float64)
    labels = np.arange(len(v)) if groups is None else np.asarray(groups)
    if v.ndim != 1 or not len(v) or labels.shape != v.shape:
        raise UserError(f"values and groups have shapes {v.shape} and {labels.shape}, expected (sample,) for both")
    sums = _sums(v - v.mean(), labels)
    count, squares = len(sums), float(np.square(sums).sum())
    if count < 2 or squares == 0:
        return np.inf if count < 2 else 0.0
    rho = float(np.clip((sums[1:] * sums[:-1]).sum() / squares, 0.0, LARGEST_CORRELATION))
    return float(np.sqrt((1 + rho) / (1 - rho) * count / (count - 1) * squares) / len(v))


def _sums(values: Array, groups: Ints) -> Array:
    """Return the sum of each group, in the order in which groups first occur."""
    _, first, labels = np.unique(groups, return_index=True, return_inverse=True)
    return np.asarray(np.bincount(labels, values)[np.argsort(first)])
