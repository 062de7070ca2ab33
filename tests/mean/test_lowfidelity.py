"""Solvers and their corrections: the factor of the solver, Darcy flow on coarse grids, scalars, residuals."""

from copy import deepcopy
from functools import partial
from threading import Lock

import numpy as np
import pytest

import pdno.mean.lowfidelity as module
from pdno import UserError
from pdno.equation import Darcy
from pdno.grid import interpolate
from pdno.mean.kernel.kernel import Kernel
from pdno.mean.linear.linear import Linear
from pdno.mean.lowfidelity import LowFidelity
from tests.mean.problems import PLAIN, Nothing, normal, wavy


def relative(v: np.ndarray, u: np.ndarray) -> float:
    """Mean relative error of fields."""
    size = [np.linalg.norm(x.reshape(len(x), -1), axis=1) for x in (v - u, u)]
    return float((size[0] / size[1]).mean())


def coarse(a) -> np.ndarray:
    """Solutions on half as many points, with geometric means of coefficients."""
    n = a.shape[-1] // 2
    return Darcy(n).solve(np.exp(np.log(a).reshape(len(a), 1, n, 2, n, 2).mean(axis=(3, 5))))


def darcy(pairs: int, seed: int, points: int = 32) -> tuple[np.ndarray, ...]:
    equation = Darcy(points)
    a, new = equation.sample_input(pairs, seed=seed), equation.sample_input(40, seed=seed + 100)
    return a, equation.solve(a), new, equation.solve(new)


# The factor


@pytest.mark.parametrize("correction", [None, Linear(**PLAIN)])
def test_three_times_the_solver_and_an_affine_map_is_exact(correction) -> None:
    a, new, b = normal(80, 2, 6), normal(40, 2, 6, seed=1), normal(6, 6, seed=2)

    def operator(x) -> np.ndarray:
        return np.array([3.0, -0.5])[:, None] * wavy(x) + x[:, ::-1] @ b + 7

    mean = LowFidelity(wavy, correction).fit(a, operator(a))
    np.testing.assert_allclose(mean.factor, [3, -0.5], rtol=1e-10)
    np.testing.assert_allclose(mean(new), operator(new), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mean.residuals(a, operator(a)), 0, atol=1e-8)


def test_without_scale_the_factor_is_one() -> None:
    a, correction = normal(40, 1, 6), Nothing()
    mean = LowFidelity(wavy, correction, scale=False).fit(a, 3 * wavy(a) + a)
    np.testing.assert_array_equal(mean.factor, [1.0])
    np.testing.assert_array_equal(correction.target, 3 * wavy(a) + a - wavy(a))
    np.testing.assert_array_equal(mean(a), wavy(a))


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_an_offset_is_not_taken_for_a_factor(seed) -> None:
    """Darcy flow, noise and a constant: over 20 seeds the error of b was at most 0.022, but 1.4 with c̃ = 0, and up to 0.19 if
    the choice was between that and components of a."""
    a, u, _, _ = darcy(40, seed)
    noisy = u + 0.01 + 0.003 * normal(*u.shape, seed=seed)
    assert LowFidelity(coarse, Nothing()).fit(a, noisy).factor == pytest.approx(1, abs=0.024)


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_spoil_the_factor(seed) -> None:
    """Six times as large as u: over 20 seeds the error of b was at most 0.15; with components of a alone 0.4 on average."""
    a, u, _, _ = darcy(40, seed)
    noisy = u + 0.03 * normal(*u.shape, seed=seed)
    assert LowFidelity(coarse, Nothing()).fit(a, noisy).factor == pytest.approx(1, abs=0.2)


def test_solver_that_is_affine_zero_or_constant() -> None:
    a, new = normal(40, 1, 6), normal(10, 1, 6, seed=1)
    for solver in (lambda x: 5 * x + 1, lambda x: 0 * x, lambda x: 0 * x + 3):
        mean = LowFidelity(solver).fit(a, 2 * a - 1)
        assert np.isfinite(mean.factor).all()
        np.testing.assert_allclose(mean(new), 2 * new - 1, atol=1e-9)


