"""Covariances of kernel means and the features that they compare, by hand."""

import numpy as np
import pytest

from pdno.mean.kernel.kernel import KERNELS, Hyper, Kernel
from tests.mean.kernels import inputs


@pytest.mark.parametrize("name", KERNELS)
def test_covariances(name) -> None:
    f, g = inputs(2, 3), inputs(3, 3, seed=1)
    r = np.linalg.norm(f[:, None] - g, axis=2) / 1.5
    by_hand = {
        "matern52": (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
        "matern32": (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "rq": (1 + r**2 / (2 * 0.7)) ** -0.7,
        "gaussian": np.exp(-(r**2) / 2),
        "linear": f @ g.T,
    }
    np.testing.assert_allclose(Hyper(name, length=1.5, shape=0.7).gram(f, g), by_hand[name], rtol=1e-12)


def test_features_are_weighted_modes() -> None:
    """One cosine has one feature, scaled so that the features of training inputs have a mean square of one."""
    x = (np.arange(16) + 0.5) / 16
    a = inputs(30, 1, 1) * np.cos(3 * np.pi * x)
    kernel = Kernel("matern52", log=False).fit(a, a)
    phi = kernel._features(a, np.zeros((30, 0)))
    assert np.square(phi).sum(axis=1).mean() == pytest.approx(1, rel=0.02)
    share = np.square(phi).mean(axis=0)
    assert share[3] > 0.9  # the rest is the mean over samples and points
