r"""Residuals with any distribution of single values: a Gaussian copula, without a network.

    u − m(a) = σ(x) q(g(x)),        g a correlated Gaussian field of unit variance

σ is the standard deviation at each node, q (`pdno.residual.marginal`) the quantile function of (u − m)/σ, and the correlation
of g that of the normal scores (`pdno.residual.spread`). Skewed, heavy-tailed and discrete values are drawn as such.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..diffusion.base import White
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .estimate import estimate_scale
from .law import Inputs, ResidualLaw, Residuals, Rows, enlargement, ignored_settings, normals
from .marginal import Marginal
from .spread import Spread

__all__ = ["Copula", "Values"]


@dataclass(frozen=True, eq=False)
class Values:
    """The distribution of fields (u − m)/σ, given σ and m.

    Args:
        marginal: quantile functions.
        spread: correlation of g.
    """

    marginal: Marginal
    spread: Spread

    @classmethod
    def of(cls, residuals: Residuals, sigma: Array, held_out: tuple[Residuals, Array] | None, seed: int) -> "Values":
        """Estimate the distribution.

        Args:
            residuals: of training pairs; those of networks are in-sample, and too small.
            sigma: σ, (sample, channel, *grid).
            held_out: residuals of held-out pairs, and σ for them, which give the size of the values.
            seed: of ranks of equal values.
        """
        e, mask, mean = residuals.values / sigma, residuals.mask, residuals.inputs.mean
        if held_out is not None:
            new, new_sigma = held_out
            e = e * enlargement(e, mask, new.values / new_sigma, new.mask)
        marginal = Marginal.of(e, sigma, mean, mask)
        scores = marginal.scores(e, sigma, mean, seed)
        return cls(marginal, Spread.of(replace(residuals, values=scores)))

    def draw(self, sigma: Array, inputs: Inputs, rows: Rows) -> Array:
        """Draw residuals, (row, channel, *grid), for σ of each row."""
        xi = normals(White(), inputs.mean.shape[1:], rows)
        g = self.spread.restored(xi, inputs, rows.places) / self.spread.std
        return self.marginal(g, sigma, inputs.mean[rows.places]) * sigma

    def state(self) -> State:
        """Return both parts, to be saved."""
        return State({}, {}, {"marginal": self.marginal.state(), "spread": self.spread.state()})

    @classmethod
    def from_state(cls, state: State) -> "Values":
        """Restore what `state` returned."""
        return cls(Marginal.from_state(state.parts["marginal"]), Spread.from_state(state.parts["spread"]))


class Copula(ResidualLaw):
    """Residuals with any distribution of single values, correlated."""

    name: ClassVar[str] = "copula"

    def __init__(self) -> None:
        self._sigma = np.ones(0)  # (1, channel, *grid)
        self._values: Values | None = None

    @property
    def values(self) -> Values:
        """The distribution of (u − m)/σ.

        Raises:
            UserError: before training.
        """
        if self._values is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._values

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        scale = estimate_scale(residuals.values, "point", residuals.mask, residuals.periodic or None, residuals.groups())
        std = np.broadcast_to(scale.std, residuals.values.shape[1:])[None]
        self._sigma = np.where(std > 0, std, 1.0)
        new = None if held_out is None else (held_out, self._of(held_out.values))
        self._values = Values.of(residuals, self._of(residuals.values), new, terms.seed)
        return self

    def _of(self, fields: Array) -> Array:
        """Return σ for each of some fields."""
        return np.broadcast_to(self._sigma, fields.shape)

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        values = self.values
        return values.draw(np.broadcast_to(self._sigma, (len(rows.places), *inputs.mean.shape[1:])), inputs, rows)

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        return f"Residuals with the empirical distribution of single values; normal scores: {self.values.spread.describe()}."

    def state(self) -> State:
        return State({}, {"sigma": self._sigma}, {"values": self.values.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls()
        new._sigma, new._values = np.asarray(state.arrays["sigma"]), Values.from_state(state.parts["values"])
        return new
