r"""Sizes of a field by wavelength: the error of a network is smooth, noise is not, and the two vary from field to field.

    s_b² = mean of c_k² over the modes k of band b,        c = Bᵀ e        (`pdno.basis.modes`)

Bands are bounded by fractions of the largest wavenumber |k| of the grid. Fields are changed band by band: each is multiplied
by a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial import KDTree

from .._typing import Array
from ..basis import fields, modes, squared_waves
from ..work.state import State

__all__ = ["COARSE", "OCTAVES", "Bands", "Regression", "enlarged", "matched"]

COARSE = (0.25, 0.5)  # smooth, rough, and noise of neighbouring nodes
OCTAVES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
QUARTERS = tuple(2 ** (-k / 4) for k in range(24, 0, -1))  # of octaves: spectra may be steep
FEWEST_MATCHED = 50  # fields, below which sizes of all are compared
NEAREST = 100  # fields that one is compared with; with few, the mean of ratios is too large
NEAREST_SHARE = 8  # of all, one of so many at most
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
    periodic: tuple[bool | None, ...]
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
        return np.asarray(np.sqrt(self._sums(c) / np.bincount(self._number)))

    def power(self, e: Array) -> Array:
        """Return the mean square of each band over all fields: (channel, band)."""
        c = np.square(modes(e, self.periodic)).mean(axis=0).reshape(e.shape[1], -1)
        return np.asarray(self._sums(c) / np.bincount(self._number))

    def products(self, x: Array, y: Array) -> Array:
        """Return the inner products ⟨x_b, y_b⟩ of the bands of two fields: (sample, channel, band)."""
        c = (modes(x, self.periodic) * modes(y, self.periodic)).reshape(*x.shape[:2], -1)
        return self._sums(c)

    def cosines(self, x: Array, y: Array) -> Array:
        """Return the cosines of the angles between the bands of two fields: (sample, channel, band)."""
        return np.asarray(self.products(x, y) / np.sqrt(np.maximum(self.products(x, x) * self.products(y, y), TINY)))

    def _sums(self, c: Array) -> Array:
        """Return sums over the modes of each band: (…, node) → (…, band)."""
        return np.stack([c[..., self._number == b].sum(axis=-1) for b in range(self.count)], axis=-1)

    def multiplied(self, e: Array, factors: Array) -> Array:
        """Return fields with each band multiplied by its factor, (sample or 1, channel or 1, band)."""
        if self.count == 1:
            return np.asarray(e * factors[..., 0].reshape(*factors.shape[:2], *(1,) * len(self.grid)))
        each = factors[..., self._number].reshape(*factors.shape[:2], *self.grid)
        return fields(modes(e, self.periodic) * each, self.periodic)


def enlarged(train: Array, new: Array, periodic: tuple[bool | None, ...]) -> Array:
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


def matched(train: Array, new: Array, numbers: Array, numbers_new: Array, periodic: tuple[bool | None, ...]) -> Array:
    """Return in-sample fields with the sizes of held-out ones in each octave of wavenumbers, if these are larger.

        p_new ≈ α p + δ,        α ≥ 1, δ ≥ 0

    p is the power of an octave. A prediction fits a part of the noise of its training pairs, which is a share of it (α); its
    error adds the same to all fields (δ), which is much for fields with little noise. Held-out fields are compared with the
    in-sample ones that have the nearest numbers, because noise may depend on these, by least squares of log p: the few fields
    with large errors do not decide on all others.

    Args:
        train: in-sample residuals, (sample, channel, *grid).
        new: those of held-out pairs, likewise.
        numbers: of each field of `train`, (sample, number).
        numbers_new: of each field of `new`, likewise.
        periodic: whether each axis is periodic.
    """
    if len(new) < FEWEST_MATCHED or len(train) < FEWEST_MATCHED:
        return enlarged(train, new, periodic)
    octaves = Bands(train.shape[2:], periodic, OCTAVES)
    unit = np.maximum(numbers.std(axis=0), TINY)
    near = KDTree(numbers / unit).query(numbers_new / unit, min(NEAREST, len(train) // NEAREST_SHARE))[1]
    power, power_new = (np.maximum(octaves.products(e, e), TINY) for e in (train, new))
    expected = np.exp(np.log(power)[near].mean(axis=1))
    factors = np.empty(power.shape)
    for place in np.ndindex(*power.shape[1:]):
        excess, delta = _excess(expected[:, *place], power_new[:, *place])
        factors[:, *place] = np.sqrt(1 + excess + delta / power[:, *place])
    return np.where((train != 0).any(axis=0), octaves.multiplied(train, factors), 0.0)


def _excess(p: Array, p_new: Array) -> tuple[float, float]:
    """Return α − 1 and δ of log p_new ≈ log(α p + δ), both at least 0, by least squares."""
    unit = float(np.median(p))

    def misfit(x: Array) -> Array:
        return np.asarray(np.log((1 + x[0]) * p / unit + x[1]) - np.log(p_new / unit))

    excess, delta = least_squares(misfit, [0.1, 0.1], bounds=(0.0, np.inf)).x
    return float(excess), float(delta * unit)


@dataclass(frozen=True, eq=False)
class Regression:
    r"""The regression of fields on their predictions, band by band.

        m ↦ μ + Σ_b c_b (m − μ)_b,        c_b = ⟨(u − μ)_b, (m − μ)_b⟩ / ⟨(m − μ)_b, (m − μ)_b⟩

    Errors of a prediction that are independent of u make it too large, most of all at short wavelengths. After the regression
    its errors are uncorrelated with it, so that the prediction plus an independent draw of its errors is as rough as u.

    Args:
        bands: of the modes.
        centre: μ, (channel, 1, …).
        factors: c, (channel, band).
    """

    bands: Bands
    centre: Array
    factors: Array

    @classmethod
    def of(cls, u: Array, prediction: Array, periodic: tuple[bool | None, ...]) -> Self:
        """Return the regression of fields of new pairs, (sample, channel, *grid), on their predictions.

        c_b is larger than its estimate by one standard error, and within [0, 1]: a prediction is not enlarged, and is made
        smaller only if that is not by chance. Fields may be periodic without being declared so: modes of periodic fields are
        used if they leave less.
        """
        kinds = dict.fromkeys([periodic, periodic if None in periodic else (True,) * len(periodic)])
        each = [cls._of(u, prediction, Bands(u.shape[2:], kind, QUARTERS)) for kind in kinds]
        return min(each, key=lambda regression: float(np.square(u - regression(prediction)).sum()))

    @classmethod
    def _of(cls, u: Array, prediction: Array, bands: Bands) -> Self:
        centre = u.mean(axis=(0, *range(2, u.ndim)), keepdims=True)[0]
        m = prediction - centre
        products, squares = bands.products(u - prediction, m), bands.products(m, m)
        total = np.maximum(squares.sum(axis=0), TINY)
        excess = products.sum(axis=0) / total
        stderr = np.sqrt(np.square(products - excess * squares).sum(axis=0)) / total
        return cls(bands, centre, np.clip(1 + excess + stderr, 0.0, 1.0))

    def __call__(self, prediction: Array) -> Array:
        """Return the regression of fields (sample, channel, *grid)."""
        if (self.factors == 1).all():
            return prediction
        return np.asarray(self.centre + self.bands.multiplied(prediction - self.centre, self.factors[None]))

    def state(self) -> State:
        """Return what `from_state` restores."""
        settings = {"grid": list(self.bands.grid), "periodic": list(self.bands.periodic)}
        return State(settings, {"centre": self.centre, "factors": self.factors})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        bands = Bands(tuple(state.settings["grid"]), tuple(state.settings["periodic"]), QUARTERS)
        return cls(bands, np.asarray(state.arrays["centre"]), np.asarray(state.arrays["factors"]))
