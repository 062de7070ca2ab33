"""Leave-one-out residuals of kernel means: those of refits, of groups and of parts, and nothing is solved twice."""

from copy import deepcopy

import numpy as np
import pytest

from pdno import UserError
from pdno.data.split import folds
from pdno.draw import generator
from pdno.equation import Darcy
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.mean.kernel.kernel import Kernel
from tests.mean.kernels import fitted, inputs, refit


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_residuals_are_those_of_refits(one_nugget, noise) -> None:
    kernel, a, u = fitted(20, noise)
    residuals = kernel.residuals(a, u)
    for i in range(20):
        rest = np.delete(np.arange(20), i)
        np.testing.assert_allclose(residuals[i], (u - refit(kernel, a, u, rest)(a))[i], rtol=1e-5, atol=1e-8)
    size = [np.linalg.norm(x[:, 0], axis=1) for x in (residuals, u)]
    assert kernel.error == pytest.approx((size[0] / size[1]).mean(), rel=1e-10)
    np.testing.assert_array_equal(Kernel("matern52").residuals(a, u), residuals)  # without a fit beforehand


def test_groups_are_left_out_together(one_nugget) -> None:
    kernel, a, u = fitted(20, 0.1)
    labels = np.array([3, 3, 5, 3, 7, 7, 9] + [11] * 4 + list(range(20, 29)))
    residuals = kernel.residuals(a, u, group=labels)
    for label in np.unique(labels):
        other = refit(kernel, a, u, np.flatnonzero(labels != label))
        np.testing.assert_allclose(residuals[labels == label], (u - other(a))[labels == label], rtol=1e-6, atol=1e-9)
    with pytest.raises(UserError, match="all pairs are of one group"):
        kernel.residuals(a, u, group=np.zeros(20, dtype=int))


def test_all_copies_of_a_pair_are_left_out(one_nugget) -> None:
    eq = Darcy(points=6)
    a = eq.sample_input(10)
    u = 100 * eq.solve(a)
    kernel = Kernel("rq", symmetries="square").fit(a, u)
    assert kernel._copied
    residuals = kernel.residuals(a, u)
    for i in range(10):
        rest = np.delete(np.arange(10), i)
        np.testing.assert_allclose(residuals[i], (u - refit(kernel, a, u, rest)(a))[i], rtol=1e-4, atol=1e-6)


def test_residuals_of_averages_come_from_folds() -> None:
    a = inputs(24)
    kernel = Kernel("rq", symmetries=["translation", "odd-reflection"], kind="periodic", shifts=8).fit(a, np.sin(a))
    assert not kernel._copied
    residuals = kernel.residuals(a, np.sin(a), count=3)
    for kept, out in folds(24, 3):
        np.testing.assert_allclose(residuals[out], (np.sin(a) - refit(kernel, a, np.sin(a), kept)(a))[out], atol=1e-12)


