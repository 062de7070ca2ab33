"""Calibration diagnostics: calibrated predictions pass, and each kind of defect is named.

Seeds are fixed. With another seed, a check of a rate or of z standard errors would fail with the probability stated beside it.
"""

import numpy as np
import pytest
from scipy import stats

from pdno import UserError
from pdno.evaluation.calibration import (
    Diagnosis,
    coverage,
    diagnose,
    pit,
    rank_histogram,
    sharpness,
    spread_skill,
)

SETS = 500  # data sets that are tested
BOUND = int(stats.binom.ppf(1 - 1e-4, SETS, 0.01))  # rejections; exceeded with probability 10⁻⁴ at a rate of 0.01


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def smooth(normals: np.ndarray) -> np.ndarray:
    """Standard normals on 16 points with correlation exp(−½(distance/4)²)."""
    x = np.arange(16)
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 4) ** 2) + 1e-9 * np.eye(16)
    return normals @ np.linalg.cholesky(covariance / covariance[0, 0]).T


NULLS = {  # standard normals of shape (set, sample, point), by dependence within fields
    "independent": lambda sets, n: rng(1).normal(size=(sets, n, 16)),
    "shared shift": lambda sets, n: np.repeat(rng(2).normal(size=(sets, n, 1)), 16, axis=2),
    "smooth": lambda sets, n: smooth(rng(3).normal(size=(sets, n, 16))),
}


class TestCurves:
    def test_coverage_of_half_the_spread(self) -> None:
        """A Gaussian prediction with std ½ for N(0, 1): 2Φ(½·Φ⁻¹(½ + ½·level)) − 1. Probability at 4 errors: 3·10⁻⁴."""
        levels = np.array([0.5, 0.8, 0.9, 0.95, 1.0])
        values = stats.norm.cdf(2 * rng().normal(size=(400, 1, 25)))
        curve = coverage(values, levels)
        expected = 2 * stats.norm.cdf(0.5 * stats.norm.ppf(0.5 + 0.5 * levels)) - 1
        assert (np.abs(curve.value - expected) <= 4 * curve.error).all()
        np.testing.assert_allclose(curve.error, np.sqrt(expected * (1 - expected) / 10_000), rtol=0.25)
        np.testing.assert_array_equal(curve.levels, levels)

    def test_error_is_over_samples(self) -> None:
        """Copies of a point add no information: the error of 100 copies is that of one."""
        one = rng().random((50, 1))
        single, many = (coverage(np.repeat(one, k, axis=1), [0.5]) for k in (1, 100))
        np.testing.assert_allclose(many.error, single.error)
        assert np.isnan(coverage(one[:1], [0.5]).error).all()

    def test_histogram(self) -> None:
        flat = rank_histogram((np.arange(40) + 0.5).reshape(2, 20) / 40, bins=4)
        np.testing.assert_allclose(flat.density, 1)
        np.testing.assert_allclose(flat.edges, [0, 0.25, 0.5, 0.75, 1])
        ends = rank_histogram([[0.0, 1.0], [1.0, 1.0]], bins=2)
        np.testing.assert_allclose(ends.density, [0.5, 1.5])
        np.testing.assert_allclose(ends.error, 0.5)
        u_shape = rank_histogram(stats.norm.cdf(2 * rng().normal(size=(200, 9)))).density
        assert min(u_shape[0], u_shape[-1]) > 2 > 0.7 > u_shape[10]
        assert u_shape.mean() == pytest.approx(1)

    def test_masks_and_weights(self) -> None:
        values = rng().random((6, 1, 8))
        mask = rng(1).random((6, 1, 8)) > 0.4
        mask[3] = False  # a sample without observed points
        weights = np.arange(1.0, 9.0)
        expected = [
            np.average(np.abs(p[m] - 0.5) <= 0.3, weights=weights[m[0]]) for p, m in zip(values, mask, strict=True) if m.any()
        ]
        assert len(expected) == 5
        for given in (
            coverage(values, [0.6], mask=mask, weights=weights),
            coverage(np.where(mask, values, np.nan), [0.6], weights=weights),
        ):
            np.testing.assert_allclose(given.value, np.mean(expected))
            np.testing.assert_allclose(given.error, stats.sem(expected))
        assert diagnose(values, mask=mask).samples == 5
        assert rank_histogram(values, mask=mask[0]).density.mean() == pytest.approx(1)  # one mask for all

    def test_sharpness(self) -> None:
        score = sharpness([[0.0, 1.0], [0.0, np.nan]], [[1.0, 2.0], [3.0, 9.0]])
        assert score.value == 2
        assert score.error == pytest.approx(1)
        assert sharpness([[0.0, 0.0]], [[1.0, 5.0]], mask=[[True, False]]).value == 1
        assert sharpness([[0.0, 0.0]], [[1.0, 5.0]], weights=[3.0, 1.0]).value == 2

    def test_invalid_arguments(self) -> None:
        with pytest.raises(UserError, match="between 0 and 1; 90 % is"):
            coverage([[0.5]], [90])
        with pytest.raises(UserError, match="bins = 0"):
            rank_histogram([[0.5]], bins=0)
        with pytest.raises(UserError, match=r"PIT has values outside \[0, 1\]"):
            coverage([[1.5]], [0.9])
        with pytest.raises(UserError, match=r"mask of shape \(3,\) does not broadcast to \(1, 2\)"):
            coverage([[0.5, 0.5]], [0.9], mask=[True] * 3)
        with pytest.raises(UserError, match="none of the points"):
            coverage([[np.nan, 0.5]], [0.9], mask=[True, False])
        with pytest.raises(UserError, match="a single number"):
            coverage(0.5, [0.9])
        with pytest.raises(UserError, match="lower is above upper"):
            sharpness([[1.0]], [[0.0]])
        with pytest.raises(UserError, match="expected the same shape"):
            sharpness([[1.0]], [0.0])


