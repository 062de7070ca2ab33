r"""The size of residuals: u − m(a) = t(a) S L C^½ r with r of unit variance.

S (`pdno.residual.scale`) is the same for all inputs: how large errors are at each node and how they are correlated.
L, a triangular matrix, mixes the channels at each node: R = L Lᵀ is the correlation of channels; None if they are independent.
C (`pdno.residual.covariance`) has correlations that are not the same everywhere; None if there are none.
t(a) (`pdno.residual.amplitude`) is an input-dependent scale; None for homoscedastic residuals, t = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._typing import Array, Ints
from ..work.state import State
from .amplitude import Amplitude
from .covariance import Covariance, held_out_likelihoods, is_better
from .estimate import estimate_scale
from .law import Inputs, Residuals
from .scale import Scale

__all__ = ["Spread"]

LEAST_CORRELATION = 0.05  # of channels, below which they count as independent
SIGMAS = 4  # standard errors of a correlation of independent channels, with one value per field
TINY = 1e-300
SHRINKAGE = 1e-3  # of the correlation towards that of independent channels, which keeps L invertible


@dataclass(frozen=True, eq=False)
class Spread:
    """S, t, L and C."""

    scale: Scale
    amplitude: Amplitude | None = None
    channels: Array | None = None
    covariance: Covariance | None = None

    @classmethod
    def of(cls, residuals: Residuals, kind: str = "auto", copies: Array | None = None, groups: Ints | None = None) -> "Spread":
        """Estimate S, L and C, without t.

        Args:
            residuals: out of fold.
            kind: of S; with another one than "auto", there is no C.
            copies: residuals in several orientations, (copy, channel, *grid); default: the residuals.
            groups: equal for copies that are not independent, (copy,).
        """
        if copies is None:
            copies, groups = residuals.values, residuals.groups()

        def with_scale(kind: str) -> Spread:
            scale = estimate_scale(copies, kind, residuals.mask, residuals.periodic or None, groups)
            return cls(scale).with_channels(residuals)

        spread = with_scale(kind)
        if kind != "auto" or residuals.mask is not None:
            return spread
        some = [spread] if spread.scale.independent else [spread, with_scale("point")]
        possible = [(each, each.std) for each in some]
        if residuals.pairs.weights is not None and residuals.pairs.nodes is not None:
            possible.append((with_scale("scalar")._weighted(residuals.pairs.nodes.roots), spread.std))
        return _with_covariance(spread, possible, copies, groups)

    def _weighted(self, roots: Array) -> "Spread":
        """Return the spread in whose r principal components are orthogonal in the inner product of the weights of nodes.

        Args:
            roots: √w of each node, (node,).
        """
        point = np.broadcast_to(self.scale.point, np.broadcast_shapes(self.scale.point.shape, roots.shape))
        return replace(self, scale=replace(self.scale, point=point / roots, kind="point"))

    def with_channels(self, residuals: Residuals) -> "Spread":
        """Return the spread with the correlation of channels of these residuals, where it is significant.

        It is not estimated with missing values, or if residuals are always 0 at some nodes.
        """
        if residuals.values.shape[1] == 1 or residuals.mask is not None or not (self.scale.point > 0).all():
            return self
        r = self.without_noise(residuals)
        flat = np.moveaxis(r, 1, 0).reshape(r.shape[1], -1)
        correlation = np.corrcoef(flat)
        away = np.abs(correlation - np.eye(len(correlation))).max()
        if not away > max(LEAST_CORRELATION, SIGMAS / np.sqrt(len(residuals))):
            return self
        shrunk = (1 - SHRINKAGE) * correlation + SHRINKAGE * np.eye(len(correlation))
        return replace(self, channels=np.linalg.cholesky(shrunk))

    def with_amplitude(self, residuals: Residuals, seed: int) -> "Spread":
        """Return the spread with t(a), if sizes of these residuals vary more than by chance."""
        inputs, drawn = residuals.inputs, self._without_amplitude
        fields = inputs.a, inputs.mean, inputs.scalars
        group = residuals.groups()
        return replace(self, amplitude=Amplitude.of(residuals.values, self.scale, *fields, seed, residuals.mask, drawn, group))

    @cached_property
    def std(self) -> Array:
        """Standard deviation for t = 1 at each node: (channel, *grid), or (channel, 1, …) if all are equal."""
        std = self.scale.std
        if (c := self.covariance) is None:
            return std
        along = replace(self, covariance=None)._without_amplitude(c.vectors)
        gain = np.tensordot(c.variances - c.rest, np.square(along), axes=1)
        return np.asarray(np.sqrt(np.maximum(c.rest * np.square(std) + gain, 0.0)))

    def _with_std(self, std: Array) -> "Spread":
        """Return the spread with this standard deviation at each node, if S has one for each node."""
        if self.scale.kind not in ("point", "both"):
            return self
        factor = np.divide(std, self.std, where=self.std > 0, out=np.ones(self.std.shape))
        return replace(self, scale=replace(self.scale, point=self.scale.point * factor))

    def sizes(self, inputs: Inputs) -> Array:
        """Return t(a): (sample,)."""
        if self.amplitude is None:
            return np.ones(len(inputs))
        amplitude = self.amplitude
        return inputs.once("amplitude", lambda: amplitude(inputs.a, inputs.mean, inputs.scalars))

    def normalised(self, residuals: Residuals, seed: int = 0, purpose: str = "residual") -> Array:
        """Return r = C^−½ L⁻¹ S⁻¹ (u − m(a))/t(a), with noise of unit variance in the null space of S.

        With missing values and correlated errors, r is drawn given the observed values, and has no missing values.
        """
        if residuals.mask is not None and not self.scale.independent:
            values = residuals.values / _column(self.sizes(residuals.inputs), residuals.values.ndim)
            return self.scale.completed(values, residuals.mask, seed, purpose)
        return self.scale.filled(self.without_noise(residuals), seed, purpose)

    def without_noise(self, residuals: Residuals) -> Array:
        """Return r = C^−½ L⁻¹ S⁻¹ (u − m(a))/t(a)."""
        values = residuals.values
        if self.amplitude is not None:
            values = values / _column(self.sizes(residuals.inputs), values.ndim)
        return self.white(values)

    def white(self, values: Array) -> Array:
        """Return C^−½ L⁻¹ S⁻¹ of fields."""
        r = self.scale.inverse_sqrt(values)
        r = r if self.channels is None else _mixed(np.linalg.inv(self.channels), r)
        return r if self.covariance is None else self.covariance.inverse_sqrt(r)

    def restored(self, r: Array, inputs: Inputs, places: Array) -> Array:
        """Return t(a) S L C^½ r, for the inputs in these places."""
        values = self._without_amplitude(r)
        return values if self.amplitude is None else _column(self.sizes(inputs)[places], r.ndim) * values

    def _without_amplitude(self, r: Array) -> Array:
        """Return S L C^½ r."""
        r = r if self.covariance is None else self.covariance.sqrt(r)
        return self.scale.sqrt(r if self.channels is None else _mixed(self.channels, r))

    def log_volume(self, residuals: Residuals) -> float:
        """Return the mean over inputs of log det (t(a) S L C^½), over the nodes where S is not zero."""
        shape = residuals.values.shape[1:]
        return self._volume(shape) + self.scale.rank(shape) * float(np.log(self.sizes(residuals.inputs)).mean())

    def _volume(self, shape: tuple[int, ...]) -> float:
        """Return log det (S L C^½) of fields of this shape (channel, *grid)."""
        d = self.scale.rank(shape)
        volume = -float(self.scale.log_likelihood(np.zeros((1, *shape)))[0]) - 0.5 * d * np.log(2 * np.pi)
        if self.channels is not None:
            volume += np.prod(shape[1:]) * np.log(np.diagonal(self.channels)).sum()
        return float(volume + (0.0 if self.covariance is None else self.covariance.log_volume(d)))

    @property
    def is_homoscedastic(self) -> bool:
        """Whether residuals are equally large for all inputs."""
        return self.amplitude is None

    @property
    def any_grid(self) -> bool:
        """Whether nothing depends on the grid: one standard deviation per channel for all nodes and inputs, and L."""
        one_size = self.scale.kind == "scalar" and self.scale.point[0].size == 1
        return one_size and self.amplitude is None and self.covariance is None

    def describe(self) -> str:
        """Describe S, t, L and C in a few words."""
        words = [self.scale.describe()]
        if self.channels is not None:
            mixed = self.channels @ self.channels.T
            words.append(f"correlation of channels up to {np.abs(mixed - np.diag(np.diagonal(mixed))).max():.2g}")
        if self.covariance is not None:
            words.append(f"other correlations in {len(self.covariance.variances)} components")
        return "; ".join(words if self.amplitude is None else [*words, self.amplitude.describe()])

    def state(self) -> State:
        """Return S, t, L and C, to be saved."""
        some = {"scale": self.scale, "amplitude": self.amplitude, "covariance": self.covariance}
        arrays = {} if self.channels is None else {"channels": self.channels}
        return State({}, arrays, {name: part.state() for name, part in some.items() if part is not None})

    @classmethod
    def from_state(cls, state: State) -> "Spread":
        """Restore what `state` returned."""
        amplitude, covariance = state.parts.get("amplitude"), state.parts.get("covariance")
        t = None if amplitude is None else Amplitude.from_state(amplitude)
        c = None if covariance is None else Covariance.from_state(covariance)
        return cls(Scale.from_state(state.parts["scale"]), t, state.arrays.get("channels"), c)


def _with_covariance(spread: Spread, possible: Sequence[tuple[Spread, Array]], values: Array, groups: Ints | None) -> Spread:
    """Return the best of some spreads with a C of its own and a given std; `spread` if none is better than chance allows."""
    labels = np.arange(len(values)) if groups is None else np.unique(groups, return_inverse=True)[1]
    shape = values.shape[1:]
    squares = np.square(spread.white(values)).reshape(len(values), -1).sum(axis=1)
    alone = -0.5 * spread.scale.rank(shape) * np.log(np.maximum(squares, TINY)) - spread._volume(shape)
    usual = np.bincount(labels, alone)
    best, most = spread, -np.inf
    for each, std in possible:
        if not each.scale.independent and not (each.scale.point > 0).all():
            continue  # the null space of S is not that of C
        r = each.white(values)
        if (held_out := held_out_likelihoods(r, groups)) is None:
            break
        likelihood = held_out.after - held_out.fields * each._volume(shape)
        if likelihood.sum() > most and is_better(likelihood, usual):
            covariance = Covariance.of(r, *held_out.settings)
            if len(covariance.variances):
                best, most = replace(each, covariance=covariance)._with_std(std), float(likelihood.sum())
    return best


def _column(t: Array, ndim: int) -> Array:
    return t.reshape(-1, *(1,) * (ndim - 1))


def _mixed(matrix: Array, r: Array) -> Array:
    """Return matrix · r along the axis of channels of fields (row, channel, *grid)."""
    return np.moveaxis(np.tensordot(matrix, r, axes=(1, 1)), 0, 1)