def test_residuals_of_a_part(one_nugget) -> None:
    """Pairs outside the training part are predicted by the whole part; others without themselves."""
    kernel, a, u = fitted(30, 0.1, most=20)
    residuals = kernel.residuals(a, u)
    kept = np.sort(generator(0, "kernel", 0).permutation(30)[:20])
    part, out = refit(kernel, a, u, kept), np.setdiff1d(np.arange(30), kept)
    np.testing.assert_allclose(residuals[out], (u - part(a))[out], atol=1e-12)
    for i in kept:
        other = refit(kernel, a, u, kept[kept != i])
        np.testing.assert_allclose(residuals[i], (u - other(a))[i], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(part(a), kernel(a), atol=1e-12)  # the part that the model itself was trained on


def test_residuals_of_a_part_with_groups_come_from_folds(one_nugget) -> None:
    """Each fold is trained on as many pairs as the model, of as many groups as possible."""
    kernel, a, u = fitted(30, 0.1, most=20)
    labels, order = np.repeat(np.arange(10), 3), generator(0, "kernel", 0).permutation(30)
    residuals = kernel.residuals(a, u, group=labels)
    for kept, out in folds(30, 5, labels):
        rows = np.sort(order[np.isin(order, kept)][:20])
        np.testing.assert_allclose(residuals[out], (u - refit(kernel, a, u, rows)(a))[out], atol=1e-12)


def test_repeated_inputs_are_left_out_together() -> None:
    """Four repeats of each input are as good as one, also for the hyper-parameters."""
    rng, x = np.random.default_rng(0), np.linspace(0, 1, 16)
    p, q, w = rng.normal(size=(30, 4)), rng.normal(size=(200, 4)), rng.normal(size=(4, 16))
    u, new = (np.sin(2 * z[:, :1] + x)[:, None] * np.exp(0.7 * z[:, 1:2])[:, None] for z in (p, q))
    a, many = (p @ w)[:, None], pairs_of(np.repeat((p @ w)[:, None], 4, axis=0), np.repeat(u, 4, axis=0))
    single, repeated = Kernel("matern52").fit(a, u), Kernel("matern52").learn(many, None, Terms(progress=False))
    error, error_repeated = (np.sqrt(np.mean((each((q @ w)[:, None]) - new) ** 2)) for each in (single, repeated))
    assert error_repeated == pytest.approx(error, rel=0.1)
    left = repeated.residuals(many.a, many.u, group=many.labels())
    assert np.sqrt(np.mean(left**2)) == pytest.approx(np.sqrt(np.mean(single.residuals(a, u) ** 2)), rel=0.1)


@pytest.fixture
def solves(monkeypatch) -> list[int]:
    """The numbers of pairs of all regressions with the selected hyper-parameters."""
    counts: list[int] = []
    solve = Kernel._solve
    monkeypatch.setattr(Kernel, "_solve", lambda self, a, *rest: counts.append(len(a)) or solve(self, a, *rest))
    return counts


@pytest.mark.parametrize("settings", [{}, {"most": 20}, {"symmetries": "reflection"}], ids=str)
def test_nothing_is_solved_twice(settings, solves) -> None:
    """Residuals of the training pairs are those of training, bitwise identical to those of another regression."""
    kernel, a, u = fitted(30, 0.1, **settings)
    count = settings.get("most", 30)
    assert solves == [count]
    residuals = kernel.residuals(a.copy(), u.copy())  # equal arrays need not be the same object
    assert solves == [count]
    np.testing.assert_array_equal(kernel.residuals(a, u), residuals)
    assert solves == [count, count]  # they are kept for one use


def test_other_arrays_are_solved_again(solves) -> None:
    kernel, a, u = fitted(30, 0.1)
    expected = Kernel.from_state(kernel.state())
    for given in ({"u": u + 1}, {"a": 2 * a}, {"seed": 1}, {"group": np.arange(30) // 2}):
        del solves[:]
        arguments = {"a": a, "u": u} | given
        np.testing.assert_array_equal(kernel.residuals(**arguments), expected.residuals(**arguments))
        assert len(solves) == 2
    del solves[:]
    kernel.residuals(a, u)
    assert solves == []  # those of training are still there


def test_copies_do_not_share_residuals(solves) -> None:
    """A copy that is trained again, or residuals that are changed, leave those of others as they are."""
    kernel, a, u = fitted(30, 0.1)
    other = deepcopy(kernel).fit(a, 2 * u)
    twin = deepcopy(kernel)
    first = kernel.residuals(a, u)
    expected = first.copy()
    first += 1
    np.testing.assert_array_equal(twin.residuals(a, u), expected)
    np.testing.assert_array_equal(other.residuals(a, 2 * u), Kernel("matern52").fit(a, 2 * u).residuals(a, 2 * u))
    assert solves == [30, 30, 30]


def test_constant_outputs_have_the_residuals_of_rounding() -> None:
    """Training replaces outputs that are constant up to rounding by their mean, so its residuals are not theirs."""
    a, u = inputs(20), 3 * (1 + 1e-15 * inputs(20, seed=3))
    kernel = Kernel().fit(a, u)
    np.testing.assert_array_equal(kernel.residuals(a, u), Kernel.from_state(kernel.state()).residuals(a, u))
