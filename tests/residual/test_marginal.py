"""Quantile functions by level of the scale."""

import numpy as np
import pytest

from pdno.residual.marginal import Marginal

RNG = np.random.default_rng(0)


def test_normal_scores_of_gaussian_values_are_the_values() -> None:
    values = RNG.standard_normal((400, 1, 64))
    marginal = Marginal.of(values, np.ones(values.shape), np.ones(values.shape))
    scores = marginal.scores(values, np.ones(values.shape), np.ones(values.shape))
    inside = np.abs(values) < 2
    np.testing.assert_allclose(scores[inside], values[inside], atol=0.08)
    np.testing.assert_allclose(
        marginal(values, np.ones(values.shape), np.ones(values.shape))[inside], values[inside], atol=0.08
    )


def test_a_coin_at_a_few_nodes_keeps_its_two_values() -> None:
    """σ is 1 at one node of 32, where the value is ±1, and .01 elsewhere, where it is a small Gaussian."""
    scale = np.where(np.arange(32) == 7, 1.0, 0.01) * np.ones((4000, 1, 1))
    values = np.where(scale == 1, RNG.choice([-1.0, 1.0], scale.shape), RNG.standard_normal(scale.shape))
    marginal = Marginal.of(values, scale, scale)
    draws = marginal(RNG.standard_normal((2000, 1, 32)), scale[:2000], scale[:2000])
    assert np.mean(np.isin(draws[..., 7], [-1, 1])) > 0.99
    assert draws[..., 7].mean() == pytest.approx(0, abs=0.1)
    assert draws[..., 8].std() == pytest.approx(1, rel=0.05)
    assert np.mean(np.isin(draws[..., 8], [-1, 1])) < 0.01


def test_scores_of_coins_are_normal() -> None:
    values = RNG.choice([-1.0, 1.0], (500, 1, 64))
    marginal = Marginal.of(values, np.ones(values.shape), np.ones(values.shape))
    scores = marginal.scores(values, np.ones(values.shape), np.ones(values.shape))
    assert scores.std() == pytest.approx(1, abs=0.02)
    assert np.mean(np.sign(scores) == values) > 0.99


def test_values_that_are_not_observed_are_ignored() -> None:
    values = RNG.standard_normal((400, 1, 32))
    mask = RNG.random(values.shape) < 0.7
    spoiled = np.where(mask, values, 1e6)
    marginal = Marginal.of(spoiled, np.ones(values.shape), np.ones(values.shape), mask)
    assert marginal.quantiles.max() == values[mask].max()


def test_values_may_depend_on_the_mean() -> None:
    """Next to the upper bound values are negative, next to the lower one positive."""
    mean = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], (500, 1, 64))
    values = np.abs(RNG.standard_normal(mean.shape)) * -mean
    marginal = Marginal.of(values, np.ones(mean.shape), mean)
    draws = marginal(RNG.standard_normal(mean.shape), np.ones(mean.shape), mean)
    assert (draws * mean <= 0.01).mean() > 0.99
    assert draws[mean == 1].std() == pytest.approx(np.abs(RNG.standard_normal(50_000)).std(), rel=0.05)
