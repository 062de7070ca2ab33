"""Symmetries: solvers of all equations as oracles, group axioms, equivariance of averages."""

import pickle

import numpy as np
import pytest
import torch

from pdno import UserError
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.grid import Axis, Grid
from pdno.symmetry import NAMES, Symmetry, augment, average, check, group, multiplication_table, orbit

EQUATIONS = [
    (Elliptic1D(points=32), 2),
    (Elliptic1D(points=33), 2),
    (Darcy(points=8), 8),
    (Darcy(points=9), 8),
    (Burgers(points=32), 8),
    (Burgers(points=24), 8),
]
by_equation = pytest.mark.parametrize(
    ("eq", "size"), EQUATIONS, ids=lambda x: f"{x.name}{x.points}" if isinstance(x, Equation) else ""
)

PERIODIC = Grid.uniform(8, kind="periodic")
SQUARE = Grid.uniform(6, dim=2, kind="cell")
GRIDS = {
    "square": SQUARE,
    "reflection": Grid.uniform((4, 5, 6), kind="vertex"),
    "translation": PERIODIC,
    "odd-reflection": PERIODIC,
    "reflection-complement": Grid.uniform(7, kind="vertex"),
}
by_name = pytest.mark.parametrize("name", NAMES)


def fields(grid: Grid, samples: int = 3, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, channels, *grid.shape))


def elements_of(eq) -> tuple[Symmetry, ...]:
    return group(eq.symmetries, eq.grid, shifts=4 if "translation" in eq.symmetries else None)


def operator(a):
    """A map without any symmetry."""
    return np.sin(a) + 0.1 * np.cumsum(a, axis=-1) ** 2


# Solvers


@by_equation
def test_declared_symmetries_hold_for_the_solver(eq, size) -> None:
    """The tolerance is below the rtol of Burgers: a transformed input must be solved on the same refinement level."""
    elements = elements_of(eq)
    assert len(elements) == size
    a = eq.sample_input(2, seed=3)
    u = eq.solve(a)
    for g in elements:
        np.testing.assert_allclose(eq.solve(g.on_a(a)), g.on_u(u), atol=1e-8 * np.abs(u).max())
    check(elements, a, u, eq.solve, tolerance=1e-8)


def test_undeclared_symmetries_are_rejected() -> None:
    eq = Advection(points=16)
    a = eq.sample_input(4)
    moved = [(lambda x: np.roll(x, 3, -1), lambda x: np.roll(x, 3, -1), 16)]
    with pytest.raises(UserError, match=r"'custom map to the power 1' is not a symmetry of the operator: .* remove it"):
        check(group(moved, eq.grid), a, eq.solve(a), eq.solve)
    eq = Elliptic1D(points=32)
    a = eq.sample_input(4)
    with pytest.raises(UserError, match="'reflection of x' is not a symmetry of the operator"):
        check(group("reflection", eq.grid), a, eq.solve(a), eq.solve)


def test_reflection_of_a_periodic_grid_fixes_node_zero() -> None:
    """It maps k → −k mod n; reversing the array would reflect about the middle between two nodes."""
    x = PERIODIC.axes[0].nodes
    odd = group("odd-reflection", PERIODIC)[1]
    np.testing.assert_allclose(odd.on_u(np.sin(2 * np.pi * x)[None, None])[0, 0], np.sin(2 * np.pi * x), atol=1e-15)
    np.testing.assert_array_equal(
        group("reflection", PERIODIC)[1].on_a(np.arange(8.0)[None, None])[0, 0], [0, 7, 6, 5, 4, 3, 2, 1]
    )
    cell = Grid.uniform(4, kind="cell")
    np.testing.assert_array_equal(group("reflection", cell)[1].on_a(np.arange(4.0)[None, None])[0, 0], [3, 2, 1, 0])


# Groups


