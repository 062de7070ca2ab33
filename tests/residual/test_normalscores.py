"""Normal scores: their distribution, their inverse, for which outputs they are used, and fronts that stay within bounds."""

import numpy as np
import pytest
from scipy.special import ndtr

from pdno import Training
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Gaussian, Residuals, Rows, Statistics, law_from_state
from pdno.residual.law import named_state
from pdno.residual.normalscores import UNIFORM, NormalScores
from tests.helpers import STILL

X = (np.arange(32) + 0.5) / 32
QUIET = Terms(progress=False)


def fronts(count: int, seed: int) -> Residuals:
    """Return fronts at random places, which are 1 − 10⁻⁶ and closer at one side of most fields."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0.3, 0.7, (count, 1, 1))
    values = np.tanh((X - place) / 0.05)
    return Residuals(pairs_of(rng.normal(size=values.shape), values), values)


def test_scores_of_any_distribution_are_gaussian() -> None:
    """P(y ≤ t) = Φ(t) up to w, the share of the uniform distribution, and the standard error .0005 of a million values."""
    u = np.random.default_rng(0).exponential(size=(1000, 1, 1000))
    y = NormalScores.of(u)(u)
    for t in (-1.5, -0.5, 0.0, 1.0, 2.0):
        assert np.mean(y <= t) == pytest.approx(ndtr(t), abs=UNIFORM + 0.002)


def test_scores_are_the_mixture_of_ranks_and_a_uniform_distribution() -> None:
    """By hand: the middle of five values has rank ½; the uniform distribution function there is (1.5 − 0)/8 in its units."""
    u = np.array([0.0, 1.0, 1.5, 2.0, 8.0]).reshape(1, 1, 5)
    y = NormalScores.of(u)(u)[0, 0]
    uniform = 0.1 + 0.8 * 1.5 / 8
    assert ndtr(y[2]) == pytest.approx((1 - UNIFORM) * 0.5 + UNIFORM * uniform, abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_values_are_restored(seed) -> None:
    rng = np.random.default_rng(seed)
    u = np.stack([rng.normal(size=(200, 40)), np.tanh(5 * rng.normal(size=(200, 40)))], axis=1)
    scores = NormalScores.of(u)
    np.testing.assert_allclose(scores.restored(scores(u)), u, atol=1e-9)


def test_members_beyond_all_values_are_at_the_bounds() -> None:
    u = fronts(50, 0).pairs.u
    assert NormalScores.of(u).restored(np.full((1, 1, 1), 99.0)).item() == u.max()


def test_equal_values_have_one_score() -> None:
    u = np.where(np.random.default_rng(0).random((50, 1, 60)) < 0.5, 0.0, 1 + np.random.default_rng(1).random((50, 1, 60)))
    y = NormalScores.of(u)(u)
    assert np.ptp(y[u == 0]) == 0
    assert ndtr(y[u == 0].mean()) == pytest.approx(0.25, abs=0.02)  # the middle of the lower half


@pytest.mark.parametrize(
    ("u", "saturated"),
    [
        (fronts(60, 0).pairs.u, True),
        (np.random.default_rng(0).normal(size=(60, 1, 32)), False),
        (np.random.default_rng(0).uniform(size=(60, 1, 32)), False),
        (np.random.default_rng(0).choice([-1.0, 1.0], (60, 1, 32)), False),  # there is nothing between the bounds
        (np.zeros((60, 1, 32)), False),
    ],
)
def test_outputs_that_saturate_are_found(u, saturated) -> None:
    assert (NormalScores.if_saturated(u) is not None) == saturated


def test_missing_values_are_ignored() -> None:
    given = fronts(60, 0)
    mask = np.random.default_rng(1).random(given.values.shape) < 0.7
    damaged = np.where(mask, given.values, 1e6)
    scores = NormalScores.of(damaged, mask)
    assert scores.values.max() <= 1
    pairs = pairs_of(given.pairs.a, np.where(mask, given.values, np.nan), mask=mask)
    left = NormalScores.of(given.values).residuals(Residuals(pairs, np.where(mask, given.values, 0.0)))
    assert (left.values[~mask] == 0).all()


@pytest.fixture(scope="module")
def law() -> Statistics:
    loop = Training(updates=250, batch=32, rate=4e-3, ema=0.95)
    return Statistics(rest=Gaussian(), training=loop).learn(fronts(400, 0), fronts(100, 1), QUIET)


def members(law: Statistics, count: int = 300) -> np.ndarray:
    return law.draw(fronts(1, 2).inputs, Rows(0, np.zeros(count, int), np.arange(count), np.zeros(count, int)))[:, 0]


@pytest.mark.slow
def test_fronts_are_drawn_at_all_places_and_within_their_bounds(law) -> None:
    """Places are uniform on [.3, .7], of which the standard deviation is .115; the rest does not leave the bounds."""
    assert law.normal is not None
    draws = members(law)
    place = (1 - draws.mean(axis=1)) / 2
    assert place.std() == pytest.approx(0.115, rel=0.15)
    assert np.abs(draws).max() <= 1
    flat = np.abs(X - 0.5) > 0.35  # at least .15 from all fronts, three of their widths
    assert np.quantile(np.abs(np.abs(draws[:, flat]) - 1), 0.99) < 0.02


@pytest.mark.slow
def test_the_mean_of_fronts_is_that_of_many_members(law) -> None:
    """The standard error of the mean of 3000 members is at most 1/√3000 = .018; the rest, which is left out, moves it less."""
    given = fronts(1, 2)
    np.testing.assert_allclose(law.expectation(given.inputs)[0, 0], members(law, 3000).mean(axis=0), atol=0.07)


def test_members_are_within_the_bounds_and_normal_scores_are_saved() -> None:
    law = Statistics(rest=Gaussian(), training=STILL).learn(fronts(60, 0), fronts(30, 1), QUIET)
    assert law.normal is not None
    assert np.abs(members(law, 20)).max() <= 1
    restored = law_from_state(named_state(law))
    np.testing.assert_array_equal(members(restored, 20), members(law, 20))
