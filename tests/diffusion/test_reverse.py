"""Samplers and variances against closed recursions for N(m, s²𝒞), whose exact denoiser is known.

For this distribution every sampler is an affine function of V_N and of the noises, with scalar gains for every 𝒞. `moments_of`
applies one source of noise at a time, so the gains are exact, and with them mean and standard deviation of the samples.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno import Field, UserError
from pdno.diffusion.base import White, as_base
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.reverse import SAMPLERS, ancestral, denoising_error, nvlb, variance
from pdno.diffusion.schedule import Schedule

COSINE = Schedule.cosine(100)
SPREADS = [0.001, 0.01, 0.05, 0.5, 1, 3]
STEPS = [5, 20, 100]
RULES = ["noise-free", "gaussian", "mixed", "analytic"]
BASES = [White(), Field(tau=3, r=1), Field(tau=3, r=1, condition="periodic")]
each_base = pytest.mark.parametrize("base", BASES, ids=["white", "neumann", "periodic"])


def denoiser(m, s: float, schedule: Schedule = COSINE):
    """Return (n, v, a) ↦ E[U_0 | U_n = v] for N(m, s²𝒞)."""

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        gamma = schedule.gamma[n]
        return m + float(np.sqrt(gamma) * s**2 / (gamma * s**2 + 1 - gamma)) * (v - float(np.sqrt(gamma)) * m)

    return denoise


def error_of(s: float, schedule: Schedule = COSINE) -> np.ndarray:
    """Return e_n in closed form."""
    e = schedule.gamma * s**2 / (schedule.gamma * s**2 + 1 - schedule.gamma) if s else np.zeros(schedule.n_steps + 1)
    e[0] = 0
    return e


def moments_of(run: Callable[..., Tensor], chain: Schedule) -> tuple[float, float]:
    """Return mean and standard deviation of run(V_N, noise). Row 0 of the batch has no noise, each other row one source."""
    v = torch.zeros(chain.n_steps + 2, 1, 2, dtype=torch.float64)
    row = {int(n): i for i, n in enumerate(chain.n[1:], start=2)}
    v[1] = 1

    def noise(n: int) -> Tensor:
        eps = torch.zeros_like(v)
        eps[row[n]] = 1
        return eps

    end = run(v, noise)[:, 0, 0].numpy()
    return float(end[0]), float(np.sqrt(((end[1:] - end[0]) ** 2).sum()))


def recursion(chain: Schedule, m: float, s: float, sigma: np.ndarray, last_noise: bool = True) -> tuple[float, float]:
    """var_{n−1} = (1 − β_n/v*)²/(1−β_n)·var_n + σ_n with v* = γ_n s² + 1 − γ_n, and E V_n − √γ_n m likewise."""
    var, shift = 1.0, -np.sqrt(chain.gamma[-1]) * m
    for k in range(chain.n_steps, 0, -1):
        gamma, beta = chain.gamma[k], 1 - chain.gamma[k] / chain.gamma[k - 1]
        gain = (1 - beta / (gamma * s**2 + 1 - gamma)) / np.sqrt(1 - beta)
        var, shift = gain**2 * var + (sigma[k] if k > 1 or last_noise else 0), gain * shift
    return float(np.sqrt(chain.gamma[0]) * m + shift), float(np.sqrt(var))


def gains(name: str, chain: Schedule, s: float) -> float:
    """Return the factor from V_N − √γ_N m to V_0 − √γ_0 m of a deterministic sampler, from its published formula."""
    gamma, w, before = chain.gamma, 1.0, None
    alpha, sigma = np.sqrt(gamma), np.sqrt(1 - gamma)
    for k in range(chain.n_steps, 0, -1):
        to_u0 = alpha[k] * s**2 / (gamma[k] * s**2 + 1 - gamma[k])
        if name == "ddim":  # Song et al. (12): √γ' û₀ + √(1−γ') ε̂, ε̂ = √(1−γ) w/v*
            w *= alpha[k - 1] * to_u0 + sigma[k - 1] * sigma[k] / (gamma[k] * s**2 + 1 - gamma[k])
        elif name == "heun":  # dx/dt = a(t)(x − m), a(t) = t/(s² + t²), t = σ/α: trapezium with an Euler predictor
            t, t1 = sigma[k] / alpha[k], sigma[k - 1] / alpha[k - 1]
            a, a1, h = t / (s**2 + t**2), t1 / (s**2 + t1**2), t1 - t
            w *= alpha[k - 1] / alpha[k] * (1 + h / 2 * (a + a1 * (1 + h * a)) if t1 > 0 else 1 + h * a)
        else:  # Lu et al., algorithm 2: σ'/σ w − α'(e^{−h} − 1)((1 + 1/2r) û₀ − û₀_before/2r)
            u0, slope = to_u0 * w, 0.0
            h = np.log(alpha[k - 1] / sigma[k - 1] * sigma[k] / alpha[k]) if sigma[k - 1] > 0 else np.inf
            if before is not None and np.isfinite(h):
                r = np.log(alpha[k] / sigma[k] * sigma[k + 1] / alpha[k + 1]) / h
                slope = (u0 - before) / (2 * r)
            w, before = sigma[k - 1] / sigma[k] * w - alpha[k - 1] * np.expm1(-h) * (u0 + slope), u0
    return float(w)


@pytest.mark.parametrize("s", SPREADS)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("t_start", [0, 10])
@pytest.mark.parametrize("rule", RULES)
def test_ancestral_sampling_follows_the_recursion(rule, steps, t_start, s) -> None:
    chain = COSINE.subchain(min(steps, 100 - t_start), t_start)
    var = variance(rule, chain, error_of(s), mix=0.3)
    beta, before = 1 - chain.gamma[1:] / chain.gamma[:-1], chain.gamma[:-1]
    noise_free = beta * (1 - before) / (1 - chain.gamma[1:])
    closed = beta * (1 - before * (1 - s**2)) / (1 - chain.gamma[1:] * (1 - s**2))
    expected = {"noise-free": noise_free, "gaussian": beta, "mixed": 0.7 * noise_free + 0.3 * beta, "analytic": closed}[rule]
    np.testing.assert_allclose(var[1:], expected, rtol=1e-9)
    for last_noise in (True, False):
        m, denoise = 7.0, denoiser(7.0, s)
        moments = moments_of(lambda v, noise: ancestral(denoise, v, None, chain, var, noise, last_noise), chain)  # noqa: B023
        np.testing.assert_allclose(moments, recursion(chain, m, s, np.r_[0, expected], last_noise), rtol=1e-8)


@pytest.mark.parametrize("s", SPREADS)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("t_start", [0, 10])
@pytest.mark.parametrize("name", ["ddim", "heun", "dpm"])
def test_deterministic_samplers_follow_their_formulas(name, steps, t_start, s) -> None:
    chain, m = COSINE.subchain(min(steps, 100 - t_start), t_start), 7.0
    mean, std = moments_of(lambda v, noise: SAMPLERS[name](denoiser(m, s), v, None, chain, var=None, noise=noise), chain)
    gain = gains(name, chain, s)
    assert std == pytest.approx(abs(gain), rel=1e-8)
    assert mean == pytest.approx((np.sqrt(chain.gamma[0]) - gain * np.sqrt(chain.gamma[-1])) * m, rel=1e-10)


@pytest.mark.parametrize(
    ("s", "printed"),
    [
        (0.01, [".0036", ".0257", ".0055", ".0100"]),
        (0.05, [".0391", ".0570", ".0512", ".0500"]),
        (0.5, [".482", ".505", ".504", ".500"]),
        (1, [".977", "1.000", ".9997", "1.000"]),
    ],
)
def test_spread_with_a_perfect_network_and_100_cosine_steps(s, printed) -> None:
    """Noise-free, gaussian, gaussian without noise in the last step, analytic: only the last rule gives s."""
    for text, (rule, last_noise) in zip(
        printed, [("noise-free", True), ("gaussian", True), ("gaussian", False), ("analytic", True)], strict=True
    ):
        var = variance(rule, COSINE, error_of(s))
        _, std = moments_of(lambda v, eps: ancestral(denoiser(0.0, s), v, None, COSINE, var, eps, last_noise), COSINE)  # noqa: B023
        assert f"{std:.{len(text.partition('.')[2])}f}".lstrip("0") == text


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("s", [0, *SPREADS])
@pytest.mark.parametrize("measured", [False, True])
def test_the_analytic_variance_recovers_the_spread(steps, s, measured) -> None:
    """To 0.1 % with e_n in closed form; to 0.5 % with e_n from 400,000 values (4.5 standard errors of a standard deviation)."""
    error = measured_error(s) if measured else error_of(s)
    chain = COSINE.subchain(steps)
    var = variance("analytic", chain, error)
    mean, std = moments_of(lambda v, noise: ancestral(denoiser(2.0, s), v, None, chain, var, noise), chain)
    assert std < 1e-6 if s == 0 else std == pytest.approx(s, rel=5e-3 if measured else 1e-3)
    assert mean == pytest.approx(2, abs=1e-3 * max(s, 1e-3))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("s", SPREADS)
def test_flow_matching_recovers_the_spread(steps, s) -> None:
    """Its schedule with the ancestral sampler and the analytic variance; .1 % of the mean is left of U_N at t = .999."""
    flow = Schedule.flow(100)
    chain = flow.subchain(steps)
    var = variance("analytic", chain, error_of(s, flow))
    mean, std = moments_of(lambda v, noise: ancestral(denoiser(2.0, s, flow), v, None, chain, var, noise), chain)
    assert std == pytest.approx(s, rel=2e-3)
    assert mean == pytest.approx(2, abs=2e-3 * max(s, 1e-3))


@lru_cache
def measured_error(s: float) -> np.ndarray:
    draw = torch.Generator().manual_seed(1)
    u0, eps = (torch.randn(400, 1, 1000, generator=draw, dtype=torch.float64) for _ in range(2))
    return denoising_error(denoiser(2.0, s), Diffusion(COSINE), 2 + s * u0, None, lambda n: eps)


def test_without_the_noise_of_the_last_step_a_small_spread_is_lost() -> None:
    var = variance("analytic", COSINE, error_of(0.01))
    _, std = moments_of(lambda v, noise: ancestral(denoiser(0.0, 0.01), v, None, COSINE, var, noise, last_noise=False), COSINE)
    assert f"{std / 0.01:.2f}" == "0.37"


def test_a_single_step_from_pure_noise() -> None:
    """With γ_N = 1e-17, 1 − β of the single step rounds to zero; its analytic variance is s²."""
    chain = Schedule.linear(10).subchain(1)
    assert variance("analytic", chain, error_of(0.5, Schedule.linear(10)))[1] == pytest.approx(0.25, rel=1e-9)


@each_base
@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("s", [0.01, 3])
def test_samples_have_the_mean_and_covariance_of_the_distribution(base, name, s) -> None:
    """1000 whitened fields of 8 nodes, 20 steps: all entries within 5.2 standard errors (false-alarm rate 1e-4)."""
    law, chain, count = as_base(base), COSINE.subchain(20), 1000
    m = torch.as_tensor(law.sample((1, 8), 1, seed=9))
    var = variance("analytic", chain, error_of(s))
    start = torch.as_tensor(law.sample((1, 8), count, seed=0, purpose="start"))
    end = SAMPLERS[name](
        denoiser(m, s), start, None, chain, var=var, noise=lambda n: torch.as_tensor(law.sample((1, 8), count, seed=0, step=n))
    )
    if name == "gaussian-exact":
        expected, shift = s, 0.0
    else:
        gain = 0.0 if name == "ancestral" else gains(name, chain, s)
        expected = abs(gain) or recursion(chain, 0.0, s, var)[1]
        shift = recursion(chain, 1.0, s, var)[0] - 1 if not gain else -gain * np.sqrt(chain.gamma[-1])
    white = law.inverse_sqrt((end - (1 + shift) * m).numpy(), 1)[:, 0] / expected
    assert (np.abs(white.mean(axis=0)) < 5.2 / np.sqrt(count)).all()
    bound = 5.2 * np.sqrt((1 + np.eye(8)) / count)
    assert (np.abs(white.T @ white / count - np.eye(8)) < bound).all()


@each_base
@pytest.mark.parametrize("s", [0.01, 0.5, 3])
def test_denoising_error_is_whitened(base, s) -> None:
    """u₀ ~ N(0, s²I), any 𝒞: e_n = 1 − (1−γ) tr(𝒞 S⁻¹)/d with S = Cov U_n, on a batch with the exact moments of u₀ and ε."""
    root, (_, eps) = as_base(base).sqrt(np.eye(8), 1), pairs(base, s)
    u0, c = pairs(White(), s)[0], root @ root
    covariance = [g * s**2 * np.eye(8) + (1 - g) * c for g in COSINE.gamma]

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        return v @ torch.as_tensor(np.sqrt(COSINE.gamma[n]) * s**2 * np.linalg.inv(covariance[n]))

    measured = denoising_error(denoise, Diffusion(COSINE, base), u0, None, lambda n: eps)
    expected = [1 - (1 - g) * np.trace(np.linalg.solve(z, c)) / 8 for g, z in zip(COSINE.gamma, covariance, strict=True)]
    np.testing.assert_allclose(measured[1:], expected[1:], rtol=1e-7, atol=1e-11)
    assert measured[0] == 0


def pairs(base, s: float) -> tuple[Tensor, Tensor]:
    """Return (u₀ − m, ε) with 8 nodes and exactly their mean and covariance: ±4 times each unit vector of R¹⁶, coloured."""
    unit = 4 * np.eye(16)
    root = as_base(base).sqrt(np.concatenate([unit, -unit]).reshape(32, 2, 8), 1)
    return torch.as_tensor(s * root[:, :1]), torch.as_tensor(root[:, 1:])


@pytest.mark.parametrize("steps", [3, 30])
@pytest.mark.parametrize("t_start", [1, 20, 70])
def test_a_chain_that_ends_early_has_the_distribution_of_the_forward_chain(steps, t_start) -> None:
    """N(√γ m, γs² + 1 − γ) at t_start, up to the error of V_N ~ N(0, 1) for U_N, whose mean differs by √γ_N m = 1e-3."""
    chain, gamma, s = COSINE.subchain(steps, t_start), COSINE.gamma[t_start], 0.3
    var = variance("analytic", chain, error_of(s))
    mean, std = moments_of(lambda v, noise: ancestral(denoiser(2.0, s), v, None, chain, var, noise), chain)
    assert std == pytest.approx(np.sqrt(gamma * s**2 + 1 - gamma), rel=1e-6)
    assert mean == pytest.approx(np.sqrt(gamma) * 2, abs=2e-3 * std)


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_callback_is_called_with_every_state(name) -> None:
    """With the number n of the full chain and V_n, the result of a chain with t_start = n."""
    chain, states = COSINE.subchain(10), {}
    settings = {"var": variance("gaussian", chain), "noise": lambda n: torch.full((2, 1, 4), n / 100, dtype=torch.float64)}
    start = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 1, 4)
    end = SAMPLERS[name](denoiser(2.0, 0.5), start, None, chain, callback=lambda n, v: states.update({n: v}), **settings)
    assert list(states) == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    assert torch.equal(states[0], end)
    for n in (90, 40, 10):
        short = COSINE.subchain((100 - n) // 10, n)
        settings["var"] = variance("gaussian", short)
        torch.testing.assert_close(SAMPLERS[name](denoiser(2.0, 0.5), start, None, short, **settings), states[n])


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_the_condition_is_passed_to_the_denoiser_and_samples_are_not_clipped(name) -> None:
    """A Dirac distribution at 40·a, far beyond ±1: all samples are 40·a."""
    a = torch.tensor([1.0, -3.0], dtype=torch.float64).reshape(2, 1, 1)
    start, chain = torch.ones(2, 1, 4, dtype=torch.float64), COSINE.subchain(10)
    end = SAMPLERS[name](
        lambda n, v, a: (40 * a).expand_as(v), start, a, chain, var=variance("noise-free", chain), noise=lambda n: start
    )
    torch.testing.assert_close(end, (40 * a).expand_as(end))


@each_base
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("s", [0.05, 0.5, 1, 3])
def test_nvlb_is_the_exact_likelihood_with_the_analytic_variance(base, steps, s) -> None:
    """E[−log p(u₀)] + KL(U_N ‖ N(0, 𝒞)) in closed form. Rules that are not exact give more, the noise-free rule infinity."""
    diffusion, chain, law = Diffusion(COSINE, base), COSINE.subchain(steps), as_base(base)
    u0, eps = pairs(base, s)
    m = torch.linspace(0, 1, 8, dtype=torch.float64)
    bound = {
        rule: nvlb(denoiser(m, s), diffusion, chain, variance(rule, chain, error_of(s)), m + u0, None, lambda n: eps)
        for rule in RULES
    }
    matrix = law.sqrt(np.eye(8), 1) @ law.sqrt(np.eye(8), 1)
    gamma, end = chain.gamma[-1], chain.gamma[-1] * (s**2 - 1) + 1
    entropy = 0.5 * (8 * np.log(2 * np.pi * np.e * s**2) + np.linalg.slogdet(matrix)[1])
    prior = 0.5 * (8 * (end - 1 - np.log(end)) + gamma * m.numpy() @ np.linalg.solve(matrix, m.numpy()))
    assert bound["analytic"] == pytest.approx(entropy + prior, abs=1e-6)
    assert bound["noise-free"] == np.inf
    for rule in ("gaussian", "mixed"):
        assert bound[rule] > bound["analytic"] + 1e-3 or (s == 1 and rule == "gaussian")
    if s == 1:
        assert bound["gaussian"] == pytest.approx(bound["analytic"], abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: variance("gausian", COSINE), "did you mean 'gaussian'"),
        (lambda: variance("mixed", COSINE, mix=1.5), "expected a weight from 0"),
        (lambda: variance("mixed", COSINE, mix=True), "expected a weight from 0"),
        (lambda: variance("analytic", COSINE), "needs the denoising error"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_one_error_for_several_spreads_is_their_mean() -> None:
    """One e_n per step cannot resolve several spreads below the last noise level: only their mean square is reproduced.

    Quadratic spacing has a lower last noise level with few steps: it gives 0.1 correctly, where even spacing gives nearly 0.12.
    """
    full, spreads = Schedule.cosine(100), np.array([0.01, 0.1, 1.0])
    signal = full.gamma[:, None] * spreads**2
    error = np.divide(signal, signal + 1 - full.gamma[:, None]).mean(axis=1)
    spread = {}
    for spacing in ("even", "quadratic"):
        chain = full.subchain(10, spacing=spacing)
        var, out = variance("analytic", chain, error), np.ones(3)
        for k in range(chain.n_steps, 0, -1):
            total = chain.gamma[k] * spreads**2 + 1 - chain.gamma[k]
            out = (1 - chain.beta[k] / total) ** 2 / (1 - chain.beta[k]) * out + var[k]
        spread[spacing] = np.sqrt(out)
    assert spread["quadratic"][0] < 0.03 < 0.1 < spread["even"][0]
    assert spread["quadratic"][1] == pytest.approx(0.1, rel=0.1)
    assert spread["even"][1] > 0.115
