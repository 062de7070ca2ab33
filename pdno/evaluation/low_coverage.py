"""Regions of low coverage: parts of the domain, and ranges of predicted values, where intervals cover too few observations.

    p_k = Σ_i c_ik / Σ_i n_ik,        se_k² = n_k/(n_k − 1) · Σ_i (c_ik − p_k n_ik)² / (Σ_i n_ik)²,

for the part k, with n_ik observed points in group i, c_ik of them covered, and n_k groups that have points in it; each sample
is a group, unless groups are given. Points of a group are dependent, groups are not: p_k is a ratio of sums over groups, and
se_k its standard error. A part has low coverage if p_k is below the nominal level by more than `MARGIN`, and significantly, by
two tests: t·se_k, where t is the quantile of Student's distribution with (n_k − 1)/2 degrees of freedom as in
`pdno.evaluation.calibration.diagnose`, and `pdno.evaluation.proportion.upper_bound`, which is that of the binomial distribution
if all groups agree (se_k = 0). Both have a false-positive rate `ALPHA` for all K parts together (Bonferroni). Parts with fewer
than five groups are not tested.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from .._typing import Floats, Ints, Mask
from .proportion import upper_bound

__all__ = ["ALPHA", "MARGIN", "Region", "low_coverage_range", "low_coverage_region"]

ALPHA = 0.01  # false-positive rate for all parts together
MARGIN = 0.08  # smallest deficit of coverage that is reported
BLOCKS = 8  # parts of each axis
RANGES = 8  # of predicted values, with equal numbers of points
MIN_GROUPS = 5  # with points in a part, for a test


@dataclass(frozen=True)
class Region:
    """A part with low coverage: its description, coverage, and standard error."""

    description: str
    coverage: float
    error: float


def low_coverage_range(
    inside: Mask,
    values: Floats,
    level: float,
    quantity: str,
    mask: Mask | None = None,
    tests: int = 1,
    groups: Ints | None = None,
) -> Region | None:
    """Find the range of predicted values with the lowest coverage.

    Args:
        inside: whether each observation is inside its interval, (sample, channel, *grid).
        values: predicted values, in the same shape.
        level: nominal level of the intervals.
        quantity: name of the values in the description.
        mask: True where u is observed.
        tests: number of quantities that are tested, which share the false-positive rate.
        groups: labels of dependent samples, (sample,).

    Returns:
        None if no range has significantly low coverage.

    >>> inside = np.repeat([[True] * 7 + [False]], 20, axis=0)
    >>> low_coverage_range(inside, np.broadcast_to(np.arange(8.0), (20, 8)), 0.9, "the prediction is").description
    'where the prediction is above 6'
    """
    observed = np.ones(inside.shape, dtype=bool) if mask is None else mask
    edges = np.quantile(values[observed], np.linspace(0, 1, RANGES + 1), method="inverted_cdf")
    inner = np.unique(edges[1:-1])
    part = np.searchsorted(inner, values)  # (edge_k−1, edge_k]
    k, coverage = _lowest(inside, part, observed, len(inner) + 1, level, tests, groups)
    if coverage is None:
        return None
    low, high = (f"{inner[i]:.3g}" if 0 <= i < len(inner) else "" for i in (k - 1, k))
    bounds = f"between {low} and {high}" if low and high else f"above {low}" if low else f"up to {high}"
    return Region(f"where {quantity} {bounds}", *coverage)


def low_coverage_region(
    inside: Mask,
    axes: Mapping[str, Floats],
    level: float,
    mask: Mask | None = None,
    tests: int = 1,
    groups: Ints | None = None,
) -> Region | None:
    """Find the part of the domain with the lowest coverage, among blocks of the grid.

    Args:
        inside: whether each observation is inside its interval, (sample, channel, *grid).
        axes: name → nodes of each axis of the grid.
        level: nominal level of the intervals.
        mask: True where u is observed.
        tests, groups: as in `low_coverage_range`.

    Returns:
        None if no block has significantly low coverage.
    """
    observed = np.ones(inside.shape, dtype=bool) if mask is None else mask
    blocks = [np.array_split(np.arange(len(x)), min(BLOCKS, len(x))) for x in axes.values()]
    numbers = np.zeros(inside.shape[2:], dtype=np.int64)
    for axis, parts in enumerate(blocks):
        number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        numbers = numbers * len(parts) + number.reshape([-1 if i == axis else 1 for i in range(len(blocks))])
    count = int(np.prod([len(parts) for parts in blocks]))
    k, coverage = _lowest(inside, np.broadcast_to(numbers, inside.shape), observed, count, level, tests, groups)
    if coverage is None or not blocks:
        return None
    indices = np.unravel_index(k, [len(parts) for parts in blocks])
    ends = [(name, x[parts[i][0]], x[parts[i][-1]]) for (name, x), parts, i in zip(axes.items(), blocks, indices, strict=True)]
    return Region("for " + " and ".join(f"{name} from {low:.3g} to {high:.3g}" for name, low, high in ends), *coverage)


def _lowest(
    inside: Mask, part: Ints, observed: Mask, count: int, level: float, tests: int, groups: Ints | None
) -> tuple[int, tuple[float, float] | None]:
    """Return the number of the part with the lowest coverage, and its coverage with standard error; None if not significant."""
    group = np.arange(len(inside)) if groups is None else np.unique(groups, return_inverse=True)[1]
    n = int(group.max(initial=-1)) + 1
    flat = (group.reshape(-1, *[1] * (inside.ndim - 1)) * count + part)[observed]
    points = np.bincount(flat, minlength=n * count).reshape(n, count)
    covered = np.bincount(flat, weights=inside[observed], minlength=n * count).reshape(n, count)
    total, present = points.sum(axis=0), np.maximum((points > 0).sum(axis=0), 2)
    coverage = covered.sum(axis=0) / np.maximum(total, 1)
    error = np.sqrt(present / (present - 1) * np.square(covered - coverage * points).sum(axis=0)) / np.maximum(total, 1)
    alpha, deficit = ALPHA / count / tests, level - coverage
    low = (present >= MIN_GROUPS) & (deficit > MARGIN) & (deficit > student.isf(alpha, (present - 1) / 2) * error)
    low &= upper_bound(coverage, error, present, alpha) < level
    if not low.any():
        return 0, None
    k = int(np.where(low, coverage, np.inf).argmin())
    return k, (float(coverage[k]), float(error[k]))
