r"""Outputs at a bound: a latent Gaussian field that is censored there, as in Tobit regression.

    u = h(z),        z = μ(a) + g,        h(z) = b + c max(z, 0)^p   for outputs that are not below b

Rain is zero at most places, and skewed at the others: how dry a dry place is cannot be observed. A member m(a) + residual,
cut off at the bound, has the wrong mean, and errors are smaller next to the bound. z has no bound (`pdno.residual.link`): μ is
a linear regression on a, or on a and m(a), and g is Gaussian (`pdno.residual.gaussian`). Both are estimated by stochastic
expectation–maximisation: values of z beyond the bound are drawn given the others of the same field
(`pdno.residual.truncated`), then μ and the covariance of g are estimated again. p = 1, 2 or 3 has the lowest score of draws.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import ndtri

from .._typing import Array
from ..data.support import Support
from ..draw import generator
from ..errors import UserError
from ..learning.budget import Terms
from ..mean.base import pairs_of
from ..mean.linear.linear import Linear
from ..work.state import State
from .gaussian import Gaussian
from .law import Expectation, Inputs, ResidualLaw, Residuals, Rows, ignored_settings
from .link import Link
from .score import Units, scores
from .truncated import Factors

__all__ = ["Censored"]

LEAST_SHARE = 0.03  # of the values of a channel at its bounds, for which the law is tried
POWERS = (1, 2, 3)  # values of p that are compared
ITERATIONS = 12  # of expectation–maximisation
COMPARED = 6  # iterations after which powers are compared
TIME_SHARE = 0.3  # of the remaining time, after which no further iteration begins
SELECTED = 1  # last iterations, in which features of the regression are selected; it is affine before, which is fast
AFFINE = {"log": False, "degree": 1, "sparse": False}
STEPS = 20  # of the slice sampler, in each iteration
SCORED_PAIRS = 200  # by which powers are compared, at most
SCORE_MEMBERS = 20  # of each
QUADRATURE = ndtri((np.arange(100) + 0.5) / 100)  # equally likely values of a normal variable
SIZES = (np.arange(4) + 0.5) / 4  # probabilities of equally likely sizes of a field, if they vary


class _Latent(NamedTuple):
    """h and the distribution of z."""

    link: Link
    mean: Linear  # μ
    with_mean: bool  # whether μ depends on m(a)
    noise: Gaussian  # g

    def outputs(self, inner: Inputs, rows: Rows) -> Array:
        """Draw u, (row, channel, *grid), for inputs whose mean is μ(a)."""
        return self.link(inner.mean[rows.places] + self.noise.draw(inner, rows))


class Censored(ResidualLaw, Expectation):
    """Outputs that are a bounded function of a Gaussian field.

    Args:
        power: p; default: the one of 1, 2 and 3 with the lowest score of draws.
    """

    name: ClassVar[str] = "censored"

    def __init__(self, power: int | None = None) -> None:
        if power is not None and power not in POWERS:
            raise UserError(f"power = {power!r}: expected one of {', '.join(map(str, POWERS))}, or None to select it")
        self.power = power
        self._latent: _Latent | None = None
        self._live = np.ones(1, bool)  # where outputs are ever observed, (channel, *grid)

    @staticmethod
    def applies(residuals: Residuals) -> bool:
        """Return whether enough outputs are at a bound, and all outputs at the same nodes."""
        u, mask = residuals.pairs.u, residuals.mask
        support = Support.of(u, mask)
        if support is None or np.isfinite(support.values).any() or _varies(mask):
            return False
        at_bound = Link.of(u, mask, 1).sides(u) != 0
        seen = np.ones(u.shape, bool) if mask is None else mask
        axes = (0, *range(2, u.ndim))
        return bool(((at_bound & seen).sum(axis=axes) > LEAST_SHARE * seen.sum(axis=axes)).any())

    # Training

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        if _varies(residuals.mask):
            raise UserError("the law 'censored' needs outputs at the same nodes in all samples; use law='gaussian'")
        mask = residuals.mask
        self._live = np.ones(residuals.values.shape[1:], bool) if mask is None else np.asarray(mask[0])
        support = Support.of(residuals.pairs.u, mask)
        free = support is None or not np.isfinite(support.bounds).any() or np.isfinite(support.bounds).all(axis=1).any()
        share = terms.within(terms.left(TIME_SHARE))
        if self.power is None:
            found = {power: self._estimated(residuals, power, share, COMPARED) for power in (POWERS[:1] if free else POWERS)}
            self.power = min(found, key=lambda power: _score(*found[power], residuals, terms.seed))
        self._latent, _ = self._estimated(residuals, self.power, share, ITERATIONS)
        return self

    def _estimated(self, residuals: Residuals, power: int, terms: Terms, iterations: int) -> tuple[_Latent, Residuals]:
        """Return the distribution for one p, and the residuals z − μ(a) of training pairs, out of fold."""
        u, mask, rng = residuals.pairs.filled, residuals.mask, generator(terms.seed, "censored", power)
        link = Link.of(u, mask, power)
        sides, limit = np.where(self._live, link.sides(u), 0.0), np.where(self._live, link.latent(u), 0.0)
        z = limit - 0.5 * limit.std() * sides * np.abs(rng.standard_normal(u.shape))
        scalars, flat = residuals.pairs.scalars, (len(u), -1)

        def regression(with_mean: bool, settings: Mapping[str, Any]) -> tuple[Linear, Array]:
            """Return μ, and its out-of-fold residuals."""
            x, mean = _regressors(link, residuals.inputs, with_mean), Linear(**settings)
            mean.fit(x, z, scalars, terms.seed)
            return mean, mean.residuals(x, z, scalars, residuals.groups(), seed=terms.seed)

        with_mean = min((False, True), key=lambda each: float(np.square(regression(each, AFFINE)[1]).sum()))
        for number in range(iterations if sides.any() else 0):
            if terms.left_here() == 0:
                break
            e = regression(with_mean, AFFINE if number < iterations - SELECTED else {})[1]
            rows = (e.reshape(flat), sides.reshape(flat), (limit - (z - e)).reshape(flat))
            drawn = Factors.of(rows[0]).completed(*rows, STEPS, rng).reshape(u.shape)
            z = np.where(sides == 0, z, z - e + drawn)
        mean, e = regression(with_mean, {})
        pairs = pairs_of(residuals.pairs.a, z, scalars, mask)
        latent = Residuals(pairs, np.where(self._live, e, 0.0), residuals.elements, residuals.periodic, z - e)
        return _Latent(link, mean, with_mean, Gaussian().learn(latent, None, terms)), latent

    # Sampling

    @property
    def latent(self) -> _Latent:
        """The distribution of z.

        Raises:
            UserError: before training.
        """
        if self._latent is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._latent

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        u = self.latent.outputs(self._inner(inputs), rows)
        return np.where(self._live, u - inputs.mean[rows.places], 0.0)

    def _inner(self, inputs: Inputs) -> Inputs:
        """Return the inputs with μ(a)."""
        link, mean, with_mean, _ = self.latent

        def computed() -> Inputs:
            return Inputs(inputs.a, mean(_regressors(link, inputs, with_mean), inputs.scalars), inputs.scalars)

        return inputs.once("censored", computed)

    def expectation(self, inputs: Inputs, seed: int = 0) -> Array:
        """Return E[u | a] − m(a) by quadrature at each node."""
        inner, link, spread = self._inner(inputs), self.latent.link, self.latent.noise.spread
        t, ndim = spread.sizes(inner), inner.mean.ndim
        relative = np.ones((1, 1)) if spread.amplitude is None else spread.amplitude.relative_sizes(t)
        sizes = t[:, None] * np.quantile(relative, SIZES if relative.shape[1] > 1 else [0.5], axis=1).T
        stds = [spread.std * size.reshape(-1, *(1,) * (ndim - 1)) for size in sizes.T]
        mean = np.mean([link(inner.mean + std * node) for std in stds for node in QUADRATURE], axis=0)
        return np.where(self._live, mean - inputs.mean, 0.0)

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        power = "" if self.power == 1 else f" to the power {self.power}"
        return f"A Gaussian field{power}, censored where outputs are at a bound. {self.latent.noise.describe()}"

    # Saving

    def state(self) -> State:
        link, mean, with_mean, noise = self.latent
        arrays = {"bounds": link.bounds, "unit": link.unit, "live": self._live.astype(np.uint8)}
        return State({"power": self.power, "with_mean": with_mean}, arrays, {"mean": mean.state(), "noise": noise.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        power, with_mean = int(state.settings["power"]), bool(state.settings["with_mean"])
        link = Link(np.asarray(state.arrays["bounds"]), np.asarray(state.arrays["unit"]), power)
        mean, noise = Linear.from_state(state.parts["mean"]), Gaussian.from_state(state.parts["noise"])
        new = cls(power)
        new._live, new._latent = np.asarray(state.arrays["live"]) > 0, _Latent(link, mean, with_mean, noise)
        return new


def _regressors(link: Link, inputs: Inputs, with_mean: bool) -> Array:
    """Return a, and z of m(a), in one row, (sample, 1, value)."""
    parts = [inputs.a, *([link.latent(link.clipped(inputs.mean))] if with_mean else [])]
    return np.concatenate([part.reshape(len(inputs), 1, -1) for part in parts], axis=2)


def _score(latent: _Latent, training: Residuals, residuals: Residuals, seed: int) -> float:
    """Return the score of draws for training pairs, about out-of-fold μ(a).

    Args:
        latent: the distribution of z.
        training: z − μ(a), out of fold.
        residuals: u − m(a) of the same pairs.
        seed: of the draws.
    """
    some = slice(None, None, -(-len(residuals) // SCORED_PAIRS))
    few, inner = residuals[some], training[some].inputs
    number = np.arange(len(few))
    rows = [Rows(seed, number, np.full(len(few), member), number) for member in range(SCORE_MEMBERS)]
    members = np.stack([latent.outputs(inner, each) for each in rows])
    return float(scores(members, few.pairs.filled, few.mask, Units.of(few.values, few.mask)).mean())


def _varies(mask: Array | None) -> bool:
    """Return whether outputs are observed at different nodes in different samples."""
    return mask is not None and bool((mask != mask[:1]).any())
