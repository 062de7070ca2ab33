"""S and t together: r = S⁻¹ (u − m(a))/t(a)."""

import numpy as np
import pytest

from pdno import Pairs
from pdno.residual import Inputs, Residuals
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
