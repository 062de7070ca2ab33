"""Gaussian fields with bounds against closed forms: truncated normal variables, orthants, conditional means."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from pdno.residual.truncated import Factors

COUNT = 20_000  # of fields


def completed(factors: Factors, e: np.ndarray, bounded: np.ndarray, bounds: np.ndarray, steps: int = 30) -> np.ndarray:
    return factors.completed(e, bounded, bounds, steps, np.random.default_rng(0))


@pytest.mark.parametrize(("side", "bound"), [(1, 0.5), (-1, 0.5), (1, -2.0)])
def test_one_node_is_a_truncated_normal_variable(side, bound) -> None:
    """Mean and standard deviation within five standard errors."""
    factors = Factors(np.zeros((1, 1)), np.ones(1))
    start = np.full((COUNT, 1), bound - side)
    drawn = completed(factors, start, np.full((COUNT, 1), float(side)), np.full((COUNT, 1), bound))
    truth = truncnorm(-np.inf, bound) if side > 0 else truncnorm(bound, np.inf)
    assert (side * (drawn - bound) <= 0).all()
    assert drawn.mean() == pytest.approx(truth.mean(), abs=5 * truth.std() / np.sqrt(COUNT))
    assert drawn.std() == pytest.approx(truth.std(), rel=5 * np.sqrt(truth.stats("k") + 2) / 2 / np.sqrt(COUNT))


def test_two_correlated_nodes_below_zero() -> None:
    """With correlation ρ and unit variance, P(both < 0) = ¼ + arcsin ρ/2π and E[e; both < 0] = −(1 + ρ)/√(8π)."""
    rho = 0.9
    factors = Factors(np.full((1, 2), np.sqrt(rho)), np.full(2, 1 - rho))
    drawn = completed(factors, np.full((COUNT, 2), -1.0), np.ones((COUNT, 2)), np.zeros((COUNT, 2)))
    expected = -(1 + rho) / np.sqrt(8 * np.pi) / (0.25 + np.arcsin(rho) / (2 * np.pi))
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=5 * drawn.std() / np.sqrt(COUNT))


def test_nodes_with_bounds_follow_observed_ones() -> None:
    """With a bound that never matters, the others are N(ρ e, 1 − ρ²)."""
    rho, rng = 0.8, np.random.default_rng(1)
    factors = Factors(np.full((1, 2), np.sqrt(rho)), np.full(2, 1 - rho))
    e = np.column_stack([rng.standard_normal(COUNT), np.zeros(COUNT)])
    drawn = completed(factors, e, np.tile([0.0, 1.0], (COUNT, 1)), np.full((COUNT, 2), 50.0))
    np.testing.assert_array_equal(drawn[:, 0], e[:, 0])
    rest = drawn[:, 1] - rho * e[:, 0]
    assert abs(rest.mean()) < 5 * np.sqrt((1 - rho**2) / COUNT)
    assert rest.std() == pytest.approx(np.sqrt(1 - rho**2), rel=5 / np.sqrt(2 * COUNT))


def test_smooth_fields_forget_where_they_began() -> None:
    """All of forty strongly correlated nodes are below zero: twenty steps remove a start ten standard deviations away."""
    count, nodes = 2000, 40
    factors = Factors(np.ones((1, nodes)), np.full(nodes, 1e-3))
    shape = (count, nodes)
    starts = [np.full(shape, -0.01), np.full(shape, -10.0)]
    means = [completed(factors, start, np.ones(shape), np.zeros(shape), steps=20).mean(axis=1) for start in starts]
    assert means[0].mean() == pytest.approx(means[1].mean(), abs=5 * np.sqrt(2 / count) * means[0].std())
    assert means[0].mean() == pytest.approx(-np.sqrt(2 / np.pi), abs=0.1)  # a half-normal variable, less the white part


def test_factors_are_those_of_the_fields() -> None:
    rng = np.random.default_rng(0)
    shape = np.sin(np.linspace(0, np.pi, 30))
    fields = rng.standard_normal((4000, 1)) * shape + 0.1 * rng.standard_normal((4000, 30))
    factors = Factors.of(fields)
    np.testing.assert_allclose(factors.loadings.T @ factors.loadings, np.outer(shape, shape), atol=0.06)
    np.testing.assert_allclose(np.square(factors.loadings).sum(axis=0) + factors.own, np.square(fields).mean(axis=0), rtol=0.02)
