"""Characters of symmetry groups against the axioms, and against regression on all symmetric copies."""

import numpy as np
import pytest

from pdno.grid import Grid
from pdno.mean.kernel.characters import Characters
from pdno.symmetry import group, orbit

PERIODIC = Grid.uniform(8, kind="periodic")
SQUARE = Grid.uniform(6, dim=2, kind="cell")
BOX = Grid.uniform((4, 5, 6), kind="vertex")
LINE = Grid.uniform(7, kind="vertex")


def fields(grid: Grid, samples: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, 1, *grid.shape))


@pytest.mark.parametrize(
    ("names", "grid", "shifts", "subgroup", "copies"),
    [
        ("square", SQUARE, None, 4, 2),
        ("reflection-complement", LINE, None, 2, 1),
        (["translation", "odd-reflection"], PERIODIC, 4, 4, 2),
        ("reflection", BOX, None, 8, 1),
        ("translation", PERIODIC, 8, 2, 4),
    ],
)
def test_characters_and_components(names, grid, shifts, subgroup, copies) -> None:
    """Characters are orthogonal and multiplicative, and the components of outputs add up to the outputs."""
    elements = group(names, grid, shifts)
    a, u = fields(grid), fields(grid, seed=1)
    split = Characters(elements, a, u)
    assert (len(split.subgroup), len(split.copies)) == (subgroup, copies)
    np.testing.assert_array_equal(split.signs @ split.signs.T, subgroup * np.eye(subgroup))
    for i, g in enumerate(split.subgroup):
        for j, h in enumerate(split.subgroup):
            place = split.subgroup.index(split.products[g, h])
            np.testing.assert_array_equal(split.signs[:, i] * split.signs[:, j], split.signs[:, place])
    centre = np.mean([g.on_u(u).mean(axis=0, keepdims=True) for g in elements], axis=0)
    parts = list(split.parts(u, centre))
    whole = np.concatenate([elements[b].on_u(u) - centre for b in split.copies])
    np.testing.assert_allclose(sum(parts), whole, atol=1e-13)
    np.testing.assert_allclose(split.gather(whole), u - centre, atol=1e-13)
    for part, signs in zip(parts, split.signs, strict=True):
        for h, sign in zip(split.subgroup, signs, strict=True):
            zero = np.zeros_like(part)
            np.testing.assert_allclose(elements[h].on_u(part) - elements[h].on_u(zero), sign * part, atol=1e-13)


def test_systems_of_characters_solve_the_system_of_all_copies() -> None:
    """Regression on the eight copies of three pairs by one matrix with 24 rows, and by four matrices with 6 rows."""
    elements = group("square", SQUARE)
    a, u = fields(SQUARE), fields(SQUARE, seed=1)
    split = Characters(elements, a, u)

    def k(x, y) -> np.ndarray:
        return np.exp(-0.05 * np.square(x.reshape(len(x), 1, -1) - y.reshape(1, len(y), -1)).sum(axis=-1))

    all_a, all_u = (np.concatenate(list(orbit(x, elements, of=of))) for x, of in ((a, "a"), (u, "u")))
    whole = np.linalg.solve(k(all_a, all_a) + 0.01 * np.eye(24), all_u.reshape(24, -1)).reshape(all_u.shape)
    matrices = split.matrices(lambda g: k(a, g.on_a(a)))
    zero = np.zeros((1, 1, *SQUARE.shape))
    systems = zip(matrices, split.parts(u, zero), strict=True)
    rows = sum(np.linalg.solve(m + 0.01 * np.eye(6), y.reshape(6, -1)).reshape(y.shape) for m, y in systems)
    np.testing.assert_allclose(split.gather(rows), whole[:3], atol=1e-12)
    new = fields(SQUARE, samples=2, seed=2)
    expected = np.tensordot(k(new, all_a), whole, axes=1)
    found = sum(g.undo(np.tensordot(k(g.on_a(new), a), whole[:3], axes=1)) for g in elements)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    across = split.matrices(lambda g: k(new, g.on_a(a)), new=True)
    parts = [
        np.linalg.solve(m + 0.01 * np.eye(6), y.reshape(6, -1)) for m, y in zip(matrices, split.parts(u, zero), strict=True)
    ]
    np.testing.assert_allclose(sum(x @ c for x, c in zip(across, parts, strict=True)), expected.reshape(2, -1), atol=1e-12)
