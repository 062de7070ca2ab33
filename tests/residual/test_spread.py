"""S and t together: r = S⁻¹ (u − m(a))/t(a)."""

import numpy as np
import pytest

from pdno import Pairs
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Gaussian, Inputs, Residuals, Rows
from pdno.residual.amplitude import Amplitude
from pdno.residual.estimate import estimate_scale
from pdno.residual.spread import Spread
from tests.helpers import normal
from tests.residual.scales import dense


def planted(homoscedastic: bool, count: int = 200) -> tuple[Spread, Residuals]:
    """Return the spread of correlated residuals, whose size is that of the input unless they are homoscedastic."""
    rng = np.random.default_rng(0)
    t = np.ones((count, 1, 1)) if homoscedastic else np.exp(rng.standard_normal((count, 1, 1)))
    a = t * np.sin(np.linspace(0, 6, 16) + rng.uniform(0, 6, (count, 1, 1)))
    values = t * np.cumsum(rng.standard_normal((count, 1, 16)), axis=2)
    residuals = Residuals(Pairs.of(a, a + values), values)
    scale = estimate_scale(values, "both")
    amplitude = Amplitude.of(values, scale, a, a)
    assert (amplitude is None) == homoscedastic
    return Spread(scale, amplitude), residuals


@pytest.mark.parametrize("homoscedastic", [True, False])
def test_restoring_is_the_inverse_of_normalising(homoscedastic) -> None:
    spread, residuals = planted(homoscedastic)
    r = spread.normalised(residuals)
    np.testing.assert_array_equal(r, spread.without_noise(residuals))  # S has no null space
    np.testing.assert_allclose(spread.restored(r, residuals.inputs, np.arange(200)), residuals.values, atol=1e-10)
    assert r.std() == pytest.approx(1, abs=0.15)
    assert spread.is_homoscedastic == homoscedastic


def test_places_are_rows_of_the_inputs() -> None:
    spread, residuals = planted(False)
    r, places = normal(3, 1, 16), np.array([5, 0, 5])
    t = spread.sizes(residuals.inputs)[places].reshape(-1, 1, 1)
    np.testing.assert_array_equal(spread.restored(r, residuals.inputs, places), t * spread.scale.sqrt(r))


@pytest.mark.parametrize("homoscedastic", [True, False])
def test_the_volume_is_the_log_determinant(homoscedastic) -> None:
    """log det t(a) S, averaged over inputs."""
    spread, residuals = planted(homoscedastic)
    t = spread.sizes(residuals.inputs)
    expected = np.linalg.slogdet(dense(spread.scale, (1, 16)))[1] + 16 * np.log(t).mean()
    assert spread.log_volume(residuals) == pytest.approx(expected, abs=1e-9)


def test_sizes_are_computed_once_for_inputs(monkeypatch) -> None:
    spread, residuals = planted(False)
    calls, call = [], Amplitude.__call__

    def counted(self: Amplitude, *arguments: np.ndarray) -> np.ndarray:
        calls.append(len(arguments))
        return call(self, *arguments)

    monkeypatch.setattr(Amplitude, "__call__", counted)
    inputs = Inputs(residuals.pairs.a, residuals.pairs.u - residuals.values)
    for _ in range(3):
        spread.restored(normal(2, 1, 16), inputs, np.array([0, 1]))
    assert len(calls) == 1


@pytest.mark.parametrize("homoscedastic", [True, False])
def test_the_state_is_all_of_a_spread(homoscedastic) -> None:
    spread, residuals = planted(homoscedastic)
    again = Spread.from_state(spread.state())
    np.testing.assert_array_equal(again.normalised(residuals), spread.normalised(residuals))
    assert again.describe() == spread.describe()
    assert ("input-dependent scale" in spread.describe()) != homoscedastic


# Correlation of channels


def two_channels(count: int, seed: int, rho: float) -> Residuals:
    """Return residuals of standard deviations 1 and 1e-6 whose correlation is rho at each node."""
    xi, eta = np.random.default_rng(seed).standard_normal((2, count, 1, 16))
    values = np.concatenate([xi, 1e-6 * (rho * xi + np.sqrt(1 - rho**2) * eta)], axis=1)
    return Residuals(pairs_of(np.zeros((count, 1, 16)), values), values)


@pytest.mark.parametrize("rho", [0.8, -0.5])
def test_the_correlation_of_channels_is_that_of_members(rho) -> None:
    law = Gaussian().learn(two_channels(300, 0, rho), None, Terms())
    rows = Rows(0, np.zeros(500, int), np.arange(500), np.zeros(500, int))
    drawn = law.draw(two_channels(1, 1, rho).inputs, rows)
    assert np.corrcoef(drawn[:, 0].ravel(), drawn[:, 1].ravel())[0, 1] == pytest.approx(rho, abs=0.03)
    np.testing.assert_allclose(drawn.std(axis=(0, 2)), [1, 1e-6], rtol=0.05)
    r = law.spread.normalised(two_channels(300, 2, rho))
    assert abs(np.corrcoef(r[:, 0].ravel(), r[:, 1].ravel())[0, 1]) < 0.03
    assert "correlation of channels" in law.describe()


def test_independent_channels_stay_independent() -> None:
    assert Gaussian().learn(two_channels(300, 0, 0.0), None, Terms()).spread.channels is None


def test_the_density_of_correlated_channels_is_exact() -> None:
    """Against the Gaussian density of 2 × 2 blocks."""
    law, new = Gaussian("scalar").learn(two_channels(500, 0, 0.8), None, Terms()), two_channels(50, 1, 0.8)
    std, mixing = law.spread.scale.std.ravel(), law.spread.channels
    covariance = np.diag(std) @ mixing @ mixing.T @ np.diag(std)
    pairs = np.moveaxis(new.values, 1, 2).reshape(-1, 2)
    squares = np.einsum("ni,ij,nj->n", pairs, np.linalg.inv(covariance), pairs)
    expected = 0.5 * squares.sum() / 50 + 16 * (np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(covariance)[1])
    assert law.negative_log_density(new) == pytest.approx(expected, rel=1e-9)
