"""Diagnostics judge: the honest forecaster passes, each kind of dishonest one is called by its name.

Seeds are fixed. With another one, each check of a rate or of z standard errors would fail by chance with the probability that
stands beside it.
"""

import numpy as np
import pytest
from scipy import stats

from pdno import UserError
from pdno.evaluation.calibration import (
    Diagnosis,
    Ranks,
    coverage,
    diagnose,
    functionals,
    pit,
    rank_histogram,
    sharpness,
    spread_skill,
)

SETS = 500  # data sets of which alarms are counted
BOUND = int(stats.binom.ppf(1 - 1e-4, SETS, 0.01))  # alarms; more come by chance in one of 10⁴ runs, at a rate of 0.01


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


class TestPIT:
    @pytest.mark.parametrize("M", [1, 2, 10])
    @pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "with ties"])
    def test_is_uniform_for_any_number_of_members(self, M, discrete) -> None:
        """Ranks 0 … M are equally likely, ties or not: chi-square over 4 bins a rank. Chance: 10⁻³."""
        draws = rng(M).integers(0, 3, size=(M + 1, 20_000)) if discrete else rng(M).normal(size=(M + 1, 20_000))
        values = pit(draws[1:, None], draws[0, None], seed=4)
        counts, _ = np.histogram(values, bins=4 * (M + 1), range=(0, 1))
        assert stats.chisquare(counts).pvalue > 1e-3

    def test_by_hand(self) -> None:
        """Of five members two lie below and two tie: PIT lies in [2/6, 5/6], at the place of v."""
        ranks = Ranks([1.0], seed=3, index=8)
        ranks.add([[0.0], [1.0], [0.5]])
        ranks.add([[1.0], [9.0]])
        v = Ranks([-1.0], seed=3, index=8)
        v.add([[0.0]])  # (0 + v·1) / 2
        np.testing.assert_allclose(ranks.pit, (2 + 3 * 2 * v.pit) / 6)

    def test_streaming_equals_arrays(self) -> None:
        members, u = rng().normal(size=(7, 3, 2, 5)), rng(1).normal(size=(3, 2, 5))
        u[1, 0, 2] = np.nan
        whole = pit(members, u, seed=5)
        for i in range(3):
            ranks = Ranks(u[i], seed=5, index=i)
            for cut in (slice(0, 1), slice(1, 1), slice(1, 6), slice(6, 7)):
                ranks.add(members[cut, i])
            np.testing.assert_array_equal(ranks.pit, whole[i])
            assert ranks.count == 7
        np.testing.assert_array_equal(np.isnan(whole), np.isnan(u))

    def test_without_members(self) -> None:
        assert np.isnan(Ranks(np.zeros((1, 4))).pit).all()

    def test_members_do_not_matter_where_u_is_unknown(self) -> None:
        ranks = Ranks([0.0, np.nan])
        ranks.add([[1.0, np.nan]])
        assert ranks.pit[0] < 0.5

    def test_refuses(self) -> None:
        with pytest.raises(UserError, match=r"shape \(4,\), expected \(k, 4\)"):
            Ranks(np.zeros(4)).add(np.zeros(4))
        with pytest.raises(UserError, match="NaN or infinite where u is known"):
            Ranks(np.zeros(1)).add([[np.nan]])
        with pytest.raises(UserError, match=r"expected \(member, sample, …\)"):
            pit(np.zeros((3, 2)), np.zeros(3))


