"""`pdno inspect`: it shows what is in a file, and the commands that it prints work."""

import io
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import pdno
from pdno.cli import main
from pdno.data import formats
from pdno.data.formats import numpy_files
from pdno.run.inspect import sketch
from tests.run.helpers import output

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
    """Return the command that `inspect` printed, as arguments."""
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
    assert "train u: values in sample 767 are far outside" in output
    assert "u[767, 0, 0, 2] = -0.428" in output
    assert "test u: values in sample 12 are far outside" in output


def test_two_arrays_in_a_mat_file(tmp_path, monkeypatch, capsys) -> None:
    """The printed command works as it is."""
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


def test_inspect_shows_arrays_and_writes_a_picture(tmp_path, capsys) -> None:
    rng = np.random.default_rng(9)
    np.savez(tmp_path / "d.npz", a=rng.random((5, 8, 8)), u=rng.random((5, 8, 8)), **{"[red]name": np.arange(3)})
    output = inspect(tmp_path / "d.npz", capsys, "--plot", str(tmp_path / "p.png"))
    assert re.search(r"a\s+5 × 8 × 8\s+float64", output)
    assert "[red]name" in output
    assert "--a a --u u --dims sample,x,y" in output
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_of_a_large_file_rows_from_all_parts_are_checked(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("pdno.run.inspect.FILE_BYTES", 2**14)
    monkeypatch.setattr("pdno.run.inspect.SAMPLE_BYTES", 2**12)
    a = np.arange(300.0)[:, None] + np.sin(np.arange(16) ** 2)
    u = a.copy()
    u[299, 3] = np.nan
    np.savez(tmp_path / "d.npz", a=a, u=u)
    read = []
    fetch = numpy_files._fetch_npz
    monkeypatch.setattr(numpy_files, "_fetch_npz", lambda *args: read.append(args[-2:]) or fetch(*args))
    said = output(capsys, f"inspect {tmp_path / 'd.npz'}")
    assert "those of rows from its beginning" in said
    assert "21 train pairs" in said
    assert "≈300" in said
    assert "sample 20, 1 in total" in said
    assert sum(end - first for first, end in read) <= 2 * 21


def test_conversions_of_types_are_noted(tmp_path, capsys) -> None:
    rng = np.random.default_rng(11)
    np.savez(tmp_path / "d.npz", a=rng.integers(0, 2, (6, 9)).astype(np.uint8), u=rng.random((6, 9)).astype(">f4"))
    output = inspect(tmp_path / "d.npz", capsys)
    assert "'a' holds whole numbers, converted to float32" in output
    assert "'u' is stored in the other byte order (>f4)" in output


def test_inspect_of_a_store(tmp_path, capsys) -> None:
    pdno.generate(pdno.equation.Darcy(points=8), train=3, out=tmp_path / "d.zarr")
    output = inspect(tmp_path / "d.zarr", capsys)
    assert "a store of pdno" in output
    assert "pdno.open(" in output


def test_sketches() -> None:
    assert sketch(np.zeros(5)) == "▁▁▁▁▁"
    assert sketch(np.array([np.nan, 1.0, 2.0])) == "▁▁█"
    assert sketch(np.array([-np.inf, 1.0, 2.0, np.inf])) == "▁▁██"
    lines = sketch(np.add.outer(np.arange(8.0), np.arange(8.0))).splitlines()
    assert len(lines) == 4
    assert lines[0][-1] == "█"
    assert lines[-1][0] == " "


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ({"inputs": (20, 8, 8), "params": (20, 3), "temp": (20, 8, 8)}, "--a inputs --u temp --dims sample,x,y"),
        ({"a": (20, 2, 16), "u": (20, 16)}, "--a a --u u --dims sample,channel,x:sample,x"),
        ({"a": (20, 16, 2), "u": (20, 16)}, "--a a --u u --dims sample,x,channel:sample,x"),
        ({"a": (20, 2, 16), "u": (20, 3, 16)}, "--a a --u u --dims sample,channel,x"),
        ({"a": (20, 8, 8, 2), "u": (20, 8, 8, 3)}, "--a a --u u --dims sample,x,y,channel"),
        ({"a": (20, 2, 16), "u": (20, 2, 16)}, "--a a --u u --dims sample,channel,x"),
        ({"a": (20, 8, 9), "u": (20, 8, 9)}, "--a a --u u --dims sample,x,y"),
        ({"p": (20, 2), "u": (20, 16)}, "--a p --u u --dims sample,parameter:sample,x"),
        ({"p": (20, 3), "u": (20, 9, 9)}, "--a p --u u --dims sample,parameter:sample,x,y"),
    ],
)
def test_the_printed_command_opens_the_file(arrays, options, tmp_path, capsys) -> None:
    """With and without the names, the same dimensions are suggested."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", **{name: rng.standard_normal(shape) for name, shape in arrays.items()})
    assert f"d.npz {options} --out" in output(capsys, f"inspect {tmp_path / 'd.npz'}")
    names = options.split(" --dims")[0]
    assert f"d.npz {options} --out" in output(capsys, f"inspect {tmp_path / 'd.npz'} {names}")
    selection = options.replace("--", "").split()
    pdno.open(tmp_path / "d.npz", **dict(zip(selection[::2], selection[1::2], strict=True)))


@pytest.mark.parametrize(("place", "typed"), [("u", ""), ("u", "--mask nan"), ("a", "")])
def test_missing_values_are_in_the_printed_command(place, typed, tmp_path, capsys) -> None:
    arrays = {name: np.random.default_rng(0).standard_normal((20, 8)) for name in "au"}
    arrays[place][3, 4] = np.nan
    np.savez(tmp_path / "d.npz", **arrays)
    said = output(capsys, f"inspect {tmp_path / 'd.npz'} {typed}")
    assert ("--a a --u u --mask nan --out" in said) == ("a='a', u='u', mask='nan'" in said) == (place == "u")
    assert ("Correct these values first" in said) == (place == "a")


@pytest.mark.parametrize(("counts", "words"), [((1, 1), "only one sample"), ((20, 15), "numbers of samples differ")])
def test_files_without_pairs_are_explained(counts, words, tmp_path, capsys, refused) -> None:
    np.savez(tmp_path / "d.npz", a=np.ones((counts[0], 8)), u=np.ones((counts[1], 8)))
    said = output(capsys, f"inspect {tmp_path / 'd.npz'}")
    error = refused("train d.npz --out run")
    for text in (said, error):
        assert words in text
        assert "--a, --u and --dims" in text


def test_samples_that_may_be_last_are_pointed_out(tmp_path, capsys) -> None:
    arrays = {name: np.ones((n, 20)) for name, n in (("force", 8), ("shape", 8), ("P", 2))}
    np.savez(tmp_path / "d.npz", **arrays)
    said = output(capsys, f"inspect {tmp_path / 'd.npz'}")
    assert "the last axis of all arrays has the same length" in said
    assert "--a NAME --u NAME --dims x,sample" in said


def test_the_format_of_the_picture_is_checked_first(tmp_path, refused) -> None:
    np.savez(tmp_path / "d.npz", a=np.ones((4, 8)), u=np.ones((4, 8)))
    assert "'.xyz' is not a format of pictures" in refused("inspect d.npz --plot x.xyz")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_terminals_that_are_not_utf_8(encoding, tmp_path, monkeypatch) -> None:
    np.savez(tmp_path / "d.npz", a=np.eye(8), u=np.eye(8))
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding=encoding))
    with pytest.raises(SystemExit) as stop:
        main(["inspect", str(tmp_path / "d.npz")])
    sys.stdout.flush()
    assert stop.value.code == 0
    assert "pdno train" in buffer.getvalue().decode(encoding)
