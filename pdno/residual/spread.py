r"""The size of residuals: u − m(a) = t(a) S r with r of unit variance.

S (`pdno.residual.scale`) is the same for all inputs: how large errors are at each node and how they are correlated.
t(a) (`pdno.residual.amplitude`) is an input-dependent scale; None for homoscedastic residuals, t = 1.
"""

from dataclasses import dataclass

import numpy as np

from .._typing import Array
from ..work.state import State
from .amplitude import Amplitude
from .law import Inputs, Residuals
from .scale import Scale

__all__ = ["Spread"]


@dataclass(frozen=True, eq=False)
class Spread:
    """S and t."""

    scale: Scale
    amplitude: Amplitude | None = None

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
        """Return r = S⁻¹ (u − m(a))/t(a)."""
        if self.amplitude is None:
            return self.scale.inverse_sqrt(residuals.values)
        t = self.sizes(residuals.inputs)
        return self.scale.inverse_sqrt(residuals.values / _column(t, residuals.values.ndim))

    def restored(self, r: Array, inputs: Inputs, places: Array) -> Array:
        """Return t(a) S r, for the inputs in these places."""
        values = self.scale.sqrt(r)
        return values if self.amplitude is None else _column(self.sizes(inputs)[places], r.ndim) * values

    def log_volume(self, residuals: Residuals) -> float:
        """Return the mean over inputs of log det (t(a) S), over the nodes where S is not zero."""
        zero = 0 * residuals.values[:1]
        d = self.scale.rank(residuals.values.shape[1:])
        volume = -self.scale.log_likelihood(zero)[0] - 0.5 * d * np.log(2 * np.pi)
        return float(volume + d * np.log(self.sizes(residuals.inputs)).mean())

    @property
    def is_homoscedastic(self) -> bool:
        """Whether residuals are equally large for all inputs."""
        return self.amplitude is None

    def describe(self) -> str:
        """Describe S and t in a few words."""
        return self.scale.describe() + ("" if self.amplitude is None else f"; {self.amplitude.describe()}")

    def state(self) -> State:
        """Return S and t, to be saved."""
        parts = {"scale": self.scale.state()}
        return State({}, {}, parts if self.amplitude is None else {**parts, "amplitude": self.amplitude.state()})

    @classmethod
    def from_state(cls, state: State) -> "Spread":
        """Restore what `state` returned."""
        amplitude = state.parts.get("amplitude")
        return cls(Scale.from_state(state.parts["scale"]), None if amplitude is None else Amplitude.from_state(amplitude))


def _column(t: Array, ndim: int) -> Array:
    return t.reshape(-1, *(1,) * (ndim - 1))
