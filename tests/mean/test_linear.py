"""Linear means: closed forms of ridge regression, refits without each pair, and operators that selection must recover."""

from copy import deepcopy

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import pdno
from pdno import UserError
from pdno.data.split import folds
from pdno.equation import Advection, Elliptic1D
from pdno.mean.base import refitted
from pdno.mean.linear.linear import Linear
from pdno.mean.linear.ridge import MEANS, PENALTIES, Ridge, bands, decomposed, polynomials, transform
from pdno.mean.linear.sparse import sparse_map
from pdno.work.state import State
from tests.mean.states import from_file

PLAIN = {"log": False, "degree": 1, "smooth": False, "sparse": False}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def smooth(n: int, points: int, seed: int = 0) -> np.ndarray:
    """Random polynomials of degree 4: (n, 1, points)."""
    return (normal(n, 5, seed=seed) @ np.vander(np.linspace(-1, 1, points), 5).T)[:, None]


def error(mean: Linear, a: np.ndarray, u: np.ndarray, scalars: np.ndarray | None = None) -> float:
    return float(np.linalg.norm(mean(a, scalars) - u) / np.linalg.norm(u))


def scaled(a: np.ndarray) -> np.ndarray:
    """One channel of inputs, centred and divided by its total standard deviation."""
    x = a.reshape(len(a), -1)
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0).sum())


def hat(z: np.ndarray, penalty: float) -> np.ndarray:
    """Return the matrix of the fit with an intercept that is not penalised, by the normal equations."""
    phi, n = np.column_stack([np.ones(len(z)), z]), len(z)
    return phi @ np.linalg.solve(phi.T @ phi + n * penalty * np.diag([0, *np.ones(z.shape[1])]), phi.T)


# Ridge regression against its closed forms


@pytest.mark.parametrize("options", [{}, PLAIN, {"smooth": "cosines"}, {"smooth": "polynomials"}, {"degree": 2}])
def test_affine_map_is_recovered(options) -> None:
    a, scalars = normal(200, 2, 3, 4), 1e-3 * normal(200, 2, seed=1)
    b, intercept = normal(26, 30, seed=2), normal(30, seed=3)
    u = (np.concatenate([a.reshape(200, -1), 1e3 * scalars], axis=1) @ b + intercept).reshape(200, 3, 5, 2)
    mean = Linear(**options).fit(a[:150], u[:150], scalars[:150])
    assert error(mean, a[150:], u[150:], scalars[150:]) < 1e-10
    assert mean.score < 1e-20


@pytest.mark.parametrize("p", [5, 40])
@pytest.mark.parametrize("basis", [False, "cosines", "polynomials"])
def test_ridge_is_the_closed_form(p, basis) -> None:
    a, u, penalty = normal(30, 1, p), normal(30, 1, 7, seed=1), 0.03
    mean = Linear(**{**PLAIN, "smooth": basis}, penalty=penalty).fit(a, u)
    z, y = scaled(a), u[:, 0]
    b = np.linalg.solve(z.T @ z + 30 * penalty * np.eye(p), z.T @ (y - y.mean(axis=0)))
    np.testing.assert_allclose(mean(a)[:, 0], y.mean(axis=0) + z @ b, atol=1e-12)


def test_primal_is_dual() -> None:
    """Inputs that are all zero only change which of ΦᵀΦ and ΦΦᵀ is the smaller one."""
    a, u, new = normal(30, 1, 20), normal(30, 1, 7, seed=1), normal(5, 1, 20, seed=2)
    few, many = (Linear(**PLAIN).fit(np.pad(a, ((0, 0), (0, 0), (0, more))), u) for more in (0, 30))
    np.testing.assert_allclose(few(new), many(np.pad(new, ((0, 0), (0, 0), (0, 30)))), atol=1e-12)
    np.testing.assert_array_equal(few.penalties, many.penalties)


