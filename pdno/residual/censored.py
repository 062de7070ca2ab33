r"""Outputs at a bound: a latent Gaussian field that is censored there, as in Tobit regression.

    u = h(z),        z = μ(a) + g,        h(z) = b + c max(z, 0)^p   for outputs that are not below b

Rain is zero at most places, and skewed at the others: how dry a dry place is cannot be observed. A member m(a) + residual,
cut off at the bound, has the wrong mean, and errors are smaller next to the bound. z has no bound (`pdno.residual.link`): μ is
linear, and g is Gaussian (`pdno.residual.gaussian`); `pdno.residual.tobit` estimates both. p = 1, 2 or 3 has the lowest score
of draws.
"""

from typing import Any, ClassVar, Self

import numpy as np

from .._typing import Array
from ..data.support import Support
from ..errors import UserError
from ..learning.budget import Terms
from ..mean.linear.linear import Linear
from ..work.state import State
from .gaussian import Gaussian
from .law import Expectation, Inputs, ResidualLaw, Residuals, Rows, ignored_settings
from .link import Link
from .tobit import AFFINE, Latent, Tobit

__all__ = ["Censored"]

LEAST_SHARE = 0.03  # of the values of a channel at its bounds, for which the law is tried
POWERS = (1, 2, 3)  # values of p that are compared
COMPARED = 4  # iterations of expectation–maximisation after which they are compared
ITERATIONS = 20  # of the best one
TIME_SHARE = 0.3  # of the remaining time, after which no further iteration begins
SIZES = 32  # groups of random sizes of a field over which the mean is averaged


class Censored(ResidualLaw, Expectation):
    """Outputs that are a bounded function of a Gaussian field.

    Args:
        power: p; default: the one of 1, 2 and 3 with the lowest score of draws, which is kept if the law is trained again.
    """

    name: ClassVar[str] = "censored"

    def __init__(self, power: int | None = None) -> None:
        if power is not None and power not in POWERS:
            raise UserError(f"power = {power!r}: expected one of {', '.join(map(str, POWERS))}, or None to select it")
        self.power = power
        self._latent: Latent | None = None
        self._live = np.ones(1, bool)  # where outputs are ever observed, (channel, *grid)

    @staticmethod
    def applies(residuals: Residuals) -> bool:
        """Return whether enough outputs are at a bound, and all outputs at the same nodes."""
        u, mask = residuals.pairs.u, residuals.mask
        support = Support.of(u, mask)
        if support is None or (np.isfinite(support.values).sum(axis=1) > 1).any() or residuals.pairs.mask_varies:
            return False
        at_bound = Link.of(u, mask, 1).sides(u) != 0
        seen = np.ones(u.shape, bool) if mask is None else mask
        axes = (0, *range(2, u.ndim))
        return bool(((at_bound & seen).sum(axis=axes) > LEAST_SHARE * seen.sum(axis=axes)).any())

    # Training

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        mask, share = residuals.mask, terms.within(terms.left(TIME_SHARE))
        if residuals.pairs.mask_varies:
            raise UserError("the law 'censored' needs outputs at the same nodes in all samples; use law='gaussian'")
        self._live = np.ones(residuals.values.shape[1:], bool) if mask is None else np.asarray(mask[0])
        given = self.power if self._latent is None else self._latent.link.power
        powers, trained = _powers(residuals) if given is None else (given,), list[Tobit]()
        for power in powers:
            if not trained or share.left_here() != 0:
                trained.append(Tobit(residuals, self._live, power, terms.seed).iterate(COMPARED, share))
        scores = [each.score(terms) for each in trained] if len(trained) > 1 else [0.0]
        best = trained[int(np.argmin(scores))].iterate(ITERATIONS - COMPARED, share)
        self._latent, _ = best.estimated(AFFINE if share.left_here() == 0 else {}, terms)
        return self

    # Sampling

    @property
    def latent(self) -> Latent:
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
        return inputs.once("censored", lambda: self.latent.inner(inputs))

    def expectation(self, inputs: Inputs, seed: int = 0) -> Array:
        """Return E[u | a] − m(a), in closed form at each node for each of some sizes of the field."""
        inner, link, spread = self._inner(inputs), self.latent.link, self.latent.noise.spread
        t, column = spread.sizes(inner), (-1, *(1,) * (inner.mean.ndim - 1))
        relative = np.ones((len(t), 1)) if spread.amplitude is None else np.sort(spread.amplitude.relative_sizes(t), axis=1)
        groups = np.array_split(relative, min(SIZES, relative.shape[1]), axis=1)
        parts = [(g.shape[1], link.expectation(inner.mean, spread.std * (t * g.mean(axis=1)).reshape(column))) for g in groups]
        mean = sum(count * values for count, values in parts) / relative.shape[1]
        return np.where(self._live, mean - inputs.mean, 0.0)

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        power = "" if self.latent.link.power == 1 else f" to the power {self.latent.link.power}"
        return f"A Gaussian field{power}, censored where outputs are at a bound. {self.latent.noise.describe()}"

    # Saving

    def state(self) -> State:
        link, mean, with_mean, noise = self.latent
        arrays = {"bounds": link.bounds, "unit": link.unit, "live": self._live.astype(np.uint8)}
        settings = {"power": self.power, "selected": link.power, "with_mean": with_mean}
        return State(settings, arrays, {"mean": mean.state(), "noise": noise.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new, settings = cls(state.settings["power"]), state.settings
        link = Link(np.asarray(state.arrays["bounds"]), np.asarray(state.arrays["unit"]), int(settings["selected"]))
        mean, noise = Linear.from_state(state.parts["mean"]), Gaussian.from_state(state.parts["noise"])
        new._live = np.asarray(state.arrays["live"]) > 0
        new._latent = Latent(link, mean, bool(settings["with_mean"]), noise)
        return new


def _powers(residuals: Residuals) -> tuple[int, ...]:
    """Return the powers to compare: several if a channel has one bound."""
    support = Support.of(residuals.pairs.u, residuals.mask)
    return POWERS if support is not None and (np.isfinite(support.bounds).sum(axis=1) == 1).any() else POWERS[:1]
