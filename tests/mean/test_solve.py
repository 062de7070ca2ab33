"""Kernel regression: its likelihood, maps that it reproduces, and bands without signal."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

from pdno.mean.kernel.kernel import Hyper, Kernel, log_likelihood
from tests.mean.kernels import POINTS, inputs, operator


def test_likelihood_is_that_of_contrasts() -> None:
    f, y = inputs(9, 3), inputs(9, 2, seed=1)
    k = Hyper("rq").gram(f, f)
    contrasts = null_space(np.ones((1, 9)))
    law = multivariate_normal(cov=contrasts.T @ (k + 0.01 * np.eye(9)) @ contrasts)
    assert log_likelihood(k, y, 0.01) == pytest.approx(law.logpdf((contrasts.T @ y).T).sum(), rel=1e-10)
    assert log_likelihood(k, y + 7, 0.01) == pytest.approx(log_likelihood(k, y, 0.01), rel=1e-8)  # the constant is free


def test_a_linear_map_is_reproduced_by_the_linear_kernel() -> None:
    matrix = np.random.default_rng(5).normal(size=(POINTS, POINTS))
    a, new = inputs(60), inputs(20, seed=1)
    kernel = Kernel("linear").fit(a, 1 + a @ matrix)
    np.testing.assert_allclose(kernel(new), 1 + new @ matrix, atol=1e-5)
    assert Kernel().fit(a, 1 + a @ matrix).hyper.kernel == "linear"


def test_bands_without_signal_keep_their_mean_if_they_have_one() -> None:
    """A constant zigzag in all outputs is reproduced, noise of the same frequencies is not."""
    zigzag = (-1.0) ** np.arange(32)
    a, noise = inputs(100, 1, 1) * np.ones(32), 0.3 * inputs(100, 1, 32, seed=1)
    for size, most in ((0.0, 0.02), (1.0, 0.03)):  # 0.3/√100 = 0.03 is the noise of a mean that is not shrunk
        found = Kernel("rq").fit(a, np.sin(a) + size * zigzag + noise)(a) - np.sin(a)
        assert np.sqrt(np.square(found - size * zigzag).mean()) < most


def test_duplicates_with_different_outputs() -> None:
    a = np.repeat(inputs(20), 2, axis=0)
    u = operator(a) + 0.1 * inputs(40, seed=1)
    kernel = Kernel("rq").fit(a, u)
    assert np.isfinite(kernel(a)).all()
    assert np.sqrt(np.square(kernel.noise_std).mean()) > 0.05
