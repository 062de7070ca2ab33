"""Sizes of fields by wavelength."""

import numpy as np
import pytest

from pdno.basis import modes
from pdno.evaluation.bands import COARSE, OCTAVES, Bands, enlarged

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
