r"""Errors of a prediction that are aligned with it: an amplitude that is a little too large or too small.

    e_b = |e_b| (c_b f̂_b + √(1 − c_b²) ĝ_b)  ↦  |e_b| (c'_b f̂_b + √(1 − c'_b²) ĝ_b),        artanh c' = A artanh c

e is a draw of the errors, f the field that they are added to, and c_b the cosine of the angle between them in octave b of
wavenumbers. Draws are independent of f, so that their cosines are small and unrelated; those of a network's errors are not: an
amplitude is wrong in all octaves alike. They decide how much the roughness and the maximum of f + e vary.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from .._typing import Array
from ..evaluation.bands import OCTAVES, Bands
from ..work.state import State

__all__ = ["Alignment"]

FEWEST_PAIRS = 50  # held-out pairs from which A is estimated
SHIFTS = 8  # pairings of errors with fields of other pairs
LARGEST = 1 - 1e-9  # cosine
ROUNDING = 1e-9  # variance of a cosine, for a band in which fields are 0
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Alignment:
    """The angles between errors and fields.

    Args:
        bands: octaves of wavenumbers.
        matrices: A, (channel, band, band).
    """

    bands: Bands
    matrices: Array

    @classmethod
    def of(cls, errors: Array, fields: Array, periodic: tuple[bool | None, ...]) -> Self:
        """Return the alignment of errors of held-out pairs with their fields, (sample, channel, *grid).

        With A, errors of other pairs have the same second moments of artanh c.
        """
        bands = Bands(errors.shape[2:], periodic, OCTAVES)
        if len(errors) < FEWEST_PAIRS:
            return cls(bands, np.tile(np.eye(bands.count), (errors.shape[1], 1, 1)))
        own = _angles(bands.cosines(errors, fields))
        shifted = (np.roll(errors, shift, axis=0) for shift in np.linspace(1, len(errors) - 1, SHIFTS).astype(int))
        others = _angles(np.concatenate([bands.cosines(each, fields) for each in shifted]))
        return cls(bands, _factor(own) @ np.linalg.inv(_factor(others)))

    def __call__(self, errors: Array, fields: Array) -> Array:
        """Return draws of errors with the alignment of those of new pairs, (sample, channel, *grid)."""
        bands = self.bands
        size, unit = (np.sqrt(np.maximum(bands.products(x, x), TINY)) for x in (errors, fields))
        angles = _angles(bands.products(errors, fields) / (size * unit))
        before, after = np.tanh(angles), np.tanh(np.einsum("cij,ncj->nci", self.matrices, angles))
        rest = np.sqrt((1 - after**2) / (1 - before**2))
        return bands.multiplied(errors, rest) + bands.multiplied(fields, (after - rest * before) * size / unit)

    def state(self) -> State:
        """Return what `from_state` restores."""
        return State({"grid": list(self.bands.grid), "periodic": list(self.bands.periodic)}, {"matrices": self.matrices})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        bands = Bands(tuple(state.settings["grid"]), tuple(state.settings["periodic"]), OCTAVES)
        return cls(bands, np.asarray(state.arrays["matrices"]))


def _angles(cosines: Array) -> Array:
    return np.asarray(np.arctanh(np.clip(cosines, -LARGEST, LARGEST)))


def _factor(angles: Array) -> Array:
    """Return the Cholesky factor of the second moments of (sample, channel, band): (channel, band, band)."""
    moments = np.einsum("nci,ncj->cij", angles, angles) / len(angles)
    return np.linalg.cholesky(moments + ROUNDING * np.eye(angles.shape[2]))
