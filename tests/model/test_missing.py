"""Means of outputs that are observed at different nodes in different samples: Gaussian conditioning, and what is learned."""

import numpy as np
import pytest

from pdno import PDNO
from pdno.learning.budget import Terms
from pdno.mean import Kernel, Linear, Mean
from pdno.mean.base import pairs_of
from pdno.model.baseline import Deterministic
from pdno.model.missing import expected, learn_observed
from pdno.residual.scale import Scale
from tests.helpers import normal

QUIET = Terms(progress=False)
X = np.linspace(0, 1, 24)


def smooth(count: int, seed: int = 0) -> np.ndarray:
    """Random sines, (sample, 1, node)."""
    k = np.arange(1, 6)
    return (normal(count, 5, seed=seed) / k @ np.sin(np.pi * k[:, None] * X))[:, None]


def operator(a: np.ndarray) -> np.ndarray:
    return np.cumsum(a, axis=-1) / 8 + 0.3 * a[..., ::-1]


def error(mean: Mean, a: np.ndarray) -> float:
    """Return the error of a mean, relative to the standard deviation of outputs."""
    return float(np.sqrt(np.mean((mean(a) - operator(a)) ** 2)) / operator(a).std())


def sensors(count: int, share: float, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 1, len(X))) < share


@pytest.mark.parametrize("periodic", [True, False])
def test_expectations_are_those_of_gaussian_conditioning(periodic) -> None:
    """E = C_uo C_oo⁻¹ e_o with the dense covariance, in each channel."""
    scale = Scale(np.array([[1.0, 2, 3, 1, 1, 2, 0, 1]] * 2), 1 / (1 + np.arange(16.0).reshape(2, 8)), (periodic,), "both")
    mode = (scale.mode + scale.mode[:, (-np.arange(8)) % 8]) / 2 if periodic else scale.mode
    scale = Scale(scale.point, mode, (periodic,), "both")
    values, observed = normal(6, 2, 8), np.random.default_rng(1).random((6, 2, 8)) < 0.6
    found = expected(scale, values, observed)
    dense = scale.covariance(np.eye(8)[:, None] * np.ones((1, 2, 1)))  # row j: C e_j
    for i, c in np.ndindex(6, 2):
        covariance, o = dense[:, c].T, observed[i, c] & (scale.point[c] > 0)
        solved = covariance[:, o] @ np.linalg.solve(covariance[np.ix_(o, o)], values[i, c, o])
        np.testing.assert_allclose(found[i, c], solved, atol=2e-3)
        np.testing.assert_allclose(found[i, c, o], values[i, c, o], atol=2e-3)


def test_an_affine_map_is_learned_from_scattered_sensors() -> None:
    """Half of the nodes of each sample are observed, without noise. Averages in place of missing values leave 0.27 of std u."""
    a, new, mask = smooth(120), smooth(200, seed=1), sensors(120, 0.5)
    u, mean = np.where(mask, operator(a), 1e9), Linear(log=False, degree=1, sparse=False)
    completed = learn_observed(mean, pairs_of(a, u, mask=mask), QUIET, (False,))
    np.testing.assert_array_equal(completed[mask], operator(a)[mask])
    assert error(mean, new) < 0.02
    average = np.where(mask, u, 0).sum(axis=0) / mask.sum(axis=0)
    assert error(Linear(log=False, degree=1, sparse=False).fit(a, np.where(mask, u, average)), new) > 0.2


def test_sensors_are_as_good_as_fewer_complete_samples() -> None:
    """With noise: 30 % of the nodes of 120 samples against all nodes of 36."""
    a, new, mask, mean = smooth(120), smooth(200, seed=1), sensors(120, 0.3), Linear()
    u = operator(a) + 0.1 * normal(*a.shape, seed=2)
    learn_observed(mean, pairs_of(a, u, mask=mask), QUIET, (False,))
    assert error(mean, new) < 1.2 * error(Linear().fit(a[:36], u[:36]), new)


@pytest.mark.parametrize("mean", ["linear", pytest.param(Kernel("matern52"), id="kernel", marks=pytest.mark.slow)])
def test_a_model_of_sensors_covers_whole_fields(mean) -> None:
    """The error of m, and the coverage of 90 % intervals at all nodes of new inputs, also those that were not observed."""
    a, new, mask = smooth(100), smooth(200, seed=1), sensors(100, 0.5)
    u, fresh = operator(a) + 0.05 * normal(*a.shape, seed=2), operator(new) + 0.05 * normal(*new.shape, seed=3)
    model = PDNO(mean=mean, law="gaussian").fit(a, np.where(mask, u, np.nan), mask="nan", progress=False)
    pred = model.predict(new, members=200, progress=False)
    assert np.sqrt(np.mean((model.mean(new) - operator(new)) ** 2)) < 0.05
    inside = (pred.quantile(0.05) <= fresh) & (fresh <= pred.quantile(0.95))
    assert inside.mean() == pytest.approx(0.9, abs=0.05)


def test_baselines_learn_from_sensors() -> None:
    a, new, mask = smooth(60), smooth(50, seed=1), sensors(60, 0.7)
    model = Deterministic("linear").fit(a, np.where(mask, operator(a), np.nan), mask="nan", progress=False)
    assert error(model.fitted.mean, new) < 0.02
