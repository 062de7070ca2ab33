"""Intervals that keep their word, whatever the model: conformalised quantile regression (Romano, Patterson and Candès 2019).

    s = max(lower − u, u − upper) / scale,        factor = s_(k),  k = ⌈(n + 1)·level⌉,
    lower' = lower − factor·scale,                upper' = upper + factor·scale,

from the scores s of n samples that nothing was learned from: s tells by how many scales (predicted standard deviations) u is
outside of its interval, or inside if negative, and s_(k) is the k-th smallest. u lies in the repaired interval exactly if its
score is ≤ factor.

**Guarantee.** If the n samples and a new one are exchangeable (independent draws of one law are), the rank of the new score
among all n + 1 is uniform, so that

    level ≤ P(u is inside) = k / (n + 1) ≤ level + 1/(n + 1),

the equality and the right inequality if there are no ties. This holds for finite n and any model, good or bad, and is an
average over inputs: not a promise for each input, nor for inputs of another law.

- Pointwise (share = None), every point has its factor, and the promise is made for every point on its own.
- Field-wise, a field's score is the ⌈share·d⌉-th smallest of its d points, there is one factor, and the promise is that at
  least the share of the points of a new field are inside: all of them with share = 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError

__all__ = ["Conformal"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDING = 1e-9  # of products that should be whole: 0.07·100 is 7.000000000000001


@dataclass(frozen=True, eq=False)
class Conformal:
    """Factors by which intervals are widened, or made narrower if negative.

    >>> u = np.arange(1.0, 10.0)[:, None]  # nine samples of one point; the model says 0, and is sure of it
    >>> zero = np.zeros((9, 1))
    >>> conformal = Conformal.of(zero, zero, zero, u, level=0.9)
    >>> conformal.repair([[0.0]], [[0.0]], [[0.0]])
    (array([[-9.]]), array([[9.]]))
    """

    level: float
    factor: Array  # of a sample's shape, or () for whole fields
    samples: int
    share: float | None = None

    @classmethod
    def of(
        cls,
        lower: ArrayLike,
        upper: ArrayLike,
        scale: ArrayLike,
        u: ArrayLike,
        level: float,
        *,
        share: float | None = None,
        mask: ArrayLike | None = None,
    ) -> Self:
        """Learn factors from a calibration set: data that the model did not see, like those that it will be used on.

        Points where u is NaN or the mask False are left out. Then each point has its own number n of samples, which must be
        missing for reasons that have nothing to do with u; a point that is known in no sample keeps its interval (factor 0).

        Args:
            lower, upper: bounds of predicted intervals (sample, channel, *grid), of any level; that of `level` is best.
            scale: predicted standard deviation; where it is 0, 1 is taken, and factors have the units of u.
            u: what came true.
            level: of coverage, in (0, 1).
            share: None for every point on its own, or the share of a field's points, in (0, 1], that is to be inside.
            mask: True where u is known.
        """
        if not 0 < level < 1:
            raise UserError(f"level = {level}, expected a number between 0 and 1, both excluded; 90 % is 0.9")
        if share is not None and not 0 < share <= 1:
            raise UserError(f"share = {share}, expected None or a share of points above 0, up to 1; all points are 1.0")
        lower, upper, scale, u = _arrays(lower=lower, upper=upper, scale=scale, u=u)
        known = _known(u, mask)
        scores = np.maximum(lower - u, u - upper) / _units(scale)
        if not np.isfinite(scores[known]).all():
            raise UserError(
                "lower, upper or scale is NaN or infinite where u is known; give numbers, or leave points out by mask"
            )
        scores = np.where(known, scores, np.inf)
        if share is not None:
            scores, known = _fields(scores, known, share)
        return cls(float(level), _factor(scores, known, level, share is None), len(u), share)

    def repair(self, lower: ArrayLike, upper: ArrayLike, scale: ArrayLike) -> tuple[Array, Array]:
        """Bounds (lower', upper') of intervals (sample, channel, *grid) that cover as promised.

        A negative factor may be more than an interval has to give. Its bounds then meet in its middle, where they would have
        crossed: the set that the guarantee speaks of is empty, the middle is one point more, so no coverage is lost, and the
        promise is kept by the other inputs. Many intervals of width 0 tell that scale does not follow the size of errors.
        """
        lower, upper, scale = _arrays(lower=lower, upper=upper, scale=scale)
        if self.share is None and lower.shape[1:] != self.factor.shape:
            raise UserError(
                f"intervals are on points {lower.shape[1:]}, factors on {self.factor.shape}; calibrate on the same grid, "
                "or whole fields (share)"
            )
        margin, middle = self.factor * _units(scale), (lower + upper) / 2
        return np.minimum(lower - margin, middle), np.maximum(upper + margin, middle)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All of it, to be saved; share is NaN for None."""
        share = np.nan if self.share is None else self.share
        return {
            "level": np.array(self.level),
            "factor": self.factor,
            "samples": np.array(self.samples),
            "share": np.array(share),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """What `arrays` gave."""
        level, factor, samples, share = (np.asarray(arrays[name]) for name in ("level", "factor", "samples", "share"))
        return cls(float(level), factor.astype(np.float64), int(samples), None if np.isnan(share) else float(share))


def _arrays(**named: ArrayLike) -> list[Array]:
    """The arrays as floats, of one shape."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in named.items()}
    shape = arrays["lower"].shape
    if not shape or any(array.shape != shape for array in arrays.values()):
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UserError(f"shapes are {got}; expected one shape (sample, channel, *grid) for all")
    if (arrays["scale"] < 0).any():
        raise UserError("scale is negative at some points, expected standard deviations; give 0 where there is none")
    return list(arrays.values())


def _known(u: Array, mask: ArrayLike | None) -> Mask:
    given = np.asarray(True if mask is None else mask, dtype=bool)
    known: Mask = ~np.isnan(u)
    try:
        known &= np.broadcast_to(given, u.shape)
    except ValueError:
        raise UserError(f"a mask of shape {given.shape} does not fit {u.shape}; leave axes out or give all") from None
    return known


def _units(scale: Array) -> Array:
    return np.where(scale == 0, 1.0, scale)


def _fields(scores: Array, known: Mask, share: float) -> tuple[Array, Mask]:
    """Scores of whole fields: the ⌈share·d⌉-th smallest of the d points that are known, unknown ones being ∞."""
    ordered = np.sort(scores.reshape(len(scores), -1), axis=1)
    d = known.reshape(len(known), -1).sum(axis=1)
    place = np.ceil(share * d - ROUNDING).astype(np.int64) - 1
    return np.take_along_axis(ordered, np.maximum(0, place)[:, None], axis=1)[:, 0], d > 0


def _factor(scores: Array, known: Mask, level: float, pointwise: bool) -> Array:
    """The ⌈(n + 1)·level⌉-th smallest score at each point, over the n samples that know it."""
    n = known.sum(axis=0)
    needed = math.ceil((level - ROUNDING) / (1 - level))
    if n.max(initial=0) == 0 or ((n > 0) & (n < needed)).any():
        fewest = n[n > 0].min(initial=n.max(initial=0))
        where = " at the point that is known least" if pointwise else ""
        raise UserError(
            f"{fewest} samples{where} cannot promise coverage of {level:g}; at least {needed} are needed: "
            "give more, or ask for a lower level"
        )
    rank = np.ceil((n + 1) * level - ROUNDING).astype(np.int64)
    factor = np.take_along_axis(np.sort(scores, axis=0), np.maximum(0, rank - 1)[None], axis=0)[0]
    return np.where(n > 0, factor, 0.0)
