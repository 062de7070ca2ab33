"""Ridge regression in bands of modes: closed forms, penalties by generalised cross-validation, orthogonal transforms."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

from pdno.mean.linear.linear import Linear
from pdno.mean.linear.ridge import MEANS, PENALTIES, Ridge, bands, decomposed, polynomials, transform
from tests.mean.problems import PLAIN, error, normal, scaled, smooth


def hat(z: np.ndarray, penalty: float) -> np.ndarray:
    """Return the matrix of the fit with an intercept that is not penalised, by the normal equations."""
    phi, n = np.column_stack([np.ones(len(z)), z]), len(z)
    return phi @ np.linalg.solve(phi.T @ phi + n * penalty * np.diag([0, *np.ones(z.shape[1])]), phi.T)


# Closed forms


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
