"""Outputs at a bound: regression, noise and power of a censored Gaussian field are recovered."""

from dataclasses import replace

import numpy as np
import pytest

from pdno import UserError
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Censored, Gaussian, Inputs, Residuals, Rows, law_from_state
from pdno.residual.law import named_state
from pdno.residual.link import Link
from pdno.residual.tobit import AFFINE, Tobit

NODES, PAIRS = 16, 200


def problem(count: int, seed: int, power: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """z = a + .5 g with a and g smooth, of unit variance; outputs are max(z, 0)^power."""
    rng, x = np.random.default_rng(seed), np.linspace(0, 1, NODES)
    root = np.linalg.cholesky(np.exp(-0.5 * ((x[:, None] - x) / 0.3) ** 2) + 1e-6 * np.eye(NODES))
    a, g = rng.standard_normal((2, count, 1, NODES)) @ root.T
    return a, np.maximum(a + 0.5 * g, 0.0) ** power


def residuals_of(a: np.ndarray, u: np.ndarray, mask: np.ndarray | None = None) -> Residuals:
    """Residuals of the constant mean."""
    prediction = np.broadcast_to(u.mean(axis=0), u.shape)
    return Residuals(pairs_of(a, u, None, mask), u - prediction, prediction=prediction)


def members(law, new: Residuals, count: int = 50) -> np.ndarray:
    """Members of u, (member, sample, channel, node)."""
    number, inputs = np.arange(len(new)), new.inputs
    rows = [Rows(0, number, np.full(len(new), member), number) for member in range(count)]
    return np.stack([law.draw(inputs, each) + inputs.mean for each in rows])


@pytest.fixture(scope="module")
def trained() -> Censored:
    return Censored().learn(residuals_of(*problem(PAIRS, 0)), None, Terms())


def test_power_regression_and_noise_are_recovered(trained) -> None:
    """c^(1/p) z is the latent field: the regression is a, and the noise has the standard deviation ½."""
    new = residuals_of(*problem(200, 1))
    assert trained.power is None
    assert trained.latent.link.power == 2
    link, size = trained.latent.link, np.sqrt(trained.latent.link.unit[0])
    inner = trained._inner(new.inputs)
    assert size * np.sqrt(np.mean((inner.mean - new.inputs.a / size) ** 2)) < 0.15  # error of the regression
    assert size * float(np.mean(trained.latent.noise.spread.std)) == pytest.approx(0.5, rel=0.15)
    assert link.bounds.tolist() == [[0.0, np.inf]]


def test_members_are_as_often_at_the_bound_as_outputs(trained) -> None:
    new = residuals_of(*problem(400, 1))
    drawn = members(trained, new)
    assert (drawn >= -1e-12).all()
    assert np.mean(drawn <= 1e-12) == pytest.approx(np.mean(new.pairs.u <= 0), abs=0.03)


def test_it_is_better_than_a_gaussian_law(trained) -> None:
    """By a fifth, with the same constant mean, which the Gaussian law cannot improve."""
    data, new = residuals_of(*problem(PAIRS, 0)), residuals_of(*problem(200, 1))
    scores = [law.score(new, 20).mean() for law in (trained, Gaussian().learn(data, None, Terms()))]
    assert scores[0] < 0.8 * scores[1]


def test_the_expectation_is_the_mean_of_members(trained) -> None:
    """Within five standard errors of the mean of 2000 members, at every node of three inputs."""
    new = residuals_of(*problem(3, 1))
    drawn = members(trained, new, 2000)
    stderr = drawn.std(axis=0) / np.sqrt(2000)
    assert (np.abs(drawn.mean(axis=0) - new.inputs.mean - trained.expectation(new.inputs)) < 5 * stderr + 2e-3).all()


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("bounds", [(0.0, np.inf), (-np.inf, 1.0), (0.0, 1.0)])
def test_expectations_are_integrals(power, bounds) -> None:
    """Also where nearly all of the distribution is beyond the bound."""
    link = Link(np.array([bounds]), np.array([1.0]), power)
    node = np.linspace(-9, 9, 100_001)
    density = np.exp(-0.5 * node**2) / np.sqrt(2 * np.pi)
    for mean in (-3.0, -1.0, 0.4, 2.0):
        exact = float(np.trapezoid(density * link((mean + node)[None, None])[0, 0], node))
        assert link.expectation(np.full((1, 1, 1), mean), np.ones((1, 1, 1)))[0, 0, 0] == pytest.approx(exact, rel=1e-4)


def test_units_of_inputs_do_not_matter() -> None:
    """A second channel of inputs, which is irrelevant, in units of 1 and of 10⁻⁴."""
    (a, u), (a_new, u_new), rng = problem(100, 0), problem(100, 1), np.random.default_rng(5)
    other, other_new = rng.standard_normal((2, 100, 1, NODES))
    scores = []
    for unit in (1.0, 1e4):
        data, new = ((np.concatenate([x, unit * y], axis=1), out) for x, y, out in ((a, other, u), (a_new, other_new, u_new)))
        law = Censored(2).learn(residuals_of(*data), None, Terms())
        scores.append(law.score(residuals_of(*new), 20).mean())
    assert scores[1] == pytest.approx(scores[0], rel=0.05)


@pytest.mark.parametrize("with_mean", [False, True])
def test_the_spread_is_that_of_enlarged_residuals(with_mean) -> None:
    """Residuals of an in-sample mean, enlarged by two: those of a regression on this mean are, those of one on a are not."""
    data = residuals_of(*problem(PAIRS, 0))
    stds = []
    for factor in (1, 2):
        tobit = Tobit(replace(data, values=factor * data.values), np.ones((1, NODES), bool), 2, 0)
        tobit.with_mean = with_mean
        stds.append(float(np.mean(tobit.estimated(AFFINE, Terms())[0].noise.spread.std)))
    assert stds[1] == pytest.approx((2 if with_mean else 1) * stds[0], rel=1e-6)


def test_an_overfitted_mean_is_no_regressor() -> None:
    """m(a) that is nearly u at training pairs explains all of z there; its enlarged residuals say that it does not."""
    a, u = problem(PAIRS, 0)
    m = u + 0.1 * (u.mean(axis=0) - u) + 0.01 * np.random.default_rng(3).standard_normal(u.shape)
    for factor, used in ((1.0, True), (10.0, False)):
        tobit = Tobit(Residuals(pairs_of(a, u), factor * (u - m), prediction=m), np.ones((1, NODES), bool), 2, 0)
        assert tobit.with_mean is used


def test_an_upper_bound_is_treated_alike(trained) -> None:
    (a, u), (a_new, u_new) = problem(PAIRS, 0), problem(3, 1)
    law, new, mirrored = trained, residuals_of(a_new, u_new), residuals_of(-a_new, 1 - u_new)
    upper = Censored(2).learn(residuals_of(-a, 1 - u), None, Terms())
    means = 1 - members(upper, mirrored, 400).mean(axis=0), members(law, new, 400).mean(axis=0)
    spread = members(law, new, 400).std(axis=0) / np.sqrt(200)
    assert np.mean(np.abs(means[0] - means[1]) < 3 * spread + 0.02) > 0.9


def test_nodes_without_outputs_have_no_residual() -> None:
    a, u = problem(100, 0)
    mask = np.ones(u.shape, bool)
    mask[:, :, :4] = False
    data = residuals_of(a, np.where(mask, u, 0.0), mask)
    law = Censored(2).learn(data, None, Terms())
    inputs = Inputs(a, np.zeros(u.shape))
    drawn = law.draw(inputs, Rows(0, np.arange(9), np.zeros(9, int), np.arange(9)))
    assert (drawn[:, :, :4] == 0).all()
    assert drawn[:, :, 4:].std() > 0


def test_when_it_applies() -> None:
    a, u = problem(100, 0)
    assert Censored.applies(residuals_of(a, u))
    assert not Censored.applies(residuals_of(a, u + a))  # no bound
    assert not Censored.applies(residuals_of(a, (u > 0).astype(float)))  # two values: not a bounded quantity
    mask = np.random.default_rng(0).random(u.shape) < 0.9
    assert not Censored.applies(residuals_of(a, np.where(mask, u, 0.0), mask))
    with pytest.raises(UserError, match="same nodes"):
        Censored().learn(residuals_of(a, np.where(mask, u, 0.0), mask), None, Terms())
    with pytest.raises(UserError, match="expected one of 1, 2, 3"):
        Censored(4)
    with pytest.raises(UserError, match="has not been trained"):
        Censored().describe()


def test_it_is_restored(trained) -> None:
    inputs, rows = residuals_of(*problem(4, 1)).inputs, Rows(0, np.arange(4), np.zeros(4, int), np.arange(4))
    back = law_from_state(named_state(trained))
    np.testing.assert_array_equal(back.draw(inputs, rows), trained.draw(inputs, rows))


@pytest.mark.parametrize("bounds", [(0.0, np.inf), (-np.inf, 1.0), (0.0, 1.0), (-np.inf, np.inf)])
def test_links_are_inverse_between_the_bounds(bounds) -> None:
    link = Link(np.array([bounds]), np.array([1.0]), 2)
    u = np.linspace(0.1, 0.9, 9).reshape(1, 1, 9)
    np.testing.assert_allclose(link(link.latent(u)), u)
    assert (link.sides(u) == 0).all()
    ends = np.clip(np.array([[[-5.0, 5.0]]]), *bounds)
    assert link.sides(ends)[0, 0].tolist() == [float(np.isfinite(bounds[0])), -float(np.isfinite(bounds[1]))]
