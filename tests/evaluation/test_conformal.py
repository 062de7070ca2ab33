"""Repaired intervals keep their word on fresh data: exactly ⌈(n + 1)·level⌉/(n + 1), for models good and bad.

Seeds are fixed; a coverage is off by more than 4 standard errors for one seed in 16,000.
"""

import numpy as np
import pytest
from scipy import stats

from pdno import UserError
from pdno.evaluation.conformal import Conformal

LEVEL = 0.9
WIDTH = stats.norm.ppf(0.95)  # of 90 % intervals, in standard deviations


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def expected(n: int) -> float:
    """⌈(n + 1)·level⌉/(n + 1) for level 9/10, in whole numbers."""
    return -(-(n + 1) * 9 // 10) / (n + 1)


def forecast(seed: int, *shape: int, claim: float = 0.2, bias: float = 0.3) -> tuple[np.ndarray, ...]:
    """Bounds, predicted std and u: inputs of many scales, points that share a shift, std `claim` times what it should be."""
    g = rng(seed)
    scale, mean = np.exp(g.normal(size=(shape[0], *[1] * (len(shape) - 1)))), g.normal(size=shape)
    shared = g.normal(size=scale.shape)
    u = mean + scale * (bias + np.sqrt(0.5) * (shared + g.normal(size=shape)))
    std = claim * scale * np.ones(shape)
    return mean - WIDTH * std, mean + WIDTH * std, std, u


def inside(repaired: tuple[np.ndarray, np.ndarray], u: np.ndarray) -> np.ndarray:
    return (repaired[0] <= u) & (u <= repaired[1])


def agrees(coverage: np.ndarray, n: int) -> None:
    """The mean over repetitions is the expected coverage, within 4 standard errors that are small enough to tell."""
    error = stats.sem(coverage)
    assert error < 0.005
    assert abs(coverage.mean() - expected(n)) <= 4 * error
    assert LEVEL - 4 * error <= coverage.mean() <= LEVEL + 1 / (n + 1) + 4 * error


@pytest.mark.parametrize("n", [19, 50, 99])
@pytest.mark.parametrize("claim", [0.2, 5.0], ids=["5 times too narrow", "5 times too wide"])
def test_pointwise(n, claim) -> None:
    """Each repetition is a calibration set of its own, three points that are dependent, and 40 fresh fields."""
    results = []
    for repetition in range(500):
        *bounds, u = forecast(repetition, n + 40, 1, 3, claim=claim)
        conformal = Conformal.of(*(x[:n] for x in (*bounds, u)), LEVEL)
        results.append(inside(conformal.repair(*(x[n:] for x in bounds)), u[n:]).mean())
    agrees(np.array(results), n)
    assert conformal.factor.shape == (1, 3)
    assert (conformal.samples, conformal.share) == (n, None)
    assert (conformal.factor > 0).all() if claim < 1 else (conformal.factor < 0).all()


@pytest.mark.parametrize("n", [19, 50, 99])
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_whole_fields(n, share) -> None:
    """At least the share of 20 points is inside, for 90 % of the fields. (Pointwise intervals do that for fewer.)"""
    results = []
    for repetition in range(500):
        *bounds, u = forecast(repetition, n + 40, 1, 20)
        conformal = Conformal.of(*(x[:n] for x in (*bounds, u)), LEVEL, share=share)
        fraction = inside(conformal.repair(*(x[n:] for x in bounds)), u[n:]).mean(axis=(1, 2))
        results.append((fraction >= share - 1e-9).mean())
    agrees(np.array(results), n)
    assert conformal.factor.shape == ()


def test_without_repair_coverage_is_bad() -> None:
    """What there is to repair: the model whose std is 5 times too small covers 24 %."""
    lower, upper, _, u = forecast(0, 4000, 1, 3)
    assert inside((lower, upper), u).mean() < 0.3


def test_a_wide_forecast_becomes_sharper() -> None:
    lower, upper, std, u = forecast(1, 200, 1, 4, claim=5.0)
    low, high = Conformal.of(lower, upper, std, u, LEVEL).repair(lower, upper, std)
    assert (high - low).mean() < 0.3 * (upper - lower).mean()


def test_an_honest_forecast_hardly_changes() -> None:
    lower, upper, std, u = forecast(2, 4000, 1, 2, claim=1.0, bias=0.0)
    np.testing.assert_allclose(Conformal.of(lower, upper, std, u, LEVEL).factor, 0, atol=0.1)


def test_a_deterministic_model() -> None:
    """Std is 0: factors have the units of u, and are the order statistics of |u − prediction|."""
    u = rng(3).normal(size=(29, 1, 5))
    zero = np.zeros_like(u)
    conformal = Conformal.of(zero, zero, zero, u, LEVEL)
    np.testing.assert_allclose(conformal.factor, np.sort(np.abs(u), axis=0)[26])  # the 27th of 29
    whole = Conformal.of(zero, zero, zero, u, LEVEL, share=1.0)
    assert float(whole.factor) == np.sort(np.abs(u).max(axis=(1, 2)))[26]
    low, high = whole.repair(zero[:2] + 7, zero[:2] + 7, zero[:2])
    np.testing.assert_allclose(low, 7 - whole.factor)
    np.testing.assert_allclose(high, 7 + whole.factor)


def test_by_hand() -> None:
    """Scores of three samples at two points, level ½: the second smallest at each; of fields, of the larger one."""
    lower, upper, scale = np.zeros((3, 2)), np.ones((3, 2)), np.full((3, 2), 2.0)
    u = np.array([[3.0, 0.5], [-1.0, 1.0], [0.5, 5.0]])  # scores [1, −¼], [½, 0], [−¼, 2]
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5).factor, [0.5, 0])
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5, share=1).factor, 1)  # of ½, 1, 2
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5, share=0.5).factor, -0.25)  # of −¼, −¼, 0


