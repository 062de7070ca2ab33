r"""Gaussian residuals, u − m(a) = t(a) s S L C^½ ξ with ξ ~ N(0, I) (`pdno.residual.spread`).

They are estimated from out-of-fold residuals; s is a random size of the whole field, drawn from the sizes that t(a) does not
explain (1 if t = 1). There is no network.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np
from scipy.special import logsumexp

from .._typing import Array
from ..diffusion.base import White
from ..errors import UserError, nearest
from ..learning.budget import Terms
from ..symmetry import Symmetry
from ..work.state import State
from .law import Density, Inputs, ResidualLaw, Residuals, Rows, ignored_settings, normals
from .scale import Kind as ScaleKind
from .spread import Spread

__all__ = ["Gaussian"]

ORIENTATIONS = 8  # elements of a group under which residuals are transformed to estimate S
VALUES = 2**24  # of transformed residuals; fewer elements are used for larger ones


class Gaussian(ResidualLaw, Density):
    """Gaussian residuals, correlated and heteroscedastic.

    Args:
        scale: kind of S, "scalar", "point", "mode", "both" or "auto", see `pdno.residual.scale`.
        max_steps: largest number of sampling steps that a call may request. A Gaussian needs no steps, but "auto" may select it
            in place of a diffusion, and both accept the same numbers.
    """

    name: ClassVar[str] = "gaussian"
    centred: ClassVar[bool] = True

    def __init__(self, scale: str = "auto", max_steps: int | None = None) -> None:
        if scale not in ("auto", *get_args(ScaleKind)):
            raise UserError(f"residual_scale {scale!r} is unknown; {nearest(str(scale), ('auto', *get_args(ScaleKind)))}")
        self.scale, self.max_steps = scale, max_steps
        self._spread: Spread | None = None

    @property
    def spread(self) -> Spread:
        """S and t.

        Raises:
            UserError: before training.
        """
        if self._spread is None:
            raise UserError("this Gaussian law has not been trained; call learn(residuals, held_out, terms) first")
        return self._spread

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        copies, groups = _transformed(residuals, _some(residuals.elements, residuals.values.size))
        self._spread = Spread.of(residuals, self.scale, copies, groups).with_amplitude(residuals, terms.seed)
        self.std = self._spread.std if self._spread.is_homoscedastic else None
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling, self.max_steps)
        r = normals(White(), inputs.mean.shape[1:], rows).astype(np.float32).astype(np.float64)  # as networks draw them
        if (amplitude := self.spread.amplitude) is not None:
            t = self.spread.sizes(inputs)[rows.places]
            r = r * amplitude.draw(rows.seed, rows.inputs, rows.members, t).reshape(-1, *(1,) * (r.ndim - 1))
        return self.spread.restored(r, inputs, rows.places)

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling, self.max_steps)
        return 0

    def describe(self) -> str:
        """Describe size and correlation of the residuals in a sentence."""
        return f"Gaussian residuals: {self.spread.describe()}."

    def negative_log_density(self, residuals: Residuals, seed: int = 0) -> float:
        """Return −log of the mean over s of N(0, (t(a) s)² S L C Lᵀ Sᵀ), in nats per pair."""
        spread, shape = self.spread, residuals.values.shape
        t = spread.sizes(residuals.inputs)
        s = np.ones((1, 1)) if spread.amplitude is None else spread.amplitude.relative_sizes(t)
        d = spread.scale.rank(shape[1:])
        square = 0.5 * np.square(spread.without_noise(residuals)).reshape(len(t), -1).sum(axis=1)
        mixture = logsumexp(-square[:, None] / s**2 - d * np.log(s), axis=1) - np.log(s.shape[1])
        return float(spread.log_volume(residuals) + 0.5 * d * np.log(2 * np.pi) - mixture.mean())

    def state(self) -> State:
        return State({"scale": self.scale, "max_steps": self.max_steps}, {}, {"spread": self.spread.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls(**state.settings)
        new._spread = Spread.from_state(state.parts["spread"])
        new.std = new._spread.std if new._spread.is_homoscedastic else None
        return new


def _transformed(residuals: Residuals, elements: Sequence[Symmetry]) -> tuple[Array, Array | None]:
    """Return residuals in several orientations, and labels: copies of one pair are not independent."""
    values, groups = residuals.values, residuals.groups()
    if not elements:
        return values, groups
    labels = np.arange(len(values)) if groups is None else groups
    return np.concatenate([g.linear.on_u(values) for g in elements]), np.tile(labels, len(elements))


def _some(elements: Sequence[Symmetry], size: int) -> Sequence[Symmetry]:
    """Return some elements, evenly from the list, such that transformed residuals of this size fit into memory."""
    count = int(np.clip(VALUES // size, 1, ORIENTATIONS))
    return elements[:: max(1, len(elements) // count)][:count]
