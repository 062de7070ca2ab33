"""CRPS and energy score over batches of members, compared with the scores of whole arrays and closed forms."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdno import UserError
from pdno.evaluation.metrics import crps, energy_score
from pdno.evaluation.running import RunningCRPS, RunningEnergy
from pdno.evaluation.score import Score, per_sample

CRPS_AT_0 = (np.sqrt(2) - 1) / np.sqrt(np.pi)  # of N(0, 1), observed 0
few = settings(max_examples=25, deadline=None)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def accumulated(running: RunningCRPS | RunningEnergy, x: np.ndarray, cuts: list[int]) -> RunningCRPS | RunningEnergy:
    for batch in np.split(x, sorted(min(cut, len(x)) for cut in cuts)):
        running.add(batch)
    return running


@given(count=st.integers(1, 100), cuts=st.lists(st.integers(0, 100), max_size=6))
@few
def test_up_to_100_members_equal_the_array_scores(count, cuts) -> None:
    x, u = normal(count, 2, 3, 4), normal(2, 3, 4, seed=1)
    mask, weights = np.arange(3)[:, None] != 1, np.arange(4)
    points = crps(x.reshape(count, -1), u.ravel()).each.reshape(u.shape)
    np.testing.assert_allclose(accumulated(RunningCRPS(u), x, cuts).value, points, rtol=1e-12, atol=1e-13)
    energy = energy_score(x[:, None], u[None], mask=mask, weights=weights).value
    assert accumulated(RunningEnergy(u, mask=mask, weights=weights), x, cuts).value == pytest.approx(energy, rel=1e-12)


@given(count=st.integers(95, 350), cuts=st.lists(st.integers(0, 350), max_size=6))
@few
def test_results_do_not_depend_on_batches(count, cuts) -> None:
    x, u = normal(count, 3), normal(3, seed=1)
    for kind in RunningCRPS, RunningEnergy:
        parts, blocks = accumulated(kind(u), x, cuts), accumulated(kind(u), x, list(range(0, count, 4)))
        np.testing.assert_array_equal(parts.value, blocks.value)


@pytest.mark.parametrize("kind", [RunningCRPS, RunningEnergy])
def test_reading_a_value_changes_nothing(kind) -> None:
    x, u = normal(250, 3), normal(3, seed=1)
    unread, read = kind(u), kind(u)
    for start in range(0, 250, 7):
        unread.add(x[start : start + 7])
        read.add(x[start : start + 7])
        fresh = kind(u)
        fresh.add(x[: start + 7])
        np.testing.assert_array_equal(read.value, fresh.value)
    np.testing.assert_array_equal(read.value, unread.value)
    assert read.count == 250


def test_pairs_within_blocks_by_hand() -> None:
    x, u = normal(230, 2), np.zeros(2)
    parts = [x[:100], x[100:200], x[200:]]
    sums = sum(np.abs(part[:, None] - part).sum(axis=(0, 1)) / 2 for part in parts)
    expected = np.abs(x).mean(axis=0) - 0.5 * sums / (4950 + 4950 + 435)
    np.testing.assert_allclose(accumulated(RunningCRPS(u), x, [17]).value, expected, rtol=1e-12)
    sums = sum(np.linalg.norm(part[:, None] - part, axis=-1).sum() / 2 for part in parts)
    expected = (np.linalg.norm(x, axis=1).mean() - 0.5 * sums / (4950 + 4950 + 435)) / np.sqrt(2)
    assert accumulated(RunningEnergy(u), x, [17]).value == pytest.approx(expected, rel=1e-10)


def test_more_members_stay_unbiased() -> None:
    """250 members, two complete blocks and a half, at 2000 independent points; fails for one seed in 16,000."""
    score = Score.mean(accumulated(RunningCRPS(np.zeros(2000)), normal(250, 2000), [130]).value)
    assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.01
    energies = [accumulated(RunningEnergy([0.0]), normal(250, 1, seed=seed), []).value for seed in range(300)]
    score = Score.mean(energies)
    assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.02


def test_variance_of_pairs_within_blocks() -> None:
    """The mean over all pairs has minimal variance, so its difference from others is uncorrelated and variances subtract.

    For Gaussians ζ₁ = 4/π (√3/2 + π/12 − 1), ζ₂ = 2 − 4/π. The standard error of the deviation over 2000 points is 1.6 %.
    """
    one, two = 4 / np.pi * (np.sqrt(3) / 2 + np.pi / 12 - 1), 2 - 4 / np.pi
    x, u = normal(1000, 2000), np.zeros(2000)
    added = accumulated(RunningCRPS(u), x, []).value - crps(x, u).each
    assert added.std() == pytest.approx(0.5 * np.sqrt(2 * (two - 2 * one) / 1000 * (1 / 99 - 1 / 999)), rel=0.07)
    assert 2 * (two - 2 * one) / 99 / (4 * one) == pytest.approx(0.012, abs=0.0005)


def test_no_member_and_one() -> None:
    points, energy = RunningCRPS([1.0, 2.0]), RunningEnergy([1.0, 2.0])
    for running in points, energy:
        assert np.isnan(running.value).all()
        running.add(np.empty((0, 2)))
        assert np.isnan(running.value).all()
        running.add([[4.0, -2.0]])
    np.testing.assert_array_equal(points.value, [3, 4])
    assert energy.value == pytest.approx(5 / np.sqrt(2))


def test_missing_points_have_no_effect() -> None:
    u, mask = np.array([1.0, np.nan, 3.0]), np.array([True, False, True])
    x = normal(120, 3)
    x[:, 1] = np.nan
    points = accumulated(RunningCRPS(u), x, [50]).value
    np.testing.assert_array_equal(np.isnan(points), ~mask)
    np.testing.assert_array_equal(points[mask], accumulated(RunningCRPS(u[mask]), x[:, mask], []).value)
    energy = accumulated(RunningEnergy(u, mask=mask), x, [50]).value
    assert energy == pytest.approx(accumulated(RunningEnergy(u[mask]), x[:, mask], []).value, rel=1e-12)
    assert per_sample(points[None], mask=mask)[0] == pytest.approx(points[mask].mean())


def test_memory_does_not_grow_with_members() -> None:
    u = np.zeros((1, 32, 32))
    chunk = normal(4, 1, 32, 32)

    def score(count: int) -> None:
        points, energy = RunningCRPS(u), RunningEnergy(u)
        for _ in range(0, count, 4):
            points.add(chunk)
            energy.add(chunk)
        assert points.count == count
        assert points.value.mean() > 0
        assert energy.value > 0

    score(4)
    assert peak(lambda: score(2000)) <= 1.02 * peak(lambda: score(300))


u23 = normal(2, 3)
nan23 = np.where(np.arange(3) == 1, np.nan, u23)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RunningCRPS([np.inf, 1.0]), "u has NaN or infinite values"),
        (lambda: RunningCRPS([1.0]).add([1.0]), r"members have shape \(1,\), expected \(member, 1\)"),
        (lambda: RunningCRPS([1.0]).add([[np.nan]]), "members are NaN or infinite"),
        (lambda: RunningEnergy(nan23), "u has NaN or infinite values"),
        (lambda: RunningEnergy(u23, mask=False), "no observed point"),
        (lambda: RunningEnergy(u23).add(u23), r"members have shape \(2, 3\), expected \(member, 2, 3\)"),
        (lambda: RunningEnergy([1.0]).add([[np.inf]]), "members are NaN or infinite"),
    ],
)
def test_invalid_arguments(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_refused_batch_changes_nothing() -> None:
    running = RunningCRPS([0.0])
    running.add([[1.0], [3.0]])
    with pytest.raises(UserError, match="members are NaN"):
        running.add([[1.0], [np.nan]])
    assert running.count == 2
    assert running.value == pytest.approx(2 - 1)
