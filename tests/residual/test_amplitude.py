"""Sizes of residuals that depend on the input."""

import numpy as np
import pytest

from pdno.residual.amplitude import Amplitude
from pdno.residual.scale import Scale

X = np.linspace(0, 2 * np.pi, 64)


def drawn(count: int, tells: float, beyond: float, seed: int = 0):
    """Inputs whose roughness tells log t but for a part, answers, and residuals t S ξ."""
    rng = np.random.default_rng(seed)
    z, e = rng.standard_normal((2, count))
    a = np.exp(z)[:, None, None] * np.sin(X + rng.uniform(0, 6, (count, 1, 1)))
    t = np.exp(tells * z + beyond * e)
    return a, t, 0.3 * t[:, None, None] * rng.standard_normal((count, 1, 64))


def found(count: int, tells: float, beyond: float, seed: int = 0) -> tuple[Amplitude | None, float]:
    a, _, residuals = drawn(count, tells, beyond, seed)
    scale = Scale.of(residuals, "scalar")
    return Amplitude.of(residuals, scale, a, a), float(scale.std.ravel()[0])


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_one_size_has_no_amplitude(seed) -> None:
    assert found(400, 0.0, 0.0, seed)[0] is None


def test_correlated_noise_of_one_size_has_none_either() -> None:
    """Few modes scatter more by chance: that is not taken for a dependence on the input."""
    rng = np.random.default_rng(0)
    residuals = (rng.standard_normal((300, 1, 4)) @ np.cos(np.arange(4)[:, None] * X / 2)) * 0.1
    a = rng.standard_normal((300, 1, 64))
    assert Amplitude.of(residuals, Scale.of(residuals, "mode"), a, a) is None


@pytest.mark.parametrize(("tells", "beyond"), [(1.0, 0.0), (0.5, 0.5), (0.0, 0.7)])
def test_what_was_planted_is_found(tells, beyond) -> None:
    amplitude, unit = found(2000, tells, beyond)
    assert amplitude is not None
    a, t, _ = drawn(1000, tells, beyond, seed=1)
    error = np.log(amplitude(a, a) * unit / 0.3) - np.log(t)
    assert error.mean() == pytest.approx(0, abs=0.06)
    assert error.std() == pytest.approx(beyond, abs=0.05)  # what the input does not tell
    assert amplitude.rest.std() == pytest.approx(beyond, abs=0.05)
    assert abs(amplitude.rest.mean()) < 1e-12


def test_members_have_the_law_of_new_residuals() -> None:
    """Intervals of t S ξ e hold what they promise for fresh fields, where those of S ξ do not."""
    amplitude, unit = found(2000, 0.8, 0.6)
    assert amplitude is not None
    a, _, fresh = drawn(400, 0.8, 0.6, seed=2)
    inputs, members = np.divmod(np.arange(400 * 200), 200)
    e = amplitude.draw(0, inputs, members).reshape(400, 200)
    xi = np.random.default_rng(3).standard_normal((400, 200))
    upper = np.quantile(np.abs(amplitude(a, a)[:, None] * e * unit * xi), 0.9, axis=1)
    inside = (np.abs(fresh[:, 0]) < upper[:, None]).mean(axis=1)
    assert inside.mean() == pytest.approx(0.9, abs=4 * inside.std() / 20)
    flat = (np.abs(fresh) < 1.645 * unit).mean(axis=(1, 2))
    assert abs(flat.mean() - 0.9) > 4 * flat.std() / 20 or flat.std() > 2 * inside.std()


@pytest.mark.parametrize("modes", [3, 10])
def test_correlated_errors_keep_their_size(modes) -> None:
    """Few modes scatter in size by themselves, which is in S ξ already: together with t it must not count twice."""
    rng = np.random.default_rng(0)
    basis = np.cos(np.arange(modes)[:, None] * (np.arange(64) + 0.5) * np.pi / 64)
    t = np.exp(0.5 * rng.standard_normal((3000, 1, 1)))
    residuals = t * (rng.standard_normal((3000, 1, modes)) @ basis)
    a = rng.standard_normal((3000, 1, 64))
    scale = Scale.of(residuals, "mode")
    amplitude = Amplitude.of(residuals, scale, a, a)
    assert amplitude is not None
    sizes = amplitude(a, a) * amplitude.draw(0, np.arange(3000), np.zeros(3000))
    drawn_ones = sizes[:, None, None] * scale.restore(rng.standard_normal(residuals.shape))
    assert drawn_ones.std() == pytest.approx(residuals.std(), rel=0.06)


def test_channels_count_alike_whatever_their_units() -> None:
    rng = np.random.default_rng(0)
    t = np.exp(rng.standard_normal((500, 1, 1)))
    xi = rng.standard_normal((500, 2, 64)) * np.array([[[1e5], [1.0]]])
    assert Amplitude.of(xi, Scale.of(xi, "scalar"), xi, xi) is None
    both = Amplitude.of(t * xi, Scale.of(t * xi, "scalar"), xi, xi)
    assert both is not None
    assert both.rest.std() == pytest.approx(1, abs=0.15)


def test_draws_are_functions_of_seed_input_and_member() -> None:
    amplitude, _ = found(200, 0.0, 0.7)
    assert amplitude is not None
    whole = amplitude.draw(5, np.array([3, 3, 4]), np.array([0, 1, 0]))
    np.testing.assert_array_equal(amplitude.draw(5, np.array([4]), np.array([0])), whole[2:])
    assert len(set(whole)) > 1
    assert set(np.log(amplitude.draw(6, np.arange(50), np.zeros(50))).round(9)) <= set(amplitude.rest.round(9))


def test_inputs_far_from_those_seen_are_not_extrapolated_without_end() -> None:
    amplitude, _ = found(500, 1.0, 0.0)
    assert amplitude is not None
    a = drawn(1, 1.0, 0.0)[0]
    np.testing.assert_allclose(amplitude(1e9 * a, 1e9 * a), amplitude(1e12 * a, 1e12 * a))


@pytest.mark.parametrize("count", [1, 5, 19])
def test_few_fields_tell_nothing(count) -> None:
    assert found(count, 1.0, 1.0)[0] is None


def test_exact_answers_have_none() -> None:
    residuals = np.zeros((50, 1, 64))
    assert Amplitude.of(residuals, Scale.of(residuals), residuals, residuals) is None


def test_arrays_are_all_of_it() -> None:
    amplitude, _ = found(200, 0.5, 0.5)
    assert amplitude is not None
    again = Amplitude.from_arrays(amplitude.arrays())
    a = drawn(7, 0.5, 0.5)[0]
    np.testing.assert_array_equal(again(a, a), amplitude(a, a))
    np.testing.assert_array_equal(again.draw(0, np.arange(9), np.arange(9)), amplitude.draw(0, np.arange(9), np.arange(9)))
    assert "larger for some inputs" in amplitude.describe()


def test_scalars_tell_sizes() -> None:
    rng = np.random.default_rng(0)
    a, noise = rng.standard_normal((2, 400, 1, 32))
    s = np.exp(rng.uniform(-1, 1, (400, 1)))
    residuals = s[:, :, None] * noise
    amplitude = Amplitude.of(residuals, Scale.of(residuals, "scalar"), a, a, s)
    assert amplitude is not None
    ratio = amplitude(a, a, s) / s[:, 0]
    assert ratio.std() / ratio.mean() < 0.05
