"""Rivals behind the protocol of the model: deterministic operators, whose members are all the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from .dataset import Pairs
from .errors import UserError, nearest
from .scaling import Normalise
from .surrogate import Surrogate, normalise_of
from .train import Objective, Training

__all__ = ["FNO"]

Array = NDArray[Any]


class FNO(Surrogate):
    """The Fourier neural operator as a regression a ↦ u, trained on the relative L2 error ‖u − s_θ(a)‖/‖u‖ in units of u.

    Args:
        network: "fno", a mapping {"kind": "fno", "modes": 16, "width": 64}, or any module a ↦ u.
        normalise: of a and u.
        training: settings of the training loop.
        budget: seconds that training may take.
    """

    name = "fno"
    timed = False
    deterministic = True

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "fno",
        normalise: Normalise | tuple[Normalise, Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
    ) -> None:
        super().__init__(network, normalise, training, budget)

    @classmethod
    def paper(cls, test: str) -> "FNO":
        """The baseline of the paper for "darcy", "burgers" or "advection"."""
        if test not in PAPER:
            raise UserError(f"the paper compares FNO on other tests than {test!r}; {nearest(test, PAPER)}")
        return cls(**PAPER[test])

    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        get, scaling = self.rows(pairs), self.scalings["u"]
        mean, std = self.tensor(scaling.mean), self.tensor(scaling.std)

        def loss(network: Any, rows: NDArray[np.int64], first: int, step: int) -> Tensor:
            a, u, mask = get(rows)
            error, size = (network(a) - u) * std, u * std + mean
            if mask is not None:
                error, size = error * mask, size * mask
            ratio: Tensor = error.flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1).clamp(min=1e-12)
            return ratio.mean()

        return loss

    def draw(self, condition: Tensor, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Tensor:
        if how:
            raise UserError(f"a deterministic operator has no setting {min(how)!r}; leave it out")
        assert isinstance(self.network, nn.Module)
        answer: Tensor = self.network(condition)
        return answer

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "FNO":
        """The model that `settings` describes, without weights."""
        return cls(settings["network"], normalise_of(settings))


def _recipe(modes: int, width: int, halve_every: float, normalise: Normalise = "none") -> dict[str, Any]:
    training = Training(
        epochs=500,
        batch=20,
        optimizer="adam",
        rate=1e-3,
        rate_schedule="step",
        halve_every=halve_every,
        weight_decay=1e-4,
        ema=0.0,
        clip=0.0,
    )
    return {"network": {"kind": "fno", "modes": modes, "width": width}, "normalise": normalise, "training": training}


PAPER = {
    "darcy": _recipe(12, 32, 100, "pointwise"),
    "burgers": _recipe(16, 64, 50),
    "advection": _recipe(16, 128, 50),
}
