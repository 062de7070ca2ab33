"""Grids on the domain D; restriction R and interpolation I between them (`fig:op-diagram`).

A grid is a product of axes. Nodes of an axis with n points on (low, high):

| kind     | nodes                       | spacing | typical use                                                         |
|----------|-----------------------------|---------|---------------------------------------------------------------------|
| vertex   | low + i·h, both ends        | L/(n−1) | boundary values are stored (1-D elliptic)                           |
| cell     | low + (i + ½)·h             | L/n     | finite volumes (Darcy)                                              |
| periodic | low + i·h, without far end  | L/n     | the far end equals the near end (Burgers)                           |
| left     | low + i·h, without far end  | L/n     | the far end differs from the near end and is not stored (advection) |
| node     | numbers of nodes            |         | the nodes of a mesh that is no grid (`pdno.data.nodes`)             |
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.interpolate import make_interp_spline

from ._typing import Floats
from .basis import Condition, Kind, analyze, capacity, synthesize
from .errors import UserError, nearest

__all__ = ["Axis", "Grid", "Interpolation", "interpolate", "restrict"]

Interpolation = Literal["linear", "cubic", "quintic", "spectral", "series"]
DEGREES = {"cubic": 3, "quintic": 5}
WRAPPED = 24  # nodes by which a spline on a periodic axis is continued at each end: further ones have weights below 1e-8

Transfer = Callable[[Floats, "Axis", "Axis"], Floats]


@dataclass(frozen=True)
class Axis:
    """A uniform axis on (low, high).

    Args:
        points: number of nodes, at least 2.
        kind: of the nodes, see the table of the module.
        low, high: ends of the axis.
        name: of the coordinate.

    Raises:
        UserError: if the kind is unknown, there are fewer than 2 points, or low ≥ high.
    """

    points: int
    kind: Kind = "vertex"
    low: float = 0.0
    high: float = 1.0
    name: str = "x"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise UserError(f"grid kind {self.kind!r} is unknown; {nearest(self.kind, get_args(Kind))}")
        fewest = 1 if self.kind == "node" else 2
        if isinstance(self.points, bool) or not isinstance(self.points, int | np.integer) or self.points < fewest:
            raise UserError(f"points = {self.points!r}: a grid needs a whole number of at least 2 points along each axis")
        if not self.low < self.high:
            raise UserError(f"axis {self.name!r} has low = {self.low} and high = {self.high}; low must be below high")

    @property
    def length(self) -> float:
        """Length L of the axis."""
        return self.high - self.low

    @property
    def intervals(self) -> int:
        """Number of intervals of length h."""
        return self.points - 1 if self.kind == "vertex" else self.points

    @property
    def spacing(self) -> float:
        """Distance h between neighbouring nodes."""
        return self.length / self.intervals

    @property
    def nodes(self) -> Floats:
        """Coordinates of the nodes, (points,)."""
        offset = 0.5 if self.kind == "cell" else 0.0
        return self.low + self.length * ((np.arange(self.points) + offset) / self.intervals)

    @property
    def condition(self) -> Condition:
        """Boundary condition of the default spectral basis."""
        return "periodic" if self.kind == "periodic" else "neumann"


@dataclass(frozen=True)
class Grid:
    """A product of axes.

    Args:
        axes: one to three.

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
        """Return a grid on (low, high)^dim with nodes of one kind.

        Args:
            points: number of points of all axes, or of each; a tuple determines the dimension.
            dim: number of axes, 1 to 3.
            kind: of the nodes, see the table of the module.
            low, high: ends of all axes.

        Raises:
            UserError: if an argument is out of range.
        """
        shape = tuple(points) if isinstance(points, tuple) else (points,) * dim
        if not 1 <= len(shape) <= 3:
            raise UserError(f"got {len(shape)} axes; a grid has one, two or three")
        return cls(tuple(Axis(n, kind, low, high, name) for n, name in zip(shape, "xyz", strict=False)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points of each axis."""
        return tuple(axis.points for axis in self.axes)

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def volume(self) -> float:
        """Volume of the domain."""
        return float(np.prod([axis.length for axis in self.axes]))

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each axis."""
        return tuple(axis.name for axis in self.axes)

    @property
    def coordinates(self) -> dict[str, Floats]:
        """Nodes of each axis by its name."""
        return {axis.name: axis.nodes for axis in self.axes}

    def mesh(self) -> tuple[Floats, ...]:
        """Return the coordinates of all nodes: for each axis an array of the grid's shape."""
        return tuple(np.meshgrid(*(axis.nodes for axis in self.axes), indexing="ij"))

    def with_points(self, *points: int) -> "Grid":
        """Return a grid on the same domain with other numbers of points: one for all axes, or one per axis."""
        shape = points * self.dim if len(points) == 1 else points
        return Grid(tuple(replace(axis, points=n) for axis, n in zip(self.axes, shape, strict=True)))

    def __str__(self) -> str:
        return "x".join(str(n) for n in self.shape)


def restrict(u: Floats, source: Grid, target: Grid, method: Literal["stride", "average"] = "stride") -> Floats:
    """Apply R: restrict fields from a fine grid to a coarse grid on the same domain.

    Args:
        u: fields on the fine grid, (…, *source).
        source, target: the fine and the coarse grid.
        method: "stride" takes the values at the nodes that both grids share; "average" takes the mean over each coarse cell
            and preserves the integral (cell-centred grids only).

    Returns:
        (…, *target).

    Raises:
        UserError: if u is not on the fine grid, or the coarse grid is not contained in it.
    """
    transfers = {"stride": _stride, "average": _average}
    if method not in transfers:
        raise UserError(f"restriction {method!r} is unknown; {nearest(method, transfers)}")
    return _along_axes(u, source, target, transfers[method])


def interpolate(
    u: Floats,
    source: Grid,
    target: Grid,
    method: Interpolation = "linear",
    condition: Condition | None = None,
) -> Floats:
    """Apply I: interpolate fields to another grid on the same domain, finer or coarser.

    Args:
        u: fields, (…, *source).
        source, target: grids with the same domain.
        method: "linear", "cubic" and "quintic" are splines of order 2, 4 and 6, which extrapolate to the half cells at the
            ends of a cell-centred grid; "spectral" is exact for functions in the span of the modes of `source`, less those
            that `target` cannot resolve; "series" evaluates all modes, so that values at common nodes are kept.
        condition: boundary condition of the modes; default: Fourier modes on periodic axes, cosines ("neumann") on others.

    Returns:
        (…, *target).

    Raises:
        UserError: if u is not on `source`, the domains differ, or the modes do not exist on a grid of this kind.
    """
    if method == "linear":
        return _along_axes(u, source, target, _linear)
    if method in DEGREES:
        return _along_axes(u, source, target, lambda v, s, t: _spline(v, s, t, DEGREES[method]))
    if method in ("spectral", "series"):
        kept = method == "series"
        return _along_axes(u, source, target, lambda v, s, t: _spectral(v, s, t, condition or s.condition, kept))
    raise UserError(f"interpolation {method!r} is unknown; {nearest(method, get_args(Interpolation))}")


def _along_axes(u: Floats, source: Grid, target: Grid, transfer: Transfer) -> Floats:
    """Apply a transfer in one dimension along every axis that differs: (…, *source) → (…, *target)."""
    u = np.asarray(u, dtype=np.float64)
    if u.shape[-source.dim :] != source.shape:
        raise UserError(f"u has shape {u.shape}, but the grid is {source}; the last axes of u must be those of the grid")
    if source.dim != target.dim:
        raise UserError(f"the grids have {source.dim} and {target.dim} dimensions; they must have the same number")
    for i, (s, t) in enumerate(zip(source.axes, target.axes, strict=True)):
        if (s.low, s.high) != (t.low, t.high):
            raise UserError(
                f"axis {s.name!r} is ({s.low}, {s.high}) on one grid and ({t.low}, {t.high}) on the other; "
                "the domains must be equal"
            )
        if s != t:
            axis = i - source.dim
            u = np.moveaxis(transfer(np.moveaxis(u, axis, -1), s, t), -1, axis)
    return u


def _ratio(source: Axis, target: Axis) -> int:
    """Return the number of fine intervals in a coarse one."""
    ratio, remainder = divmod(source.intervals, target.intervals)
    if source.kind != target.kind or remainder:
        raise UserError(
            f"a {source.kind} axis of {source.points} points does not contain a {target.kind} axis of {target.points} points: "
            f"{source.intervals} intervals must be a multiple of {target.intervals}; choose other points, or use interpolate"
        )
    return ratio


def _stride(u: Floats, source: Axis, target: Axis) -> Floats:
    """Take the values at the nodes that both axes share: (…, fine) → (…, coarse)."""
    ratio = _ratio(source, target)
    if source.kind == "cell" and ratio % 2 == 0:
        raise UserError(
            f"axes of {source.points} and {target.points} cells share no nodes; use method='average', or an odd ratio"
        )
    return u[..., ratio // 2 if source.kind == "cell" else 0 :: ratio]


def _average(u: Floats, source: Axis, target: Axis) -> Floats:
    """Take the mean over each coarse cell: (…, fine) → (…, coarse)."""
    if source.kind != "cell":
        raise UserError(f"method='average' needs cell-centred grids, not a {source.kind} grid; use method='stride'")
    return np.asarray(u.reshape(*u.shape[:-1], target.points, _ratio(source, target)).mean(axis=-1))


def _linear(u: Floats, source: Axis, target: Axis) -> Floats:
    """Interpolate linearly, with wrap-around along a periodic axis: (…, source) → (…, target)."""
    position = (target.nodes - source.nodes[0]) / source.spacing
    left = np.floor(position).astype(int)
    if source.kind != "periodic":
        left = np.clip(left, 0, source.points - 2)
    weight = position - left
    right = (left + 1) % source.points
    return np.asarray(u[..., left % source.points] * (1 - weight) + u[..., right] * weight)


def _spline(u: Floats, source: Axis, target: Axis, degree: int) -> Floats:
    """Interpolate by a spline without knots next to the ends: (…, source) → (…, target)."""
    nodes: Floats = source.nodes
    if source.kind == "periodic":
        i = np.arange(-WRAPPED, source.points + WRAPPED)
        nodes, u = np.asarray(source.low + i * source.spacing, dtype=np.float64), u[..., i % source.points]
    if len(nodes) <= degree:
        raise UserError(f"a spline of degree {degree} needs {degree + 1} points, the axis {source.name!r} has {len(nodes)}")
    return np.asarray(make_interp_spline(nodes, u, k=degree, axis=-1)(target.nodes))


def _spectral(u: Floats, source: Axis, target: Axis, condition: Condition, all_modes: bool) -> Floats:
    """Evaluate the modes of `source` at the nodes of `target`: all of them, or those that `target` can resolve."""
    c = analyze(u, source.kind, condition)
    kept = c.shape[-1] if all_modes else capacity(target.points, target.kind, condition)
    return synthesize(c[..., :kept], target.points, target.kind, condition)
