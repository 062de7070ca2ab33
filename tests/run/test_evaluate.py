"""`pdno evaluate`: its output, the files that it writes, and the conformal intervals of `pdno predict`."""

import json
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.data.selection import Selection
from pdno.model.saving import load
from pdno.run import evaluate as evaluating
from pdno.run import results
from pdno.run.evaluate import evaluate_run
from pdno.run.folder import conformal_of, data_of, is_current
from pdno.run.report import render
from tests.helpers import SMALL
from tests.run.helpers import EVALUATE, output, read


def test_table_verdict_and_next_command_are_printed(run, capsys) -> None:
    printed = output(capsys, EVALUATE)
    assert "relative L2 error of the mean" in printed
    for heading in ("metric", "value", "± error", "Accuracy: ", "Calibration: ", "Noise: ", "Limitations: "):
        assert heading in printed
    assert "pdno report run" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80


def test_rows_have_all_documented_fields(noisy) -> None:
    found = results.read(noisy / "results.json")
    rows = {row["metric"]: row for row in found["rows"]}
    assert found["schema"] == 1
    for row in rows.values():
        assert list(row) == list(results.FIELDS)
    assert all((row["channel"], row["law"]) == (None, "diffusion") for row in rows.values())
    assert results.row("coverage_90_worst", 0.5, quantile=0.0)["quantile"] == 0.0
    row = rows["mrle"]
    assert (row["test"], row["method"], row["grid"], row["train"], row["noise"]) == (
        "elliptic1d",
        "pdno",
        "16",
        108,
        "gaussian:0.1",
    )
    assert (row["members"], row["evaluations"], row["seed"], row["version"]) == (20, 8, 0, pdno.__version__)
    assert row["parameters"] == pdno.load(noisy).law.residual.networks[0].parameters
    assert row["train_seconds"] > 0
    assert row["sample_seconds"] > 0
    assert {"mrle", "mean_std", "mstd", "crps", "energy_score", "coverage_90", "residual_mean", "std_noise_ratio"} <= set(rows)


def test_numbers_are_those_of_the_python_interface(noisy) -> None:
    rows = {row["metric"]: row["value"] for row in results.read(noisy / "results.json")["rows"]}
    data = data_of(noisy)
    pred = pdno.load(noisy).predict(data.test.a, members=20)
    expected = np.mean(np.linalg.norm(pred.mean - data.test.u, axis=-1) / np.linalg.norm(data.test.u, axis=-1))
    assert rows["mrle"] == pytest.approx(expected, rel=1e-6)
    e = pdno.evaluate(pdno.load(noisy), data, members=20, progress=False)
    assert rows == pytest.approx({name: score.value for name, score in e.scores.items()})


def test_the_same_command_gives_the_same_numbers(run, capsys) -> None:
    output(capsys, EVALUATE)
    first = [(row["metric"], row["value"]) for row in results.read(run / "results.json")["rows"]]
    output(capsys, EVALUATE)
    assert [(row["metric"], row["value"]) for row in results.read(run / "results.json")["rows"]] == first


def test_values_of_the_paper() -> None:
    assert results.paper("darcy", "64x64", "none", "mrle") == 0.0046
    assert results.paper("darcy", "64x64", "gaussian:1", "mrle") is None
    assert results.paper("mine", "64x64", "none", "mrle") is None
    assert results.paper("burgers", "2048", "none", "mstd") == 1.51e-3


def test_training_pairs_are_never_evaluated(run, capsys, no_pictures) -> None:
    own = data_of(run)
    np.savez("all.npz", force=own.train.a[:, 0], deflection=own.train.u[:, 0], site=np.arange(len(own.train)))
    with pytest.raises(UserError, match=r"all inputs in all\.npz are training inputs"):
        evaluate_run(run, Path("all.npz"), members=20)
    fresh = np.concatenate([own.train.a[:5, 0], np.random.default_rng(5).standard_normal((6, 16))])
    np.savez("some.npz", force=fresh, deflection=fresh, site=np.arange(11))
    said = output(capsys, "evaluate run some.npz --members 20")
    assert "omitted 5 pairs of some.npz that the model was trained on: 6 are left" in said
    assert "5 pairs were omitted" in read(render(run, run / "evaluation-some")).text
    with pytest.raises(UserError, match="choose test or validation"):
        evaluate_run(run, split="train")


def test_other_data_with_other_names(run, capsys) -> None:
    fields = np.random.default_rng(6).standard_normal((2, 7, 16))
    np.savez("other.npz", load=fields[0], shape=fields[1])
    output(capsys, "evaluate run other.npz --a load --u shape --dims sample,x --members 20")
    assert results.read(run / "evaluation-other/results.json")["metadata"]["inputs"] == 7


