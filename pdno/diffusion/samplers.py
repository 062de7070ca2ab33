r"""Samplers: functions that take V_N down a chain of steps to V_0, for any denoiser û₀ = E[U_0 | U_n = V_n].

    ancestral   V_{n−1} = m_θ(n, V_n, a) + √σ_n ε_n                          stochastic: Algorithm `alg:PDNO`
    ddim        V_{n−1} = √γ_{n−1} û₀ + √(1−γ_{n−1}) ε̂                      deterministic, first order
    heun        dx/ds = (x − û₀)/s with x = V/√γ and s = √(1/γ − 1)          deterministic, second order
    dpm         the same flow along λ = log √(γ/(1−γ)), linear in û₀         deterministic, second order, multistep
    gaussian-exact    the same flow about a Gaussian of variance s_n²        deterministic, second order, multistep

The last one is an exponential integrator in x = V/√γ and σ = √(1/γ − 1). For N(m, s²𝒞) the flow is x = m + c √(s² + σ²), and

    x' = h + ρ (x − h),        h = (û₀ − e_n x)/(1 − e_n),        ρ² = (s_n² + σ'²)/(s_n² + σ²) = 1 − (1 − e_n)(1 − σ'²/σ²)

is exact with any number of steps: h = m for the exact denoiser, and e_n = s_n²/(s_n² + σ²) is its denoising error. What is not
Gaussian changes h from step to step; h is extrapolated linearly in log √(s_n² + σ²), both values with the same s_n. e_n is that
of the reverse variance σ_n: measured with the rule "analytic", 0 with "noise-free" (and the sampler is then `dpm`), γ_n with
"gaussian". Where fields are not alike, s_n² is that of each field (`pdno.diffusion.error`).

The reverse mean is written so that no step divides by a small number:

    m_θ = √γ_{n−1} β_n/(1−γ_n) û₀ + √(1−β_n) (1−γ_{n−1})/(1−γ_n) V_n                              (`eqn:reverse-transition`)

A sampler of your own is a function with the same arguments; decorate it with `evaluations` unless it evaluates the denoiser
once per step.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from .._typing import Floats
from .chain import Denoiser
from .error import OwnError
from .schedule import Schedule

__all__ = [
    "SAMPLERS",
    "Callback",
    "Noise",
    "Sampler",
    "ancestral",
    "ddim",
    "dpm",
    "evaluations",
    "evaluations_of",
    "gaussian_exact",
    "heun",
]

LARGEST_ERROR = 1 - 1e-6  # of e_n in `gaussian_exact`: the limit e_n → 1, σ_n far below s_n, is regular but divides 0 by 0

Noise = Callable[[int], Tensor]  # n ↦ a draw of the base distribution for the step from n
Callback = Callable[[int, Tensor], None]  # called with (n, V_n)


class Sampler(Protocol):
    """A function that takes V_N down a chain of steps.

    Args:
        denoise: (n, v, a) ↦ E[U_0 | U_n = v].
        v: V_N, a draw of the base distribution, (batch, channel, *grid).
        a: condition, passed to `denoise`.
        chain: the steps to take, from chain.n[-1] down to chain.n[0].
        var: σ_n of each step of the chain, (steps + 1,), or (steps + 1, channel, *grid) by place; entry 0 is not used.
        noise: n ↦ a draw of the base distribution for the step from n, in the shape of v.
        last_noise: whether the last step adds noise.
        callback: called with (n, V_n) after each step.

    Returns:
        V at step chain.n[0], in the shape of v.
    """

    def __call__(
        self,
        denoise: Denoiser,
        v: Tensor,
        a: Any,
        chain: Schedule,
        *,
        var: Floats,
        noise: Noise,
        last_noise: bool = ...,
        callback: Callback | None = ...,
    ) -> Tensor: ...


AnySampler = TypeVar("AnySampler", bound=Callable[..., Tensor])


def evaluations(count: Callable[[int], int]) -> Callable[[AnySampler], AnySampler]:
    """Declare how often a sampler evaluates the denoiser.

    Args:
        count: number of steps ↦ number of evaluations.

    >>> @evaluations(lambda steps: 2 * steps)
    ... def midpoint(denoise, v, a, chain, **settings):
    ...     return v
    >>> evaluations_of(midpoint, 10), evaluations_of(ddim, 10)
    (20, 10)
    """

    def declare(sampler: AnySampler) -> AnySampler:
        sampler.evaluations = count  # type: ignore[attr-defined]
        return sampler

    return declare


def evaluations_of(sampler: Sampler, steps: int) -> int:
    """Return how often a sampler evaluates the denoiser in this number of steps; once per step unless it declares another."""
    count: Callable[[int], int] | None = getattr(sampler, "evaluations", None)
    return steps if count is None else count(steps)


def ancestral(
    denoise: Denoiser,
    v: Tensor,
    a: Any,
    chain: Schedule,
    var: Floats,
    noise: Noise,
    last_noise: bool = True,
    callback: Callback | None = None,
) -> Tensor:
    """Run the inference stage of Algorithm `alg:PDNO` on a chain or a sub-chain; arguments as in `Sampler`."""
    beta, gamma, before = chain.beta, chain.gamma, gamma_before(chain)
    for k in range(chain.n_steps, 0, -1):
        n = int(chain.n[k])
        u0 = denoise(n, v, a)
        of_u0 = np.sqrt(before[k]) * beta[k] / (1 - gamma[k])
        of_v = np.sqrt(1 - beta[k]) * (1 - before[k]) / (1 - gamma[k])
        v = float(of_u0) * u0 + float(of_v) * v
        if (k > 1 or last_noise) and np.any(var[k] > 0):
            v = v + _times(torch.as_tensor(np.sqrt(var[k])), noise(n))
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def gamma_before(chain: Schedule) -> Floats:
    """Return γ_{n−1} of each step of a chain; entry 0 is 1."""
    return np.concatenate([[1.0], chain.gamma[:-1]])


def ddim(denoise: Denoiser, v: Tensor, a: Any, chain: Schedule, callback: Callback | None = None, **_: Any) -> Tensor:
    """Run the deterministic chain of Song et al. (2021), v ← √γ_{n−1} û₀ + √(1−γ_{n−1}) ε̂; arguments as in `Sampler`.

    With few steps the spread of the samples is too small.
    """
    for k in range(chain.n_steps, 0, -1):
        slope = (1 - chain.gamma[k - 1]) / (1 - chain.gamma[k])
        u0 = denoise(int(chain.n[k]), v, a)
        v = _combine(u0, v, chain.gamma[k], chain.gamma[k - 1], float(np.sqrt(slope)))
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def _combine(u0: Tensor, v: Tensor, gamma: float, before: float, ratio: float) -> Tensor:
    """Return √γ_{n−1} u₀ + ratio·(v − √γ_n u₀)."""
    return float(np.sqrt(before) - ratio * np.sqrt(gamma)) * u0 + ratio * v


@evaluations(lambda steps: 2 * steps - 1)
def heun(denoise: Denoiser, v: Tensor, a: Any, chain: Schedule, callback: Callback | None = None, **_: Any) -> Tensor:
    """Integrate dx/ds = (x − û₀)/s by Heun's second-order method, as in EDM (Karras et al. 2022); arguments as in `Sampler`.

    x = v/√γ and s = √(1/γ − 1). Each step takes two evaluations, the last step (to s = 0) one. Few evenly spaced steps
    overestimate a large spread; like every deterministic method, it underestimates a spread below the last noise level.
    """
    root = np.sqrt(chain.gamma)
    s = np.sqrt(1 / chain.gamma - 1)
    for k in range(chain.n_steps, 0, -1):
        x = v / float(root[k])
        slope = (x - denoise(int(chain.n[k]), v, a)) / float(s[k])
        ahead = x + float(s[k - 1] - s[k]) * slope
        if s[k - 1] > 0:
            second = (ahead - denoise(int(chain.n[k - 1]), ahead * float(root[k - 1]), a)) / float(s[k - 1])
            ahead = x + float(s[k - 1] - s[k]) * (slope + second) / 2
        v = ahead * float(root[k - 1])
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def dpm(denoise: Denoiser, v: Tensor, a: Any, chain: Schedule, callback: Callback | None = None, **_: Any) -> Tensor:
    """Run the second-order multistep method DPM-Solver++ (2M) of Lu et al. (2022); arguments as in `Sampler`.

    It extrapolates û₀ linearly in the half-log-SNR λ = log √(γ/(1−γ)), is exact in v, and takes one evaluation per step. With
    few steps it is far more accurate than Heun's method. The last step, to λ = ∞, is of first order.
    """
    with np.errstate(divide="ignore"):
        lam = 0.5 * np.log(chain.gamma / (1 - chain.gamma))
    previous = None
    for k in range(chain.n_steps, 0, -1):
        u0 = estimate = denoise(int(chain.n[k]), v, a)
        if previous is not None and np.isfinite(lam[k - 1]):
            estimate = u0 + float(0.5 * (lam[k - 1] - lam[k]) / (lam[k] - lam[k + 1])) * (u0 - previous)
        ratio = np.sqrt((1 - chain.gamma[k - 1]) / (1 - chain.gamma[k]))
        v, previous = _combine(estimate, v, chain.gamma[k], chain.gamma[k - 1], float(ratio)), u0
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def gaussian_exact(
    denoise: Denoiser,
    v: Tensor,
    a: Any,
    chain: Schedule,
    var: Floats,
    callback: Callback | None = None,
    own: OwnError | None = None,
    **_: Any,
) -> Tensor:
    """Integrate the flow about a Gaussian: exact for N(m, s²𝒞) at any number of steps; arguments as in `Sampler`.

    Takes one evaluation per step and no noise but V_N, which is scaled to the standard deviation √(γ_N s² + 1 − γ_N) of U_N: a
    deterministic sampler does not forget its start, and γ_N need not be small. For this reason the mean of V_N should be that
    of U_N, √γ_N m. The last step is of first order. With `own`, s_n² is multiplied by a factor for each field.
    """
    error, root, s2 = torch.as_tensor(implied_error(chain, var)), np.sqrt(chain.gamma), 1 / chain.gamma - 1
    v, before = _times(((1 - chain.gamma[-1]) / (1 - error[-1])).sqrt(), v), None
    for k in range(chain.n_steps, 0, -1):
        n, e = int(chain.n[k]), error[k]
        u0, x = denoise(n, v, a), v / float(root[k])
        if own is not None:
            odds = e / (1 - e) * own.factor(n, (x - u0) / float(np.sqrt(s2[k])))
            e = (odds / (1 + odds)).clamp(max=LARGEST_ERROR)
        shrunk = 1 - (1 - e) * float(1 - s2[k - 1] / s2[k])  # ρ²
        weight = (1 - shrunk.sqrt()) / (1 - e)
        ahead = _times(shrunk.sqrt() - weight * e, x) + _times(weight, u0)
        if before is not None and s2[k - 1] > 0:
            u0_before, x_before, wider = *before, float(s2[k + 1] / s2[k])
            factor = -0.5 * weight * shrunk.log() / (e + (1 - e) * wider).log()
            ahead = ahead + _times(factor, u0) - _times(factor * e, x)  # the change of (1 − e) h
            ahead = ahead - _times(factor * (1 - e + e / wider), u0_before) + _times(factor * e / wider, x_before)
        v, before = ahead * float(root[k - 1]), (u0, x)
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def implied_error(chain: Schedule, var: Floats) -> Floats:
    """Return e_n of the Gaussian for which σ_n is exact, in the shape of `var`; from 0 to almost 1, entry 0 is 0.

    It inverts the rule "analytic" of `pdno.diffusion.reverse`.
    """
    s2, before = 1 / chain.gamma - 1, gamma_before(chain)
    kept = np.divide(np.concatenate([[0.0], s2[:-1]]), s2, out=np.zeros_like(s2), where=s2 > 0)  # (σ_{n−1}/σ_n)²
    shape = (-1,) + (1,) * (np.ndim(var) - 1)
    noise_free, gain = (x.reshape(shape) for x in (kept * s2 * (1 - kept), (1 - kept) ** 2 * s2))
    error = np.divide(var / before.reshape(shape) - noise_free, gain, out=np.zeros(np.shape(var)), where=gain > 0)
    return np.asarray(np.clip(error, 0.0, LARGEST_ERROR))


def _times(factor: Tensor, field: Tensor) -> Tensor:
    """Return the product of a field with a number, one per sample (batch, 1, …), or one per place (channel, *grid)."""
    return float(factor) * field if factor.ndim == 0 else factor.to(field) * field


SAMPLERS: dict[str, Sampler] = {
    "ancestral": ancestral,
    "ddim": ddim,
    "dpm": dpm,
    "gaussian-exact": gaussian_exact,
    "heun": heun,
}
