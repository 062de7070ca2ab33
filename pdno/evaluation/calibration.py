"""Are error bars honest? Ranks of the truth among members, coverage, spread against skill, a test that names what is wrong.

    PIT = (below + v·(ties + 1)) / (M + 1),    below = #{members < u},    ties = #{members = u},    v ~ U(0, 1),

the probability integral transform at every point. Where u and its M members are draws of one law (a calibrated forecast), u
is equally likely to take each of the M + 1 ranks, ties are broken by v, and PIT is uniform on [0, 1] exactly, for any M ≥ 1.

    c_j = E π_j(PIT) = 0,        π_j(x) = √(2j + 1)·P_j(2x − 1),        j = 1 … 4,

with the Legendre polynomials P_j, says so in four numbers (Neyman's smooth test, 1937); Σ_j c_j² ≤ ∫ (density − 1)². Points of
one field depend on each other, samples do not: a sample's averages over its points are independent draws with mean zero,
whatever the dependence within fields, and errors, here and of all other numbers of this file, are taken over samples.

Arrays: u, mean, std and pit are (sample, channel, *grid), members (member, sample, channel, *grid); a mask is True where u is
known, and points where pit or error is NaN are unknown too. What is not honest can be repaired: `Conformal`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legval
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from ..draw import generator
from ..errors import UserError
from .conformal import Conformal
from .metrics import Score, per_sample

__all__ = [
    "Component",
    "Conformal",
    "Curve",
    "Diagnosis",
    "Histogram",
    "Ranks",
    "SpreadSkill",
    "coverage",
    "diagnose",
    "functionals",
    "pit",
    "rank_histogram",
    "sharpness",
    "spread_skill",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Maybe = ArrayLike | None

ORDERS = (1, 2, 3, 4)
WORDS = (("biased high", "biased low"), ("too wide", "too narrow"), ("skewed",) * 2, ("wrong shape",) * 2)  # c_j < 0, c_j > 0
FEWEST = 5  # samples that can be judged
ROUNDING = 1e-12  # a standard error below is that of equal numbers


@dataclass(frozen=True, eq=False)
class Curve:
    """Observed coverage `value` of central intervals of nominal `levels`, with its standard error over samples."""

    levels: Array
    value: Array
    error: Array


@dataclass(frozen=True, eq=False)
class Histogram:
    """Density of PIT between `edges`, 1 where uniform, with its standard error over samples."""

    edges: Array
    density: Array
    error: Array


@dataclass(frozen=True)
class Component:
    """Estimate of c_j, its standard error, and its p-value, which is adjusted for the four looks (Holm 1979)."""

    order: int
    mean: float
    error: float
    p: float


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found: components of order 1 … 4, the p-value of all together, and `findings` in words."""

    orders: tuple[Component, ...]
    p: float
    alarm: float
    samples: int
    findings: tuple[str, ...]

    @property
    def judged(self) -> bool:
        """False with fewer than five samples, when nothing can be said."""
        return self.samples >= FEWEST

    @property
    def honest(self) -> bool:
        """Nothing was found. Look at `judged` too: nothing is found in too few samples."""
        return not self.findings


@dataclass(frozen=True, eq=False)
class SpreadSkill:
    """Predicted spread and actual error in bins of predicted spread, and their ratio over all: 1 is honest, less too narrow."""

    spread: Array
    skill: Array
    count: NDArray[np.int64]
    ratio: float
    ratio_error: float


class Ranks:
    """PIT of one input, whose members come batch by batch; v is drawn by (seed, index), where index numbers the input.

    >>> ranks = Ranks([0.5, 7.0, np.nan])
    >>> ranks.add([[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    >>> ranks.pit * 4 // 1  # ranks among three members
    array([ 1.,  3., nan])
    """

    def __init__(self, u: ArrayLike, seed: int = 0, index: int = 0) -> None:
        self.count = 0
        self._u = np.array(u, dtype=np.float64)
        self._below = np.zeros(self._u.shape, dtype=np.int64)
        self._ties = np.zeros(self._u.shape, dtype=np.int64)
        self._v = generator(seed, "pit", index).random(self._u.shape)

    def add(self, batch: ArrayLike) -> None:
        """Take in a batch (k, *u.shape)."""
        members = np.asarray(batch, dtype=np.float64)
        if members.ndim != self._u.ndim + 1 or members.shape[1:] != self._u.shape:
            expected = ", ".join(["k", *map(str, self._u.shape)])
            raise UserError(f"members have shape {members.shape}, expected ({expected}); put members on the first axis")
        if not np.isfinite(members[:, ~np.isnan(self._u)]).all():
            raise UserError("members are NaN or infinite where u is known, expected numbers; leave such members out")
        self.count += len(members)
        self._below += (members < self._u).sum(axis=0)
        self._ties += (members == self._u).sum(axis=0)

    @property
    def pit(self) -> Array:
        """PIT, of the shape of u: NaN where u is, and everywhere without members."""
        if self.count == 0:
            return np.full(self._u.shape, np.nan)
        values = (self._below + self._v * (self._ties + 1)) / (self.count + 1)
        return np.where(np.isnan(self._u), np.nan, values)


