"""Test 1 against the closed form."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from pdno import UserError
from pdno.equation import Elliptic1D


def test_reciprocal_polynomial_is_solved_up_to_rounding() -> None:
    """a = 1/(1 + x/2 + x²/3): u(x) = I(x)/I(1) with the cubic I = ∫ (1 + ξ/2 + ξ²/3) dξ."""
    eq = Elliptic1D(points=33)
    x = eq.grid.axes[0].nodes

    def integral(y: np.ndarray) -> np.ndarray:
        return (y + 1) + (y**2 - 1) / 4 + (y**3 + 1) / 9

    u = eq.solve(1 / (1 + x / 2 + x**2 / 3)[None])
    np.testing.assert_allclose(u[0], integral(x) / integral(np.array(1.0)), atol=1e-14)


@pytest.mark.parametrize(("log_scale", "tolerance"), [(0.1, 1e-9), (0.5, 1e-8)])
def test_field_of_the_paper_against_adaptive_quadrature(log_scale, tolerance) -> None:
    """u(x) = ∫_{−1}^x a⁻¹ / ∫_{−1}^1 a⁻¹ with a = exp(log_scale·V), at 128 points."""
    eq = Elliptic1D(points=128, log_scale=log_scale)
    cosine, sine = np.random.default_rng(0).standard_normal((2, 5))
    k = np.arange(1, 6)

    def coefficient(x: float) -> float:
        potential = (cosine * np.cos(np.pi * k * x) + sine * np.sin(np.pi * k * x)).sum() / np.sqrt(5)
        return float(np.exp(log_scale * potential))

    x = eq.grid.axes[0].nodes
    pieces = [quad(lambda y: 1 / coefficient(y), lo, hi, epsabs=1e-14)[0] for lo, hi in pairwise(x)]
    exact = np.concatenate([[0], np.cumsum(pieces)]) / np.sum(pieces)
    u = eq.solve(np.array([[coefficient(y) for y in x]]))[0]
    assert np.abs(u - exact).max() < tolerance


def test_quadrature_has_order_eight() -> None:
    errors = []
    for points in (17, 33, 65):
        x = np.linspace(-1, 1, points)
        u = Elliptic1D(points=points).solve(np.exp(-np.sin(4 * x))[None])[0]
        reference = np.linspace(-1, 1, 1025)
        exact = Elliptic1D(points=1025).solve(np.exp(-np.sin(4 * reference))[None])[0][:: 1024 // (points - 1)]
        errors.append(np.abs(u - exact).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (orders > 7.5).all(), (orders, errors)


def test_unresolved_coefficient_is_rejected() -> None:
    eq = Elliptic1D(points=128, log_scale=100)
    with pytest.raises(UserError, match="use more points, or a smaller log_scale"):
        eq.solve(eq.sample_input(5))


def test_residual_has_flux_differences_and_boundary_values() -> None:
    eq = Elliptic1D(points=16)
    a = eq.sample_input(2, seed=1)
    r = eq.residual(eq.solve(a) + 0.25, a)
    np.testing.assert_allclose(r[..., 1:-1], 0, atol=1e-12)
    np.testing.assert_allclose(r[..., [0, -1]], 0.25, atol=1e-12)


def test_inputs_are_log_normal_with_the_covariance_of_the_paper() -> None:
    """log a/log_scale has the covariance Σ_{k≤5} cos πk(x₂ − x₁)/5 (5 standard errors at 17 × 17 pairs, 4000 draws)."""
    eq = Elliptic1D(points=17, log_scale=0.3)
    v = np.log(eq.sample_input(4000, seed=2)[:, 0]) / 0.3
    x = eq.grid.axes[0].nodes
    exact = sum(np.cos(np.pi * k * (x[:, None] - x)) for k in range(1, 6)) / 5
    assert (np.abs(v.T @ v / 4000 - exact) < 5 * np.sqrt((1 + exact**2) / 4000)).all()
