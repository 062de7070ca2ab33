"""The domain D and its meshes; restriction R and interpolation I between them (`fig:op-diagram`).

A grid is a product of axes. Nodes of an axis with n points on (low, high):

| kind     | nodes                       | spacing | typical use                                                   |
|----------|-----------------------------|---------|---------------------------------------------------------------|
| vertex   | low + i·h, both ends        | L/(n−1) | boundary values are stored (1-D elliptic)                     |
| cell     | low + (i + ½)·h             | L/n     | finite volumes (Darcy)                                        |
| periodic | low + i·h, far end left out | L/n     | the far end *is* the near end (Burgers)                       |
| left     | low + i·h, far end left out | L/n     | the far end is another point that is not stored (advection)   |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .basis import Condition, Kind, analyze, capacity, synthesize
from .errors import UserError, nearest

__all__ = ["Axis", "Grid", "interpolate", "restrict"]

Array = NDArray[np.float64]
Transfer = Callable[[Array, "Axis", "Axis"], Array]


@dataclass(frozen=True)
class Axis:
    """A uniform axis; see the module's table for the kinds."""

    points: int
    kind: Kind = "vertex"
    low: float = 0.0
    high: float = 1.0
    name: str = "x"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UserError(f"grid kind {self.kind!r} is unknown; {nearest(self.kind, get_args(Kind))}")
        if isinstance(self.points, bool) or not isinstance(self.points, int | np.integer) or self.points < 2:
            raise UserError(f"points = {self.points!r}: a grid needs a whole number of at least 2 points along each axis")
        if not self.low < self.high:
            raise UserError(f"axis {self.name!r} runs from {self.low} to {self.high}; low must be below high")

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def intervals(self) -> int:
        return self.points - 1 if self.kind == "vertex" else self.points

    @property
    def spacing(self) -> float:
        return self.length / self.intervals

    @property
    def nodes(self) -> Array:
        """Coordinates of the points."""
        offset = 0.5 if self.kind == "cell" else 0.0
        return self.low + self.length * ((np.arange(self.points) + offset) / self.intervals)

    @property
    def condition(self) -> Condition:
        """The boundary condition of the natural spectral basis."""
        return "periodic" if self.kind == "periodic" else "neumann"


@dataclass(frozen=True)
class Grid:
    """A product of axes.

    >>> Grid.uniform(64, dim=2, kind="cell").shape
    (64, 64)
    """

    axes: tuple[Axis, ...]

    @classmethod
    def uniform(
        cls,
        points: int | tuple[int, ...],
        dim: int = 1,
        kind: Kind = "vertex",
        low: float = 0.0,
        high: float = 1.0,
    ) -> "Grid":
        """A grid on (low, high)^dim with the same kind of nodes along each axis; `points` may differ by axis."""
        shape = tuple(points) if isinstance(points, tuple) else (points,) * dim
        if not 1 <= len(shape) <= 3:
            raise UserError(f"got {len(shape)} axes; grids have one, two or three")
        return cls(tuple(Axis(n, kind, low, high, name) for n, name in zip(shape, "xyz", strict=False)))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.points for axis in self.axes)

    @property
    def dim(self) -> int:
        return len(self.axes)

    @property
    def volume(self) -> float:
        return float(np.prod([axis.length for axis in self.axes]))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def coordinates(self) -> dict[str, Array]:
        """Name of each axis → its nodes."""
        return {axis.name: axis.nodes for axis in self.axes}

    def mesh(self) -> tuple[Array, ...]:
        """Coordinates of every node, one array of the grid's shape per axis."""
        return tuple(np.meshgrid(*(axis.nodes for axis in self.axes), indexing="ij"))

    def with_points(self, *points: int) -> "Grid":
        """The same domain and kind with other numbers of points (one for all axes, or one each)."""
        each = points * self.dim if len(points) == 1 else points
        return Grid(tuple(replace(axis, points=n) for axis, n in zip(self.axes, each, strict=True)))

    def __str__(self) -> str:
        return "x".join(str(n) for n in self.shape)


