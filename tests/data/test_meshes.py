"""Meshes of other programs, tables, and the nodes of a mesh."""

from pathlib import Path

import numpy as np
import pytest

import pdno
from pdno import UserError
from pdno.data.findings import check
from pdno.data.formats import contents
from pdno.data.formats.meshes import write_mesh
from pdno.data.nodes import Nodes
from tests.helpers import square_mesh

meshio = pytest.importorskip("meshio")
POINTS, TRIANGLES = square_mesh(4)


def save(
    folder: Path, run: int, suffix: str = ".vtu", points=POINTS, cells=(("triangle", TRIANGLES),), **data: np.ndarray
) -> None:
    """Write one run with point data."""
    folder.mkdir(exist_ok=True)
    whole = np.pad(points, ((0, 0), (0, 1)))
    mesh = meshio.Mesh(whole, list(cells), {name: np.asarray(v) for name, v in data.items()})
    meshio.write(folder / f"run_{run}{suffix}", mesh, {".msh": "gmsh"}.get(suffix))


def heated(folder: Path, runs: int = 12, suffix: str = ".vtu") -> np.ndarray:
    """Write runs u = q x + y, with q in a table; return q."""
    q = np.linspace(1, 2, runs)
    for i in range(runs):
        save(folder, i, suffix, u=q[i] * POINTS[:, 0] + POINTS[:, 1])
    (folder / "table.csv").write_text("\n".join(["q", *map(str, q)]))
    return q


def test_weights_are_lumped_areas() -> None:
    points = np.array([[0, 0], [2, 0], [0, 2], [2, 2], [9, 9]])
    nodes = Nodes(points, np.array([[0, 1, 2], [1, 3, 2]]))
    assert np.allclose(nodes.weights, [2 / 3, 4 / 3, 4 / 3, 2 / 3, 0])
    solid = Nodes(np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 6]]), np.array([[0, 1, 2, 3]]))
    assert np.allclose(solid.weights, 1 / 4)
    assert np.allclose(Nodes(np.array([[0.0], [1.0], [4.0]]), np.array([[0, 1], [1, 2]])).weights, [0.5, 2, 1.5])
    assert np.allclose(Nodes(points).weights, 1)


def test_neighbours_in_the_order_of_nodes_are_close() -> None:
    points = np.random.default_rng(0).permutation(square_mesh(32)[0])
    ordered = points[Nodes(points).order]
    assert (
        np.linalg.norm(np.diff(ordered, axis=0), axis=1).mean()
        < 2 / 31
        < np.linalg.norm(np.diff(points, axis=0), axis=1).mean()
    )


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".msh", ".xdmf"])
def test_a_folder_of_meshes_is_read(tmp_path, suffix) -> None:
    q = heated(tmp_path / "runs", suffix=suffix)
    data = pdno.open(tmp_path / "runs")
    assert data.train.u.shape == (12, 1, 16)
    assert np.allclose(data.train.u[:, 0], q[:, None] * POINTS[:, 0] + POINTS[:, 1])  # run_10 after run_9
    assert np.allclose(data.train.scalars[:, 0], q)
    assert data.train.parameters == ("q",)
    assert np.allclose(data.train.nodes.points, POINTS)
    assert np.isclose(data.train.weights.sum(), 1)


def test_quadrilaterals_become_triangles_and_boundaries_are_left_out(tmp_path) -> None:
    quads, edges = np.array([[0, 1, 5, 4], [1, 2, 6, 5]]), np.array([[0, 1]])
    save(tmp_path / "runs", 0, cells=(("line", edges), ("quad", quads)), u=np.zeros(16))
    assert np.asarray(contents(tmp_path / "runs").entries["cells"].read(slice(None))).shape == (4, 3)


def test_stores_keep_the_nodes(tmp_path) -> None:
    heated(tmp_path / "runs")
    data = pdno.open(tmp_path / "runs")
    data.save(tmp_path / "runs.zarr")
    again = pdno.open(tmp_path / "runs.zarr").train
    assert np.allclose(again.nodes.points, POINTS)
    assert (again.nodes.cells == TRIANGLES).all()
    assert np.allclose(again.weights, data.train.weights)
    assert np.allclose(again.scalars, data.train.scalars)


def test_arrays_with_coordinates_are_recognised(tmp_path) -> None:
    q, file = np.linspace(1, 2, 12), tmp_path / "runs.npz"
    np.savez(file, points=POINTS, triangles=TRIANGLES, q=q[:, None], u=q[:, None] * POINTS[:, 0])
    data = pdno.open(file)
    assert data.train.xarray["u"].dims[-1] == "node"
    assert data.train.scalars.shape == (12, 1)
    assert np.isclose(data.train.weights.sum(), 1)


def test_fields_are_written_for_paraview(tmp_path) -> None:
    fields = {"mean": np.arange(16.0), "flow": np.ones((16, 2))}
    write_mesh(tmp_path / "p.vtu", Nodes(POINTS, TRIANGLES), fields)
    mesh = meshio.read(tmp_path / "p.vtu")
    assert mesh.points.shape == (16, 3)
    assert (mesh.cells[0].data == TRIANGLES).all()
    assert (mesh.point_data["mean"] == fields["mean"]).all()
    with pytest.raises(UserError, match=r"written to \.vtu or \.vtk files"):
        write_mesh(tmp_path / "p.msh", Nodes(POINTS, TRIANGLES), fields)


