"""Modes of fields: orthonormal, and what is said about their waves."""

import numpy as np
import pytest

from pdno.modes import diagonal, fields, mirror, modes, squared_waves

GRIDS = [((7,), (False,)), ((8,), (True,)), ((6, 5), (False, False)), ((6, 5), (True, False)), ((4, 6), (True, True))]


def basis(grid: tuple[int, ...], periodic: tuple[bool, ...]) -> np.ndarray:
    """Rows: the field of each mode."""
    size = int(np.prod(grid))
    return fields(np.eye(size).reshape(size, *grid), periodic).reshape(size, size)


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_modes_are_orthonormal_and_come_back(grid, periodic) -> None:
    b = basis(grid, periodic)
    np.testing.assert_allclose(b @ b.T, np.eye(len(b)), atol=1e-13)
    x = np.random.default_rng(0).standard_normal((3, 2, *grid))
    np.testing.assert_allclose(fields(modes(x, periodic), periodic), x, atol=1e-13)
    np.testing.assert_allclose(modes(x, periodic).reshape(3, 2, -1), x.reshape(3, 2, -1) @ b.T, atol=1e-13)


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_waves_are_eigenvalues_of_the_laplacian(grid, periodic) -> None:
    """Of second differences with reflecting or periodic ends: on a line of n points (2 sin πk/2n)², k counted in half waves."""
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
    else:  # a sum over the axes
        each = [squared_waves((n,), (wave,)) for n, wave in zip(grid, periodic, strict=True)]
        np.testing.assert_array_equal(squared_waves(grid, periodic), np.add.outer(*each).ravel())


@pytest.mark.parametrize(("grid", "periodic"), GRIDS)
def test_the_diagonal_is_that_of_the_matrix(grid, periodic) -> None:
    s = np.random.default_rng(1).random((2, *grid))
    s = (s + mirror(s, periodic)) / 2  # the same for k and −k
    b = basis(grid, periodic)
    for channel in range(2):
        expected = np.diag(b.T @ np.diag(s[channel].ravel() ** 2) @ b).reshape(grid)
        np.testing.assert_allclose(diagonal(s, periodic)[channel], expected, atol=1e-13)
