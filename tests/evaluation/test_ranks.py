"""Ranks of observations among members: uniform for draws of one distribution, at points and for functionals of fields.

Seeds are fixed. With another seed, a statistical check would fail with the probability stated beside it.
"""

import numpy as np
import pytest
from scipy import stats

from pdno import UserError
from pdno.evaluation.calibration import diagnose
from pdno.evaluation.ranks import Ranks, functionals, pit


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def smooth(normals: np.ndarray) -> np.ndarray:
    """Standard normals on 16 points with correlation exp(−½(distance/4)²)."""
    x = np.arange(16)
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 4) ** 2) + 1e-9 * np.eye(16)
    return normals @ np.linalg.cholesky(covariance / covariance[0, 0]).T


def rejections(values: np.ndarray) -> int:
    return sum(not diagnose(one).passed for one in values)


class TestPIT:
    @pytest.mark.parametrize("M", [1, 2, 10])
    @pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "with ties"])
    def test_is_uniform_for_any_number_of_members(self, M, discrete) -> None:
        """Ranks 0 … M are equally likely, with and without ties: chi-square over 4 bins per rank. Probability: 10⁻³."""
        draws = rng(M).integers(0, 3, size=(M + 1, 20_000)) if discrete else rng(M).normal(size=(M + 1, 20_000))
        values = pit(draws[1:, None], draws[0, None], seed=4)
        counts, _ = np.histogram(values, bins=4 * (M + 1), range=(0, 1))
        assert stats.chisquare(counts).pvalue > 1e-3

    def test_by_hand(self) -> None:
        """Of five members two are below and two tie: PIT = (2 + 3v)/6."""
        ranks = Ranks([1.0], seed=3, index=8)
        ranks.add([[0.0], [1.0], [0.5]])
        ranks.add([[1.0], [9.0]])
        v = Ranks([-1.0], seed=3, index=8)
        v.add([[0.0]])  # (0 + v·1) / 2
        np.testing.assert_allclose(ranks.pit, (2 + 3 * 2 * v.pit) / 6)

    def test_batches_equal_arrays(self) -> None:
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

    def test_members_have_no_effect_where_u_is_missing(self) -> None:
        ranks = Ranks([0.0, np.nan])
        ranks.add([[1.0, np.nan]])
        assert ranks.pit[0] < 0.5

    def test_invalid_arguments(self) -> None:
        with pytest.raises(UserError, match=r"shape \(4,\), expected \(k, 4\)"):
            Ranks(np.zeros(4)).add(np.zeros(4))
        with pytest.raises(UserError, match="NaN or infinite where u is observed"):
            Ranks(np.zeros(1)).add([[np.nan]])
        with pytest.raises(UserError, match=r"expected \(member, sample, …\)"):
            pit(np.zeros((3, 2)), np.zeros(3))


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
        """Truth N(0, ½) + a shared shift N(0, ½), prediction N(0, 1) at independent points: ranks at points are uniform."""
        shift, white = rng(20).normal(size=(60, 1, 1, 1)), rng(21).normal(size=(60, 1, 8, 8))
        truth = np.sqrt(0.5) * (shift + white)
        members = rng(22).normal(size=(30, *truth.shape))
        assert diagnose(pit(members, truth)).passed
        values = ranked(truth, members)
        assert diagnose(values[:, :1]).findings[0] == "too narrow"
        assert diagnose(values[:, 1:]).findings[0] == "biased high"  # the prediction is too rough

    def test_a_prediction_that_is_too_smooth(self) -> None:
        """Probability of failure, here and above: alpha = 0.01, a false positive of the ranks at points."""
        truth = rng(26).normal(size=(60, 1, 16))
        members = smooth(rng(27).normal(size=(30, 60, 1, 16)))
        assert diagnose(pit(members, truth)).passed
        values = ranked(truth, members)
        assert diagnose(values[:, :1]).findings[0] == "too wide"
        assert diagnose(values[:, 1:]).findings[0] == "biased low"

    def test_calibrated_predictions_pass(self) -> None:
        draws = smooth(rng(25).normal(size=(10, 100 * 20, 1, 16)))
        values = ranked(draws[0], draws[1:]).reshape(100, 20, 2)
        assert rejections(values[:, :, :1]) + rejections(values[:, :, 1:]) <= stats.binom.ppf(1 - 1e-4, 200, 0.01)

    def test_invalid_arguments(self) -> None:
        with pytest.raises(UserError, match=r"expected \(k, channel"):
            functionals(np.zeros(3))
        with pytest.raises(UserError, match="0 observed points"):
            functionals(np.zeros((1, 1, 3)), mask=np.zeros((1, 3), dtype=bool))
