"""Members and their statistics: what a member depends on, and memory."""

import tracemalloc

import numpy as np
import pytest

from pdno import PDNO
from tests.helpers import exact, normal


def test_a_member_is_a_function_of_seed_input_and_member(data, model) -> None:
    a = data[0][:5]
    all_of_them = model.sample(a, members=7, chunk=4)
    np.testing.assert_array_equal(model.sample(a, members=3, chunk=4), all_of_them[:3])
    np.testing.assert_array_equal(model.sample(a[:2], members=7, chunk=4), all_of_them[:, :2])
    np.testing.assert_array_equal(model.sample(a[3:], members=2, chunk=4, first=3), all_of_them[:2, 3:])
    np.testing.assert_array_equal(model.sample(a[4:], members=1, chunk=4, first=4), all_of_them[:1, 4:])
    assert len(np.unique(all_of_them[:, :, 0])) == 35


@pytest.mark.parametrize("chunk", [3, 64])
def test_members_agree_at_any_chunk(chunk, data, model) -> None:
    a = data[0][:3]
    expected, draws = (model.sample(a, members=4, chunk=c) for c in (5, chunk))
    assert np.abs(draws - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_prediction_is_the_statistics_of_the_sample(data, model) -> None:
    a = data[0][:3]
    draws = model.sample(a, members=9, seed=5, chunk=4)
    pred = model.predict(a, members=9, seed=5, quantiles=(0.1, 0.5, 1), chunk=4)
    np.testing.assert_allclose(pred.mean, draws.mean(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pred.std, draws.std(axis=0, ddof=1), rtol=1e-12)
    for level in (0.1, 0.5, 1):
        np.testing.assert_allclose(pred.quantile(level), np.quantile(draws, level, axis=0), rtol=1e-12)
    assert (pred.members, pred.rank_error) == (9, 0)
    later = model.predict(a[2:], members=9, seed=5, quantiles=(), chunk=4, first=2)
    np.testing.assert_allclose(later.mean, pred.mean[2:], rtol=1e-12, atol=1e-14)


def peak(model: PDNO, a: np.ndarray, members: int) -> int:
    """Return the largest number of bytes that a prediction holds at a time."""
    tracemalloc.start()
    model.predict(a, members=members, steps=1, chunk=64)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_members() -> None:
    a = normal(20, 16)
    model = exact(s=1.0, variance="gaussian").fit(a, a)
    few = peak(model, a[:1], 100)
    assert peak(model, a[:1], 10_000) < few + 100_000  # the members themselves are 1.3 MB
