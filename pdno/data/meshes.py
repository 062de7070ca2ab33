"""Grids that are not those of training: the spaces of predictions on them, and training pairs on several."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from .._typing import Array
from ..basis import Kind
from ..errors import UserError
from ..grid import interpolate
from .arrays import arranged
from .interpolation import FEWEST_POINTS, best_interpolation
from .pairs import to_numpy
from .selection import CHANNEL, SAMPLE
from .spaces import Spaces, input_kinds, unit_grid

__all__ = ["Points", "on_finest", "on_one_grid", "spaces_on"]

Points = int | Sequence[int]
UNEVEN = 1e-3  # largest difference of two spacings of an evenly spaced axis, relative to the spacing
SAME_END = 1e-3  # largest distance between the ends of two domains that are the same, in units of their length


def spaces_on(spaces: Spaces, a: Any, points: Points | None = None) -> Spaces:
    """Return the spaces of a prediction: those of training, or on the grid of the user's inputs.

    Outputs are on the grid of the inputs if that is so in training, else on the grid of training.

    Args:
        spaces: of training.
        a: the user's inputs; None for a model of scalars alone.
        points: of the grid of the outputs, one number for all axes or one for each.

    Raises:
        UserError: if inputs have other channels or another number of axes, their domain is another one, or `points` are no
            grid. Inputs that only `Spaces.inputs` can explain get the spaces of training, where they are refused.
    """
    shape = _grid_of(spaces, a)
    if "node" in spaces.kind and (points is not None or shape not in (None, spaces.a_shape[1:])):
        raise UserError(
            f"this model was trained on fields on the nodes of one mesh, {spaces.u_shape[-1]} of them; give inputs on the same "
            "nodes and no points, or interpolate the fields to a grid before training"
        )
    target = spaces
    if shape is not None and shape != spaces.a_shape[1:]:
        _check_points(shape, "a")
        shared = spaces.a_shape[1:] == spaces.u_shape[1:]
        new = _coordinates(spaces, a, shape)
        target = replace(spaces, a_shape=(spaces.a_shape[0], *shape))
        target = _with_outputs(target, shape, new) if shared else target
    if points is None:
        return target
    wanted = _points(points, len(spaces.u_shape) - 1)
    return target if wanted == target.u_shape[1:] else _with_outputs(target, wanted, _spread(spaces, wanted))


def on_one_grid(
    parts: Sequence[tuple[Any, Any]], kind: Kind | Sequence[Kind] = "cell", dims: str | None = None
) -> tuple[Array, Array, str, str]:
    """Return pairs on several grids of one domain on the finest of them, by the interpolation that loses least.

    Args:
        parts: inputs and outputs on each grid, as in `Surrogate.fit`.
        kind: of the axes, see `pdno.grid`.
        dims: names of dimensions, where shapes are ambiguous.

    Returns:
        All inputs and all outputs, the names of their dimensions, and a sentence about grids that were interpolated.

    Raises:
        UserError: if there are no parts, or they differ in channels or number of axes.
    """
    if not parts or any(not isinstance(part, tuple | list) or len(part) != 2 for part in parts):
        raise UserError("expected pairs of arrays on each grid, such as fit([(a1, u1), (a2, u2)])")
    pairs, channels = zip(*(arranged(a, u, None, None, None, dims) for a, u in parts), strict=True)
    a, coarser_a = on_finest([each.a for each in pairs], kind)
    u, coarser_u = on_finest([each.u for each in pairs], kind)
    names = [",".join(("sample", "channel", *"xyz"[: x.ndim - 2])) for x in (a, u)]
    if not all(channels):
        u, names[1] = u[:, 0], names[1].replace("channel,", "")
    coarser = ", ".join(dict.fromkeys(coarser_a + coarser_u))
    return a, u, ":".join(names), f"Training pairs on coarser grids ({coarser}) were interpolated." if coarser else ""


def on_finest(
    fields: Sequence[Array], kind: Kind | Sequence[Kind], points: tuple[int, ...] | None = None
) -> tuple[Array, list[str]]:
    """Return fields (sample, channel, *grid) on the finest grid, and the names of grids that they were interpolated from.

    Args:
        fields: on each grid.
        kind: of the axes, see `pdno.grid`.
        points: of the finest grid; default: the largest numbers of points of these fields.
    """
    shapes = [x.shape[1:] for x in fields]
    if len({(shape[0], len(shape)) for shape in shapes}) > 1:
        raise UserError(f"fields on several grids have shapes {shapes}; they need the same channels and number of axes")
    points = points or tuple(max(sides) for sides in zip(*(shape[1:] for shape in shapes), strict=True))
    kinds = input_kinds(kind, len(points))
    grids, target = [unit_grid(shape[1:], kinds) for shape in shapes], unit_grid(points, kinds)
    moved = [
        x if grid == target else interpolate(x, grid, target, best_interpolation(x, grid))
        for x, grid in zip(fields, grids, strict=True)
    ]
    return np.concatenate(moved), [str(grid) for grid in grids if grid != target]


def _grid_of(spaces: Spaces, a: Any) -> tuple[int, ...] | None:
    """Return the points of the user's inputs, if they have the channels and the number of axes of training."""
    if a is None:
        return None
    channels, dim = spaces.a_shape[0], len(spaces.a_shape) - 1
    if isinstance(a, xr.DataArray):
        sizes = {str(name): int(size) for name, size in a.sizes.items()}
        if all(axis in sizes for axis in spaces.a_axes):
            return tuple(sizes[axis] for axis in spaces.a_axes)
        left = [size for name, size in sizes.items() if name not in (SAMPLE, CHANNEL, "a_channel")]
        return tuple(left) if len(left) == dim else None
    shape = tuple(to_numpy(a).shape)
    if shape[1:] in (spaces.a_shape, spaces.a_shape[1:]):
        return spaces.a_shape[1:]
    if len(shape) == dim + 2 and shape[1] == channels:
        return shape[2:]
    table = spaces.scalars > 0 and len(shape) == 2  # of scalars, which `Spaces.inputs` also takes in the place of a
    return shape[1:] if len(shape) == dim + 1 and channels == 1 and not table else None


