"""Meshes of other programs, through meshio: a folder with one file for each run, or a single file.

    runs/run_000.vtu, run_001.vtu, …     the same nodes in each; fields are point data
    runs/parameters.csv                  optional: a table with a row for each file, in their order (`pdno.data.parameters`)

The arrays of such a folder are those of an .npz file with

    points       (node, 3)               coordinates
    cells        (cell, corner)          segments, triangles or tetrahedra; other cells are divided into these
    NAME         (sample, node) or (sample, node, channel)     each field of the point data
"""

import re
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from ...work.files import replacing
from .entry import Listing, library, size_text, user_errors

if TYPE_CHECKING:  # xarray and scipy.spatial would double the time that a child process needs to start
    from ..nodes import Nodes

__all__ = ["MESHES", "is_mesh", "list_meshes", "write_mesh"]

MESHES = (".vtu", ".vtk", ".msh", ".xdmf")
WRITTEN = {".vtu": "vtu", ".vtk": "vtk"}  # formats of predictions, by suffix
MOVED = 1e-6  # relative to the size of the mesh: nodes that are farther apart are different

# Each type of cells: its dimension, and the simplices that it is divided into.
SIMPLICES: dict[str, tuple[int, list[list[int]]]] = {
    "line": (1, [[0, 1]]),
    "line3": (1, [[0, 2], [2, 1]]),
    "triangle": (2, [[0, 1, 2]]),
    "triangle6": (2, [[0, 3, 5], [3, 1, 4], [5, 4, 2], [3, 4, 5]]),
    "quad": (2, [[0, 1, 2], [0, 2, 3]]),
    "tetra": (3, [[0, 1, 2, 3]]),
    "hexahedron": (3, [[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]),
}
CELLS = {2: "line", 3: "triangle", 4: "tetra"}  # by number of corners


def is_mesh(path: Path) -> bool:
    """Return whether a path is that of a mesh, or a folder with meshes."""
    return path.suffix.lower() in MESHES or (path.is_dir() and any(each.suffix.lower() in MESHES for each in path.iterdir()))


def list_meshes(listing: Listing) -> None:
    """List the arrays of a mesh, or of a folder of meshes.

    Raises:
        UserError: if a file cannot be read, has no point data, or has other nodes or fields than the first one.
    """
    path = listing.path
    if not path.exists():
        raise UserError(f"{path} does not exist; check the name and the folder")
    files = sorted((f for f in path.iterdir() if f.suffix.lower() in MESHES), key=_by_number) if path.is_dir() else [path]
    first = _read(files[0])
    size = len(files) * sum(np.asarray(values).nbytes for values in first.point_data.values())
    if size > listing.budget:
        raise UserError(
            f"{path} has {size_text(size)} of point data, the budget is {size_text(listing.budget)}; use fewer runs"
        )
    fields = {name: np.empty((len(files), *np.shape(values)), _type(values)) for name, values in first.point_data.items()}
    for i, file in enumerate(files):
        mesh = first if i == 0 else _read(file)
        _check_alike(file, mesh, files[0], first)
        for name, values in fields.items():
            values[i] = np.asarray(mesh.point_data[name]).reshape(values.shape[1:])
    _add(listing, "points", _points(first), ("node", "dimension"))
    if len(cells := _cells(files[0], first)):
        _add(listing, "cells", cells, ("cell", "corner"))
    for name, values in fields.items():
        _add(listing, name, values, ("sample", "node", "channel")[: values.ndim])


def write_mesh(path: Path, nodes: "Nodes", fields: Mapping[str, Array]) -> None:
    """Write fields on nodes, (node,) or (node, component), to a .vtu or .vtk file that ParaView opens.

    Raises:
        UserError: if the suffix is another one, or meshio is not installed.
    """
    meshio = library("meshio")
    if path.suffix.lower() not in WRITTEN:
        raise UserError(f"fields on nodes are written to {' or '.join(WRITTEN)} files, not {path.name}; choose another suffix")
    points = np.pad(nodes.points, ((0, 0), (0, 3 - nodes.dim)))
    kind, cells = CELLS.get(nodes.cells.shape[1], "vertex"), nodes.cells
    cells = cells if len(cells) else np.arange(len(points))[:, None]
    mesh = meshio.Mesh(points, [(kind, cells)], {name: np.ascontiguousarray(values) for name, values in fields.items()})
    with replacing(path) as partial, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        meshio.write(partial, mesh, WRITTEN[path.suffix.lower()])


def _by_number(path: Path) -> list[Any]:
    """Return a key that sorts run_10 after run_9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _read(path: Path) -> Any:
    """Return a mesh with point data."""
    meshio = library("meshio")
    with user_errors(path), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            mesh = meshio.read(path)
        except SystemExit:  # which meshio raises for a file of no format that it knows
            raise ValueError("meshio does not know its format") from None
    if missing := int((~np.isfinite(mesh.points)).any(axis=1).sum()):
        raise UserError(f"{path} has {missing} of {len(mesh.points)} nodes with NaN coordinates; correct or remove them")
    mesh.point_data = {name: values for name, values in mesh.point_data.items() if not name.startswith("gmsh:")}  # its tags
    if not mesh.point_data:
        what = "cell data only" if mesh.cell_data else "no fields"
        raise UserError(
            f"{path} has no point data ({what}); write fields at the nodes, in ParaView with the filter "
            "'Cell Data to Point Data'"
        )
    return mesh


def _check_alike(path: Path, mesh: Any, first_path: Path, first: Any) -> None:
    """Refuse a mesh that has other nodes or fields than the first one."""
    if len(mesh.points) != len(first.points):
        raise UserError(
            f"{path.name} has {len(mesh.points)} nodes and {first_path.name} {len(first.points)}; all runs need one mesh: "
            "interpolate them to the same nodes"
        )
    moved = np.abs(np.asarray(mesh.points) - first.points).max(initial=0.0)
    if moved > MOVED * np.ptp(first.points, axis=0).max():
        raise UserError(
            f"the nodes of {path.name} are not those of {first_path.name}, they differ by up to {moved:.3g}; all runs need one "
            "mesh: interpolate them to the same nodes"
        )
    for name, values in first.point_data.items():
        if name not in mesh.point_data or np.size(mesh.point_data[name]) != np.size(values):
            raise UserError(f"{path.name} lacks the point data {name!r} that {first_path.name} has; write the same fields")


def _points(mesh: Any) -> Array:
    """Return the coordinates, without those that are all equal at the end: (node, dimension)."""
    points = np.asarray(mesh.points, dtype=np.float64)
    while points.shape[1] > 1 and not np.ptp(points[:, -1]) > 0:
        points = points[:, :-1]
    return points


def _cells(path: Path, mesh: Any) -> Array:
    """Return the cells of the highest dimension as simplices: (cell, corner).

    Raises:
        UserError: if these are of several types, or of one that cannot be divided.
    """
    types = dict.fromkeys(block.type for block in mesh.cells if block.type != "vertex" and len(block.data))
    if unknown := [each for each in types if each not in SIMPLICES]:
        raise UserError(f"{path} has cells of type {unknown[0]}; expected {', '.join(SIMPLICES)}: convert them")
    if not types:
        return np.zeros((0, 1), np.int64)
    highest = max(SIMPLICES[each][0] for each in types)
    some = [each for each in types if SIMPLICES[each][0] == highest]
    if len(some) > 1:
        raise UserError(
            f"{path} has mixed cells, {' and '.join(some)}; expected one type: divide them, in ParaView with the filter "
            "'Tetrahedralize'"
        )
    blocks = [np.asarray(block.data) for block in mesh.cells if block.type == some[0]]
    return np.concatenate(blocks)[:, SIMPLICES[some[0]][1]].reshape(-1, highest + 1).astype(np.int64)


def _type(values: Array) -> Any:
    """Return the type of an array, a float one for whole numbers, of which one run may have and another not."""
    kind = np.asarray(values).dtype
    return kind if kind.kind == "f" else np.float64


def _add(listing: Listing, name: str, values: Array, dims: tuple[str, ...]) -> None:
    listing.add(name, values.shape, values.dtype, lambda first, end: values[first:end], dims=dims)
