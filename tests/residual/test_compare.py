"""Comparison of scores: what chance allows."""

import numpy as np

from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Gaussian, Residuals
from pdno.residual.compare import Difference, held_out_scores, is_evident
from pdno.residual.score import Units


def test_a_difference_by_chance_is_decisive_in_one_case_of_forty() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(12)
    found = [Difference.of(5 + rng.standard_normal(12), 5 + rng.standard_normal(12), labels).is_decisive for _ in range(4000)]
    assert 0.01 < np.mean(found) < 0.035  # 2.5 %, less those below 0.3 % and those with correlated neighbours


def test_a_small_gain_is_never_decisive() -> None:
    old = np.ones(1000)
    assert not Difference.of(old, 0.9995 * old, np.arange(1000)).is_decisive
    assert Difference.of(old, 0.995 * old, np.arange(1000)).is_decisive


def test_scores_do_not_depend_on_how_many_pairs_are_scored() -> None:
    """Units of values and increments are those of all held-out pairs."""
    rng = np.random.default_rng(0)
    values = np.exp(rng.standard_normal((200, 1, 1))) * rng.standard_normal((200, 1, 16))
    residuals = Residuals(pairs_of(rng.standard_normal(values.shape), values), values)
    law, units = Gaussian("scalar").learn(residuals, None, Terms()), Units.of(values)
    whole = law.score(residuals, 8, units=units)
    parts = [law.score(residuals[:60], 8, units=units), law.score(residuals[60:], 8, first=60, units=units)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_fields_that_are_constant_in_space_have_a_score() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((100, 1, 1)) * np.ones(32)
    residuals = Residuals(pairs_of(rng.standard_normal(values.shape), values), values)
    assert np.isfinite(held_out_scores(Gaussian().learn(residuals, None, Terms()), residuals, None)).all()


def test_dependent_pairs_count_once() -> None:
    """The same gains of five groups, 60 pairs each: as 300 pairs in random order they are decisive, as five groups not."""
    rng = np.random.default_rng(1)
    gain, labels = np.array([0.3, -0.1, 0.2, -0.15, 0.1]).repeat(60), np.arange(5).repeat(60)
    old, order = np.ones(300), rng.permutation(300)
    assert Difference.of(old, old - gain[order], np.arange(300)).is_decisive
    assert not Difference.of(old, old - gain[order], labels[order]).is_decisive
    assert not Difference.of(old, old - gain, np.zeros(300, int)).is_decisive  # one group


def test_likelihoods_are_evident_beyond_three_standard_errors() -> None:
    rng, labels = np.random.default_rng(0), np.arange(50)
    by_chance = [is_evident(rng.standard_normal(50), labels) for _ in range(2000)]
    assert np.mean(by_chance) < 0.01
    assert is_evident(1 + rng.standard_normal(50), labels)
    assert not is_evident(1 + rng.standard_normal(50), np.zeros(50, int))  # one group
