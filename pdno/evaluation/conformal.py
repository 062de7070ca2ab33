"""Conformal prediction intervals: conformalised quantile regression (Romano, Patterson and Candès 2019).

    s = max(lower − u, u − upper) / scale,        factor = s_(k),  k = ⌈(n + 1)·level⌉,
    lower' = lower − factor·scale,                upper' = upper + factor·scale,

from the scores s of n calibration pairs, which must not be training pairs. The score s is the distance of u from its interval
in units of scale (the predicted standard deviation), negative inside, and s_(k) is the k-th smallest score. u is inside the
conformal interval exactly if its score is ≤ factor.

**Guarantee.** If the n calibration pairs and a new one are exchangeable (for instance independent draws of one distribution),
the rank of the new score among all n + 1 is uniform, so that

    level ≤ P(u is inside) = k / (n + 1) ≤ level + 1/(n + 1),

the equality and the right inequality if there are no ties. This holds for finite n and any model. It is marginal, an average
over inputs: neither conditional on an input nor valid for inputs of another distribution.

- Pointwise (share = None), every point has its own factor, and the guarantee holds at every single point.
- Field-wise, the score of a field is the ⌈share·d⌉-th smallest score of its d points and there is one factor. The guarantee is
  that at least this share of the observed points of a new field is inside: a simultaneous band with share = 1. With missing
  values, points of calibration and new fields must be observed alike; all points of a field are covered less often.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats, Mask
from ..errors import UserError
from ..work.state import State

__all__ = ["Conformal"]

ROUNDING = 1e-9  # tolerance of products that should be whole numbers: 0.07·100 is 7.000000000000001


@dataclass(frozen=True, eq=False)
class Conformal:
    """Conformal calibration of intervals; constructed by `Conformal.of`.

    Args:
        level: nominal level of coverage.
        factor: by which intervals are widened, in units of scale, or narrowed if negative: (channel, *grid), or () for fields.
        samples: number of calibration pairs.
        share: of the points of a field that has to be inside; None for pointwise intervals.

    >>> u = np.arange(1.0, 10.0)[:, None]  # nine pairs, one point; the prediction is 0 without spread
    >>> zero = np.zeros((9, 1))
    >>> conformal = Conformal.of(zero, zero, zero, u, level=0.9)
    >>> conformal.apply([[0.0]], [[0.0]], [[0.0]])
    (array([[-9.]]), array([[9.]]))
    """

    level: float
    factor: Floats  # (channel, *grid), or () for whole fields
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
        """Compute factors from calibration pairs: held-out pairs from the distribution that the model will be used on.

        Points where u is NaN or the mask False are excluded. Then n differs between points, and values must be missing
        independently of u. A point that is never observed keeps its interval (factor 0).

        Args:
            lower, upper: bounds of predicted intervals, (sample, channel, *grid), of any level; `level` is best.
            scale: predicted standard deviation; where it is 0, 1 is used, and factors have the units of u.
            u: observations.
            level: nominal level of coverage, in (0, 1).
            share: None for pointwise intervals, or the share of the points of a field, in (0, 1], that has to be inside.
            mask: True where u is observed.

        Raises:
            UserError: if there are fewer than level / (1 − level) calibration pairs, shapes differ, scale is negative, level or
                share is out of range, or a prediction is not finite where u is observed.
        """
        if not 0 < level < 1:
            raise UserError(f"level = {level}, expected a number between 0 and 1, both excluded; 90 % is 0.9")
        if share is not None and not 0 < share <= 1:
            raise UserError(f"share = {share}, expected None or a share of points above 0, up to 1; all points are 1.0")
        lower, upper, scale, u = _arrays(lower=lower, upper=upper, scale=scale, u=u)
        observed = _observed(u, mask)
        scores = np.maximum(lower - u, u - upper) / _units(scale)
        if not np.isfinite(scores[observed]).all():
            raise UserError(
                "lower, upper or scale is NaN or infinite where u is observed; pass numbers, or exclude points by a mask"
            )
        scores = np.where(observed, scores, np.inf)
        if share is not None:
            scores, observed = _field_scores(scores, observed, share)
        return cls(float(level), _factor(scores, observed, level, share is None), len(u), share)

    def apply(self, lower: ArrayLike, upper: ArrayLike, scale: ArrayLike) -> tuple[Floats, Floats]:
        """Return the bounds of conformal intervals.

        If a factor is so negative that the bounds would cross, both are set to the midpoint of the interval. This does not
        reduce coverage, because crossed bounds contain no value. Many intervals of width 0 indicate that scale is not
        proportional to the size of errors.

        Args:
            lower, upper: bounds of predicted intervals, (sample, channel, *grid), with the same meaning as in calibration.
            scale: predicted standard deviation, in the same shape.

        Returns:
            Lower and upper bounds, (sample, channel, *grid).

        Raises:
            UserError: if shapes differ from each other or from the calibrated grid, or scale is negative.
        """
        lower, upper, scale = _arrays(lower=lower, upper=upper, scale=scale)
        if self.share is None and lower.shape[1:] != self.factor.shape:
            raise UserError(
                f"intervals have the shape {lower.shape[1:]}, factors {self.factor.shape}; calibrate on the same grid, or for "
                "whole fields (share)"
            )
        margin, midpoint = self.factor * _units(scale), (lower + upper) / 2
        return np.minimum(lower - margin, midpoint), np.maximum(upper + margin, midpoint)

    def state(self) -> State:
        """Return level, factors, number of samples and share, to be saved."""
        return State({"level": self.level, "samples": self.samples, "share": self.share}, {"factor": self.factor})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        share = state.settings["share"]
        factor = np.asarray(state.arrays["factor"], dtype=np.float64)
        return cls(
            float(state.settings["level"]), factor, int(state.settings["samples"]), None if share is None else float(share)
        )


def _arrays(**named: ArrayLike) -> list[Floats]:
    """Return the arrays as floats; raise UserError unless they have one shape."""
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in named.items()}
    shape = arrays["lower"].shape
    if not shape or any(array.shape != shape for array in arrays.values()):
        got = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UserError(f"shapes are {got}; expected one shape (sample, channel, *grid) for all")
    if (arrays["scale"] < 0).any():
        raise UserError("scale is negative at some points, expected standard deviations; pass 0 where there is none")
    return list(arrays.values())


def _observed(u: Floats, mask: ArrayLike | None) -> Mask:
    """Return where u is observed: not NaN, and True in the mask."""
    given = np.asarray(True if mask is None else mask, dtype=bool)
    observed: Mask = ~np.isnan(u)
    try:
        observed &= np.broadcast_to(given, u.shape)
    except ValueError:
        raise UserError(f"a mask of shape {given.shape} does not broadcast to {u.shape}; omit axes or pass all") from None
    return observed


def _units(scale: Floats) -> Floats:
    """Return the scale, and 1 where it is 0."""
    return np.where(scale == 0, 1.0, scale)


def _field_scores(scores: Floats, observed: Mask, share: float) -> tuple[Floats, Mask]:
    """Return the score of each field, the ⌈share·d⌉-th smallest of its d observed points, and whether d > 0."""
    ordered = np.sort(scores.reshape(len(scores), -1), axis=1)
    d = observed.reshape(len(observed), -1).sum(axis=1)
    rank = np.ceil(share * d - ROUNDING).astype(np.int64) - 1
    return np.take_along_axis(ordered, np.maximum(0, rank)[:, None], axis=1)[:, 0], d > 0


def _factor(scores: Floats, observed: Mask, level: float, pointwise: bool) -> Floats:
    """Return the ⌈(n + 1)·level⌉-th smallest of the n scores at each point; 0 where n = 0."""
    n = observed.sum(axis=0)
    needed = math.ceil((level - ROUNDING) / (1 - level))
    if n.max(initial=0) == 0 or ((n > 0) & (n < needed)).any():
        fewest = n[n > 0].min(initial=n.max(initial=0))
        where = " at the point with the fewest observations" if pointwise else ""
        raise UserError(
            f"{fewest} calibration pairs{where} are too few for coverage {level:g}; at least {needed} are needed: "
            "pass more pairs or a lower level"
        )
    rank = np.ceil((n + 1) * level - ROUNDING).astype(np.int64)
    factor = np.take_along_axis(np.sort(scores, axis=0), np.maximum(0, rank - 1)[None], axis=0)[0]
    return np.where(n > 0, factor, 0.0)
