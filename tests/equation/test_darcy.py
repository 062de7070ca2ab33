"""Test 2: order of convergence, hand arithmetic, the distribution of the coefficient."""

import numpy as np

from pdno.equation import Darcy


def manufactured(eq: Darcy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a = 1 + x/2 + y²/3, u = sin πx sin 2πy and f = −∇·(a ∇u)."""
    x, y = eq.grid.mesh()
    pi = np.pi
    a = 1 + x / 2 + y**2 / 3
    u = np.sin(pi * x) * np.sin(2 * pi * y)
    a_x, a_y = 0.5, 2 * y / 3
    u_x, u_y = pi * np.cos(pi * x) * np.sin(2 * pi * y), 2 * pi * np.sin(pi * x) * np.cos(2 * pi * y)
    return a, u, 5 * pi**2 * a * u - a_x * u_x - a_y * u_y


def torsion(points: int) -> np.ndarray:
    """Return the solution of −Δu = 1 by its double sine series."""
    m = np.arange(1, 800, 2.0)
    waves = np.sin(np.pi * m[:, None] * (np.arange(points) + 0.5) / points)
    return waves.T @ (16 / (np.pi**4 * np.outer(m, m) * (m[:, None] ** 2 + m**2))) @ waves


def test_order_two_against_a_manufactured_solution() -> None:
    errors = {"maximum": [], "L2": []}
    for points in (16, 32, 64, 128):
        eq = Darcy(points=points)
        a, u, f = manufactured(eq)
        error = eq.solve(a[None], f)[0] - u
        errors["maximum"].append(np.abs(error).max())
        errors["L2"].append(np.sqrt((error**2).mean()))
    for norm, values in errors.items():
        orders = np.log2(np.divide(values[:-1], values[1:]))
        assert (orders > 1.9).all(), (norm, orders)


def test_two_by_two_by_hand() -> None:
    """h = ½; each cell: two boundary faces 2a/h² = 8a, two inner faces h⁻²·2ab/(a + b) = 4·(harmonic mean)."""
    a = np.array([[1.0, 3.0], [2.0, 6.0]])
    u = np.array([[0.5, 1.0], [2.0, 4.0]])
    harmonic = {"13": 1.5, "12": 4 / 3, "36": 4.0, "26": 3.0}
    expected = np.array(
        [
            [16 * 1 * 0.5 + 4 * 1.5 * (0.5 - 1) + 4 * harmonic["12"] * (0.5 - 2), 0],
            [0, 16 * 6 * 4 + 4 * harmonic["36"] * (4 - 1) + 4 * harmonic["26"] * (4 - 2)],
        ]
    )
    r = Darcy(points=2).residual(u[None], a[None], f=0.0)[0]
    np.testing.assert_allclose([r[0, 0], r[1, 1]], [expected[0, 0], expected[1, 1]])


def test_residual_equals_the_flux_balance() -> None:
    """The fluxes of every cell, summed face by face in a loop."""
    n = 5
    a, u = 1 + np.random.default_rng(0).random((2, n, n))
    balance = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for di, dj in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                p, q = i + di, j + dj
                if 0 <= p < n and 0 <= q < n:
                    balance[i, j] += 2 / (1 / a[i, j] + 1 / a[p, q]) * (u[i, j] - u[p, q]) * n**2
                else:
                    balance[i, j] += a[i, j] * u[i, j] / 0.5 * n**2
    np.testing.assert_allclose(Darcy(points=n).residual(u[None], a[None])[0], balance - 1, rtol=1e-12)


def test_solution_is_inversely_proportional_to_a_constant_coefficient() -> None:
    eq = Darcy(points=16)
    one, seven = eq.solve(np.stack([np.ones((16, 16)), np.full((16, 16), 7.0)]))
    np.testing.assert_allclose(seven, one / 7)
    np.testing.assert_allclose(Darcy(points=128).solve(np.ones((1, 128, 128)))[0], torsion(128), atol=2e-5)


def test_coefficient_has_the_correlation_of_its_field() -> None:
    """Two points have the same phase with probability ½ + arcsin(ρ)/π, ρ the correlation of the field without the constant
    mode (5 standard errors at three pairs of points)."""
    eq, count = Darcy(points=16), 500
    k = np.pi * np.arange(200.0)
    lam = (k[:, None] ** 2 + k**2 + 9) ** -2.0
    lam[0, 0] = 0
    x = (np.arange(16) + 0.5) / 16
    waves = np.where(k[:, None] > 0, np.sqrt(2), 1) * np.cos(np.outer(k, x))

    def covariance(p: tuple[int, int], q: tuple[int, int]) -> float:
        return float((lam * np.outer(waves[:, p[0]] * waves[:, q[0]], waves[:, p[1]] * waves[:, q[1]])).sum())

    high = eq.sample_input(count, seed=2)[:, 0] == 12
    for p, q in (((3, 4), (5, 4)), ((8, 8), (8, 14)), ((0, 0), (15, 15))):
        rho = covariance(p, q) / np.sqrt(covariance(p, p) * covariance(q, q))
        agree, expected = (high[:, *p] == high[:, *q]).mean(), 0.5 + np.arcsin(rho) / np.pi
        assert abs(agree - expected) < 5 * np.sqrt(expected * (1 - expected) / count), (p, q)


def test_source_per_sample_in_either_layout() -> None:
    eq = Darcy(points=8)
    a, f = eq.sample_input(3), np.random.default_rng(1).random((3, 8, 8))
    u = eq.solve(a, f[:, None])
    np.testing.assert_array_equal(eq.solve(a[:, 0], f), u[:, 0])
    np.testing.assert_allclose(eq.residual(u, a, f), 0, atol=1e-10)
    np.testing.assert_array_equal(eq.solve(a, f[0])[0], u[0])


def test_phases_are_equally_likely_and_the_solution_has_the_size_of_the_paper() -> None:
    """By symmetry each phase has probability ½ in every cell; u_max is about 0.01 in the paper."""
    eq = Darcy(points=16)
    a = eq.sample_input(500, seed=1)
    assert set(np.unique(a)) == {4.0, 12.0}
    assert (np.abs((a == 12).mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(500)).all()
    assert 0.008 < eq.solve(a[:50]).max() < 0.02