@pytest.mark.parametrize("shape", [(20, 6), (6, 20), (5, 5)])
def test_decomposition(shape) -> None:
    phi = normal(*shape)
    phi -= phi.mean(axis=0)
    left, values, right = decomposed(phi)
    np.testing.assert_allclose(left * values @ right.T, phi, atol=1e-13)
    np.testing.assert_allclose(left.T @ left, np.eye(len(values)), atol=1e-13)
    np.testing.assert_allclose(values, np.linalg.svd(phi, compute_uv=False)[: len(values)], atol=1e-13)
    assert len(values) == min(shape[0] - 1, shape[1])


def test_units_do_not_matter() -> None:
    a, s, u = normal(40, 2, 8), normal(40, 1, seed=1), normal(40, 2, 8, seed=2)
    factor = np.array([1e4, 1e-3])[:, None]
    found = Linear().fit(a, u, s)(a, s)
    np.testing.assert_allclose(Linear().fit(a * factor - 7, u, 1e5 * s)(a * factor - 7, 1e5 * s), found, atol=1e-8)
    np.testing.assert_allclose(Linear().fit(a, u * factor, s)(a, s) / factor, found, atol=1e-12)


# Generalised cross-validation


@pytest.mark.parametrize(("p", "noise"), [(15, 0.1), (15, 3.0), (60, 3.0)])
def test_penalty_minimises_generalised_cross_validation(p, noise) -> None:
    a = normal(40, 1, p)
    u = a @ normal(p, 6, seed=1) + noise * normal(40, 1, 6, seed=2)
    mean = Linear(**PLAIN).fit(a, u)
    scores = []
    for penalty in PENALTIES[1:-1]:
        h = hat(scaled(a), penalty)
        scores.append(40 * np.square(u[:, 0] - h @ u[:, 0]).sum() / (40 - np.trace(h)) ** 2)
    assert mean.penalties == pytest.approx(PENALTIES[1:-1][np.argmin(scores)])
    assert mean.score == pytest.approx(min(scores) / u.var(axis=0).sum(), rel=1e-6)


def test_likelihood_keeps_penalties_from_being_small_by_chance() -> None:
    """Twenty outputs of pure noise, each a channel with its own penalty, and as many inputs as pairs.

    The likelihood is that of n − 1 numbers orthogonal to the constant, with the most likely variance for each penalty.
    """
    n, a, u = 12, normal(12, 1, 12, seed=3), normal(12, 20, 1, seed=4)
    z, across = scaled(a), null_space(np.ones((1, n)))
    penalties, limited = Linear(**PLAIN).fit(a, u).penalties, 0
    for y, penalty in zip(u[:, :, 0].T, penalties, strict=True):
        likelihood, score = [], []
        for each in PENALTIES[1:-1]:
            covariance = across.T @ (np.eye(n) + z @ z.T / (n * each)) @ across
            variance = across.T @ y @ np.linalg.solve(covariance, across.T @ y) / (n - 1)
            likelihood.append(multivariate_normal.logpdf(across.T @ y, cov=variance * covariance, allow_singular=True))
            h = hat(z, each)
            score.append(np.square(y - h @ y).sum() / (n - np.trace(h)) ** 2)
        least = np.argmax(likelihood) - 1
        if least < len(likelihood) - 2:  # else λ = ∞ may be likelier still
            assert penalty == pytest.approx(PENALTIES[1:][max(least, np.argmin(score))])
            limited += least > np.argmin(score)
    assert limited  # the likelihood decided at least once


def test_means_of_noise_are_dropped_and_others_kept() -> None:
    """Over 20 seeds f₀ of the last two bands was at most 0.6, and the last penalty at least 100 times the first."""
    a, clean = smooth(300, 32), 3 + smooth(300, 32)
    ridge = Ridge.of(a[:, 0], clean + normal(300, 1, 32, seed=5), ("polynomials",))
    assert ridge.kept[0] == MEANS[0]
    assert ridge.kept[-2:].max() <= 0.7
    assert ridge.penalty[-1] > 50 * ridge.penalty[0]


# Leave-one-out residuals


