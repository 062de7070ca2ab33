r"""The size of residuals: u − m(a) = t(a) S L r with r of unit variance.

S (`pdno.residual.scale`) is the same for all inputs: how large errors are at each node and how they are correlated.
L, a triangular matrix, mixes the channels at each node: R = L Lᵀ is the correlation of channels; None if they are independent.
t(a) (`pdno.residual.amplitude`) is an input-dependent scale; None for homoscedastic residuals, t = 1.
"""

from dataclasses import dataclass, replace

import numpy as np

from .._typing import Array
from ..work.state import State
from .amplitude import Amplitude
from .law import Inputs, Residuals
from .scale import Scale

__all__ = ["Spread"]

LEAST_CORRELATION = 0.05  # of channels, below which they count as independent
SIGMAS = 4  # standard errors of a correlation of independent channels, with one value per field
SHRINKAGE = 1e-3  # of the correlation towards that of independent channels, which keeps L invertible


@dataclass(frozen=True, eq=False)
class Spread:
    """S, t and L."""

    scale: Scale
    amplitude: Amplitude | None = None
    channels: Array | None = None

    def with_channels(self, residuals: Residuals) -> "Spread":
        """Return the spread with the correlation of channels of these residuals, where it is significant.

        It is not estimated with missing values, or if residuals are always 0 at some nodes.
        """
        if residuals.values.shape[1] == 1 or residuals.mask is not None or not (self.scale.point > 0).all():
            return self
        r = replace(self, channels=None).without_noise(residuals)
        flat = np.moveaxis(r, 1, 0).reshape(r.shape[1], -1)
        correlation = np.corrcoef(flat)
        away = np.abs(correlation - np.eye(len(correlation))).max()
        if not away > max(LEAST_CORRELATION, SIGMAS / np.sqrt(len(residuals))):
            return self
        shrunk = (1 - SHRINKAGE) * correlation + SHRINKAGE * np.eye(len(correlation))
        return replace(self, channels=np.linalg.cholesky(shrunk))

    def sizes(self, inputs: Inputs) -> Array:
        """Return t(a): (sample,)."""
        if self.amplitude is None:
            return np.ones(len(inputs))
        amplitude = self.amplitude
        return inputs.once("amplitude", lambda: amplitude(inputs.a, inputs.mean, inputs.scalars))

    def normalised(self, residuals: Residuals, seed: int = 0, purpose: str = "residual") -> Array:
        """Return r = S⁻¹ (u − m(a))/t(a), with noise of unit variance in the null space of S.

        With missing values and correlated errors, r is drawn given the observed values, and has no missing values.
        """
        if residuals.mask is not None and not self.scale.independent:
            values = residuals.values / _column(self.sizes(residuals.inputs), residuals.values.ndim)
            return self.scale.completed(values, residuals.mask, seed, purpose)
        return self.scale.filled(self.without_noise(residuals), seed, purpose)

    def without_noise(self, residuals: Residuals) -> Array:
        """Return r = L⁻¹ S⁻¹ (u − m(a))/t(a)."""
        values = residuals.values
        if self.amplitude is not None:
            values = values / _column(self.sizes(residuals.inputs), values.ndim)
        r = self.scale.inverse_sqrt(values)
        return r if self.channels is None else _mixed(np.linalg.inv(self.channels), r)

    def restored(self, r: Array, inputs: Inputs, places: Array) -> Array:
        """Return t(a) S L r, for the inputs in these places."""
        values = self.scale.sqrt(r if self.channels is None else _mixed(self.channels, r))
        return values if self.amplitude is None else _column(self.sizes(inputs)[places], r.ndim) * values

    def log_volume(self, residuals: Residuals) -> float:
        """Return the mean over inputs of log det (t(a) S L), over the nodes where S is not zero."""
        zero = 0 * residuals.values[:1]
        d = self.scale.rank(residuals.values.shape[1:])
        volume = -self.scale.log_likelihood(zero)[0] - 0.5 * d * np.log(2 * np.pi)
        if self.channels is not None:
            volume += residuals.values[0, 0].size * np.log(np.diagonal(self.channels)).sum()
        return float(volume + d * np.log(self.sizes(residuals.inputs)).mean())

    @property
    def is_homoscedastic(self) -> bool:
        """Whether residuals are equally large for all inputs."""
        return self.amplitude is None

    def describe(self) -> str:
        """Describe S, t and L in a few words."""
        words = [self.scale.describe()]
        if self.channels is not None:
            mixed = self.channels @ self.channels.T
            words.append(f"correlation of channels up to {np.abs(mixed - np.diag(np.diagonal(mixed))).max():.2g}")
        return "; ".join(words if self.amplitude is None else [*words, self.amplitude.describe()])

    def state(self) -> State:
        """Return S, t and L, to be saved."""
        parts, arrays = {"scale": self.scale.state()}, {} if self.channels is None else {"channels": self.channels}
        return State({}, arrays, parts if self.amplitude is None else {**parts, "amplitude": self.amplitude.state()})

    @classmethod
    def from_state(cls, state: State) -> "Spread":
        """Restore what `state` returned."""
        amplitude = state.parts.get("amplitude")
        t = None if amplitude is None else Amplitude.from_state(amplitude)
        return cls(Scale.from_state(state.parts["scale"]), t, state.arrays.get("channels"))


def _column(t: Array, ndim: int) -> Array:
    return t.reshape(-1, *(1,) * (ndim - 1))


def _mixed(matrix: Array, r: Array) -> Array:
    """Return matrix · r along the axis of channels of fields (row, channel, *grid)."""
    return np.moveaxis(np.tensordot(matrix, r, axes=(1, 1)), 0, 1)