def test_other_data_after_the_training_data_were_removed(run) -> None:
    np.savez("fresh.npz", force=np.eye(16)[:6], deflection=np.eye(16)[:6], site=np.arange(6))
    Path("mine.npz").unlink()
    e = evaluate_run(run, Path("fresh.npz"), members=20)
    assert "crps_unconditional" not in e.scores
    with pytest.raises(UserError, match="no longer exists"):
        evaluate_run(run, members=20)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate nowhere", "nowhere does not exist|is not"),
        ("evaluate run --members 5", "at least 19"),
        ("evaluate run --split train", "held-out pairs"),
        ("evaluate run --steps 99", "steps"),
        ("evaluate run missing.npz", "missing.npz"),
        ("report nowhere", "nowhere"),
        ("report run --out nowhere/x.html", "nowhere"),
    ],
)
def test_errors_are_one_line(run, capsys, command, message, no_pictures) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    errors = capsys.readouterr().err
    assert stop.value.code == 2
    assert errors.startswith("pdno: ")
    assert errors.count("\n") == 1
    assert any(part in errors for part in message.split("|"))


# Conformal intervals in predictions


def test_predictions_have_conformal_intervals_and_the_flag(noisy, tmp_path, capsys) -> None:
    output(capsys, f"predict {noisy} --members 20 --out {tmp_path / 'p.zarr'}")
    found = xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)
    assert found["lower_0.9"].shape == found["mean"].shape
    assert "conformal 90 % interval" in found["lower_0.9"].attrs["long_name"]
    assert all("long_name" in found[name].attrs for name in found.data_vars)
    assert (found["lower_0.9"] <= found["upper_0.9"]).all()
    model, data = pdno.load(noisy), data_of(noisy)
    np.testing.assert_array_equal(found["is_ood"].values, model.novelty.flag(data.test.a))
    e = pdno.evaluate(model, data, members=20, progress=False)
    inside = (found["lower_0.9"].values <= data.test.u_eta) & (data.test.u_eta <= found["upper_0.9"].values)
    assert inside.mean() == pytest.approx(e.scores["coverage_90_conformal"].value)


def test_intervals_in_python_are_those_of_the_command(noisy, tmp_path, capsys) -> None:
    output(capsys, f"predict {noisy} --members 20 --out {tmp_path / 'p.zarr'}")
    found = xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)
    lower, upper = pdno.load(noisy).predict(data_of(noisy).test.a, members=20).interval(0.9)
    np.testing.assert_allclose(lower, found["lower_0.9"])
    np.testing.assert_allclose(upper, found["upper_0.9"])
    assert pdno.load(noisy / "model.safetensors").predict(data_of(noisy).test.a, members=20).intervals is None


def test_a_calibration_for_other_sampling_settings_is_not_used(noisy, tmp_path, capsys) -> None:
    output(capsys, f"predict {noisy} --members 20 --steps 3 --out {tmp_path / 'p.zarr'}")
    assert "lower_0.9" not in xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)


def test_a_calibration_with_other_members_is_not_used(noisy, tmp_path, capsys) -> None:
    """The bounds of 40 members vary less than those of 20: factors that belong to these are for these only."""
    printed = output(capsys, f"predict {noisy} --members 40 --out {tmp_path / 'p.zarr'}")
    assert "or number of members; use the options of" in printed
    assert "(its --members is 20)" in printed
    assert "lower_0.9" not in xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)


def test_out_of_distribution_inputs_are_reported(noisy, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("odd.npz", a=100 * np.random.default_rng(0).random((3, 16)))
    assert "3 inputs are flagged as out of distribution" in output(capsys, f"predict {noisy} odd.npz --a a --members 2")
    assert pdno.load(noisy).predict(np.load("odd.npz")["a"], members=2).is_ood.all()


@pytest.mark.slow
def test_the_training_command_reproduces_the_model(run, capsys) -> None:
    output(capsys, EVALUATE)
    command = results.read(run / "results.json")["metadata"]["train_command"]
    assert command in read(render(run)).text
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(command)[1:])
    assert stop.value.code == 0
    a = data_of(run).test.a
    again = pdno.load("run-again")
    np.testing.assert_array_equal(again.sample(a, chunk=4), pdno.load(run).sample(a, chunk=4))


def test_the_calibration_of_another_model_is_not_used(noisy, tmp_path) -> None:
    shutil.copytree(noisy, tmp_path / "run")
    assert conformal_of(tmp_path / "run", 20, {}).samples == 12
    model = pdno.load(noisy)
    model.provenance["updates"] = 3
    model.save(tmp_path / "run" / "model.safetensors")
    assert conformal_of(tmp_path / "run", 20, {}) is None


