r"""Samplers: functions that take V_N down a chain of steps to V_0, for any denoiser û₀ = E[U_0 | U_n = V_n].

    ancestral   V_{n−1} = m_θ(n, V_n, a) + √σ_n ε_n                          stochastic: Algorithm `alg:PDNO`
    ddim        V_{n−1} = √γ_{n−1} û₀ + √(1−γ_{n−1}) ε̂                      deterministic, first order
    heun        dx/ds = (x − û₀)/s with x = V/√γ and s = √(1/γ − 1)          deterministic, second order
    dpm         the same flow along λ = log √(γ/(1−γ)), linear in û₀         deterministic, second order, multistep

The reverse mean is written so that no step divides by a small number:

    m_θ = √γ_{n−1} β_n/(1−γ_n) û₀ + √(1−β_n) (1−γ_{n−1})/(1−γ_n) V_n                              (`eqn:reverse-transition`)

A sampler of your own is a function with the same arguments; decorate it with `evaluations` unless it evaluates the denoiser
once per step.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import Tensor

from .._typing import Floats
from .chain import Denoiser
from .schedule import Schedule

__all__ = ["SAMPLERS", "Callback", "Noise", "Sampler", "ancestral", "ddim", "dpm", "evaluations", "evaluations_of", "heun"]

Noise = Callable[[int], Tensor]  # n ↦ a draw of the base distribution for the step from n
Callback = Callable[[int, Tensor], None]  # called with (n, V_n)


class Sampler(Protocol):
    """A function that takes V_N down a chain of steps.

    Args:
        denoise: (n, v, a) ↦ E[U_0 | U_n = v].
        v: V_N, a draw of the base distribution, (batch, channel, *grid).
        a: condition, passed to `denoise`.
        chain: the steps to take, from chain.n[-1] down to chain.n[0].
        var: σ_n of each step of the chain, (steps + 1,); entry 0 is not used.
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
        if (k > 1 or last_noise) and var[k] > 0:
            v = v + float(np.sqrt(var[k])) * noise(n)
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


SAMPLERS: dict[str, Sampler] = {"ancestral": ancestral, "ddim": ddim, "dpm": dpm, "heun": heun}