@pytest.mark.parametrize(("level", "n"), [(0.9, 9), (0.95, 19), (0.99, 99), (0.5, 1), (0.07, 1), (2 / 3, 2)])
def test_fewest_samples(level, n) -> None:
    """⌈(n + 1)·level⌉ ≤ n, also where the product is whole and floating point says a little more."""
    x = np.arange(n, dtype=float)[:, None]
    assert Conformal.of(x * 0, x * 0, x * 0, x, level).factor == n - 1
    with pytest.raises(UserError, match=f"{n - 1} samples.* at least {n} are needed"):
        Conformal.of(x[1:], x[1:], x[1:], x[1:], level)


def test_rank_of_a_whole_product() -> None:
    """0.07·100 is 7.000000000000001 in floating point; the rank is 7."""
    u = np.arange(1.0, 100.0)[:, None]
    assert Conformal.of(u * 0, u * 0, u * 0, u, 0.07).factor == 7
    one = np.arange(1.0, 101.0)[None]  # one sample of 100 points
    assert Conformal.of(one * 0, one * 0, one * 0, one, 0.5, share=0.07).factor == 7


def test_intervals_never_cross() -> None:
    """Calibrated on wide intervals, used on a narrow one that is narrower than what is to be taken off: width 0."""
    wide, u = np.full((9, 1), 10.0), np.zeros((9, 1))
    conformal = Conformal.of(-wide, wide, np.ones((9, 1)), u, LEVEL)
    assert conformal.factor == -10
    low, high = conformal.repair([[1.0], [-12.0]], [[2.0], [12.0]], np.ones((2, 1)))
    np.testing.assert_array_equal(low, [[1.5], [-2]])
    np.testing.assert_array_equal(high, [[1.5], [2]])


