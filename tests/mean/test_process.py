"""Gaussian processes of principal components: against textbook formulas, and what they find."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import check_grad

import pdno
from pdno.data.split import folds
from pdno.mean.process import Process, process
from pdno.mean.process.components import Basis
from pdno.mean.process.fitted import Fitted
from pdno.mean.process.minimise import minimise
from pdno.mean.process.regression import LEAST_NUGGET, Hyper, Regression, objective_of, select

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (12, 2))
Y = np.stack([np.sin(X[:, 0]) + 0.3 * X[:, 1], np.cos(X.sum(axis=1))], axis=1)
HYPER = Hyper(np.array([0, 1]), np.log([[1.0, 2.0, 0.01], [1.5, 0.7, 0.1]]))


def textbook(x, y, lengths, nugget, matern, new):
    """Return mean and variance of y at a new x with a flat prior of the level, by universal kriging with one system."""

    def kernel(p, q) -> np.ndarray:
        r2 = np.square((p[:, None] - q) / lengths).sum(axis=2)
        r = np.sqrt(5 * r2)
        return (1 + r + r**2 / 3) * np.exp(-r) if matern else np.exp(-r2 / 2)

    n = len(x)
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = kernel(x, x) + (nugget + LEAST_NUGGET) * np.eye(n)
    system[:n, n] = system[n, :n] = 1
    right = np.concatenate([kernel(new, x), np.ones((len(new), 1))], axis=1)
    solved = np.linalg.solve(system, right.T)
    size = y @ np.linalg.solve(system, [*y, 0])[:n] / (n - 1)
    return solved[:n].T @ y, size * (1 - (right.T * solved).sum(axis=0)), size


@pytest.mark.parametrize("k", [0, 1])
def test_posterior_is_that_of_universal_kriging(k):
    new = RNG.uniform(-3, 3, (5, 2))
    centre, variance = Regression(X, Y, HYPER)(new)
    lengths, nugget = np.exp(HYPER.log[k, :2]), np.exp(HYPER.log[k, 2])
    mean, expected, _ = textbook(X, Y[:, k], lengths, nugget, k == 1, new)
    assert np.allclose(centre[:, k], mean, atol=1e-10)
    assert np.allclose(variance[:, k] * Regression(X, Y, HYPER).variance[k], expected, atol=1e-10)


def test_left_out_residuals_are_those_of_processes_without_the_group():
    labels = np.arange(12) // 2
    whole = Regression(X, Y, HYPER)
    residual, std = whole.left_out(labels)
    for label in range(6):
        out = labels == label
        centre, variance = Regression(X[~out], Y[~out], HYPER)(X[out])
        assert np.allclose(residual[out], Y[out] - centre, atol=1e-9)
        assert np.allclose(std[out] ** 2, (variance + HYPER.nugget) * whole.variance, atol=1e-9)


@pytest.mark.parametrize("kernel", range(3))
def test_slopes_are_those_of_the_objective(kernel):
    objective, row = objective_of(X, Y[:, :1], np.array([kernel])), np.array([0])
    at = HYPER.log[0] + 0.3
    error = check_grad(lambda x: objective(x[None], row)[0][0], lambda x: objective(x[None], row)[1][0], at, epsilon=1e-6)
    assert error < 1e-4 * np.abs(objective(at[None], row)[1]).max()


def test_variance_is_exact_where_it_nearly_vanishes():
    """Between close points of a smooth process, against 60 digits: cancellation must not make it zero or large."""
    x, at = np.linspace(-1.5, 1.5, 12)[:, None], np.array([[0.0], [0.1], [1.4]])
    hyper = Hyper(np.array([0]), np.log([[2.0, 1e-12]]))
    mpmath.mp.dps = 60
    nodes, new = [mpmath.mpf(float(v)) for v in x.ravel()], [mpmath.mpf(float(v)) for v in at.ravel()]

    def kernel(p, q) -> mpmath.matrix:
        return mpmath.matrix([[mpmath.exp(-(((s - t) / 2) ** 2) / 2) for t in q] for s in p])

    inverse = (kernel(nodes, nodes) + mpmath.mpf(float(hyper.nugget[0])) * mpmath.eye(12)) ** -1
    ones, k = mpmath.ones(12, 1), kernel(new, nodes)
    level = (ones.T * inverse * ones)[0]
    exact = [1 - (k[i, :] * inverse * k[i, :].T)[0] + (1 - (k[i, :] * inverse * ones)[0]) ** 2 / level for i in range(3)]
    variance = Regression(x, np.zeros((12, 1)), hyper)(at)[1][:, 0]
    assert np.allclose(variance, np.array(exact, dtype=float), rtol=1e-3)


def test_marginal_likelihood_is_that_of_all_contrasts():
    """log p(y) with flat priors of level and log s² is, up to a constant, that of the contrasts Ay with A1 = 0."""
    contrasts = np.linalg.svd(np.ones((1, 12)))[2][1:]
    costs = []
    for nugget in (0.01, 0.5):
        hyper = Hyper(np.array([0]), np.log([[1.0, 2.0, nugget]]))
        r2 = np.square((X[:, None] - X) / [1.0, 2.0]).sum(axis=2)
        k = contrasts @ (np.exp(-r2 / 2) + (nugget + LEAST_NUGGET) * np.eye(12)) @ contrasts.T
        z = contrasts @ Y[:, 0]
        expected = 0.5 * (11 * np.log(z @ np.linalg.solve(k, z)) + np.linalg.slogdet(k)[1])
        costs.append(Regression(X, Y[:, :1], hyper).cost[0] - expected)
    assert costs[0] == pytest.approx(costs[1], abs=1e-8)


def test_many_functions_are_minimised_at_once():
    def rosenbrock(x, rows) -> tuple[np.ndarray, np.ndarray]:
        a, b = x.T
        power = 10.0**rows  # each function has another valley
        slope = np.stack([-2 * (1 - a) - 4 * power * a * (b - a**2), 2 * power * (b - a**2)], axis=1)
        return (1 - a) ** 2 + power * (b - a**2) ** 2, slope

    x, value = minimise(rosenbrock, np.array([[-1.0, 1.0]] * 3), steps=200)
    assert np.allclose(x, 1, atol=0.02)
    assert (value < 1e-3).all()


def test_components_are_orthogonal_and_restore_fields_of_their_span():
    numbers = RNG.normal(size=(30, 3)) * [3, 2, 1]
    fields = RNG.normal(size=(3, 2, 5)) * np.array([1.0, 1e4])[:, None]  # channels in other units
    u = 7 + np.tensordot(numbers, fields, axes=1)
    basis = Basis.of(u, 10, 1e-8)
    y = basis.numbers(u)
    assert y.shape == (30, 3)
    assert np.allclose(np.cov(y.T, ddof=0), np.eye(3), atol=1e-6)
    assert np.allclose(basis.restored(y), u, rtol=1e-8, atol=1e-6)


def test_units_of_a_channel_do_not_matter():
    x = RNG.uniform(size=(20, 1))
    u = np.stack([np.sin(3 * x + np.linspace(0, 1, 8)), np.cos(5 * x + np.linspace(0, 1, 8))], axis=1)
    unit = np.array([1.0, 1e-3])[:, None]
    small, large = (Process().fit(np.zeros((20, 1, 8)), v, x)(np.zeros((2, 1, 8)), x[:2] + 0.01) for v in (u * unit, u))
    assert np.allclose(small, large * unit, rtol=1e-5, atol=1e-9)


def test_a_parameter_without_effect_has_a_long_length():
    x = RNG.uniform(-1.7, 1.7, (25, 2))
    hyper = select(x, np.sin(2 * x[:, :1]))
    assert np.exp(hyper.log[0, 1]) > 10 * np.exp(hyper.log[0, 0])


def test_kernel_fits_the_smoothness():
    x = np.linspace(-2, 2, 25)[:, None]
    rough = np.abs(x - 0.3)
    assert select(x, np.concatenate([np.sin(x), rough], axis=1)).kernel.tolist() == [0, 1]


def test_outputs_that_jump_have_the_roughest_kernel():
    x = RNG.uniform(-1.7, 1.7, (60, 1))
    assert select(x, np.sign(x - 0.2) + np.sign(x + 0.7) - np.sign(x - 1)).kernel.tolist() == [2]


def test_pure_noise_is_hardly_fitted():
    """Among eight numbers that are independent noise, at new inputs; `Constant` competes with the process in the default."""
    x, y = RNG.uniform(-1.7, 1.7, (50, 3)), RNG.normal(size=(50, 8))
    centre, _ = Regression(x, y, select(x, y))(RNG.uniform(-1.7, 1.7, (200, 3)))
    assert np.median(centre.std(axis=0)) < 0.4


def problem(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(count, 2))
    u = np.sin(np.linspace(0, 3, 12) * (1 + x[:, :1]) + x[:, 1:])[:, None]
    return np.zeros((count, 1, 12)), u, x


def test_model_std_is_a_field_that_grows_away_from_the_data():
    a, u, x = problem(20)
    fitted = Process().fit(a, u, x)
    noise, std = fitted.uncertainty(np.zeros((3, 1, 12)), np.array([x[0], [1.5, 0.5], [4.0, 0.5]]))
    assert noise.shape == std.shape == (3, 1, 12)
    assert (std[2] > std[1]).all()
    assert std[1].mean() > 5 * std[0].mean()
    assert np.abs(fitted(a, x) - u).max() < 0.01 * u.std()


def test_residuals_are_those_of_processes_that_were_selected_without_the_run():
    a, u, x = problem(12)
    mean = Process().fit(a, u, x)
    left = mean.residuals(a, u, x)
    kept, out = next(folds(12, process.FOLDS, np.arange(12), 0))
    copy = Fitted.of(a[kept], u[kept], x[kept], mean._fitted)
    assert np.allclose(left[out], u[out] - copy(a[out], x[out]))
    assert mean.left_out_components().std.shape == (12, len(mean.lengths))


def test_residuals_of_many_runs_are_in_closed_form(monkeypatch):
    a, u, x = problem(30)
    mean = Process().fit(a, u, x)
    monkeypatch.setattr(process, "NESTED", 10)
    group = np.arange(30) // 3
    left = mean.residuals(a, u, x, group)
    fitted, out = mean._fitted, group == 4
    inputs = fitted.inputs(a, x)
    centre, _ = Regression(inputs[~out], fitted.basis.numbers(u)[~out], fitted.hyper)(inputs[out])
    rest = np.abs(u - fitted.basis.restored(fitted.basis.numbers(u))).max()
    expected = u[out] - fitted.basis.restored(centre)
    assert np.allclose(left[out], expected, atol=3 * rest + 1e-9)


def test_pairs_beyond_the_most_are_predicted_by_the_others(monkeypatch):
    a, u, x = problem(30)
    monkeypatch.setattr(process, "NESTED", 10)
    mean = Process(most=20).fit(a, u, x)
    assert len(mean._fitted.x) == 20
    assert np.abs(mean.residuals(a, u, x)).max() < 0.2 * u.std()


def test_components_of_an_input_field_are_coordinates():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(30, 2))
    a = (z @ rng.normal(size=(2, 10)))[:, None]
    u = np.sin(z.sum(axis=1))[:, None, None] * np.ones((1, 8))
    mean = Process().fit(a, u)
    assert mean.lengths.shape[1] == 2
    assert np.abs(mean.residuals(a, u)).mean() < 0.2 * np.abs(u - u.mean()).mean()


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_runs_are_refused(count):
    with pytest.raises(pdno.UserError, match="at least 3"):
        Process().fit(np.zeros((count, 1, 4)), np.zeros((count, 1, 4)), np.zeros((count, 1)))


def test_runs_that_are_all_equal_are_predicted():
    a, x = np.zeros((6, 1, 4)), np.arange(6.0)[:, None]
    mean = Process().fit(a, np.full((6, 1, 4), 2.0), x)
    assert np.allclose(mean(a, x), 2.0)
    assert np.isfinite(mean.uncertainty(a, x)[1]).all()