def rejections(values: np.ndarray) -> int:
    return sum(not diagnose(one).passed for one in values)


class TestFalsePositives:
    @pytest.mark.parametrize("dependence", NULLS)
    def test_calibrated_predictions_pass(self, dependence) -> None:
        assert rejections(stats.norm.cdf(NULLS[dependence](SETS, 30))) <= BOUND

    def test_few_samples_of_fully_dependent_points(self) -> None:
        """One uniform per sample, five samples: the t-test with n − 1 degrees of freedom would reject 22 of 500."""
        assert rejections(rng(6).random((SETS, 5, 1))) <= BOUND

    def test_finite_ensembles(self) -> None:
        """M = 3 members from the distribution of the truth, smooth fields whose scale depends on the input."""
        draws = smooth(rng(7).normal(size=(4, SETS * 10, 16))) * np.exp(rng(8).normal(size=(SETS * 10, 1)))
        assert rejections(pit(draws[1:], draws[0]).reshape(SETS, 10, 16)) <= BOUND

    def test_p_is_uniform_or_larger(self) -> None:
        """Of 300 sets of 60 samples, a fraction ≤ x has p ≤ x. Probability at 4 standard errors: 3·10⁻⁵ each."""
        p = np.array([diagnose(one).p for one in rng(9).random((300, 60, 4))])
        for x in (0.05, 0.2, 0.5):
            assert np.mean(p <= x) <= x + 4 * np.sqrt(x * (1 - x) / 300)
        assert np.mean(p <= 0.5) > 0.25  # the test is not overly conservative


def bimodal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """± 0.9 with a deviation that makes the variance 1."""
    return 0.9 * generator.choice([-1, 1], size=shape) + np.sqrt(1 - 0.81) * generator.normal(size=shape)


TRUTHS = {  # the prediction is N(0, 1): draws of the truth, and the expected finding
    "prediction ½ too high": (lambda g, shape: g.normal(size=shape) - 0.5, "biased high"),
    "prediction ½ too low": (lambda g, shape: g.normal(size=shape) + 0.5, "biased low"),
    "prediction 2 too high": (lambda g, shape: g.normal(size=shape) - 2, "biased high"),
    "half as wide": (lambda g, shape: 2 * g.normal(size=shape), "too narrow"),
    "twice as wide": (lambda g, shape: 0.5 * g.normal(size=shape), "too wide"),
    "exponential truth": (lambda g, shape: g.exponential(size=shape) - 1, "skewed"),
    "bimodal truth": (bimodal, "wrong shape"),
}


