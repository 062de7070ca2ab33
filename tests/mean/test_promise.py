"""The error that new inputs will show."""

import numpy as np
import pytest

from pdno.mean.base import pairs_of
from pdno.mean.process.process import Process
from pdno.mean.process.promise import size_at_new_inputs

RNG = np.random.default_rng(0)


def trained(x, u):
    pairs = pairs_of(np.zeros((len(x), 1, u.shape[1])), u[:, None], x)
    mean = Process().fit(pairs.a, pairs.u, x)
    return mean, pairs, mean.residuals(pairs.a, pairs.u, x)


def test_left_out_runs_of_an_even_design_are_farther_than_new_inputs():
    """Equally spaced runs of random smooth functions: the left-out error is several times that of new inputs."""
    x = np.append(np.linspace(-1, 1, 12), RNG.uniform(-1, 1, 200))[:, None]
    k = np.exp(-np.square(x - x.T) / (2 * 0.35**2))
    u = np.linalg.cholesky(k + 1e-10 * np.eye(len(x))) @ RNG.normal(size=(len(x), 40))
    mean, pairs, left = trained(x[:12], u[:12])
    error = np.abs(mean(np.zeros((200, 1, 40)), x[12:])[:, 0] - u[12:]).mean()
    left_out = np.abs(left).mean()
    assert left_out > 3 * error
    assert error / 2 < size_at_new_inputs(mean, pairs, 0) * left_out < 2 * error


def test_noise_is_the_same_at_new_inputs():
    x = RNG.uniform(size=(60, 1))
    mean, pairs, _ = trained(x, x + RNG.normal(size=(60, 1)) * np.ones((1, 8)))
    assert size_at_new_inputs(mean, pairs, 0) == pytest.approx(1, abs=0.1)


def test_new_inputs_are_not_known_if_parameters_depend_on_each_other():
    x = RNG.uniform(size=(40, 1)) + 0.01 * RNG.normal(size=(40, 2))
    mean, pairs, _ = trained(x, np.sin(3 * x[:, :1]) * np.ones((1, 8)))
    assert size_at_new_inputs(mean, pairs, 0) == 1.0
