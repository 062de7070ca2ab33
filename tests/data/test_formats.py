"""Arrays are written and read back unchanged in every format; wrong files are named in the error."""

import json
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import h5netcdf
import h5py
import numpy as np
import pytest
import torch
import xarray
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from scipy.io import netcdf_file, savemat

from pdno import UserError
from pdno.data.formats import SUFFIXES, child, contents, write

QUICK = [suffix for suffix in SUFFIXES if suffix not in (".mat", ".pt", ".pth")]  # the others start a process for each read
DTYPES = ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<f4", ">f4", "<f8", ">f8"]
ROWS = [slice(None), slice(0, 2), slice(3, 5), slice(1, None, 2), slice(None, None, -1), slice(4, 2), slice(-2, None)]

arrays = some.arrays(
    dtype=st.sampled_from(DTYPES).map(np.dtype),
    shape=some.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
).flatmap(lambda a: st.sampled_from([a, np.asfortranarray(a) if a.ndim else a]))


def everything() -> dict[str, np.ndarray]:
    """Return an array of each dtype and number of axes."""
    rng = np.random.default_rng(0)
    made = {}
    for i, dtype in enumerate(DTYPES):
        shape = (5, 2, 3, 2)[: i % 5]
        made[f"x{i}"] = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
    return made | {"fortran": np.asfortranarray(rng.normal(size=(5, 3, 2))), "none": np.zeros((0, 3))}


def assert_same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype.newbyteorder("=")
    assert got.dtype.isnative
    assert got.flags.c_contiguous
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, expected)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path


@pytest.mark.parametrize("suffix", QUICK)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(first=arrays, second=arrays)
def test_round_trip(in_process, suffix, first, second) -> None:
    given_arrays = {"one": first} if suffix == ".npy" else {"one": first, "group/two": second}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, f"one{suffix}")
        write(path, given_arrays)
        found = contents(path)
        assert set(found.entries) == set(given_arrays)
        assert found.notes == ()
        for name, values in given_arrays.items():
            entry = found.entries[name]
            assert (entry.name, entry.shape, entry.dtype.newbyteorder("=")) == (
                name,
                values.shape,
                values.dtype.newbyteorder("="),
            )
            assert_same(entry.read(slice(None)), values)
            if values.ndim:
                assert_same(entry.read(slice(1, 3)), values[1:3])


@pytest.mark.parametrize("suffix", [".mat", ".pt"])
def test_round_trip_through_a_child(folder, suffix, in_process) -> None:
    expected = everything()
    write(folder / f"all{suffix}", expected)
    found = contents(folder / f"all{suffix}")
    assert found.format == {".mat": "mat v5", ".pt": "torch"}[suffix]
    for name, values in expected.items():
        values = np.atleast_2d(values) if suffix == ".mat" else values
        assert_same(found.entries[name].read(slice(None)), values)
        for rows in ROWS if values.ndim else []:
            assert_same(found.entries[name].read(rows), values[rows])


