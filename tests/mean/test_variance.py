"""The posterior of kernel means: its mean and variance by textbook formulas, and the noise that it finds."""

import numpy as np
import pytest
from scipy.linalg import null_space

from pdno.mean.kernel import variance
from pdno.mean.kernel.covariance import Features
from pdno.mean.kernel.kernel import KERNELS, Kernel
from tests.mean.kernels import POINTS, fitted, inputs, textbook


@pytest.mark.usefixtures("one_nugget")
@pytest.mark.parametrize("name", KERNELS)
def test_posterior_is_that_of_the_textbook(name) -> None:
    kernel, a, u = fitted(noise=0.1, kernel=name)
    (nugget,) = kernel.state().arrays["nuggets"]
    new = inputs(5, seed=2)
    mean, factor = textbook(kernel, a, u, new, nugget)
    np.testing.assert_allclose(kernel(new), mean, rtol=1e-8)
    np.testing.assert_allclose(kernel.variance(new), factor, rtol=1e-6, atol=1e-10)
    contrasts = null_space(np.ones((1, len(a))))  # the likelihood of s² is that of contrasts
    phi = kernel._features(a, np.zeros((len(a), 0)))
    k = contrasts.T @ (kernel.hyper.gram(phi, phi) + nugget * np.eye(len(a))) @ contrasts
    y = contrasts.T @ u[:, 0]
    scale = np.sqrt((y * np.linalg.solve(k, y)).sum(axis=0) / (len(a) - 1))
    np.testing.assert_allclose(kernel.posterior_std(new)[:, 0], np.sqrt(factor)[:, None] * scale, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(kernel.noise_std[0], np.sqrt(nugget) * scale, rtol=1e-6)


def test_noise_free_data_are_interpolated() -> None:
    """60 pairs of a smooth function of two numbers."""
    a, new = (inputs(n, 1, 2, seed=n) @ inputs(2, POINTS) for n in (60, 20))
    kernel = Kernel().fit(a, np.sin(a))
    np.testing.assert_allclose(kernel(a), np.sin(a), atol=1e-4)
    assert np.sqrt(np.square(kernel(new) - np.sin(new)).mean()) < 0.1
    assert kernel.posterior_std(a).max() < 1e-3 < kernel.posterior_std(3 * new).max()


def test_noise_is_recovered() -> None:
    """200 pairs of 32 points: the estimate has a relative error of 1/√12800 = 0.9 %, and the variation of m is not noise."""
    x = (np.arange(32) + 0.5) / 32
    a = inputs(200, 1, 3) @ np.cos(np.pi * np.outer(np.arange(3), x))
    clean = np.sin(a.mean(axis=-1, keepdims=True)) * np.sin(np.pi * x) + a[..., :1] * x
    kernel = Kernel().fit(a, clean + 0.2 * inputs(200, 1, 32, seed=1))
    assert np.sqrt(np.square(kernel.noise_std).mean()) == pytest.approx(0.2, rel=0.04)
    error = np.sqrt(np.square(kernel(a) - clean).mean())
    assert error < 0.04  # with 200 pairs and three numbers in an input
    assert (kernel.state().arrays["level"] < 0).mean() > 0.5  # modes without signal
    assert np.sqrt(np.square(kernel.posterior_std(a)).mean()) == pytest.approx(error, rel=0.5)


def test_variances_are_computed_for_some_inputs_at_a_time(monkeypatch) -> None:
    """The blocks have no effect on the values, and the features of training inputs are computed once."""
    kernel, *_ = fitted(20, noise=0.1)
    new = inputs(7, seed=2)
    before, seen, features = kernel.posterior_std(new), [], Features.__call__

    def counted(self: Features, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        seen.append(len(x))
        return features(self, x, s)

    monkeypatch.setattr(Features, "__call__", counted)
    monkeypatch.setattr(variance, "BLOCK", 3 * 20)
    np.testing.assert_allclose(kernel.posterior_std(new), before, rtol=1e-12)
    assert max(seen) == 3