@pytest.mark.slow
def test_other_data_do_not_change_the_calibration(noisy, tmp_path, no_pictures) -> None:
    shutil.copytree(noisy.parent, tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    before = (run / "intervals.safetensors").read_bytes()
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "new.npz", a=1 + rng.random((5, 16)), u=rng.random((5, 16)))
    selection = Selection("a", "u", "sample,x")
    assert evaluate_run(run, tmp_path / "new.npz", selection, members=20).metadata["inputs"] == 5
    assert (run / "intervals.safetensors").read_bytes() == before
    assert "new.npz" in read(render(run, run / "evaluation-new")).text
    assert "new.npz" not in read(render(run)).text


def test_training_pairs_are_recognised_in_a_renamed_file(run) -> None:
    """Training and validation inputs are excluded by fingerprint."""
    own = data_of(run)
    Path("mine.npz").rename("moved.npz")
    e = evaluate_run(run, Path("moved.npz"), members=20)
    assert e.metadata["inputs"] == len(own.test)
    a = np.load("moved.npz")["force"].astype(np.float32)
    np.savez("single.npz", force=a, deflection=np.load("moved.npz")["deflection"])
    assert evaluate_run(run, Path("single.npz"), members=20).metadata["inputs"] == len(own.test)


def test_inputs_that_differ_by_scalars(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, count in (("old.npz", 40), ("new.npz", 6)):
        np.savez(name, a=np.ones((count, 16)), p=rng.random((count, 2)), u=rng.random((count, 16)))
    output(capsys, f"train old.npz --a a --u u --scalars p --dims sample,x --out run {SMALL}")
    assert evaluate_run(Path("run"), Path("new.npz"), members=20).metadata["inputs"] == 6


def test_few_members_have_no_conformal_intervals(noisy, tmp_path, capsys) -> None:
    printed = output(capsys, f"predict {noisy} --members 5 --out {tmp_path / 'p.zarr'}")
    assert "no conformal intervals" in printed
    assert "lower_0.9" not in xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)


def test_a_selection_for_the_runs_own_file_is_refused(run) -> None:
    with pytest.raises(UserError, match="whose arrays are recorded"):
        evaluate_run(run, Path("mine.npz"), Selection("deflection", "force"), members=20)


def test_a_truncated_log_is_read(run) -> None:
    with (run / "times.jsonl").open("a") as file:
        file.write('{"step": 3, "sec')
    assert evaluate_run(run, members=20).scores


def test_damaged_results_are_refused(run, capsys) -> None:
    output(capsys, EVALUATE)
    for text, message in (("{", "not a file of results"), ('{"rows": []}', "schema None"), ('{"schema": 1}', "has no rows")):
        (run / "results.json").write_text(text)
        with pytest.raises(UserError, match=message):
            results.read(run / "results.json")
    with pytest.raises(UserError, match="no field 'nonsense'"):
        results.row("mrle", 0.1, nonsense=1)


def test_the_model_of_the_paper_has_its_own_name() -> None:
    """Where every setting is the paper's: another batch, symmetries or fewer pairs make it another model."""
    config = pdno.run.config.Config.preset("paper:darcy")
    config = config.model_copy(update={"data": pdno.run.config.DataSection(pairs={"train": 1000, "test": 100})})
    model = pdno.PDNO.paper("darcy")

    def method(changed: pdno.run.config.Config, data: str = "darcy") -> str:
        return evaluating._method(model, changed, {"data": data})

    assert method(config) == method(config.with_set(["model.grid=cell"])) == "pdno-paper"
    assert method(config, "mine") == "pdno"
    for change in (
        "training.batch=10",
        "training.epochs=100",
        'model.symmetries=["square"]',
        "network.base=32",
        "model.budget=60",
    ):
        assert method(config.with_set([change])) == "pdno"
    fewer = config.model_copy(update={"data": pdno.run.config.DataSection(pairs={"train": 900, "test": 100})})
    assert method(fewer) == "pdno"
    assert method(config.with_set(["diffusion.base=field:3,2"])) == "pdno-functional"


def test_training_time_is_summed_over_sessions(tmp_path) -> None:
    (tmp_path / "times.jsonl").write_text(
        "".join(json.dumps({"step": i, "seconds": s}) + "\n" for i, s in enumerate((1, 5, 2, 3)))
    )
    assert evaluating._training_seconds(tmp_path) == 5 + 3
    assert evaluating._training_seconds(tmp_path / "nowhere") is None


def test_a_foreign_run_writes_nowhere_else(run, tmp_path) -> None:
    """The folder of a cache that config.toml names is read, not written."""
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace('"a" = "force"', f'"a" = "force", "cache" = "{tmp_path / "elsewhere"}"'))
    assert data_of(run).train.a.shape[1:] == (1, 16)
    assert not (tmp_path / "elsewhere").exists()