class TestCurves:
    def test_coverage_of_half_the_spread(self) -> None:
        """A Gaussian forecast with std ½ for N(0, 1): 2Φ(½·Φ⁻¹(½ + ½·level)) − 1. Chance at 4 errors: 3·10⁻⁴."""
        levels = np.array([0.5, 0.8, 0.9, 0.95, 1.0])
        values = stats.norm.cdf(2 * rng().normal(size=(400, 1, 25)))
        curve = coverage(values, levels)
        expected = 2 * stats.norm.cdf(0.5 * stats.norm.ppf(0.5 + 0.5 * levels)) - 1
        assert (np.abs(curve.value - expected) <= 4 * curve.error).all()
        np.testing.assert_allclose(curve.error, np.sqrt(expected * (1 - expected) / 10_000), rtol=0.25)
        np.testing.assert_array_equal(curve.levels, levels)

    def test_error_is_that_of_samples(self) -> None:
        """Copies of a point add nothing: with 100 of them the error is that of one."""
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
        mask[3] = False  # a sample of which nothing is known
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

    def test_refuses(self) -> None:
        with pytest.raises(UserError, match="between 0 and 1; 90 % is"):
            coverage([[0.5]], [90])
        with pytest.raises(UserError, match="bins = 0"):
            rank_histogram([[0.5]], bins=0)
        with pytest.raises(UserError, match=r"PIT has values outside \[0, 1\]"):
            coverage([[1.5]], [0.9])
        with pytest.raises(UserError, match=r"mask of shape \(3,\) does not fit \(1, 2\)"):
            coverage([[0.5, 0.5]], [0.9], mask=[True] * 3)
        with pytest.raises(UserError, match="none of the points"):
            coverage([[np.nan, 0.5]], [0.9], mask=[True, False])
        with pytest.raises(UserError, match="a single number"):
            coverage(0.5, [0.9])
        with pytest.raises(UserError, match="lower is above upper"):
            sharpness([[1.0]], [[0.0]])
        with pytest.raises(UserError, match="expected the same shape"):
            sharpness([[1.0]], [0.0])


def alarms(values: np.ndarray) -> int:
    return sum(not diagnose(one).honest for one in values)


class TestFalseAlarms:
    @pytest.mark.parametrize("dependence", NULLS)
    def test_the_honest_pass(self, dependence) -> None:
        assert alarms(stats.norm.cdf(NULLS[dependence](SETS, 30))) <= BOUND

    def test_few_samples_that_move_as_one(self) -> None:
        """One uniform a sample, five samples: the t-test with n − 1 degrees of freedom would raise 22 alarms of 500."""
        assert alarms(rng(6).random((SETS, 5, 1))) <= BOUND

    def test_finite_ensembles(self) -> None:
        """The whole chain, with M = 3 members of the same smooth law as the truth, whose scale depends on the input."""
        draws = smooth(rng(7).normal(size=(4, SETS * 10, 16))) * np.exp(rng(8).normal(size=(SETS * 10, 1)))
        assert alarms(pit(draws[1:], draws[0]).reshape(SETS, 10, 16)) <= BOUND

    def test_p_is_uniform_or_larger(self) -> None:
        """Of 300 sets of 60 samples, the share with p ≤ x is at most x. Chance at 4 errors: 3·10⁻⁵ each."""
        p = np.array([diagnose(one).p for one in rng(9).random((300, 60, 4))])
        for x in (0.05, 0.2, 0.5):
            assert np.mean(p <= x) <= x + 4 * np.sqrt(x * (1 - x) / 300)
        assert np.mean(p <= 0.5) > 0.25  # and it is no empty promise


def bimodal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """± 0.9 with a deviation that makes the variance 1."""
    return 0.9 * generator.choice([-1, 1], size=shape) + np.sqrt(1 - 0.81) * generator.normal(size=shape)


TRUTHS = {  # of which the forecast is N(0, 1): draws of shape, and what is to be found
    "forecast ½ too high": (lambda g, shape: g.normal(size=shape) - 0.5, "biased high"),
    "forecast ½ too low": (lambda g, shape: g.normal(size=shape) + 0.5, "biased low"),
    "forecast 2 too high": (lambda g, shape: g.normal(size=shape) - 2, "biased high"),
    "half as wide": (lambda g, shape: 2 * g.normal(size=shape), "too narrow"),
    "twice as wide": (lambda g, shape: 0.5 * g.normal(size=shape), "too wide"),
    "exponential truth": (lambda g, shape: g.exponential(size=shape) - 1, "skewed"),
    "bimodal truth": (bimodal, "wrong shape"),
}


