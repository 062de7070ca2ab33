"""No residual: u = m(a). A deterministic model is the same law with S = 0."""

from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .law import Inputs, ResidualLaw, Residuals, Rows

__all__ = ["Exact"]


class Exact(ResidualLaw):
    """The point mass at zero."""

    name: ClassVar[str] = "exact"
    deterministic: ClassVar[bool] = True
    centred: ClassVar[bool] = True

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        no_settings(self.name, sampling)
        return np.zeros((len(rows.places), *inputs.mean.shape[1:]))

    def evaluations(self, **sampling: Any) -> int:
        no_settings(self.name, sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        return "No residual: predictions are deterministic."

    def state(self) -> State:
        return State({})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls()


def no_settings(name: str, sampling: dict[str, Any]) -> None:
    """Check that no settings of a sampler are passed to a law that has none.

    Raises:
        UserError: if there are any.
    """
    if sampling:
        raise UserError(f"the law {name!r} has no sampler and no setting {min(sampling)!r}; omit it")
