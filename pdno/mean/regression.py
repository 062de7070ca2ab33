"""A network as a regression a ↦ s_θ(a), trained on the relative L2 error ‖u − s_θ(a)‖/‖u‖, each channel in its own units.

With symmetries G it learns from every pair in a random orientation, and answers with the mean |G|⁻¹ Σ_g g⁻¹ s_θ(g a), over
some of the elements where there are many.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.pairs import Pairs
from ..errors import UserError
from ..learning.loop import Objective
from ..model.surrogate import Surrogate, chosen
from ..symmetry import average

__all__ = ["Regression"]

Array = NDArray[Any]
AVERAGED = 8  # elements of a group that an answer is averaged over


class Regression(Surrogate):
    """A deterministic operator: all its members are the same. Arguments as in `Surrogate`."""

    name = "regression"
    timed = False
    deterministic = True

    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        get, scaling = self.rows(pairs, seed if purpose == "train" else None), self.scalings["u"]
        unit = np.sqrt(np.mean(scaling.std**2, axis=tuple(range(1, scaling.std.ndim)), keepdims=True))
        mean, std = self.tensor(scaling.mean / unit), self.tensor(scaling.std / unit)
        size = np.sqrt(np.mean((scaling.mean / unit) ** 2) + np.mean((scaling.std / unit) ** 2))
        least = 1e-6 * float(size * np.sqrt(pairs.u[0].size))

        def loss(network: Any, rows: NDArray[np.int64], first: int, step: int) -> Tensor:
            a, u, mask = get(rows, first, step)
            error, size = (network(a) - u) * std, u * std + mean
            if mask is not None:
                error, size = error * mask, size * mask
            ratio: Tensor = error.flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1).clamp(min=least)
            return ratio.mean()

        return loss

    def draw(self, a: Array, scalars: Array | None, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Array:
        if how:
            raise UserError(f"a deterministic operator has no setting {min(how)!r}; leave it out")

        def answer(x: Array) -> Array:
            assert isinstance(self.network, nn.Module)
            return self.scalings["u"].restore(self.network(self.condition(x, scalars)).double().cpu().numpy())

        if not self.elements:
            return answer(a)
        return np.asarray(average(answer, a, self.elements, min(AVERAGED, len(self.elements))))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Regression":
        """The model that `settings` describes, without weights."""
        return cls(settings["network"], **chosen(settings))
