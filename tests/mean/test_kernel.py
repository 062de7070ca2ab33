"""Kernel regression against textbook formulas, refits and regression on explicit copies."""

import time
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import pdno.mean.kernel.kernel as module
import pdno.mean.kernel.search as search
from pdno import UserError
from pdno.data.split import folds
from pdno.equation import Darcy
from pdno.grid import Grid
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.mean.kernel.kernel import ARRAYS, KERNELS, Hyper, Kernel, log_likelihood
from pdno.symmetry import group, orbit
from tests.mean.states import from_file

POINTS = 8


def inputs(samples: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, *(shape or (1, POINTS))))


def operator(a) -> np.ndarray:
    """A smooth nonlinear map, all of whose output modes depend on a."""
    return 2 + np.tanh(a) + 0.3 * np.roll(a, 1, axis=-1) ** 2


def fitted(samples: int = 40, noise: float = 0.0, **settings: object) -> tuple[Kernel, np.ndarray, np.ndarray]:
    a = inputs(samples)
    u = operator(a) + noise * inputs(samples, seed=1)
    return Kernel(**{"kernel": "matern52", **settings}).fit(a, u), a, u


def textbook(kernel: Kernel, a, u, new, nugget: float) -> tuple[np.ndarray, np.ndarray]:
    """Kriging with an unknown constant as one linear system: its mean, (sample, …), and the variance factor, (sample,)."""
    trained, phi = (kernel._features(x, np.zeros((len(x), 0))) for x in (a, new))
    h, n = kernel.hyper, len(a)
    system = np.block([[h.gram(trained, trained) + nugget * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    right = np.concatenate([h.gram(trained, phi), np.ones((1, len(new)))])
    weights = np.linalg.solve(system, right)
    own = np.array([h.gram(x[None], x[None])[0, 0] for x in phi])
    return np.tensordot(weights[:n].T, u, axes=1), own - (weights * right).sum(axis=0)


def refit(kernel: Kernel, a, u, rows, scalars=None) -> Kernel:
    """Regression on some rows with the same hyper-parameters."""
    new, s = copy(kernel), np.zeros((len(a), 0)) if scalars is None else scalars
    new._solve(a[rows], u[rows], s[rows], np.arange(len(rows)))
    return new


@pytest.fixture
def one_nugget(monkeypatch) -> None:
    """The same nugget for all modes, as in textbooks."""
    monkeypatch.setattr(search, "select_nuggets", lambda errors: (np.zeros(errors.shape[1], dtype=int), np.array([1e-3])))


# Formulas


@pytest.mark.usefixtures("one_nugget")
@pytest.mark.parametrize("name", KERNELS)
def test_posterior_is_that_of_the_textbook(name) -> None:
    kernel, a, u = fitted(noise=0.1, kernel=name)
    (nugget,) = kernel.state().arrays["nuggets"]
    new = inputs(5, seed=2)
    mean, factor = textbook(kernel, a, u, new, nugget)
    np.testing.assert_allclose(kernel(new), mean, rtol=1e-8)
    np.testing.assert_allclose(kernel.variance(new), factor, rtol=1e-6, atol=1e-10)
    contrasts = null_space(np.ones((1, len(a))))  # the likelihood of s² is that of contrasts
    phi = kernel._features(a, np.zeros((len(a), 0)))
    k = contrasts.T @ (kernel.hyper.gram(phi, phi) + nugget * np.eye(len(a))) @ contrasts
    y = contrasts.T @ u[:, 0]
    scale = np.sqrt((y * np.linalg.solve(k, y)).sum(axis=0) / (len(a) - 1))
    np.testing.assert_allclose(kernel.posterior_std(new)[:, 0], np.sqrt(factor)[:, None] * scale, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(kernel.noise_std[0], np.sqrt(nugget) * scale, rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_covariances(name) -> None:
    f, g = inputs(2, 3), inputs(3, 3, seed=1)
    r = np.linalg.norm(f[:, None] - g, axis=2) / 1.5
    by_hand = {
        "matern52": (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
        "matern32": (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "rq": (1 + r**2 / (2 * 0.7)) ** -0.7,
        "gaussian": np.exp(-(r**2) / 2),
        "linear": f @ g.T,
    }
    np.testing.assert_allclose(Hyper(name, length=1.5, shape=0.7).gram(f, g), by_hand[name], rtol=1e-12)


def test_likelihood_is_that_of_contrasts() -> None:
    f, y = inputs(9, 3), inputs(9, 2, seed=1)
    k = Hyper("rq").gram(f, f)
    contrasts = null_space(np.ones((1, 9)))
    law = multivariate_normal(cov=contrasts.T @ (k + 0.01 * np.eye(9)) @ contrasts)
    assert log_likelihood(k, y, 0.01) == pytest.approx(law.logpdf((contrasts.T @ y).T).sum(), rel=1e-10)
    assert log_likelihood(k, y + 7, 0.01) == pytest.approx(log_likelihood(k, y, 0.01), rel=1e-8)  # the constant is free


def test_features_are_weighted_modes() -> None:
    """One cosine has one feature, scaled so that the features of training inputs have a mean square of one."""
    x = (np.arange(16) + 0.5) / 16
    a = inputs(30, 1, 1) * np.cos(3 * np.pi * x)
    kernel = Kernel("matern52", log=False).fit(a, a)
    phi = kernel._features(a, np.zeros((30, 0)))
    assert np.square(phi).sum(axis=1).mean() == pytest.approx(1, rel=0.02)
    share = np.square(phi).mean(axis=0)
    assert share[3] > 0.9  # the rest is the mean over samples and points


def test_noise_free_data_are_interpolated() -> None:
    """60 pairs of a smooth function of two numbers."""
    a, new = (inputs(n, 1, 2, seed=n) @ inputs(2, POINTS) for n in (60, 20))
    kernel = Kernel().fit(a, np.sin(a))
    np.testing.assert_allclose(kernel(a), np.sin(a), atol=1e-4)
    assert np.sqrt(np.square(kernel(new) - np.sin(new)).mean()) < 0.1
    assert kernel.posterior_std(a).max() < 1e-3 < kernel.posterior_std(3 * new).max()


def test_a_linear_map_is_reproduced_by_the_linear_kernel() -> None:
    matrix = np.random.default_rng(5).normal(size=(POINTS, POINTS))
    a, new = inputs(60), inputs(20, seed=1)
    kernel = Kernel("linear").fit(a, 1 + a @ matrix)
    np.testing.assert_allclose(kernel(new), 1 + new @ matrix, atol=1e-5)
    assert Kernel().fit(a, 1 + a @ matrix).hyper.kernel == "linear"


def test_noise_is_recovered() -> None:
    """200 pairs of 32 points: the estimate has a relative error of 1/√12800 = 0.9 %, and the variation of m is not noise."""
    x = (np.arange(32) + 0.5) / 32
    a = inputs(200, 1, 3) @ np.cos(np.pi * np.outer(np.arange(3), x))
    clean = np.sin(a.mean(axis=-1, keepdims=True)) * np.sin(np.pi * x) + a[..., :1] * x
    kernel = Kernel().fit(a, clean + 0.2 * inputs(200, 1, 32, seed=1))
    assert np.sqrt(np.square(kernel.noise_std).mean()) == pytest.approx(0.2, rel=0.04)
    error = np.sqrt(np.square(kernel(a) - clean).mean())
    assert error < 0.04  # with 200 pairs and three numbers in an input
    assert (kernel.state().arrays["level"] < 0).mean() > 0.5  # modes without signal
    assert np.sqrt(np.square(kernel.posterior_std(a)).mean()) == pytest.approx(error, rel=0.5)


def test_bands_without_signal_keep_their_mean_if_they_have_one() -> None:
    """A constant zigzag in all outputs is reproduced, noise of the same frequencies is not."""
    zigzag = (-1.0) ** np.arange(32)
    a, noise = inputs(100, 1, 1) * np.ones(32), 0.3 * inputs(100, 1, 32, seed=1)
    for size, most in ((0.0, 0.02), (1.0, 0.03)):  # 0.3/√100 = 0.03 is the noise of a mean that is not shrunk
        found = Kernel("rq").fit(a, np.sin(a) + size * zigzag + noise)(a) - np.sin(a)
        assert np.sqrt(np.square(found - size * zigzag).mean()) < most


# Leave-one-out residuals


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


@pytest.mark.parametrize("labels", [np.arange(30), np.repeat(np.arange(10), 3)], ids=["pairs", "groups"])
def test_residuals_of_a_part(one_nugget, labels) -> None:
    """Pairs outside the training part, with all of their group, are predicted by the whole part; others without their group."""
    kernel, a, u = fitted(30, 0.1, most=20)
    residuals = kernel.residuals(a, u, group=labels)
    kept, out = kernel._sides(labels, 0)
    assert not set(labels[kept]) & set(labels[out])
    assert 18 <= len(kept) <= 20
    part = refit(kernel, a, u, kept)
    np.testing.assert_allclose(residuals[out], (u - part(a))[out], atol=1e-12)
    for label in np.unique(labels[kept]):
        other = refit(kernel, a, u, kept[labels[kept] != label])
        np.testing.assert_allclose(residuals[labels == label], (u - other(a))[labels == label], rtol=1e-6, atol=1e-9)
    if len(labels) == len(np.unique(labels)):
        np.testing.assert_allclose(part(a), kernel(a), atol=1e-12)  # the part that the model itself was trained on


def test_time_is_a_limit(monkeypatch) -> None:
    """Without time the search ends where it begins, and as many pairs are used for training as it used."""
    monkeypatch.setattr(search, "COARSE", 12)
    a = inputs(40)
    begun = Kernel("matern52", budget=1e-9).fit(a, operator(a))
    assert "on 12 pairs of 40" in begun.describe()
    assert begun.hyper.length in (1.0, 4.0, 16.0)
    assert begun.residuals(a, operator(a)).shape == a.shape
    whole = Kernel("matern52", budget=1e9).fit(a, operator(a))
    np.testing.assert_array_equal(whole(a), Kernel("matern52").fit(a, operator(a))(a))


def test_the_deadline_of_the_model_is_a_limit(monkeypatch) -> None:
    """It limits a kernel without a budget of its own, in one process; several processes must not decide by their clocks."""
    monkeypatch.setattr(search, "COARSE", 12)
    pairs = pairs_of(inputs(40), operator(inputs(40)))
    late = Terms(progress=False, deadline=time.monotonic())
    assert "on 12 pairs of 40" in Kernel("matern52").learn(pairs, None, late).describe()
    for kernel, terms in ((Kernel("matern52", budget=1e9), late), (Kernel("matern52"), replace(late, devices=2))):
        assert "on 40 pairs:" in kernel.learn(pairs, None, terms).describe()


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


# Symmetries


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


# Kinds of data


def test_duplicates_with_different_outputs() -> None:
    a = np.repeat(inputs(20), 2, axis=0)
    u = operator(a) + 0.1 * inputs(40, seed=1)
    kernel = Kernel("rq").fit(a, u)
    assert np.isfinite(kernel(a)).all()
    assert np.sqrt(np.square(kernel.noise_std).mean()) > 0.05


def test_constant_outputs() -> None:
    kernel = Kernel().fit(inputs(10), np.full((10, 1, POINTS), 3.0))
    np.testing.assert_allclose(kernel(inputs(3, seed=1)), 3.0, rtol=1e-12)
    assert kernel.posterior_std(inputs(3, seed=1)).max() < 1e-9
    assert kernel.error < 1e-12


def test_constant_inputs() -> None:
    a, u = np.ones((10, 1, POINTS)), inputs(10, seed=1)
    np.testing.assert_allclose(Kernel().fit(a, u)(a[:1])[0], u.mean(axis=0), atol=0.4)  # shrunk, so not quite the mean


def test_two_pairs() -> None:
    a, u = inputs(2), operator(inputs(2))
    kernel = Kernel().fit(a, u)
    assert np.isfinite(kernel(inputs(3, seed=1))).all()
    assert kernel.residuals(a, u).shape == u.shape
    with pytest.raises(UserError, match="got 1 pairs, expected at least two"):
        Kernel().fit(a[:1], u[:1])


def test_channels_and_grids_may_differ() -> None:
    a = np.concatenate([inputs(80, 1, 4, 4), 1000 * inputs(80, 1, 4, 4, seed=1)], axis=1)
    u = np.stack([a[:, 0, 0], 1e-3 * a[:, 1, 1], a[:, 0, 0] + a[:, 1, 1]], axis=1)  # in units of their own
    kernel = Kernel().fit(a[:70], u[:70])
    error = np.sqrt(np.square(kernel(a[70:]) - u[70:]).mean(axis=(0, 2)))
    assert (error < 1e-3 * u.std(axis=(0, 2))).all()


def test_no_grid_at_all() -> None:
    a = inputs(40, 3)
    kernel = Kernel().fit(a[:30], a[:30, :2] ** 2)
    np.testing.assert_allclose(kernel(a[30:]), a[30:, :2] ** 2, atol=0.5)
    assert kernel.posterior_std(a).shape == (40, 2)


def test_scalars_count() -> None:
    a, s = inputs(100), inputs(100, 1, seed=1) * 1e3 + 5e3
    u = np.sin(s[:, :, None] / 500) + a
    kernel = Kernel("matern52").fit(a[:80], u[:80], s[:80])
    assert np.sqrt(np.square(kernel(a[80:], s[80:]) - u[80:]).mean()) < 0.2 * u.std()
    assert kernel.hyper.balance > 1  # u is linear in the field and not in the scalar
    assert kernel.residuals(a, u, s).shape == u.shape


def test_logarithms_are_taken_where_they_help() -> None:
    a = np.exp(inputs(60))
    assert Kernel("linear").fit(a, np.log(a)).hyper.log
    assert not Kernel("linear").fit(a, 2 * a).hyper.log
    assert not Kernel("linear").fit(a - 3, 2 * a).hyper.log
    with pytest.raises(UserError, match="log = True, but inputs or their symmetric copies are not all positive"):
        Kernel(log=True).fit(a - 3, a)


def test_predictions_do_not_depend_on_the_block(monkeypatch) -> None:
    kernel, _, _ = fitted()
    new = inputs(7, seed=1)
    whole = kernel(new)
    monkeypatch.setattr(module, "BLOCK", 1)
    np.testing.assert_allclose(kernel(new), whole, rtol=1e-7)


# Saving, limits, mistakes


@pytest.mark.parametrize("symmetries", [(), "reflection"])
def test_a_saved_kernel_is_restored_bitwise(symmetries) -> None:
    kernel, a, u = fitted(noise=0.1, symmetries=symmetries, kernel="rq")
    new = inputs(5, seed=1)
    again = Kernel.from_state(from_file(kernel.state()))
    np.testing.assert_array_equal(again(new), kernel(new))
    np.testing.assert_array_equal(again.posterior_std(new), kernel.posterior_std(new))
    np.testing.assert_array_equal(again.residuals(a, u), kernel.residuals(a, u))
    assert (again.describe(), again.error) == (kernel.describe(), kernel.error)
    assert again.state().settings == kernel.state().settings
    assert again.state().arrays.keys() == kernel.state().arrays.keys() == set(ARRAYS)
    for name, values in kernel.state().arrays.items():
        np.testing.assert_array_equal(again.state().arrays[name], values)


@pytest.mark.parametrize("name", ARRAYS)
def test_missing_arrays_are_named(name) -> None:
    state = fitted()[0].state()
    del state.arrays[name]
    with pytest.raises(UserError, match=rf"arrays \['{name}'\] of a kernel mean are missing"):
        Kernel.from_state(state)


def test_own_maps_are_not_saved() -> None:
    kernel, _, _ = fitted(symmetries=["reflection", (np.negative, np.negative)])
    assert kernel.state().settings["symmetries"] == ["reflection", "own"]
    with pytest.raises(UserError, match="with symmetries of your own is code, which is not saved"):
        Kernel.from_state(kernel.state())


def test_memory_is_a_limit(monkeypatch) -> None:
    """Fewer pairs are used, which `describe` says, or a requested number is refused."""
    monkeypatch.setattr(module, "memory_allowed", lambda: 100_000)
    kernel, a, u = fitted(80)  # 8·n·(5·n + 8·16) bytes for n pairs
    assert "on 38 pairs of 80" in kernel.describe()
    assert len(kernel.state().arrays["a"]) == 38
    assert kernel.residuals(a, u).shape == u.shape
    with pytest.raises(UserError, match=r"regression on 80 pairs needs 0\.0 GB of memory, .* set most=38"):
        fitted(80, most=80)
    kernel, _, _ = fitted(80, most=30)
    assert "on 30 pairs of 80" in kernel.describe()


def test_sentence() -> None:
    kernel, _, _ = fitted(kernel="rq")
    text = kernel.describe()
    assert text.startswith("Gaussian-process regression on 40 pairs: a rational quadratic kernel of shape ")
    assert text.endswith(f"the leave-one-out relative error is {kernel.error:.3g}.")
    assert Kernel().describe() == "A kernel mean that has not been trained."
    assert "of the modes of a weighted by (k² + 2)^(−" in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Kernel("matern"), "kernel 'matern' is unknown; did you mean"),
        (lambda: Kernel(most=1), "most = 1: expected at least two training pairs"),
        (lambda: Kernel()(inputs(2)), r"this kernel mean has not been trained; call fit\(a, u\) first"),
        (lambda: Kernel().fit(inputs(4), inputs(5)), r"have shapes \(4, 1, 8\), \(5, 1, 8\) and \(4, 0\)"),
        (lambda: Kernel().fit(inputs(4) / 0.0, inputs(4)), "NaN or infinite"),
        (lambda: Kernel(kind=["cell", "cell"]).fit(inputs(4), inputs(4)), "got 2 kinds of axes"),
        (lambda: Kernel(symmetries="square").fit(inputs(4), inputs(4)), "two axes of equal points"),
        (lambda: Kernel(symmetries=[(lambda a: 5 - 2 * a, np.negative)]).fit(inputs(4), inputs(4)), "expected a group"),
        (lambda: fitted()[0](inputs(2, 1, 9)), r"an input has shape \(1, 9\) .* expected \(1, 8\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
