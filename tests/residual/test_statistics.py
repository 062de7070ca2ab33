"""Statistics first: a branch that a whole field shares, and the size of the rest by component."""

import numpy as np
import pytest

from pdno import Training, UserError
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Gaussian, Residuals, Rows, Statistics

QUIET = Terms(progress=False)
LOOP = Training(updates=150, batch=32, rate=4e-3, ema=0.9)
X = np.linspace(0, 1, 24)


def branches(count: int, seed: int) -> Residuals:
    """Return ±(1 + a/2) with white noise of .02 on the upper branch and .2 on the lower one."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, (count, 1, 1)) * np.sin(np.pi * X)
    sign = rng.choice([-1.0, 1.0], (count, 1, 1))
    values = sign * (1 + 0.5 * a) + np.where(sign > 0, 0.02, 0.2) * rng.standard_normal(a.shape)
    return Residuals(pairs_of(a, values), values)


@pytest.fixture(scope="module")
def law() -> Statistics:
    return Statistics(rest=Gaussian(), training=LOOP).learn(branches(600, 0), branches(100, 1), QUIET)


@pytest.fixture(scope="module")
def brief() -> Statistics:
    """A law that was hardly trained."""
    loop = Training(updates=5, batch=32, rate=4e-3)
    return Statistics(rest=Gaussian(), training=loop).learn(branches(600, 0), branches(100, 1), QUIET)


def drawn(law: Statistics, members: int = 400) -> tuple[np.ndarray, np.ndarray]:
    new = branches(3, 5)
    flat = np.arange(3 * members)
    return new.pairs.a, law.draw(new.inputs, Rows(0, flat // members, flat % members, flat // members)).reshape(3, members, 24)


@pytest.mark.slow
def test_members_are_on_one_branch_as_a_whole(law) -> None:
    a, draws = drawn(law)
    means = draws.mean(axis=2)
    assert np.mean(means > 0) == pytest.approx(0.5, abs=0.07)
    np.testing.assert_allclose(np.abs(means).mean(axis=1), (1 + 0.5 * a).mean(axis=(1, 2)), rtol=0.1)
    assert np.mean(np.abs(means) > 0.6) > 0.97  # none between the branches; a Gaussian would have 45 %


@pytest.mark.slow
def test_the_size_of_the_rest_is_that_of_the_branch(law) -> None:
    _, draws = drawn(law)
    rough = np.sqrt(np.mean(np.diff(draws, axis=2) ** 2, axis=2) / 2)
    upper = draws.mean(axis=2) > 0
    assert np.median(rough[~upper]) == pytest.approx(0.2, rel=0.3)
    assert np.median(rough[upper]) < 0.07


def test_the_mean_is_that_of_many_members(brief) -> None:
    """The branches are equally probable: the mean of 4000 members has a standard error of .016."""
    expected = brief.expectation(branches(3, 5).inputs)
    _, draws = drawn(brief, 4000)
    np.testing.assert_allclose(expected[:, 0], draws.mean(axis=1), atol=0.06)


def test_a_member_takes_one_evaluation(brief) -> None:
    assert brief.evaluations() == 1
    assert brief.evaluations(steps=20) == 1


def test_outputs_at_varying_nodes_are_refused() -> None:
    data = branches(20, 0)
    mask = np.random.default_rng(0).random(data.values.shape) < 0.8
    masked = Residuals(pairs_of(data.pairs.a, data.values, mask=mask), data.values)
    with pytest.raises(UserError, match="at the same nodes"):
        Statistics(training=LOOP).learn(masked, None, QUIET)


def test_it_must_be_trained_first() -> None:
    with pytest.raises(UserError, match="has not been trained"):
        Statistics().describe()


# Principal components in place of a network


def offsets(count: int, seed: int) -> Residuals:
    """Return one of three offsets for a whole field, with white noise of .02, .1 and .2."""
    rng = np.random.default_rng(seed)
    a, k = rng.standard_normal((count, 1, 24)), rng.integers(0, 3, (count, 1, 1))
    values = np.array([-1.0, 0.0, 1.0])[k] + np.array([0.02, 0.1, 0.2])[k] * rng.standard_normal(a.shape)
    return Residuals(pairs_of(a, values), values)


def test_linear_statistics_have_the_offsets_and_the_sizes_of_the_rest() -> None:
    law = Statistics("auto", Gaussian(), "linear", Training(updates=120)).learn(offsets(800, 0), offsets(150, 1), QUIET)
    assert law.latents == 1
    assert law.evaluations() == 0
    rows = Rows(0, np.zeros(3000, int), np.arange(3000), np.zeros(3000, int))
    draws = law.draw(offsets(1, 2).inputs, rows)[:, 0]
    means, nearest = draws.mean(axis=1), np.round(draws.mean(axis=1))
    assert np.mean(np.abs(means - nearest) < 0.15) > 0.97
    rough = np.sqrt(np.mean(np.diff(draws, axis=1) ** 2, axis=1) / 2)
    for offset, size in ((-1, 0.02), (0, 0.1), (1, 0.2)):
        assert np.mean(nearest == offset) == pytest.approx(1 / 3, abs=0.06)
        assert np.median(rough[nearest == offset]) == pytest.approx(size, rel=0.25)
