"""`pdno report`: its contents, escaping, and files of earlier versions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.run import evaluate as evaluating
from pdno.run import report, results
from pdno.run.evaluate import evaluate_run
from pdno.run.noise import is_noise, mixtures, noise_rows, noise_table
from pdno.run.report import render, write_report
from tests.helpers import SMALL
from tests.run.helpers import EVALUATE, output, read


def test_the_report_fetches_and_runs_nothing(noisy, capsys) -> None:
    output(capsys, f"report {noisy}")
    page = read((noisy / "report.html").read_text())
    assert page.scripts == 0
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert "default-src 'none'" in (noisy / "report.html").read_text()


def test_the_report_has_verdict_scores_figures_and_provenance(noisy, no_pictures) -> None:
    html = render(noisy)
    page, found = read(html), results.read(noisy / "results.json")
    for statement in found["verdict"]:
        assert statement["headline"] in page.text
    assert page.text.index(found["verdict"][0]["headline"]) < page.text.index("Scores")
    assert page.tags.count("figure") == 3 + 4 + 4 + 2 + 1
    assert 'alt=""' not in html
    assert found["model"] in page.text
    assert "diffusion" in page.text  # the configuration
    assert f"pdno evaluate {noisy} --members 20" in page.text
    assert "The model was trained on 108 pairs (a, u) of d.zarr, with 16 points." in page.text
    for heading in ("Accuracy", "Calibration", "Noise", "Limitations", "Model and data", "Reproducibility"):
        assert heading in page.text


def test_the_report_has_the_noise_of_errors_members_and_truth(noisy, no_pictures) -> None:
    found = results.read(noisy / "results.json")
    values = {row["metric"]: row["value"] for row in found["rows"]}
    assert values["truth_std"] == pytest.approx(0.1, rel=0.05)
    columns, rows = noise_rows(found)
    assert columns == ["noise", "held-out errors", "members", "true noise"]
    assert rows[0][0] == "standard deviation at a point"
    assert rows[0][3].startswith("0.1")
    page = read(render(noisy))
    for cell in (*(cell for row in rows for cell in row), *(cell for row in mixtures(found) for cell in row)):
        assert cell in page.text
    assert {row["source"] for row in found["mixtures"]} == {"noise", "members", "truth"}
    exact = [row for row in found["mixtures"] if row["source"] == "truth" and row["place"] == "largest standard deviation"]
    assert [(row["weight"], row["mean"], row["std"], row["std_error"]) for row in exact] == [(1.0, 0.0, 0.1, None)]
    assert "noise_std" not in {row["metric"] for row in found["rows"] if not is_noise(row["metric"])}


def test_results_without_noise_have_a_report(noisy, tmp_path, no_pictures) -> None:
    """Results of earlier versions have neither statistics nor arrays of the noise."""
    run = tmp_path / "run"
    shutil.copytree(noisy, run)
    found = json.loads((run / "results.json").read_text())
    found["rows"] = [row for row in found["rows"] if not is_noise(row["metric"])]
    del found["mixtures"]
    (run / "results.json").write_text(json.dumps(found))
    with np.load(run / "evaluation.npz") as arrays:
        np.savez(tmp_path / "old.npz", **{name: arrays[name] for name in arrays.files if not name.startswith("noise.")})
    (tmp_path / "old.npz").replace(run / "evaluation.npz")
    assert read(render(run)).tags.count("figure") == 3 + 4 + 2 + 1
    assert noise_table(found) is None


def test_hostile_names_are_escaped(run, capsys, no_pictures) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    output(capsys, EVALUATE)
    path = run / "results.json"
    found = json.loads(path.read_text())
    found["metadata"]["data"] = found["rows"][0]["command"] = name
    found["metadata"]["noise"] = f"'\"{name}"
    found["verdict"][0]["text"] = name
    path.write_text(json.dumps(found))
    (run / "config.toml").write_text((run / "config.toml").read_text().replace("mine.npz", "<script>x.npz"))
    html = render(run)
    page = read(html)
    assert page.scripts == 0
    assert "<script" not in html
    assert "<img src=x" not in html
    assert name in page.text


def test_a_file_with_a_hostile_name(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a<b>&'x'.npz"
    fields = np.random.default_rng(0).standard_normal((2, 40, 16))
    np.savez(name, force=fields[0], deflection=fields[1])
    for command in (
        ["train", name, "--a", "force", "--u", "deflection", "--dims", "sample,x", "--out", "run", *SMALL.split()],
    ):
        with pytest.raises(SystemExit):
            main(command)
    output(capsys, EVALUATE)
    html = render(Path("run"))
    assert "a<b>" not in html
    assert "a<b>&'x'" in read(html).text


@pytest.mark.slow
def test_report_evaluates_runs_without_current_results(run, capsys, monkeypatch, no_pictures) -> None:
    calls = []

    def evaluate(*args: object, **options: object) -> None:
        calls.append(args)
        evaluate_run(*args, members=20, **options)

    monkeypatch.setattr(evaluating, "evaluate_run", evaluate)
    assert "evaluated first" in output(capsys, "report run")
    assert "evaluated first" not in output(capsys, "report run --out again.html")
    assert Path("again.html").exists()
    found = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps({**found, "model": "another"}))
    assert "evaluated first" in output(capsys, "report run")
    assert len(calls) == 2


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut"])
def test_damaged_arrays_are_refused(run, capsys, content) -> None:
    output(capsys, EVALUATE)
    (run / "evaluation.npz").write_bytes(content)
    with pytest.raises(UserError, match="run `pdno evaluate` again"):
        render(run)


def test_a_report_is_not_written_over_a_folder(run, capsys) -> None:
    output(capsys, EVALUATE)
    Path("folder").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        write_report(run, Path("folder"))
    assert not list(Path().glob("*.partial"))


@pytest.mark.slow
def test_many_channels_and_odd_names(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    monkeypatch.chdir(tmp_path)
    fields = np.random.default_rng(0).standard_normal((2, 40, 20, 16))
    np.savez("x[red]y z.npz", a=fields[0], u=fields[1])
    command = ["train", "x[red]y z.npz", "--a", "a", "--u", "u", "--dims", "sample,channel,x", "--out", "r t", *SMALL.split()]
    with pytest.raises(SystemExit):
        main(command)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["evaluate", "r t", "--members", "20"])
    printed = capsys.readouterr().out
    assert "x[red]y z" in printed
    assert "Next:  pdno report 'r t'" in printed
    assert read(render(Path("r t"))).tags.count("figure") == 13 + 3 * 4  # the first four channels


def test_report_of_a_deterministic_baseline(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    monkeypatch.chdir(tmp_path)
    pdno.generate(pdno.equation.Darcy(points=16), train=30, test=6, out=Path("d.zarr"))
    small = "--set training.updates=2 --set network.modes=2 --set network.width=4"
    output(capsys, f"train d.zarr --preset fno --out run --validation 0.4 {small}")
    printed = output(capsys, "evaluate run")
    assert "predicts no intervals" in " ".join(printed.split())
    rows = {row["metric"]: row for row in results.read(Path("run/results.json"))["rows"]}
    assert rows["mrle"]["method"] == "fno"
    assert "mean_std" not in rows
    assert read(render(Path("run"))).tags.count("figure") == 3 + 3 + 2 + 1
    output(capsys, "predict run --members 2 --out p.zarr")
    assert "lower_0.9" in xr.open_zarr("p.zarr", consolidated=False, chunks=None)


def test_a_report_on_constant_outputs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", a=np.random.default_rng(0).standard_normal((30, 16)), u=np.ones((30, 16)))
    output(capsys, "train d.npz --preset linear --out run")
    output(capsys, "report run")
    assert "Power spectra" not in read(Path("run/report.html").read_text(encoding="utf-8")).text


def test_a_report_has_the_suffix_of_its_format(run, refused) -> None:
    assert "call it r.html" in refused("report run --out r.pdf")


def test_captions_of_losses(tmp_path) -> None:
    """Only networks of the model have a plot: the selected mean model, and the diffusion model unless it was dropped."""
    for folder in ("", "slim", "slim-short"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    leaderboard = [{"name": "slim, short"}, {"name": "slim", "selected": True}]
    metadata = {"deterministic": False, "evaluations": 0, "leaderboard": leaderboard}
    captions = [caption.split(":")[0] for _, caption in report._training(tmp_path, metadata)]
    assert captions == ["Mean model"]  # the diffusion model was not selected
    used = {**metadata, "evaluations": 20}
    assert [caption.split(":")[0] for _, caption in report._training(tmp_path, used)] == ["Mean model", "Diffusion model"]
    plain = {**metadata, "evaluations": 20, "leaderboard": []}
    assert [caption for _, caption in report._training(tmp_path, plain)] == ["Training and validation loss."]


@pytest.mark.parametrize("name", ["../secret", "..", "a/b", ""])
def test_the_name_of_a_candidate_is_not_a_path(name, tmp_path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    metadata = {"deterministic": False, "evaluations": 0, "leaderboard": [{"name": name, "selected": True}]}
    with pytest.raises(UserError, match="is not the name of a candidate"):
        report._training(tmp_path / "run", metadata)


def test_old_names_in_results_and_arrays_are_replaced(noisy, tmp_path, no_pictures) -> None:
    run = tmp_path / "run"
    shutil.copytree(noisy, run)
    new = json.loads((run / "results.json").read_text())
    old = json.loads((run / "results.json").read_text())
    metrics, keys = ({new: old for old, new in names.items()} for names in (results.OLD_METRICS, results.OLD_METADATA))
    for row in old["rows"]:
        row["metric"] = metrics.get(row["metric"], row["metric"])
    old["facts"] = {keys.get(key, key): value for key, value in old.pop("metadata").items()}
    old["facts"]["trials"] = [{"name": "linear", "error": 0.1, "note": "affine", "seconds": 1.0, "taken": True}]
    (run / "results.json").write_text(json.dumps(old))
    read_back = results.read(run / "results.json")
    assert read_back["rows"] == new["rows"]
    trial = {"name": "linear", "error": 0.1, "description": "affine", "seconds": 1.0, "selected": True}
    assert read_back["metadata"] == {**new["metadata"], "leaderboard": [trial]}
    with np.load(run / "evaluation.npz") as arrays:
        names = {new: old for old, new in report.OLD_ARRAYS.items()}
        np.savez(tmp_path / "old.npz", **{names.get(name, name): arrays[name] for name in arrays.files})
    (tmp_path / "old.npz").replace(run / "evaluation.npz")
    assert read(render(run)).tags.count("figure") == read(render(noisy)).tags.count("figure")
