r"""Residuals by the posterior distribution of the mean, where that is one of the numbers of some fields (`pdno.mean.process`):

    u − m(a) = q t(a) (Σ_k τ_k s_k(a) ξ_k φ_k + S ζ),        ξ, ζ ~ N(0, I),
    q² = e^(2ση − 2σ²) (d + 2)/χ²_d,        d = n − 1,        η ~ N(0, 1).

s_k(a) is the posterior standard deviation of number k, which grows away from the data. The factors τ_k are root mean squares of
out-of-fold residuals divided by s_k: 1 for a posterior that is right, more for one that is too narrow; those of single numbers
are shrunk towards their average. S has the size of what the fields φ leave. t(a) is the size of errors at an input, relative to
s, if the mean knows it (`Components.size`). σ² is the variance of the log sizes of out-of-fold residuals that is neither by
chance nor explained by t. The random size q also widens intervals by the t distribution with one degree of freedom less than
the n independent pairs from which τ was estimated, and everything is multiplied by √((n + 1)/(n − 1)), the final prediction
error of Akaike 1969 with one fitted number: errors of new inputs are larger than those by which a model was fitted.
"""

from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import polygamma

from .._typing import Array
from ..diffusion.base import White
from ..errors import UserError
from ..learning.budget import Terms
from ..mean.base import Components, powers
from ..work.state import State
from .law import Inputs, ResidualLaw, Residuals, Rows, ignored_settings, normals
from .spread import Spread

__all__ = ["PosteriorLaw", "factors_of", "scatter_of"]

FEWEST = 4  # independent pairs
PRIOR = 10  # pairs for which the average of all factors counts
FEWEST_SCATTERED = 8  # pairs whose residuals show a random size
MOST_FREEDOM = 100  # degrees of freedom above which the t distribution is Gaussian
TINY = 1e-300


class PosteriorLaw(ResidualLaw):
    """The posterior distribution of the mean, with a size that out-of-fold residuals show."""

    name: ClassVar[str] = "posterior"
    centred: ClassVar[bool] = True
    uses_components: ClassVar[bool] = True

    def __init__(self) -> None:
        self.factors, self.freedom, self.scatter = np.zeros(0), 0, 0.0
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
        self.scatter = scatter_of(numbers, components, self.factors)
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
        size = np.ones(len(values)) if components.size is None else components.size[rows.places]
        if self.freedom <= MOST_FREEDOM:
            size = size * np.sqrt((self.freedom + 2) / np.square(_normals(rows, self.freedom, step=2)).sum(axis=1))
        if self.scatter:
            size = size * np.exp(self.scatter * _normals(rows, 1, step=3)[:, 0] - self.scatter**2)
        return np.asarray(values * size.reshape(-1, *(1,) * (values.ndim - 1)))

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
        return State({"freedom": self.freedom, "scatter": self.scatter}, {"factors": self.factors}, {"rest": rest})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls()
        new.factors, new.freedom = np.array(state.arrays["factors"]), int(state.settings["freedom"])
        new.scatter = float(state.settings["scatter"])
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
    of_pairs = np.ones(len(numbers)) if components.weights is None else components.weights
    count, total = of_pairs @ known, of_pairs @ squares
    weights = np.square(components.std).mean(axis=0) * powers(components.fields)
    average = (weights * total / np.where(count > 0, count, 1)).sum() / max(weights.sum(), TINY)
    return np.asarray(np.sqrt((total + PRIOR * average) / (count + PRIOR)))


def scatter_of(numbers: Array, components: Components, factors: Array) -> float:
    """Return σ, from residuals in numbers (sample, component) and τ.

    The square of a residual field divided by its expectation is about χ²_ν/ν, ν = (Σ v)²/Σ v² for variances v of its numbers,
    of which the logarithm has the variance ψ′(ν/2).
    """
    weights = powers(components.fields)
    expected, observed = np.square(components.std * factors) * weights, np.square(numbers) @ weights
    total = expected.sum(axis=1)
    some = (total > 0) & (observed > 0)
    if some.sum() < FEWEST_SCATTERED:
        return 0.0
    freedom = np.square(total[some]) / np.square(expected[some]).sum(axis=1)
    found, chance = np.log(observed[some] / total[some]).var(ddof=1), polygamma(1, freedom / 2).mean()
    return float(np.sqrt(max((found - chance) / 4 - components.size_variance, 0.0)))