@by_name
def test_names_are_groups(name) -> None:
    grid = GRIDS[name]
    elements = group(name, grid)
    assert len(elements) == {"square": 8, "reflection": 8, "translation": 8}.get(name, 2)
    a, u = fields(grid), fields(grid, channels=2, seed=1)
    check(elements, a, u)
    np.testing.assert_array_equal(elements[0].on_a(a), a)
    products = multiplication_table(elements, a, u)
    assert (np.sort(products, axis=0) == np.arange(len(elements))[:, None]).all()  # a Latin square
    assert (np.sort(products, axis=1) == np.arange(len(elements))).all()
    for g in elements:
        np.testing.assert_allclose(g.undo(g.on_u(u)), u, atol=1e-15)
    g, h = elements[-1], elements[len(elements) // 2]
    np.testing.assert_array_equal((g @ h).on_a(a), g.on_a(h.on_a(a)))
    np.testing.assert_allclose((g @ h).undo(g.on_u(h.on_u(u))), u, atol=1e-15)
    np.testing.assert_allclose(elements[products[-1, len(elements) // 2]].on_u(u), (g @ h).on_u(u), atol=1e-15)


def test_square_has_the_eight_symmetries() -> None:
    a = fields(SQUARE, samples=1)
    images = {g.on_a(a).tobytes() for g in group("square", SQUARE)}
    by_hand = {np.rot90(b, k, axes=(-2, -1)).tobytes() for b in (a, a.swapaxes(-1, -2)) for k in range(4)}
    assert images == by_hand
    assert len(images) == 8


def test_products_of_names() -> None:
    elements = group(["translation", "odd-reflection"], PERIODIC)
    assert len(elements) == 16
    check(elements, fields(PERIODIC), fields(PERIODIC))
    torus = Grid.uniform((4, 6), kind="periodic")
    assert len(group(["translation", "reflection"], torus)) == 4 * 6 * 4
    assert len(group("translation", torus, shifts=2)) == 4
    half = Grid((Axis(4, "cell", name="x"), Axis(6, "periodic", name="y")))
    check(group(["translation", "reflection"], half), fields(half), fields(half))
    assert len(group((), SQUARE)) == 1


def test_shifts_are_equally_spaced_and_apply_to_other_grids() -> None:
    shifts = group("translation", PERIODIC, shifts=4)
    x = np.arange(16.0)[None, None]
    assert [int(g.on_a(x)[0, 0, 0]) for g in shifts] == [0, 12, 8, 4]  # 16 points although the grid has eight
    with pytest.raises(UserError, match="a shift by 1/4 of 6 points is not a whole number of cells"):
        shifts[1].on_a(np.zeros((1, 1, 6)))


def test_custom_maps() -> None:
    rotation = (lambda a: np.rot90(a, axes=(-2, -1)), lambda u: np.rot90(u, axes=(-2, -1)), 4)
    elements = group([rotation], SQUARE)
    assert len(elements) == 4
    check(elements, fields(SQUARE), fields(SQUARE))
    swap = (lambda a: a[:, ::-1].swapaxes(-1, -2), lambda u: u[:, ::-1].swapaxes(-1, -2))  # a vector field, transposed
    check(group([swap], SQUARE), fields(SQUARE, channels=2), fields(SQUARE, channels=2))


@pytest.mark.parametrize(
    ("symmetries", "grid", "shifts", "message"),
    [
        ("sqare", SQUARE, None, "symmetry 'sqare' is unknown; did you mean 'square'"),
        ("square", Grid.uniform((4, 5), kind="cell"), None, "two axes of equal points and kind, got 4 cell x 5 cell"),
        ("square", PERIODIC, None, "two axes of equal points and kind, got 8 periodic"),
        ("translation", SQUARE, None, "needs a periodic axis, got cell, cell"),
        ("translation", PERIODIC, 3, "shifts = 3: expected a divisor of the 8 points of axis 'x'"),
        ("reflection", Advection(points=16).grid, None, r"does not map the nodes of axis 'x' to nodes.*kind 'left'"),
        ([(1, 2)], SQUARE, None, r"expected \(on_a, on_u\)"),
        ([(np.negative, np.negative, 1)], SQUARE, None, "a number of at least 2"),
    ],
)
def test_invalid_symmetries_are_rejected(symmetries, grid, shifts, message) -> None:
    with pytest.raises(UserError, match=message):
        group(symmetries, grid, shifts)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ((np.negative, lambda u: 2 * u), "'custom map to the power 1' and its inverse do not cancel on u"),
        ((lambda a: np.roll(a, 1, -1), np.negative), "is none of the 2 elements, expected a group"),
        ((np.negative, lambda u: u[..., ::2]), "do not cancel on u: the shapes are"),
        ((lambda a: a[..., ::2], np.negative), "maps change the shapes"),
    ],
)
def test_custom_maps_that_are_not_a_group_are_rejected(maps, message) -> None:
    with pytest.raises(UserError, match=message):
        check(group([maps], PERIODIC), fields(PERIODIC), fields(PERIODIC))


def test_duplicate_elements_are_rejected() -> None:
    with pytest.raises(UserError, match="is in the group twice, expected 32 different elements"):
        check(group(["square", "reflection"], SQUARE), fields(SQUARE), fields(SQUARE))


def test_elements_can_be_pickled() -> None:
    a = fields(SQUARE)
    for g in group(["square"], SQUARE):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(g)).on_a(a), g.on_a(a))