def test_no_factor_by_rounding_errors() -> None:
    """An affine solver is zero beside an affine map; the factor is then the one that was estimated with a smaller c̃."""
    a = normal(40, 1, 6)
    q = module._bases(a[:, 0])[-1]
    assert q.shape == (40, 7)
    np.testing.assert_array_equal(module._least_squares(wavy(a), 5 * a + 1, q, True, np.array([9.0]))[0], [9.0])
    np.testing.assert_allclose(module._least_squares(3 * wavy(a) + a, wavy(a), q, True, np.array([9.0]))[0], [3.0], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_pairs(n) -> None:
    a = normal(n, 1, 6)
    mean = LowFidelity(wavy).fit(a, 2 * wavy(a))
    np.testing.assert_allclose(mean.factor, [2], rtol=1e-6)
    np.testing.assert_allclose(mean(a), 2 * wavy(a), atol=1e-6)


def test_the_factor_is_estimated_from_some_of_many_pairs(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_PAIRS", 30)
    a = normal(90, 1, 6)
    u = np.where(np.arange(90) % 2, 2.0, 4.0)[:, None, None] * wavy(a)
    seeds = [LowFidelity(wavy, Nothing()).fit(a, u, seed=seed).factor[0] for seed in (0, 0, 1)]
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(2 < b < 4 for b in seeds)
    correction = Nothing()
    LowFidelity(wavy, correction).fit(a, u)
    np.testing.assert_allclose(correction.target, u - seeds[0] * wavy(a), atol=1e-12)  # of all pairs


# Darcy flow


@pytest.mark.parametrize("seed", range(2))
def test_coarse_solver_and_correction_beat_either(seed) -> None:
    """Over 20 seeds errors were 0.75 to 0.80 of the best of the solver alone, and 0.15 to 0.19 of the better mean's."""
    a, u, new, truth = darcy(60, seed)
    mean = LowFidelity(coarse).fit(a, u)
    assert mean.interpolation == "sines"  # u is zero at the boundary
    grids = Darcy(16).grid, Darcy(32).grid
    ways = [{"method": "linear"}, {"method": "spectral"}, {"method": "spectral", "condition": "dirichlet"}]
    alone = [interpolate(coarse(new), *grids, **way) for way in ways]
    alone += [v * (v * truth).sum() / (v * v).sum() for v in alone]
    ours = relative(mean(new), truth)
    assert ours < 0.85 * min(relative(v, truth) for v in alone)
    assert ours < 0.25 * min(relative(other.fit(a, u)(new), truth) for other in (Linear(), Kernel()))
    assert relative(LowFidelity(coarse, Kernel()).fit(a, u)(new), truth) < 1.1 * ours


def test_solver_with_optional_settings_is_a_solver_of_a() -> None:
    """Darcy.solve(a, f=1): the second argument is not for scalars."""
    equation = Darcy(8)
    a, s = equation.sample_input(20), normal(20, 1)
    mean = LowFidelity(equation.solve, Nothing()).fit(a, 2 * equation.solve(a), s)
    np.testing.assert_allclose(mean(a, s), 2 * equation.solve(a), rtol=1e-9)
    assert "'Darcy.solve' times 2" in mean.describe()


# Scalars


def test_scalars_reach_solver_and_correction() -> None:
    a, s, new, more = normal(80, 1, 6), normal(80, 2, seed=1), normal(20, 1, 6, seed=2), normal(20, 2, seed=3)

    def solver(a, scalars=None) -> np.ndarray:
        return wavy(a) * np.exp(scalars[:, :1, None])

    def operator(a, s) -> np.ndarray:
        return 3 * solver(a, s) + 2 * s[:, 1:, None] - a

    for each in (solver, lambda a, parameters: solver(a, parameters), partial(solver)):
        mean = LowFidelity(each).fit(a, operator(a, s), s)
        np.testing.assert_allclose(mean.factor, [3], rtol=1e-9)
        np.testing.assert_allclose(mean(new, more), operator(new, more), atol=1e-8)
    with pytest.raises(UserError, match="the solver '<lambda>' takes two arguments, but there are no scalars; give scalars"):
        LowFidelity(lambda a, parameters: a).fit(a, a)
    unused = LowFidelity(wavy).fit(a, wavy(a) + s[:, :1, None], s)
    np.testing.assert_allclose(unused(new, more), wavy(new) + more[:, :1, None], atol=1e-8)


# Residuals


def test_residuals_are_those_of_the_correction() -> None:
    a, group, calls = normal(50, 1, 6), np.repeat(np.arange(25), 2), []
    u = 2 * wavy(a) + a**3 + 0.1 * normal(50, 1, 6, seed=1)

    def solver(x) -> np.ndarray:
        calls.append(len(x))
        return wavy(x)

    mean = LowFidelity(solver, Linear(**PLAIN))
    found = mean.residuals(a, u), mean.residuals(a, u, group=group, count=3, seed=1)
    assert calls == [50, 50]
    with pytest.raises(UserError, match="has not been trained"):  # residuals do not train it
        mean(a)
    for seed in (0, 1):
        mean.fit(a, u, seed=seed)
        target = u - mean.factor * wavy(a)
        options = ({}, {"group": group, "count": 3, "seed": 1})[seed]
        np.testing.assert_array_equal(found[seed], Linear(**PLAIN).residuals(a, target, **options))
    refit = np.empty(u.shape)
    for i in range(50):
        kept = np.arange(50) != i
        refit[i] = u[i] - LowFidelity(wavy, Linear(**PLAIN)).fit(a[kept], u[kept])(a[i : i + 1])[0]
    assert np.linalg.norm(found[0]) == pytest.approx(np.linalg.norm(refit), rel=0.03)


def test_the_solver_does_not_run_again_on_the_training_pairs(monkeypatch) -> None:
    """Neither is the correction fitted again; residuals are bitwise identical to those of another object."""
    calls: list[int] = []
    fits: list[int] = []
    select = Linear._select
    monkeypatch.setattr(Linear, "_select", lambda self, a, *rest: fits.append(len(a)) or select(self, a, *rest))

    def solver(x) -> np.ndarray:
        calls.append(len(x))
        return wavy(x)

    a = normal(50, 1, 6)
    u = 2 * wavy(a) + a**3 + 0.1 * normal(50, 1, 6, seed=1)
    mean = LowFidelity(solver, Linear(**PLAIN)).fit(a, u, seed=1)
    count = len(fits)
    found = mean.residuals(a.copy(), u.copy(), seed=1)
    assert calls == [50]
    assert len(fits) == count
    np.testing.assert_array_equal(LowFidelity(wavy, Linear(**PLAIN)).residuals(a, u, seed=1), found)
    np.testing.assert_array_equal(mean.residuals(a, u, seed=1), found)
    assert calls == [50, 50]
    mean.fit(a, u)
    other = mean.residuals(a, u + a)
    np.testing.assert_array_equal(other, LowFidelity(wavy, Linear(**PLAIN)).residuals(a, u + a))


def test_copies_share_the_solver() -> None:
    class Machine:
        def __init__(self) -> None:
            self.lock = Lock()  # which cannot be copied

        def __call__(self, a) -> np.ndarray:
            return wavy(a)

    a = normal(40, 1, 6)
    mean = LowFidelity(Machine()).fit(a, wavy(a))
    before, copy = mean(a), deepcopy(mean)
    assert copy.solver is mean.solver
    copy.fit(a, 5 * wavy(a) + a)
    np.testing.assert_array_equal(mean(a), before)
    assert "'Machine'" in copy.describe()


def test_cost_is_that_of_the_correction() -> None:
    class Costly(Nothing):
        cheap_folds = False

    assert LowFidelity(wavy).cheap_folds
    assert not LowFidelity(wavy, Costly()).cheap_folds
