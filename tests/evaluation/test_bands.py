"""Sizes of fields by wavelength."""

import numpy as np
import pytest

from pdno.basis import modes
from pdno.evaluation.bands import COARSE, OCTAVES, QUARTERS, Bands, Regression, enlarged, matched

GRIDS = [((64,), (False,)), ((30,), (True,)), ((12, 20), (True, False))]


def fields(grid: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((5, 2, *grid))


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
@pytest.mark.parametrize("edges", [COARSE, OCTAVES])
def test_sizes_add_up_to_that_of_the_field(grid, periodic, edges) -> None:
    """Parseval: the mean of squares over nodes is that over modes."""
    bands, e = Bands(grid, periodic, edges), fields(grid)
    counts = np.bincount(bands._number)
    total = np.square(bands.sizes(e)) @ counts / counts.sum()
    np.testing.assert_allclose(total, np.square(e).reshape(5, -1).mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose((bands.power(e) @ counts).mean() / counts.sum(), np.square(e).mean(), rtol=1e-12)
    assert counts.min() >= 4


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_bands_are_multiplied_one_by_one(grid, periodic) -> None:
    bands, e = Bands(grid, periodic, COARSE), fields(grid)
    factors = np.random.default_rng(1).uniform(0.5, 2, (5, 1, bands.count))
    out = bands.multiplied(e, factors)
    np.testing.assert_allclose(bands.sizes(out), bands.sizes(e) * factors[:, 0], rtol=1e-12)
    np.testing.assert_allclose(bands.multiplied(out, 1 / factors), e, atol=1e-12)


def test_a_smooth_field_has_no_rough_part() -> None:
    bands = Bands((64,), (False,), COARSE)
    x = (np.arange(64) + 0.5) / 64
    smooth, *rough = bands.sizes(np.cos(3 * np.pi * x)[None, None])[0]
    assert smooth > 0.5
    assert max(rough) < 1e-12


def test_units_of_channels() -> None:
    bands, e = Bands((64,), (False,), COARSE), fields((64,))
    unit = np.array([[1.0], [1e-6]])
    np.testing.assert_allclose(bands.sizes(e * unit, unit), bands.sizes(e))


def test_enlarged_fields_have_the_size_of_others_in_each_octave_and_keep_zeros() -> None:
    rng = np.random.default_rng(0)
    train, new = 0.2 * rng.standard_normal((500, 1, 64)), 0.25 * rng.standard_normal((500, 1, 64))
    train[..., [0, -1]] = 0.0
    new[..., [0, -1]] = 0.0
    out = enlarged(train, new, (False,))
    assert not out[..., [0, -1]].any()
    np.testing.assert_allclose(out[..., 1:-1].std(), 0.25, rtol=0.02)
    np.testing.assert_allclose(enlarged(new, train, (False,)), new, atol=1e-12)


def test_a_grid_of_few_nodes_has_one_band() -> None:
    bands, e = Bands((3,), (False,), OCTAVES), fields((3,))
    assert bands.count == 1
    np.testing.assert_allclose(bands.multiplied(e, np.full((1, 1, 1), 2.0)), 2 * e)
    np.testing.assert_allclose(bands.power(e)[:, 0], np.square(modes(e, (False,))).mean(axis=(0, 2)))


def test_matched_fields_have_the_error_of_held_out_ones_whatever_their_noise() -> None:
    """Noise of two sizes, by a number of each field; predictions have an error that is missing in-sample."""
    rng = np.random.default_rng(0)
    number, new_number = (rng.integers(0, 2, n).astype(float) for n in (1500, 300))
    noise, new_noise = (np.where(k, 0.3, 0.02)[:, None, None] for k in (number, new_number))
    train, error = noise * rng.standard_normal((1500, 1, 64)), 0.02 * rng.standard_normal((300, 1, 64))
    new = new_noise * rng.standard_normal((300, 1, 64)) + error
    out = matched(train, new, number[:, None], new_number[:, None], (False,))
    for k, std in ((0, 0.02), (1, 0.3)):
        np.testing.assert_allclose(out[number == k].std(), np.hypot(std, 0.02), rtol=0.03)
    pooled = enlarged(train, new, (False,))
    assert pooled[number == 0].std() < 0.024


def test_matched_fields_of_one_noise_are_enlarged_like_all() -> None:
    rng = np.random.default_rng(0)
    train, new = 0.2 * rng.standard_normal((500, 2, 64)), 0.25 * rng.standard_normal((200, 2, 64))
    train[..., 0] = new[..., 0] = 0.0
    out = matched(train, new, rng.random((500, 1)), rng.random((200, 1)), (False,))
    assert not out[..., 0].any()
    np.testing.assert_allclose(out[..., 1:].std(), 0.25, rtol=0.02)
    few = matched(train, new[:20], np.zeros((500, 1)), np.zeros((20, 1)), (False,))
    np.testing.assert_array_equal(few, enlarged(train, new[:20], (False,)))


def test_errors_are_uncorrelated_with_a_regressed_prediction_in_each_band() -> None:
    """u = m + noise and m̂ = m + error, with m smooth: at short wavelengths m̂ is error alone."""
    rng, bands = np.random.default_rng(0), Bands((64,), (True,), QUARTERS)
    smooth = np.array([1.0 if b < 3 else 0.1 if b == 3 else 0.0 for b in range(bands.count)])
    m = 3.0 + bands.multiplied(rng.standard_normal((4000, 1, 64)), smooth[None, None])
    error, noise = 0.1 * rng.standard_normal(m.shape), 0.05 * rng.standard_normal(m.shape)
    regression = Regression.of(m[:2000] + noise[:2000], m[:2000] + error[:2000], (True,))
    expected = smooth**2 / (smooth**2 + 0.01)
    np.testing.assert_allclose(regression.factors[0], expected, atol=0.03)  # one standard error larger
    new, u = regression(m[2000:] + error[2000:]), m[2000:] + noise[2000:]
    products = bands.products(u - new, new - 3.0).sum(axis=(0, 1))
    np.testing.assert_allclose(products / bands.products(u - 3.0, u - 3.0).sum(axis=(0, 1)), 0.0, atol=0.02)
    assert np.mean((new - m[2000:]) ** 2) < 0.5 * np.mean(error**2)
    again = Regression.from_state(regression.state())
    np.testing.assert_array_equal(again(m), regression(m))


def test_fields_that_are_periodic_need_not_be_declared_so() -> None:
    """Cosine series of smooth periodic fields decay slowly, Fourier series do not; errors of the prediction are white."""
    rng, x = np.random.default_rng(0), np.arange(64) / 64
    waves = [np.sin(2 * np.pi * (k * x + rng.random((400, 1, 1)))) for k in (1, 2, 3)]
    u = np.sum(waves, axis=0)
    prediction = u + 0.1 * rng.standard_normal(u.shape)
    regression = Regression.of(u[:200], prediction[:200], (False,))
    assert regression.bands.periodic == (True,)
    assert np.mean((regression(prediction[200:]) - u[200:]) ** 2) < 0.3 * 0.1**2
    steps = np.sign(x - rng.random((400, 1, 1)))
    assert Regression.of(steps, steps + 0.1 * rng.standard_normal(u.shape), (False,)).bands.periodic == (False,)


def test_a_prediction_is_not_enlarged_and_not_changed_by_chance() -> None:
    rng = np.random.default_rng(0)
    u = rng.standard_normal((40, 1, 32))
    assert (Regression.of(u, 0.5 * u, (False,)).factors == 1).all()
    assert (Regression.of(u, u, (False,)).factors == 1).all()
    exact = Regression.of(u, u, (False,))
    assert exact(u) is u