class TestMasks:
    def test_each_point_has_its_own_samples(self) -> None:
        lower, upper, std, u = forecast(5, 40, 1, 4)
        mask = rng(6).random(u.shape) > 0.3
        mask[:, 0, 3] = False
        bad = np.where(mask, u, 1e9)
        given = Conformal.of(lower, upper, std, bad, LEVEL, mask=mask)
        unknown = Conformal.of(lower, np.where(mask, upper, np.nan), std, np.where(mask, u, np.nan), LEVEL)
        np.testing.assert_array_equal(given.factor, unknown.factor)
        for x in range(3):
            rows = mask[:, 0, x]
            alone = Conformal.of(*(v[rows, :, x : x + 1] for v in (lower, upper, std, u)), LEVEL)
            assert given.factor[0, x] == alone.factor[0, 0]
        assert given.factor[0, 3] == 0  # never known: the interval stays
        low, high = given.repair(lower, upper, std)
        np.testing.assert_array_equal(low[..., 3], lower[..., 3])
        np.testing.assert_array_equal(high[..., 3], upper[..., 3])

    @pytest.mark.parametrize("share", [1.0, 0.9, 0.25])
    def test_whole_fields(self, share) -> None:
        """One mask for all samples is as good as leaving the points out; samples without points do not count."""
        lower, upper, std, u = forecast(7, 25, 1, 10)
        mask = np.arange(10) % 2 == 0
        part = Conformal.of(*(v[..., mask] for v in (lower, upper, std, u)), LEVEL, share=share)
        assert Conformal.of(lower, upper, std, u, LEVEL, share=share, mask=mask).factor == part.factor
        more = [np.concatenate([v, v]) for v in (lower, upper, std, u)]
        more[3][25:] = np.nan
        assert Conformal.of(*more, LEVEL, share=share, mask=mask).factor == part.factor

    def test_too_few_at_a_point(self) -> None:
        lower, upper, std, u = forecast(8, 20, 1, 3)
        u[5:, 0, 1] = np.nan
        with pytest.raises(UserError, match=r"5 samples at the point that is known least .* at least 9 are needed"):
            Conformal.of(lower, upper, std, u, LEVEL)
        Conformal.of(lower, upper, std, u, LEVEL, share=1.0)
        for share in (None, 1.0):
            with pytest.raises(UserError, match="0 samples"):
                Conformal.of(lower, upper, std, u * np.nan, LEVEL, share=share)


@pytest.mark.parametrize("share", [None, 0.9])
def test_saving(share) -> None:
    conformal = Conformal.of(*forecast(9, 20, 2, 3), LEVEL, share=share)
    arrays = conformal.arrays()
    assert all(isinstance(value, np.ndarray) for value in arrays.values())
    again = Conformal.from_arrays(arrays)
    assert (again.level, again.samples, again.share) == (LEVEL, 20, share)
    np.testing.assert_array_equal(again.factor, conformal.factor)


def test_refuses() -> None:
    good = forecast(10, 20, 1, 3)
    for level in (0, 1, 90):
        with pytest.raises(UserError, match=f"level = {level}, expected"):
            Conformal.of(*good, level)
    for share in (0, 1.5):
        with pytest.raises(UserError, match=f"share = {share}, expected"):
            Conformal.of(*good, LEVEL, share=share)
    lower, upper, std, u = good
    with pytest.raises(UserError, match=r"shapes are lower \(20, 1, 3\), .*; expected one shape"):
        Conformal.of(lower, upper, std, u[0], LEVEL)
    with pytest.raises(UserError, match="scale is negative"):
        Conformal.of(lower, upper, -std, u, LEVEL)
    with pytest.raises(UserError, match="NaN or infinite where u is known"):
        Conformal.of(lower, upper * np.nan, std, u, LEVEL)
    with pytest.raises(UserError, match=r"a mask of shape \(4,\) does not fit"):
        Conformal.of(*good, LEVEL, mask=[True] * 4)
    conformal = Conformal.of(*good, LEVEL)
    with pytest.raises(UserError, match=r"on points \(1, 2\), factors on \(1, 3\); calibrate on the same grid"):
        conformal.repair(lower[..., :2], upper[..., :2], std[..., :2])
