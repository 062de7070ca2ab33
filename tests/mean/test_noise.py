"""The share of noise in residuals, from those of two means."""

import numpy as np
import pytest

from pdno.mean.noise import noise_share


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0, 3.0])
def test_two_means_with_independent_errors(noise: float) -> None:
    n, e, f = np.random.default_rng(0).normal(size=(3, 200, 1, 50))
    share = noise_share(noise * n + e, [noise * n + 2 * f])
    assert share == pytest.approx(noise**2 / (1 + noise**2), abs=0.05)


def test_the_smallest_estimate_counts_and_much_larger_residuals_do_not() -> None:
    e, f, g = np.random.default_rng(1).normal(size=(3, 200, 1, 50))
    assert noise_share(e, [e + f, e, f]) == pytest.approx(0, abs=0.05)
    assert noise_share(e, [10 * g]) == 1
    assert noise_share(e, []) == 1
