"""Where intervals hold least: parts of the domain, and ranges of what was predicted, in which coverage falls short.

    p_k = Σ_i c_ik / Σ_i n_ik,        se_k² = n/(n − 1) · Σ_i (c_ik − p_k n_ik)² / (Σ_i n_ik)²,

for the part k, of which n_ik points are known in sample i, and c_ik of them are inside. Points of one field are dependent,
samples are not: hence a ratio of sums over samples and its standard error. A part is weak if p_k is below the promised level by
more than `MARGIN`, and by more than t·se_k, where t is the quantile of Student's law at a false-alarm rate `ALARM` for all K
parts together (Bonferroni), with (n − 1)/2 degrees of freedom as in `pdno.evaluation.calibration.diagnose`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

__all__ = ["ALARM", "MARGIN", "Place", "weak_range", "weak_region"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ALARM = 0.01
MARGIN = 0.08
BLOCKS = 8  # parts of an axis
RANGES = 8  # of predicted values, with as many points each
FEWEST = 5  # samples


@dataclass(frozen=True)
class Place:
    """A part in which intervals hold the share of observations, which is too small."""

    words: str
    share: float
    error: float


def weak_range(inside: Mask, values: Array, level: float, what: str, mask: Mask | None = None) -> Place | None:
    """The weakest range of predicted values, all (sample, channel, *grid), which are called `what`.

    >>> inside = np.repeat([[True] * 7 + [False]], 20, axis=0)
    >>> weak_range(inside, np.broadcast_to(np.arange(8.0), (20, 8)), 0.9, "u is predicted").words
    'where u is predicted above 6'
    """
    known = np.ones(inside.shape, dtype=bool) if mask is None else mask
    edges = np.quantile(values[known], np.linspace(0, 1, RANGES + 1), method="inverted_cdf")
    inner = np.unique(edges[1:-1])
    part = np.searchsorted(inner, values)  # (edge_k−1, edge_k]
    k, place = _weakest(inside, part, known, len(inner) + 1, level)
    if place is None:
        return None
    low, high = (f"{inner[i]:.3g}" if 0 <= i < len(inner) else "" for i in (k - 1, k))
    words = f"between {low} and {high}" if low and high else f"above {low}" if low else f"up to {high}"
    return Place(f"where {what} {words}", *place)


def weak_region(inside: Mask, axes: Mapping[str, Array], level: float, mask: Mask | None = None) -> Place | None:
    """The weakest part of the domain, from nodes of its axes by name."""
    known = np.ones(inside.shape, dtype=bool) if mask is None else mask
    blocks = [np.array_split(np.arange(len(x)), min(BLOCKS, len(x))) for x in axes.values()]
    numbers = np.zeros(inside.shape[2:], dtype=np.int64)
    for axis, parts in enumerate(blocks):
        number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        numbers = numbers * len(parts) + number.reshape([-1 if i == axis else 1 for i in range(len(blocks))])
    count = int(np.prod([len(parts) for parts in blocks]))
    k, place = _weakest(inside, np.broadcast_to(numbers, inside.shape), known, count, level)
    if place is None or not blocks:
        return None
    chosen = np.unravel_index(k, [len(parts) for parts in blocks])
    ends = [(name, x[parts[i][0]], x[parts[i][-1]]) for (name, x), parts, i in zip(axes.items(), blocks, chosen, strict=True)]
    return Place("for " + " and ".join(f"{name} from {low:.3g} to {high:.3g}" for name, low, high in ends), *place)


def _weakest(
    inside: Mask, part: NDArray[np.integer], known: Mask, count: int, level: float
) -> tuple[int, tuple[float, float] | None]:
    """The weak part with the smallest share, and its share with standard error."""
    n = len(inside)
    if n < FEWEST:
        return 0, None
    flat = (np.arange(n).reshape(-1, *[1] * (inside.ndim - 1)) * count + part)[known]
    points = np.bincount(flat, minlength=n * count).reshape(n, count)
    covered = np.bincount(flat, weights=inside[known], minlength=n * count).reshape(n, count)
    total = points.sum(axis=0)
    share = covered.sum(axis=0) / np.maximum(total, 1)
    error = np.sqrt(n / (n - 1) * np.square(covered - share * points).sum(axis=0)) / np.maximum(total, 1)
    short = level - share
    weak = (total > 0) & (short > MARGIN) & (short > student.isf(ALARM / count, (n - 1) / 2) * error)
    if not weak.any():
        return 0, None
    k = int(np.where(weak, share, np.inf).argmin())
    return k, (float(share[k]), float(error[k]))
