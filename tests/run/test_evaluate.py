"""`pdno evaluate` and `pdno report` as a user meets them, and what they leave in the folder of a run."""

import json
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.data.selection import Selection
from pdno.run import evaluate as assessment
from pdno.run import report, results
from pdno.run import train as runs
from pdno.run.report import render, write_report
from tests.helpers import SMALL

EVALUATE = "evaluate run --members 20"


@pytest.fixture
def run(done, tmp_path, monkeypatch) -> Path:
    """A copy of the finished run and its data, in the current folder."""
    shutil.copytree(done, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace(str(done), str(tmp_path / "here")))
    return Path("run")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    """A folder with a store of the elliptic equation, noisy and with test pairs, and an evaluated run."""
    folder = tmp_path_factory.mktemp("noisy")
    pdno.generate(pdno.equation.Elliptic1D(points=16), train=120, test=8, noise="gaussian:0.1", out=folder / "d.zarr")
    for command in (
        f"train {folder / 'd.zarr'} --out {folder / 'run'} {SMALL} --set model.mean=none",
        f"evaluate {folder / 'run'} --members 20",
    ):
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        assert stop.value.code == 0
    return folder / "run"


def said(capsys, command: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    answer = capsys.readouterr()
    assert stop.value.code == 0, answer.err
    return answer.out


# Evaluate


def test_a_table_a_verdict_and_the_next_command_are_printed(run, capsys) -> None:
    printed = said(capsys, EVALUATE)
    assert "relative L2 error of the mean" in printed
    assert "How accurate?" in printed
    assert "Are the error bars honest?" in printed
    assert "Where not to trust it?" in printed
    assert "pdno report run" in printed
    assert max(len(line) for line in printed.splitlines()) <= 80


def test_rows_have_every_field_of_the_contract(noisy) -> None:
    found = results.read(noisy / "results.json")
    rows = {row["metric"]: row for row in found["rows"]}
    assert found["schema"] == 1
    for row in rows.values():
        assert list(row) == list(results.FIELDS)
    row = rows["mrle"]
    assert (row["test"], row["method"], row["grid"], row["train"], row["noise"]) == (
        "elliptic1d",
        "pdno",
        "16",
        108,
        "gaussian:0.1",
    )
    assert (row["members"], row["evaluations"], row["seed"], row["version"]) == (20, 8, 0, pdno.__version__)
    assert row["parameters"] == sum(p.numel() for p in pdno.load(noisy).network.parameters())
    assert row["train_seconds"] > 0
    assert row["sample_seconds"] > 0
    assert {"mrle", "mean_std", "mstd", "crps", "energy_score", "coverage_90", "residual_mean", "std_over_noise"} <= set(rows)


def test_numbers_are_those_of_the_python_interface(noisy) -> None:
    rows = {row["metric"]: row["value"] for row in results.read(noisy / "results.json")["rows"]}
    data = runs.data_of(noisy)
    pred = pdno.load(noisy).predict(data.test.a, members=20)
    expected = np.mean(np.linalg.norm(pred.mean - data.test.u, axis=-1) / np.linalg.norm(data.test.u, axis=-1))
    assert rows["mrle"] == pytest.approx(expected, rel=1e-6)
    e = pdno.evaluate(pdno.load(noisy), data, members=20, progress=False)
    assert rows == pytest.approx({name: score.value for name, score in e.scores.items()})


def test_the_same_command_gives_the_same_numbers(run, capsys) -> None:
    said(capsys, EVALUATE)
    first = [(row["metric"], row["value"]) for row in results.read(run / "results.json")["rows"]]
    said(capsys, EVALUATE)
    assert [(row["metric"], row["value"]) for row in results.read(run / "results.json")["rows"]] == first


def test_the_papers_value_stands_beside_ours() -> None:
    assert results.paper("darcy", "64x64", "none", "mrle") == 0.0046
    assert results.paper("darcy", "64x64", "gaussian:1", "mrle") is None
    assert results.paper("mine", "64x64", "none", "mrle") is None
    assert results.paper("burgers", "2048", "none", "mstd") == 1.51e-3


def test_rows_that_were_learned_from_are_never_scored(run, capsys) -> None:
    own = runs.data_of(run)
    np.savez("all.npz", force=own.train.a[:, 0], deflection=own.train.u[:, 0], site=np.arange(len(own.train)))
    with pytest.raises(UserError, match=r"all inputs in all\.npz were learned from"):
        assessment.assess(run, Path("all.npz"), members=20)
    fresh = np.concatenate([own.train.a[:5, 0], np.random.default_rng(5).standard_normal((6, 16))])
    np.savez("some.npz", force=fresh, deflection=fresh, site=np.arange(11))
    assert assessment.assess(run, Path("some.npz"), members=20).facts["inputs"] == 6
    with pytest.raises(UserError, match="choose test or validation"):
        assessment.assess(run, split="train")


def test_other_data_with_other_names(run, capsys) -> None:
    fields = np.random.default_rng(6).standard_normal((2, 7, 16))
    np.savez("other.npz", load=fields[0], shape=fields[1])
    said(capsys, "evaluate run other.npz --a load --u shape --dims sample,x --members 20")
    assert results.read(run / "results.json")["facts"]["inputs"] == 7


def test_data_that_are_gone_do_not_hinder_other_data(run) -> None:
    np.savez("fresh.npz", force=np.eye(16)[:6], deflection=np.eye(16)[:6], site=np.arange(6))
    Path("mine.npz").unlink()
    e = assessment.assess(run, Path("fresh.npz"), members=20)
    assert "crps_ignoring_a" not in e.scores
    with pytest.raises(UserError, match="not there any more"):
        assessment.assess(run, members=20)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("evaluate nowhere", "nowhere does not exist|is not"),
        ("evaluate run --members 5", "at least 19"),
        ("evaluate run --split train", "has not learned from"),
        ("evaluate run --steps 99", "steps"),
        ("evaluate run missing.npz", "missing.npz"),
        ("report nowhere", "nowhere"),
        ("report run --out nowhere/x.html", "nowhere"),
    ],
)
def test_mistakes_end_in_one_line(run, capsys, command, message, no_pictures) -> None:
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    errors = capsys.readouterr().err
    assert stop.value.code == 2
    assert errors.startswith("pdno: ")
    assert errors.count("\n") == 1
    assert any(part in errors for part in message.split("|"))