class TestPower:
    """Forecasts N(0, 1), of right mean and variance where the shape is wrong; 200 data sets each."""

    @pytest.mark.parametrize("kind", TRUTHS)
    def test_each_is_called_by_its_name(self, kind) -> None:
        """30 samples of 16 independent points: in at least 95 % the word is found, and comes first."""
        draw, word = TRUTHS[kind]
        found = [diagnose(one).findings[:1] == (word,) for one in stats.norm.cdf(draw(rng(10), (200, 30, 16)))]
        assert np.mean(found) >= 0.95

    @pytest.mark.parametrize("kind", TRUTHS)
    def test_also_if_points_move_as_one(self, kind) -> None:
        """One number a field, in 100 samples instead of 30: each is as good as any 100 independent numbers."""
        draw, word = TRUTHS[kind]
        values = np.repeat(stats.norm.cdf(draw(rng(11), (200, 100, 1))), 16, axis=2)
        assert np.mean([word in diagnose(one).findings for one in values]) >= 0.95

    def test_laplace_truth(self) -> None:
        """Heavy tails of the same variance: a small error (c_2 = −0.20, c_4 = 0.23), seen with 100 samples of 16 points."""
        values = stats.norm.cdf(rng(12).laplace(scale=np.sqrt(0.5), size=(200, 100, 16)))
        assert np.mean(["wrong shape" in diagnose(one).findings for one in values]) >= 0.95

    def test_from_members(self) -> None:
        """With 10 members of a forecast of half the spread."""
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
        assert not d.honest
        assert d.judged

    def test_alarm_decides(self) -> None:
        values = stats.norm.cdf(rng(1).normal(size=(20, 1)) - 0.8)
        p = diagnose(values).p
        assert diagnose(values, alarm=1.001 * p).findings == ("biased high",)
        assert diagnose(values, alarm=0.999 * p).honest
        with pytest.raises(UserError, match="alarm = 5"):
            diagnose(values, alarm=5)

    @pytest.mark.parametrize(
        ("value", "first"), [(0.5, "too wide"), (0.0, "biased high"), (1.0, "biased low"), (0.5 + 1e-13, "too wide")]
    )
    def test_no_variance(self, value, first) -> None:
        d = diagnose(np.full((6, 4), value))
        assert d.p == 0
        assert d.findings[0] == first
        assert all(0 <= one.p <= 1 for one in d.orders)

    def test_a_sure_and_wrong_forecast(self) -> None:
        """Members that are all the same: PIT ≤ 1/(M + 1) or ≥ M/(M + 1)."""
        u = rng().normal(size=(20, 1, 4))
        assert diagnose(pit(np.zeros((50, 20, 1, 4)), u)).findings[0] == "too narrow"

    @pytest.mark.parametrize("samples", [0, 1, 4])
    def test_too_few_samples(self, samples) -> None:
        values = np.full((6, 3), np.nan)
        values[:samples] = 0.01
        d = diagnose(values)
        assert isinstance(d, Diagnosis)
        assert np.isnan(d.p)
        assert (d.findings, d.judged, d.honest, d.samples, len(d.orders)) == ((), False, True, samples, 4)


def ranked(truth: np.ndarray, members: np.ndarray) -> np.ndarray:
    """PIT (sample, 2) of the functionals of fields (sample, channel, *grid) among members (member, sample, …)."""
    return pit(np.stack([functionals(one) for one in members]), functionals(truth))


