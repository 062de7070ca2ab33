"""Places where intervals hold least: found where they are, and not where they are not."""

import numpy as np
import pytest

from pdno.evaluation.weak import ALARM, weak_range, weak_region

LEVEL = 0.9


def covered(rng, shape, shared: float) -> np.ndarray:
    """Whether observations are inside honest intervals; with `shared`, all points of a field have one fate so often."""
    own, same = rng.random(shape) < LEVEL, rng.random((shape[0], *[1] * (len(shape) - 1))) < LEVEL
    return np.where(rng.random((shape[0], *[1] * (len(shape) - 1))) < shared, same, own)


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [10, 50])
def test_honest_intervals_have_no_weak_place(n, shared) -> None:
    """At most 1 % of false alarms of each kind; of 400, 12 or more come with a chance below 1 in 1000."""
    found = 0
    axes = {"x": np.arange(8.0), "y": np.arange(4.0)}
    for seed in range(200):
        rng = np.random.default_rng((seed, n))
        inside = covered(rng, (n, 1, 8, 4), shared)
        found += weak_region(inside, axes, LEVEL) is not None
        found += weak_range(inside, rng.normal(size=inside.shape), LEVEL, "u") is not None
    assert found < 12
    assert ALARM == 0.01


def test_a_weak_corner_is_found() -> None:
    rng = np.random.default_rng(0)
    inside = rng.random((60, 2, 16, 8)) < LEVEL
    inside[:, :, 14:, :1] = rng.random((60, 2, 2, 1)) < 0.5
    place = weak_region(inside, {"x": np.linspace(0, 1, 16), "height": np.arange(8)}, LEVEL)
    assert place.words == f"for x from {14 / 15:.3g} to 1 and height from 0 to 0"
    assert place.share == pytest.approx(0.5, abs=4 * place.error)
    assert place.error == pytest.approx(0.5 / np.sqrt(60 * 4), rel=0.3)


def test_a_weak_range_is_found_and_ties_are_one_part() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 3, size=(50, 1, 40)).astype(float)
    inside = np.where(values == 1, rng.random(values.shape) < 0.6, rng.random(values.shape) < LEVEL)
    place = weak_range(inside, values, LEVEL, "u is predicted")
    assert place.words == "where u is predicted between 0 and 1"
    assert place.share == pytest.approx(0.6, abs=4 * place.error)
    constant = weak_range(inside, np.ones_like(values), LEVEL - 0.2, "u")
    assert constant is None


def test_what_is_masked_does_not_count() -> None:
    inside, mask = np.ones((30, 1, 16), dtype=bool), np.ones((30, 1, 16), dtype=bool)
    inside[:, :, 12:], mask[:, :, 12:] = False, False
    assert weak_region(inside, {"x": np.arange(16)}, LEVEL, mask) is None
    assert weak_range(inside, np.broadcast_to(np.arange(16.0), inside.shape), LEVEL, "u", mask) is None
    assert weak_region(inside, {"x": np.arange(16)}, LEVEL).words == "for x from 12 to 13"


def test_a_small_departure_is_no_weak_place() -> None:
    """However many points show it."""
    inside = np.random.default_rng(2).random((400, 1, 64)) < 0.85
    assert weak_region(inside, {"x": np.arange(64)}, LEVEL) is None


def test_few_samples_say_nothing() -> None:
    assert weak_region(np.zeros((4, 1, 8), dtype=bool), {"x": np.arange(8)}, LEVEL) is None
