"""Streaming statistics, compared with NumPy; the error bound of the sketch is tested with adversarial orders of members."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdno import UserError
from pdno.evaluation.streaming import MIN_KEPT, Moments, Quantiles, Statistics

LEVELS = (0.0, 0.05, 0.3, 0.5, 0.95, 1.0)
SMALL = 2**12  # bytes


def members(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *shape))


def in_cuts(u: np.ndarray, cuts: list[int]) -> list[np.ndarray]:
    return np.split(u, sorted(min(cut, len(u)) for cut in cuts))


@given(count=st.integers(2, 60), cuts=st.lists(st.integers(0, 60), max_size=8), offset=st.sampled_from([0.0, -3e4]))
def test_moments_equal_numpy_for_all_batches(count, cuts, offset) -> None:
    u = members(count, 3, 2) + offset
    moments = Moments((3, 2))
    for batch in in_cuts(u, cuts):
        moments.add(batch)
    assert moments.count == count
    np.testing.assert_allclose(moments.mean, u.mean(axis=0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(moments.std, u.std(axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_small_deviations_from_a_large_mean(size) -> None:
    """Sums of squares would lose all digits: 10¹² + 10⁻⁶ has 18. Deviations are exact multiples of 2⁻²⁰."""
    deviations = np.random.default_rng(1).integers(-2000, 2000, size=(1000, 4)) * 2.0**-20
    moments = Moments((4,))
    for start in range(0, 1000, size):
        moments.add(1e6 + deviations[start : start + size])
    np.testing.assert_allclose(moments.mean - 1e6, deviations.mean(axis=0), atol=1e-8)
    np.testing.assert_allclose(moments.std, deviations.std(axis=0, ddof=1), rtol=1e-6)


def test_no_member_and_one() -> None:
    statistics = Statistics((2,), LEVELS)
    statistics.add(np.empty((0, 2)))
    assert np.isnan(statistics.moments.mean).all()
    assert np.isnan(statistics.quantiles.quantile(0.5)).all()
    assert statistics.quantiles.rank_error == 0
    statistics.add([[3.0, -1.0]])
    np.testing.assert_array_equal(statistics.moments.mean, [3, -1])
    assert np.isnan(statistics.moments.std).all()
    for value in statistics.quantiles.values.values():
        np.testing.assert_array_equal(value, [3, -1])


def test_results_are_not_views() -> None:
    moments = Moments((1,))
    moments.add([[1.0]])
    mean = moments.mean
    moments.add([[3.0]])
    assert mean == 1


@given(count=st.integers(1, MIN_KEPT), cuts=st.lists(st.integers(0, MIN_KEPT), max_size=8))
def test_quantiles_are_exact_within_the_budget(count, cuts) -> None:
    u = members(count, 3, 2)
    quantiles = Quantiles((3, 2), LEVELS, budget=8 * 6 * MIN_KEPT)
    for batch in in_cuts(u, cuts):
        quantiles.add(batch)
    assert quantiles.rank_error == 0
    for level, value in quantiles.values.items():
        np.testing.assert_allclose(value, np.quantile(u, level, axis=0), rtol=1e-13, atol=1e-14)


def test_the_budget_determines_how_many_members_are_kept() -> None:
    quantiles = Quantiles((5,), [0.5], budget=8 * 5 * 100 + 39)
    quantiles.add(members(100, 5))
    assert quantiles.rank_error == 0
    quantiles.add(members(1, 5))
    assert quantiles.rank_error == 1 / 101  # one halving of level 0


@given(cuts=st.lists(st.integers(0, 700), max_size=8))
def test_the_sketch_does_not_depend_on_batches(cuts) -> None:
    u = members(700, 2)
    whole, parts = Quantiles((2,), LEVELS, SMALL), Quantiles((2,), LEVELS, SMALL)
    whole.add(u)
    for batch in in_cuts(u, cuts):
        parts.add(batch)
    assert whole.rank_error == parts.rank_error > 0
    for level in LEVELS:
        np.testing.assert_array_equal(whole.quantile(level), parts.quantile(level))


def zigzag(u: np.ndarray) -> np.ndarray:
    """Largest, smallest, second largest, second smallest, …"""
    return np.stack([u[::-1], u], axis=1).reshape(-1, *u.shape[1:])[: len(u)]


ORDERS = {
    "sorted": lambda u: u,
    "reversed": lambda u: u[::-1],
    "zig-zag": zigzag,
    "inside out": lambda u: zigzag(u)[::-1],
    "constant": lambda u: 0 * u,
    "two values": lambda u: np.round(u > 0.5),
    "blocks": lambda u: np.concatenate([u[i::64] for i in range(64)]),
    "random": lambda u: np.random.default_rng(0).permutation(u),
    "different at points": lambda u: np.stack([u[:, 0], u[::-1, 1], zigzag(u)[:, 2]], axis=1),
}


@pytest.mark.parametrize("count", [MIN_KEPT + 1, 500, 5000])
@pytest.mark.parametrize("budget", [0, 8 * 3 * 200])
@pytest.mark.parametrize("order", ORDERS)
def test_the_sketch_satisfies_its_bound(order, budget, count) -> None:
    u = ORDERS[order](np.sort(members(count, 3), axis=0))
    levels = np.linspace(0, 1, 41)
    quantiles = Quantiles((3,), levels, budget)
    quantiles.add(u)
    slack = count * quantiles.rank_error
    for level, value in quantiles.values.items():
        t = level * (count - 1)
        assert ((u <= value).sum(axis=0) >= np.floor(t) + 1 - slack - 1e-9).all()
        assert ((u < value).sum(axis=0) <= np.ceil(t) + slack + 1e-9).all()
    np.testing.assert_array_equal(quantiles.quantile(0), u.min(axis=0))
    np.testing.assert_array_equal(quantiles.quantile(1), u.max(axis=0))


def test_the_bound_is_useful() -> None:
    """256 of 10,000 members are kept; the bound does not depend on their values."""
    quantiles = Quantiles((1,), [], budget=8 * 256)
    quantiles.add(np.zeros((10_000, 1)))
    assert 0 < quantiles.rank_error < 0.06


def test_the_bound_is_attained() -> None:
    """One halving changes ranks by its weight."""
    quantiles = Quantiles((), [0.5], budget=0)
    quantiles.add(np.arange(MIN_KEPT + 1.0))
    assert quantiles.rank_error * (MIN_KEPT + 1) == 1
    ranks = [quantiles.quantile(i / MIN_KEPT) - i for i in range(MIN_KEPT + 1)]
    assert np.abs(np.round(ranks)).max() == 1


def test_many_points_are_processed_in_blocks(monkeypatch) -> None:
    u = members(300, 7, 11)
    whole, blocks = (Quantiles((7, 11), LEVELS, budget=0) for _ in range(2))
    whole.add(u)
    expected = whole.values
    monkeypatch.setattr("pdno.evaluation.streaming.BLOCK_VALUES", 5 * MIN_KEPT)
    blocks.add(u)
    for level, value in blocks.values.items():
        np.testing.assert_array_equal(value, expected[level])


def peak(count: int) -> int:
    """Peak memory in bytes while members are added and quantiles are computed, also when the sketch is full."""
    tracemalloc.start()
    statistics = Statistics((16, 16), LEVELS, budget=8 * 256 * MIN_KEPT)
    for start in range(0, count, MIN_KEPT // 2):
        statistics.add(members(MIN_KEPT // 2, 16, 16, seed=start))
        _ = statistics.quantiles.values, statistics.moments.std
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_does_not_grow() -> None:
    peak(1)  # imports on first use
    assert peak(10_000) < 1.05 * peak(100)  # 5 % are about twenty members


@pytest.mark.parametrize("level", [-0.1, 1.5, float("nan")])
def test_invalid_levels_are_refused(level) -> None:
    with pytest.raises(UserError, match="choose a level between 0 and 1"):
        Quantiles((2,), [0.5, level])
    with pytest.raises(UserError, match="choose a level between 0 and 1"):
        Quantiles((2,), [0.5]).quantile(level)


@pytest.mark.parametrize("shape", [(), (2,), (4, 3), (4, 2, 1)])
def test_members_of_another_shape_are_refused(shape) -> None:
    with pytest.raises(UserError, match=r"expected \(k, 2\)"):
        Moments((2,)).add(np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(value) -> None:
    statistics = Statistics((2,), [0.5])
    with pytest.raises(UserError, match="NaN or infinite"):
        statistics.add([[0.0, value]])
    assert statistics.moments.count == statistics.quantiles.count == 0
