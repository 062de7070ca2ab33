"""The diffusion law with exact networks: the recursion of the reverse chain, denoising errors, and the paper's model."""

import time
from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import pdno
from pdno import PDNO, Diffusion, Pairs, Schedule, Training, UserError
from pdno.data.spaces import Spaces
from pdno.diffusion.reverse import AUTO_STEPS, Reverse, ancestral, denoising_error, variance
from pdno.learning.budget import Terms
from pdno.mean import Constant
from pdno.model.law import Law
from pdno.model.prediction import draw_members
from pdno.residual import Diffused, Inputs, Residuals, Rows
from pdno.residual.amplitude import Amplitude
from pdno.residual.scale import Scale
from pdno.residual.spread import Spread
from tests.helpers import STILL, TINY, TWO, ExactDenoiser, normal, small

POINTS = 64
QUIET = Terms(progress=False)


def unit_spread(size: float = 1.0) -> Spread:
    """Return S = size."""
    return Spread(Scale(np.full((1, 1), size), np.ones((1, 1)), (False,), "scalar"))


def gaussian_residuals(s: float, count: int, seed: int) -> Residuals:
    """Return residuals s ξ about a mean that is zero."""
    a, xi = normal(2, count, 1, POINTS, seed=seed)
    return Residuals(Pairs.of(a, s * xi), s * xi)


@cache
def exact_law(s: float, **reverse: object) -> Diffused:
    """Return the diffusion of residuals N(0, s²), S being one, whose network is exact."""
    law = Diffused(
        ExactDenoiser(0.0, s), Diffusion(), Reverse(**reverse), spread=unit_spread(), training=STILL, search_steps=False
    )
    return law.learn(gaussian_residuals(s, 4, 0), gaussian_residuals(s, 600, 1), QUIET)


def drawn(law: Diffused, count: int, members: int = 1, **sampling: object) -> np.ndarray:
    """Draw residuals for inputs of noise: (input × member, channel, node)."""
    inputs = Inputs(normal(count, 1, POINTS, seed=2), np.zeros((count, 1, POINTS)))
    places, numbers = np.divmod(np.arange(count * members), members)
    return law.draw(inputs, Rows(0, places, numbers, places), **sampling)


def recursion(s: float, chain: Schedule, var: np.ndarray) -> float:
    """Return the standard deviation of V_0 for the exact network of N(0, s²): the chain is linear and Gaussian.

    var_{n−1} = (1 − β_n/v_n)²/(1 − β_n) var_n + σ_n with v_n = γ_n s² + 1 − γ_n.
    """
    now = 1.0
    for k in range(chain.n_steps, 0, -1):
        v = chain.gamma[k] * s**2 + 1 - chain.gamma[k]
        now = (1 - chain.beta[k] / v) ** 2 / (1 - chain.beta[k]) * now + var[k]
    return float(np.sqrt(now))


# Exact networks


