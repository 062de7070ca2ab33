r"""The reverse chain V_N → V_0: its variances σ_n, and samplers as functions.

    V_{n−1} = m_θ(n, V_n, a) + √σ_n ε_n                                                       (`eqn:reverse-transition`)
    m_θ     = √γ_{n−1} β_n/(1−γ_n) û₀ + √(1−β_n) (1−γ_{n−1})/(1−γ_n) V_n

with û₀ = E[U_0 | U_n = V_n] from a denoiser: the paper's m_θ, written so that no step divides by a small number. The rules for
σ_n, with β̃_n = β_n (1−γ_{n−1})/(1−γ_n):

    "noise-free"   β̃_n                              exact for a Dirac law (`thm:optimal-sigma`)
    "gaussian"     β_n                               exact for N(m, 𝒞)     (`thm:optimal-sigma`)
    "mixed"        (1−mix) β̃_n + mix β_n            the paper's linear combination
    "analytic"     β̃_n + (√((1−γ_n)/(1−β_n)) − √(1−γ_{n−1}−β̃_n))² e_n

where e_n = E‖𝒞^(−1/2)(ε − ε_θ)‖²/d is the denoising error on pairs that were not learned from. It contains the other rules'
exact cases, holds for N(m, s²𝒞) with every s and on every sub-chain (Bao et al., Analytic-DPM, 2022, there with 1 − E‖ε_θ‖²/d,
which equals e_n for the exact ε but loses all digits for small s), and counts the network's own error as spread.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, nearest
from .base import Base, White
from .chain import Denoiser, Diffusion
from .schedule import Schedule

__all__ = ["SAMPLERS", "Rule", "Sampler", "ancestral", "ddim", "denoising_error", "dpm", "heun", "nvlb", "variance"]

Array = NDArray[np.float64]
Rule = Literal["noise-free", "gaussian", "mixed", "analytic"]
Noise = Callable[[int], Tensor]
Callback = Callable[[int, Tensor], None]
Sampler = Callable[..., Tensor]


def variance(rule: Rule, chain: Schedule, error: Array | None = None, mix: float = 0.5) -> Array:
    """σ_n of each step of a chain; entry 0 is 0.

    Args:
        rule: see the table above.
        chain: the chain, or a sub-chain of it.
        error: e_n by the number n of the full chain, for "analytic"; see `denoising_error`.
        mix: weight of "gaussian" in "mixed", from 0 to 1.
    """
    if rule not in get_args(Rule):
        raise UserError(f"variance {rule!r} is unknown; {nearest(str(rule), get_args(Rule))}")
    beta, gamma, before = chain.beta, chain.gamma, _before(chain)
    noise_free = np.divide(beta * (1 - before), 1 - gamma, out=np.zeros_like(gamma), where=gamma < 1)
    if rule == "noise-free":
        return noise_free
    if rule == "gaussian":
        return beta
    if rule == "mixed":
        if not 0 <= mix <= 1:
            raise UserError(f"mix = {mix}: expected a weight from 0 (noise-free) to 1 (gaussian)")
        return (1 - mix) * noise_free + mix * beta
    if error is None:
        raise UserError('the variance "analytic" needs the denoising error e_n; fit a model with variance="analytic"')
    gain = np.sqrt((1 - gamma) * before / gamma) - np.sqrt(np.maximum(1 - before - noise_free, 0))  # 1 − β_n may round to 0
    gain[0] = 0.0
    return np.asarray(noise_free + gain**2 * np.asarray(error)[chain.n])


def _before(chain: Schedule) -> Array:
    """γ_{n−1}."""
    return np.concatenate([[1.0], chain.gamma[:-1]])


@torch.no_grad()
def denoising_error(
    denoise: Denoiser,
    diffusion: Diffusion,
    u0: Tensor,
    a: Any,
    eps: Callable[[int], Tensor],
    mask: Tensor | None = None,
) -> Array:
    """e_n = E‖𝒞^(−1/2)(ε − ε_θ)‖²/d for n = 1 … N (entry 0 is 0), on pairs that were not learned from; eps(n) draws ε.

    With a mask, e_n is the ratio of the energies of ε − ε_θ and of ε at the nodes where it is not 0.
    """
    errors = np.zeros(diffusion.schedule.n_steps + 1)
    for n in range(1, len(errors)):
        noise = eps(n)
        v = diffusion.forward(n, u0, noise)
        missed = noise - diffusion.eps_of(n, v, denoise(n, v, a))
        if mask is None:
            white = diffusion.law.inverse_sqrt(missed.double().cpu().numpy(), u0.ndim - 2)
            errors[n] = np.mean(white**2)
        else:  # a field with holes cannot be whitened: energies at the known nodes
            energy = mask.expand_as(noise) if isinstance(diffusion.law, White) else mask * noise**2
            errors[n] = float((mask * missed**2).sum() / energy.sum())
    return errors


def ancestral(
    denoise: Denoiser,
    v: Tensor,
    a: Any,
    chain: Schedule,
    var: Array,
    noise: Noise,
    last_noise: bool = True,
    callback: Callback | None = None,
) -> Tensor:
    """The inference stage of Algorithm `alg:PDNO`, on any sub-chain.

    Args:
        denoise: (n, v, a) ↦ E[U_0 | U_n = v].
        v: V_N, a draw of the base law.
        a: the condition, handed on to `denoise`.
        chain: the steps to take.
        var: σ_n of this chain.
        noise: n ↦ a draw of the base law for the step that leaves n.
        last_noise: whether the last step gets noise too.
        callback: called with (n, V_n) after each step.
    """
    beta, gamma, before = chain.beta, chain.gamma, _before(chain)
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


def ddim(denoise: Denoiser, v: Tensor, a: Any, chain: Schedule, callback: Callback | None = None, **_: Any) -> Tensor:
    """The deterministic chain v ← √γ_{n−1} û₀ + √(1−γ_{n−1}) ε̂ (Song et al. 2021). Few steps shrink the spread."""
    for k in range(chain.n_steps, 0, -1):
        slope = (1 - chain.gamma[k - 1]) / (1 - chain.gamma[k])
        u0 = denoise(int(chain.n[k]), v, a)
        v = _combine(u0, v, chain.gamma[k], chain.gamma[k - 1], float(np.sqrt(slope)))
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


def _combine(u0: Tensor, v: Tensor, gamma: float, before: float, ratio: float) -> Tensor:
    """√γ' u₀ + ratio·(v − √γ u₀)."""
    return float(np.sqrt(before) - ratio * np.sqrt(gamma)) * u0 + ratio * v


