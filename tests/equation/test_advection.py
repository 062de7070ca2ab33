"""Test 4: the exact shift, and the distribution of the pattern."""

import numpy as np
import pytest

from pdno.equation import Advection


@pytest.mark.parametrize(("points", "t_final", "shift"), [(256, 0.5, 128), (512, 0.5, 256), (1024, 0.5, 512), (100, 0.13, 13)])
def test_solution_is_an_exact_shift_with_zeros_from_the_left(points, t_final, shift) -> None:
    eq = Advection(points=points, t_final=t_final)
    a = eq.sample_input(5, seed=0)
    u = eq.solve(a)
    np.testing.assert_array_equal(u[..., shift:], a[..., :-shift])
    np.testing.assert_array_equal(u[..., :shift], 0)


def test_shift_is_along_characteristics() -> None:
    """u(x, t) = u_0(x − t) for a smooth function."""
    eq = Advection(points=200, t_final=0.25)
    x = eq.grid.axes[0].nodes
    u = eq.solve(np.exp(-100 * (x - 0.3) ** 2)[None])[0]
    inside = x >= 0.25
    np.testing.assert_allclose(u[inside], np.exp(-100 * (x[inside] - 0.55) ** 2), atol=1e-14)
    assert (u[~inside] == 0).all()


def test_pattern_is_binary_with_the_exact_correlation() -> None:
    """Far from the ends ã has the kernel of (−∂² + τ²)⁻² on the line, ρ(d) = (1 + τd)e^{−τd}; its signs agree with
    probability ½ + arcsin ρ/π (5 standard errors, one pair of points per draw)."""
    eq, count = Advection(points=1024), 8000
    a = eq.sample_input(count, seed=1)[:, 0]
    assert set(np.unique(a)) == {0.0, 1.0}
    for cells in (2, 8, 20):
        rho = (1 + 100 * cells / 1024) * np.exp(-100 * cells / 1024)
        p = 0.5 + np.arcsin(rho) / np.pi
        agree = (a[:, 500] == a[:, 500 + cells]).mean()
        assert abs(agree - p) < 5 * np.sqrt(p * (1 - p) / count), (cells, agree, p)
