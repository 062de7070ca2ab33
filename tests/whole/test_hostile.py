"""Malicious files: no code runs, memory stays small, nothing outside the path is read, every failure is a UserError."""

import io
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import zarr
from scipy.io import netcdf_file

import pdno
from pdno import Dataset, Pairs, UserError
from pdno.data.formats import SUFFIXES, child, contents, parent, write

SMALL = 2**20
U = np.random.default_rng(0).normal(size=(6, 5))
CHILDREN = (".mat", ".pt", ".h5", ".nc")  # read by child processes, which take time


class Canary:
    """Unpickling it creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


def read_all(path: Path, budget: int = SMALL) -> None:
    for entry in contents(path, budget).entries.values():
        entry.read(slice(None))
        if path.suffix not in CHILDREN:
            entry.read(slice(1, 3))


def survives(path: Path) -> bool:
    """Return whether the file could be read; it may only fail with a UserError of one line."""
    try:
        read_all(path)
    except UserError as error:
        if "\n" in str(error):
            pytest.fail(f"more than one line: {error}")
        return False
    return True


def peak() -> int:
    """Return the largest memory that this process ever had, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
def canary(tmp_path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_the_canary_runs_if_unpickled(canary, protocol) -> None:
    pickle.loads(pickle.dumps(canary, protocol))
    assert Path(canary.path).exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_under_every_name(tmp_path, canary, suffix, protocol) -> None:
    path = tmp_path / f"u{suffix}"
    path.write_bytes(pickle.dumps({"u": canary}, protocol))
    assert not survives(path)
    assert not Path(canary.path).exists()


def test_pickles_inside_archives(tmp_path, canary) -> None:
    objects = np.array([canary, 1], object)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "objects.npz", objects, allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "member.npz", "w") as archive:
        archive.writestr("u.npy", pickle.dumps(canary))
        archive.writestr("../v.npy", pickle.dumps(canary))
    torch.save({"u": canary}, tmp_path / "new.pt")
    torch.save({"u": canary}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for path in tmp_path.glob("*.*"):
        assert not survives(path)
    assert not Path(canary.path).exists()


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_the_pickle_codec_of_zarr_is_not_run(tmp_path, canary, place) -> None:
    """A numeric array of Zarr v2 may name a codec that unpickles its chunks."""
    root = tmp_path / "u.zarr"
    zarr.create_array(root, data=U, chunks=U.shape, zarr_format=2, compressors=None, filters=None)
    metadata = json.loads((root / ".zarray").read_text())
    metadata[place] = [{"id": "pickle"}] if place == "filters" else {"id": "pickle"}
    (root / ".zarray").write_text(json.dumps(metadata))
    (root / "0.0").write_bytes(pickle.dumps(canary))
    with pytest.raises(UserError, match="codec 'pickle', which is not run"):
        contents(root)
    assert not Path(canary.path).exists()


def test_a_store_of_pdno_is_read_by_the_same_rules(tmp_path, canary) -> None:
    """Its codecs are checked, in either version of Zarr, and its links."""
    path = tmp_path / "d.zarr"
    pairs = Pairs.of(U, U)
    Dataset(pairs, pairs, {"schema": 1, "name": "d"}).save(path)
    array = path / "train" / "u"
    chunk, kept = array / "c/0/0/0", tmp_path / "kept"
    chunk.rename(kept)
    chunk.symlink_to(kept)
    with pytest.raises(UserError, match="train/u/c/0/0/0 is a link out of the folder"):
        pdno.open(path)
    shutil.rmtree(array)
    zarr.create_array(array, shape=(6, 1, 5), chunks=(6, 1, 5), dtype="f8", zarr_format=2, compressors=None, filters=None)
    metadata = json.loads((array / ".zarray").read_text())
    (array / ".zarray").write_text(json.dumps({**metadata, "filters": [{"id": "pickle"}]}))
    (array / "0.0.0").write_bytes(pickle.dumps(canary))
    with pytest.raises(UserError, match="'train/u' is stored by the codec 'pickle', which is not run"):
        pdno.open(path)
    assert not Path(canary.path).exists()


def test_an_array_in_both_versions_of_zarr_is_read_as_it_was_checked(tmp_path) -> None:
    root = tmp_path / "u.zarr"
    zarr.create_array(root, data=U, chunks=U.shape, zarr_format=3, compressors=None, filters=None)
    metadata = json.loads((root / "zarr.json").read_text())
    metadata["codecs"].insert(0, {"name": "numcodecs.pickle", "configuration": {}})
    (root / "zarr.json").write_text(json.dumps(metadata))
    zarr.create_array(tmp_path / "v", data=U, chunks=U.shape, zarr_format=2, compressors=None, filters=None)
    for name in (".zarray", "0.0"):
        shutil.copy(tmp_path / "v" / name, root / name)
    found = contents(root)
    assert "codec 'numcodecs.pickle'" in found.notes[0]
    np.testing.assert_array_equal(found.entries["u"].read(slice(None)), U)


@pytest.fixture(scope="module")
def zip_bomb(tmp_path_factory) -> Path:
    """Return an archive with a quarter of a gigabyte of zeros in a megabyte."""
    path = tmp_path_factory.mktemp("bomb") / "u.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**25,)})
    packed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed as archive, archive.open("u.npy", "w", force_zip64=True) as stream:
        stream.write(header.getvalue())
        zeros = bytes(2**24)
        for _ in range(2**4):
            stream.write(zeros)
    return path


def npy_bomb(path: Path) -> None:
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
        stream.write(bytes(64))


def h5_bomb(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("u", shape=(2**40,), dtype="f8", chunks=(2**10,))


def h5_chunk_bomb(path: Path) -> None:
    """One row is small, the chunk that holds it is not."""
    with h5py.File(path, "w") as file:
        file.create_dataset("u", shape=(4, 2), maxshape=(None, None), dtype="f8", chunks=(2**14, 2**14), compression="gzip")


def pt_bomb(path: Path) -> None:
    torch.save({"u": torch.zeros(1).expand(2**20, 2**20)}, path)


def zarr_bomb(path: Path) -> None:
    zarr.create_array(path, shape=(2**40,), chunks=(2**39,), dtype="f8")


@pytest.mark.parametrize(
    ("name", "bomb", "words"),
    [
        ("u.npy", npy_bomb, "declares 1 TiB"),
        ("u.h5", h5_bomb, "needs 8 TiB"),
        ("u.nc", h5_bomb, "needs 8 TiB"),
        ("u.h5", h5_chunk_bomb, "needs 2 GiB"),
        ("u.pt", pt_bomb, "needs 4 TiB"),
        ("u.zarr", zarr_bomb, "needs 8 TiB"),
    ],
)
def test_bombs(tmp_path, name, bomb, words) -> None:
    bomb(tmp_path / name)
    before = peak()
    with pytest.raises(UserError, match=words):
        read_all(tmp_path / name)
    assert peak() - before < 64 * SMALL


def test_a_zip_bomb(tmp_path, zip_bomb) -> None:
    before = peak()
    with pytest.raises(UserError, match="needs 256 MiB, the budget is 1 MiB"):
        read_all(zip_bomb)
    assert peak() - before < 64 * SMALL


def test_rows_of_a_large_file_fit_a_small_budget(tmp_path, zip_bomb) -> None:
    h5_bomb(tmp_path / "u.h5")
    before = peak()
    for path, row in ((zip_bomb, 2**24), (tmp_path / "u.h5", 2**39)):
        assert not contents(path, SMALL).entries["u"].read(slice(row, row + 100)).any()
    assert peak() - before < 64 * SMALL


def test_the_child_s_limits(tmp_path, monkeypatch) -> None:
    write(tmp_path / "u.mat", {"u": U})
    monkeypatch.setattr(parent, "TIME_LIMIT", 0.01)
    with pytest.raises(UserError, match="took more than 0 s"):
        contents(tmp_path / "u.mat")
    monkeypatch.setattr(parent, "TIME_LIMIT", 60.0)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(UserError, match="crashed its reader"):
        contents(tmp_path / "u.mat")


def test_the_child_s_memory(tmp_path) -> None:
    """A child may not allocate more memory than the arrays of its file can need."""
    code = (
        "import numpy as np; from pdno.data.formats.child import set_limits\nset_limits(2**28, 60.0)\n"
        "try:\n    np.ones(2**27)\nexcept MemoryError:\n    print('refused')"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "refused"


def sound(folder: Path, suffix: str) -> Path:
    """Write a valid file, to be damaged."""
    path = folder / f"u{suffix}"
    if suffix == ".three.nc":
        with netcdf_file(path, "w") as file:
            for axis, n in zip("xy", U.shape, strict=True):
                file.createDimension(axis, n)
            file.createVariable("u", "f8", ("x", "y"))[:] = U
    elif suffix == ".chunked.h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("g/u", data=U, chunks=(2, 5), compression="gzip", fletcher32=True)
    else:
        write(path, {"u": U})
    return path


KINDS = [".npz", ".npy", ".h5", ".chunked.h5", ".nc", ".three.nc", ".mat", ".pt", ".zarr"]


@pytest.mark.parametrize("suffix", KINDS)
def test_truncated(tmp_path, suffix) -> None:
    path = sound(tmp_path, suffix)
    victims = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    for victim in victims:
        whole = victim.read_bytes()
        cuts = (0.5,) if suffix.endswith(CHILDREN) else (0, 0.01, 0.1, 0.5, 0.9, 0.99)
        for cut in cuts:
            victim.write_bytes(whole[: int(cut * len(whole))])
            assert not survives(path)
        victim.write_bytes(whole)
    assert suffix.endswith(CHILDREN) or survives(path)


@pytest.fixture
def forked(monkeypatch) -> None:
    """Fork children from a process that has imported the libraries: as separate and as limited as new ones."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pdno.data.formats.child", "h5py", "scipy.io", "torch"])

    def run(command: list[str], timeout: float, **options: object) -> subprocess.CompletedProcess[bytes]:
        task = context.Process(target=child.serve, args=(Path(command[-2]), json.loads(command[-1])))
        task.start()
        task.join(timeout)
        if task.exitcode is None:
            task.kill()
            task.join()
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, task.exitcode)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("suffix", KINDS)
def test_mutated(tmp_path, suffix, forked) -> None:
    """Random bytes in random places, half of them in the headers, give arrays or a UserError, nothing else."""
    rng = np.random.default_rng(7)
    original = sound(tmp_path, suffix)
    assert survives(original)
    for i in range(40):
        path = tmp_path / f"{i}{suffix}"
        shutil.copytree(original, path) if original.is_dir() else shutil.copy(original, path)
        victims = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        victim = victims[i % len(victims)]
        content = bytearray(victim.read_bytes())
        reach = len(content) if i % 2 else min(len(content), 512)
        for place in rng.integers(0, reach, 1 + i % 4):
            content[place] = rng.integers(256)
        victim.write_bytes(content)
        survives(path)


def test_hdf5_stays_inside_the_file(tmp_path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["u"] = U
    U.tofile(tmp_path / "secret.raw")
    layout = h5py.VirtualLayout(U.shape, "f8")
    layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "u", U.shape)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["external"] = h5py.ExternalLink("secret.h5", "/u")
        file["folder"] = h5py.ExternalLink("secret.h5", "/")
        file["through"] = h5py.SoftLink("/folder/u")
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("raw", U.shape, "f8", external=[(tmp_path / "secret.raw", 0, U.nbytes)])
    with pytest.raises(UserError, match="no numeric array"):
        contents(tmp_path / "u.h5")
    with h5py.File(tmp_path / "u.h5", "a") as file:
        file["mine"] = U[:1]
    found = contents(tmp_path / "u.h5")
    assert set(found.entries) == {"mine"}
    assert sorted(note.split("'")[1] for note in found.notes) == ["external", "folder", "raw", "through", "virtual"]


def test_links_inside_an_hdf5_file(tmp_path) -> None:
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["g/u"] = U
        file["alias"] = h5py.SoftLink("/g/u")
        file["g/near"] = h5py.SoftLink("u")
        file["twice"] = h5py.SoftLink("/h/near")
        file["h"] = h5py.SoftLink("/g")
        file["g/up"] = file["/"]
        file["g/self"] = file["g"]
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")
        file["nowhere"] = h5py.SoftLink("/x/y")
    found = contents(tmp_path / "u.h5")
    assert {"g/u", "alias", "g/near", "twice"} <= set(found.entries)
    assert len(found.entries) < 12
    for entry in found.entries.values():
        np.testing.assert_array_equal(entry.read(slice(None)), U)
    assert {"'a'", "'b'", "'nowhere'"} <= {note.split(" ")[0] for note in found.notes}


def test_zarr_stays_inside_the_folder(tmp_path) -> None:
    write(tmp_path / "secret.zarr", {"u": U})
    write(tmp_path / "u.zarr", {"u": U})
    chunk = tmp_path / "u.zarr/u/c/0/0"
    for victim, target in (
        (chunk, tmp_path / "secret.zarr/u/c/0/0"),
        (tmp_path / "u.zarr/v", tmp_path / "secret.zarr/u"),
        (tmp_path / "u.zarr/round", tmp_path / "u.zarr"),
    ):
        kept = victim.read_bytes() if victim.exists() else None
        victim.unlink(missing_ok=True)
        victim.symlink_to(target)
        with pytest.raises(UserError, match="is a link out of the folder or to a folder"):
            contents(tmp_path / "u.zarr")
        victim.unlink()
        if kept is not None:
            victim.write_bytes(kept)
    os.mkfifo(tmp_path / "u.zarr/pipe")
    with pytest.raises(UserError, match="neither a file nor a folder"):
        contents(tmp_path / "u.zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_a_missing_chunk_of_zarr(tmp_path, version) -> None:
    group = zarr.create_group(tmp_path / "u.zarr", zarr_format=version)
    for name in ("u", "v"):
        group.create_array(name, data=U, chunks=(2, 5))
    next((tmp_path / "u.zarr/u").rglob("0.0" if version == 2 else "c/0/0")).unlink()
    entries = contents(tmp_path / "u.zarr").entries
    with pytest.raises(UserError, match="1 chunks of u are missing"):
        entries["u"].read(slice(2, 3))
    np.testing.assert_array_equal(entries["v"].read(slice(None)), U)
