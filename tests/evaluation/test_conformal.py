"""Coverage of conformal intervals on new data is exactly ⌈(n + 1)·level⌉/(n + 1), for accurate and inaccurate models.

Seeds are fixed; a coverage differs by more than 4 standard errors for one seed in 16,000.
"""

import json

import numpy as np
import pytest
from scipy import stats

from pdno import UserError
from pdno.evaluation.conformal import Conformal
from pdno.work.state import flatten, unflatten

LEVEL = 0.9
WIDTH = stats.norm.ppf(0.95)  # of 90 % intervals, in standard deviations


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def expected(n: int) -> float:
    """⌈(n + 1)·level⌉/(n + 1) for level 9/10, in integer arithmetic."""
    return -(-(n + 1) * 9 // 10) / (n + 1)


def prediction(seed: int, *shape: int, factor: float = 0.2, bias: float = 0.3) -> tuple[np.ndarray, ...]:
    """Bounds, predicted std and u: inputs of many scales, points with a shared shift, std `factor` times the correct one."""
    g = rng(seed)
    scale, mean = np.exp(g.normal(size=(shape[0], *[1] * (len(shape) - 1)))), g.normal(size=shape)
    shared = g.normal(size=scale.shape)
    u = mean + scale * (bias + np.sqrt(0.5) * (shared + g.normal(size=shape)))
    std = factor * scale * np.ones(shape)
    return mean - WIDTH * std, mean + WIDTH * std, std, u


def inside(bounds: tuple[np.ndarray, np.ndarray], u: np.ndarray) -> np.ndarray:
    return (bounds[0] <= u) & (u <= bounds[1])


def assert_expected(coverage: np.ndarray, n: int) -> None:
    """The mean over repetitions is the expected coverage within 4 standard errors, which are below 0.005."""
    error = stats.sem(coverage)
    assert error < 0.005
    assert abs(coverage.mean() - expected(n)) <= 4 * error
    assert LEVEL - 4 * error <= coverage.mean() <= LEVEL + 1 / (n + 1) + 4 * error


@pytest.mark.parametrize("n", [19, 50, 99])
@pytest.mark.parametrize("factor", [0.2, 5.0], ids=["5 times too narrow", "5 times too wide"])
def test_pointwise(n, factor) -> None:
    """Each repetition has its own calibration set, three dependent points, and 40 new fields."""
    results = []
    for repetition in range(500):
        *bounds, u = prediction(repetition, n + 40, 1, 3, factor=factor)
        conformal = Conformal.of(*(x[:n] for x in (*bounds, u)), LEVEL)
        results.append(inside(conformal.apply(*(x[n:] for x in bounds)), u[n:]).mean())
    assert_expected(np.array(results), n)
    assert conformal.factor.shape == (1, 3)
    assert (conformal.samples, conformal.share) == (n, None)
    assert (conformal.factor > 0).all() if factor < 1 else (conformal.factor < 0).all()


@pytest.mark.parametrize("n", [19, 50, 99])
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_whole_fields(n, share) -> None:
    """For 90 % of the fields, at least this share of 20 points is inside. (With pointwise intervals, for fewer.)"""
    results = []
    for repetition in range(500):
        *bounds, u = prediction(repetition, n + 40, 1, 20)
        conformal = Conformal.of(*(x[:n] for x in (*bounds, u)), LEVEL, share=share)
        fraction = inside(conformal.apply(*(x[n:] for x in bounds)), u[n:]).mean(axis=(1, 2))
        results.append((fraction >= share - 1e-9).mean())
    assert_expected(np.array(results), n)
    assert conformal.factor.shape == ()


def test_coverage_without_calibration() -> None:
    """The model whose std is 5 times too small covers 24 %."""
    lower, upper, _, u = prediction(0, 4000, 1, 3)
    assert inside((lower, upper), u).mean() < 0.3


def test_wide_intervals_become_narrower() -> None:
    lower, upper, std, u = prediction(1, 200, 1, 4, factor=5.0)
    low, high = Conformal.of(lower, upper, std, u, LEVEL).apply(lower, upper, std)
    assert (high - low).mean() < 0.3 * (upper - lower).mean()


def test_calibrated_intervals_hardly_change() -> None:
    lower, upper, std, u = prediction(2, 4000, 1, 2, factor=1.0, bias=0.0)
    np.testing.assert_allclose(Conformal.of(lower, upper, std, u, LEVEL).factor, 0, atol=0.1)


def test_a_deterministic_model() -> None:
    """If std is 0, factors have the units of u and are order statistics of |u − prediction|."""
    u = rng(3).normal(size=(29, 1, 5))
    zero = np.zeros_like(u)
    conformal = Conformal.of(zero, zero, zero, u, LEVEL)
    np.testing.assert_allclose(conformal.factor, np.sort(np.abs(u), axis=0)[26])  # the 27th of 29
    whole = Conformal.of(zero, zero, zero, u, LEVEL, share=1.0)
    assert float(whole.factor) == np.sort(np.abs(u).max(axis=(1, 2)))[26]
    low, high = whole.apply(zero[:2] + 7, zero[:2] + 7, zero[:2])
    np.testing.assert_allclose(low, 7 - whole.factor)
    np.testing.assert_allclose(high, 7 + whole.factor)


def test_by_hand() -> None:
    """Scores of three samples at two points, level ½: the second smallest at each point; for fields, of the maximum."""
    lower, upper, scale = np.zeros((3, 2)), np.ones((3, 2)), np.full((3, 2), 2.0)
    u = np.array([[3.0, 0.5], [-1.0, 1.0], [0.5, 5.0]])  # scores [1, −¼], [½, 0], [−¼, 2]
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5).factor, [0.5, 0])
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5, share=1).factor, 1)  # of ½, 1, 2
    np.testing.assert_allclose(Conformal.of(lower, upper, scale, u, 0.5, share=0.5).factor, -0.25)  # of −¼, −¼, 0


