r"""Residuals with any distribution of single values: a Gaussian copula, without a network.

    u − m(a) = s σ(x) q(g(x)),        g a correlated Gaussian field of unit variance

σ is the standard deviation at each node, q (`pdno.residual.marginal`) the quantile function of (u − m)/σ, and the correlation
of g that of the normal scores (`pdno.residual.spread`). Skewed, heavy-tailed and discrete values are drawn as such. log s is
Gaussian: by how much sizes of held-out fields vary more than those of σ q(g), because σ is not known exactly; s = 1 if this is
not significant.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..diffusion.base import White
from ..draw import generator
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .estimate import estimate_scale
from .law import Inputs, ResidualLaw, Residuals, Rows, enlargement, ignored_settings, normals
from .marginal import Marginal
from .spread import Spread

__all__ = ["Copula", "Values"]

SIMULATED = 4  # fields for each held-out pair, whose sizes are compared with that of the residual
FEWEST_FOR_SIZE = 50  # held-out pairs for this comparison
SIGNIFICANT = 2.0  # standard errors


@dataclass(frozen=True, eq=False)
class Values:
    """The distribution of fields (u − m)/σ, given σ and m.

    Args:
        marginal: quantile functions.
        spread: correlation of g.
        size: standard deviation of log s.
    """

    marginal: Marginal
    spread: Spread
    size: float = 0.0

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
        values = cls(marginal, Spread.of(replace(residuals, values=scores)))
        return values if held_out is None else replace(values, size=values._unexplained(new, new_sigma, seed))

    def _unexplained(self, residuals: Residuals, sigma: Array, seed: int) -> float:
        """Return the standard deviation of log s from held-out residuals."""
        count = len(residuals)
        places, members = np.divmod(np.arange(count * SIMULATED), SIMULATED)
        drawn = self.draw(sigma[places], residuals.inputs, Rows(seed, places, members, places))
        masks = None if residuals.mask is None else residuals.mask[places]
        found, by_chance = _log_sizes(residuals.values / sigma, residuals.mask), _log_sizes(drawn / sigma[places], masks)
        if len(found) < FEWEST_FOR_SIZE:
            return 0.0
        excess = found.var(ddof=1) - by_chance.var(ddof=1)
        return float(np.sqrt(excess)) if excess > SIGNIFICANT * by_chance.var() * np.sqrt(2 / len(found)) else 0.0

    def draw(self, sigma: Array, inputs: Inputs, rows: Rows) -> Array:
        """Draw residuals, (row, channel, *grid), for σ of each row."""
        xi = normals(White(), inputs.mean.shape[1:], rows)
        g = self.spread.restored(xi, inputs, rows.places) / self.spread.std
        values = self.marginal(g, sigma, inputs.mean[rows.places]) * sigma
        if not self.size:
            return values
        each = zip(rows.inputs, rows.members, strict=True)
        eta = np.array([generator(rows.seed, "copula/size", int(i), int(m)).standard_normal() for i, m in each])
        return np.asarray(values * np.exp(self.size * eta).reshape(-1, *(1,) * (values.ndim - 1)))

    def state(self) -> State:
        """Return both parts, to be saved."""
        return State({"size": self.size}, {}, {"marginal": self.marginal.state(), "spread": self.spread.state()})

    @classmethod
    def from_state(cls, state: State) -> "Values":
        """Restore what `state` returned."""
        marginal, spread = Marginal.from_state(state.parts["marginal"]), Spread.from_state(state.parts["spread"])
        return cls(marginal, spread, float(state.settings["size"]))

    def describe(self) -> str:
        """Describe the correlation, and how much sizes vary, in a few words."""
        varies = f"; sizes of fields vary by a factor {np.exp(self.size):.2g} more" if self.size else ""
        return f"normal scores: {self.spread.describe()}{varies}"


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
        return f"Residuals with the empirical distribution of single values; {self.values.describe()}."

    def state(self) -> State:
        return State({}, {"sigma": self._sigma}, {"values": self.values.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls()
        new._sigma, new._values = np.asarray(state.arrays["sigma"]), Values.from_state(state.parts["values"])
        return new


def _log_sizes(fields: Array, mask: Array | None) -> Array:
    """Return the log root mean square of each field, over observed values; fields without any are left out."""
    axes = tuple(range(1, fields.ndim))
    count = np.full(len(fields), fields[0].size) if mask is None else mask.sum(axis=axes)
    squares = np.square(fields if mask is None else np.where(mask, fields, 0.0)).sum(axis=axes)
    some = (count > 0) & (squares > 0)
    return np.asarray(0.5 * np.log(squares[some] / count[some]))