# Averages, augmentation, orbits


@by_name
def test_averages_are_equivariant(name) -> None:
    grid = GRIDS[name]
    elements = group(name, grid)
    a = fields(grid)
    mean = average(operator, a, elements)
    assert not np.allclose(mean, operator(a))
    for g in elements:
        np.testing.assert_allclose(average(operator, g.on_a(a), elements), g.on_u(mean), atol=1e-13)


def test_average_of_an_equivariant_operator_is_that_operator() -> None:
    eq = Darcy(points=6)
    a = eq.sample_input(2)
    np.testing.assert_allclose(average(eq.solve, a, elements_of(eq)), eq.solve(a), rtol=1e-10)


def test_average_over_some_elements() -> None:
    elements, a = group("translation", PERIODIC), fields(PERIODIC)
    np.testing.assert_allclose(average(operator, a, elements, count=8), average(operator, a, elements))
    some = average(operator, a, elements, count=3, seed=1)
    np.testing.assert_array_equal(some, average(operator, a, elements, count=3, seed=1))
    assert not np.allclose(some, average(operator, a, elements, count=3, seed=2))
    with pytest.raises(UserError, match="count = 9: expected a number of elements from 1 to 8"):
        average(operator, a, elements, count=9)


def test_augment_depends_on_seed_and_index_only() -> None:
    elements = group("square", SQUARE)
    a, u = fields(SQUARE, 40), fields(SQUARE, 40, channels=2, seed=1)
    new_a, new_u = augment(a, u, elements, seed=5)
    rows = np.array([7, 3, 30])
    some_a, some_u = augment(a[rows], u[rows], elements, seed=5, index=rows)
    np.testing.assert_array_equal(some_a, new_a[rows])
    np.testing.assert_array_equal(some_u, new_u[rows])
    assert not np.array_equal(augment(a, u, elements, seed=6)[0], new_a)
    assert not np.array_equal(augment(a, u, elements, seed=5, step=1)[0], new_a)
    images_a, images_u = orbit(a, elements), orbit(u, elements, of="u")
    drawn = [[k for k in range(8) if np.array_equal(new_a[i], images_a[k, i])] for i in range(40)]
    assert all(len(k) == 1 for k in drawn)
    assert all(np.array_equal(new_u[i], images_u[k[0], i]) for i, k in enumerate(drawn))  # the same element for a and u
    assert len({k[0] for k in drawn}) == 8  # an element is missing among 40 draws for one seed in 26


def test_augmented_pairs_are_pairs_of_the_operator() -> None:
    eq = Elliptic1D(points=32)
    a = eq.sample_input(8)
    new_a, new_u = augment(a, eq.solve(a), elements_of(eq), seed=0)
    assert not np.array_equal(new_a, a)
    np.testing.assert_allclose(eq.solve(new_a), new_u, atol=1e-10)


def test_augment_needs_equally_many_inputs_and_outputs() -> None:
    with pytest.raises(UserError, match="got 2 inputs, 3 outputs and 2 indices of pairs"):
        augment(np.zeros((2, 1, 8)), np.zeros((3, 1, 8)), group("reflection", PERIODIC))


@by_name
def test_tensors_and_arrays_give_the_same_results(name) -> None:
    grid = GRIDS[name]
    elements = group(name, grid)
    a, u = fields(grid), fields(grid, channels=2, seed=1)
    for g in elements:
        np.testing.assert_array_equal(g.on_a(torch.from_numpy(a)).numpy(), g.on_a(a))
        np.testing.assert_array_equal(g.undo(torch.from_numpy(u)).numpy(), g.undo(u))
    here, there = augment(a, u, elements), augment(torch.from_numpy(a), torch.from_numpy(u), elements)
    for array, tensor in zip(here, there, strict=True):
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), array)
    np.testing.assert_array_equal(orbit(torch.from_numpy(a), elements).numpy(), orbit(a, elements))
    np.testing.assert_allclose(average(torch.sin, torch.from_numpy(a), elements).numpy(), average(np.sin, a, elements))


@pytest.mark.slow
def test_large_groups_are_checked_without_all_pairwise_comparisons() -> None:
    """All shifts and odd reflections of 1024 points: products and a duplicate element are found."""
    line = Grid.uniform(1024, kind="periodic")
    elements = group(["translation", "odd-reflection"], line)
    a = fields(line, samples=1)
    check(elements, a, a)
    with pytest.raises(UserError, match="is in the group twice, expected 2049"):
        check([*elements, elements[700]], a, a)
