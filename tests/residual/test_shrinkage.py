"""Shrinkage of variances from few squares: limits in closed form, and smaller errors."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from pdno.residual.shrinkage import FLOOR, NEAR, _boxes, _width, shrunk, spectrum
from tests.helpers import normal


def whole_mean(x: np.ndarray) -> np.ndarray:
    """Return the average over all values, at each of them."""
    return np.full(x.shape, x.mean())


def test_equal_variances_are_moved_to_their_geometric_mean() -> None:
    """They scatter less than sampling explains, so ω = 0; the bias of log v, ψ(ν/2) − log(ν/2), is removed."""
    v = np.array([1.0, 1.1, 0.9, 1.05])
    new = shrunk(v, np.full(4, 10.0), whole_mean, np.asarray(4))
    np.testing.assert_allclose(new, np.exp(np.log(v).mean() - digamma(5) + np.log(5)), rtol=1e-12)


def test_variances_that_differ_by_decades_hardly_change() -> None:
    """ω²/(ω² + τ²) by hand: one fraction for all."""
    v, squares = 10.0 ** np.arange(0.0, -8, -1), np.full(8, 10.0)
    log = np.log(v) - digamma(5) + np.log(5)
    sampling = float(polygamma(1, 5))
    spread = log.var(ddof=1) - sampling
    expected = log.mean() + (log - log.mean()) * spread / (spread + sampling)
    new = shrunk(v, squares, whole_mean, np.asarray(8))
    np.testing.assert_allclose(np.log(new), expected, rtol=1e-10)
    assert np.abs(np.log(new) - log).max() < 0.1


def test_a_variance_without_squares_is_the_average() -> None:
    v, squares = np.array([5.0, 1.0, 100.0]), np.array([0.0, 1e6, 1e6])
    new = shrunk(v, squares, lambda x: np.full(3, x[1:].mean()), np.asarray(2))
    assert new[0] == pytest.approx(10, rel=1e-4)  # the geometric mean of the others
    np.testing.assert_allclose(new[1:], v[1:], rtol=1e-3)


def test_shrunk_variances_have_smaller_errors() -> None:
    """500 variances that vary by a factor, from eight squares each."""
    truth = np.exp(0.3 * normal(500))
    v = truth * np.square(normal(8, 500, seed=1)).mean(axis=0)
    new = shrunk(v, np.full(500, 8.0), whole_mean, np.asarray(500))
    errors = [np.mean(np.log(each / truth) ** 2) for each in (new, v)]
    assert errors[0] < 0.4 * errors[1]


@pytest.mark.parametrize("periodic", [False, True])
def test_a_spectrum_has_mean_square_one_and_a_floor(periodic) -> None:
    power = np.array([[1.0, 1e-3, 1e-30, 0.0, 1e-30, 1e-3]])
    s = spectrum(power, 1000, (periodic,))
    assert np.mean(s**2) == pytest.approx(1)
    assert s.min() == pytest.approx(FLOOR * s.max())
    if periodic:
        np.testing.assert_array_equal(s[:, 1:], s[:, :0:-1])  # k and −k


def test_a_channel_without_power_is_white() -> None:
    np.testing.assert_allclose(spectrum(np.zeros((1, 8)), 10, (False,)), 1)


def test_neighbours_of_modes() -> None:
    """h is at most `half`, a fixed share of the wavenumber, and the distance to the highest one; j and n − j are one wave."""
    j = np.arange(12)
    np.testing.assert_array_equal(_width(12, False, 3), np.minimum(3, np.minimum(j // NEAR, 11 - j)))
    k = np.array([0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1])
    np.testing.assert_array_equal(_width(12, True, 3), np.minimum(3, np.minimum(k // NEAR, 6 - k)))
    assert _width(100, False, 3).max() == 3


def test_averages_over_neighbours() -> None:
    """Along each axis in turn, by hand."""
    x = np.arange(10.0).reshape(1, 2, 5) ** 2
    h = np.array([0, 1, 2, 1, 0])
    expected = [[row[i - w : i + w + 1].mean() for i, w in enumerate(h)] for row in x[0]]
    np.testing.assert_allclose(_boxes(x, [np.zeros(2, int), h])[0], expected)
    np.testing.assert_allclose(_boxes(x.swapaxes(1, 2), [h, np.zeros(2, int)])[0].T, expected)