@pytest.mark.parametrize(("level", "n"), [(0.9, 9), (0.95, 19), (0.99, 99), (0.5, 1), (0.07, 1), (2 / 3, 2)])
def test_fewest_samples(level, n) -> None:
    """⌈(n + 1)·level⌉ ≤ n, also if the product is a whole number that floating point exceeds slightly."""
    x = np.arange(n, dtype=float)[:, None]
    assert Conformal.of(x * 0, x * 0, x * 0, x, level).factor == n - 1
    with pytest.raises(UserError, match=f"{n - 1} calibration pairs.* at least {n} are needed"):
        Conformal.of(x[1:], x[1:], x[1:], x[1:], level)


def test_rank_of_a_whole_product() -> None:
    """0.07·100 is 7.000000000000001 in floating point; the rank is 7."""
    u = np.arange(1.0, 100.0)[:, None]
    assert Conformal.of(u * 0, u * 0, u * 0, u, 0.07).factor == 7
    one = np.arange(1.0, 101.0)[None]  # one sample of 100 points
    assert Conformal.of(one * 0, one * 0, one * 0, one, 0.5, share=0.07).factor == 7


def test_intervals_never_cross() -> None:
    """Calibrated on wide intervals, applied to one that is narrower than the reduction: width 0."""
    wide, u = np.full((9, 1), 10.0), np.zeros((9, 1))
    conformal = Conformal.of(-wide, wide, np.ones((9, 1)), u, LEVEL)
    assert conformal.factor == -10
    low, high = conformal.apply([[1.0], [-12.0]], [[2.0], [12.0]], np.ones((2, 1)))
    np.testing.assert_array_equal(low, [[1.5], [-2]])
    np.testing.assert_array_equal(high, [[1.5], [2]])


