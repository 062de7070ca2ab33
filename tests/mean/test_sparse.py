"""Sparse linear maps: they are found where there is one, and nowhere else."""

import numpy as np
import pytest

import pdno
from pdno.equation import Advection
from pdno.mean.base import refitted
from pdno.mean.linear.linear import Linear
from pdno.mean.linear.sparse import sparse_map
from tests.mean.problems import error, normal


def test_noisy_shift_is_sparse() -> None:
    """Over 20 seeds the error was at most 0.18 of the one without, and in five of them one input too many was kept."""
    data = pdno.generate(Advection(32), train=1000, test=100, noise="gaussian:0.5", seed=3)
    a, u = data.train.a, data.train.u
    mean, plain = Linear().fit(a, u), Linear(sparse=False).fit(a, u)
    assert mean.is_sparse
    assert not plain.is_sparse
    assert error(mean, data.test.a, data.test.u) < 0.25 * error(plain, data.test.a, data.test.u)
    np.testing.assert_array_equal(np.abs(mean(np.zeros((1, 1, 32)))), 0)  # the constant was dropped with the rest
    assert "0.5 of 32 inputs" in mean.describe()
    np.testing.assert_array_equal(mean.residuals(a, u), refitted(mean, a, u))
    assert mean.score == pytest.approx(np.square(mean.residuals(a, u)).sum(axis=2).mean() / u.var(axis=0).sum(), rel=0.05)


def test_sparse_map_is_least_squares_on_significant_inputs() -> None:
    """With 18 of 20 seeds no other input was kept."""
    x = normal(500, 24)
    b = np.zeros((24, 3))
    b[[3, 5, 8], [0, 0, 2]] = 1, -0.5, 2
    u = x @ b + [0, 4, 0] + 0.5 * normal(500, 3, seed=1)
    found = sparse_map(x, u)
    assert found is not None
    np.testing.assert_array_equal(found.directions @ found.modes != 0, b != 0)
    expected = np.linalg.lstsq(x[:, [3, 5]], u[:, 0], rcond=None)[0]
    np.testing.assert_allclose((found.directions @ found.modes)[[3, 5], 0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.intercept, [0, u[:, 1].mean(), 0], rtol=1e-6)


@pytest.mark.parametrize("sparse", ["auto", True])
def test_dense_map_is_not_sparse(sparse) -> None:
    a = normal(500, 1, 32)
    u = a @ normal(32, 32, seed=1) + normal(500, 1, 32, seed=2)
    assert not Linear(sparse=sparse).fit(a, u).is_sparse
    assert not Linear(sparse=sparse).fit(a[:40], u[:40]).is_sparse  # too few pairs


def test_weak_dense_map_is_not_sparse() -> None:
    """No coefficient is significant by itself, but all together are; a sparse map would be a constant."""
    a = normal(500, 1, 32)
    u = 0.08 * a @ normal(32, 32, seed=1) + normal(500, 1, 32, seed=2)
    assert not Linear().fit(a, u).is_sparse
    assert Linear(sparse=True).fit(a, u).is_sparse


def test_a_map_without_inputs_is_described_as_such() -> None:
    rng = np.random.default_rng(0)
    mean = Linear(sparse=True).fit(rng.standard_normal((200, 1, 24)), rng.standard_normal((200, 1, 24)))
    assert "Least squares: none of 24 inputs explains the outputs" in mean.describe()