@pytest.mark.parametrize("p", [5, 30])
@pytest.mark.parametrize("basis", [False, "cosines"])
def test_residuals_are_those_of_refits(p, basis) -> None:
    n, penalty = 12, 0.05
    a, u = normal(n, 1, p), normal(n, 1, 6, seed=1)
    found = Linear(**{**PLAIN, "smooth": basis}, penalty=penalty).residuals(a, u)
    z, y = scaled(a), u[:, 0]
    for i in range(n):
        rest, others = np.delete(z, i, axis=0), np.delete(y, i, axis=0)
        centred = rest - rest.mean(axis=0)
        b = np.linalg.solve(centred.T @ centred + n * penalty * np.eye(p), centred.T @ (others - others.mean(axis=0)))
        expected = y[i] - others.mean(axis=0) - (z[i] - rest.mean(axis=0)) @ b
        np.testing.assert_allclose(found[i, 0], expected, atol=1e-10)


def test_residuals_of_bands_are_those_of_refits() -> None:
    """Each mode has penalties nλ of the coefficients and n(1/f₀ − 1) of the mean; the centre is the mean of all inputs."""
    n, a = 30, smooth(30, 16, seed=2)
    u = np.cumsum(a, axis=2) + 2 * normal(n, 1, 16, seed=3)
    ridge = Ridge.of(a[:, 0], u, ("cosines",))
    assert {0 < kept < 1 for kept in ridge.kept} == {True, False}
    assert len(np.unique(ridge.penalty)) > 3
    phi = np.column_stack([np.ones(n), a[:, 0] - a[:, 0].mean(axis=0)])
    fit, left = (transform(values[:, 0], (1, 16), "cosines") for values in (ridge.affine()(a[:, 0])[:, None], ridge.left_out()))
    for j, y in enumerate(transform(u[:, 0], (1, 16), "cosines").T):
        with np.errstate(divide="ignore"):
            penalty = n * np.array([1 / ridge.kept[ridge.band[j]] - 1, *[ridge.penalty[ridge.band[j]]] * 16])
        x, used = phi[:, np.isfinite(penalty)], np.diag(penalty[np.isfinite(penalty)])
        for i, rows in enumerate([slice(None), *(np.arange(n) != i for i in range(n))]):
            guess = x @ np.linalg.solve(x[rows].T @ x[rows] + used, x[rows].T @ y[rows]) if x.size else np.zeros(n)
            if i == 0:
                np.testing.assert_allclose(fit[:, j], guess, atol=1e-8)
            else:
                np.testing.assert_allclose(left[i - 1, j], (y - guess)[i - 1], atol=1e-8)


def test_residuals_are_as_large_as_those_of_new_pairs() -> None:
    """Over ten seeds the ratio was between 0.97 and 1.04, that of residuals of the fit itself between 0.83 and 0.89."""
    data = pdno.generate(Elliptic1D(64, log_scale=0.5), train=200, test=200, noise="gaussian:0.01", seed=1)
    mean = Linear().fit(data.train.a, data.train.u)
    left, new = mean.residuals(data.train.a, data.train.u), data.test.u_eta - mean(data.test.a)
    inside = data.train.u - mean(data.train.a)
    assert np.sqrt(np.square(left).mean() / np.square(new).mean()) == pytest.approx(1, abs=0.1)
    assert np.square(inside).mean() < 0.9 * np.square(left).mean()


def test_groups_are_left_out_as_one() -> None:
    """Each pair occurs twice: the other one determines it, unless both are left out."""
    a, u, group = (
        np.repeat(normal(20, 1, 40), 2, axis=0),
        np.repeat(normal(20, 1, 4, seed=1), 2, axis=0),
        np.repeat(range(20), 2),
    )
    mean = Linear(**PLAIN, penalty=1e-8)
    assert np.abs(mean.residuals(a, u)).max() < 1e-4
    together = mean.residuals(a, u, group=group)
    assert np.sqrt(np.square(together).mean()) > 0.5
    expected = np.empty(u.shape)
    for kept, left in folds(40, 5, group):
        expected[left] = u[left] - Linear(**PLAIN, penalty=1e-8).fit(a[kept], u[kept])(a[left])
    np.testing.assert_array_equal(together, expected)
    np.testing.assert_array_equal(mean.residuals(a, u, group=np.arange(40)), mean.residuals(a, u))