def restrict(u: Array, source: Grid, target: Grid, method: Literal["stride", "average"] = "stride") -> Array:
    """R: from a fine grid to a coarse one on the same domain: (…, *source) → (…, *target).

    "stride" keeps the values at those nodes that both grids have; "average" takes the mean over each coarse cell and so
    keeps the integral (cell-centred grids).
    """
    along = {"stride": _stride, "average": _average}
    if method not in along:
        raise UserError(f"restriction {method!r} is unknown; {nearest(method, along)}")
    return _along_axes(u, source, target, along[method])


def interpolate(
    u: Array,
    source: Grid,
    target: Grid,
    method: Literal["linear", "spectral"] = "linear",
    condition: Condition | None = None,
) -> Array:
    """I: values at the nodes of another grid on the same domain, finer or coarser: (…, *source) → (…, *target).

    "linear" has order 2 everywhere, also in the half cells at the ends of a cell-centred grid (by extrapolation).
    "spectral" is exact for functions in the span of the source's modes: Fourier on periodic axes, cosines on others, or
    sines with ``condition="dirichlet"``.
    """
    if method == "linear":
        return _along_axes(u, source, target, _linear)
    if method == "spectral":
        return _along_axes(u, source, target, lambda v, s, t: _spectral(v, s, t, condition or s.condition))
    raise UserError(f"interpolation {method!r} is unknown; {nearest(method, ['linear', 'spectral'])}")


def _along_axes(u: Array, source: Grid, target: Grid, transfer: Transfer) -> Array:
    u = np.asarray(u, dtype=np.float64)
    if u.shape[-source.dim :] != source.shape:
        raise UserError(f"the field has shape {u.shape}, but its grid is {source}; its last axes must be those of the grid")
    if source.dim != target.dim:
        raise UserError(f"cannot move a field from {source.dim} to {target.dim} dimensions")
    for i, (s, t) in enumerate(zip(source.axes, target.axes, strict=True)):
        if (s.low, s.high) != (t.low, t.high):
            raise UserError(f"axis {s.name!r} is ({s.low}, {s.high}) on one grid and ({t.low}, {t.high}) on the other")
        if s != t:
            place = i - source.dim
            u = np.moveaxis(transfer(np.moveaxis(u, place, -1), s, t), -1, place)
    return u


def _ratio(source: Axis, target: Axis) -> int:
    ratio, rest = divmod(source.intervals, target.intervals)
    if source.kind != target.kind or rest:
        raise UserError(
            f"a {source.kind} axis of {source.points} points does not contain a {target.kind} axis of {target.points}; "
            f"the {source.intervals} intervals must be a multiple of the coarse ones (or interpolate instead)"
        )
    return ratio


def _stride(u: Array, source: Axis, target: Axis) -> Array:
    ratio = _ratio(source, target)
    if source.kind == "cell" and ratio % 2 == 0:
        raise UserError(
            f"{source.points} and {target.points} cell-centred points share no nodes; use method='average', or an odd ratio"
        )
    return u[..., ratio // 2 if source.kind == "cell" else 0 :: ratio]


def _average(u: Array, source: Axis, target: Axis) -> Array:
    if source.kind != "cell":
        raise UserError(f"averages over cells need cell-centred grids, not a {source.kind} one; use method='stride'")
    return np.asarray(u.reshape(*u.shape[:-1], target.points, _ratio(source, target)).mean(axis=-1))


def _linear(u: Array, source: Axis, target: Axis) -> Array:
    position = (target.nodes - source.nodes[0]) / source.spacing
    wraps = source.kind == "periodic"
    left = np.floor(position).astype(int)
    if not wraps:
        left = np.clip(left, 0, source.points - 2)
    weight = position - left
    right = (left + 1) % source.points
    return np.asarray(u[..., left % source.points] * (1 - weight) + u[..., right] * weight)


def _spectral(u: Array, source: Axis, target: Axis, condition: Condition) -> Array:
    c = analyze(u, source.kind, condition)
    return synthesize(c[..., : capacity(target.points, target.kind, condition)], target.points, target.kind, condition)
