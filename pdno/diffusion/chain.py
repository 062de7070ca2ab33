r"""The forward chain U_n, the target that a network is trained to predict, and the objective L_DDSM.

    U_n = √γ_n u₀ + √(1−γ_n) ε,        ε ~ N(0, 𝒞)                                                    (`eqn:un_given_u0`)

A network F_θ(n, v, a) predicts one linear combination F = p_n u₀ + q_n ε:

    target      p_n          q_n                            F
    "eps"       0            1                              the noise (the paper's choice)
    "u0"        1            0                              the clean field
    "v"         −√(1−γ_n)    √γ_n                           the velocity
    "flow"      −1           1                              the velocity of a straight path from u₀ to ε (flow matching)
    "mean"      √γ_{n−1}     (1−γ_n−β_n)/√((1−γ_n)(1−β_n))  the reverse mean m_θ of `eqn:reverse-transition`

Together with v = √γ_n u₀ + √(1−γ_n) ε, each of them determines u₀, ε and the score, so the rest of the package does not depend
on the target. Flow matching, x_t = (1−t) u₀ + t ε, is the target "flow" with `Schedule.flow`, up to the scale of x_t. With a
base distribution N(0, 𝒞) the score is the operator Ψ = 𝒞∇log ρ of section 3.2; the finite-dimensional and the function-space
model share all code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from .._typing import Floats
from ..errors import UserError, nearest
from ..field import Field
from .base import Base, White, as_base
from .base import from_json as base_from_json
from .schedule import Schedule

__all__ = ["Denoiser", "Diffusion", "Predictor", "Target", "Weight"]

Target = Literal["eps", "u0", "v", "flow", "mean"]
Weight = Literal["target", "ddsm", "score"]
Predictor = Callable[[Any, Tensor, Any], Tensor]  # a network (n, v, a) ↦ F_θ, where n is a number or (batch,)
Denoiser = Callable[[int, Tensor, Any], Tensor]  # (n, v, a) ↦ E[U_0 | U_n = v]


@dataclass(frozen=True)
class Diffusion:
    """Schedule, base distribution, target and weight: all of the forward chain but the network.

    Args:
        schedule: β_n, γ_n.
        base: distribution N(0, 𝒞) of the noise: `White()`, a `pdno.Field`, or a sum.
        target: quantity that the network predicts, see the table of the module.
        weight: "target" averages ‖F − F_θ‖² over n without weights; "ddsm" weights it so that it is the error of ε, the
            paper's L_DDSM, for the target "eps" without weights; "score" so that it is the error of the score Ψ, that is L_DDSM
            with the factor 1/(1−γ_n), 1/(1−e^(−t)) in the function-space objective.

    >>> Diffusion.from_json(Diffusion(target="v").to_json()).target
    'v'
    """

    schedule: Schedule = field(default_factory=Schedule.cosine)
    base: Base | Field = field(default_factory=White)
    target: Target = "u0"
    weight: Weight = "target"

    def __post_init__(self) -> None:
        as_base(self.base)
        for name, value, choices in (("target", self.target, get_args(Target)), ("weight", self.weight, get_args(Weight))):
            if value not in choices:
                raise UserError(f"{name} {value!r} is unknown; {nearest(str(value), choices)}")

    @property
    def law(self) -> Base:
        """The base distribution N(0, 𝒞)."""
        return as_base(self.base)

    def to_json(self) -> dict[str, Any]:
        """Return plain types: γ_0 … γ_N, the terms of the base distribution, target and weight."""
        gamma = self.schedule.gamma.tolist()
        return {"gamma": gamma, "base": self.law.to_json(), "target": self.target, "weight": self.weight}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any]) -> "Diffusion":
        """Return the diffusion that `to_json` describes.

        Raises:
            UserError: if a setting is missing, unknown or wrong.
        """
        names = {"gamma", "base", "target", "weight"}
        if set(settings) != names:
            raise UserError(f"a diffusion is described by {', '.join(sorted(names))}; got {', '.join(map(str, settings))}")
        base = base_from_json(settings["base"])
        return cls(Schedule(settings["gamma"]), base, settings["target"], settings["weight"])

    def step(self, n: Any, u: Tensor, eps: Tensor) -> Tensor:
        """Return U_n given U_{n−1} = u and a draw ε of the base distribution (`eqn:forward-transition`), as in `forward`."""
        beta = at(self.schedule.beta, n, u)
        return (1 - beta).sqrt() * u + beta.sqrt() * eps

    def forward(self, n: Any, u0: Tensor, eps: Tensor) -> Tensor:
        """Return U_n given U_0 = u0 (`eqn:un_given_u0`).

        Args:
            n: step 1 … N, a number or (batch,).
            u0, eps: clean field and a draw of the base distribution, (batch, channel, *grid).

        Returns:
            (batch, channel, *grid).
        """
        gamma = at(self.schedule.gamma, n, u0)
        return gamma.sqrt() * u0 + (1 - gamma).sqrt() * eps

    def target_of(self, n: Any, u0: Tensor, eps: Tensor) -> Tensor:
        """Return the target of the network, F = p_n u₀ + q_n ε; arguments as in `forward`."""
        p, q = self._coefficients()
        return at(p, n, u0) * u0 + at(q, n, u0) * eps

    def u0_of(self, n: Any, v: Tensor, output: Tensor) -> Tensor:
        """Return u₀ given v = U_n and the output F of the network, all (batch, channel, *grid)."""
        p, q = self._coefficients()
        signal, noise = np.sqrt(self.schedule.gamma), np.sqrt(1 - self.schedule.gamma)
        with np.errstate(invalid="ignore", divide="ignore"):  # n = 0 is not a step
            of_output, of_v = noise / (p * noise - q * signal), -q / (p * noise - q * signal)
        return at(of_output, n, v) * output + at(of_v, n, v) * v

    def eps_of(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """Return ε = (v − √γ_n u₀)/√(1−γ_n) given v = U_n and u₀, all (batch, channel, *grid)."""
        gamma = at(self.schedule.gamma, n, v)
        return (v - gamma.sqrt() * u0) / (1 - gamma).sqrt()

    def score(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """Return Ψ = 𝒞∇log ρ = −ε/√(1−γ_n), with u₀ the mean of U_0 given U_n = v (`eqn:OU-score-function`)."""
        return -self.eps_of(n, v, u0) / (1 - at(self.schedule.gamma, n, v)).sqrt()

    def reverse_mean(self, n: Any, v: Tensor, u0: Tensor) -> Tensor:
        """Return m_θ = (v − β_n/√(1−γ_n) ε)/√(1−β_n) (`eqn:reverse-transition`)."""
        beta, gamma = at(self.schedule.beta, n, v), at(self.schedule.gamma, n, v)
        return (v - beta / (1 - gamma).sqrt() * self.eps_of(n, v, u0)) / (1 - beta).sqrt()

    def denoiser(self, network: Predictor) -> Denoiser:
        """Return (n, v, a) ↦ û₀, the network's estimate of E[U_0 | U_n = v], which samplers take whatever the target."""

        def denoise(n: int, v: Tensor, a: Any) -> Tensor:
            numbers = torch.full((len(v),), n, device=v.device)
            return self.u0_of(n, v, network(numbers, v, a))

        return denoise

    def loss(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any, mask: Tensor | None = None) -> Tensor:
        """Return L_DDSM for these draws (`eqn:DSM`), averaged over samples and nodes.

        Args:
            network: (n, v, a) ↦ F_θ.
            n: steps, (batch,).
            u0, eps: clean fields and noise, (batch, channel, *grid).
            a: condition, passed to the network.
            mask: 1 at observed nodes, 0 at missing ones; broadcasts to u0. Default: all nodes are observed.
        """
        squares = self._squared_errors(network, n, u0, eps, a)
        if mask is None:
            return squares.mean()
        return (squares * mask).sum() / mask.expand_as(squares).sum().clamp(min=1)

    def losses(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any, mask: Tensor | None = None) -> Tensor:
        """Return the loss of each sample, (batch,); arguments as in `loss`."""
        squares = self._squared_errors(network, n, u0, eps, a)
        observed = torch.ones_like(squares) if mask is None else mask.expand_as(squares)
        return (squares * observed).flatten(1).sum(1) / observed.flatten(1).sum(1).clamp(min=1)

    def _squared_errors(self, network: Predictor, n: Tensor, u0: Tensor, eps: Tensor, a: Any) -> Tensor:
        squares = (network(n, self.forward(n, u0, eps), a) - self.target_of(n, u0, eps)) ** 2
        return squares if self.weight == "target" else squares * at(self._weights(), n, u0)

    def _coefficients(self) -> tuple[Floats, Floats]:
        """Return p_n and q_n of the table of the module."""
        beta, gamma = self.schedule.beta, self.schedule.gamma
        one, zero = np.ones_like(gamma), np.zeros_like(gamma)
        if self.target == "eps":
            return zero, one
        if self.target == "u0":
            return one, zero
        if self.target == "v":
            return -np.sqrt(1 - gamma), np.sqrt(gamma)
        if self.target == "flow":
            return -one, one
        before = np.concatenate([[1.0], gamma[:-1]])
        q = np.divide(1 - gamma - beta, np.sqrt((1 - gamma) * (1 - beta)), out=np.zeros_like(gamma), where=gamma < 1)
        q[1] = 0.0  # 1 − γ_1 = β_1 up to rounding
        return np.sqrt(before), q

    def _weights(self) -> Floats:
        """Return ‖ε − ε_θ‖²/‖F − F_θ‖², which turns the squared error of the output into that of ε, or the same for Ψ."""
        p, q = self._coefficients()
        gamma = self.schedule.gamma
        with np.errstate(divide="ignore", invalid="ignore"):  # n = 0 is not a step
            of_eps = np.asarray(gamma / (p * np.sqrt(1 - gamma) - q * np.sqrt(gamma)) ** 2)
            return of_eps if self.weight == "ddsm" else of_eps / (1 - gamma)


def at(values: Floats, n: Any, like: Tensor) -> Tensor:
    """Return values[n] with the type and device of a tensor (batch, …), in a shape that broadcasts to it.

    Args:
        values: one value per step, (N + 1,).
        n: a number or (batch,).
        like: the tensor to be multiplied.
    """
    table = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    entries = table[n]
    return entries if entries.ndim == 0 else entries.reshape(-1, *(1,) * (like.ndim - 1))
