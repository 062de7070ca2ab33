"""Symmetries of kernel means: equivariant predictions, and regression on explicit copies."""

import numpy as np
import pytest

from pdno.equation import Darcy
from pdno.grid import Grid
from pdno.mean.kernel.kernel import Kernel
from pdno.symmetry import group, orbit
from tests.mean.kernels import inputs, textbook


@pytest.mark.parametrize(
    ("symmetries", "kind", "shape", "map_", "copied"),
    [
        ("square", "cell", (1, 6, 6), lambda a: np.sin(a) * np.cos(a.mean(axis=(2, 3), keepdims=True)), True),
        ("reflection-complement", "vertex", (1, 7), lambda a: 0.5 + np.sin(a - np.flip(a, -1)) / 3, True),
        (["translation", "odd-reflection"], "periodic", (1, 8), lambda a: a + a**3 / 10, True),
        (["translation", "odd-reflection"], "periodic", (1, 16), lambda a: a + a**3 / 10, False),
    ],
)
def test_predictions_are_equivariant(symmetries, kind, shape, map_, copied) -> None:
    """For any training pairs, and exactly; the last group is too large for copies."""
    a, new = inputs(30, *shape), inputs(4, *shape, seed=1)
    kernel = Kernel("rq", symmetries, kind, shifts=16 if shape == (1, 16) else None).fit(a, map_(a))
    assert kernel._copied == copied
    mean, std = kernel(new), kernel.posterior_std(new)
    for g in kernel._domain.elements:
        np.testing.assert_allclose(kernel(g.on_a(new)), g.on_u(mean), atol=1e-10)
        turned = g.on_u(std) if kind != "vertex" else std[..., ::-1]
        np.testing.assert_allclose(kernel.posterior_std(g.on_a(new)), np.abs(turned), rtol=1e-4, atol=1e-7)


def test_maps_that_change_the_kernel_serve_to_average() -> None:
    """g a = 1/a is no isometry."""
    a, new = np.exp(inputs(30)), np.exp(inputs(4, seed=1))
    kernel = Kernel("rq", [(lambda x: 1 / x, np.negative)], log=False).fit(a, np.log(a))
    assert not kernel._copied
    np.testing.assert_allclose(kernel(1 / new), -kernel(new), atol=1e-10)
    kernel = Kernel("rq", [(lambda x: 1 / x, np.negative)], log=True).fit(a, np.log(a))
    assert kernel._copied  # an isometry of log a
    np.testing.assert_allclose(kernel(1 / new), -kernel(new), atol=1e-10)
    np.testing.assert_allclose(kernel(new), np.log(new), atol=0.05)


@pytest.mark.parametrize("symmetries", ["square", "reflection"])
def test_copies_by_characters_are_copies(one_nugget, symmetries) -> None:
    """They agree with regression on all copies, one by one; the group of the square is not commutative."""
    eq = Darcy(points=6)
    a, new = eq.sample_input(8), eq.sample_input(3, seed=1)
    u = 100 * eq.solve(a)
    kernel = Kernel("rq", symmetries).fit(a, u)
    elements = group(symmetries, Grid.uniform(6, dim=2, kind="cell"))
    copies = [np.concatenate(list(orbit(x, elements, of=of))) for x, of in ((a, "a"), (u, "u"))]
    mean, _ = textbook(kernel, *copies, new, kernel.state().arrays["nuggets"][0])
    np.testing.assert_allclose(kernel(new), mean, rtol=1e-5)


def test_symmetries_make_predictions_better() -> None:
    """By a factor of 1.7 with 60 pairs."""
    eq = Darcy(points=12)
    a, new = eq.sample_input(60), eq.sample_input(30, first=60)
    plain, symmetric = (Kernel("rq", names).fit(a, eq.solve(a)) for names in ((), "square"))
    errors = [np.linalg.norm(kernel(new) - eq.solve(new)) for kernel in (plain, symmetric)]
    assert errors[1] < 0.75 * errors[0]
    assert "each with its symmetric copies (8)" in symmetric.describe()
