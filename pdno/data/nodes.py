r"""Nodes of a mesh that is no grid: coordinates, cells, and the weights of the nodes in norms and scores.

    ‖v‖² = Σ_i w_i v_i² / Σ_i w_i,        w_i = Σ_T |T| / (d + 1)   over the cells T that node i is a corner of,

for simplices T (segments, triangles, tetrahedra) of dimension d: the lumped mass matrix. Without cells or weights all nodes
count equally.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import factorial
from typing import Any

import numpy as np
import xarray as xr
from scipy.spatial import cKDTree

from .._typing import Array, Floats, Ints
from ..errors import UserError

__all__ = ["COORDINATES", "NODE", "Nodes", "OnNodes", "raster", "with_nodes"]

NODE = "node"  # name of the dimension that numbers the nodes
COORDINATES = {**{f"node_{x}": (NODE,) for x in ("x", "y", "z", "weight")}, "node_cells": ("cell", "corner")}  # name → dims
LEAST_WEIGHT = 0.01  # relative to the mean, where fields are divided by the root of a weight


@dataclass(frozen=True, eq=False, init=False)
class Nodes:
    """The nodes of a mesh.

    Args:
        points: coordinates, (node, dimension), of one to three dimensions.
        cells: numbers of the nodes of each simplex, (cell, corner); (0, 1) without cells.
        weights: of the nodes, at least 0, (node,); default: areas of the cells, all equal without cells.

    Raises:
        UserError: if coordinates or weights are not finite, or shapes do not fit.

    >>> square = Nodes(np.array([[0, 0], [1, 0], [1, 1], [0, 1]]), np.array([[0, 1, 2], [0, 2, 3]]))
    >>> (6 * square.weights).round(12).tolist()
    [2.0, 1.0, 2.0, 1.0]
    """

    points: Floats
    cells: Ints
    weights: Floats

    def __init__(self, points: Array, cells: Array | None = None, weights: Array | None = None) -> None:
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or not 1 <= points.shape[1] <= 3:
            raise UserError(f"coordinates of nodes have shape {points.shape}; expected (node, 2) or (node, 3)")
        if not (finite := np.isfinite(points).all(axis=1)).all():
            raise UserError(
                f"{(~finite).sum()} of {len(points)} nodes have NaN coordinates, first node {int(np.argmin(finite))}; "
                "correct or remove them"
            )
        cells = np.zeros((0, 1), np.int64) if cells is None else np.asarray(cells)
        if cells.ndim != 2 or cells.dtype.kind not in "iu" or not 1 <= cells.shape[1] <= 4:
            raise UserError(
                f"cells have shape {cells.shape} and type {cells.dtype}; expected whole numbers (cell, 3) for triangles or "
                "(cell, 4) for tetrahedra"
            )
        if cells.size and not 0 <= cells.min() <= cells.max() < len(points):
            raise UserError(f"cells have node numbers from {cells.min()} to {cells.max()}; expected 0 to {len(points) - 1}")
        if weights is None:
            weights = _lumped(points, cells) if len(cells) else np.ones(len(points))
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (len(points),) or not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
            raise UserError(
                f"weights of shape {weights.shape} were given for {len(points)} nodes; expected one finite number ≥ 0 for each "
                "node, or none, to take the areas of the cells"
            )
        for name, value in (("points", points), ("cells", cells.astype(np.int64)), ("weights", weights)):
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return int(self.points.shape[1])

    @cached_property
    def roots(self) -> Floats:
        """√w, where w has the mean 1 and is not below LEAST_WEIGHT: (node,)."""
        return np.asarray(np.sqrt(np.maximum(self.weights / self.weights.mean(), LEAST_WEIGHT)))

    @cached_property
    def order(self) -> Ints:
        """Numbers of the nodes along a curve through the domain (Morton's), on which neighbours are close: (node,)."""
        low, side = self.points.min(axis=0), np.ptp(self.points, axis=0)
        places = ((self.points - low) / np.where(side > 0, side, 1.0) * (2**16 - 1)).astype(np.int64)
        code = np.zeros(len(places), dtype=np.int64)
        for bit in range(16):
            for axis in range(self.dim):
                code |= ((places[:, axis] >> bit) & 1) << (self.dim * bit + axis)
        return np.argsort(code, kind="stable")

    def coordinates(self) -> dict[str, Array]:
        """Return all arrays by the names of COORDINATES, as data sets and files store them."""
        points = {f"node_{x}": self.points[:, i] for i, x in zip(range(self.dim), "xyz", strict=False)}
        return {**points, "node_weight": self.weights, **({"node_cells": self.cells} if len(self.cells) else {})}

    @classmethod
    def of(cls, coordinates: Mapping[Any, Any]) -> "Nodes | None":
        """Return the nodes that `coordinates` describes; None if there are none."""
        points = [np.asarray(coordinates[name]) for name in ("node_x", "node_y", "node_z") if name in coordinates]
        if not points:
            return None
        cells, weights = (coordinates.get(name) for name in ("node_cells", "node_weight"))
        return cls(np.stack(points, axis=1), *(None if each is None else np.asarray(each) for each in (cells, weights)))


class OnNodes:
    """The nodes of a mesh among the coordinates of a data set, whose axis "node" numbers them."""

    xarray: xr.Dataset

    @property
    def nodes(self) -> Nodes | None:
        """The nodes of the mesh; None if there is none, or their coordinates are unknown."""
        return Nodes.of({name: c.values for name, c in self.xarray.coords.items() if name in COORDINATES})

    @property
    def weights(self) -> Array | None:
        """Weights of the nodes of a mesh in norms and scores, (node,), if the last axis of u numbers them; None for a grid."""
        on_nodes = "node_weight" in self.xarray.coords and self.xarray["u"].dims[-1] == NODE
        return np.asarray(self.xarray["node_weight"].values) if on_nodes else None

    def along(self, values: Array) -> Array:
        """Return fields on the grid of u; those on the nodes of a mesh in an order in which neighbours are close."""
        nodes = None if self.weights is None else self.nodes
        return values if nodes is None else values[..., nodes.order]


def with_nodes(data: xr.Dataset) -> xr.Dataset:
    """Return a data set as it was read from a store, with the nodes of a mesh as coordinates."""
    return data.set_coords([name for name in data.data_vars if name in COORDINATES])


def raster(nodes: Nodes, values: Array, points: int = 60) -> Array:
    """Return values (…, node) on a coarse grid, for a sketch in characters: those of the nearest node, NaN outside the mesh.

    Returns:
        (…, points, other points) in two dimensions and more, seen from the third one; (…, points) in one dimension.
    """
    plane = nodes.points[:, :2]
    low, side = plane.min(axis=0), np.ptp(plane, axis=0)
    step = side.max() / (points - 1) or 1.0
    axes = [x + step * np.arange(int(np.ceil(s / step)) + 1) for x, s in zip(low, side, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    distance, near = cKDTree(plane).query(grid)
    spacing = max(step, 2 * np.sqrt(np.prod(side[side > 0]) / len(plane)))  # of nodes, and of the grid
    return np.where(distance < spacing, values[..., near], np.nan)


def _lumped(points: Array, cells: Array) -> Array:
    """Return the volume of the cells around each node, divided equally among the corners of a cell: (node,)."""
    corners = points[cells]
    edges = corners[:, 1:] - corners[:, :1]  # (cell, edge, dimension)
    gram = edges @ edges.swapaxes(1, 2)
    volume = np.sqrt(np.maximum(np.linalg.det(gram), 0.0)) / factorial(edges.shape[1])
    shares = np.repeat(volume / cells.shape[1], cells.shape[1])
    return np.bincount(cells.ravel(), shares, minlength=len(points))
