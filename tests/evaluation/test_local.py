"""The regression on neighbourhoods of predictions: errors next to extremes are removed, independent ones are not."""

import numpy as np

from pdno.evaluation.local import LocalRegression

POINTS = 64


def smooth(count: int, seed: int, modes: int) -> np.ndarray:
    """Smooth periodic fields of unit variance, (count, 1, POINTS)."""
    rng, k = np.random.default_rng(seed), np.arange(1, modes + 1)
    size, phase = rng.normal(size=(count, modes, 1)), rng.uniform(0, 2 * np.pi, (count, modes, 1))
    waves = np.sin(2 * np.pi * k[:, None] * np.arange(POINTS) / POINTS + phase)
    return ((size * waves).sum(axis=1) / np.sqrt(modes / 2))[:, None]


def flat(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fields with flat tops, and predictions with independent smooth errors."""
    u = np.tanh(3 * smooth(count, seed, 3))
    return u, u + 0.05 * smooth(count, seed + 1, 8)


def test_the_maximum_of_a_flat_field_is_no_longer_that_of_the_error() -> None:
    """The largest value of a prediction exceeds that of the field by more than the standard deviation of its error, .05."""
    regression = LocalRegression.of(*flat(400, 0), (True,))
    u, prediction = flat(400, 100)
    new = regression(prediction)
    excess = [(m.max(axis=(1, 2)) - u.max(axis=(1, 2))).mean() for m in (prediction, new)]
    assert excess[0] > 0.05
    assert abs(excess[1]) < 0.7 * excess[0]
    assert np.square(u - new).mean() < 0.8 * np.square(u - prediction).mean()


def test_nothing_is_removed_from_errors_that_are_independent_of_the_prediction() -> None:
    """By chance, one of forty data sets would have a regression."""
    prediction = smooth(200, 0, 3)
    assert LocalRegression.of(prediction + 0.1 * smooth(200, 1, 8), prediction, (True,)) is None
    assert LocalRegression.of(*flat(20, 0), (True,)) is None  # too few pairs


def test_changes_are_no_larger_than_those_seen() -> None:
    """A field that is a hundred times as large changes by no more than the largest change in training."""
    u, prediction = flat(400, 0)
    regression = LocalRegression.of(u, prediction, (True,))
    usual = np.abs(regression(prediction) - prediction).max()
    assert np.abs(regression(100 * prediction) - 100 * prediction).max() <= usual * (1 + 1e-9)


def test_it_is_restored_and_works_on_planes_with_two_channels() -> None:
    rng = np.random.default_rng(0)
    u = np.tanh(3 * smooth(120, 0, 3)).reshape(60, 2, 8, 8) * np.array([1.0, 1e-6]).reshape(2, 1, 1)
    prediction = u + 0.1 * np.array([1.0, 1e-6]).reshape(2, 1, 1) * rng.normal(size=u.shape)
    regression = LocalRegression.of(u, prediction, (False, True))
    again = LocalRegression.from_state(regression.state())
    np.testing.assert_array_equal(again(prediction), regression(prediction))
    errors = [np.square(u - m).mean(axis=(0, 2, 3)) for m in (prediction, regression(prediction))]
    assert (errors[1] < errors[0]).all()
