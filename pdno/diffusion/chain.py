r"""The forward chain U_n, what a network is trained to predict, and the objective L_DDSM.

    U_n = √γ_n u₀ + √(1−γ_n) ε,        ε ~ N(0, 𝒞)                                                    (`eqn:un_given_u0`)

A network F_θ(n, v, a) predicts one linear combination F = p_n u₀ + q_n ε:

    target      p_n          q_n                            F
    "eps"       0            1                              the noise (the paper's choice)
    "u0"        1            0                              the clean field
    "v"         −√(1−γ_n)    √γ_n                           the velocity
    "mean"      √γ_{n−1}     (1−γ_n−β_n)/√((1−γ_n)(1−β_n))  the reverse mean m_θ of `eqn:reverse-transition`

Together with v = √γ_n u₀ + √(1−γ_n) ε this gives u₀, ε and the score from any of them, so nothing else in the package has
to know the target. With a base law N(0, 𝒞) the score is the operator Ψ = 𝒞∇log ρ of section 3.2: one code path for both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import UserError, nearest
from ..field import Field
from .base import Base, White, as_base
from .schedule import Schedule

__all__ = ["Denoiser", "Diffusion", "Predictor", "Target", "Weight"]

Array = NDArray[np.float64]
Target = Literal["eps", "u0", "v", "mean"]
Weight = Literal["target", "ddsm"]
Predictor = Callable[[Any, Tensor, Any], Tensor]
Denoiser = Callable[[int, Tensor, Any], Tensor]


@dataclass(frozen=True)
class Diffusion:
    """Schedule, base law and target: everything about the chain but the network.

    Args:
        schedule: β_n, γ_n.
        base: law N(0, 𝒞) of the noise: `White()`, a `pdno.Field`, or a sum.
        target: what the network predicts.
        weight: "target" averages ‖F − F_θ‖² over n as it is; "ddsm" turns it into the error of ε, the paper's L_DDSM.
            For the target "eps" they are the same.
    """

    schedule: Schedule = field(default_factory=Schedule.cosine)
    base: Base | Field = field(default_factory=White)
    target: Target = "u0"
    weight: Weight = "target"

    def __post_init__(self) -> None:
        as_base(self.base)
        for what, known in (("target", get_args(Target)), ("weight", get_args(Weight))):
            if getattr(self, what) not in known:
                raise UserError(f"{what} {getattr(self, what)!r} is unknown; {nearest(str(getattr(self, what)), known)}")

    @property
    def law(self) -> Base:
        """The base law N(0, 𝒞)."""
        return as_base(self.base)

    def step(self, n: Any, u: Tensor, eps: Tensor) -> Tensor:
        """U_n from U_{n−1} (`eqn:forward-transition`)."""
        beta = at(self.schedule.beta, n, u)
        return (1 - beta).sqrt() * u + beta.sqrt() * eps

    def forward(self, n: Any, u0: Tensor, eps: Tensor) -> Tensor:
        """U_n from U_0 (`eqn:un_given_u0`)."""
        gamma = at(self.schedule.gamma, n, u0)
        return gamma.sqrt() * u0 + (1 - gamma).sqrt() * eps

    def target_of(self, n: Any, u0: Tensor, eps: Tensor) -> Tensor:
        """What the network should answer: F = p_n u₀ + q_n ε."""
        p, q = self._coefficients()
        return at(p, n, u0) * u0 + at(q, n, u0) * eps

    def u0_of(self, n: Any, v: Tensor, answer: Tensor) -> Tensor:
        """u₀ from what the network answers at v."""
        p, q = self._coefficients()
        signal, noise = np.sqrt(self.schedule.gamma), np.sqrt(1 - self.schedule.gamma)
        with np.errstate(invalid="ignore", divide="ignore"):  # n = 0 is no step
            of_answer, of_v = noise / (p * noise - q * signal), -q / (p * noise - q * signal)
        return at(of_answer, n, v) * answer + at(of_v, n, v) * v

    def eps_of(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """ε from u₀ and v: (v − √γ_n u₀)/√(1−γ_n)."""
        gamma = at(self.schedule.gamma, n, v)
        return (v - gamma.sqrt() * u0) / (1 - gamma).sqrt()

    def score(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """Ψ = 𝒞∇log ρ = −ε/√(1−γ_n), with u₀ the mean of U_0 given U_n = v (`eqn:OU-score-function`)."""
        return -self.eps_of(n, v, u0) / (1 - at(self.schedule.gamma, n, v)).sqrt()

    def reverse_mean(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """m_θ = (v − β_n/√(1−γ_n) ε)/√(1−β_n) (`eqn:reverse-transition`)."""
        beta, gamma = at(self.schedule.beta, n, v), at(self.schedule.gamma, n, v)
        return (v - beta / (1 - gamma).sqrt() * self.eps_of(n, v, u0)) / (1 - beta).sqrt()

    def denoiser(self, network: Predictor) -> Denoiser:
        """(n, v, a) ↦ E[U_0 | U_n = v], as the network sees it. Samplers take this, whatever the target."""

        def denoise(n: int, v: Tensor, a: Any) -> Tensor:
            numbers = torch.full((len(v),), n, device=v.device)
            return self.u0_of(n, v, network(numbers, v, a))

        return denoise

    def loss(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any, mask: Tensor | None = None) -> Tensor:
        """L_DDSM of these draws (`eqn:DSM`), a mean over samples and nodes; nodes where the mask is 0 do not count."""
        squares = self._squares(network, n, u0, eps, a)
        if mask is None:
            return squares.mean()
        return (squares * mask).sum() / mask.expand_as(squares).sum().clamp(min=1)

    def losses(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any, mask: Tensor | None = None) -> Tensor:
        """The same of each sample: (sample,)."""
        squares = self._squares(network, n, u0, eps, a)
        known = torch.ones_like(squares) if mask is None else mask.expand_as(squares)
        return (squares * known).flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1)

    def _squares(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any) -> Tensor:
        squares = (network(n, self.forward(n, u0, eps), a) - self.target_of(n, u0, eps)) ** 2
        return squares * at(self._eps_weight(), n, u0) if self.weight == "ddsm" else squares

    def _coefficients(self) -> tuple[Array, Array]:
        """p_n and q_n of the module's table."""
        beta, gamma = self.schedule.beta, self.schedule.gamma
        one, zero = np.ones_like(gamma), np.zeros_like(gamma)
        if self.target == "eps":
            return zero, one
        if self.target == "u0":
            return one, zero
        if self.target == "v":
            return -np.sqrt(1 - gamma), np.sqrt(gamma)
        before = np.concatenate([[1.0], gamma[:-1]])
        q = np.divide(1 - gamma - beta, np.sqrt((1 - gamma) * (1 - beta)), out=np.zeros_like(gamma), where=gamma < 1)
        q[1] = 0.0  # 1 − γ_1 = β_1, but for rounding
        return np.sqrt(before), q

    def _eps_weight(self) -> Array:
        """‖ε − ε_θ‖²/‖F − F_θ‖²: how an error of the answer shows in ε."""
        p, q = self._coefficients()
        gamma = self.schedule.gamma
        with np.errstate(divide="ignore"):
            return np.asarray(gamma / (p * np.sqrt(1 - gamma) - q * np.sqrt(gamma)) ** 2)


def at(values: Array, n: Any, like: Tensor) -> Tensor:
    """values[n] with the type and place of a tensor (batch, …), for it to be multiplied with; n is a number or (batch,)."""
    table = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    chosen = table[n]
    return chosen if chosen.ndim == 0 else chosen.reshape(-1, *(1,) * (like.ndim - 1))
