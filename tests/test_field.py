"""Gaussian fields against closed-form kernels, and nested draws."""

import numpy as np
import pytest

from pdno import Field, Grid, UserError
from pdno.field import TrigonometricPotential, _nested_order
from pdno.grid import Axis, restrict

BASES = [
    ("cell", "neumann"),
    ("vertex", "neumann"),
    ("cell", "dirichlet"),
    ("vertex", "dirichlet"),
    ("periodic", "periodic"),
]


def covariance(field: Field, grid: Grid) -> np.ndarray:
    """Return the exact covariance matrix of the values at the nodes, from the modes."""
    modes = field.eigenvalues(grid).size
    rows = field.values(np.sqrt(field.eigenvalues(grid)).ravel() * np.eye(modes), grid)
    return rows.T @ rows


def test_brownian_bridge() -> None:
    """−u″ with Dirichlet conditions has the Green's function min(x, y) − xy; the error of K modes is at most 2/(π²K)."""
    grid = Grid.uniform(33)
    x, y = np.meshgrid(grid.axes[0].nodes, grid.axes[0].nodes)
    kernel = covariance(Field(tau=0, r=1, condition="dirichlet", modes=4000), grid)
    np.testing.assert_allclose(kernel, np.minimum(x, y) - x * y, atol=6e-5)


def test_periodic_exponential_kernel() -> None:
    """(−Δ + τ²)⁻¹ on the circle of length one has the kernel cosh(τ(½ − |x − y|))/(2τ sinh(τ/2))."""
    tau, grid = 4.0, Grid.uniform(32, kind="periodic")
    x, y = np.meshgrid(grid.axes[0].nodes, grid.axes[0].nodes)
    exact = np.cosh(tau * (0.5 - np.abs(x - y))) / (2 * tau * np.sinh(tau / 2))
    np.testing.assert_allclose(covariance(Field(tau, r=1, condition="periodic", modes=4001), grid), exact, atol=6e-5)


def test_neumann_kernel_on_an_interval_of_another_length() -> None:
    """(−Δ + τ²)⁻¹ on (0, L): cosh τ min(x, y) · cosh τ(L − max(x, y)) / (τ sinh τL)."""
    tau, length = 2.0, 3.0
    grid = Grid.uniform(25, kind="cell", high=length)
    x, y = np.meshgrid(grid.axes[0].nodes, grid.axes[0].nodes)
    exact = np.cosh(tau * np.minimum(x, y)) * np.cosh(tau * (length - np.maximum(x, y))) / (tau * np.sinh(tau * length))
    np.testing.assert_allclose(covariance(Field(tau, r=1, modes=4000), grid), exact, atol=2e-4)


@pytest.mark.parametrize(("kind", "condition"), BASES)
def test_spectrum_of_draws_in_two_dimensions(kind, condition) -> None:
    """Whitened coefficients are standard normal: χ² of all, and the largest of 12 × 10 modes (false-alarm rate 10⁻⁴)."""
    grid = Grid.uniform((12, 10), kind=kind)
    field = Field(tau=3, r=1.5, scale=7, condition=condition)
    count = 4000
    lam = field.eigenvalues(grid)
    white = field.coefficients(field.sample(grid, count, seed=1), grid) / np.sqrt(lam)
    z = ((white**2).mean(axis=0) - 1) / np.sqrt(2 / count)
    assert abs(z.sum() / np.sqrt(z.size)) < 3.9
    assert np.abs(z).max() < 5.2
    cross = (white[:, 0, 0] * white[:, 1, 2]).mean() * np.sqrt(count)
    assert abs(cross) < 3.9


@pytest.mark.parametrize(("kind", "condition"), BASES)
def test_pointwise_variance(kind, condition) -> None:
    """Against the exact covariance, and against draws (5 standard errors at 96 points: false-alarm rate 10⁻⁴)."""
    grid = Grid.uniform((12, 8), kind=kind)
    field = Field(tau=3, r=2, scale=50, condition=condition)
    lam = field.eigenvalues(grid)
    basis = field.values(np.eye(lam.size).reshape(lam.size, *lam.shape), grid)
    exact = np.einsum("m,mxy->xy", lam.ravel(), basis**2)
    np.testing.assert_allclose(field.variance(grid), exact, rtol=1e-10, atol=1e-14)
    draws = field.sample(grid, 4000, seed=2)
    assert (np.abs(draws.var(axis=0) - exact) <= 5 * exact * np.sqrt(2 / 4000) + 1e-14).all()