# The repair in predictions


def test_predictions_carry_repaired_intervals_and_the_flag(noisy, tmp_path, capsys) -> None:
    said(capsys, f"predict {noisy} --members 20 --out {tmp_path / 'p.zarr'}")
    found = xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)
    assert found["lower_0.9"].shape == found["mean"].shape
    assert "repaired 90 % interval" in found["lower_0.9"].attrs["long_name"]
    assert all("long_name" in found[name].attrs for name in found.data_vars)
    assert (found["lower_0.9"] <= found["upper_0.9"]).all()
    model, data = pdno.load(noisy), runs.data_of(noisy)
    np.testing.assert_array_equal(found["unfamiliar"].values, model.novelty.flag(data.test.a))
    e = pdno.evaluate(model, data, members=20, progress=False)
    inside = (found["lower_0.9"].values <= data.test.u_eta) & (data.test.u_eta <= found["upper_0.9"].values)
    assert inside.mean() == pytest.approx(e.scores["coverage_90_repaired"].value)


def test_a_repair_for_other_settings_of_the_sampler_is_not_used(noisy, tmp_path, capsys) -> None:
    said(capsys, f"predict {noisy} --members 20 --steps 3 --out {tmp_path / 'p.zarr'}")
    assert "lower_0.9" not in xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)


