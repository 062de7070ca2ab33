"""A table of parameters and a file of fields: from files to report by the commands that pdno itself suggests."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pdno.cli import main
from pdno.errors import UserError
from pdno.run.evaluate import evaluate_run
from tests.run.helpers import output

NAMES = ["speed [m/s]", "angle"]


def write(name: str, count: int, seed: int = 0) -> None:
    """Write fields and a table of their parameters."""
    p = np.random.default_rng(seed).random((count, 2))
    np.savez(f"{name}.npz", flow=np.sin(3 * p[:, :1] * np.linspace(0, 1, 12)) + p[:, 1:])
    pd.DataFrame(p, columns=NAMES).to_csv(f"{name}.csv")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with fields, a table, and a run that was trained on them."""
    folder = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write("runs", 40)
        write("more", 12, seed=1)
        command = "train runs.npz --u flow --parameters runs.csv --out run --preset linear"
        with pytest.raises(SystemExit) as stop:
            main(command.split())
    assert stop.value.code == 0
    return folder


def suggested(printed: str, command: str) -> str:
    """Return a command that pdno printed, without `pdno` and without comments."""
    line = next(line for line in printed.splitlines() if re.search(rf"\bpdno {command}\b", line))
    return shlex.join(shlex.split(line.partition(f"pdno {command}")[2].partition("  #")[0]))


def test_inspect_uses_the_only_table_that_fits_and_prints_the_command_that_trains(trained, monkeypatch, capsys) -> None:
    monkeypatch.chdir(trained)
    printed = output(capsys, "inspect more.npz")
    assert "Parameters: more.csv, which has as many rows as an array has samples" in printed
    assert re.search(r"speed \[m/s\] +0\.\d+ +0\.\d+ +0\.\d+ +12", printed)
    assert "same value everywhere" not in printed
    assert suggested(printed, "train") == "more.npz --u flow --parameters more.csv --out more-run"


def test_inspect_suggests_one_of_several_tables(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    write("runs", 12)
    Path("other.csv").write_text(Path("runs.csv").read_text())
    hint = suggested(output(capsys, "inspect runs.npz"), "inspect runs.npz --parameters")
    assert hint == "other.csv"
    assert suggested(output(capsys, f"inspect runs.npz --parameters {hint}"), "train")


def test_training_suggests_the_report_which_names_the_parameters(trained, monkeypatch, capsys) -> None:
    monkeypatch.chdir(trained)
    again = output(capsys, "train runs.npz --u flow --parameters runs.csv --out run --preset linear")
    monkeypatch.setattr("pdno.run.report._png", lambda figure: "")  # drawing takes most of the time
    output(capsys, f"report {suggested(again, 'report')}")
    page = (trained / "run" / "report.html").read_text()
    assert "Training parameters: speed [m/s] from 0." in page
    assert "The error of the mean, relative to the spread of outputs, is" in page
    assert "has the largest effect" in page
    assert "along each parameter, the others in the middle of their ranges" in page
    assert "refitted on parts of the runs" in page
    assert re.search(r"Largest error: test input \d+, speed \[m/s\] = 0\.\d+, angle = 0\.\d+\.", page)


def test_predictions_for_a_table_have_its_parameters(trained, monkeypatch, capsys) -> None:
    monkeypatch.chdir(trained)
    pd.DataFrame({"angle": [0.5], "speed [m/s]": [0.25]}).to_csv("new.csv", index=False)
    output(capsys, "predict run new.csv --members 2 --out new.zarr")
    predicted = xr.open_zarr("new.zarr", consolidated=False)
    assert predicted["parameters"].attrs["long_name"] == "parameters of the input: speed [m/s], angle"
    np.testing.assert_array_equal(predicted["parameters"], [[0.25, 0.5]])


def test_a_run_is_evaluated_on_another_table(trained, monkeypatch, capsys) -> None:
    monkeypatch.chdir(trained)
    output(capsys, "evaluate run more.npz --parameters more.csv --members 2")
    with pytest.raises(UserError, match=r"give that of .*more\.npz with --parameters"):
        evaluate_run(trained / "run", trained / "more.npz", members=2)


def test_suggestions_are_a_table_for_the_solver(trained, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.chdir(trained)
    out = tmp_path / "next.csv"
    printed = output(capsys, f"suggest run --box angle=0,0.5 -n 3 --out {out}")
    table = pd.read_csv(out)
    assert list(table.columns) == NAMES
    assert table["angle"].between(0, 0.5).all()
    assert len(table.drop_duplicates()) == 3
    assert "expected error" in printed
    assert re.search(r"would fall to \d+ % of its", " ".join(printed.split()))
    chosen = tmp_path / "chosen.csv"
    output(capsys, f"suggest run --pool {out} -n 2 --out {chosen}")
    assert len(pd.read_csv(chosen).merge(table)) == 2  # rows of the pool
    with pytest.raises(SystemExit) as stop:
        main(["suggest", "run", "--out", str(out)])
    assert stop.value.code == 2
    for options, message in (
        (["--box", "0,x"], "expected two numbers"),
        (["--box", "angle=0,1", "--box", "0,1"], "name all of them, or none"),
        (["--box", "angel=0,1"], "no parameter 'angel'"),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main(["suggest", "run", *options, "--out", str(tmp_path / "none.csv")])
        assert message in capsys.readouterr().err


def test_a_changed_table_is_noticed(trained, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(trained)
    before = (trained / "runs.csv").read_text()
    pd.DataFrame(np.random.default_rng(5).random((40, 2)), columns=NAMES).to_csv("runs.csv")
    try:
        with pytest.raises(UserError, match="has changed since"):
            evaluate_run(trained / "run", members=2)
    finally:
        (trained / "runs.csv").write_text(before)


def test_training_warns_of_a_parameter_that_never_changes(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    write("runs", 20)
    pd.read_csv("runs.csv", index_col=0).assign(g=9.81).to_csv("runs.csv")
    printed = output(capsys, "train runs.npz --u flow --parameters runs.csv --out run --preset linear")
    assert "parameter 'g': never changes (9.81)" in printed