class TestFunctionals:
    def test_by_hand(self) -> None:
        """On 2 × 3 points: neighbours differ by 1 along the second axis (4 pairs) and by 3 along the first (3 pairs)."""
        field = np.arange(6.0).reshape(1, 1, 2, 3)
        np.testing.assert_allclose(functionals(field), [[2.5, (4 * 1 + 3 * 9) / 7]])
        mask = np.array([[[True, True, False], [True, False, False]]])
        np.testing.assert_allclose(functionals(np.where(mask, field, np.nan), mask=mask), [[4 / 3, (1 + 9) / 2]])
        np.testing.assert_allclose(functionals(np.full((2, 1), 3.0)), [[3, 0], [3, 0]])  # no neighbours
        np.testing.assert_allclose(functionals(np.concatenate([field, field + 5], axis=1))[0, 0], 5)

    def test_a_lost_shared_mode(self) -> None:
        """Truth N(0, ½) + a shared shift N(0, ½), forecast N(0, 1) at independent points: ranks of points see nothing."""
        shift, white = rng(20).normal(size=(60, 1, 1, 1)), rng(21).normal(size=(60, 1, 8, 8))
        truth = np.sqrt(0.5) * (shift + white)
        members = rng(22).normal(size=(30, *truth.shape))
        assert diagnose(pit(members, truth)).honest
        values = ranked(truth, members)
        assert diagnose(values[:, :1]).findings[0] == "too narrow"
        assert diagnose(values[:, 1:]).findings[0] == "biased high"  # the forecast is too rough

    def test_too_smooth_a_forecast(self) -> None:
        """Chance, here and above: the alarm's, 0.01, that ranks of points see what is not there."""
        truth = rng(26).normal(size=(60, 1, 16))
        members = smooth(rng(27).normal(size=(30, 60, 1, 16)))
        assert diagnose(pit(members, truth)).honest
        values = ranked(truth, members)
        assert diagnose(values[:, :1]).findings[0] == "too wide"
        assert diagnose(values[:, 1:]).findings[0] == "biased low"

    def test_the_honest_pass(self) -> None:
        draws = smooth(rng(25).normal(size=(10, 100 * 20, 1, 16)))
        values = ranked(draws[0], draws[1:]).reshape(100, 20, 2)
        assert alarms(values[:, :, :1]) + alarms(values[:, :, 1:]) <= stats.binom.ppf(1 - 1e-4, 200, 0.01)

    def test_refuses(self) -> None:
        with pytest.raises(UserError, match=r"expected \(k, channel"):
            functionals(np.zeros(3))
        with pytest.raises(UserError, match="0 known points"):
            functionals(np.zeros((1, 1, 3)), mask=np.zeros((1, 3), dtype=bool))


class TestSpreadSkill:
    @pytest.mark.parametrize("M", [2, 5])
    def test_is_one_for_the_honest(self, M) -> None:
        """With √(1 + 1/M), which matters: without it the ratio is 0.82 or 0.91. Chance at 4 errors: 6·10⁻⁵."""
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
        """Against the spread of the ratio over 300 repetitions."""
        std = np.exp(0.3 * rng(35).normal(size=(300, 40, 1, 1))) * np.ones(5)
        shared = rng(36).normal(size=(300, 40, 1, 1))
        results = [
            spread_skill(s, s * (shift + w), 8) for s, shift, w in zip(std, shared, rng(37).normal(size=std.shape), strict=True)
        ]
        assert np.mean([r.ratio_error for r in results]) == pytest.approx(np.std([r.ratio for r in results]), rel=0.15)

    def test_by_hand(self) -> None:
        result = spread_skill([[1.0, 2.0], [2.0, 3.0]], [[1.0, -1.0], [7.0, 2.0]], members=1, bins=4)
        np.testing.assert_array_equal(result.count, [1, 2, 1])  # equal std stay together
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

    def test_refuses(self) -> None:
        with pytest.raises(UserError, match="give 0 for a forecast without spread"):
            spread_skill([[np.nan]], [[1.0]], 1)
        with pytest.raises(UserError, match="members = 0"):
            spread_skill([[1.0]], [[1.0]], 0)
        with pytest.raises(UserError, match="bins = -1"):
            spread_skill([[1.0]], [[1.0]], 2, bins=-1)
        with pytest.raises(UserError, match="expected the same shape"):
            spread_skill([[1.0]], [1.0], 2)
        with pytest.raises(UserError, match="none of the points"):
            spread_skill([[1.0]], [[np.nan]], 2)
