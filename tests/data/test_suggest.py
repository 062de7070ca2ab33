"""Layouts of well-known collections are recognised."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import pdno
from pdno.data import formats
from pdno.data.formats import contents
from pdno.data.suggest import suggest


@pytest.mark.slow
def test_layouts_of_well_known_collections(tmp_path) -> None:
    rng = np.random.default_rng(1)
    files = {
        "fno_darcy.mat": ({"coeff": rng.random((4, 6, 6)), "sol": rng.random((4, 6, 6))}, "coeff", "sol", "sample,x,y"),
        "fno_burgers.mat": ({"a": rng.random((4, 6)), "u": rng.random((4, 6))}, "a", "u", "sample,x"),
        "fno_ns.mat": (
            {"a": rng.random((4, 6, 6)), "u": rng.random((4, 6, 6, 3)), "t": rng.random((1, 3))},
            *("a", "u", "sample,x,y:sample,x,y,channel"),
        ),
        "neuraloperator.pt": ({"x": rng.random((4, 6, 6)) > 0.5, "y": rng.random((4, 6, 6))}, "x", "y", "sample,x,y"),
    }
    for name, (arrays, a, u, dims) in files.items():
        formats.write(tmp_path / name, arrays)
        found = suggest(contents(tmp_path / name))
        assert found is not None, name
        assert found.certain, name
        assert (found.selection.a, found.selection.u, found.selection.dims) == (a, u, dims)
    for name in ("fno_darcy.mat", "neuraloperator.pt"):  # each in a child process
        arrays, a, _, _ = files[name]
        data = pdno.open(tmp_path / name)
        np.testing.assert_array_equal(data.train.a[:, 0], arrays[a])
        assert len(data.train) == 4


def h5(path: Path, **arrays: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/").replace("_coordinate", "-coordinate")] = values
    return path


def test_layouts_of_pdebench_and_the_well(tmp_path) -> None:
    rng = np.random.default_rng(2)
    tensor, nu, x = rng.random((4, 5, 8)), rng.random((4, 6, 6)), np.linspace(0, 1, 8)
    burgers = pdno.open(h5(tmp_path / "burgers.h5", tensor=tensor, x_coordinate=x, t_coordinate=np.arange(6.0)))
    np.testing.assert_array_equal(burgers.train.a[:, 0], tensor[:, 0])
    np.testing.assert_array_equal(burgers.train.u[:, 0], tensor[:, -1])
    np.testing.assert_array_equal(burgers.train.xarray["x"], x)
    darcy = pdno.open(h5(tmp_path / "darcy.h5", tensor=nu[:, None] ** 2, nu=nu, x_coordinate=np.arange(6.0)))
    np.testing.assert_array_equal(darcy.train.u[:, 0], nu**2)
    field = rng.random((4, 5, 6, 6))
    the_well = h5(tmp_path / "well.h5", t0_fields__height=field, dimensions__x=np.arange(6.0), dimensions__y=np.arange(6.0))
    well = pdno.open(the_well)
    np.testing.assert_array_equal(well.train.u[:, 0], field[:, -1])
    assert well.train.u.shape == (4, 1, 6, 6)


def test_times_of_a_trajectory_are_an_axis(tmp_path) -> None:
    file = tmp_path / "heat.npz"
    np.savez(file, a=np.zeros((9, 6)), u=np.zeros((9, 4, 6)), time=np.arange(4.0), x=np.arange(6.0))
    assert suggest(contents(file)).selection.dims == "sample,x:sample,time,x"
    np.savez(tmp_path / "flow.npz", a=np.zeros((9, 6)), u=np.zeros((9, 2, 6)), time=np.arange(4.0), x=np.arange(6.0))
    assert suggest(contents(tmp_path / "flow.npz")).selection.dims == "sample,x:sample,channel,x"
