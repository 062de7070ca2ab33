"""What all equations share: a grid, settings that can be written down, and arrays (batch, channel, *grid)."""

import numbers
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError
from ..grid import Grid

__all__ = ["Equation"]

Array = NDArray[np.float64]


class Equation(ABC):
    """A parametric equation 𝒢(u; a) = 0. Subclasses are frozen dataclasses: their fields are their settings.

    Your own equation needs `name`, `grid`, `sample_input`, `solve` and `residual`, and then works with `pdno.generate`. Its
    inputs are numbered: `sample_input(count, seed, first)` gives number `first` up to `first + count − 1`, each a function of
    the seed and its number alone (`pdno.draw.generator` makes a stream for each).
    """

    name: ClassVar[str]
    symmetries: ClassVar[tuple[str, ...]] = ()
    """Maps g with S†(g a) = g S†(a), exact for the continuous equation and for the scheme:

    * ``square``: the eight symmetries of the square, on a and u;
    * ``translation``: periodic shifts of a and u;
    * ``odd-reflection``: a(x) → −a(−x), u(x) → −u(−x);
    * ``reflection-complement``: a(x) → a(−x), u(x) → 1 − u(−x).
    """

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid of a and u."""

    @abstractmethod
    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Array:
        """Random inputs a of the indices first … first + count − 1: (count, 1, *grid)."""

    @abstractmethod
    def solve(self, a: ArrayLike) -> Array:
        """u = S†(a), in the layout of a: (batch, 1, *grid) or (batch, *grid)."""

    @abstractmethod
    def residual(self, u: ArrayLike, a: ArrayLike) -> Array:
        """𝒢(u; a) in the layout of u: zero, to rounding, for ``u = solve(a)``."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        if not is_dataclass(self):
            return {}
        return {f.name: _plain(getattr(self, f.name), f.type) for f in fields(self)}

    def _fields(self, values: ArrayLike, what: str, positive: bool = False) -> Array:
        """`values` as (batch, 1, *grid), checked."""
        v = np.asarray(values)
        if v.dtype.kind not in "biuf":
            raise UserError(f"{what} is of type {v.dtype}, but {type(self).__name__} expects real numbers")
        v = v.astype(np.float64, copy=False)
        shape = self.grid.shape
        if v.shape[1:] == shape:
            v = v[:, None]
        if v.shape[1:] != (1, *shape):
            expected = f"(batch, 1, {', '.join(map(str, shape))})"
            raise UserError(f"{what} has shape {np.shape(values)}, but {type(self).__name__} expects {expected}")
        if not np.isfinite(v).all():
            bad = int(np.argwhere(~np.isfinite(v))[0, 0])
            raise UserError(f"{what} has NaN or infinite values, first in sample {bad}; remove or repair them")
        if positive and not (v > 0).all():
            bad = int(np.argwhere(v <= 0)[0, 0])
            raise UserError(f"{what} must be positive everywhere for {type(self).__name__}; sample {bad} is not")
        return v

    def _both(self, u: ArrayLike, a: ArrayLike, positive: bool = False) -> tuple[Array, Array]:
        """u and a as (batch, 1, *grid), checked to belong together."""
        v, coefficient = self._fields(u, "u"), self._fields(a, "a", positive)
        if len(v) != len(coefficient):
            raise UserError(f"u has {len(v)} samples and a has {len(coefficient)}; give as many of each")
        return v, coefficient

    def _check_points(self, points: int, at_least: int) -> None:
        if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < at_least:
            raise UserError(
                f"points = {points!r}: {type(self).__name__} needs a whole number of at least {at_least} points along each axis"
            )

    def _check_positive(self, **settings: float) -> None:
        for key, value in settings.items():
            if not isinstance(value, numbers.Real) or not (np.isfinite(value) and value > 0):
                raise UserError(f"{key} = {value!r}: {type(self).__name__} needs a positive number")


def _plain(value: Any, declared: Any) -> Any:
    """A setting as JSON knows it: 4, 4.0 and NumPy's 4 are written down alike where a float is declared."""
    if declared in (float, "float"):
        return float(value)
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
