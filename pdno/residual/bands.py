r"""Sizes of a field by wavelength: the error of a network is smooth, noise is not, and the two vary from field to field.

    s_b² = mean of c_k² over the modes k of band b,        c = Bᵀ e        (`pdno.basis.modes`)

Bands are bounded by fractions of the largest wavenumber |k| of the grid. Fields are changed band by band: each is multiplied
by a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._typing import Array
from ..basis import fields, modes, squared_waves

__all__ = ["COARSE", "Bands", "enlarged"]

COARSE = (0.25,)  # smooth and rough
OCTAVES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
FEWEST_MODES = 4  # of a band; smaller ones are joined to the next
TINY = 1e-300


@dataclass(frozen=True)
class Bands:
    """Bands of the modes of fields (…, channel, *grid).

    Args:
        grid: number of points along each axis.
        periodic: whether each axis is periodic.
        edges: fractions of the largest wavenumber, ascending; a band of too few modes is joined to the next one.

    >>> bands = Bands((64,), (False,), (0.25,))
    >>> x = np.linspace(0, np.pi, 64)
    >>> e = np.stack([np.cos(x), np.cos(40 * x)])[:, None]
    >>> bool((bands.sizes(e)[:, 0] > 5 * bands.sizes(e)[:, 1])[0]), bands.count
    (True, 2)
    """

    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    edges: Sequence[float]

    @cached_property
    def _number(self) -> Array:
        """Number of the band of each mode, (node,)."""
        waves = np.sqrt(squared_waves(self.grid, self.periodic) / len(self.grid))
        number = np.searchsorted(np.asarray(self.edges) * waves.max(), waves, side="left")
        while (small := np.flatnonzero((counts := np.bincount(number)) < FEWEST_MODES)).size and len(counts) > 1:
            number = number - (number > min(small[0], len(counts) - 2))
        return np.asarray(number)

    @property
    def count(self) -> int:
        """Number of bands."""
        return int(self._number.max()) + 1

    def sizes(self, e: Array, unit: Array | float = 1.0) -> Array:
        """Return the root mean square of each band of each field, (sample, band), with channels in these units."""
        c = np.square(modes(e / unit, self.periodic)).mean(axis=1).reshape(len(e), -1)
        return np.asarray(np.sqrt(np.stack([c[:, self._number == b].mean(axis=1) for b in range(self.count)], axis=1)))

    def power(self, e: Array) -> Array:
        """Return the mean square of each band over all fields: (channel, band)."""
        c = np.square(modes(e, self.periodic)).mean(axis=0).reshape(e.shape[1], -1)
        return np.stack([c[:, self._number == b].mean(axis=1) for b in range(self.count)], axis=1)

    def multiplied(self, e: Array, factors: Array) -> Array:
        """Return fields with each band multiplied by its factor, (sample or 1, channel or 1, band)."""
        if self.count == 1:
            return np.asarray(e * factors[..., 0].reshape(*factors.shape[:2], *(1,) * len(self.grid)))
        each = factors[..., self._number].reshape(*factors.shape[:2], *self.grid)
        return fields(modes(e, self.periodic) * each, self.periodic)


def enlarged(train: Array, new: Array, periodic: tuple[bool, ...]) -> Array:
    """Return in-sample fields with the size of held-out ones in each octave of wavenumbers, if these are larger.

    Nodes where all fields are 0 stay so.

    Args:
        train: in-sample residuals, (sample, channel, *grid).
        new: those of held-out pairs, likewise.
        periodic: whether each axis is periodic.
    """
    octaves = Bands(train.shape[2:], periodic, OCTAVES)
    factors = np.sqrt(np.maximum(octaves.power(new) / np.maximum(octaves.power(train), TINY), 1.0))
    return np.where((train != 0).any(axis=0), octaves.multiplied(train, factors[None]), 0.0)
