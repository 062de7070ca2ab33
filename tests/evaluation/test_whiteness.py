"""Tests of white Gaussian noise must accept it, and reject other distributions."""

import numpy as np
import pytest

from pdno.evaluation.whiteness import components_look_gaussian, is_uncorrelated, looks_gaussian, neighbour_correlation


@pytest.mark.parametrize("seed", range(5))
def test_white_gaussian_noise_is_accepted(seed) -> None:
    assert looks_gaussian(np.random.default_rng(seed).standard_normal((500, 1, 32)))


@pytest.mark.parametrize(
    "law",
    [
        lambda rng, shape: np.sign(rng.standard_normal(shape)),
        lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
        lambda rng, shape: rng.exponential(size=shape) - 1,
        lambda rng, shape: rng.standard_normal(shape) * np.exp(0.5 * rng.standard_normal((shape[0], 1, 1)) - 0.5),
        lambda rng, shape: np.cumsum(rng.standard_normal(shape), axis=2) / 4,
        lambda rng, shape: 0.7 * rng.standard_normal(shape) + 0.7 * np.sign(rng.standard_normal((shape[0], 1, 1))),
    ],
    ids=["coins", "Laplace", "skew", "different sizes", "random walk", "shared shifts"],
)
def test_other_distributions_are_rejected(law) -> None:
    assert not looks_gaussian(law(np.random.default_rng(0), (500, 1, 32)))


def test_a_coin_that_a_field_shares_is_not_gaussian_although_its_nodes_are() -> None:
    rng = np.random.default_rng(0)
    white = rng.standard_normal((400, 1, 32))
    assert components_look_gaussian(white)
    assert components_look_gaussian(white + rng.standard_normal((400, 1, 1)))
    assert not components_look_gaussian(white + 2 * rng.choice([-1.0, 1.0], (400, 1, 1)))
    assert not components_look_gaussian(white + rng.exponential(size=(400, 1, 1)))


def test_gaussian_components_are_rejected_rarely() -> None:
    """Five tests of four standard errors, with correlated fields: 3 of 200 were rejected."""
    rng = np.random.default_rng(1)
    found = [
        components_look_gaussian(rng.standard_normal((120, 1, 1)) + 0.3 * rng.standard_normal((120, 1, 8))) for _ in range(200)
    ]
    assert np.mean(found) > 0.95


def test_correlations_count_if_so_many_values_can_show_them() -> None:
    """White noise passes with any number of values; a smooth error of 2 % of its variance is found among 400,000 of them."""
    rng = np.random.default_rng(0)
    for shape in ((20, 1, 16), (100, 1, 64, 64)):
        assert is_uncorrelated(rng.standard_normal(shape))  # wrong in 1 of 16,000 cases
    noise = rng.standard_normal((100, 1, 64, 64))
    assert not is_uncorrelated(noise + np.sqrt(0.02) * rng.standard_normal((100, 1, 1, 1)))
    assert is_uncorrelated(noise + np.sqrt(0.001) * rng.standard_normal((100, 1, 1, 1)))  # negligible
    few = noise[:4, :, :20, :20] + np.sqrt(0.02) * rng.standard_normal((4, 1, 1, 1))
    assert is_uncorrelated(few)  # 1600 values have a standard error of .025


def test_missing_values_do_not_hide_a_correlation() -> None:
    """Neighbours that are observed together are as correlated as all neighbours; white noise with gaps is uncorrelated."""
    rng = np.random.default_rng(0)
    smooth, white = np.sin(rng.uniform(0, 6, (1000, 1, 1)) + np.linspace(0, 6, 64)), rng.standard_normal((1000, 1, 64))
    mask = rng.random(smooth.shape) < 0.3
    assert neighbour_correlation(smooth, mask) == pytest.approx(neighbour_correlation(smooth), abs=0.05)
    assert not is_uncorrelated(smooth, mask)
    assert is_uncorrelated(white, mask)
    alone = np.broadcast_to(np.arange(64) % 2 == 0, smooth.shape)  # no two neighbours: nothing shows that it is white
    assert not is_uncorrelated(white, alone)


def test_white_noise_of_different_sizes_is_uncorrelated() -> None:
    """Sizes of fields differ by factors, or are large at some nodes: of 40 data sets none is rejected."""
    rng = np.random.default_rng(0)
    sizes = [np.exp(rng.standard_normal((100, 1, 1))), 0.05 + (np.arange(256) < 20)]
    assert all(is_uncorrelated(size * rng.standard_normal((100, 1, 256))) for size in sizes for _ in range(20))
