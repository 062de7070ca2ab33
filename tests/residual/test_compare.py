"""Comparison of scores: what chance allows."""

import numpy as np

from pdno.residual.compare import Difference


def test_a_difference_by_chance_is_decisive_in_one_case_of_forty() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(12)
    found = [Difference.of(5 + rng.standard_normal(12), 5 + rng.standard_normal(12), labels).is_decisive for _ in range(4000)]
    assert 0.01 < np.mean(found) < 0.035  # 2.5 %, less those below 1 % and those with correlated neighbours


def test_a_small_gain_is_never_decisive() -> None:
    old = np.ones(1000)
    assert not Difference.of(old, 0.998 * old, np.arange(1000)).is_decisive
    assert Difference.of(old, 0.995 * old, np.arange(1000)).is_decisive


def test_dependent_pairs_count_once() -> None:
    """The same gains of five groups, 60 pairs each: as 300 pairs in random order they are decisive, as five groups not."""
    rng = np.random.default_rng(1)
    gain, labels = np.array([0.3, -0.1, 0.2, -0.15, 0.1]).repeat(60), np.arange(5).repeat(60)
    old, order = np.ones(300), rng.permutation(300)
    assert Difference.of(old, old - gain[order], np.arange(300)).is_decisive
    assert not Difference.of(old, old - gain[order], labels[order]).is_decisive
    assert not Difference.of(old, old - gain, np.zeros(300, int)).is_decisive  # one group
