"""The standard error of a mean of dependent values, against closed forms."""

import numpy as np
import pytest

from pdno.errors import UserError
from pdno.evaluation.dependence import stderr_of_mean


def series(count, rho, repeats):
    """Draw stationary autoregressive series of unit variance: (repeat, time)."""
    rng = np.random.default_rng(0)
    x = np.empty((repeats, count))
    x[:, 0] = rng.standard_normal(repeats)
    for n in range(1, count):
        x[:, n] = rho * x[:, n - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(repeats)
    return x


def test_independent_values_have_the_usual_error():
    values = np.array([0.0, 2.0, 0.0, 2.0, 0.0, 2.0])
    assert stderr_of_mean(values, None) == pytest.approx(values.std(ddof=1) / np.sqrt(6))


def test_copies_of_a_value_count_once():
    """Fifty copies of each of six values, in any order of groups, are six values."""
    values = np.array([3.0, -1.0, 4.0, -1.0, 5.0, -9.0])
    groups = np.array([7, 3, 9, 1, 5, 0])
    assert stderr_of_mean(np.repeat(values, 50), np.repeat(groups, 50)) == pytest.approx(stderr_of_mean(values, None))


def test_groups_need_not_be_contiguous():
    values, groups = np.array([1.0, 5.0, -2.0, 3.0]), np.array([0, 1, 0, 1])
    averages = np.array([-0.5, 4.0])
    assert stderr_of_mean(values, groups) == pytest.approx(averages.std(ddof=1) / np.sqrt(2))


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_series_have_the_error_of_their_effective_sample_size(rho):
    """The variance of the mean of n values of an autoregressive series is about (1 + ρ)/(1 − ρ)/n."""
    x = series(400, rho, 200)
    true = np.sqrt((1 + rho) / (1 - rho) / 400)
    assert x.mean(axis=1).std() == pytest.approx(true, rel=0.12)
    estimates = [stderr_of_mean(each, None) for each in x]
    assert np.mean(estimates) == pytest.approx(true, rel=0.05)


def test_one_group_has_no_error_and_constants_have_error_zero():
    assert stderr_of_mean(np.array([1.0, 2.0]), np.array([4, 4])) == np.inf
    assert stderr_of_mean(np.ones(5), None) == 0


def test_shapes_are_checked():
    with pytest.raises(UserError, match="groups have shapes"):
        stderr_of_mean(np.ones(3), np.arange(2))