class TestMasks:
    def test_numbers_of_samples_differ_between_points(self) -> None:
        lower, upper, std, u = prediction(5, 40, 1, 4)
        mask = rng(6).random(u.shape) > 0.3
        mask[:, 0, 3] = False
        bad = np.where(mask, u, 1e9)
        given = Conformal.of(lower, upper, std, bad, LEVEL, mask=mask)
        missing = Conformal.of(lower, np.where(mask, upper, np.nan), std, np.where(mask, u, np.nan), LEVEL)
        np.testing.assert_array_equal(given.factor, missing.factor)
        for x in range(3):
            rows = mask[:, 0, x]
            alone = Conformal.of(*(v[rows, :, x : x + 1] for v in (lower, upper, std, u)), LEVEL)
            assert given.factor[0, x] == alone.factor[0, 0]
        assert given.factor[0, 3] == 0  # never observed: the interval is unchanged
        low, high = given.apply(lower, upper, std)
        np.testing.assert_array_equal(low[..., 3], lower[..., 3])
        np.testing.assert_array_equal(high[..., 3], upper[..., 3])

    @pytest.mark.parametrize("share", [1.0, 0.9, 0.25])
    def test_whole_fields(self, share) -> None:
        """One mask for all samples is equivalent to removing the points; samples without points have no effect."""
        lower, upper, std, u = prediction(7, 25, 1, 10)
        mask = np.arange(10) % 2 == 0
        part = Conformal.of(*(v[..., mask] for v in (lower, upper, std, u)), LEVEL, share=share)
        assert Conformal.of(lower, upper, std, u, LEVEL, share=share, mask=mask).factor == part.factor
        more = [np.concatenate([v, v]) for v in (lower, upper, std, u)]
        more[3][25:] = np.nan
        assert Conformal.of(*more, LEVEL, share=share, mask=mask).factor == part.factor

    def test_too_few_at_a_point(self) -> None:
        lower, upper, std, u = prediction(8, 20, 1, 3)
        u[5:, 0, 1] = np.nan
        with pytest.raises(
            UserError, match=r"5 calibration pairs at the point with the fewest observations .* at least 9 are needed"
        ):
            Conformal.of(lower, upper, std, u, LEVEL)
        Conformal.of(lower, upper, std, u, LEVEL, share=1.0)
        for share in (None, 1.0):
            with pytest.raises(UserError, match="0 calibration pairs"):
                Conformal.of(lower, upper, std, u * np.nan, LEVEL, share=share)


@pytest.mark.parametrize("share", [None, 0.9])
def test_saving(share) -> None:
    conformal = Conformal.of(*prediction(9, 20, 2, 3), LEVEL, share=share)
    arrays, metadata = flatten(conformal.state())
    again = Conformal.from_state(unflatten(arrays, json.loads(json.dumps(metadata))))
    assert (again.level, again.samples, again.share) == (LEVEL, 20, share)
    np.testing.assert_array_equal(again.factor, conformal.factor)


def test_invalid_arguments() -> None:
    good = prediction(10, 20, 1, 3)
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
    with pytest.raises(UserError, match="NaN or infinite where u is observed"):
        Conformal.of(lower, upper * np.nan, std, u, LEVEL)
    with pytest.raises(UserError, match=r"a mask of shape \(4,\) does not broadcast"):
        Conformal.of(*good, LEVEL, mask=[True] * 4)
    conformal = Conformal.of(*good, LEVEL)
    with pytest.raises(UserError, match=r"have the shape \(1, 2\), factors \(1, 3\); calibrate on the same grid"):
        conformal.apply(lower[..., :2], upper[..., :2], std[..., :2])


def test_a_band_of_masked_fields_covers_observed_points() -> None:
    """A tenth of the 40 points of each field is observed, at random: fields are covered there, and elsewhere hardly ever."""
    rng = np.random.default_rng(0)
    u, new = np.abs(rng.normal(size=(400, 40))), np.abs(rng.normal(size=(2000, 40)))
    seen, others = (rng.random(x.shape) < 0.1 for x in (u, new))
    one = np.ones_like(u)
    band = Conformal.of(-one, 0 * one, one, u, 0.9, share=1.0, mask=seen)
    inside = new <= band.apply(-one[:1], 0 * one[:1], one[:1])[1]
    seen_fields = others.any(axis=1)
    assert (inside | ~others).all(axis=1)[seen_fields].mean() == pytest.approx(0.9, abs=0.04)
    assert inside.all(axis=1).mean() < 0.5


def test_a_field_with_one_observed_point_counts() -> None:
    """Scores 1 … 20: the factor is the 19th smallest, ⌈21 · 0.9⌉ = 19."""
    u = np.arange(1.0, 21.0)[:, None] * np.ones(3)
    zero, mask = np.zeros_like(u), np.zeros(u.shape, dtype=bool)
    mask[:, 1] = True
    assert Conformal.of(zero, zero, zero + 1, u, 0.9, share=1.0, mask=mask).factor == 19
