r"""Confidence interval of a coverage, averaged over n groups of dependent points (Korn and Graubard 1998).

    D  = s² / p(1 − p),        n* = n / D · (z / t)²,        lower = B(α/2; x, n* − x + 1),  upper = B(1 − α/2; x + 1, n* − x),

with the averages c_1, …, c_n ∈ [0, 1] of the groups, their mean p and variance s², x = n* p, and quantiles B of the beta
distribution: the interval of Clopper and Pearson for the effective number n* of independent values. D, the design effect, is 1
if all points of a group are inside or outside together, and 1/d for d independent points; t and z are the quantiles of
Student's distribution with n − 1 degrees of freedom and of the Gaussian one.

If all c_i are equal, s² = 0 tells nothing: of five fields that are wholly inside, D may be 1. D is therefore at least

    D_min = Var_i(mean w of group i) / Var w,        w = |2 PIT − 1|,

which is known then as well, since w varies if no observation is outside: 1 if all points of a group have one rank, 1/d if ranks
are independent.
"""

import numpy as np
from scipy.stats import beta, norm
from scipy.stats import t as student

from .._typing import Array, Floats, Ints
from .score import group_means

__all__ = ["dependence", "interval", "upper_bound"]

SMALLEST = 1e-9  # design effect


def interval(inside: Floats, confidence: float, least: float = SMALLEST) -> tuple[float, float]:
    """Return bounds of the expected coverage.

    Args:
        inside: coverage of each group, (group,).
        confidence: of the interval.
        least: smallest design effect, from `dependence`.

    >>> [round(bound, 3) for bound in interval(np.ones(5), 0.99, 1.0)]
    [0.034, 1.0]
    """
    n = len(inside)
    if n < 2:
        return 0.0, 1.0
    p, alpha = float(inside.mean()), 1 - confidence
    effective = n / _design_effect(p, float(inside.var(ddof=1)), least) * _student(n, alpha / 2)
    x = p * effective
    low = 0.0 if p <= 0 else float(beta.ppf(alpha / 2, x, effective - x + 1))
    return low, 1.0 if p >= 1 else float(beta.ppf(1 - alpha / 2, x + 1, effective - x))


def upper_bound(p: Floats, error: Floats, groups: Ints, alpha: float) -> Floats:
    """Return upper bounds of coverages p with standard errors, each exceeded with probability alpha.

    Where the error is 0, all points of a group are taken to be covered together.

    Args:
        p, error: (part,).
        groups: number of groups of each part, at least 2.
        alpha: one-sided.
    """
    variance = p * (1 - p)
    effect = np.where((error > 0) & (variance > 0), groups * error**2 / np.where(variance > 0, variance, 1), 1.0)
    effective = groups / np.clip(effect, SMALLEST, 1.0) * (norm.isf(alpha) / student.isf(alpha, groups - 1)) ** 2
    x = p * effective
    return np.asarray(beta.ppf(1 - alpha, x + 1, np.maximum(effective - x, SMALLEST)))


def dependence(pit: Array, groups: Ints | None = None) -> float:
    """Return D_min of ranks.

    Args:
        pit: (sample, …); NaN where there is none.
        groups: labels of dependent samples, (sample,).

    Returns:
        A number in (0, 1].

    >>> dependence(np.repeat([[0.1], [0.6], [0.8]], 4, axis=1))
    1.0
    """
    w = np.abs(2 * np.asarray(pit, dtype=np.float64).reshape(len(pit), -1) - 1)
    rows = np.isfinite(w).any(axis=1)
    w, labels = w[rows], None if groups is None else np.asarray(groups)[rows]
    means, total = group_means(np.nanmean(w, axis=1), labels), float(np.nanvar(w)) if w.size else 0.0
    if len(means) < 2 or total == 0:
        return 1.0
    return float(np.clip(means.var() / total, SMALLEST, 1.0))


def _design_effect(p: float, variance: float, least: float) -> float:
    """Return D between its smallest value and 1."""
    estimate = variance / (p * (1 - p)) if 0 < p < 1 else 0.0
    return float(np.clip(estimate, least, 1.0))


def _student(n: int, alpha: float) -> float:
    """Return (z/t)²."""
    return float((norm.isf(alpha) / student.isf(alpha, n - 1)) ** 2)