def pit(members: ArrayLike, u: ArrayLike, seed: int = 0) -> Array:
    """PIT (sample, …) of arrays members (member, sample, …) and u (sample, …): that of `Ranks` with index = sample."""
    members, u = np.asarray(members, dtype=np.float64), np.asarray(u, dtype=np.float64)
    if u.ndim == 0 or members.shape[1:] != u.shape:
        raise UserError(f"members have shape {members.shape}, u has {u.shape}; expected (member, sample, …) and (sample, …)")
    values = np.empty(u.shape)
    for i in range(len(u)):
        ranks = Ranks(u[i], seed, i)
        ranks.add(members[:, i])
        values[i] = ranks.pit
    return values


def functionals(fields: ArrayLike, *, mask: Maybe = None) -> Array:
    """Two numbers of each whole field (k, channel, *grid), as an array (k, 2): its mean, and its roughness,

        mean = average of u_x over x,        roughness = average of (u_x − u_y)² over neighbours x, y along all grid axes,

    over the points where `mask` (channel, *grid) is True. Ranks of points cannot see whether points move together; those of
    the mean do (a shared mode that is lost makes it too narrow), and those of the roughness see a wrong correlation. Rank them
    as points are, `Ranks(functionals(u[None])[0])` and `add(functionals(batch))`, and diagnose columns of pit (sample, 2):
    pit[:, :1] and pit[:, 1:].

    >>> functionals([[[0.0, 2.0, 4.0]]])
    array([[2., 4.]])
    """
    u = np.asarray(fields, dtype=np.float64)
    if u.ndim < 2:
        raise UserError(f"fields have shape {u.shape}, expected (k, channel, *grid); put one field as fields[None]")
    known = np.ones(u.shape[1:], dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if known.shape != u.shape[1:] or not known.any():
        raise UserError(
            f"the mask has shape {known.shape} and {known.sum()} known points, expected {u.shape[1:]} and at least one; "
            "give the mask of one field"
        )
    squares, pairs = np.zeros(len(u)), 0
    for axis in range(2, u.ndim):
        both = np.logical_and(*(np.moveaxis(known, axis - 1, 0)[cut] for cut in (slice(1, None), slice(-1))))
        steps = np.moveaxis(np.diff(u, axis=axis), axis, 1)[:, both]
        squares += np.square(steps).sum(axis=1)
        pairs += steps.shape[1]
    return np.stack([u[:, known].mean(axis=1), squares / max(1, pairs)], axis=1)


def coverage(pit: ArrayLike, levels: Sequence[float] | Array, *, mask: Maybe = None, weights: Maybe = None) -> Curve:
    """Fraction of points inside the central interval of each level, |PIT − ½| ≤ level/2: equal to the level if calibrated.

    >>> coverage([[0.1, 0.5], [0.3, 0.6]], [0.5, 0.9]).value
    array([0.75, 1.  ])
    """
    values, known = _checked(pit, mask)
    nominal = np.asarray(levels, dtype=np.float64)
    if nominal.ndim != 1 or not ((nominal >= 0) & (nominal <= 1)).all():
        raise UserError(f"levels are {levels}, expected a list of numbers between 0 and 1; 90 % is 0.9")
    inside = [_averages(np.abs(values - 0.5) <= level / 2, known, weights) for level in nominal]
    return Curve(nominal, *_mean_and_error(inside))


def rank_histogram(pit: ArrayLike, bins: int = 20, *, mask: Maybe = None, weights: Maybe = None) -> Histogram:
    """Density of PIT in bins of equal width: flat if calibrated, U-shaped if too narrow, a hump if too wide."""
    values, known = _checked(pit, mask)
    places = np.minimum(np.where(known, values, 0) * _at_least_one(bins, "bins"), bins - 1).astype(np.int64)
    shares = [_averages(places == place, known, weights) * bins for place in range(bins)]
    return Histogram(np.linspace(0, 1, bins + 1), *_mean_and_error(shares))


def diagnose(pit: ArrayLike, *, mask: Maybe = None, weights: Maybe = None, alarm: float = 0.01) -> Diagnosis:
    """Judge PIT (sample, …): the components c_1 … c_4, a t-test of each over samples, and what they mean in words.

    ===== =========== ==============================================================================================
    order c_j         finding
    ===== =========== ==============================================================================================
    1     < 0         "biased high": forecasts are too high, so u lies low among members and PIT is too small
    1     > 0         "biased low": forecasts are too low, PIT is too large
    2     > 0         "too narrow" (under-dispersed): u often lies in the tails, PIT near 0 and 1
    2     < 0         "too wide" (over-dispersed): u keeps to the middle, PIT near ½
    3     ≠ 0         "skewed": the tails are wrong in opposite ways
    4     ≠ 0         "wrong shape": width is right, but peak and tails are not
    ===== =========== ==============================================================================================

    Findings come by c_j as a share of its largest value √(2j + 1), and the first is the one to put right: a strong error of
    one kind shows in other orders too (a forecast with a large bias is also too narrow for its errors).

    **False alarms.** By Holm's rule over four orders, a calibrated forecast has any finding with probability ≤ `alarm`, if
    the p-values are right. Those of Student's t with n − 1 degrees of freedom are where averages over points are Gaussian. At
    the other extreme all points of a field move together, and an average is π_j of one uniform: then t has longer tails, and
    alarms at 0.01 come at 0.045 for n = 5 samples, 0.014 for n = 30. So (n − 1)/2 degrees are taken: in both extremes, and
    between them, alarms set to 0.1 … 0.001 then come no more often than that from n = 5 on. No test that has power can
    promise this for every dependence.

    Fewer than five samples cannot be judged: p is NaN, findings are empty, `judged` is False.

    Args:
        pit: as of `pit`; (sample, 1) for a number a sample.
        mask: True where u is known.
        weights: of points.
        alarm: rate of false alarms.

    >>> diagnose([[0.01], [0.04], [0.02], [0.03], [0.01], [0.02]]).findings
    ('biased high', 'too narrow', 'skewed', 'wrong shape')
    """
    if not 0 < alarm < 1:
        raise UserError(f"alarm = {alarm}, expected a rate of false alarms between 0 and 1; 0.01 is usual")
    values, known = _checked(pit, mask)
    samples = int(_some(known).sum())
    means, errors, ps = np.full((3, len(ORDERS)), np.nan)
    if samples:
        polynomials = (np.sqrt(2 * j + 1) * legval(2 * values - 1, [0] * j + [1]) for j in ORDERS)
        means, errors = _mean_and_error([_averages(one, known, weights) for one in polynomials])
    if samples >= FEWEST:
        ps = _holm(_tails(means, errors, samples))
    orders = tuple(
        Component(j, float(mean), float(error), float(p)) for j, mean, error, p in zip(ORDERS, means, errors, ps, strict=True)
    )
    found = sorted(
        (one for one in orders if one.p <= alarm), key=lambda one: -round(abs(one.mean) / np.sqrt(2 * one.order + 1), 9)
    )
    findings = tuple(WORDS[one.order - 1][one.mean > 0] for one in found)
    return Diagnosis(orders, float(ps.min()), alarm, samples, findings)


def spread_skill(std: ArrayLike, error: ArrayLike, members: int, bins: int = 10, *, mask: Maybe = None) -> SpreadSkill:
    """Does predicted spread tell the size of errors? Points are put into bins of equal count by predicted std, and in each

        spread = √(1 + 1/M)·(RMS of std),        skill = RMS of error,

    with error = u − mean of the M members and std over members (with M − 1). If calibrated, they are equal: the mean of M
    members errs by std/√M itself. Equal std are never cut apart, so there may be fewer bins: one if all std are equal. The
    ratio is that of the RMS over all, a sample counting once, with its standard error over samples (delta method).
    """
    std, error = np.asarray(std, dtype=np.float64), np.asarray(error, dtype=np.float64)
    if std.shape != error.shape:
        raise UserError(f"std has shape {std.shape}, error has {error.shape}; expected the same shape (sample, channel, *grid)")
    known = _known(error, mask)
    if not (std[known] >= 0).all():
        raise UserError("std is NaN or negative where u is known; give 0 for a forecast without spread")
    variance, square = std**2 * (1 + 1 / _at_least_one(members, "members")), error**2
    ratio = Score.root_of_ratio(_averages(variance, known), _averages(square, known))
    order = np.argsort(std[known], kind="stable")
    ordered = std[known][order]
    cuts = np.linspace(0, len(ordered), _at_least_one(bins, "bins") + 1).astype(np.int64)[:-1]
    starts = np.unique(np.searchsorted(ordered, ordered[cuts]))
    count = np.diff(starts, append=len(ordered))
    spread, skill = (np.sqrt(np.add.reduceat(one[known][order], starts) / count) for one in (variance, square))
    return SpreadSkill(spread, skill, count, ratio.value, ratio.error)


def sharpness(lower: ArrayLike, upper: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Mean width of intervals: of two honest forecasts, the one with the smaller width says more.

    >>> sharpness([[0.0, 1.0]], [[1.0, 4.0]]).value
    2.0
    """
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if lower.shape != upper.shape:
        raise UserError(f"lower has shape {lower.shape}, upper has {upper.shape}; expected the same shape (sample, …)")
    known = _known(upper - lower, mask)
    if (lower[known] > upper[known]).any():
        raise UserError("lower is above upper at some points, expected lower ≤ upper; exchange them")
    return Score.mean(_averages(upper - lower, known, weights))


def _known(values: Array, mask: Maybe) -> Mask:
    """Where values are known: not NaN, and True in the mask."""
    known = ~np.isnan(values)
    given = np.asarray(True if mask is None else mask, dtype=bool)
    try:
        known &= np.broadcast_to(given, values.shape)
    except ValueError:
        raise UserError(f"a mask of shape {given.shape} does not fit {values.shape}; leave axes out or give all") from None
    if values.ndim < 1:
        raise UserError(f"a single number {values} was given, expected an array (sample, channel, *grid); add the axes")
    return known


def _checked(pit: ArrayLike, mask: Maybe) -> tuple[Array, Mask]:
    values = np.asarray(pit, dtype=np.float64)
    known = _known(values, mask)
    if not ((values[known] >= 0) & (values[known] <= 1)).all():
        raise UserError("PIT has values outside [0, 1]; make it of members and u by pdno.evaluation.calibration.pit")
    return values, known


def _at_least_one(number: int, name: str) -> int:
    if number < 1:
        raise UserError(f"{name} = {number}, expected a whole number from 1 on; give a larger one")
    return number


def _some(known: Mask) -> Mask:
    """Samples with a known point."""
    return np.asarray(known.reshape(len(known), math.prod(known.shape[1:])).any(axis=1))


def _averages(values: NDArray[np.generic], known: Mask, weights: Maybe = None) -> Array:
    """Averages over points of each sample that has a known point."""
    some = _some(known)
    if not some.any():
        raise UserError(f"none of the points of shape {known.shape} is known, expected some values of u; look at the mask")
    return per_sample(values[some], mask=known[some], weights=weights)


def _mean_and_error(each: Sequence[Array]) -> tuple[Array, Array]:
    scores = [Score.mean(one) for one in each]
    return np.array([score.value for score in scores]), np.array([score.error for score in scores])


def _tails(means: Array, errors: Array, samples: int) -> Array:
    """Two-sided p-values. Averages that are all equal are 0, which is what is expected (p = 1), or never could be (p = 0)."""
    equal = errors <= ROUNDING
    t = np.abs(means) / np.where(equal, 1, errors)
    return np.where(equal, np.abs(means) <= 1000 * ROUNDING, 2 * stdtr((samples - 1) / 2, -t))


def _holm(ps: Array) -> Array:
    """Holm's adjusted p-values: the i-th smallest times the number of those not smaller, and never falling with i."""
    order = np.argsort(ps)
    adjusted = np.empty_like(ps)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(ps[order] * np.arange(len(ps), 0, -1)))
    return adjusted
