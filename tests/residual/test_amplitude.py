"""The input-dependent scale t(a), from residuals whose sizes were planted."""

import numpy as np
import pytest

from pdno.residual.amplitude import Amplitude, _ridge
from pdno.residual.estimate import estimate_scale

X = np.linspace(0, 2 * np.pi, 64)


def drawn(count: int, explained: float, unexplained: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw inputs a, sizes t with log t = explained·z + unexplained·e, z being the log size of a, and residuals t S ξ."""
    rng = np.random.default_rng(seed)
    z, e = rng.standard_normal((2, count))
    a = np.exp(z)[:, None, None] * np.sin(X + rng.uniform(0, 6, (count, 1, 1)))
    t = np.exp(explained * z + unexplained * e)
    return a, t, 0.3 * t[:, None, None] * rng.standard_normal((count, 1, 64))


def estimated(count: int, explained: float, unexplained: float, seed: int = 0) -> tuple[Amplitude | None, float]:
    """Estimate the amplitude from such residuals; return it with the standard deviation S."""
    a, _, residuals = drawn(count, explained, unexplained, seed)
    scale = estimate_scale(residuals, "scalar")
    return Amplitude.of(residuals, scale, a, a), float(scale.std.ravel()[0])


@pytest.mark.parametrize("seed", range(5))
def test_homoscedastic_noise_has_no_amplitude(seed) -> None:
    assert estimated(400, 0.0, 0.0, seed)[0] is None


def test_correlated_homoscedastic_noise_has_none_either() -> None:
    """The size of few modes varies more by chance, which must not be taken for a dependence on the input."""
    rng = np.random.default_rng(0)
    residuals = (rng.standard_normal((300, 1, 4)) @ np.cos(np.arange(4)[:, None] * X / 2)) * 0.1
    a = rng.standard_normal((300, 1, 64))
    assert Amplitude.of(residuals, estimate_scale(residuals, "mode"), a, a) is None


@pytest.mark.parametrize(("explained", "unexplained"), [(1.0, 0.0), (0.5, 0.5), (0.0, 0.7)])
def test_planted_sizes_are_recovered(explained, unexplained) -> None:
    amplitude, unit = estimated(2000, explained, unexplained)
    assert amplitude is not None
    a, t, _ = drawn(1000, explained, unexplained, seed=1)
    error = np.log(amplitude(a, a) * unit / 0.3) - np.log(t)
    assert error.mean() == pytest.approx(0, abs=0.06)
    assert error.std() == pytest.approx(unexplained, abs=0.05)
    assert amplitude.rest.std() == pytest.approx(unexplained, abs=0.05)
    assert abs(amplitude.rest.mean()) < 1e-12


def test_members_are_distributed_as_new_residuals() -> None:
    """90 % intervals of t e S ξ cover 90 % of new residuals, within four standard errors; those of S ξ do not."""
    amplitude, unit = estimated(2000, 0.8, 0.6)
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
    """The size of few modes varies by chance, which S ξ contains already: it must not be counted twice."""
    rng = np.random.default_rng(0)
    basis = np.cos(np.arange(modes)[:, None] * (np.arange(64) + 0.5) * np.pi / 64)
    t = np.exp(0.5 * rng.standard_normal((3000, 1, 1)))
    residuals = t * (rng.standard_normal((3000, 1, modes)) @ basis)
    a = rng.standard_normal((3000, 1, 64))
    scale = estimate_scale(residuals, "mode")
    amplitude = Amplitude.of(residuals, scale, a, a)
    assert amplitude is not None
    sizes = amplitude(a, a) * amplitude.draw(0, np.arange(3000), np.zeros(3000))
    members = sizes[:, None, None] * scale.sqrt(rng.standard_normal(residuals.shape))
    assert members.std() == pytest.approx(residuals.std(), rel=0.06)


def test_channels_have_equal_weight_in_any_units() -> None:
    rng = np.random.default_rng(0)
    t = np.exp(rng.standard_normal((500, 1, 1)))
    xi = rng.standard_normal((500, 2, 64)) * np.array([[[1e5], [1.0]]])
    assert Amplitude.of(xi, estimate_scale(xi, "scalar"), xi, xi) is None
    both = Amplitude.of(t * xi, estimate_scale(t * xi, "scalar"), xi, xi)
    assert both is not None
    assert both.rest.std() == pytest.approx(1, abs=0.15)


def test_draws_are_functions_of_seed_input_and_member() -> None:
    amplitude, _ = estimated(200, 0.0, 0.7)
    assert amplitude is not None
    whole = amplitude.draw(5, np.array([3, 3, 4]), np.array([0, 1, 0]))
    np.testing.assert_array_equal(amplitude.draw(5, np.array([4]), np.array([0])), whole[2:])
    assert len(set(whole)) > 1
    assert set(np.log(amplitude.draw(6, np.arange(50), np.zeros(50))).round(9)) <= set(amplitude.rest.round(9))


def test_extrapolation_is_bounded() -> None:
    amplitude, _ = estimated(500, 1.0, 0.0)
    assert amplitude is not None
    a = drawn(1, 1.0, 0.0)[0]
    np.testing.assert_allclose(amplitude(1e9 * a, 1e9 * a), amplitude(1e12 * a, 1e12 * a))


@pytest.mark.parametrize("unexplained", [0.0, 0.7])
def test_sizes_are_within_those_seen(unexplained) -> None:
    """Inputs far outside of the training set have no size beyond the smallest and the largest one, with e and without."""
    a, _, residuals = drawn(60, 1.0, unexplained)
    scale = estimate_scale(residuals, "scalar")
    seen = np.sqrt(np.mean(residuals**2, axis=(1, 2))) / scale.std.ravel()
    amplitude = Amplitude.of(residuals, scale, a, a)
    assert amplitude is not None
    factors = np.array([1e-12, 1e-3, 1.0, 1e3, 1e12])[:, None, None]
    far = np.concatenate([factors * a[:1], factors + a[:1], np.cumsum(factors * a[:1], axis=2) ** 3])
    sizes = amplitude(far, far**2)
    inputs = np.repeat(np.arange(len(far)), 40)
    with_rest = sizes[inputs] * amplitude.draw(0, inputs, np.tile(np.arange(40), len(far)), sizes[inputs])
    mixture = amplitude.relative_sizes(sizes) * sizes[:, None]
    for each in (sizes, with_rest, mixture):
        assert each.max() <= 1.01 * seen.max()  # up to the mean log size of S ξ, which is not quite 0
        assert each.min() >= 0.99 * seen.min()
    again = Amplitude.from_state(amplitude.state())
    np.testing.assert_array_equal(again(far, far**2), sizes)


def test_fields_of_a_group_are_left_out_together() -> None:
    """Leave-one-out errors are those of refits without the group, constant included, and so is the penalty."""
    rng, labels = np.random.default_rng(0), np.array([0, 1, 1, 2, 0, 3, 3, 3, 4, 5, 6, 2, 7, 8, 1])
    x = rng.normal(size=(15, 3))
    x -= x.mean(axis=0)
    y = x[:, 0] + rng.normal(size=15)
    y -= y.mean()
    slope, errors = _ridge(x, y, labels)
    candidates = []
    for penalty in 15 * np.logspace(-4, 3, 15):
        left = np.empty(15)
        design, ridge = np.column_stack([np.ones(15), x]), penalty * np.diag([0.0, 1.0, 1.0, 1.0])
        for label in np.unique(labels):
            kept, out = design[labels != label], labels == label
            left[out] = y[out] - design[out] @ np.linalg.solve(kept.T @ kept + ridge, kept.T @ y[labels != label])
        candidates.append((np.square(left).sum(), left, np.linalg.solve(x.T @ x + penalty * np.eye(3), x.T @ y)))
    _, expected, expected_slope = min(candidates, key=lambda each: each[0])
    np.testing.assert_allclose(errors, expected, atol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, atol=1e-12)


def test_sizes_of_repeated_inputs_are_not_learned_by_heart() -> None:
    """Eight inputs with unrelated sizes, 25 fields of each: sizes at new inputs vary little, the rest as planted."""
    rng = np.random.default_rng(1)
    a = np.exp(rng.normal(size=(8, 1, 1))) * np.sin(X + rng.uniform(0, 6, (8, 1, 1)))
    t, labels = np.exp(0.5 * rng.normal(size=8)), np.repeat(np.arange(8), 25)
    residuals = t[labels, None, None] * rng.normal(size=(200, 1, 64))
    amplitude = Amplitude.of(residuals, estimate_scale(residuals, "scalar"), a[labels], a[labels], group=labels)
    assert amplitude is not None
    new = np.exp(rng.normal(size=(300, 1, 1))) * np.sin(X + rng.uniform(0, 6, (300, 1, 1)))
    assert np.log(amplitude(new, new)).std() < 0.05
    assert amplitude.rest.std() > 0.9 * np.log(t).std()


@pytest.mark.parametrize("count", [1, 5, 19])
def test_few_fields_give_no_amplitude(count) -> None:
    assert estimated(count, 1.0, 1.0)[0] is None


def test_zero_residuals_have_none() -> None:
    residuals = np.zeros((50, 1, 64))
    assert Amplitude.of(residuals, estimate_scale(residuals), residuals, residuals) is None


def test_the_state_is_all_of_an_amplitude() -> None:
    amplitude, _ = estimated(200, 0.5, 0.5)
    assert amplitude is not None
    again = Amplitude.from_state(amplitude.state())
    a = drawn(7, 0.5, 0.5)[0]
    np.testing.assert_array_equal(again(a, a), amplitude(a, a))
    np.testing.assert_array_equal(again.draw(0, np.arange(9), np.arange(9)), amplitude.draw(0, np.arange(9), np.arange(9)))
    assert "larger for some inputs" in amplitude.describe()


def test_scalars_explain_sizes() -> None:
    rng = np.random.default_rng(0)
    a, noise = rng.standard_normal((2, 400, 1, 32))
    s = np.exp(rng.uniform(-1, 1, (400, 1)))
    residuals = s[:, :, None] * noise
    amplitude = Amplitude.of(residuals, estimate_scale(residuals, "scalar"), a, a, s)
    assert amplitude is not None
    ratio = amplitude(a, a, s) / s[:, 0]
    assert ratio.std() / ratio.mean() < 0.05
