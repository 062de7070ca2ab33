"""Schedules α(t; a) that depend on the input: a chain for each input, and its equivalence to the input-dependent scale t(a)."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno.diffusion.chain import Denoiser, Diffusion
from pdno.diffusion.reverse import ancestral, ddim, variance
from pdno.diffusion.schedule import Schedule

MEAN, STD, SIZES = 0.7, 0.3, (0.2, 1.0, 3.0)


def rate(t: float, size: float) -> float:
    """Return α(t; a) = 1 + t/size for an input of this size."""
    return 1 + t / size


def chain_of(size: float) -> Schedule:
    return Schedule.from_alpha(lambda t: rate(t, size), t_final=4.0, n_steps=20)


def denoiser(schedule: Schedule, mean: float, std: float) -> Denoiser:
    """Return E[U_0 | U_n = v] for N(mean, std²)."""

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        g = float(schedule.gamma[n])
        return mean + np.sqrt(g) * std**2 / (g * std**2 + 1 - g) * (v - np.sqrt(g) * mean)

    return denoise


def error_of(schedule: Schedule, std: float) -> np.ndarray:
    """Return e_n of the exact denoiser."""
    gamma = schedule.gamma
    return gamma * std**2 / np.maximum(gamma * std**2 + 1 - gamma, 1e-300)


def scaled(schedule: Schedule, t: float) -> Schedule:
    """Return γ_n(a) = γ_n/(γ_n + t²(1 − γ_n)): noise levels √(1/γ − 1) are t times those of the schedule."""
    return Schedule(schedule.gamma / (schedule.gamma + t**2 * (1 - schedule.gamma)))


@pytest.mark.parametrize("size", SIZES)
def test_the_forward_marginal_of_an_input(size) -> None:
    """γ_n(a) = exp(−t − t²/(2 size)), and one step at a time gives N(√γ_n(a) u₀, 1 − γ_n(a))."""
    schedule, t = chain_of(size), np.linspace(0, 4, 21)
    np.testing.assert_allclose(schedule.gamma, np.exp(-t - t**2 / (2 * size)), rtol=1e-10)
    diffusion, u = Diffusion(schedule), torch.zeros(21, 1, 1, dtype=torch.float64)
    u[0] = 1  # row 0 is the factor of u₀, row n that of ε_n
    for n in range(1, 21):
        eps = torch.zeros_like(u)
        eps[n] = 1
        u = diffusion.step(n, u, eps)
        factors = u.flatten().numpy()
        np.testing.assert_allclose(factors[0], np.sqrt(schedule.gamma[n]))
        np.testing.assert_allclose((factors[1:] ** 2).sum(), 1 - schedule.gamma[n], atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_the_reverse_chain_of_an_input_is_exact_for_a_gaussian(size) -> None:
    """With the exact score, V_0 has the variance of the data; the chain is linear in V_N and the ε_n."""
    schedule = chain_of(size)
    var = variance("analytic", schedule, error_of(schedule, STD))
    v = torch.zeros(21, 1, 1, dtype=torch.float64)
    v[0] = np.sqrt(schedule.gamma[-1] * STD**2 + 1 - schedule.gamma[-1])

    def noise(n: int) -> Tensor:
        eps = torch.zeros_like(v)
        eps[n] = 1
        return eps

    out = ancestral(denoiser(schedule, 0.0, STD), v, None, schedule, var, noise).flatten().numpy()
    np.testing.assert_allclose((out**2).sum(), STD**2, rtol=1e-10)


@pytest.mark.parametrize("t", [0.1, 2.5])
@pytest.mark.parametrize("rule", ["noise-free", "analytic", "ddim"])
def test_the_scale_of_an_input_is_a_rate_of_its_own(t, rule) -> None:
    """Draws of u on the chain γ_n(a) are t times those of u/t on the chain γ_n, with the same noise."""
    rng, base = np.random.default_rng(0), Schedule.cosine(12)
    own = scaled(base, t)
    start, steps = torch.as_tensor(rng.standard_normal((5, 1, 4))), torch.as_tensor(rng.standard_normal((13, 5, 1, 4)))
    drawn = []
    for schedule, mean, std, unit in ((own, MEAN, STD, 1.0), (base, MEAN / t, STD / t, t)):
        level = np.sqrt(1 / schedule.gamma[-1] - 1)
        v = start * float(np.sqrt(schedule.gamma[-1]) * level)  # V_N/√γ_N is t times that of the other chain
        denoise = denoiser(schedule, mean, std)
        if rule == "ddim":
            out = ddim(denoise, v, None, schedule)
        else:
            var = variance(rule, schedule, error_of(schedule, std))
            out = ancestral(denoise, v, None, schedule, var, lambda n: steps[n])
        drawn.append(unit * out.numpy())
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-6, atol=1e-9)
    assert drawn[0].std() > 0.01
