"""A score with its Monte-Carlo error, and checks of the arrays that scores are computed from.

    value = N⁻¹ Σ_n s_n,        error = std(s_1, …, s_N) / √N        over N independent samples

Samples of one group, such as frames of a trajectory or repeats of an experiment, are dependent: their values are averaged
first, and N is the number of groups.

Fields are (sample, channel, *grid). A mask is True where u is observed; values elsewhere, NaN included, have no effect.
Weights are those of a quadrature rule, all one by default. Both broadcast against the last axes of the fields.
"""

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Array, Floats, Ints, Mask
from ..errors import UserError

__all__ = ["Score", "broadcast_mask", "check_fields", "check_members", "group_means", "per_sample", "point_weights"]


@dataclass(frozen=True, eq=False)
class Score:
    """A score, its standard error over samples or groups (NaN with one of them), and its value for each sample.

    >>> score = Score.mean([1, 2, 3, 6])
    >>> float(score), round(score.error, 3)
    (3.0, 1.08)
    """

    value: float
    error: float
    each: Floats = field(repr=False)

    @classmethod
    def mean(cls, each: ArrayLike, groups: Ints | None = None) -> Self:
        """Return the mean of (sample,) values with its standard error. One value ∞ makes the mean ∞.

        Args:
            each: (sample,).
            groups: labels of dependent samples, (sample,).
        """
        x = np.asarray(each, dtype=np.float64)
        if x.ndim != 1 or not len(x):
            raise UserError(f"scores of samples have shape {x.shape}, expected (sample,); pass at least one sample")
        if (x == np.inf).any():
            return cls(np.inf, np.nan, x)
        means = group_means(x, groups)
        value = float(means.mean())
        error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 and np.isfinite(value) else np.nan
        return cls(value, error, x)

    @classmethod
    def root_of_ratio(cls, numerator: Floats, denominator: Floats, groups: Ints | None = None) -> Self:
        """Return r = √(mean numerator / mean denominator), both (sample,), with its error by the delta method.

        The error of r² is that of mean (numerator − r²·denominator) / mean denominator. If the mean of the numerator, which
        may be an estimate, is not positive, r is 0.
        """
        numerator, denominator = group_means(numerator, groups), group_means(denominator, groups)
        above, below = numerator.mean(), denominator.mean()
        if above <= 0 or below == 0:
            return cls(float(np.inf if above > 0 else 0.0), float(np.nan if above else 0.0), np.empty(0))
        root = float(np.sqrt(above / below))
        error = cls.mean(numerator - root**2 * denominator).error / below / (2 * root)
        return cls(root, float(error), np.empty(0))

    def grouped(self, groups: Ints | None) -> Self:
        """Return this mean over samples as a mean over groups, whose standard error is that of independent groups.

        Args:
            groups: labels of dependent samples, (sample,). Samples whose value is NaN are left out.
        """
        if groups is None or not len(self.each):
            return self
        there = ~np.isnan(self.each)
        score = type(self).mean(self.each[there], np.asarray(groups)[there])
        return type(self)(score.value, score.error, self.each)

    def __float__(self) -> float:
        return self.value


def group_means(values: Floats, groups: Ints | None) -> Floats:
    """Return the mean of (sample,) values over each group, (group,); the values themselves without groups.

    >>> group_means(np.array([1.0, 3.0, 5.0]), np.array([7, 7, 2]))
    array([5., 2.])
    """
    if groups is None:
        return values
    labels = np.asarray(groups)
    if labels.shape != values.shape:
        raise UserError(f"groups have shape {labels.shape}, expected one label for each of {len(values)} samples")
    _, number = np.unique(labels, return_inverse=True)
    return np.asarray(np.bincount(number, values) / np.bincount(number))


