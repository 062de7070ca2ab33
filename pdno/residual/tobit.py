r"""Training of a censored Gaussian field: stochastic expectation–maximisation.

    z = μ(a) + g,        u = h(z),        alternately: draw z where u is at a bound; estimate μ and the covariance of g

μ is a linear regression on a, or on a and z(m(a)) if that has smaller out-of-fold residuals. Where u is at a bound, z is known
to be beyond it only, and is drawn given the other values of the same field (`pdno.residual.truncated`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._typing import Array
from ..draw import generator
from ..learning.budget import Terms
from ..mean.base import pairs_of
from ..mean.linear.linear import Linear
from .gaussian import Gaussian
from .law import Inputs, Residuals, Rows
from .link import Link
from .score import Units, scores
from .sizes import root_mean_square
from .truncated import Factors

__all__ = ["AFFINE", "Latent", "Tobit"]

STEPS = 20  # of the slice sampler, in each iteration
AFFINE = {"log": False, "degree": 1, "sparse": False}  # settings of a regression that is fast
SCORED_PAIRS = 200  # by which powers are compared, at most
SCORE_MEMBERS = 20  # of each
TINY = 1e-300


class Latent(NamedTuple):
    """h and the distribution of z."""

    link: Link
    mean: Linear  # μ
    with_mean: bool  # whether μ depends on m(a)
    noise: Gaussian  # g

    def inner(self, inputs: Inputs) -> Inputs:
        """Return the inputs with μ(a) as their mean."""
        x = _regressors(self.link, inputs, self.with_mean)
        return Inputs(inputs.a, self.mean(x, inputs.scalars), inputs.scalars)

    def outputs(self, inner: Inputs, rows: Rows) -> Array:
        """Draw u, (row, channel, *grid), for inputs whose mean is μ(a)."""
        return self.link(inner.mean[rows.places] + self.noise.draw(inner, rows))


@dataclass(eq=False)
class Tobit:
    """Training for one power.

    Args:
        residuals: u − m(a).
        live: where outputs are observed, (channel, *grid).
        power: of h.
        seed: of the draws.
    """

    residuals: Residuals
    live: Array
    power: int
    seed: int

    def __post_init__(self) -> None:
        u = self.residuals.pairs.filled
        self.rng = generator(self.seed, "censored", self.power)
        self.link = Link.of(u, self.residuals.mask, self.power)
        self.sides, self.limit = (np.where(self.live, of(u), 0.0) for of in (self.link.sides, self.link.latent))
        self.z = self.limit - 0.5 * self.limit.std() * self.sides  # smooth, as a white start would be forgotten slowly
        inputs = self.residuals.inputs
        self.with_mean = False
        if inputs.a.shape[2:] == inputs.mean.shape[2:]:
            left = {each: self._size(each) * self._regression(AFFINE, each)[1] for each in (False, True)}
            self.with_mean = bool(np.square(left[True]).sum() < np.square(left[False]).sum())

    def iterate(self, count: int, terms: Terms) -> "Tobit":
        """Take some iterations, or fewer if there is no time left; return itself."""
        flat = (len(self.z), -1)
        for _ in range(count if self.sides.any() else 0):
            if terms.left_here() == 0:
                break
            e = self._regression(AFFINE, self.with_mean)[1]
            rows = (e.reshape(flat), self.sides.reshape(flat), (self.limit - (self.z - e)).reshape(flat))
            drawn = Factors.of(rows[0]).completed(*rows, STEPS, self.rng).reshape(e.shape)
            self.z = np.where(self.sides == 0, self.z, self.z - e + drawn)
        return self

    def estimated(self, settings: Mapping[str, Any], terms: Terms) -> tuple[Latent, Residuals]:
        """Return the distribution, and the residuals z − μ(a) of training pairs, out of fold.

        Args:
            settings: of the regression.
            terms: of the training of g.
        """
        given, mask = self.residuals, self.residuals.mask
        mean, e = self._regression(settings, self.with_mean)
        pairs = pairs_of(given.pairs.a, self.z, given.pairs.scalars, mask)
        values = np.where(self.live, self._size(self.with_mean) * e, 0.0)
        latent = Residuals(pairs, values, given.elements, given.periodic, self.z - e)
        return Latent(self.link, mean, self.with_mean, Gaussian().learn(latent, None, terms)), latent

    def _size(self, with_mean: bool) -> Array:
        """Return the factor by which residuals of z are too small.

        If m(a) is in-sample, residuals of u were enlarged to the size of held-out ones; if μ depends on m(a), those of z are
        too small by the same factor.
        """
        given, mask = self.residuals, self.residuals.mask
        if not with_mean:
            return np.ones(1)
        raw = given.pairs.filled - given.inputs.mean
        return np.asarray(root_mean_square(given.values, mask) / np.maximum(root_mean_square(raw, mask), TINY))

    def _regression(self, settings: Mapping[str, Any], with_mean: bool) -> tuple[Linear, Array]:
        """Return μ, and its out-of-fold residuals."""
        given, mean = self.residuals, Linear(**settings)
        x, scalars = _regressors(self.link, given.inputs, with_mean), given.pairs.scalars
        mean.fit(x, self.z, scalars, self.seed)
        return mean, mean.residuals(x, self.z, scalars, given.groups(), seed=self.seed)

    def score(self, terms: Terms) -> float:
        """Return the score of draws for training pairs, about out-of-fold μ(a)."""
        latent, training = self.estimated(AFFINE, terms)
        some = slice(None, None, -(-len(training) // SCORED_PAIRS))
        few, inner = self.residuals[some], training[some].inputs
        number = np.arange(len(few))
        rows = [Rows(self.seed, number, np.full(len(few), member), number) for member in range(SCORE_MEMBERS)]
        members = np.stack([latent.outputs(inner, each) for each in rows])
        return float(scores(members, few.pairs.filled, few.mask, Units.of(few.values, few.mask)).mean())


def _regressors(link: Link, inputs: Inputs, with_mean: bool) -> Array:
    """Return a, or a and z(m(a)) as further channels, (sample, channel, *grid)."""
    return np.concatenate([inputs.a, link.latent(link.clipped(inputs.mean))], axis=1) if with_mean else inputs.a
