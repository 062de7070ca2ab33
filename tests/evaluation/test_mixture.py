"""Gaussian mixtures with the number of components by held-out likelihood: known weights, means and standard deviations."""

import numpy as np
import pytest

from pdno.evaluation.mixture import components
from pdno.noise import GaussianMixture


def draws(count: int, seed: int = 0, weights=(0.3, 0.7), means=(-1.0, 1.0), stds=(0.1, 0.3)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    k = rng.choice(len(weights), count, p=weights)
    return np.array(means)[k] + np.array(stds)[k] * rng.normal(size=count)


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_a_mixture_of_two_is_recovered_within_its_errors(unit) -> None:
    found = components(5 + unit * draws(400))
    assert len(found) == found.modes == 2
    assert np.abs((found.mixture.weights - [0.3, 0.7]) / found.weight_errors).max() < 4
    assert np.abs((found.mixture.means - 5 - unit * np.array([-1, 1])) / found.mean_errors).max() < 4
    assert np.abs((found.mixture.stds - unit * np.array([0.1, 0.3])) / found.std_errors).max() < 4
    assert found.weight_errors == pytest.approx(np.sqrt(0.3 * 0.7 / 400), rel=0.3)
    assert found.mean_errors == pytest.approx(unit * np.array([0.1, 0.3]) / np.sqrt(400 * np.array([0.3, 0.7])), rel=0.4)


@pytest.mark.parametrize(("number", "modes"), [(1, 3), (2, 4)])
def test_the_papers_noise_has_its_modes(number, modes) -> None:
    values = GaussianMixture.case(number).sample((300, 1, 1), seed=3).ravel()
    found = components(values)
    assert len(found) == found.modes == modes


def test_one_gaussian_is_rarely_divided() -> None:
    """60 data sets of 80 draws: the smaller mixture is preferred within one standard error."""
    many = sum(len(components(x)) > 1 for x in np.random.default_rng(0).normal(size=(60, 80)))
    assert many <= 6


def test_heavy_tails_are_one_mode() -> None:
    found = components(np.random.default_rng(1).standard_t(2, size=600))
    assert len(found) > 1
    assert found.modes == 1


def test_held_out_likelihood_of_one_gaussian_by_hand() -> None:
    """Five folds of a draw each: every draw is predicted by the normal distribution of the other four."""
    x = np.array([1.0, 2.0, 4.0, 7.0, 11.0])
    others = [np.delete(x, i) for i in range(5)]
    exact = [
        -0.5 * ((v - o.mean()) / o.std()) ** 2 - np.log(o.std() * np.sqrt(2 * np.pi)) for v, o in zip(x, others, strict=True)
    ]
    assert components(x).held_out == pytest.approx([np.mean(exact)])


def test_dependent_draws_are_held_out_together() -> None:
    """Twenty values, each ten times: single draws would show spikes; groups show one Gaussian."""
    x = np.repeat(np.random.default_rng(2).normal(size=20), 10)
    assert len(components(x, labels=np.repeat(np.arange(20), 10))) == 1
    assert len(components(x)) > 1


def test_too_few_draws() -> None:
    assert components(np.ones(9)) is None
    assert components([1.0]) is None
    assert len(components([1.0, 2.0])) == 1
    assert np.isnan(components([1.0, 2.0, 3.0], labels=np.zeros(3, int)).mean_errors).all()