@pytest.mark.parametrize("steps", [5, 20, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("s", [0.01, 0.05, 0.5, 1.0])
def test_the_analytic_variance_recovers_the_standard_deviation(s, steps) -> None:
    """With any number of steps. Errors of e_n and of 64,000 draws are .4 % and .3 %; five of them: a rate below 1e-5."""
    draws = drawn(exact_law(s), 4, 250, steps=steps)
    assert draws.std() == pytest.approx(s, rel=0.025)
    assert abs(draws.mean()) < 5 * s / np.sqrt(draws.size)


@pytest.mark.parametrize(("rule", "expected"), [("noise-free", 0.0391), ("gaussian", 0.0570), ("analytic", 0.0500)])
@pytest.mark.slow
def test_every_rule_ends_where_the_recursion_does(rule, expected) -> None:
    """For s = .05 and 100 steps, the rules of the paper miss the standard deviation by −22 % and 14 %."""
    law = exact_law(0.05, variance=rule, steps=100)
    assert (law.error is not None) == (rule == "analytic")
    chain, var = law.reverse.chain(law.diffusion.schedule, law.error)
    by_hand = recursion(0.05, chain, var)
    assert by_hand == pytest.approx(expected, rel=0.01)
    assert drawn(law, 4, 250).std() == pytest.approx(by_hand, rel=5 / np.sqrt(2 * 1000 * POINTS))


def test_the_denoising_error_of_an_exact_network_is_its_posterior_variance() -> None:
    """e_n = γ s²/(γ s² + 1 − γ), within six standard errors of 512 fields of 64 nodes."""
    s, law = 0.3, exact_law(0.3)
    gamma = law.diffusion.schedule.gamma[1:]
    assert law.error is not None
    expected = gamma * s**2 / (gamma * s**2 + 1 - gamma)
    np.testing.assert_allclose(law.error[1:], expected, rtol=6 * np.sqrt(2 / 2**15))
    assert law.error[0] == 0


@pytest.mark.parametrize("t_start", [0, 90])
def test_steps_that_the_reverse_chain_does_not_take_are_not_trained(t_start) -> None:
    seen: list[int] = []

    class Recording(ExactDenoiser):
        def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
            seen.extend(n.tolist())
            return super().forward(n, v, a)

    training = Training(updates=20, batch=20, rate=1e-12, ema=0.0)
    law = Diffused(Recording(0.0, 0.5), Diffusion(), Reverse(variance="gaussian", t_start=t_start), training=training)
    law.with_spread(unit_spread()).learn(gaussian_residuals(0.5, 20, 0), None, QUIET)
    assert set(seen) <= set(range(t_start + 1, 101))
    assert len(set(seen)) > 0.9 * (100 - t_start)  # 400 draws


def test_a_network_that_predicts_zero_is_exact_for_unit_gaussians() -> None:
    """With the target "v": e_n = γ_n, and every sub-chain ends in N(0, 1)."""
    diffusion = Diffusion(Schedule.cosine(50), target="v")
    denoise = diffusion.denoiser(lambda n, v, a: torch.zeros_like(v))
    rng = torch.Generator().manual_seed(0)
    u0 = torch.randn(4000, 1, 16, generator=rng)
    error = denoising_error(denoise, diffusion, u0, u0, lambda n: torch.randn(u0.shape, generator=rng))
    np.testing.assert_allclose(error[1:], diffusion.schedule.gamma[1:], rtol=0.02)
    for steps in (1, 3, 50):
        chain = diffusion.schedule.subchain(steps)
        var = variance("analytic", chain, diffusion.schedule.gamma)
        start = torch.randn(u0.shape, generator=rng)
        end = ancestral(denoise, start, u0, chain, var, lambda n: torch.randn(u0.shape, generator=rng))
        assert float(end.var()) == pytest.approx(1, abs=0.02)


def test_draws_are_scaled_by_s() -> None:
    one, ten = (copy(exact_law(0.5)).with_spread(unit_spread(size)) for size in (1.0, 10.0))
    np.testing.assert_allclose(drawn(ten, 5, steps=5), 10 * drawn(one, 5, steps=5), rtol=1e-12)


def test_draws_are_functions_of_seed_input_and_member() -> None:
    law = exact_law(0.5)
    inputs = Inputs(normal(3, 1, POINTS), np.zeros((3, 1, POINTS)))
    whole = law.draw(inputs, Rows(7, np.array([4, 4, 5]), np.array([0, 1, 0]), np.array([0, 0, 1])), steps=5)
    some = law.draw(inputs, Rows(7, np.array([5, 4, 4]), np.array([0, 1, 0]), np.array([1, 0, 0])), steps=5)
    np.testing.assert_allclose(some, whole[[2, 1, 0]], rtol=1e-5, atol=1e-6)
    assert len({row.tobytes() for row in whole}) == 3


def test_the_number_of_evaluations_is_that_of_the_sampler() -> None:
    law = exact_law(0.5)
    assert (law.evaluations(), law.evaluations(steps=7), law.evaluations(steps=7, sampler="heun")) == (AUTO_STEPS, 7, 13)


# Missing outputs


def test_the_denoising_error_is_that_of_observed_outputs() -> None:
    class Zero(ExactDenoiser):
        def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
            return 0 * self.one * v

    u, mask = normal(40, 16), np.random.default_rng(4).random((40, 16)) < 0.5
    validation = Pairs.of(u, u, mask=mask)
    model = PDNO(Zero(), mean=None, normalise="none", training=STILL).fit(u, u, validation=validation)
    gamma = Schedule.cosine(100).gamma[1:]
    np.testing.assert_allclose(model.law.residual.error[1:], gamma / (1 - gamma) * np.mean(u[mask] ** 2), rtol=1e-4)


def test_a_coloured_base_with_missing_outputs_has_the_right_error() -> None:
    """Nothing is denoised: e_n = γ/(1−γ)·‖u‖²/‖ε‖² at observed nodes, and jumps at missing ones are not amplified."""

    class Identity(ExactDenoiser):
        def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
            return v + 0 * self.one

    u = np.zeros((200, 32))
    mask = np.random.default_rng(4).random((200, 32)) < 0.7
    diffusion = Diffusion(base=pdno.Field(tau=3, r=1), target="u0")
    model = PDNO(Identity(), diffusion, mean=None, normalise="none", training=STILL)
    model.fit(u, u, validation=Pairs.of(u, u, mask=mask))
    root = np.sqrt(Schedule.cosine(100).gamma[1:])
    np.testing.assert_allclose(model.law.residual.error[1:], root**2, rtol=1e-3)


# The paper's model


@pytest.mark.parametrize("normalise", ["none", "scalar", "pointwise"])
def test_the_model_without_a_mean_is_a_constant_and_a_diffusion(normalise) -> None:
    """Bitwise: m and S are the normalisation of u, r is drawn by the diffusion, and u = m + S r."""
    a, u = 2 + normal(24, 1, POINTS), 5 - 3 * normal(24, 1, POINTS, seed=1)
    train, held_out = Pairs.of(a[:20], u[:20]), Pairs.of(a[20:], u[20:])
    model = small(normalise=normalise).fit(a[:20], u[:20], validation=held_out, seed=3, progress=False)

    mean = Constant(normalise).fit(train.a, train.u)
    std = mean.normalisation.std
    scale = Scale(std, np.ones((1, 1)), (False,), "scalar" if std.size == 1 else "point")
    law = Diffused(
        TINY,
        Diffusion(Schedule.cosine(10)),
        spread=Spread(scale),
        normalise=normalise,
        training=TWO,
        search_steps=False,
    )
    residuals = (Residuals(pairs, pairs.u - mean(pairs.a)) for pairs in (train, held_out))
    law.learn(*residuals, Terms(seed=3, progress=False))

    np.testing.assert_array_equal(law.error, model.law.residual.error)
    by_hand = Law(Spaces.of(train), mean, law)
    expected = model.sample(a[:3], members=4, seed=5)
    np.testing.assert_array_equal(draw_members(by_hand, a[:3], 4, 5, None, None, 0), expected)
    places, numbers = np.divmod(np.arange(12), 4)
    padded = np.minimum(np.arange(law.rows_of_call((1, POINTS))), 11)  # calls have a fixed number of rows
    rows = Rows(5, places[padded], numbers[padded], places[padded])
    draws = law.draw(Inputs(a[:3], mean(a[:3])), rows)[:12].reshape(3, 4, 1, POINTS)
    np.testing.assert_array_equal(mean.normalisation.mean + np.moveaxis(draws, 1, 0), expected)


# Settings


@pytest.mark.slow
def test_the_number_of_steps_is_the_default_if_there_is_no_time() -> None:
    law = Diffused(ExactDenoiser(0.0, 0.5), Diffusion(), spread=unit_spread(), training=STILL)
    held_out = gaussian_residuals(0.5, 40, 1)
    law.learn(gaussian_residuals(0.5, 4, 0), held_out, QUIET)
    assert law.auto_steps == 5  # which suffice for a Gaussian
    assert "5 sampling steps suffice" in law.notes[-1]
    assert law.evaluations() == 5
    law.measure(held_out, Terms(progress=False, deadline=time.monotonic() - 1))
    assert law.auto_steps == AUTO_STEPS
    assert "no time to compare others" in law.notes[-1]


def test_the_scale_is_estimated_if_it_is_not_given() -> None:
    law = Diffused(ExactDenoiser(0.0, 1.0), Diffusion(), training=STILL, search_steps=False)
    law.learn(gaussian_residuals(7.0, 400, 0), gaussian_residuals(7.0, 100, 1), QUIET)
    assert law.spread.scale.std.item() == pytest.approx(7, rel=0.05)
    np.testing.assert_array_equal(law.std, law.spread.scale.std)
    assert drawn(law, 5, 100, steps=5).std() == pytest.approx(7, rel=0.05)


def test_an_untrained_law_says_so() -> None:
    for request in (lambda: Diffused().net, lambda: Diffused().spread):
        with pytest.raises(UserError, match="this diffusion has not been trained"):
            request()


def test_the_bound_ignores_nodes_without_spread() -> None:
    """With S = 0 at four nodes, the bound is lower by −log of the density of their values, within five standard errors."""
    law, new = copy(exact_law(1.0)), gaussian_residuals(1.0, 400, 3)
    point = np.ones((1, POINTS))
    point[:, :4] = 0
    law.with_spread(Spread(Scale(point, np.ones((1, 1)), (False,), "point")))
    values = new.values * point
    four = 0.5 * np.square(new.values - values).sum() / len(values) + 2 * np.log(2 * np.pi)
    chance = np.sqrt(4 * 0.5 / len(values))  # of the noise at the four nodes
    expected = exact_law(1.0).negative_log_density(new) - four
    assert law.negative_log_density(Residuals(new.pairs, values)) == pytest.approx(expected, abs=5 * chance)


def test_the_bound_counts_the_input_dependent_scale() -> None:
    """−log density of t(a) r is that of r, plus the mean of log t for each node."""
    law, new = exact_law(0.5), gaussian_residuals(0.5, 40, 3)
    features = np.zeros(6)
    amplitude = Amplitude(0.3, np.array([0.5, 0, 0, 0, 0, 0]), features, features + 1, np.zeros(1))
    t = amplitude(new.inputs.a, new.inputs.mean)
    larger = Residuals(new.pairs, t[:, None, None] * new.values, prediction=new.inputs.mean)
    scaled = copy(law).with_spread(replace(law.spread, amplitude=amplitude))
    expected = law.negative_log_density(new) + POINTS * np.log(t).mean()
    assert abs(np.log(t).mean()) > 0.1
    assert scaled.negative_log_density(larger) == pytest.approx(expected, rel=1e-5)


def test_the_bound_needs_the_whole_chain() -> None:
    law = exact_law(0.5, variance="gaussian", t_start=10)
    with pytest.raises(UserError, match="nvlb needs a chain down to step 0, but this model ends at t_start = 10"):
        law.negative_log_density(gaussian_residuals(0.5, 4, 0))


@pytest.mark.parametrize(("network", "rows"), [("small", 64), ("fno", 4)])
def test_calls_are_as_large_as_the_network_likes(network, rows) -> None:
    a = np.zeros((4, 1, 64, 64))
    law = Diffused(network, training=STILL, search_steps=False)
    law.learn(Residuals(Pairs.of(a, a + 1), a + 1), Residuals(Pairs.of(a, a + 1), a + 1), Terms(progress=False))
    assert law.rows_of_call((1, 64, 64)) == rows