def test_unfamiliar_inputs_are_told(noisy, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("odd.npz", a=100 * np.random.default_rng(0).random((3, 16)))
    assert "3 inputs are unlike those learned from" in said(capsys, f"predict {noisy} odd.npz --a a --members 2")
    assert pdno.load(noisy).predict(np.load("odd.npz")["a"], members=2).unfamiliar.all()


# The report


class Reader(HTMLParser):
    """Tags, text, and everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.sources, self.text, self.scripts = [], [], "", 0

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.scripts += tag == "script" or any(name.startswith("on") for name, _ in attrs)
        self.sources += [v for name, v in attrs if name in ("src", "srcset", "href", "action", "data", "poster")]

    def handle_data(self, data) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_the_report_is_one_file_that_fetches_and_runs_nothing(noisy, capsys) -> None:
    said(capsys, f"report {noisy}")
    page = read((noisy / "report.html").read_text())
    assert page.scripts == 0
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert "default-src 'none'" in (noisy / "report.html").read_text()


def test_the_report_has_verdict_numbers_pictures_and_provenance(noisy, no_pictures) -> None:
    html = render(noisy)
    page, found = read(html), results.read(noisy / "results.json")
    for statement in found["verdict"]:
        assert statement["headline"] in page.text
    assert page.text.index(found["verdict"][0]["headline"]) < page.text.index("Scores")
    assert page.tags.count("figure") == 3 + 4 + 2 + 1
    assert 'alt=""' not in html
    assert found["model"] in page.text
    assert "diffusion" in page.text  # the configuration
    assert f"pdno evaluate {noisy} --members 20" in page.text
    assert "The model learned from 108 pairs (a, u) of d.zarr, on 16 points." in page.text


def test_hostile_names_are_escaped(run, capsys, no_pictures) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    said(capsys, EVALUATE)
    path = run / "results.json"
    found = json.loads(path.read_text())
    found["facts"]["data"] = found["rows"][0]["command"] = name
    found["facts"]["noise"] = f"'\"{name}"
    found["verdict"][0]["text"] = name
    path.write_text(json.dumps(found))
    (run / "config.toml").write_text((run / "config.toml").read_text().replace("mine.npz", "<script>x.npz"))
    html = render(run)
    page = read(html)
    assert page.scripts == 0
    assert "<script" not in html
    assert "<img src=x" not in html
    assert name in page.text


def test_a_data_set_with_a_hostile_name_goes_all_the_way(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a<b>&'x'.npz"
    fields = np.random.default_rng(0).standard_normal((2, 40, 16))
    np.savez(name, force=fields[0], deflection=fields[1])
    for command in (
        ["train", name, "--a", "force", "--u", "deflection", "--dims", "sample,x", "--out", "run", *SMALL.split()],
    ):
        with pytest.raises(SystemExit):
            main(command)
    said(capsys, EVALUATE)
    html = render(Path("run"))
    assert "a<b>" not in html
    assert "a<b>&'x'" in read(html).text


def test_report_evaluates_what_was_not_evaluated_yet(run, capsys, monkeypatch, no_pictures) -> None:
    calls, real = [], assessment.assess
    monkeypatch.setattr(assessment, "assess", lambda *args, **how: calls.append(args) or real(*args, members=20, **how))
    assert "evaluated first" in said(capsys, "report run")
    assert "evaluated first" not in said(capsys, "report run --out again.html")
    assert Path("again.html").exists()
    found = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps({**found, "model": "that of another day"}))
    assert "evaluated first" in said(capsys, "report run")
    assert len(calls) == 2


def test_the_command_that_is_printed_trains_the_same_model_again(run, capsys) -> None:
    said(capsys, EVALUATE)
    command = results.read(run / "results.json")["facts"]["train_command"]
    assert command in read(render(run)).text
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(command)[1:])
    assert stop.value.code == 0
    a = runs.data_of(run).test.a
    again = pdno.load("run-again")
    np.testing.assert_array_equal(again.sample(a, chunk=4), pdno.load(run).sample(a, chunk=4))


def test_a_stale_repair_is_not_used(noisy, tmp_path) -> None:
    shutil.copytree(noisy, tmp_path / "run")
    assert assessment.intervals(tmp_path / "run", 20, {}).samples == 12
    model = pdno.load(noisy)
    model.provenance["updates"] = 3
    model.save(tmp_path / "run" / "model.safetensors")
    assert assessment.intervals(tmp_path / "run", 20, {}) is None


def test_other_data_leave_the_repair_alone(noisy, tmp_path) -> None:
    shutil.copytree(noisy.parent, tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    before = (run / "intervals.safetensors").read_bytes()
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "fresh.npz", a=1 + rng.random((5, 16)), u=rng.random((5, 16)))
    chosen = Selection("a", "u", "sample,x")
    assert assessment.assess(run, tmp_path / "fresh.npz", chosen, members=20).facts["inputs"] == 5
    assert (run / "intervals.safetensors").read_bytes() == before
    assert "fresh.npz" in read(render(run)).text


def test_a_file_that_was_moved_is_still_known(run) -> None:
    """Its training and validation pairs are told by their inputs, whatever the file is called."""
    own = runs.data_of(run)
    Path("mine.npz").rename("moved.npz")
    e = assessment.assess(run, Path("moved.npz"), members=20)
    assert e.facts["inputs"] == len(own.test)
    a = np.load("moved.npz")["force"].astype(np.float32)
    np.savez("single.npz", force=a, deflection=np.load("moved.npz")["deflection"])
    assert assessment.assess(run, Path("single.npz"), members=20).facts["inputs"] == len(own.test)


def test_parameters_tell_inputs_apart(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, count in (("old.npz", 40), ("new.npz", 6)):
        np.savez(name, a=np.ones((count, 16)), p=rng.random((count, 2)), u=rng.random((count, 16)))
    said(capsys, f"train old.npz --a a --u u --scalars p --dims sample,x --out run {SMALL}")
    assert assessment.assess(Path("run"), Path("new.npz"), members=20).facts["inputs"] == 6


def test_few_members_get_no_repaired_intervals(noisy, tmp_path, capsys) -> None:
    printed = said(capsys, f"predict {noisy} --members 5 --out {tmp_path / 'p.zarr'}")
    assert "no repaired intervals" in printed
    assert "lower_0.9" not in xr.open_zarr(tmp_path / "p.zarr", consolidated=False, chunks=None)


def test_a_selection_for_the_runs_own_file_is_refused(run) -> None:
    with pytest.raises(UserError, match="its arrays are known"):
        assessment.assess(run, Path("mine.npz"), Selection("deflection", "force"), members=20)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut"])
def test_damaged_arrays_are_told(run, capsys, content) -> None:
    said(capsys, EVALUATE)
    (run / "evaluation.npz").write_bytes(content)
    with pytest.raises(UserError, match="run `pdno evaluate` again"):
        render(run)


def test_a_log_that_was_cut_short_is_read(run) -> None:
    with (run / "times.jsonl").open("a") as file:
        file.write('{"step": 3, "sec')
    assert assessment.assess(run, members=20).scores


def test_a_report_is_not_written_over_a_folder(run, capsys) -> None:
    said(capsys, EVALUATE)
    Path("folder").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        write_report(run, Path("folder"))
    assert not list(Path().glob("*.partial"))


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
    assert read(render(Path("r t"))).tags.count("figure") == 10


def test_damaged_results_are_told(run, capsys) -> None:
    said(capsys, EVALUATE)
    for text, message in (("{", "not a file of results"), ('{"rows": []}', "schema None"), ('{"schema": 1}', "has no rows")):
        (run / "results.json").write_text(text)
        with pytest.raises(UserError, match=message):
            results.read(run / "results.json")
    with pytest.raises(UserError, match="no field 'nonsense'"):
        results.row("mrle", 0.1, nonsense=1)


def test_deterministic_baselines_get_a_report_too(tmp_path, monkeypatch, capsys, no_pictures) -> None:
    monkeypatch.chdir(tmp_path)
    pdno.generate(pdno.equation.Darcy(points=16), train=30, test=6, out=Path("d.zarr"))
    small = "--set training.updates=2 --set network.modes=2 --set network.width=4"
    said(capsys, f"train d.zarr --preset fno --out run --validation 0.4 {small}")
    printed = said(capsys, "evaluate run")
    assert "no error bars of its own" in printed
    rows = {row["metric"]: row for row in results.read(Path("run/results.json"))["rows"]}
    assert rows["mrle"]["method"] == "fno"
    assert "mean_std" not in rows
    assert read(render(Path("run"))).tags.count("figure") == 3 + 2 + 1
    said(capsys, "predict run --members 2 --out p.zarr")
    assert "lower_0.9" in xr.open_zarr("p.zarr", consolidated=False, chunks=None)


def test_the_papers_model_has_its_own_name(noisy) -> None:
    config = pdno.run.config.Config.preset("paper:darcy")
    model = pdno.PDNO.paper("darcy")
    assert assessment._method(model, config, {"data": "darcy"}) == "pdno-paper"
    assert assessment._method(model, config, {"data": "mine"}) == "pdno"
    field = config.model_copy(update={"diffusion": config.diffusion.model_copy(update={"base": "field:3,2"})})
    assert assessment._method(model, field, {"data": "darcy"}) == "pdno-functional"


def test_training_time_adds_up_over_sessions(tmp_path) -> None:
    (tmp_path / "times.jsonl").write_text(
        "".join(json.dumps({"step": i, "seconds": s}) + "\n" for i, s in enumerate((1, 5, 2, 3)))
    )
    assert assessment._training_seconds(tmp_path) == 5 + 3
    assert assessment._training_seconds(tmp_path / "nowhere") is None


def test_losses_say_whose_they_are(tmp_path) -> None:
    """Of networks that learned to the end; a diffusion that was dropped is called that."""
    for folder in ("", "slim", "slim-short"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    facts = {"deterministic": False, "evaluations": 0, "trials": [{"name": "slim, short"}, {"name": "slim", "taken": True}]}
    captions = [caption.split(":")[0] for _, caption in report._training(tmp_path, facts)]
    assert captions == ["Of the mean operator", "Of the diffusion, which was dropped"]
    assert [caption for _, caption in report._training(tmp_path, {**facts, "evaluations": 20, "trials": []})] == [
        "Loss while training, and on pairs that were held out."
    ]
