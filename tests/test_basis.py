"""Fast transforms against the sums that they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdno import UserError
from pdno.basis import analyze, capacity, synthesize, wavenumbers
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


def eigenfunction(j: int, x: np.ndarray, condition: str) -> np.ndarray:
    """e_j as the table of the module prints it."""
    if condition == "neumann":
        return np.ones_like(x) if j == 0 else np.sqrt(2) * np.cos(np.pi * j * x)
    if condition == "dirichlet":
        return np.sqrt(2) * np.sin(np.pi * (j + 1) * x)
    k = (j + 1) // 2
    return np.ones_like(x) if j == 0 else np.sqrt(2) * (np.cos if j % 2 else np.sin)(2 * np.pi * k * x)


@pytest.mark.parametrize(("kind", "condition"), PAIRS)
@given(points=st.integers(4, 17), modes=st.integers(1, 60), seed=st.integers(0, 99))
def test_synthesis_is_the_sum_also_beyond_what_the_nodes_resolve(kind, condition, points, modes, seed) -> None:
    c = np.random.default_rng(seed).standard_normal((2, modes))
    x = Axis(points, kind).nodes
    direct = sum(c[:, j : j + 1] * eigenfunction(j, x, condition) for j in range(modes))
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


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(UserError, match="kind='periodic'"):
        synthesize(np.ones(4), 8, "cell", "periodic")
    with pytest.raises(UserError, match="cell-centred"):
        analyze(np.ones(8), "left", "neumann")
    with pytest.raises(UserError, match="robin"):
        capacity(8, "cell", "robin")  # type: ignore[arg-type]
