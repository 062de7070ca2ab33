"""Fast transforms against direct sums; orthonormal modes against matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdno import UserError
from pdno.basis import analyze, capacity, diagonal, fields, mirror, modes, squared_waves, synthesize, wavenumbers
from pdno.grid import Axis

PAIRS = [
    ("cell", "neumann"),
    ("vertex", "neumann"),
    ("left", "neumann"),
    ("cell", "dirichlet"),
    ("vertex", "dirichlet"),
    ("left", "dirichlet"),
    ("periodic", "periodic"),
]
INVERTIBLE = [pair for pair in PAIRS if pair != ("left", "neumann")]
GRIDS = [((7,), (False,)), ((8,), (True,)), ((6, 5), (False, False)), ((6, 5), (True, False)), ((4, 6), (True, True))]


def eigenfunction(j: int, x: np.ndarray, condition: str) -> np.ndarray:
    """Return e_j as in the table of `pdno.basis`."""
    if condition == "neumann":
        return np.ones_like(x) if j == 0 else np.sqrt(2) * np.cos(np.pi * j * x)
    if condition == "dirichlet":
        return np.sqrt(2) * np.sin(np.pi * (j + 1) * x)
    k = (j + 1) // 2
    return np.ones_like(x) if j == 0 else np.sqrt(2) * (np.cos if j % 2 else np.sin)(2 * np.pi * k * x)


@pytest.mark.parametrize(("kind", "condition"), PAIRS)
@given(points=st.integers(4, 17), count=st.integers(1, 60), seed=st.integers(0, 99))
def test_synthesis_equals_the_sum_also_for_unresolved_modes(kind, condition, points, count, seed) -> None:
    c = np.random.default_rng(seed).standard_normal((2, count))
    x = Axis(points, kind).nodes
    direct = sum(c[:, j : j + 1] * eigenfunction(j, x, condition) for j in range(count))
    np.testing.assert_allclose(synthesize(c, points, kind, condition), direct, atol=1e-11)


@pytest.mark.parametrize(("kind", "condition"), INVERTIBLE)
@given(points=st.integers(4, 40), seed=st.integers(0, 99))
def test_analysis_inverts_synthesis(kind, condition, points, seed) -> None:
    c = np.random.default_rng(seed).standard_normal((3, capacity(points, kind, condition)))
    np.testing.assert_allclose(analyze(synthesize(c, points, kind, condition), kind, condition), c, atol=1e-11)


@pytest.mark.parametrize("condition", ["neumann", "dirichlet", "periodic"])
def test_wavenumbers_belong_to_the_eigenfunctions(condition) -> None:
    x, h = np.linspace(0.1, 0.9, 7), 1e-4
    for j, omega in enumerate(wavenumbers(6, condition)):
        e = [eigenfunction(j, x + shift, condition) for shift in (-h, 0, h)]
        np.testing.assert_allclose(-(e[0] - 2 * e[1] + e[2]) / h**2, omega**2 * e[1], atol=1e-4 * (1 + omega**4))


def test_invalid_bases_are_rejected() -> None:
    with pytest.raises(UserError, match="kind='periodic'"):
        synthesize(np.ones(4), 8, "cell", "periodic")
    with pytest.raises(UserError, match="cell-centred"):
        analyze(np.ones(8), "left", "neumann")
    with pytest.raises(UserError, match="robin"):
        capacity(8, "cell", "robin")  # type: ignore[arg-type]


def basis(grid: tuple[int, ...], periodic: tuple[bool, ...]) -> np.ndarray:
    """Return Bᵀ: each row is the field of a mode."""
    size = int(np.prod(grid))
    return fields(np.eye(size).reshape(size, *grid), periodic).reshape(size, size)


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_modes_are_orthonormal_and_fields_inverts_modes(grid, periodic) -> None:
    b = basis(grid, periodic)
    np.testing.assert_allclose(b @ b.T, np.eye(len(b)), atol=1e-13)
    x = np.random.default_rng(0).standard_normal((3, 2, *grid))
    np.testing.assert_allclose(fields(modes(x, periodic), periodic), x, atol=1e-13)
    np.testing.assert_allclose(modes(x, periodic).reshape(3, 2, -1), x.reshape(3, 2, -1) @ b.T, atol=1e-13)


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_squared_waves_give_the_eigenvalues_of_the_laplacian(grid, periodic) -> None:
    """Second differences with reflecting or periodic ends have the eigenvalues (2 sin πk/2n)² on a line of n points."""
    laplacian = np.zeros((int(np.prod(grid)),) * 2)
    for axis, (n, wave) in enumerate(zip(grid, periodic, strict=True)):
        line = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        if wave:
            line[0, -1] = line[-1, 0] = -1
        else:
            line[0, 0] = line[-1, -1] = 1
        parts = [np.eye(m) if k != axis else line for k, m in enumerate(grid)]
        laplacian += np.kron(parts[0], parts[1]) if len(parts) == 2 else parts[0]
    b = basis(grid, periodic)
    image = b @ laplacian @ b.T
    np.testing.assert_allclose(image, np.diag(np.diag(image)), atol=1e-12)
    if len(grid) == 1:
        k = np.sqrt(squared_waves(grid, periodic))
        np.testing.assert_allclose(np.diag(image), 4 * np.sin(np.pi * k / (2 * grid[0])) ** 2, atol=1e-12)
    else:  # |k|² is a sum over the axes
        each = [squared_waves((n,), (wave,)) for n, wave in zip(grid, periodic, strict=True)]
        np.testing.assert_array_equal(squared_waves(grid, periodic), np.add.outer(*each).ravel())


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_diagonal_equals_that_of_the_matrix(grid, periodic) -> None:
    s = np.random.default_rng(1).random((2, *grid))
    s = (s + mirror(s, periodic)) / 2  # s(k) = s(−k)
    b = basis(grid, periodic)
    for channel in range(2):
        expected = np.diag(b.T @ np.diag(s[channel].ravel() ** 2) @ b).reshape(grid)
        np.testing.assert_allclose(diagonal(s, periodic)[channel], expected, atol=1e-13)
