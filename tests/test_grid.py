"""Grids, restriction and interpolation."""

import numpy as np
import pytest

from pdno import Grid, UserError
from pdno.grid import Axis, interpolate, restrict

KINDS = ["vertex", "cell", "periodic", "left"]


def test_nodes_by_hand() -> None:
    np.testing.assert_allclose(Axis(5, "vertex", -1, 1).nodes, [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_allclose(Axis(4, "cell").nodes, [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(Axis(4, "periodic").nodes, [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(Axis(4, "left").nodes, [0, 0.25, 0.5, 0.75])
    assert Axis(5, "vertex", -1, 1).spacing == 0.5
    assert Axis(4, "cell").spacing == 0.25


def test_grid_of_the_elliptic_problem_is_linspace() -> None:
    np.testing.assert_allclose(Axis(128, "vertex", -1, 1).nodes, np.linspace(-1, 1, 128), rtol=0, atol=1e-15)


@pytest.mark.parametrize(("kind", "fine", "coarse"), [("vertex", 25, 9), ("cell", 27, 9), ("periodic", 24, 8), ("left", 24, 8)])
def test_stride_takes_values_at_common_nodes(kind, fine, coarse) -> None:
    source, target = Grid.uniform(fine, dim=2, kind=kind), Grid.uniform(coarse, dim=2, kind=kind)

    def function(grid: Grid) -> np.ndarray:
        x, y = grid.mesh()
        return np.sin(3 * x) + x * y**2

    np.testing.assert_allclose(restrict(function(source), source, target), function(target), atol=1e-14)


def test_average_preserves_the_integral_of_each_coarse_cell() -> None:
    source, target = Grid.uniform((12, 8), kind="cell"), Grid.uniform((4, 4), kind="cell")
    u = np.random.default_rng(0).standard_normal((2, 12, 8))
    coarse = restrict(u, source, target, method="average")
    assert coarse.shape == (2, 4, 4)
    np.testing.assert_allclose(coarse[1, 2, 3], u[1, 6:9, 6:8].mean())
    np.testing.assert_allclose(coarse.mean(axis=(1, 2)), u.mean(axis=(1, 2)))


@pytest.mark.parametrize("kind", ["vertex", "cell", "left"])
def test_linear_interpolation_is_exact_for_linear_functions_up_to_the_ends(kind) -> None:
    source, target = Grid.uniform((7, 9), kind=kind), Grid.uniform((31, 20), kind=kind)
    u, exact = (2 * x - 3 * y + 1 for x, y in (source.mesh(), target.mesh()))
    np.testing.assert_allclose(interpolate(u, source, target), exact, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_linear_interpolation_has_order_two(kind) -> None:
    target, errors = Grid.uniform(301, kind=kind), []
    for n in (16, 32, 64, 128):
        source = Grid.uniform(n, kind=kind)
        u, exact = (np.sin(2 * np.pi * g.axes[0].nodes + 0.3) for g in (source, target))
        errors.append(np.abs(interpolate(u, source, target) - exact).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (orders > 1.85).all(), orders


@pytest.mark.parametrize(
    ("kind", "condition", "function"),
    [
        ("periodic", None, lambda x: 1 + np.cos(2 * np.pi * 3 * x) - 2 * np.sin(2 * np.pi * 5 * x)),
        ("cell", None, lambda x: 0.5 + np.cos(np.pi * 3 * x) - np.cos(np.pi * 11 * x)),
        ("vertex", None, lambda x: 0.5 + np.cos(np.pi * 3 * x) - np.cos(np.pi * 11 * x)),
        ("vertex", "dirichlet", lambda x: np.sin(np.pi * x) + 3 * np.sin(np.pi * 9 * x)),
    ],
)
@pytest.mark.parametrize("points", [13, 16, 40])
def test_spectral_interpolation_is_exact_for_its_modes_to_finer_and_coarser_grids(kind, condition, function, points) -> None:
    source, target = Grid.uniform(24, kind=kind), Grid.uniform(points, kind=kind)
    u, exact = (function(g.axes[0].nodes) for g in (source, target))
    np.testing.assert_allclose(interpolate(u, source, target, "spectral", condition), exact, atol=1e-12)


@pytest.mark.parametrize(("method", "degree"), [("cubic", 3), ("quintic", 5)])
@pytest.mark.parametrize("kind", ["vertex", "cell", "left"])
def test_splines_are_exact_for_polynomials(kind, method, degree) -> None:
    source, target = Grid.uniform(9, kind=kind), Grid.uniform(50, kind=kind)
    u, exact = ((g.axes[0].nodes - 0.3) ** degree for g in (source, target))
    np.testing.assert_allclose(interpolate(u, source, target, method), exact, atol=1e-13)


@pytest.mark.parametrize(("method", "order"), [("cubic", 4), ("quintic", 6)])
def test_splines_on_a_periodic_axis_have_their_order_everywhere(method, order) -> None:
    target = Grid.uniform(97, kind="periodic")
    sources = [Grid.uniform(n, kind="periodic") for n in (16, 32, 64)]
    wave = [np.sin(2 * np.pi * (g.axes[0].nodes - 0.1)) for g in (*sources, target)]
    errors = [np.abs(interpolate(u, g, target, method) - wave[-1]).max() for u, g in zip(wave, sources, strict=False)]
    assert (np.log2(errors[:-1]) - np.log2(errors[1:]) > order - 0.3).all(), errors


@pytest.mark.parametrize(("kind", "points"), [("periodic", 8), ("cell", 8), ("vertex", 9)])
def test_a_series_keeps_values_at_common_nodes_of_a_coarser_grid(kind, points) -> None:
    fine = 3 * points - 2 if kind == "vertex" else 3 * points
    source, target = Grid.uniform(fine, kind=kind), Grid.uniform(points, kind=kind)
    u = np.random.default_rng(0).normal(size=source.shape)
    np.testing.assert_allclose(interpolate(u, source, target, "series"), restrict(u, source, target), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Grid.uniform(1), "at least 2 points"),
        (lambda: Grid.uniform(2.5), "whole number"),
        (lambda: Grid.uniform(8, dim=0), "0 axes"),
        (lambda: Grid.uniform(8, kind="vertx"), "did you mean 'vertex'"),
        (lambda: Axis(8, low=1.0, high=1.0), "below high"),
        (lambda: restrict(np.ones(8), Grid.uniform(8, kind="cell"), Grid.uniform(4, kind="cell")), "share no nodes"),
        (lambda: restrict(np.ones(8), Grid.uniform(8), Grid.uniform(4)), "does not contain"),
        (lambda: restrict(np.ones(9), Grid.uniform(9), Grid.uniform(5), "average"), "cell-centred"),
        (lambda: restrict(np.ones(9), Grid.uniform(8), Grid.uniform(5)), "last axes"),
        (lambda: restrict(np.ones(9), Grid.uniform(9), Grid.uniform(5), "strid"), "did you mean 'stride'"),
        (lambda: interpolate(np.ones(9), Grid.uniform(9), Grid.uniform(5, high=2.0)), "on the other"),
        (lambda: interpolate(np.ones(9), Grid.uniform(9), Grid.uniform(5, dim=2)), "dimensions"),
        (lambda: interpolate(np.ones(9), Grid.uniform(9), Grid.uniform(5), "cubik"), "did you mean 'cubic'"),
        (lambda: interpolate(np.ones(4), Grid.uniform(4), Grid.uniform(5), "quintic"), "needs 6 points"),
    ],
)
def test_invalid_arguments_are_rejected(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