def per_sample(values: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Floats:
    """Average values (sample, …) over the observed points of each sample.

    Args:
        values: (sample, …).
        mask: True where values are observed.
        weights: of the points.

    Returns:
        Weighted means, (sample,). One value ∞ makes the mean of its sample ∞.

    Raises:
        UserError: if an observed value is NaN, or a sample has no observed point.

    >>> per_sample([[1, 3, np.nan], [2, 2, 8]], mask=[[True, True, False], [True, True, True]])
    array([2., 4.])
    """
    x = np.asarray(values, dtype=np.float64)
    w = point_weights(x.shape, mask, weights)
    x = np.where(w > 0, x.reshape(w.shape), 0.0)
    if np.isnan(x).any():
        raise UserError("values to be averaged are NaN at observed points, expected numbers; exclude such points by a mask")
    with np.errstate(invalid="ignore"):
        means = (w * x).sum(axis=1)
    return np.where((x == np.inf).any(axis=1), np.inf, means)


def check_fields(mask: ArrayLike | None, **named: ArrayLike) -> list[Floats]:
    """Return the named fields as floats; raise UserError unless shapes agree and all observed values are finite."""
    fields = {name: np.asarray(x, dtype=np.float64) for name, x in named.items()}
    *_, (last, reference) = fields.items()
    if not reference.size:
        raise UserError(f"{last} has shape {reference.shape}, so no values; pass at least one sample and one point")
    observed = broadcast_mask(reference.shape, mask)
    for name, x in fields.items():
        if x.shape != reference.shape:
            raise UserError(f"{name} has shape {x.shape}, {last} has {reference.shape}; pass both on the same samples and grid")
        if not np.isfinite(x).all(where=observed):
            raise UserError(
                f"{name} has NaN or infinite values, expected numbers; remove such samples, or exclude such points by a mask"
            )
        if name == "std" and (x < 0).any(where=observed):
            raise UserError("std has negative values, expected standard deviations; check what was passed as std")
    return list(fields.values())


def check_members(members: ArrayLike, shape: tuple[int, ...], observed: Mask) -> NDArray[np.floating]:
    """Return members (member, *shape) without a copy; raise UserError if the shape is wrong or an observed value not finite."""
    x = np.asarray(members)
    if x.ndim == 0 or x.shape[1:] != shape:
        expected = ", ".join(["member", *map(str, shape)])
        raise UserError(f"members have shape {x.shape}, expected ({expected}); put members on the first axis")
    if not all(np.isfinite(member).all(where=observed) for member in x):
        raise UserError("members are NaN or infinite at observed points, expected numbers; remove such members")
    return x


def broadcast_mask(shape: tuple[int, ...], mask: ArrayLike | None) -> Mask:
    """Return the mask for fields of this shape; all True for None."""
    observed = np.asarray(True if mask is None else mask)
    if observed.dtype != np.bool_ or not _broadcasts(observed, shape):
        got = f"{observed.dtype} of shape {observed.shape}"
        raise UserError(f"a mask is {got}, expected True or False for fields of shape {shape}; pass True where u is observed")
    return np.broadcast_to(observed, shape)


def point_weights(shape: tuple[int, ...], mask: ArrayLike | None, weights: ArrayLike | None) -> Floats:
    """Return weights of the points of each sample, (sample, point): 0 where masked, with sum 1 over each sample."""
    if not shape:
        raise UserError("a single number was passed, expected fields (sample, channel, *grid); add the missing axes")
    w = np.asarray(1.0 if weights is None else weights, dtype=np.float64)
    if not _broadcasts(w, shape[1:]) or not np.isfinite(w).all() or (w < 0).any():
        got = f"weights of shape {w.shape}, minimum {w.min(initial=np.inf)}"
        raise UserError(f"{got}, expected finite numbers ≥ 0 for samples of shape {shape[1:]}; pass quadrature weights")
    w = np.where(broadcast_mask(shape, mask), w, 0.0).reshape(shape[0], math.prod(shape[1:]))
    totals = w.sum(axis=1, keepdims=True)
    if not totals.all():
        raise UserError(f"sample {totals.argmin()} has no observed point of positive weight; remove this sample")
    return np.asarray(w / totals)


def _broadcasts(x: Array, shape: tuple[int, ...]) -> bool:
    """Whether x broadcasts to this shape."""
    return x.ndim <= len(shape) and all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False))