def _coordinates(spaces: Spaces, a: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the nodes of a new grid: those of the user's inputs, which must span the domain of training, or even ones."""
    new = _spread(spaces, shape)
    for name, kind in zip(spaces.a_axes, spaces.kind, strict=False):
        if not isinstance(a, xr.DataArray) or name not in a.coords or name not in new:
            continue
        nodes = np.asarray(a.coords[name].values, dtype=np.float64)
        domains = [_domain(name, x, kind) for x in (nodes, spaces.coordinates[name])]
        (low, high), (first, last) = domains
        if max(abs(low - first), abs(high - last)) > SAME_END * (last - first):
            raise UserError(
                f"the axis {name!r} of a spans ({low:g}, {high:g}), that of training ({first:g}, {last:g}), for a grid of kind "
                f"{kind!r}; predict on the domain of training, or train with the kind of the grid, such as kind='vertex' if "
                "both ends are nodes"
            )
        new[name] = nodes
    return new


def _spread(spaces: Spaces, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return evenly spaced nodes on the domain of training, for axes with coordinates in training."""
    even = unit_grid(shape, spaces.kind, spaces.axes).coordinates
    out = {}
    for name, kind in zip(spaces.axes, spaces.kind, strict=True):
        if name in spaces.coordinates and spaces.coordinates[name].dtype.kind in "iuf":
            low, high = _domain(name, spaces.coordinates[name], kind)
            out[name] = low + (high - low) * even[name]
    return out


def _domain(name: str, nodes: Array, kind: Kind) -> tuple[float, float]:
    """Return the ends of an axis with these nodes."""
    steps = np.diff(np.asarray(nodes, dtype=np.float64))
    step = float(steps.mean()) if steps.size else 0.0
    if step == 0 or np.abs(steps - step).max() > UNEVEN * abs(step):
        raise UserError(
            f"the nodes of the axis {name!r} are not evenly spaced; another grid than that of training needs even ones: "
            "interpolate inputs to the grid of training"
        )
    before, after = {"vertex": (0.0, 0.0), "cell": (0.5, 0.5)}.get(kind, (0.0, 1.0))
    return float(nodes[0]) - before * step, float(nodes[-1]) + after * step


def _with_outputs(spaces: Spaces, shape: tuple[int, ...], coordinates: Mapping[str, Array]) -> Spaces:
    return replace(spaces, u_shape=(spaces.u_shape[0], *shape), coordinates=dict(coordinates))


def _points(points: Any, dim: int) -> tuple[int, ...]:
    """Return the number of points of each axis."""
    each = (points,) * dim if not isinstance(points, Sequence) else tuple(points)
    if len(each) != dim or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in each):
        raise UserError(f"points = {points!r}: expected a whole number, or one for each of {dim} axes, such as {(64,) * dim}")
    _check_points(each, "points")
    return tuple(int(n) for n in each)


def _check_points(shape: Sequence[int], name: str) -> None:
    if min(shape) < FEWEST_POINTS:
        sides = "x".join(map(str, shape))
        raise UserError(f"{name}: a grid of {sides}; another grid than that of training needs {FEWEST_POINTS} points per axis")