def test_other_data_leave_the_results_of_the_run(run, capsys, no_pictures) -> None:
    output(capsys, EVALUATE)
    before = (run / "results.json").read_bytes()
    for folder in (Path(), Path("elsewhere")):
        folder.mkdir(exist_ok=True)
        count = 6 if folder == Path() else 7
        fields = np.random.default_rng(7).standard_normal((2, count, 16))
        np.savez(folder / "other.npz", force=fields[0], deflection=fields[1])
    assert "pdno report run other.npz" in output(capsys, "evaluate run other.npz --members 20")
    said = output(capsys, "evaluate run --split validation --members 20 --calibrate 0")
    assert "trained or validated on 4 of the 4 test inputs" in " ".join(said.split())
    assert (run / "results.json").read_bytes() == before
    assert results.read(run / "evaluation-validation/results.json")["rows"]
    assert output(capsys, "report run other.npz").strip() == "run/evaluation-other/report.html"
    assert is_current(run)
    assert is_current(run, Path("other.npz"))
    assert not is_current(run, Path("elsewhere/other.npz"))
    output(capsys, "evaluate run elsewhere/other.npz --members 20 --out own")
    assert results.read(Path("own/results.json"))["metadata"]["inputs"] == 7


def test_a_read_only_run_is_evaluated(run, capsys, monkeypatch) -> None:
    monkeypatch.setattr(evaluating.os, "access", lambda path, mode: mode != os.W_OK or Path(path).parts[0] != "run")
    said = output(capsys, EVALUATE)
    assert "relative L2 error of the mean" in said
    assert "run is read-only: the results were not saved" in said
    assert not (run / "results.json").exists()
    assert not (run / "intervals.safetensors").exists()


def test_samples_last_or_first(tmp_path, monkeypatch, capsys) -> None:
    """The dimensions of training are not applied to a file that fits another reading as well."""
    monkeypatch.chdir(tmp_path)
    a = np.random.default_rng(0).standard_normal((30, 8, 8))
    np.savez("old.npz", a=np.moveaxis(a, 0, -1), u=np.moveaxis(a, 0, -1))
    np.savez("square.npz", a=a[:8], u=a[:8])
    np.savez("clear.npz", a=np.moveaxis(a[:5] + 1, 0, -1), u=np.moveaxis(a[:5], 0, -1))
    output(capsys, "train old.npz --a a --u u --dims x,y,sample --preset linear --out run")
    for command in ("predict run square.npz --out p.zarr", "evaluate run square.npz --members 20"):
        with pytest.raises(SystemExit):
            main(command.split())
        assert "fits two readings: x,y,sample, as in training, and sample,x,y" in capsys.readouterr().err
    output(capsys, "predict run square.npz --dims sample,x,y --out p.zarr")
    model = load(Path("run"))
    np.testing.assert_allclose(xr.open_zarr("p.zarr", consolidated=False)["mean"], model.predict(a[:8], 2).mean)
    assert "a of clear.npz is read as x,y,sample, as in training" in output(capsys, "predict run clear.npz --out q.zarr")
    np.testing.assert_allclose(xr.open_zarr("q.zarr", consolidated=False)["mean"], model.predict(a[:5] + 1, 2).mean)


def test_scalars_of_several_arrays_in_either_layout(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, p = rng.standard_normal((40, 16)), rng.standard_normal((40, 3))
    np.savez("d.npz", a=a, u=a + p @ [[1], [2], [4]], pressure=p[:, :1].T, P=p[:, 1:].T)  # as MATLAB has them
    output(capsys, "train d.npz --a a --u u --dims sample,x --scalars pressure --scalars P --preset linear --out run")
    assert data_of(Path("run")).train.scalars.shape == (32, 3)
    assert load(Path("run")).spaces.scalars == 3
    output(capsys, "predict run d.npz --a a --out p.zarr")
    np.testing.assert_allclose(xr.open_zarr("p.zarr", consolidated=False)["mean"][:, 0], a + p @ [[1], [2], [4]], atol=0.05)
    np.savez("new.npz", a=a[:2], P=p[:2])
    output(capsys, "predict run new.npz --scalars P --out q.zarr")
    with pytest.raises(SystemExit):
        main(["predict", "run", "new.npz", "--scalars", "a", "--out", "r.zarr"])
    assert "this model needs (sample, 3)" in capsys.readouterr().err


def test_predictions_are_written_to_netcdf(noisy, tmp_path, capsys) -> None:
    output(capsys, f"predict {noisy} --members 20 --out {tmp_path / 'p.zarr'}")
    found = xr.open_zarr(tmp_path / "p.zarr", consolidated=False)
    found.to_netcdf(tmp_path / "p.nc")
    with xr.open_dataset(tmp_path / "p.nc") as written:
        assert json.loads(written.attrs["pdno"])["members"] == 20
        np.testing.assert_array_equal(written["mean"], found["mean"])
