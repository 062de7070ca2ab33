"""Other people's files: suggested, opened, checked, cached."""

import pickle
import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.data import formats
from pdno.data.findings import check, outliers
from pdno.data.formats import contents
from pdno.data.pairs import Dataset, Pairs
from pdno.data.suggest import suggest
from pdno.run.inspect import sketch

SHARED = Path(__file__).parents[3] / "shared" / "data"
PUBLISHED = [
    "advection_pina/advection_gauss.npz",
    "antiderivative_deeponet/antiderivative.npz",
    "burgers_neuralop/burgers.npz",
    "darcy_neuralop/darcy.npz",
    "reacdiff_lno/reacdiff.npz",
]
with_published_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published data sets are not at {SHARED}")


def inspect(path: Path, capsys, *more: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["inspect", str(path), *more])
    assert stop.value.code == 0
    return capsys.readouterr().out


def suggested(output: str) -> list[str]:
    """The command that `inspect` printed, as arguments."""
    line = next(line for line in output.splitlines() if line.strip().startswith("pdno convert"))
    return shlex.split(line)[1:]


@with_published_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sets_load_by_the_command_that_inspect_prints(name, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    path = SHARED / name
    command = suggested(inspect(path, capsys))
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 0
    data = pdno.open(tmp_path / command[command.index("--out") + 1])
    chosen = {key: command[command.index(f"--{key}") + 1] for key in ("a", "u", "test-a", "test-u")}
    with np.load(path) as file:
        for role, values in (("a", data.train.a), ("u", data.train.u), ("test-a", data.test.a), ("test-u", data.test.u)):
            expected = file[chosen[role]]
            np.testing.assert_array_equal(values.reshape(expected.shape), expected)


@with_published_data
def test_the_corrupt_values_of_the_published_darcy_set_are_found(capsys) -> None:
    output = inspect(SHARED / "darcy_neuralop" / "darcy.npz", capsys)
    assert "train u: values in sample 767 lie far outside" in output
    assert "u[767, 0, 0, 2] = -0.428" in output
    assert "test u: values in sample 12 lie far outside" in output


def test_two_arrays_in_a_mat_file(tmp_path, monkeypatch, capsys) -> None:
    """A new user: `pdno inspect` prints the command, the command works."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, u = rng.standard_normal((2, 30, 16))
    formats.write(tmp_path / "mine.mat", {"force": a, "deflection": u})
    output = inspect(tmp_path / "mine.mat", capsys)
    assert "A guess" in output
    with pytest.raises(SystemExit) as stop:
        main(suggested(output))
    assert stop.value.code == 0
    data = pdno.open("mine.zarr")
    np.testing.assert_array_equal(data.train.a[:, 0], a)
    np.testing.assert_array_equal(data.train.u[:, 0], u)


def h5(path: Path, **arrays: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name.replace("__", "/").replace("_coordinate", "-coordinate")] = values
    return path


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


def test_an_interrupted_download_beside_a_file_does_not_matter(tmp_path) -> None:
    np.savez(tmp_path / "d.npz", a=np.ones((3, 4)), u=np.ones((3, 4)))
    (tmp_path / "d.npz.partial").write_text("the rest of another download")
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
    assert [file.stat().st_mtime_ns for file in files] == before  # made once


def data_of(a: np.ndarray, u: np.ndarray, **more: object) -> Dataset:
    dims = tuple(("sample", *"xy"[: v.ndim - 1]) for v in (a, u))
    pairs = Pairs.of(a, u, dims=dims, **more)
    return Dataset(pairs, pairs[:0], {"schema": 1, "name": "d"})


def findings(data: Dataset) -> str:
    return "\n".join(map(str, check(data)))


def test_clean_data_raise_no_finding() -> None:
    rng = np.random.default_rng(6)
    assert not check(data_of(rng.standard_normal((60, 12)), rng.standard_normal((60, 12))))
    for eq in (pdno.equation.Elliptic1D(), pdno.equation.Darcy(points=16), pdno.equation.Burgers(points=64)):
        assert not check(pdno.generate(eq, train=60, test=20)), eq.name
    assert not check(pdno.generate(pdno.equation.Advection(points=64), train=200, noise="gaussian:0.5"))


def test_each_flaw_is_found_with_its_place() -> None:
    rng = np.random.default_rng(7)
    a, u = rng.standard_normal((2, 60, 12))
    broken = u.copy()
    broken[7, 3] = np.nan
    broken[9, 1:3] = np.inf
    assert "error: train u: NaN or infinite values in 2 samples (first 7), 3 in all, first at [7, 0, 3]" in findings(
        data_of(a, broken)
    )
    assert "note: train u: NaN or infinite values" in findings(data_of(a, broken, mask="nan"))
    flat = u.copy()
    flat[[4, 5]] = 2.0
    assert "warning: train u: 2 samples (first 4) have the same value everywhere" in findings(data_of(a, flat))
    odd = u.copy()
    odd[11, 2] = 80.0
    assert (
        "values in sample 11 lie far outside those of the others at the same point, 1 in all, first u[11, 0, 2] = 80"
        in findings(data_of(a, odd))
    )
    twice = a.copy()
    twice[10] = twice[3]
    assert "1 pairs repeat the input of another with a different output" in findings(data_of(twice, u))
    copied = u.copy()
    copied[10] = copied[3]
    assert "1 pairs are exact copies" in findings(data_of(twice, copied))
    leak = data_of(a, u)
    assert "3 of 3 inputs are also in train" in findings(Dataset(leak.train, leak.train[:3], leak.provenance))
    down = data_of(a, u, coordinates={"x": np.linspace(1, 0, 12)})
    assert "coordinate x: does not ascend" in findings(down)
    swapped = Pairs.of(rng.random((5, 4, 6)), rng.random((5, 6, 4)), dims=(("sample", "x", "y"), ("sample", "p", "q")))
    assert "a on 4 × 6 and u on 6 × 4 points: are the axes" in findings(Dataset(swapped, swapped[:0], {}))
    uneven = data_of(a, u, coordinates={"x": np.linspace(0, 1, 12) ** 2})
    assert "coordinate x: is uneven" in findings(uneven)


def test_outliers_are_not_heavy_tails_nor_zeros() -> None:
    rng = np.random.default_rng(8)
    assert not outliers(np.exp(rng.standard_normal((2000, 20)))).any()
    assert not outliers((rng.random((300, 20)) < 0.3).astype(float)).any()
    boundary = rng.random((300, 20))
    boundary[:, 0] = 0
    assert not outliers(boundary).any()
    boundary[17, 0] = 0.4
    assert np.argwhere(outliers(boundary)).tolist() == [[17, 0]]


def test_inspect_shows_arrays_and_writes_a_picture(tmp_path, capsys) -> None:
    rng = np.random.default_rng(9)
    np.savez(tmp_path / "d.npz", a=rng.random((5, 8, 8)), u=rng.random((5, 8, 8)), **{"[red]name": np.arange(3)})
    output = inspect(tmp_path / "d.npz", capsys, "--plot", str(tmp_path / "p.png"))
    assert re.search(r"a\s+5 × 8 × 8\s+float64", output)
    assert "[red]name" in output
    assert "--a a --u u --dims sample,x,y" in output
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_of_a_large_file_the_first_samples_are_looked_at(tmp_path, monkeypatch, capsys) -> None:
    rng = np.random.default_rng(12)
    a, u = rng.random((2, 400, 16))
    u[300] = np.nan  # beyond what is looked at
    u[3, 2] = np.nan
    np.savez(tmp_path / "d.npz", a=a, u=u)
    monkeypatch.setattr("pdno.run.inspect.WHOLE", 25_000)
    output = inspect(tmp_path / "d.npz", capsys)
    assert "The file is large" in output
    assert "NaN or infinite values in sample 3, 1 in all" in output
    assert "97 train pairs" in output


def test_unusual_types_are_named(tmp_path, capsys) -> None:
    rng = np.random.default_rng(11)
    np.savez(tmp_path / "d.npz", a=rng.integers(0, 2, (6, 9)).astype(np.uint8), u=rng.random((6, 9)).astype(">f4"))
    output = inspect(tmp_path / "d.npz", capsys)
    assert "'a' holds whole numbers, read as float32" in output
    assert "'u' is stored with its bytes in the other order (>f4)" in output


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


def test_inspect_of_a_store(tmp_path, capsys) -> None:
    pdno.generate(pdno.equation.Darcy(points=8), train=3, out=tmp_path / "d.zarr")
    output = inspect(tmp_path / "d.zarr", capsys)
    assert "a store of pdno" in output
    assert "pdno.open(" in output


def test_sketches() -> None:
    assert sketch(np.zeros(5)) == "▁▁▁▁▁"
    assert sketch(np.array([np.nan, 1.0, 2.0])) == "▁▁█"
    lines = sketch(np.add.outer(np.arange(8.0), np.arange(8.0))).splitlines()
    assert len(lines) == 4
    assert lines[0][-1] == "█"
    assert lines[-1][0] == " "


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("inspect nothing.npz", "nothing.npz"),
        ("inspect d.npz --a a", "only one of --a and --u"),
        ("inspect d.npz --a a --u w --dims sample,x,y", "has no array 'w'"),
        ("inspect d.npz --a a --u u", "more than one way"),
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