@pytest.fixture
def in_process(monkeypatch) -> None:
    """Run the child's program in this process, for tests of many reads; other tests start the child itself."""

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        child.serve(Path(command[-2]), json.loads(command[-1]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(child, "set_limits", lambda memory, seconds: None)
    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("suffix", [".mat", ".pt", ".h5"])
def test_the_child_itself(folder, suffix) -> None:
    """The values are read by another process: this one never imports torch."""
    write(folder / f"u{suffix}", {"u": np.arange(12.0).reshape(3, 4)})
    code = (
        "import sys, pdno.data.formats as f; e = f.contents(sys.argv[1]).entries['u']; print(e.read(slice(1, 2)), *sys.modules)"
    )
    command = [sys.executable, "-c", code, str(folder / f"u{suffix}")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answer.startswith("[[4. 5. 6. 7.]]")
    assert " torch " not in answer
    assert " scipy.io " not in answer


@pytest.mark.parametrize("suffix", QUICK)
def test_rows(folder, suffix, in_process) -> None:
    u = np.random.default_rng(0).normal(size=(7, 3, 2))
    write(folder / f"u{suffix}", {"u": u})
    for rows in ROWS:
        assert_same(contents(folder / f"u{suffix}").entries["u"].read(rows), u[rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_files_of_other_programs(folder, dtype, order, in_process) -> None:
    """Big-endian and Fortran order as stored by other programs, compressed and chunked."""
    u = np.asarray(np.random.default_rng(0).integers(0, 2, (7, 3, 2)), dtype=dtype, order=order)
    np.save(folder / "u.npy", u)
    np.savez(folder / "stored.npz", u=u)
    np.savez_compressed(folder / "small.npz", u=u)
    with h5py.File(folder / "u.h5", "w") as file:
        file.create_dataset("u", data=u, chunks=(2, 3, 1), compression="gzip", shuffle=True)
    for version in (2, 3):
        group = zarr.create_group(folder / f"v{version}.zarr", zarr_format=version)
        group.create_array("u", data=u, chunks=(2, 3, 1), config={"write_empty_chunks": True})
    zarr.save_array(folder / "single.zarr", u + u.dtype.type(1))
    for path in folder.iterdir():
        (entry,) = contents(path).entries.values()
        expected = u + u.dtype.type(1) if path.stem == "single" else u
        assert entry.name == (path.stem if path.suffix == ".npy" or path.stem == "single" else "u")
        for rows in ROWS:
            assert_same(entry.read(rows), expected[rows])


def write_v73(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file as MATLAB does: a user block, axes reversed, classes as attributes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            values = np.atleast_2d(values)
            logical = values.dtype == bool
            stored = values.astype("u1") if logical else values
            dataset = file.create_dataset(name, data=stored.T if values.size else np.array(values.shape, "u8"))
            names = {"float64": "double", "float32": "single", "bool": "logical"}
            dataset.attrs["MATLAB_class"] = np.bytes_(names.get(values.dtype.name, values.dtype.name))
            if not values.size:
                dataset.attrs["MATLAB_empty"] = np.uint8(1)
        text = file.create_dataset("label", data=np.array([[72], [105]], "u2"))
        text.attrs["MATLAB_class"] = np.bytes_("char")
        file.create_group("#refs#").create_dataset("a", data=np.zeros(3))
        struct_group = file.create_group("settings")
        struct_group.attrs["MATLAB_class"] = np.bytes_("struct")
        struct_group.create_dataset("nu", data=np.zeros((1, 1)))
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM")


def test_mat_v5_equals_v73(folder, in_process) -> None:
    arrays = everything()
    savemat(folder / "five.mat", arrays | {"label": "Hi", "settings": {"nu": 0.0}}, do_compression=True)
    write_v73(folder / "seven.mat", arrays)
    five, seven = contents(folder / "five.mat"), contents(folder / "seven.mat")
    assert (five.format, seven.format) == ("mat v5", "mat v7.3")
    assert set(five.entries) == set(seven.entries) == set(arrays)
    for name, values in arrays.items():
        for rows in ROWS:
            assert_same(seven.entries[name].read(rows), np.atleast_2d(values)[rows])
        assert_same(five.entries[name].read(slice(None)), seven.entries[name].read(slice(None)))
    assert five.notes == ("'label' is of MATLAB class char", "'settings' is of MATLAB class struct")
    assert seven.notes == ("'label' is of MATLAB class char", "'settings' is of MATLAB class struct, stored as a group")


def test_arrays_that_are_not_numeric_are_skipped(folder, in_process) -> None:
    u, z = np.ones((2, 2)), np.ones((2, 2), complex)
    record = np.zeros(2, "i4, f8")
    np.savez(folder / "a.npz", u=u, z=z, s=np.array(["a"]), r=record, o=np.array([{}, 1], object))
    savemat(folder / "a.mat", {"u": u, "z": z, "s": "a", "c": np.array([u, 1], object)})
    with h5py.File(folder / "a.h5", "w") as file:
        for name, values in {"u": u, "z": z, "r": record, "s": "text", "e": h5py.Empty("f8")}.items():
            file[name] = values
    torch.save({"u": torch.ones(2, 2), "z": torch.ones(2, dtype=torch.complex64), "epoch": 3}, folder / "a.pt")
    expected = {".npz": "zsro", ".mat": "zsc", ".h5": "zrse", ".pt": ["z", "epoch"]}
    for path in folder.iterdir():
        found = contents(path)
        assert set(found.entries) == {"u"}
        assert sorted(note.split("'")[1] for note in found.notes) == sorted(expected[path.suffix])
    assert "'s' is text" in contents(folder / "a.npz").notes


def test_nested_tensors(folder, in_process) -> None:
    half = torch.ones(2, dtype=torch.bfloat16)
    circle: list[object] = []
    circle.append(circle)
    torch.save({"model": {"w": torch.ones(3), 0: half}, "pairs": [torch.zeros(2), circle]}, folder / "a.pt")
    torch.save(torch.arange(4), folder / "b.pth")
    torch.save({"w": torch.ones(3)}, folder / "old.pt", _use_new_zipfile_serialization=False)
    assert set(contents(folder / "a.pt").entries) == {"model/w", "model/0", "pairs/0"}
    assert_same(contents(folder / "a.pt").entries["model/0"].read(slice(None)), np.ones(2, "f4"))
    assert_same(contents(folder / "b.pth").entries["b"].read(slice(None)), np.arange(4))
    assert_same(contents(folder / "old.pt").entries["w"].read(slice(None)), np.ones(3, "f4"))


def test_dims(folder, in_process) -> None:
    u, x = np.zeros((3, 4)), np.linspace(0, 1, 4)
    dims = {"u": ("sample", "x"), "x": ("x",)}
    for suffix in (".nc", ".zarr", ".h5"):
        write(folder / f"u{suffix}", {"u": u, "x": x}, dims)
        assert {name: entry.dims for name, entry in contents(folder / f"u{suffix}").entries.items()} == dims
    with xarray.open_dataset(folder / "u.nc", engine="h5netcdf") as data:
        assert data["u"].dims == ("sample", "x")
        data.to_netcdf(folder / "three.nc", engine="scipy")
        data.to_zarr(folder / "two.zarr", zarr_format=2, consolidated=True, encoding={"u": {"write_empty_chunks": True}})
    assert contents(folder / "three.nc").entries["u"].dims == ("sample", "x")
    assert contents(folder / "two.zarr").entries["u"].dims == ("sample", "x")
    write(folder / "plain.nc", {"u": u, "x": x, "v": u})
    plain = contents(folder / "plain.nc").entries
    assert (plain["u"].dims, plain["x"].dims) == (("dim_0_3", "dim_1"), ("dim_0_4",))
    with pytest.raises(UserError, match="'x' of 'x' has length 4, elsewhere 3"):
        write(folder / "odd.nc", {"u": u, "x": x}, {"u": ("x", "y"), "x": ("x",)})
    with pytest.raises(UserError, match="one name for each axis"):
        write(folder / "odd.h5", {"u": u}, {"u": ("x",)})


def test_fill_values_of_floats_become_nan(folder, in_process) -> None:
    u, k = np.array([1.0, -99.0, 3.0], "f4"), np.array([1, -99, 3], "i4")
    with h5netcdf.File(folder / "four.nc", "w") as file:
        file.dimensions["x"] = 3
        file.create_variable("u", ("x",), data=u, fillvalue=np.float32(-99))
        file.create_variable("k", ("x",), data=k, fillvalue=np.int32(-99))
    with netcdf_file(folder / "three.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        for name, values in {"u": u, "k": k}.items():
            variable = file.createVariable(name, values.dtype, ("x",))
            variable[:] = values
            variable.missing_value = values.dtype.type(-99)
        time = file.createVariable("t", "f8", ("time", "x"))
        time[0:2] = np.arange(6.0).reshape(2, 3)
    for name in ("three.nc", "four.nc"):
        entries = contents(folder / name).entries
        np.testing.assert_array_equal(entries["u"].read(slice(None)), np.array([1, np.nan, 3], "f4"))
        assert_same(entries["k"].read(slice(None)), k)
    assert_same(contents(folder / "three.nc").entries["t"].read(slice(1, 2)), np.array([[3.0, 4.0, 5.0]]))


def test_write_never_overwrites_and_leaves_nothing_half_done(folder) -> None:
    for suffix in SUFFIXES:
        path = folder / f"u{suffix}"
        path.write_text("mine")
        with pytest.raises(UserError, match="never overwritten"):
            write(path, {"u": np.zeros(3)})
        assert path.read_text() == "mine"
        path.unlink()
        bad = {"u": np.zeros(3), "v": np.zeros(3, "f2" if suffix == ".nc" else "c16")}
        with pytest.raises(UserError):
            write(path, bad)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "arrays", "words"),
    [
        ("u.npy", {"u": np.zeros(1), "v": np.zeros(1)}, "one array and 2 were given"),
        ("u.npz", {}, "at least one"),
        ("u.csv", {"u": np.zeros(1)}, "expected one of .npz"),
        ("no/u.npz", {"u": np.zeros(1)}, "does not exist"),
        ("u.h5", {"../u": np.zeros(1)}, "cannot be the name"),
        ("u.h5", {"u": np.zeros(1), "u/v": np.zeros(1)}, "of an array and of a group"),
        ("u.mat", {"a/b": np.zeros(1)}, "31 letters"),
        ("u.npz", {"u": np.array(["a"])}, "only bool, integer and real"),
    ],
)
def test_arrays_that_cannot_be_written_are_refused(folder, name, arrays, words) -> None:
    with pytest.raises(UserError, match=words):
        write(folder / name, arrays)


def test_wrong_files_are_named(folder) -> None:
    def message(name: str) -> str:
        with pytest.raises(UserError) as caught:
            contents(folder / name)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    write(folder / "u.h5", {"u": np.zeros(3)})
    write(folder / "u.npz", {"u": np.zeros(3)})
    for name in ("u.pt", "u.nc.npy"):
        shutil.copy(folder / "u.npz", folder / name)
    shutil.copy(folder / "u.h5", folder / "u.mat")
    (folder / "p.npz").write_bytes(pickle.dumps({"u": 1}))
    (folder / "t.h5").write_text("x,y\n1,2\n")
    (folder / "e.nc").write_bytes(b"")
    (folder / "d.npy").mkdir()
    (folder / "d.zarr").mkdir()
    (folder / "f.zarr").write_text("x")
    (folder / "b.h5").write_bytes(struct.pack("<8d", *range(8)))
    zipfile.ZipFile(folder / "z.npz", "w").close()
    np.savez(folder / "s.npz", s=np.array(["a"]))
    assert "looks like a NumPy archive (.npz); .pt stands for a torch file" in message("u.pt")
    assert "looks like a NumPy archive" in message("u.nc.npy")
    assert "looks like an HDF5 file (.h5); .mat stands for a MATLAB file or a MATLAB v7.3 file" in message("u.mat")
    assert "looks like a Python pickle, which could run code and is never opened" in message("p.npz")
    assert "looks like text" in message("t.h5")
    assert "a file of no supported format" in message("b.h5")
    assert "is empty" in message("e.nc")
    assert "is a folder, and .npy stands for a file" in message("d.npy")
    assert "without Zarr metadata" in message("d.zarr")
    assert "is a file, and .zarr stands for a folder" in message("f.zarr")
    assert "does not exist" in message("nothing.npz")
    assert "did you mean '.npz'" in message("u.npx")
    assert "has no numeric array;" in message("z.npz")
    assert "has no numeric array ('s' is text)" in message("s.npz")


def test_entries_go_to_other_processes(folder, in_process) -> None:
    """Entries can be pickled, since they have no open file."""
    for suffix in QUICK:
        write(folder / f"u{suffix}", {"u": np.arange(3.0)})
        entry = pickle.loads(pickle.dumps(contents(folder / f"u{suffix}").entries["u"]))
        assert_same(entry.read(slice(None)), np.arange(3.0))
