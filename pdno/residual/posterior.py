r"""Residuals by the posterior distribution of the mean, where that is one of the numbers of some fields (`pdno.mean.process`):

    u − m(a) = q (Σ_k τ_k s_k(a) ξ_k φ_k + S ζ),        ξ, ζ ~ N(0, I),        q² = (d + 2)/χ²_d,        d = n − 1.

s_k(a) is the posterior standard deviation of number k, which grows away from the data. The factors τ_k are root mean squares of
out-of-fold residuals divided by s_k: 1 for a posterior that is right, more for one that is too narrow; those of single numbers
are shrunk towards their average. S has the size of what the fields φ leave. The random size q widens intervals by the t
distribution with one degree of freedom less than the n independent pairs from which τ was estimated, and everything is
multiplied by √((n + 1)/(n − 1)), the final prediction error of Akaike 1969 with one fitted number: errors of new inputs are
larger than those by which a model was fitted.
"""

from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..diffusion.base import White
from ..errors import UserError
from ..learning.budget import Terms
from ..mean.base import Components
from ..work.state import State
from .law import Inputs, ResidualLaw, Residuals, Rows, ignored_settings, normals
from .spread import Spread

__all__ = ["PosteriorLaw", "factors_of"]

FEWEST = 4  # independent pairs
PRIOR = 10  # pairs for which the average of all factors counts
MOST_FREEDOM = 100  # degrees of freedom above which the t distribution is Gaussian
TINY = 1e-300


class PosteriorLaw(ResidualLaw):
    """The posterior distribution of the mean, with a size that out-of-fold residuals show."""

    name: ClassVar[str] = "posterior"
    centred: ClassVar[bool] = True
    uses_components: ClassVar[bool] = True

    def __init__(self) -> None:
        self.factors, self.freedom = np.zeros(0), 0
        self._rest: Spread | None = None

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        components = residuals.components
        if components is None:
            raise UserError("the law 'posterior' needs a mean with a posterior of components; choose mean='process'")
        pairs = len(np.unique(residuals.pairs.labels()))
        if pairs < FEWEST:
            raise UserError(f"got {pairs} independent pairs, expected at least {FEWEST} to estimate errors; provide more")
        numbers = components.numbers(residuals.values)
        self.factors, self.freedom = factors_of(numbers, components), pairs - 1
        values = residuals.values - components.restored(numbers)
        if residuals.mask is not None:
            values = np.where(residuals.mask, values, 0.0)
        self._rest = Spread.of(Residuals(residuals.pairs, values, residuals.elements, residuals.periodic))
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        components = self._components(inputs)
        xi = _normals(rows, len(self.factors), step=0)
        rest = self._trained().restored(normals(White(), inputs.mean.shape[1:], rows, step=1), inputs, rows.places)
        values = components.restored(xi * self.factors * components.std[rows.places]) + rest
        if self.freedom > MOST_FREEDOM:
            return values
        squares = np.square(_normals(rows, self.freedom, step=2)).sum(axis=1)
        return np.asarray(values * np.sqrt((self.freedom + 2) / squares).reshape(-1, *(1,) * (values.ndim - 1)))

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the factors in a sentence."""
        self._trained()
        sizes = f"{self.factors.min():.2g} to {self.factors.max():.2g}" if len(self.factors) else "no components"
        return (
            f"The posterior distribution of the mean, times factors of {sizes} that out-of-fold residuals show, with "
            f"{self.freedom} degrees of freedom."
        )

    def state(self) -> State:
        rest = self._trained().state()
        return State({"freedom": self.freedom}, {"factors": self.factors}, {"rest": rest})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls()
        new.factors, new.freedom = np.array(state.arrays["factors"]), int(state.settings["freedom"])
        new._rest = Spread.from_state(state.parts["rest"])
        return new

    def _trained(self) -> Spread:
        if self._rest is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._rest

    def _components(self, inputs: Inputs) -> Components:
        if inputs.components is None or inputs.components.std.shape[1] != len(self.factors):
            raise UserError("the law 'posterior' draws for the mean that it was trained with; pass inputs of that mean")
        return inputs.components


def _normals(rows: Rows, count: int, step: int) -> Array:
    """Return normal numbers for each row, (row, count)."""
    return normals(White(), (1, max(2, count)), rows, step)[:, 0, :count]  # a grid has two points or more


def factors_of(numbers: Array, components: Components) -> Array:
    """Return τ, (component,), from residuals in numbers (sample, component)."""
    known = components.std > 0
    squares = np.square(np.divide(numbers, components.std, out=np.zeros(numbers.shape), where=known))
    count, total = known.sum(axis=0), squares.sum(axis=0)
    weights = np.square(components.std).mean(axis=0) * np.square(components.fields).reshape(len(total), -1).sum(axis=1)
    average = (weights * total / np.maximum(count, 1)).sum() / max(weights.sum(), TINY)
    return np.asarray(np.sqrt((total + PRIOR * average) / (count + PRIOR)))
