"""Selection of an interpolation: fields are moved to half their grid and back, and the way that loses least is the best."""

import numpy as np

from .._typing import Array
from ..grid import Grid, Interpolation, interpolate

__all__ = ["FEWEST_POINTS", "best_interpolation", "half_of", "lost", "possible_interpolations", "relative_distance"]

METHODS: dict[Interpolation, int] = {"series": 4, "quintic": 6, "cubic": 4, "linear": 2}  # and the fewest points they need
FEWEST_POINTS = 4  # along an axis, of a grid that fields are interpolated from or to
ROUNDING = 1e-9  # of losses: the first of equal methods is the best


def lost(values: Array, grid: Grid, method: Interpolation) -> float:
    """Return the part of fields (sample, channel, *grid) that is lost on half the grid, relative to their variation."""
    half = half_of(grid)
    if half is None:
        return 0.0
    return relative_distance(interpolate(interpolate(values, grid, half, method), half, grid, method), np.asarray(values))


def best_interpolation(values: Array, grid: Grid) -> Interpolation:
    """Return the interpolation by which fields lose least on half the grid."""
    return min(possible_interpolations(grid), key=lambda method: max(lost(values, grid, method), ROUNDING))


def possible_interpolations(grid: Grid, factor: int = 2) -> list[Interpolation]:
    """Return the interpolations that exist on a grid that is coarser by a factor."""
    fewest, left = min(grid.shape) // factor, any(axis.kind == "left" for axis in grid.axes)
    return [name for name, least in METHODS.items() if fewest >= least and not (name == "series" and left)] or ["linear"]


def half_of(grid: Grid) -> Grid | None:
    """Return the grid with half the points; None if these are too few."""
    points = [(n + 1) // 2 for n in grid.shape]
    return grid.with_points(*points) if min(points) >= FEWEST_POINTS else None


def relative_distance(values: Array, truth: Array) -> float:
    """Return the mean over samples and channels of ‖v − u‖/‖u − ū‖."""
    flat, exact = (x.reshape(*x.shape[:2], -1) for x in (values, truth))
    size = np.linalg.norm(exact - exact.mean(axis=2, keepdims=True), axis=2)
    error = np.linalg.norm(flat - exact, axis=2)
    return float(np.divide(error, size, out=np.zeros(size.shape), where=size > 0).mean())