@pytest.fixture
def fits(monkeypatch) -> list[int]:
    """The numbers of pairs of all ridge regressions."""
    counts: list[int] = []
    of = Ridge.of.__func__
    monkeypatch.setattr(Ridge, "of", classmethod(lambda cls, phi, *rest: counts.append(len(phi)) or of(cls, phi, *rest)))
    return counts


def test_nothing_is_fitted_twice(fits) -> None:
    """Residuals of the training pairs are those of training, bitwise identical to those of another fit."""
    a, u, s = normal(30, 1, 8), normal(30, 1, 8, seed=1), normal(30, 1, seed=2)
    mean = Linear(sparse=False).fit(a, u, s)
    count = len(fits)
    assert count > 1
    residuals = mean.residuals(a.copy(), u.copy(), s.copy(), np.arange(30))  # equal arrays need not be the same object
    assert len(fits) == count
    np.testing.assert_array_equal(Linear(sparse=False).residuals(a, u, s), residuals)
    assert len(fits) == 2 * count
    np.testing.assert_array_equal(mean.residuals(a, u, s), residuals)
    assert len(fits) == 3 * count  # they are kept for one use


def test_other_arrays_are_fitted_again(fits) -> None:
    a, u = normal(30, 1, 8), normal(30, 1, 8, seed=1)
    mean = Linear(sparse=False).fit(a, u)
    for given in ({"u": u + a}, {"a": a**2}, {"seed": 1}, {"scalars": a[:, 0]}):
        del fits[:]
        arguments = {"a": a, "u": u} | given
        np.testing.assert_array_equal(mean.residuals(**arguments), Linear(sparse=False).residuals(**arguments))
        assert len(fits) > 2
        assert len(fits) % 2 == 0  # both have fitted as often
    del fits[:]
    mean.residuals(a, u)
    assert fits == []  # those of training are still there


def test_a_sparse_map_is_selected_once(monkeypatch) -> None:
    """Its residuals are those of folds; the map of all pairs is not selected a second time."""
    rows: list[int] = []
    select = Linear._select
    monkeypatch.setattr(Linear, "_select", lambda self, a, *rest: rows.append(len(a)) or select(self, a, *rest))
    a = normal(200, 1, 16)
    u = np.roll(a, 3, axis=2) + 0.3 * normal(200, 1, 16, seed=1)
    mean = Linear().fit(a, u)
    assert mean.is_sparse
    assert rows == [200]
    residuals = mean.residuals(a, u)
    assert rows == [200] + [160] * 5
    np.testing.assert_array_equal(residuals, Linear().residuals(a, u))


def test_copies_do_not_share_residuals(fits) -> None:
    """A copy that is trained again, or residuals that are changed, leave those of others as they are."""
    a, u = normal(30, 1, 8), normal(30, 1, 8, seed=1)
    mean = Linear(sparse=False).fit(a, u)
    twin, other = deepcopy(mean), deepcopy(mean).fit(a, 2 * u)
    first = mean.residuals(a, u)
    expected = first.copy()
    first += 1
    del fits[:]
    np.testing.assert_array_equal(twin.residuals(a, u), expected)
    found = other.residuals(a, 2 * u)
    assert fits == []
    np.testing.assert_array_equal(found, Linear(sparse=False).residuals(a, 2 * u))


# Modes


@pytest.mark.parametrize("points", [1, 2, 17, 300])
def test_polynomials_are_orthonormal_and_of_their_degree(points) -> None:
    basis = polynomials(points)
    np.testing.assert_allclose(basis.T @ basis, np.eye(points), atol=1e-11)
    x = np.linspace(-1, 1, points)
    for degree in range(min(points, 6)):
        span = np.vander(x, degree + 1)
        assert np.linalg.norm(basis[:, degree] - span @ np.linalg.lstsq(span, basis[:, degree], rcond=None)[0]) < 1e-10


