"""Calibration of ensembles: coverage, rank histogram, spread–skill ratio, and a test that names the defect.

If u and its ensemble members are draws of the same distribution (a calibrated prediction), the probability integral
transform PIT (`pdno.evaluation.ranks`) is uniform on [0, 1]. Then

    c_j = E π_j(PIT) = 0,        π_j(x) = √(2j + 1)·P_j(2x − 1),        j = 1 … 4,

with the Legendre polynomials P_j (Neyman's smooth test, 1937), and Σ_j c_j² ≤ ∫ (density − 1)². Points of one field are
dependent, samples are not: the averages of π_j over the points of each sample are independent draws with mean zero, whatever
the dependence within fields. Standard errors, here and of all other numbers of this module, are therefore over samples.

Arrays: u, mean, std and pit are (sample, channel, *grid), members (member, sample, channel, *grid). A mask is True where u is
observed; points where pit or error is NaN count as missing. Miscalibrated intervals can be corrected by `Conformal`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legval
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from .._typing import Floats, Ints, Mask
from ..errors import UserError
from .averages import averages, has_points, mean_and_error, observed_points
from .conformal import Conformal
from .ranks import Ranks, functionals, pit
from .score import Score

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

ORDERS = (1, 2, 3, 4)  # j of the components c_j
FINDINGS = (  # what c_j < 0 and c_j > 0 mean, for each order
    ("biased high", "biased low"),
    ("too wide", "too narrow"),
    ("skewed", "skewed"),
    ("wrong shape", "wrong shape"),
)
MIN_SAMPLES = 5  # the test has its nominal level from this number of samples on
ROUNDING = 1e-12  # a smaller standard error is that of equal numbers


@dataclass(frozen=True, eq=False)
class Curve:
    """Observed coverage of central intervals.

    Args:
        levels: nominal levels, (level,).
        value: observed coverage, (level,).
        error: its standard error over samples, (level,).
    """

    levels: Floats
    value: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class Histogram:
    """Histogram of PIT.

    Args:
        edges: of the bins, (bin + 1,).
        density: of PIT, 1 if uniform, (bin,).
        error: its standard error over samples, (bin,).
    """

    edges: Floats
    density: Floats
    error: Floats


@dataclass(frozen=True)
class Component:
    """Estimate and test of one c_j.

    Args:
        order: j.
        mean: estimate of c_j.
        error: its standard error over samples.
        p: p-value, adjusted for four tests (Holm 1979).
    """

    order: int
    mean: float
    error: float
    p: float


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`.

    Args:
        orders: components of order 1 … 4.
        p: smallest adjusted p-value; NaN if no test was made.
        alpha: false-positive rate of the test.
        samples: number of samples with observed points, or of their groups.
        findings: the defects in words, the largest first; empty if there are none.
    """

    orders: tuple[Component, ...]
    p: float
    alpha: float
    samples: int
    findings: tuple[str, ...]

    @property
    def enough_samples(self) -> bool:
        """False with fewer than five samples, for which no test is made."""
        return self.samples >= MIN_SAMPLES

    @property
    def passed(self) -> bool:
        """Whether there are no findings. It is also True if no test was made: see `enough_samples`."""
        return not self.findings


@dataclass(frozen=True, eq=False)
class SpreadSkill:
    """Predicted spread and actual error in bins of predicted spread. A ratio of 1 is calibrated, less is too narrow.

    Args:
        spread: RMS of the predicted spread in each bin, (bin,).
        skill: RMS of the error in each bin, (bin,).
        count: number of points in each bin, (bin,).
        ratio: overall spread / skill.
        ratio_error: its standard error over samples.
    """

    spread: Floats
    skill: Floats
    count: NDArray[np.int64]
    ratio: float
    ratio_error: float


def coverage(
    pit: ArrayLike,
    levels: Sequence[float] | Floats,
    *,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: Ints | None = None,
) -> Curve:
    """Return the fraction of points inside the central interval of each level, |PIT − ½| ≤ level/2: the level if calibrated.

    Args:
        pit: as returned by `pit`, (sample, channel, *grid).
        levels: nominal levels, each between 0 and 1.
        mask: True where u is observed; broadcasts against the last axes of pit.
        weights: of the points, likewise; default: all one.
        groups: labels of dependent samples, (sample,), which are averaged first.

    Raises:
        UserError: if levels or PIT are outside [0, 1], shapes do not fit, or no point is observed.

    >>> coverage([[0.1, 0.5], [0.3, 0.6]], [0.5, 0.9]).value
    array([0.75, 1.  ])
    """
    values, observed = _check_pit(pit, mask)
    nominal = np.asarray(levels, dtype=np.float64)
    if nominal.ndim != 1 or not ((nominal >= 0) & (nominal <= 1)).all():
        raise UserError(f"levels are {levels}, expected a list of numbers between 0 and 1; 90 % is 0.9")
    inside = [averages(np.abs(values - 0.5) <= level / 2, observed, weights, groups) for level in nominal]
    return Curve(nominal, *mean_and_error(inside))


