"""Intervals of coverages: closed forms, and rates of errors for fields of any dependence."""

import numpy as np
import pytest
from scipy.stats import beta, norm
from scipy.stats import t as student

from pdno.evaluation.proportion import dependence, interval, upper_bound

POINTS = 32


def ranks(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Ranks of calibrated fields: one for the whole field, smooth ones, partly shared ones, or independent ones."""
    white, shared = rng.normal(size=(count, POINTS)), rng.normal(size=(count, 1))
    if kind == "smooth":
        x = np.linspace(0, 1, POINTS)
        covariance = np.exp(-(((x[:, None] - x) / 0.2) ** 2) / 2) + 1e-9 * np.eye(POINTS)
        return norm.cdf(white @ np.linalg.cholesky(covariance).T)
    share = {"one fate": 1.0, "shared": 0.7, "white": 0.0}[kind]
    return norm.cdf(np.sqrt(share) * shared + np.sqrt(1 - share) * white)


def test_fields_of_one_fate_have_the_interval_of_clopper_and_pearson() -> None:
    """With D = 1, and n reduced by Student's t: the bounds are those of a binomial number."""
    inside = np.array([1.0] * 17 + [0.0] * 3)
    low, high = interval(inside, 0.99)
    n = 20 * (norm.isf(0.005) / student.isf(0.005, 19)) ** 2
    assert low == pytest.approx(beta.ppf(0.005, 0.85 * n, 0.15 * n + 1))
    assert high == pytest.approx(beta.ppf(0.995, 0.85 * n + 1, 0.15 * n))


def test_fields_that_vary_little_have_the_interval_of_student() -> None:
    """For many independent points, it is p ± t s / √n."""
    inside = 0.8 + 0.002 * np.random.default_rng(0).normal(size=20)
    margin = student.isf(0.005, 19) * inside.std(ddof=1) / np.sqrt(20)
    assert interval(inside, 0.99) == pytest.approx((inside.mean() - margin, inside.mean() + margin), abs=0.02 * margin)


def test_bounds_of_certain_coverages() -> None:
    """If all groups agree, the bound is αˢ with s = 1/n* for D = 1, and small for the D of independent ranks."""
    n = 5 * (norm.isf(0.005) / student.isf(0.005, 4)) ** 2
    assert interval(np.ones(5), 0.99, 1.0) == pytest.approx((0.005 ** (1 / n), 1.0))
    assert interval(np.zeros(5), 0.99, 1.0) == pytest.approx((0.0, 1 - 0.005 ** (1 / n)))
    assert interval(np.ones(5), 0.99, 1 / 64)[0] > 0.9
    assert interval(np.ones(1), 0.99) == (0.0, 1.0)
    assert interval(np.array([0.9, 0.91]), 0.99) != (0.0, 1.0)


def test_dependence_of_ranks() -> None:
    """1 for one rank a field, about 1/d for independent ranks; copies in a group and missing ranks have no effect."""
    rng = np.random.default_rng(0)
    one, white = rng.random((50, 1)).repeat(8, axis=1), rng.random((400, 8))
    assert dependence(one) == 1.0
    assert dependence(white) == pytest.approx(1 / 8, rel=0.3)
    assert dependence(white[:20].repeat(3, axis=0), np.repeat(np.arange(20), 3)) == pytest.approx(dependence(white[:20]))
    by_hand = np.array([[0.1, 0.4], [0.9, 0.7]])  # w = (.8, .2), (.8, .4): means .5 and .6, Var w = .0675
    assert dependence(by_hand) == pytest.approx(0.0025 / 0.0675)
    assert dependence(by_hand[:, :, None]) == pytest.approx(0.0025 / 0.0675)
    assert dependence(np.array([[0.1, 0.9], [0.4, 0.6]])) == 1.0  # inside and outside together
    four = np.array([[0.1, 0.4], [0.9, 0.7], [0.6, 0.5], [0.5, 0.5]])  # means of w: .5, .6, .1, 0
    assert dependence(four, np.array([3, 3, 1, 1])) == pytest.approx(0.25**2 / np.var([0.8, 0.2, 0.8, 0.4, 0.2, 0, 0, 0]))
    assert dependence(by_hand[:1]) == dependence(np.full((3, 2), 0.3)) == 1.0
    holes = np.where(rng.random(one.shape) < 0.5, one, np.nan)
    assert dependence(holes) > 0.95
    assert dependence(np.full((3, 2), np.nan)) == 1.0


@pytest.mark.parametrize("kind", ["one fate", "smooth", "shared", "white"])
@pytest.mark.parametrize("count", [5, 20])
def test_calibrated_fields_are_rarely_called_otherwise(kind, count) -> None:
    """90 % intervals: at most 2 of 200 times the interval is beyond .87 or .93, which has a probability of at most 1 %."""
    wrong = 0
    for seed in range(200):
        pit = ranks(kind, count, np.random.default_rng((seed, count)))
        low, high = interval((np.abs(pit - 0.5) <= 0.45).mean(axis=1), 0.99, dependence(pit))
        wrong += low > 0.93 or high < 0.87
    assert wrong <= 5  # exceeded with probability 0.02 at a rate of 1 %


def test_wrong_widths_are_found_where_the_data_suffice() -> None:
    """Twenty fields of independent points tell 80 % from 90 %, twenty fields of one fate do not."""
    found = {}
    for kind in ("white", "one fate"):
        pit = norm.cdf(1.3 * norm.ppf(ranks(kind, 20, np.random.default_rng(1))))
        found[kind] = interval((np.abs(pit - 0.5) <= 0.45).mean(axis=1), 0.99, dependence(pit))[1] < 0.87
    assert found == {"white": True, "one fate": False}


def test_upper_bounds_of_parts() -> None:
    """Without an error, all points of a group are covered together: 1 − α^(1/n) if none is covered."""
    n = 8 * (norm.isf(0.01) / student.isf(0.01, 7)) ** 2
    p, error = np.array([0.0, 1.0, 0.8, 0.8, 0.8]), np.array([0.0, 0.0, 0.0, 0.001, 0.5])
    bounds = upper_bound(p, error, np.full(5, 8), 0.01)
    assert bounds[4] == bounds[2]  # D is at most 1
    assert bounds[:2] == pytest.approx([1 - 0.01 ** (1 / n), 1.0])
    assert bounds[2] == pytest.approx(beta.ppf(0.99, 0.8 * n + 1, 0.2 * n))
    assert bounds[3] == pytest.approx(0.8 + student.isf(0.01, 7) * 0.001, abs=1e-4)
