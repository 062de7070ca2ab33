r"""Resampled residuals, u − m(a) = t(a) r_J with J drawn from the training pairs: whole out-of-fold residual fields.

No assumption is made about the distribution of r: correlations, skewness and several modes are those of the residuals seen. The
law does not depend on the input but for its size t(a) (`pdno.residual.amplitude`), and members repeat after as many as there
are training pairs. It is the floor that a learned law has to beat.

Nodes that are never observed have the residual 0. Values that are missing in some fields only are drawn given the observed
ones, from a Gaussian distribution with the scale of the residuals.
"""

from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..draw import generator, streams
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .amplitude import Amplitude
from .estimate import estimate_scale
from .law import Inputs, ResidualLaw, Residuals, Rows, ignored_settings

__all__ = ["Resampled"]

MOST_VALUES = 2**24  # of the fields that are kept; fewer fields are kept if they are larger


class Resampled(ResidualLaw):
    """Residual fields drawn from those of the training pairs."""

    name: ClassVar[str] = "resampled"

    def __init__(self) -> None:
        self._fields: Array | None = None
        self._amplitude: Amplitude | None = None

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        values, inputs, mask = residuals.values, residuals.inputs, residuals.mask
        scale = estimate_scale(values, "scalar", mask, group=residuals.groups())
        fields, group = (inputs.a, inputs.mean, inputs.scalars), residuals.groups()
        self._amplitude = Amplitude.of(values, scale, *fields, terms.seed, mask, group=group)
        if self._amplitude is not None:
            values = values / self._sizes(inputs).reshape(-1, *(1,) * (values.ndim - 1))
        if mask is not None:
            values = _completed(values, residuals, mask, terms.seed)
        kept = generator(terms.seed, "resampled/kept", 0).permutation(len(values))[: max(2, MOST_VALUES // values[0].size)]
        self._fields = values[np.sort(kept)]
        self.std = self._fields.std(axis=0) if self._amplitude is None else None
        return self

    @property
    def fields(self) -> Array:
        """The fields r_j, (pair, channel, *grid).

        Raises:
            UserError: before training.
        """
        if self._fields is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._fields

    def _sizes(self, inputs: Inputs) -> Array:
        amplitude = self._amplitude
        if amplitude is None:
            return np.ones(len(inputs))
        return inputs.once("resampled/t", lambda: amplitude(inputs.a, inputs.mean, inputs.scalars))

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        each = streams(rows.seed, "resampled", rows.inputs, rows.members)
        numbers = [stream.integers(len(self.fields)) for stream in each]
        drawn = self.fields[np.array(numbers, dtype=np.intp)]
        return drawn * self._sizes(inputs)[rows.places].reshape(-1, *(1,) * (drawn.ndim - 1))

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        size = "" if self._amplitude is None else f"; {self._amplitude.describe()}"
        return f"Residual fields drawn from those of {len(self.fields)} training pairs{size}."

    def state(self) -> State:
        parts = {} if self._amplitude is None else {"amplitude": self._amplitude.state()}
        return State({}, {"fields": self.fields}, parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls()
        new._fields = state.arrays["fields"]
        if "amplitude" in state.parts:
            new._amplitude = Amplitude.from_state(state.parts["amplitude"])
        new.std = new._fields.std(axis=0) if new._amplitude is None else None
        return new


def _completed(values: Array, residuals: Residuals, mask: Array, seed: int) -> Array:
    """Return the fields with draws of the missing values, and zeros at nodes that are never observed."""
    ever = mask.any(axis=0)
    if (mask | ~ever).all():
        return np.asarray(np.where(ever, values, 0.0))
    scale = estimate_scale(values, "auto", mask, residuals.periodic or None, residuals.groups())
    filled = scale.sqrt(scale.completed(values, mask, seed, "resampled"))
    return np.asarray(np.where(mask, values, np.where(ever, filled, 0.0)))
