"""Residuals ±1 at each node, as a law of the user and, blurred, as an exact network."""

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from pdno import Diffusion
from pdno.diffusion.base import White
from pdno.learning.budget import Terms
from pdno.residual import Inputs, ResidualLaw, Residuals, Rows, normals
from pdno.work.state import State

BLUR = 0.3


class Coins(ResidualLaw):
    """±size, independent at each node, with equal probability."""

    name: ClassVar[str] = "coins"
    centred: ClassVar[bool] = True

    def __init__(self, size: float = 0.0) -> None:
        self.size = size

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        self.size = float(np.abs(residuals.values).mean())
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> np.ndarray:
        return self.size * np.sign(normals(White(), inputs.mean.shape[1:], rows))

    def evaluations(self, **sampling: Any) -> int:
        return 0

    def describe(self) -> str:
        return f"Coins of size {self.size:g}."

    def state(self) -> State:
        return State({"size": self.size})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls(**state.settings)


class BlurredCoin(nn.Module):
    """The exact prediction of the target "v" for residuals ±√(1 − BLUR²) + N(0, BLUR²) at each node."""

    def __init__(self, diffusion: Diffusion) -> None:
        super().__init__()
        self.gamma = diffusion.schedule.gamma
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        gamma = torch.as_tensor(self.gamma, dtype=v.dtype)[n].reshape(-1, *(1,) * (v.ndim - 1))
        c, var = (1 - BLUR**2) ** 0.5, gamma * BLUR**2 + 1 - gamma
        sign = torch.tanh(gamma.sqrt() * c * v / var)
        u0 = c * sign + gamma.sqrt() * BLUR**2 / var * (v - gamma.sqrt() * c * sign)
        return (gamma.sqrt() * v - u0) / (1 - gamma).sqrt() + 0 * self.weight
