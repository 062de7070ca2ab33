"""Base class of parametric equations 𝒢(u; a) = 0: a grid, serialisable settings, and arrays (batch, channel, *grid)."""

import numbers
from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats
from ..errors import UserError
from ..grid import Grid

__all__ = ["Equation", "as_type"]


class Equation(ABC):
    """A parametric equation 𝒢(u; a) = 0. Subclasses are frozen dataclasses whose fields are the settings.

    A custom equation needs `name`, `grid`, `sample_input`, `solve` and `residual` to work with `pdno.generate`. Inputs have
    indices: `sample_input(count, seed, first)` returns those with the indices first … first + count − 1, each a function of
    the seed and its index alone (`pdno.draw.generator` returns a random stream for each).
    """

    name: ClassVar[str]
    symmetries: ClassVar[tuple[str, ...]] = ()
    """Names of the maps g with S†(g a) = g S†(a), exact for the continuous equation and for the scheme:

    * ``square``: the eight symmetries of the square, on a and u;
    * ``translation``: periodic shifts of a and u;
    * ``odd-reflection``: a(x) → −a(−x), u(x) → −u(−x);
    * ``reflection-complement``: a(x) → a(−x), u(x) → 1 − u(−x).
    """

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """Grid of a and u."""

    @abstractmethod
    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Floats:
        """Draw the inputs a with the indices first … first + count − 1: (count, 1, *grid)."""

    @abstractmethod
    def solve(self, a: ArrayLike) -> Floats:
        """Return u = S†(a) in the layout of a: (batch, 1, *grid) or (batch, *grid)."""

    @abstractmethod
    def residual(self, u: ArrayLike, a: ArrayLike) -> Floats:
        """Return 𝒢(u; a) in the layout of u: zero, up to rounding, for ``u = solve(a)``."""

    def discrete_residual(self, u: Any, a: Any) -> Any:
        """Return 𝒢(u; a) of NumPy arrays or torch tensors (batch, 1, *grid), without checks; tensors can be differentiated.

        Raises:
            UserError: if the equation has no residual without a solver, such as one whose u is the solution at a final time.
        """
        raise UserError(
            f"{type(self).__name__} has no differentiable residual; pass a function residual(u, a) of torch tensors instead"
        )

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the constructor as JSON types."""
        if not is_dataclass(self):
            return {}
        return {f.name: _to_json(getattr(self, f.name), f.type) for f in fields(self)}

    def _as_fields(self, values: ArrayLike, name: str, positive: bool = False) -> Floats:
        """Return the values as (batch, 1, *grid), or raise UserError if their type, shape or range is wrong."""
        v = np.asarray(values)
        if v.dtype.kind not in "biuf":
            raise UserError(f"{name} has type {v.dtype}; {type(self).__name__} expects real numbers")
        v = v.astype(np.float64, copy=False)
        shape = self.grid.shape
        if v.shape[1:] == shape:
            v = v[:, None]
        if v.shape[1:] != (1, *shape):
            expected = f"(batch, 1, {', '.join(map(str, shape))})"
            raise UserError(f"{name} has shape {np.shape(values)}; {type(self).__name__} expects {expected}")
        if not np.isfinite(v).all():
            bad = int(np.argwhere(~np.isfinite(v))[0, 0])
            raise UserError(f"{name} has NaN or infinite values, first in sample {bad}; remove or correct them")
        if positive and not (v > 0).all():
            bad = int(np.argwhere(v <= 0)[0, 0])
            raise UserError(f"{name} must be positive everywhere for {type(self).__name__}; sample {bad} has values ≤ 0")
        return v

    def _as_pair(self, u: ArrayLike, a: ArrayLike, positive: bool = False) -> tuple[Floats, Floats]:
        """Return u and a as (batch, 1, *grid), or raise UserError if they do not match."""
        v, coefficient = self._as_fields(u, "u"), self._as_fields(a, "a", positive)
        if len(v) != len(coefficient):
            raise UserError(f"u has {len(v)} samples and a has {len(coefficient)}; give equally many")
        return v, coefficient

    def _check_points(self, points: int, at_least: int) -> None:
        """Raise UserError unless the number of points is an integer of at least `at_least`."""
        if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < at_least:
            raise UserError(
                f"points = {points!r}: {type(self).__name__} needs a whole number of at least {at_least} points along each axis"
            )

    def _check_positive(self, **settings: float) -> None:
        """Raise UserError unless all settings are finite positive numbers."""
        for key, value in settings.items():
            if not isinstance(value, numbers.Real) or not (np.isfinite(value) and value > 0):
                raise UserError(f"{key} = {value!r}: {type(self).__name__} needs a positive number")


def _to_json(value: Any, declared: Any) -> Any:
    """Return a setting as a JSON type; where a float is declared, 4, 4.0 and NumPy's 4 give the same result."""
    if declared in (float, "float"):
        return float(value)
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def as_type(values: Floats, like: Any) -> Any:
    """Return values in the type of an array or tensor, on its device."""
    return values if isinstance(like, np.ndarray) else like.new_tensor(values)