@pytest.mark.parametrize(("kind", "condition"), BASES)
def test_square_root_operators(kind, condition) -> None:
    grid = Grid.uniform((9, 8), kind=kind)
    field = Field(tau=2, r=1.3, scale=3, condition=condition)
    u = field.sample(grid, 3, seed=3)
    np.testing.assert_allclose(field.sqrt(field.inverse_sqrt(u, grid), grid), u, atol=1e-12)
    twice = field.coefficients(field.sqrt(field.sqrt(u, grid), grid), grid)
    np.testing.assert_allclose(twice, field.eigenvalues(grid) * field.coefficients(u, grid), atol=1e-12)


@pytest.mark.parametrize(("kind", "condition"), BASES)
@pytest.mark.parametrize("modes", [4, 40])
def test_square_roots_match_the_covariance_with_fewer_or_more_modes_than_nodes(kind, condition, modes) -> None:
    """sqrt·sqrtᵀ is the covariance of the values; inverse_sqrt gives the coefficients of draws unit variance."""
    grid, field = Grid.uniform(12, kind=kind), Field(tau=30, r=1, condition=condition, modes=modes)
    root = field.sqrt(np.eye(12), grid)
    lam, unit = field.grid_eigenvalues(grid), Field(tau=30, r=1, condition=condition)
    basis = unit.values(np.eye(lam.size), grid)
    np.testing.assert_allclose(covariance(field, grid), basis.T @ (lam[:, None] * basis), atol=1e-14)
    np.testing.assert_allclose(field.coefficients(root, grid), np.sqrt(lam) * field.coefficients(np.eye(12), grid), atol=1e-13)
    white = field.coefficients(field.inverse_sqrt(field.sample(grid, 4000, seed=12), grid), grid)
    expected = np.where(lam > 1e-20, 1.0, 0.0)
    assert (np.abs((white**2).mean(axis=0) - expected) < 5 * np.sqrt(2 / 4000)).all()


def test_inverse_sqrt_whitens_draws() -> None:
    grid = Grid.uniform((16, 16), kind="cell")
    field = Field(tau=3, r=2)
    white = field.coefficients(field.inverse_sqrt(field.sample(grid, 500, seed=4), grid), grid)
    assert abs((white**2).mean() - 1) < 4 * np.sqrt(2 / white.size)


@pytest.mark.parametrize(
    ("kind", "condition", "fine", "coarse"),
    [
        ("vertex", "neumann", 129, 33),
        ("vertex", "dirichlet", 129, 33),
        ("cell", "neumann", 99, 11),
        ("cell", "dirichlet", 99, 33),
        ("periodic", "periodic", 96, 12),
        ("left", "neumann", 96, 12),
    ],
)
@pytest.mark.parametrize("dim", [1, 2])
def test_seed_and_index_give_the_same_function_on_every_grid(kind, condition, fine, coarse, dim) -> None:
    field = Field(tau=20, r=1.5, condition=condition, modes=40)
    source, target = Grid.uniform(fine, dim, kind), Grid.uniform(coarse, dim, kind)
    on_fine, on_coarse = (field.sample(grid, 2, seed=5, first=3) for grid in (source, target))
    np.testing.assert_allclose(restrict(on_fine, source, target), on_coarse, atol=1e-12)


def test_without_a_fixed_number_of_modes_a_finer_grid_only_adds_modes() -> None:
    field, coarse, fine = Field(tau=3, r=2), Grid.uniform((12, 8), kind="cell"), Grid.uniform((31, 20), kind="cell")
    low = field.coefficients(field.sample(coarse, 2, seed=6), coarse)
    np.testing.assert_allclose(field.coefficients(field.sample(fine, 2, seed=6), fine)[:, :12, :8], low, atol=1e-13)