@pytest.mark.parametrize("basis", ["nodes", "cosines", "polynomials"])
@pytest.mark.parametrize("shape", [(3,), (2, 9), (1, 5, 8), (2, 3, 1, 4)])
def test_transforms_are_orthogonal(shape, basis) -> None:
    values = normal(4, int(np.prod(shape)))
    modes = transform(values, shape, basis)
    np.testing.assert_allclose(modes @ modes.T, values @ values.T, atol=1e-12)
    np.testing.assert_allclose(transform(modes, shape, basis, inverse=True), values, atol=1e-12)


def test_bands_of_a_plane() -> None:
    expected = [[0, 1, 3, 4], [1, 2, 3, 4], [3, 3, 4, 4]]  # binary digits of 0 1 4 9 | 1 2 5 10 | 4 5 8 13
    np.testing.assert_array_equal(bands((1, 3, 4), "cosines").reshape(3, 4), expected)
    np.testing.assert_array_equal(bands((2, 2, 2), "nodes"), [0, 0, 0, 0, 1, 1, 1, 1])


# Selection


@pytest.mark.parametrize("seed", range(3))
def test_smooth_outputs_are_smoothed(seed) -> None:
    """Over 20 seeds the error was at most 0.56 of the one without."""
    a, clean = smooth(300, 64, seed=seed), np.cumsum(smooth(300, 64, seed=seed), axis=2) / 20
    u = clean + normal(300, 1, 64, seed=seed + 100)
    new, truth = smooth(200, 64, seed=seed + 200), np.cumsum(smooth(200, 64, seed=seed + 200), axis=2) / 20
    mean, plain = Linear().fit(a, u), Linear(**PLAIN).fit(a, u)
    assert mean.basis != "nodes"
    assert mean.score < plain.score
    assert error(mean, new, truth) < 0.75 * error(plain, new, truth)


@pytest.mark.parametrize("seed", range(3))
def test_rough_outputs_take_no_harm(seed) -> None:
    """Outputs in no order, by a dense map: over 20 seeds the error was between 0.98 and 1.01 of the one without."""
    b, a, new = normal(20, 64, seed=seed), normal(300, 1, 20, seed=seed + 50), normal(200, 1, 20, seed=seed + 100)
    u = a @ b + 3 * normal(300, 1, 64, seed=seed + 200)
    mean, plain = Linear(degree=1).fit(a, u), Linear(**PLAIN).fit(a, u)
    assert mean.score <= plain.score
    assert error(mean, new, new @ b) < 1.05 * error(plain, new, new @ b)


def test_noisy_shift_is_sparse() -> None:
    """Over 20 seeds the error was at most 0.18 of the one without, and in five of them one input too many was kept."""
    data = pdno.generate(Advection(32), train=1000, test=100, noise="gaussian:0.5", seed=3)
    a, u = data.train.a, data.train.u
    mean, plain = Linear().fit(a, u), Linear(sparse=False).fit(a, u)
    assert mean.is_sparse
    assert not plain.is_sparse
    assert error(mean, data.test.a, data.test.u) < 0.25 * error(plain, data.test.a, data.test.u)
    np.testing.assert_array_equal(np.abs(mean(np.zeros((1, 1, 32)))), 0)  # the constant was dropped with the rest
    assert "0.5 of 32 inputs" in mean.describe()
    np.testing.assert_array_equal(mean.residuals(a, u), refitted(mean, a, u))
    assert mean.score == pytest.approx(np.square(mean.residuals(a, u)).sum(axis=2).mean() / u.var(axis=0).sum(), rel=0.05)