class TestPower:
    """Predictions N(0, 1), with correct mean and variance where the shape is wrong; 200 data sets each."""

    @pytest.mark.parametrize("kind", TRUTHS)
    def test_each_defect_is_named(self, kind) -> None:
        """30 samples of 16 independent points: in at least 95 % the expected finding is the first."""
        draw, word = TRUTHS[kind]
        found = [diagnose(one).findings[:1] == (word,) for one in stats.norm.cdf(draw(rng(10), (200, 30, 16)))]
        assert np.mean(found) >= 0.95

    @pytest.mark.parametrize("kind", TRUTHS)
    def test_fully_dependent_points(self, kind) -> None:
        """One number per field, in 100 samples instead of 30."""
        draw, word = TRUTHS[kind]
        values = np.repeat(stats.norm.cdf(draw(rng(11), (200, 100, 1))), 16, axis=2)
        assert np.mean([word in diagnose(one).findings for one in values]) >= 0.95

    def test_laplace_truth(self) -> None:
        """Heavy tails of the same variance: a small defect (c_2 = −0.20, c_4 = 0.23), detected in 100 samples of 16 points."""
        values = stats.norm.cdf(rng(12).laplace(scale=np.sqrt(0.5), size=(200, 100, 16)))
        assert np.mean(["wrong shape" in diagnose(one).findings for one in values]) >= 0.95

    def test_from_members(self) -> None:
        """10 members with half the spread of the truth."""
        u, members = rng(13).normal(size=(40, 1, 16)), 0.5 * rng(14).normal(size=(10, 40, 1, 16))
        assert diagnose(pit(members, u)).findings[0] == "too narrow"


class TestDiagnosis:
    def test_components_are_legendre_averages(self) -> None:
        """π_1 … π_4 by hand."""
        x = rng().random((7, 3))
        by_hand = [
            np.sqrt(3) * (2 * x - 1),
            np.sqrt(5) * (6 * x**2 - 6 * x + 1),
            np.sqrt(7) * (20 * x**3 - 30 * x**2 + 12 * x - 1),
            3 * (70 * x**4 - 140 * x**3 + 90 * x**2 - 20 * x + 1),
        ]
        d = diagnose(x)
        for component, values, order in zip(d.orders, by_hand, (1, 2, 3, 4), strict=True):
            assert component.order == order
            assert component.mean == pytest.approx(values.mean())
            assert component.error == pytest.approx(stats.sem(values.mean(axis=1)))

    def test_p_by_hand(self) -> None:
        """Student's t with (n − 1)/2 degrees of freedom, and Holm's rule."""
        d = diagnose(stats.norm.cdf(rng().normal(size=(20, 3)) - 1))
        raw = [2 * stats.t.sf(abs(one.mean / one.error), 9.5) for one in d.orders]
        order = np.argsort(raw)
        adjusted = np.minimum(1, np.maximum.accumulate(np.sort(raw) * [4, 3, 2, 1]))
        np.testing.assert_allclose([d.orders[i].p for i in order], adjusted)
        assert d.p == pytest.approx(adjusted[0])
        assert order[0] == 0
        assert not d.passed
        assert d.enough_samples

    def test_alpha_is_the_threshold_of_p(self) -> None:
        values = stats.norm.cdf(rng(1).normal(size=(20, 1)) - 0.8)
        p = diagnose(values).p
        assert diagnose(values, alpha=1.001 * p).findings == ("biased high",)
        assert diagnose(values, alpha=0.999 * p).passed
        with pytest.raises(UserError, match="alpha = 5"):
            diagnose(values, alpha=5)

    @pytest.mark.parametrize(
        ("value", "first"), [(0.5, "too wide"), (0.0, "biased high"), (1.0, "biased low"), (0.5 + 1e-13, "too wide")]
    )
    def test_no_variance(self, value, first) -> None:
        d = diagnose(np.full((6, 4), value))
        assert d.p == 0
        assert d.findings[0] == first
        assert all(0 <= one.p <= 1 for one in d.orders)

    def test_a_prediction_without_spread(self) -> None:
        """Equal members: PIT ≤ 1/(M + 1) or ≥ M/(M + 1)."""
        u = rng().normal(size=(20, 1, 4))
        assert diagnose(pit(np.zeros((50, 20, 1, 4)), u)).findings[0] == "too narrow"

    @pytest.mark.parametrize("samples", [0, 1, 4])
    def test_too_few_samples(self, samples) -> None:
        values = np.full((6, 3), np.nan)
        values[:samples] = 0.01
        d = diagnose(values)
        assert isinstance(d, Diagnosis)
        assert np.isnan(d.p)
        assert (d.findings, d.enough_samples, d.passed, d.samples, len(d.orders)) == ((), False, True, samples, 4)


