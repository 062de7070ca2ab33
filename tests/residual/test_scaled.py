"""Residuals with a scale field: a standard deviation that depends on place and input, and values that are not Gaussian."""

import numpy as np
import pytest

from pdno import Training, UserError
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Residuals, Rows, Scaled

QUIET = Terms(progress=False)
LOOP = Training(updates=120, batch=32, rate=4e-3, ema=0.9)


def steps(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs that are ±1 on the two halves of 16 points, and the standard deviation .1 or 1 by their sign."""
    a = np.random.default_rng(seed).choice([-1.0, 1.0], (count, 1, 2)).repeat(8, axis=2)
    return a, np.where(a > 0, 1.0, 0.1)


def residuals(count: int, seed: int, coins: bool = False) -> Residuals:
    a, std = steps(count, seed)
    rng = np.random.default_rng(seed + 50)
    xi = rng.choice([-1.0, 1.0], a.shape) if coins else rng.standard_normal(a.shape)
    return Residuals(pairs_of(a, std * xi), std * xi)


def drawn(law: Scaled, members: int = 500) -> tuple[np.ndarray, np.ndarray]:
    a, std = steps(4, 7)
    flat = np.arange(4 * members)
    rows = Rows(0, flat // members, flat % members, flat // members)
    held_out = Residuals(pairs_of(a, np.zeros(a.shape)), np.zeros(a.shape))
    return law.draw(held_out.inputs, rows).reshape(4, members, 1, 16), std


@pytest.fixture(scope="module")
def gaussian() -> Scaled:
    return Scaled(training=LOOP).learn(residuals(600, 0), residuals(100, 1), QUIET)


def test_the_standard_deviation_is_a_field_of_the_input(gaussian) -> None:
    draws, std = drawn(gaussian)
    np.testing.assert_allclose(np.log(draws.std(axis=1) / std), 0, atol=0.3)
    assert np.abs(np.log(draws.std(axis=1) / std)).mean() < 0.12


@pytest.mark.slow
def test_values_need_not_be_gaussian() -> None:
    law = Scaled(training=LOOP).learn(residuals(600, 0, coins=True), residuals(100, 1, coins=True), QUIET)
    draws, std = drawn(law)
    ratio = np.abs(draws) / std[:, None]
    assert ratio.std() < 0.3  # .6 for Gaussian values


def test_correlation_of_neighbours_is_kept() -> None:
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((400, 1, 1)) * np.ones(16) + 0.1 * rng.standard_normal((400, 1, 16))
    a = rng.standard_normal((400, 1, 16))
    law = Scaled(training=Training(updates=5, batch=16)).learn(Residuals(pairs_of(a, fields), fields), None, QUIET)
    draws, _ = drawn(law)
    assert np.corrcoef(draws[..., 3].ravel(), draws[..., 12].ravel())[0, 1] > 0.85


def test_it_must_be_trained_first() -> None:
    with pytest.raises(UserError, match="has not been trained"):
        Scaled().describe()