def test_sparse_map_is_least_squares_on_significant_inputs() -> None:
    """With 18 of 20 seeds no other input was kept."""
    x = normal(500, 24)
    b = np.zeros((24, 3))
    b[[3, 5, 8], [0, 0, 2]] = 1, -0.5, 2
    u = x @ b + [0, 4, 0] + 0.5 * normal(500, 3, seed=1)
    found = sparse_map(x, u)
    assert found is not None
    np.testing.assert_array_equal(found.directions @ found.modes != 0, b != 0)
    expected = np.linalg.lstsq(x[:, [3, 5]], u[:, 0], rcond=None)[0]
    np.testing.assert_allclose((found.directions @ found.modes)[[3, 5], 0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.intercept, [0, u[:, 1].mean(), 0], rtol=1e-6)


@pytest.mark.parametrize("sparse", ["auto", True])
def test_dense_map_is_not_sparse(sparse) -> None:
    a = normal(500, 1, 32)
    u = a @ normal(32, 32, seed=1) + normal(500, 1, 32, seed=2)
    assert not Linear(sparse=sparse).fit(a, u).is_sparse
    assert not Linear(sparse=sparse).fit(a[:40], u[:40]).is_sparse  # too few pairs


def test_weak_dense_map_is_not_sparse() -> None:
    """No coefficient is significant by itself, but all together are; a sparse map would be a constant."""
    a = normal(500, 1, 32)
    u = 0.08 * a @ normal(32, 32, seed=1) + normal(500, 1, 32, seed=2)
    assert not Linear().fit(a, u).is_sparse
    assert Linear(sparse=True).fit(a, u).is_sparse


@pytest.mark.parametrize("seed", range(3))
def test_logarithms_are_taken_where_they_help(seed) -> None:
    """This held for 20 seeds, with errors of at most 0.016."""
    a, b = np.exp(0.5 * normal(200, 1, 12, seed=seed)), normal(12, 12, seed=9)
    noise, new = 0.1 * normal(200, 1, 12, seed=seed + 50), np.exp(0.5 * normal(100, 1, 12, seed=seed + 100))
    of_logs, of_values = Linear().fit(a, np.log(a) @ b + noise), Linear().fit(a, a @ b + noise)
    assert of_logs.logged
    assert not of_values.logged
    assert error(of_logs, new, np.log(new) @ b) < 0.05
    assert error(of_values, new, new @ b) < 0.05
    assert not Linear().fit(a - 1, np.log(a) @ b + noise).logged
    assert Linear().fit(a, np.log(a) ** 2).logged  # though an affine map of a is better than one of log a


def test_logarithms_of_positive_channels_only() -> None:
    a = np.concatenate([np.exp(normal(200, 1, 6)), normal(200, 1, 6, seed=1)], axis=1)
    s = np.exp(normal(200, 1, seed=2))
    u = np.log(a[:, :1]) + a[:, 1:] * 2 - np.log(s)[:, :, None]
    mean = Linear().fit(a[:150], u[:150], s[:150])
    np.testing.assert_array_equal(mean.state().arrays["logged"], [1] * 6 + [0] * 6 + [1])
    assert error(mean, a[150:], u[150:], s[150:]) < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_products_are_taken_where_they_help(seed) -> None:
    """This held for 20 seeds."""
    a, new, noise = normal(400, 1, 6, seed=seed), normal(100, 1, 6, seed=seed + 50), 0.1 * normal(400, 1, 6, seed=seed + 100)
    b = normal(6, 6, seed=9)
    curved, straight = Linear().fit(a, a @ b + a**2 + noise), Linear().fit(a, a @ b + noise)
    assert curved.products == 6
    assert error(curved, new, new @ b + new**2) < 0.1
    assert not straight.products
    assert not Linear().fit(a, a @ b).products
    assert Linear(degree=2).fit(a, a @ b).products == 6


def test_weight_of_products_is_chosen(monkeypatch) -> None:
    a = normal(100, 1, 12)
    best = Linear(degree=2).fit(a, a**2).score
    monkeypatch.setattr("pdno.mean.linear.features.WEIGHTS", (0.3,))
    assert best < 0.99 * Linear(degree=2).fit(a, a**2).score


def test_logarithms_of_two_values_are_not_tried() -> None:
    x, group = np.where(normal(50, 4) > 0, 12.0, 4.0), np.zeros(4, dtype=int)
    assert len(Linear()._logarithms(x, group)) == 1
    assert len(Linear()._logarithms(x + 0.1 * normal(50, 4) ** 2, group)) == 2


def test_components_are_as_many_as_pairs_allow() -> None:
    a = normal(60, 1, 50)
    assert Linear(degree=2).fit(a, a**2).products == 7  # 28 products; 8 components would have 36
    assert Linear(degree=2, components=3).fit(a, a**2).products == 3


def test_some_of_many_pairs_select_the_features(monkeypatch) -> None:
    monkeypatch.setattr("pdno.mean.linear.linear.MOST_PAIRS", 50)
    a, new = np.exp(0.3 * normal(400, 1, 60)), np.exp(0.3 * normal(100, 1, 60, seed=1))
    a[7, 0, 3] = -1  # not among those pairs, but logarithms are impossible
    assert error(Linear().fit(a, np.cumsum(a, axis=2)), new, np.cumsum(new, axis=2)) < 1e-9
    assert not Linear().fit(a, np.log(np.abs(a))).logged


# Problems of the paper


def test_advection_without_noise_is_exact() -> None:
    data = pdno.generate(Advection(64), train=300, test=100)
    mean = Linear().fit(data.train.a, data.train.u)
    assert error(mean, data.test.a, data.test.u) < 1e-9
    assert mean.basis == "nodes"  # no other basis is tried
    assert np.abs(mean.residuals(data.train.a, data.train.u)).max() < 1e-9


def test_elliptic_with_noise() -> None:
    """Over ten seeds the error was between 0.46 and 0.54 of that of plain ridge regression."""
    data = pdno.generate(Elliptic1D(64), train=2000, test=100, noise="gaussian:0.05")
    mean, plain = (Linear(**options).fit(data.train.a, data.train.u) for options in ({}, PLAIN))
    assert mean.logged
    assert error(mean, data.test.a, data.test.u) < 0.65 * error(plain, data.test.a, data.test.u)


# Little data


def test_one_pair_and_two() -> None:
    a, u = normal(2, 1, 8), normal(2, 1, 8, seed=1)
    one = Linear().fit(a[:1], u[:1])
    np.testing.assert_allclose(one(a), np.repeat(u[:1], 2, axis=0), atol=1e-12)
    assert "too few pairs" in one.describe()
    two = Linear().fit(a, u)
    assert np.isfinite(two(normal(9, 1, 8, seed=2))).all()
    assert np.isfinite(Linear().residuals(a, u)).all()
    with pytest.raises(UserError, match="provide at least two"):
        Linear().residuals(a[:1], u[:1])


@pytest.mark.parametrize("n", [3, 30])
def test_constant_outputs(n) -> None:
    mean = Linear().fit(normal(n, 1, 8), np.full((n, 2, 8), 3.0))
    np.testing.assert_allclose(mean(normal(4, 1, 8, seed=1)), 3, atol=1e-12)
    assert mean.score == pytest.approx(0, abs=1e-24)
    np.testing.assert_allclose(Linear().residuals(normal(n, 1, 8), np.zeros((n, 2, 8))), 0, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1e6 / 3])
