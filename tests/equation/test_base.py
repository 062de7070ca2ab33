"""Properties that all four equations share."""

import numpy as np
import pytest

from pdno import UserError
from pdno.equation import EQUATIONS, Advection, Burgers, Darcy, Elliptic1D
from pdno.grid import restrict

SMALL = [Elliptic1D(points=32), Darcy(points=12), Burgers(points=64), Advection(points=64)]
by_name = pytest.mark.parametrize("eq", SMALL, ids=lambda eq: eq.name)


def relative(r: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the norm of each residual / the norm of its solution."""
    return np.linalg.norm(r.reshape(len(r), -1), axis=1) / np.linalg.norm(u.reshape(len(u), -1), axis=1)


@by_name
def test_shapes_and_layouts(eq) -> None:
    a = eq.sample_input(3, seed=0)
    assert a.shape == (3, 1, *eq.grid.shape)
    u = eq.solve(a)
    assert u.shape == a.shape
    np.testing.assert_array_equal(eq.solve(a[:, 0]), u[:, 0])
    np.testing.assert_array_equal(eq.residual(u[:, 0], a[:, 0]), eq.residual(u, a)[:, 0])


@by_name
def test_residual_is_small_for_the_solution_and_large_after_a_change_of_one_percent(eq) -> None:
    """Relative to the size of the terms of the equation, measured by a change of u by 100 %."""
    a = eq.sample_input(8, seed=1)
    u = eq.solve(a)
    size = relative(eq.residual(2 * u, a), u)
    small = eq.rtol if isinstance(eq, Burgers) else 1e-8
    assert (relative(eq.residual(u, a), u) < small * size).all()
    bumped = u * (1 + 0.01 * np.random.default_rng(0).standard_normal(u.shape))
    for changed in (1.01 * u, bumped):
        assert (relative(eq.residual(changed, a), u) > 1e-3 * size).all()


@by_name
def test_inputs_and_solutions_do_not_depend_on_the_batch(eq) -> None:
    a = eq.sample_input(9, seed=2)
    np.testing.assert_array_equal(eq.sample_input(2, seed=2, first=5), a[5:7])
    assert not np.array_equal(eq.sample_input(9, seed=3), a)
    u = eq.solve(a)
    np.testing.assert_array_equal(eq.solve(a[5:7]), u[5:7])


@pytest.mark.parametrize(
    ("fine", "coarse"),
    [
        (Elliptic1D(points=125), Elliptic1D(points=32)),
        (Darcy(points=99), Darcy(points=33)),
        (Burgers(points=1024), Burgers(points=16)),
        (Advection(points=1024), Advection(points=64)),
        (Advection(points=300), Advection(points=60)),
    ],
    ids=lambda eq: f"{eq.name}{eq.points}",
)
def test_seed_and_index_give_the_same_input_on_every_grid(fine, coarse) -> None:
    a = restrict(fine.sample_input(4, seed=4), fine.grid, coarse.grid)
    np.testing.assert_allclose(a, coarse.sample_input(4, seed=4), atol=1e-12)


SYMMETRIES = {
    "square": [
        (lambda a: np.swapaxes(a, -1, -2), lambda u: np.swapaxes(u, -1, -2)),
        (lambda a: a[..., ::-1, :], lambda u: u[..., ::-1, :]),
        (lambda a: np.rot90(a, axes=(-2, -1)), lambda u: np.rot90(u, axes=(-2, -1))),
    ],
    "translation": [(lambda a: np.roll(a, 5, -1), lambda u: np.roll(u, 5, -1))],
    "odd-reflection": [(lambda a: -np.roll(a[..., ::-1], 1, -1), lambda u: -np.roll(u[..., ::-1], 1, -1))],
    "reflection-complement": [(lambda a: a[..., ::-1], lambda u: 1 - u[..., ::-1])],
}


@by_name
def test_declared_symmetries_hold(eq) -> None:
    a = eq.sample_input(3, seed=5)
    u = eq.solve(a)
    for name in eq.symmetries:
        for on_a, on_u in SYMMETRIES[name]:
            np.testing.assert_allclose(eq.solve(on_a(a)), on_u(u), atol=1e-9 * np.abs(u).max())


def test_symmetries_are_declared() -> None:
    assert {eq.name: eq.symmetries for eq in SMALL} == {
        "elliptic1d": ("reflection-complement",),
        "darcy": ("square",),
        "burgers": ("translation", "odd-reflection"),
        "advection": (),
    }
    u = Advection(points=64).solve(np.roll(a := Advection(points=64).sample_input(1), 5, -1))
    assert not np.allclose(u, np.roll(Advection(points=64).solve(a), 5, -1))  # the inflow breaks translation


@by_name
def test_settings_rebuild_the_equation(eq) -> None:
    assert EQUATIONS[eq.name](**eq.settings()) == eq


def test_settings_are_json_types_for_any_type_of_number() -> None:
    eq = Darcy(points=np.int64(8), a_low=4, a_high=np.float32(12), tau=3, r=2)  # type: ignore[arg-type]
    assert repr(eq.settings()) == repr(Darcy(points=8).settings())


def test_defaults_are_those_of_the_paper() -> None:
    assert Elliptic1D().settings() == {"points": 128, "log_scale": 0.1}
    assert Darcy().settings() == {"points": 64, "a_low": 4.0, "a_high": 12.0, "tau": 3.0, "r": 2.0}
    assert Advection().settings() == {"points": 256, "t_final": 0.5, "tau": 100.0, "r": 2.0}
    burgers = Burgers().settings()
    assert (burgers["points"], burgers["t_final"]) == (1024, 1.0)
    assert burgers["viscosity"] * (2 * np.pi) ** 2 == pytest.approx(0.1)
    assert burgers["speed"] * 2 * np.pi == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Darcy(points=1), "points = 1"),
        (lambda: Elliptic1D(points=1), "at least 8 points"),
        (lambda: Darcy(points=3.5), "whole number"),
        (lambda: Darcy(a_low=-1), "positive"),
        (lambda: Darcy(a_low=12, a_high=4), "below a_high"),
        (lambda: Burgers(viscosity=0), "positive"),
        (lambda: Burgers(points=8).solve(np.ones((1, 8)), times=[0.5, 0.1]), "non-decreasing order"),
        (lambda: Advection(points=33), "16.5 of 33 cells"),
        (lambda: Advection(points=32, t_final=2.0), "whole number from 1 to 32"),
        (lambda: Burgers(points=8).solve(np.ones((1, 8)), times=[]), "one or more times"),
        (lambda: Burgers(points=8).solve(np.ones((1, 8)), times=[np.nan]), "one or more times"),
        (lambda: Burgers(points=8).residual(np.ones((3, 8)), np.ones((1, 8))), "u has 3 samples and a has 1"),
        (lambda: Darcy(points=8).residual(np.ones((3, 8, 8)), np.ones((1, 8, 8))), "u has 3 samples and a has 1"),
        (lambda: Burgers(points=8, rtol=2), "from 1e-12 to 1e-2"),
        (lambda: Burgers(points=8).solve(np.ones((1, 8)), refine=-1), "0 to 4 further refinement levels"),
        (lambda: Darcy(points=8).solve(np.ones((1, 8, 8)), f=np.ones((7, 8))), "f has shape"),
        (lambda: Darcy(points=8).solve(np.ones((1, 8, 8)), f=np.nan), "f has NaN"),
        (lambda: Darcy(points=8).solve(1j * np.ones((1, 8, 8))), "real numbers"),
        (lambda: Darcy(a_low="4"), "positive number"),  # type: ignore[arg-type]
        (lambda: Darcy(points=8).sample_input(-1), "not be negative"),
        (lambda: Darcy(points=8).solve(np.ones((2, 9, 9))), r"expects \(batch, 1, 8, 8\)"),
        (lambda: Darcy(points=8).solve(np.ones((2, 2, 8, 8))), "has shape"),
        (lambda: Darcy(points=8).solve(np.full((2, 8, 8), np.nan)), "NaN"),
        (lambda: Darcy(points=8).solve(np.zeros((2, 8, 8))), "positive everywhere"),
    ],
)
def test_invalid_arguments_are_rejected(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