def rank_histogram(
    pit: ArrayLike,
    bins: int = 20,
    *,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: Ints | None = None,
) -> Histogram:
    """Return the density of PIT in bins of equal width: flat if calibrated, U-shaped if too narrow, a hump if too wide.

    Args:
        pit, mask, weights, groups: as in `coverage`.
        bins: number of bins.

    Raises:
        UserError: as `coverage`, or if there is no bin.
    """
    values, observed = _check_pit(pit, mask)
    numbers = np.minimum(np.where(observed, values, 0) * _at_least_one(bins, "bins"), bins - 1).astype(np.int64)
    densities = [averages(numbers == number, observed, weights, groups) * bins for number in range(bins)]
    return Histogram(np.linspace(0, 1, bins + 1), *mean_and_error(densities))


def diagnose(
    pit: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: Ints | None = None,
    alpha: float = 0.01,
) -> Diagnosis:
    """Test PIT (sample, …) for uniformity: estimate c_1 … c_4, t-test each over samples, and name the defects.

    ===== =========== ==============================================================================================
    order c_j         finding
    ===== =========== ==============================================================================================
    1     < 0         "biased high": predictions are too high, so u has low ranks and PIT is too small
    1     > 0         "biased low": predictions are too low, PIT is too large
    2     > 0         "too narrow" (under-dispersed): u is often in the tails, PIT near 0 and 1
    2     < 0         "too wide" (over-dispersed): u is mostly in the middle, PIT near ½
    3     ≠ 0         "skewed": one tail is too heavy, the other too light
    4     ≠ 0         "wrong shape": the width is right, peak and tails are not
    ===== =========== ==============================================================================================

    Findings are ordered by c_j relative to its largest value √(2j + 1). Correct the first one first: a strong defect also
    affects other orders (a prediction with a large bias is also too narrow for its errors).

    **False positives.** By Holm's rule over four orders, a calibrated prediction has any finding with probability ≤ `alpha`, if
    the p-values are correct. Those of Student's t with n − 1 degrees of freedom are correct if averages over points are
    Gaussian. At the other extreme, the points of a field are fully dependent and an average is π_j of one uniform variable:
    then t has longer tails, and for alpha = 0.01 the false-positive rate is 0.045 for n = 5 samples and 0.014 for n = 30. With
    (n − 1)/2 degrees of freedom, as used here, the rate is at most alpha in both extremes and between them, for n ≥ 5 and
    alpha = 0.1 … 0.001. No test with power can guarantee this for every dependence.

    Samples of a group, such as frames of a trajectory, are dependent: they are averaged, and n is the number of groups.
    With fewer than five samples or groups no test is made: p is NaN, findings are empty, `enough_samples` is False.

    Args:
        pit: as returned by `pit`; (sample, 1) for one number per sample.
        mask: True where u is observed.
        weights: of the points.
        groups: labels of dependent samples, (sample,).
        alpha: false-positive rate.

    Raises:
        UserError: if PIT is outside [0, 1], alpha is not between 0 and 1, or shapes do not fit.

    >>> diagnose([[0.01], [0.04], [0.02], [0.03], [0.01], [0.02]]).findings
    ('biased high', 'too narrow', 'skewed', 'wrong shape')
    """
    if not 0 < alpha < 1:
        raise UserError(f"alpha = {alpha}, expected a false-positive rate between 0 and 1; 0.01 is usual")
    values, observed = _check_pit(pit, mask)
    rows = has_points(observed)
    samples = int(rows.sum()) if groups is None else len(np.unique(np.asarray(groups)[rows]))
    means, errors, ps = np.full((3, len(ORDERS)), np.nan)
    if samples:
        polynomials = (np.sqrt(2 * j + 1) * legval(2 * values - 1, [0] * j + [1]) for j in ORDERS)
        means, errors = mean_and_error([averages(each, observed, weights, groups) for each in polynomials])
    if samples >= MIN_SAMPLES:
        ps = _holm(_p_values(means, errors, samples))
    orders = tuple(
        Component(j, float(mean), float(error), float(p)) for j, mean, error, p in zip(ORDERS, means, errors, ps, strict=True)
    )
    significant = sorted((c for c in orders if c.p <= alpha), key=lambda c: -round(abs(c.mean) / np.sqrt(2 * c.order + 1), 9))
    findings = tuple(FINDINGS[c.order - 1][c.mean > 0] for c in significant)
    return Diagnosis(orders, float(ps.min()), alpha, samples, findings)