def test_constant_inputs(value) -> None:
    a, u = np.full((20, 1, 8), value), normal(20, 1, 5)
    mean = Linear(smooth=False).fit(a, u)
    np.testing.assert_allclose(mean(a), np.broadcast_to(u.mean(axis=0), u.shape), atol=1e-12)
    np.testing.assert_allclose(mean.residuals(a, u), (u - u.mean(axis=0)) * 20 / 19, atol=1e-12)


def test_rounding_is_no_input() -> None:
    a, u = normal(30, 2, 8), normal(30, 1, 8, seed=1)
    a[:, 1] = 1e6 * (1 + 1e-15 * a[:, 1])
    both, one = (Linear(sparse=False).fit(part, u)(part) for part in (a, a[:, :1]))
    np.testing.assert_allclose(both, one, atol=1e-6)


def test_repeated_inputs() -> None:
    """Ten inputs, each with twenty noisy outputs: predictions are the means of the twenty, as the penalty is small."""
    a, clean = np.repeat(normal(10, 1, 40), 20, axis=0), 10 * np.repeat(normal(10, 1, 4, seed=1), 20, axis=0)
    u = clean + 0.1 * normal(200, 1, 4, seed=2)
    mean = Linear(**PLAIN).fit(a, u)
    averages = u.reshape(10, 20, 1, 4).mean(axis=1)
    np.testing.assert_allclose(mean(a[::20]), averages, atol=0.02)


