"""The command line: output of the commands, and one line with exit code 2 for errors of the user."""

import subprocess
import sys

import numpy as np
import pytest

import pdno
from pdno.cli import main
from pdno.data.selection import Selection
from pdno.run import results
from pdno.run.options import SELECTION


def run(arguments: str, cwd=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pdno", *arguments.split()], capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_generate_as_documented(tmp_path) -> None:
    command = "generate darcy --points 16 --train 10 --test 4 --noise gaussian:0.05 --seed 0 --out darcy.zarr"
    answer = run(command, tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "10 train + 4 test pairs" in answer.stdout
    assert answer.stderr == ""
    data = pdno.open(tmp_path / "darcy.zarr")
    expected = pdno.generate(pdno.equation.Darcy(points=16), train=10, test=4, noise=pdno.noise.Gaussian(0.05), seed=0)
    np.testing.assert_array_equal(data.test.u_eta, expected.test.u_eta)


def test_settings_of_the_equation(tmp_path) -> None:
    arguments = (
        f"generate burgers --points 32 --train 2 --test 0 --set viscosity=0.02 --set speed=1 --out {tmp_path / 'b.zarr'}"
    )
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 0
    settings = pdno.open(tmp_path / "b.zarr").provenance["equation"]["settings"]
    assert (settings["viscosity"], settings["speed"], settings["points"]) == (0.02, 1.0, 32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("generate darcy --points 1 --out x.zarr", "points = 1"),
        ("generate darcy --points many --out x.zarr", "--points"),
        ("generate darcy --noise gaussian:-0.1 --out x.zarr", "not negative"),
        ("generate darcy --noise gausian:0.1 --out x.zarr", "did you mean 'gaussian'?"),
        ("generate darci --out x.zarr", "did you mean 'darcy'?"),
        ("generate darcy --out taken", "never overwritten"),
        ("generate darcy --out no/such/folder/x.zarr", "does not exist"),
        ("generate darcy --out taken/x.zarr", "is not a folder"),
        ("generate darcy --out x.h5", "call it x.zarr"),
        ("generate darcy --set points=16 --out x.zarr", "write --points"),
        ("generate darcy --train 0 --out x.zarr", "train = 0"),
        ("generate darcy --set tua=3 --out x.zarr", "did you mean 'tau'?"),
        ("generate darcy --set tau=three --out x.zarr", "tau=NUMBER"),
        ("generate darcy --set tau=-3 --out x.zarr", "positive"),
        ("generate advection --points 33 --out x.zarr", "16.5 of 33 cells"),
        ("generate darcy", "--out"),
        ("generate", "equation"),
        ("generate darcy --outt x.zarr", "--out"),
        ("generat", "generate"),
        ("demo --out taken", "is a file"),
    ],
)
def test_errors_are_one_line_and_exit_code_two(arguments, words, tmp_path, refused) -> None:
    (tmp_path / "taken").write_text("precious")
    assert words in refused(arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_unwritable_folder(monkeypatch, refused) -> None:
    monkeypatch.setattr("pdno.data.store.os.access", lambda path, mode: False)  # root may write anywhere
    assert "is not writable" in refused("generate darcy --out x.zarr")


def test_a_full_disk(tmp_path, monkeypatch, refused) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x.zarr")

    monkeypatch.setattr("pdno.data.generate.store.write", full)
    errors = refused("generate darcy --points 8 --train 4 --workers 1 --out x.zarr")
    assert errors == "pdno: No space left on device: x.zarr\n"
    assert not (tmp_path / "x.zarr").exists()


def test_not_enough_memory(monkeypatch, refused) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("pdno.data.generate.store.write", too_much)
    assert "not enough memory" in refused("generate darcy --points 8 --train 4 --workers 1 --out x.zarr")


def test_the_options_of_a_selection_are_its_fields() -> None:
    assert list(SELECTION) == list(Selection.__dataclass_fields__)


def test_help_and_version(capsys) -> None:
    for arguments, words in ((["--help"], "generate"), ([], "generate"), (["--version"], pdno.__version__)):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        assert words in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    text = capsys.readouterr().out
    for eq in pdno.equation.EQUATIONS.values():
        for setting in set(eq().settings()) - {"points"}:
            assert f"{setting}=" in text, f"{eq.name} --set {setting} is not in the help"


def test_demo_and_the_commands_that_it_prints(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    """With fewer pairs. The commands give the same numbers; a second call skips the finished steps."""
    monkeypatch.chdir(tmp_path)
    for name, few in (("TRAIN", 300), ("TEST", 6), ("MEMBERS", 20)):
        monkeypatch.setattr(f"pdno.run.demo.{name}", few)
    assert ran(["demo"]) == 0
    answer = capsys.readouterr().out
    for text in ("Accuracy: ", "Calibration: ", "Limitations: ", "fair CRPS"):
        assert text in answer
    assert answer.rstrip().endswith("Report: demo/run/report.html")
    for file in ("noisy.zarr", "prediction.zarr", "run/model.safetensors", "run/results.json", "run/report.html"):
        assert (tmp_path / "demo" / file).exists()
    made = results.read(tmp_path / "demo" / "run" / "results.json")["rows"]
    commands = [line.strip() for line in answer.splitlines() if line.startswith("   pdno ")]
    assert [command.split()[1] for command in commands] == ["generate", "train", "evaluate", "predict", "report"]
    for command in commands:
        assert ran(command.replace("demo/", "again-").split()[1:]) == 0
    again = results.read(tmp_path / "again-run" / "results.json")["rows"]
    assert [(row["metric"], row["value"]) for row in again] == [(row["metric"], row["value"]) for row in made]
    monkeypatch.setattr("pdno.run.demo.evaluate_run", None)
    monkeypatch.setattr("pdno.run.demo.generate", None)
    monkeypatch.setattr("pdno.run.demo.predict", None)
    assert ran(["demo"]) == 0


def ran(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return int(stop.value.code or 0)