def spread_skill(
    std: ArrayLike,
    error: ArrayLike,
    members: int,
    bins: int = 10,
    *,
    mask: ArrayLike | None = None,
    groups: Ints | None = None,
) -> SpreadSkill:
    """Compare predicted spread with the size of errors, in bins of equal count by predicted std and overall:

        spread = √(1 + 1/M)·(RMS of std),        skill = RMS of error.

    If calibrated, they are equal: the factor accounts for the error std/√M of the mean of M members. Points of equal std stay
    in one bin, so there may be fewer bins: one if all std are equal. The ratio is that of the overall RMS, with equal weights
    for samples; its standard error over samples is by the delta method.

    Args:
        std: standard deviation over members (with M − 1), (sample, channel, *grid).
        error: u − mean of the members, in the same shape; NaN where u is missing.
        members: number of members M.
        bins: number of bins.
        mask: True where u is observed.
        groups: labels of dependent samples, (sample,), which are averaged first.

    Raises:
        UserError: if shapes differ, std is NaN or negative at observed points, or no point is observed.
    """
    std, error = np.asarray(std, dtype=np.float64), np.asarray(error, dtype=np.float64)
    if std.shape != error.shape:
        raise UserError(f"std has shape {std.shape}, error has {error.shape}; expected the same shape (sample, channel, *grid)")
    observed = observed_points(error, mask)
    if not (std[observed] >= 0).all():
        raise UserError("std is NaN or negative where u is observed; pass 0 for a deterministic prediction")
    variance, square = std**2 * (1 + 1 / _at_least_one(members, "members")), error**2
    above, below = (averages(v, observed, None, groups) for v in (variance, square))
    ratio = Score.root_of_ratio(above, below)
    order = np.argsort(std[observed], kind="stable")
    ordered = std[observed][order]
    cuts = np.linspace(0, len(ordered), _at_least_one(bins, "bins") + 1).astype(np.int64)[:-1]
    starts = np.unique(np.searchsorted(ordered, ordered[cuts]))
    count = np.diff(starts, append=len(ordered))
    spread, skill = (np.sqrt(np.add.reduceat(v[observed][order], starts) / count) for v in (variance, square))
    return SpreadSkill(spread, skill, count, ratio.value, ratio.error)


def sharpness(
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    groups: Ints | None = None,
) -> Score:
    """Return the mean width of intervals: of two calibrated predictions, the sharper one is more informative.

    Args:
        lower, upper: bounds of the intervals, (sample, channel, *grid).
        mask, weights, groups: as in `coverage`.

    Raises:
        UserError: if shapes differ, or lower > upper at some point.

    >>> sharpness([[0.0, 1.0]], [[1.0, 4.0]]).value
    2.0
    """
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if lower.shape != upper.shape:
        raise UserError(f"lower has shape {lower.shape}, upper has {upper.shape}; expected the same shape (sample, …)")
    observed = observed_points(upper - lower, mask)
    if (lower[observed] > upper[observed]).any():
        raise UserError("lower is above upper at some points, expected lower ≤ upper; exchange them")
    return Score.mean(averages(upper - lower, observed, weights, groups))


def _check_pit(pit: ArrayLike, mask: ArrayLike | None) -> tuple[Floats, Mask]:
    """Return PIT as floats, and where it is observed."""
    values = np.asarray(pit, dtype=np.float64)
    observed = observed_points(values, mask)
    if not ((values[observed] >= 0) & (values[observed] <= 1)).all():
        raise UserError("PIT has values outside [0, 1]; compute it from members and u by pdno.evaluation.calibration.pit")
    return values, observed


def _at_least_one(number: int, name: str) -> int:
    if number < 1:
        raise UserError(f"{name} = {number}, expected a whole number ≥ 1; pass a larger one")
    return number


def _p_values(means: Floats, errors: Floats, samples: int) -> Floats:
    """Return two-sided p-values. If all averages are equal, p is 1 where they are 0 and 0 elsewhere."""
    equal = errors <= ROUNDING
    t = np.abs(means) / np.where(equal, 1, errors)
    return np.where(equal, np.abs(means) <= 1000 * ROUNDING, 2 * stdtr((samples - 1) / 2, -t))


def _holm(ps: Floats) -> Floats:
    """Return Holm's adjusted p-values: the i-th smallest times the number of those not smaller, non-decreasing in i."""
    order = np.argsort(ps)
    adjusted = np.empty_like(ps)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(ps[order] * np.arange(len(ps), 0, -1)))
    return adjusted
