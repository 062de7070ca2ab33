"""Files of other programs are opened, selected from, and cached; errors are explained."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import pdno
from pdno import UserError
from pdno.data import formats
from pdno.data.open import open_selected
from pdno.data.selection import Selection


def test_an_interrupted_download_beside_a_file_is_ignored(tmp_path) -> None:
    np.savez(tmp_path / "d.npz", a=np.ones((3, 4)), u=np.ones((3, 4)))
    (tmp_path / "d.npz.partial").write_text("the first half of another download")
    assert len(pdno.open(tmp_path / "d.npz").train) == 3


def test_named_dimensions_in_any_order(tmp_path) -> None:
    a, u = np.random.default_rng(3).random((2, 7, 5, 9))  # x, y, sample
    dims = {"a": ("x", "y", "sample"), "u": ("x", "y", "sample")}
    formats.write(tmp_path / "d.nc", {"a": a, "u": u}, dims)
    data = pdno.open(tmp_path / "d.nc", a="a", u="u")
    np.testing.assert_array_equal(data.train.a[:, 0], a.transpose(2, 0, 1))
    formats.write(tmp_path / "d.npz", {"a": a, "u": u})
    plain = pdno.open(tmp_path / "d.npz", a="a", u="u", dims="x,y,sample")
    np.testing.assert_array_equal(plain.train.u, data.train.u)


def test_test_pairs_in_a_second_file_and_parts_of_arrays(tmp_path) -> None:
    u = np.random.default_rng(4).random((6, 3, 8))
    np.savez(tmp_path / "train.npz", u=u)
    np.savez(tmp_path / "test.npz", u=u + 1)
    data = pdno.open(tmp_path / "train.npz", a="u[:,0]", u="u[:,-1]", dims="sample,x", test=tmp_path / "test.npz")
    np.testing.assert_array_equal(data.train.a[:, 0], u[:, 0])
    np.testing.assert_array_equal(data.test.u[:, 0], u[:, -1] + 1)


def test_a_cache_serves_data_larger_than_the_memory_allowed(tmp_path) -> None:
    rng = np.random.default_rng(5)
    a, u = rng.random((400, 30)).astype(np.float32), rng.random((400, 2, 30)).astype(np.float32)
    np.savez(tmp_path / "d.npz", a=a, u=u)
    names = {"a": "a", "u": "u", "dims": "sample,x:sample,channel,x"}
    with pytest.raises(UserError, match=r"name a folder for a cache"):
        pdno.open(tmp_path / "d.npz", **names, budget=10_000)
    data = pdno.open(tmp_path / "d.npz", **names, budget=60_000, cache=tmp_path / "cache")
    files = sorted((tmp_path / "cache").rglob("*.npy"))
    assert [file.name for file in files] == ["a.npy", "u.npy"]
    np.testing.assert_array_equal(data.train.u, u)
    assert not data.train.u.flags.owndata  # mapped, not read
    batch = next(iter(data.train.batches(16, seed=1)))
    assert batch[1].shape == (16, 2, 30)
    before = [file.stat().st_mtime_ns for file in files]
    pdno.open(tmp_path / "d.npz", **names, budget=60_000, cache=tmp_path / "cache")
    assert [file.stat().st_mtime_ns for file in files] == before  # written once


def test_a_cache_that_must_not_be_written_is_read_if_it_is_there(tmp_path) -> None:
    a = np.random.default_rng(5).random((40, 30))
    np.savez(tmp_path / "d.npz", a=a, u=a)
    options = {"selection": Selection("a", "u"), "cache": tmp_path / "cache"}
    np.testing.assert_array_equal(open_selected(tmp_path / "d.npz", **options, fill=False).train.u[:, 0], a)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(UserError, match="GB are allowed"):
        open_selected(tmp_path / "d.npz", **options, budget=10_000, fill=False)
    open_selected(tmp_path / "d.npz", **options)
    assert not open_selected(tmp_path / "d.npz", **options, budget=10_000, fill=False).train.u.flags.owndata  # mapped


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("canary"),))


WRONG = {
    "empty.npz": lambda path: path.write_bytes(b""),
    "truncated.npz": lambda path: path.write_bytes(saved("npz", path)[:200]),
    "truncated.mat": lambda path: path.write_bytes(saved("mat", path)[:150]),
    "truncated.h5": lambda path: path.write_bytes(saved("h5", path)[:100]),
    "text.h5": lambda path: path.write_text("no arrays here"),
    "really_npz.mat": lambda path: path.write_bytes(saved("npz", path)),
    "pickled.pt": lambda path: path.write_bytes(pickle.dumps(Evil())),
    "pickled.npy": lambda path: np.save(path, np.array([Evil()], dtype=object), allow_pickle=True),
    "pickled.mat": lambda path: path.write_bytes(pickle.dumps(Evil())),
    "words.npz": lambda path: np.savez(path, names=np.array(["no", "numbers"])),
    "picture.png": lambda path: path.write_bytes(b"\x89PNG"),
    "terabytes.npy": lambda path: path.write_bytes(
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }" + b" " * 50
    ),
}


def saved(suffix: str, path: Path) -> bytes:
    whole = path.with_name(f"whole.{suffix}")
    formats.write(whole, {"a": np.ones((3, 4)), "u": np.ones((3, 4))})
    content = whole.read_bytes()
    whole.unlink()
    return content


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line_and_exit_code_two(name, tmp_path, refused) -> None:
    WRONG[name](tmp_path / name)
    assert name in refused(f"inspect {name}")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("inspect nothing.npz", "nothing.npz"),
        ("inspect d.npz --a a", "only one of --a and --u"),
        ("inspect d.npz --a a --u w --dims sample,x,y", "has no array 'w'"),
        ("convert d.npz --a a --u u --out x.zarr", "is ambiguous"),
        ("inspect d.npz --a a --u u --dims sample,x", "dimensions were named"),
        ("inspect d.npz --a a --u v --dims sample,x,y", "numbers of samples differ"),
        ("inspect d.npz --a a[:,:,:,0] --u u --dims sample,x,y", "does not fit"),
        ("convert d.npz --out x.zarr", "which arrays of d.npz are a and u?"),
        ("convert d.npz --a a --out x.zarr", "only one of --a and --u"),
        ("convert d.npz --a a --u u --dims sample,x,y --mask zero --out x.zarr", "the only mask is 'nan'"),
        ("convert d.npz --a a --u u --dims sample,x,y --out d.npz", "never overwritten"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(arguments, words, refused) -> None:
    rng = np.random.default_rng(10)
    np.savez("d.npz", a=rng.random((5, 8, 8)), u=rng.random((5, 8, 8)), v=rng.random((4, 8, 8)))
    assert words in refused(arguments)