def test_outputs_without_a_grid() -> None:
    a, b = normal(50, 1, 6), normal(6, 2, seed=1)
    mean = Linear().fit(a, a[:, 0] @ b)
    assert mean(a[:3]).shape == (3, 2)
    np.testing.assert_allclose(mean(a), a[:, 0] @ b, atol=1e-10)


# Saving, and mistakes


@pytest.mark.parametrize(
    "options",
    [{}, PLAIN, {"sparse": True}, {"degree": 2, "components": 3, "log": False, "smooth": "polynomials", "penalty": 0.1}],
)
def test_a_saved_mean_is_restored_bitwise(options) -> None:
    a, s = np.exp(0.3 * normal(200, 2, 8)), np.exp(normal(200, 1, seed=1))
    u = np.log(a[:, :1]) + s[:, :, None] + 0.1 * normal(200, 1, 8, seed=2)
    mean = Linear(**options).fit(a, u, s)
    state = mean.state()
    assert all(array.dtype == np.float64 for array in state.arrays.values())
    again = Linear.from_state(from_file(state))
    np.testing.assert_array_equal(again(a, s), mean(a, s))
    assert again.state().settings == state.settings
    assert again.describe() == mean.describe()
    assert (again.score, again.is_sparse, again.logged) == (mean.score, mean.is_sparse, mean.logged)
    assert again.state().arrays.keys() == state.arrays.keys()
    for name, array in again.state().arrays.items():
        np.testing.assert_array_equal(array, state.arrays[name])


def test_description() -> None:
    a = np.exp(normal(300, 1, 8))
    assert Linear().describe() == "A linear mean that has not been trained."
    text = Linear(smooth="cosines").fit(a, np.log(a) + np.log(a) ** 2 + 0.1 * normal(300, 1, 8, seed=1)).describe()
    assert "bands of cosines" in text
    assert "logarithms" in text
    assert "products of 8" in text
    assert Linear(**PLAIN, penalty=0.5).fit(a, a).describe().startswith("Ridge regression on 8 inputs with a penalty of 0.5; ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log": "yes"}, "log = 'yes' is unknown.*expected one of True, False, auto"),
        ({"degree": 3}, "degree = 3 is unknown"),
        ({"degree": True}, "degree = True is unknown"),
        ({"smooth": "cosine"}, "did you mean 'cosines'"),
        ({"sparse": None}, "sparse = None"),
        ({"penalty": -1}, "penalty = -1: expected a non-negative number"),
        ({"penalty": float("nan")}, "penalty = nan"),
        ({"components": 0}, "components = 0: expected a positive integer"),
    ],
)
def test_settings_are_checked(options, message) -> None:
    with pytest.raises(UserError, match=message):
        Linear(**options)


def test_data_are_checked() -> None:
    a = np.exp(normal(20, 1, 8))
    with pytest.raises(UserError, match=r"shapes \(20, 1, 8\), \(19, 1, 8\).*the same number of samples"):
        Linear().fit(a, a[1:])
    with pytest.raises(UserError, match="the same number of samples"):
        Linear().fit(a[:, 0, 0], a)
    with pytest.raises(UserError, match="the same number of samples"):
        Linear().fit(a, a, a[:, 0, 0])
    with pytest.raises(UserError, match="neither values nor scalars"):
        Linear().fit(a[:, :0], a)
    with pytest.raises(UserError, match="outputs contain NaN"):
        Linear().fit(a, a * np.nan)
    with pytest.raises(UserError, match="log = True, but inputs have values down to -"):
        Linear(log=True).fit(-a, a)
    with pytest.raises(UserError, match="this linear mean has not been trained"):
        Linear()(a)
    with pytest.raises(UserError, match="has not been trained"):
        Linear().state()
    mean = Linear(log=True).fit(a, a)
    with pytest.raises(UserError, match="an input has 7 values, expected 8"):
        mean(a[:, :, 1:])
    with pytest.raises(UserError, match=r"values down to 0.*log=False"):
        mean(0 * a)
    state = mean.state()
    with pytest.raises(UserError, match=r"arrays \['modes'\].*are missing"):
        Linear.from_state(State(state.settings, {name: array for name, array in state.arrays.items() if name != "modes"}))
