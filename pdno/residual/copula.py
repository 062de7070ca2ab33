r"""Residuals with any distribution of single values: a Gaussian copula, without a network.

    u − m(a) = s σ(x) q(g(x)),        g a correlated Gaussian field of unit variance

σ is the standard deviation at each node, q (`pdno.residual.marginal`) the quantile function of (u − m)/(s σ), and the
correlation of g that of the normal scores (`pdno.residual.spread`). Skewed, heavy-tailed and discrete values are drawn as such.
s, with E s² = 1, is the size of a field: log s is Gaussian if sizes of fields vary significantly more than those of σ q(g),
because σ is not known exactly; otherwise s = 1. Where residuals are always 0, so are draws.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array, Mask
from ..diffusion.base import White
from ..draw import streams
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .estimate import estimate_scale
from .law import Inputs, ResidualLaw, Residuals, Rows, ignored_settings, normals
from .marginal import Marginal
from .sizes import enlargement
from .spread import Spread

__all__ = ["Copula", "Values"]

SIMULATED = 4  # fields for each pair, whose sizes are compared with that of the residual
SIZE_PAIRS = 200  # for this comparison, at most
FEWEST_FOR_SIZE = 50  # likewise, at least
SIGNIFICANT = 2.0  # standard errors


@dataclass(frozen=True, eq=False)
class Values:
    """The distribution of fields (u − m)/σ, given σ and m.

    Args:
        marginal: quantile functions.
        spread: correlation of g.
        zero: True where residuals are always 0, (channel, *grid).
        size: standard deviation of log s.
    """

    marginal: Marginal
    spread: Spread
    zero: Mask
    size: float = 0.0

    @classmethod
    def of(
        cls, residuals: Residuals, sigma: Array, held_out: tuple[Residuals, Array] | None, seed: int, in_sample: bool = True
    ) -> "Values":
        """Estimate the distribution.

        Args:
            residuals: of training pairs.
            sigma: σ, (sample, channel, *grid).
            held_out: residuals of held-out pairs, and σ for them, which give the size of the values.
            seed: of ranks of equal values.
            in_sample: whether σ was trained on these residuals, so that they are too small, relative to σ.
        """
        e = residuals.values / sigma
        if held_out is not None and (in_sample or len(held_out[0]) >= FEWEST_FOR_SIZE):
            new, new_sigma = held_out
            e = e * enlargement(e, residuals.mask, new.values / new_sigma, new.mask)
        values = cls._estimated(residuals, e, sigma, seed)
        if size := values._excess(residuals, sigma, seed):
            e = e / _shrunk_sizes(e, residuals.mask, size)
            values = replace(cls._estimated(residuals, e, sigma, seed), size=size)
        if held_out is not None and len(held_out[0]) >= FEWEST_FOR_SIZE:
            values = replace(values, size=replace(values, size=0.0)._excess(*held_out, seed))
        return values

    @classmethod
    def _estimated(cls, residuals: Residuals, e: Array, sigma: Array, seed: int) -> "Values":
        """Estimate marginal and correlation of fields e."""
        zero = ~np.asarray((residuals.values != 0).any(axis=0))
        live = ~zero | zero.all(axis=tuple(range(1, zero.ndim)), keepdims=True)  # a channel that is 0 has a distribution, too
        seen = np.broadcast_to(live, e.shape) & (True if residuals.mask is None else residuals.mask)
        mean = residuals.inputs.mean
        marginal = Marginal.of(e, sigma, mean, None if seen.all() else seen)
        scores = np.where(zero, 0.0, marginal.scores(e, sigma, mean, seed))
        return cls(marginal, Spread.of(replace(residuals, values=scores)), zero)

    def _excess(self, residuals: Residuals, sigma: Array, seed: int) -> float:
        """Return the standard deviation of log sizes that is not by chance; 0 if it is not significant."""
        some = slice(None, None, -(-len(residuals) // SIZE_PAIRS))
        few, sigma = residuals[some], sigma[some]
        found = _log_sizes(few.values / sigma, few.mask)
        if len(found) < FEWEST_FOR_SIZE:
            return 0.0
        inputs, number = few.inputs, np.arange(len(few))
        rows = (Rows(seed, number, np.full(len(few), member), number) for member in range(SIMULATED))
        by_chance = np.concatenate([_log_sizes(self.draw(sigma, inputs, each) / sigma, few.mask) for each in rows])
        excess = found.var(ddof=1) - by_chance.var(ddof=1)
        return float(np.sqrt(excess)) if excess > SIGNIFICANT * by_chance.var() * np.sqrt(2 / len(found)) else 0.0

    def draw(self, sigma: Array, inputs: Inputs, rows: Rows) -> Array:
        """Draw residuals, (row, channel, *grid), for σ of each row."""
        xi, std = normals(White(), inputs.mean.shape[1:], rows), self.spread.std
        g = np.divide(self.spread.restored(xi, inputs, rows.places), std, where=std > 0, out=np.zeros(xi.shape))
        values = np.where(self.zero, 0.0, self.marginal(g, sigma, inputs.mean[rows.places]) * sigma)
        if not self.size:
            return values
        each = streams(rows.seed, "copula/size", rows.inputs, rows.members)
        eta = np.array([stream.standard_normal() for stream in each])
        return np.asarray(values * np.exp(self.size * eta - self.size**2).reshape(-1, *(1,) * (values.ndim - 1)))

    def state(self) -> State:
        """Return all parts, to be saved."""
        parts = {"marginal": self.marginal.state(), "spread": self.spread.state()}
        return State({"size": self.size}, {"zero": self.zero.astype(np.uint8)}, parts)

    @classmethod
    def from_state(cls, state: State) -> "Values":
        """Restore what `state` returned."""
        marginal, spread = Marginal.from_state(state.parts["marginal"]), Spread.from_state(state.parts["spread"])
        return cls(marginal, spread, np.asarray(state.arrays["zero"]) > 0, float(state.settings["size"]))

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
        self._values = Values.of(residuals, self._of(residuals.values), new, terms.seed, in_sample=False)
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
    squares = _mean_squares(fields, mask)
    return np.asarray(0.5 * np.log(squares[squares > 0]))


def _shrunk_sizes(e: Array, mask: Array | None, size: float) -> Array:
    """Return s of each field, (sample, 1, …), with mean square 1: sizes, shrunk by the part that is by chance."""
    squares = _mean_squares(e, mask)
    logs = 0.5 * np.log(np.where(squares > 0, squares, squares.mean()))
    logs = (logs - logs.mean()) * min(1.0, size**2 / max(logs.var(), size**2))
    sizes = np.exp(logs)
    return np.asarray((sizes / np.sqrt(np.mean(sizes**2))).reshape(-1, *(1,) * (e.ndim - 1)))


def _mean_squares(fields: Array, mask: Array | None) -> Array:
    """Return the mean square of each field over observed values, (sample,); 0 if there are none."""
    axes = tuple(range(1, fields.ndim))
    if mask is None:
        return np.asarray(np.square(fields).mean(axis=axes))
    return np.asarray(np.square(np.where(mask, fields, 0.0)).sum(axis=axes) / np.maximum(mask.sum(axis=axes), 1))