def test_nested_order_by_hand() -> None:
    assert _nested_order((3, 3)).tolist() == [[0, 1, 4], [2, 3, 5], [6, 7, 8]]
    np.testing.assert_array_equal(_nested_order((7, 7))[:3, :3], _nested_order((3, 3)))


def test_draws_depend_on_seed_and_index_only() -> None:
    field, grid = Field(tau=3, r=2), Grid.uniform((16, 16), kind="cell")
    many = field.sample(grid, 40, seed=7)
    np.testing.assert_array_equal(field.sample(grid, 3, seed=7, first=17), many[17:20])
    assert not np.allclose(field.sample(grid, 1, seed=8), many[:1])
    assert len(np.unique(many[:, 0, 0])) == 40


def test_mean_free_field() -> None:
    grid = Grid.uniform((16, 12), kind="cell")
    field = Field(tau=3, r=2, mean_free=True)
    u = field.sample(grid, 5)
    np.testing.assert_allclose(u.mean(axis=(1, 2)), 0, atol=1e-13)
    np.testing.assert_allclose(field.sqrt(field.inverse_sqrt(u, grid), grid), u, atol=1e-12)


def test_wiener_increments() -> None:
    """Variance (t − s)·𝒞, independence over disjoint intervals, and variance of their sum (4.5 standard errors)."""
    grid, count = Grid.uniform(10, kind="cell"), 4000
    field = Field(tau=3, r=1, scale=20)
    dw = field.wiener_increments(grid, np.array([0.0, 0.5, 0.5, 2.0]), count, seed=9)
    assert dw.shape == (count, 3, 10)
    lam = field.eigenvalues(grid)
    white = field.coefficients(dw, grid) / np.sqrt(lam)
    assert abs((white[:, 0] ** 2).mean() / 0.5 - 1) < 4.5 * np.sqrt(2 / white[:, 0].size)
    assert abs((white[:, 2] ** 2).mean() / 1.5 - 1) < 4.5 * np.sqrt(2 / white[:, 2].size)
    assert (dw[:, 1] == 0).all()
    assert abs((white[:, 0] * white[:, 2]).mean()) < 4.5 * np.sqrt(0.5 * 1.5 / white[:, 0].size)
    total = white.sum(axis=1)
    assert abs((total**2).mean() / 2 - 1) < 4.5 * np.sqrt(2 / total.size)


def test_trigonometric_potential_has_the_covariance_of_the_paper() -> None:
    """cov(x₁, x₂) = n⁻¹ Σ cos πk(x₂ − x₁), within 5 standard errors at 21 × 21 pairs."""
    axis, count = Axis(21, "vertex", -1, 1), 20_000
    v = TrigonometricPotential(5).sample(axis, count, seed=10)
    difference = axis.nodes[:, None] - axis.nodes
    exact = sum(np.cos(np.pi * k * difference) for k in range(1, 6)) / 5
    error = np.sqrt((1 + exact**2) / count)
    assert (np.abs(v.T @ v / count - exact) < 5 * error).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Field(tau=-1, r=2), "tau ≥ 0"),
        (lambda: Field(tau=1, r=2, scale=-1), "scale ≥ 0"),
        (lambda: Field(tau=0, r=2), "infinite variance"),
        (lambda: Field(tau=1, r=2, modes=0), "at least one mode"),
        (lambda: Field(tau=float("nan"), r=2), "a field needs"),
        (lambda: Field(tau=1, r=2, condition="neuman"), "is unknown"),
        (lambda: Field(tau=1, r=2).sqrt(np.ones((3, 8)), Grid.uniform(9)), "last axes of u"),
        (lambda: Field(tau=1, r=2).wiener_increments(Grid.uniform(8), 0.1, 5), "at least two"),
        (lambda: Field(tau=1, r=float("inf")), "a field needs"),
        (lambda: Field(tau=30, r=400).sample(Grid.uniform(8), 1), "underflows to zero"),
        (lambda: Field(tau=1, r=2).wiener_increments(Grid.uniform(8), np.array([1.0, 0.0]), 1), "non-decreasing"),
    ],
)
def test_invalid_arguments_are_rejected(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