def heun(denoise: Denoiser, v: Tensor, a: Any, chain: Schedule, callback: Callback | None = None, **_: Any) -> Tensor:
    """Heun's second-order method for dx/ds = (x − û₀)/s with x = v/√γ and s = √(1/γ − 1), as in EDM (Karras et al. 2022).

    Two evaluations a step, one for the last step to s = 0. Few even steps inflate a large spread; like every deterministic
    method, it shrinks one that is below the last noise level.
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
    """The second-order multistep method DPM-Solver++ (2M) of Lu et al. (2022): one evaluation a step.

    Linear in û₀ along the half-log-SNR λ = log √(γ/(1−γ)), exact in v. Far better than Heun with few steps; the last step, to
    λ = ∞, is of first order.
    """
    with np.errstate(divide="ignore"):
        lam = 0.5 * np.log(chain.gamma / (1 - chain.gamma))
    last = None
    for k in range(chain.n_steps, 0, -1):
        u0 = estimate = denoise(int(chain.n[k]), v, a)
        if last is not None and np.isfinite(lam[k - 1]):
            estimate = u0 + float(0.5 * (lam[k - 1] - lam[k]) / (lam[k] - lam[k + 1])) * (u0 - last)
        ratio = np.sqrt((1 - chain.gamma[k - 1]) / (1 - chain.gamma[k]))
        v, last = _combine(estimate, v, chain.gamma[k], chain.gamma[k - 1], float(ratio)), u0
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


SAMPLERS: dict[str, Sampler] = {"ancestral": ancestral, "ddim": ddim, "dpm": dpm, "heun": heun}


@torch.no_grad()
def nvlb(
    denoise: Denoiser, diffusion: Diffusion, chain: Schedule, var: Array, u0: Tensor, a: Any, eps: Callable[[int], Tensor]
) -> float:
    """The negative variational lower bound (appendix `app:NVLB`) in nats a sample: an upper bound of −log q_θ(u₀ | a).

    L_N + Σ_n L_{n−1} + L_0 with the chain's own σ_n; infinite where a σ_n is zero, as in the noise-free rule at n = 1.
    """
    d = u0[0].numel()
    gamma, before, base = chain.gamma, _before(chain), diffusion.law
    if not (var[1:] > 0).all():
        return float("inf")
    squares = np.mean(_squares(base, u0))
    total = 0.5 * (gamma[-1] * squares + d * (-gamma[-1] - np.log1p(-gamma[-1])))  # L_N
    target = variance("noise-free", chain)
    for k in range(1, chain.n_steps + 1):
        n = int(chain.n[k])
        v = float(np.sqrt(gamma[k])) * u0 + float(np.sqrt(1 - gamma[k])) * eps(n)
        missed = float(np.sqrt(before[k]) * chain.beta[k] / (1 - gamma[k])) * (u0 - denoise(n, v, a))
        total += 0.5 * np.mean(_squares(base, missed)) / var[k]
        if k > 1:  # L_{n−1}: a Kullback–Leibler divergence of two Gaussians
            total += 0.5 * d * (target[k] / var[k] - 1 - np.log(target[k] / var[k]))
        else:  # L_0: −log of a Gaussian density
            total += 0.5 * (d * np.log(2 * np.pi * var[1]) + base.log_det(tuple(u0.shape[1:])))
    return float(total)


def _squares(base: Base, u: Tensor) -> Array:
    """‖𝒞^(−1/2) u‖² of each sample."""
    white = base.inverse_sqrt(u.double().cpu().numpy(), u.ndim - 2)
    return np.asarray((white**2).reshape(len(u), -1).sum(axis=1))