MIXED = (("triangle", TRIANGLES[:2]), ("quad", np.array([[0, 1, 5, 4]])))
WEDGE = (("wedge", np.array([[0, 1, 2, 3, 4, 5]])),)
FAR = square_mesh(5)
NAN = np.where(np.arange(16)[:, None] == 3, np.nan, POINTS)


def wrong_meshes() -> dict[str, tuple[dict, str]]:
    """Return a second run and the sentence that it causes."""
    return {
        "nodes": (
            {"points": FAR[0], "cells": (("triangle", FAR[1]),), "u": np.zeros(25)},
            "run_1.vtu has 25 nodes and run_0.vtu 16",
        ),
        "moved": ({"points": POINTS + 0.1, "u": np.zeros(16)}, "nodes of run_1.vtu are not those of run_0.vtu"),
        "nan": ({"points": NAN, "u": np.zeros(16)}, "run_1.vtu has 1 of 16 nodes with NaN coordinates; correct or remove them"),
        "fields": ({"v": np.zeros(16)}, "run_1.vtu lacks the point data 'u'"),
        "empty": ({}, "has no point data \\(no fields\\); write fields at the nodes"),
    }


@pytest.mark.parametrize("case", wrong_meshes())
def test_runs_on_other_meshes_are_refused(tmp_path, case) -> None:
    options, sentence = wrong_meshes()[case]
    save(tmp_path / "runs", 0, u=np.zeros(16))
    save(tmp_path / "runs", 1, **options)
    with pytest.raises(UserError, match=sentence):
        contents(tmp_path / "runs")


@pytest.mark.parametrize(
    ("cells", "sentence"), [(MIXED, "has mixed cells, triangle and quad; expected one type"), (WEDGE, "cells of type wedge")]
)
def test_cells_that_cannot_be_divided_are_refused(tmp_path, cells, sentence) -> None:
    save(tmp_path / "runs", 0, cells=cells, u=np.zeros(16))
    with pytest.raises(UserError, match=sentence):
        contents(tmp_path / "runs")


def test_damaged_meshes_are_refused(tmp_path) -> None:
    save(tmp_path / "runs", 0, u=np.zeros(16))
    file = tmp_path / "runs/run_0.vtu"
    file.write_bytes(file.read_bytes()[:400])
    with pytest.raises(UserError, match=r"run_0\.vtu cannot be read"):
        contents(tmp_path / "runs")


def test_tables_of_another_length_are_refused(tmp_path) -> None:
    heated(tmp_path / "runs")
    (tmp_path / "runs/table.csv").write_text("q\n1\n2\n")
    with pytest.raises(UserError, match=r"table\.csv has 2 rows, but no array of runs has as many samples"):
        pdno.open(tmp_path / "runs")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((NAN,), "1 of 16 nodes have NaN coordinates, first node 3; correct or remove them"),
        ((POINTS, TRIANGLES, np.ones(9)), r"weights of shape \(9,\) were given for 16 nodes; expected one finite number"),
        ((POINTS, TRIANGLES, np.full(16, np.nan)), "expected one finite number ≥ 0 for each node"),
        ((POINTS, TRIANGLES + 1), "node numbers from 1 to 16; expected 0 to 15"),
        ((POINTS, TRIANGLES / 1), "type float64; expected whole numbers"),
        ((POINTS[:, 0],), r"shape \(16,\); expected \(node, 2\) or \(node, 3\)"),
    ],
)
def test_wrong_nodes_are_refused(arguments, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        Nodes(*arguments)


def test_missing_weights_and_coordinates_are_reported(tmp_path) -> None:
    q = np.linspace(1, 2, 12)[:, None]
    np.savez(tmp_path / "a.npz", points=POINTS, q=q, u=q * POINTS[:, 0])
    (finding,) = check(pdno.open(tmp_path / "a.npz"))
    assert "no cells and no weights: all nodes count equally" in str(finding)
    np.savez(tmp_path / "b.npz", q=q, u=q * POINTS[:, 0])
    (finding,) = check(pdno.open(tmp_path / "b.npz", "q", "u", "sample,parameter:sample,node"))
    assert "the nodes have no coordinates" in str(finding)
    extra = np.concatenate([POINTS, [[5, 5]]])
    np.savez(tmp_path / "c.npz", points=extra, cells=TRIANGLES, q=q, u=q * extra[:, 0])
    (finding,) = check(pdno.open(tmp_path / "c.npz"))
    assert "1 of 17 nodes belong to no cell" in str(finding)
    np.savez(tmp_path / "d.npz", points=extra, q=q, u=q * POINTS[:, 0])
    with pytest.raises(UserError, match="has coordinates of 17 nodes, and u has 16"):
        pdno.open(tmp_path / "d.npz", "q", "u", "sample,parameter:sample,node")