class TestSpreadSkill:
    @pytest.mark.parametrize("M", [2, 5])
    def test_is_one_for_calibrated_predictions(self, M) -> None:
        """Without the factor √(1 + 1/M) the ratio would be 0.82 or 0.91. Probability at 4 errors: 6·10⁻⁵."""
        scale = np.exp(0.5 * rng(30).normal(size=(1000, 1, 1)))
        draws = scale * rng(31 + M).normal(size=(M + 1, 1000, 1, 20))
        std, error = draws[1:].std(axis=0, ddof=1), draws[0] - draws[1:].mean(axis=0)
        result = spread_skill(std, error, M)
        assert abs(result.ratio - 1) <= 4 * result.ratio_error < 0.08
        np.testing.assert_array_equal(result.count, 2000)
        assert (np.diff(result.spread) > 0).all()

    def test_bins_follow_a_known_std(self) -> None:
        """An exact std (M → ∞): spread equals skill in every bin, to 4·(2·count)^−½."""
        std = rng(33).uniform(0.5, 3, size=(500, 1, 20))
        result = spread_skill(std, std * rng(34).normal(size=std.shape), 10**9, bins=5)
        np.testing.assert_allclose(result.skill / result.spread, 1, atol=4 / np.sqrt(2 * 2000))

    def test_error_of_the_ratio(self) -> None:
        """Compared with the spread of the ratio over 300 repetitions."""
        std = np.exp(0.3 * rng(35).normal(size=(300, 40, 1, 1))) * np.ones(5)
        shared = rng(36).normal(size=(300, 40, 1, 1))
        results = [
            spread_skill(s, s * (shift + w), 8) for s, shift, w in zip(std, shared, rng(37).normal(size=std.shape), strict=True)
        ]
        assert np.mean([r.ratio_error for r in results]) == pytest.approx(np.std([r.ratio for r in results]), rel=0.15)

    def test_by_hand(self) -> None:
        result = spread_skill([[1.0, 2.0], [2.0, 3.0]], [[1.0, -1.0], [7.0, 2.0]], members=1, bins=4)
        np.testing.assert_array_equal(result.count, [1, 2, 1])  # equal std stay in one bin
        np.testing.assert_allclose(result.spread, np.sqrt(2) * np.array([1, 2, 3]))
        np.testing.assert_allclose(result.skill, [1, 5, 2])
        assert result.ratio == pytest.approx(np.sqrt(2 * 18 / 55))

    def test_without_spread(self) -> None:
        result = spread_skill(np.zeros((4, 3)), rng().normal(size=(4, 3)), 1)
        assert (len(result.count), result.spread[0], result.ratio, result.ratio_error) == (1, 0, 0, 0)
        assert spread_skill(np.ones((4, 3)), np.zeros((4, 3)), 2).ratio == np.inf
        assert np.isnan(spread_skill(np.ones((1, 3)), np.ones((1, 3)), 2).ratio_error)

    def test_masks(self) -> None:
        std, error = rng().random((5, 1, 6)), rng(1).normal(size=(5, 1, 6))
        mask = np.arange(6) < 4
        expected = spread_skill(std[..., :4], error[..., :4], 3)
        for given in (
            spread_skill(std, error, 3, mask=mask),
            spread_skill(np.where(mask, std, np.nan), np.where(mask, error, np.nan), 3),
        ):
            assert (given.ratio, given.ratio_error) == pytest.approx((expected.ratio, expected.ratio_error))
            np.testing.assert_allclose(given.skill, expected.skill)

    def test_invalid_arguments(self) -> None:
        with pytest.raises(UserError, match="pass 0 for a deterministic prediction"):
            spread_skill([[np.nan]], [[1.0]], 1)
        with pytest.raises(UserError, match="members = 0"):
            spread_skill([[1.0]], [[1.0]], 0)
        with pytest.raises(UserError, match="bins = -1"):
            spread_skill([[1.0]], [[1.0]], 2, bins=-1)
        with pytest.raises(UserError, match="expected the same shape"):
            spread_skill([[1.0]], [1.0], 2)
        with pytest.raises(UserError, match="none of the points"):
            spread_skill([[1.0]], [[np.nan]], 2)
