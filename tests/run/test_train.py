"""`pdno train` and `pdno predict` as a user meets them: from a file to a prediction, and what is said when that cannot be."""

import json
import os
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.data import formats
from pdno.learning import loop as training
from pdno.run import predict as prediction
from pdno.run.config import Config
from pdno.run.folder import data_of
from tests.helpers import SMALL

Say = Callable[[str], str]


def elliptic(name: str, train: int = 20, test: int = 2) -> None:
    """A store of our own, in this process: `pdno generate` would start others."""
    pdno.generate(pdno.equation.Elliptic1D(points=16), train=train, test=test, noise="gaussian:0.1", out=Path(name))


def predicted(path: str | Path) -> xr.Dataset:
    return xr.open_zarr(path, consolidated=False, chunks=None)


def command(printed: str, start: str) -> str:
    """The command that was printed, without `pdno`."""
    line = next(line for line in printed.splitlines() if start in line)
    return line[line.index(start) :].removeprefix("pdno ")


# From a file to a prediction


@pytest.mark.parametrize("name", ["mine.mat", "my pairs.npz", "mine.h5"])
def test_a_new_user_gets_from_a_file_to_a_prediction_by_commands_that_are_printed(name, say, tmp_path) -> None:
    a, u = np.random.default_rng(1).standard_normal((2, 30, 16))
    formats.write(tmp_path / name, {"force": a, "deflection": u})
    train = command(say(f"inspect {shlex.quote(name)}"), "pdno train")
    answer = say(f"{train} {SMALL}")
    assert "2 steps" in answer
    if " " not in name:
        say(command(answer, "pdno predict").replace("--members 100", "--members 3"))
        found = predicted("mine-run/prediction.zarr")
        assert found["mean"].shape == found["quantile_0.95"].shape == (3, 1, 16)


def test_a_store_with_its_own_test_pairs(say) -> None:
    elliptic("d.zarr", test=5)
    train = command(say("inspect d.zarr"), "pdno train")
    assert train == "train d.zarr --out d-run"
    say(f"{train} {SMALL}")
    data, held = pdno.open("d.zarr"), data_of(Path("d-run"))
    np.testing.assert_array_equal(held.test.u, data.test.u)
    assert (len(held.train), len(held.validation)) == (18, 2)
    assert "5 inputs, 3 members each" in say("predict d-run --members 3 --out pred.zarr")
    found = predicted("pred.zarr")
    np.testing.assert_array_equal(found["x"], data.test.xarray["x"])
    expected = pdno.load("d-run").predict(data.test.a, members=3, quantiles=(0.05, 0.5, 0.95))
    np.testing.assert_array_equal(found["mean"], expected.mean)
    np.testing.assert_array_equal(found["quantile_0.5"], expected.quantile(0.5))


def test_the_baseline_trains_and_predicts(say) -> None:
    elliptic("d.zarr")
    say("train d.zarr --preset fno --set network.modes=4 --set network.width=8 --set training.updates=2 --out run")
    say("predict run --members 2 --out pred.zarr")
    assert float(predicted("pred.zarr")["std"].max()) < 1e-12


def test_a_configuration_file_a_preset_and_settings(say) -> None:
    elliptic("d.zarr")
    Path("mine.toml").write_text("[training]\nupdates = 1\nbatch = 3\n[network]\nbase = 8\n")
    say("train d.zarr --preset paper:burgers --config mine.toml --set training.batch=2 --budget 10m --seed 4 --out run")
    config = Config.read(Path("run/config.toml"))
    assert (config.diffusion.schedule, config.training.updates, config.training.batch) == ("linear", 1, 2)
    assert (config.network.base, config.model.budget, config.data.seed) == (8, 600, 4)


def test_a_budget_cuts_training_short(say) -> None:
    elliptic("d.zarr")
    say(f"train d.zarr {SMALL} --set training.updates=100000 --budget 0.5s --out run")
    assert 1 <= pdno.load("run").provenance["updates"] < 1000


# The split


def test_the_split_is_recorded_and_found_again(done) -> None:
    recorded = tomllib.loads((done / "run" / "config.toml").read_text())["data"]
    assert recorded["options"] == {"a": "force", "u": "deflection", "dims": "sample,x", "group": "site"}
    assert recorded["pairs"] == {"train": 32, "validation": 4, "test": 4}
    held = data_of(done / "run")
    names = {"a": "force", "u": "deflection", "dims": "sample,x", "group": "site"}
    expected = pdno.open(done / "mine.npz", **names).split(0.1, 0.1, seed=0)
    for split, pairs in expected.splits().items():
        np.testing.assert_array_equal(held.splits()[split].u, pairs.u)
    sites = [set(pairs.group) for pairs in held.splits().values()]
    assert not sites[0] & sites[2]


def test_a_file_that_has_changed_is_refused(done, tmp_path) -> None:
    run, data = tmp_path / "run", tmp_path / "mine.npz"
    run.mkdir()
    config = (done / "run" / "config.toml").read_text()
    (run / "config.toml").write_text(config.replace(str(done / "mine.npz"), str(data)))
    with pytest.raises(UserError, match="no longer exists"):
        data_of(run)
    arrays = dict(np.load(done / "mine.npz"))
    np.savez(data, **arrays)
    assert len(data_of(run).test) == 4
    np.savez(data, **{name: values[:30] for name, values in arrays.items()})
    with pytest.raises(UserError, match="has changed since"):
        data_of(run)
    np.savez(data, **arrays | {"deflection": arrays["deflection"] + 1})
    with pytest.raises(UserError, match=r"has changed since .* values differ"):
        data_of(run)


# Predictions


def test_inputs_without_outputs(done, say) -> None:
    a = np.load(done / "mine.npz")["force"][:3]
    np.savez("new.npz", force=a)
    np.savez("renamed.npz", load=a, unused=a)
    np.savez("alone.npz", anything=a)
    say(f"predict {done}/run new.npz --members 3 --out one.zarr")
    say(f"predict {done}/run renamed.npz --a load --members 3 --out two.zarr")
    say(f"predict {done}/run alone.npz --members 3 --out three.zarr")
    one = predicted("one.zarr")
    fields = {"mean", "std", "quantile_0.05", "quantile_0.5", "quantile_0.95"}
    assert set(one.data_vars) == fields | {"novelty", "is_ood"}
    expected = pdno.load(done / "run").predict(a, members=3, quantiles=(0.5,))
    np.testing.assert_array_equal(one["std"], expected.std)
    np.testing.assert_array_equal(one["quantile_0.5"], expected.quantile(0.5))
    xr.testing.assert_equal(one, predicted("two.zarr"))
    xr.testing.assert_equal(one, predicted("three.zarr"))


def test_predictions_on_another_grid(done, say) -> None:
    a = np.sin(np.linspace(0, 3, 24)) + np.random.default_rng(0).normal(size=(3, 1))
    np.savez("fine.npz", a=a)
    model = pdno.load(done / "run")
    for points, options in ((24, ""), (40, "--points 40 ")):
        answer = say(f"predict {done}/run fine.npz {options}--members 3 --out {points}.zarr")
        assert f"Trained on a grid of 16, predicted on {points}" in answer
        np.testing.assert_array_equal(predicted(f"{points}.zarr")["std"], model.predict(a, members=3, points=points).std)


def test_blocks_of_a_prediction_are_those_of_one_call(done, say) -> None:
    say(f"predict {done}/run --split train --members 2 --steps 2 --quantiles 0.25,0.25 --seed 7 --out train.zarr")
    found = predicted("train.zarr")
    a = data_of(done / "run").train.a
    assert len(a) > prediction.BLOCK_INPUTS
    expected = pdno.load(done / "run").predict(a, members=2, steps=2, seed=7, quantiles=(0.25,))
    np.testing.assert_array_equal(found["mean"], expected.mean)
    np.testing.assert_array_equal(found["quantile_0.25"], expected.quantile(0.25))
    assert json.loads(found.attrs["pdno"])["steps"] == 2


def test_a_prediction_goes_on_where_it_was(done, tmp_path, monkeypatch) -> None:
    def predict(out: str) -> xr.Dataset:
        return prediction.predict(done / "run", None, tmp_path / out, members=2, split="train")

    whole, calls, write = predict("whole.zarr"), [], prediction.store.write

    def dying(*arguments: object) -> None:
        calls.extend([arguments] if arguments[3] else [])  # blocks, not the coordinates
        if len(calls) == 3:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(prediction.store, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        predict("broken.zarr")
    again = predict("broken.zarr")
    assert len(calls) == 3 + 2  # 32 inputs are four blocks
    xr.testing.assert_equal(again, whole)


def test_other_stores_have_other_splits(done, say, refused) -> None:
    elliptic("other.zarr", train=3, test=2)
    assert "2 inputs" in say(f"predict {done}/run other.zarr --members 2 --out a.zarr")
    assert "3 inputs" in say(f"predict {done}/run other.zarr --split train --members 2 --out b.zarr")
    assert "there are no tset pairs" in refused(f"predict {done}/run other.zarr --split tset --members 2 --out c.zarr")
    elliptic("inputs.zarr", train=3, test=0)
    assert "3 inputs" in say(f"predict {done}/run inputs.zarr --members 2 --out c.zarr")


def test_devices_of_a_prediction(done, say, refused) -> None:
    say(f"predict {done}/run --members 2 --device auto --out a.zarr")
    assert "this machine cannot compute on 'abacus'" in refused(f"predict {done}/run --members 2 --device abacus --out b.zarr")


# Runs that are there already


def test_the_same_command_again_says_that_it_is_finished(done, say) -> None:
    before = (done / "run" / "model.safetensors").stat().st_mtime_ns
    names = "--a force --u deflection --dims sample,x --group site"
    assert "is finished already" in say(f"train {done}/mine.npz {names} --out {done}/run {SMALL}")
    assert (done / "run" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ("--set training.rate=0.5", "training.rate"),
        ("--set reverse.steps=3 --set network.base=16", "network.base, reverse.steps"),
        ("--validation 0.2", "data.validation, data.pairs"),
    ],
)
def test_other_settings_into_the_same_run_are_refused_with_their_names(more, keys, done, refused) -> None:
    names = "--a force --u deflection --dims sample,x --group site"
    words = refused(f"train {done}/mine.npz {names} --out {done}/run {SMALL} {more}")
    assert f"holds a run with other settings ({keys}" in words


def stopped_at(step: int, monkeypatch) -> None:
    """Let Ctrl-C come during this step of training."""
    prepare, calls = training._prepare, []

    def prepared(*arguments: object) -> tuple[object, object]:
        state, take = prepare(*arguments)

        def one(rate: float, interrupted: bool) -> tuple[float, bool]:
            calls.append(rate)
            return take(rate, interrupted or len(calls) == step)

        return state, one

    monkeypatch.setattr(training, "_prepare", prepared)


def test_a_run_that_was_stopped_says_so_and_goes_on_to_the_same_bytes(say, refused, monkeypatch, capsys) -> None:
    a, u = np.random.default_rng(2).standard_normal((2, 30, 16))
    np.savez("d.npz", a=a, u=u)
    train = f"train d.npz {SMALL} --set training.updates=6"
    say(f"{train} --out whole")
    with monkeypatch.context() as patch:
        stopped_at(3, patch)
        with pytest.raises(SystemExit) as stop:
            main(f"{train} --out run".split())
    assert stop.value.code == 130
    assert "interrupted; run the same command again to resume" in capsys.readouterr().err
    assert "run is not finished; run the same `pdno train` again" in refused("predict run --out p.zarr")
    assert not Path("p.zarr.partial").exists()
    say(f"{train} --out run")
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (Path("run") / name).read_bytes() == (Path("whole") / name).read_bytes()


# Mistakes


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("--set network.base=12", "multiple of 8"),
        ("--set network.multipliers=[1,1,1,1,1,1]", "a grid of 16 is too small"),
        ("--set network.modes=3", "does not take these settings"),
        ("--device tpu", "device 'tpu' is unknown"),
        ("--set reverse.steps=9", "steps = 9: expected a number from 1 to 8"),
    ],
)
def test_a_refused_command_leaves_the_folder_to_the_mended_one(mistake, words, say, refused) -> None:
    a, u = np.random.default_rng(3).standard_normal((2, 30, 16))
    np.savez("d.npz", a=a, u=u)
    assert words in refused(f"train d.npz {SMALL} {mistake} --out run")
    say(f"train d.npz {SMALL} --out run")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train nothing.npz --out run", "nothing.npz does not exist"),
        ("train bad.npz --out run", "u has NaN or infinite values, first in sample"),
        ("train anan.npz --a a --u u --out run", "a has NaN or infinite values, first in sample 21; correct"),
        ("train empty.npz --a a --u u --out run", "there are no pairs: the arrays are empty"),
        ("train empty.npz --out run", "some arrays are empty"),
        ("train complex.npz --a a --u u --out run", "complex.npz: 'a' is complex; expected real numbers"),
        ("train few.npz --out run", "too few to hold out a fraction of 0.1"),
        ("train d.npz --out d.npz", "d.npz"),
        ("train d.npz --out run --config no.toml", "no.toml"),
        ("train d.npz --out run --preset papr:darcy", "did you mean 'paper:darcy'?"),
        ("train d.npz --out run --set training.bach=3", "did you mean 'batch'?"),
        ("train d.npz --out run --budget soon", "budget 'soon' is not a time"),
        ("train d.npz --out run --validation 0.95", "must sum to less than 1"),
        ("train d.npz --out run --precision 16", "precision '16' is unknown"),
        ("train nothing.npz --out run --device tpu", "device 'tpu' is unknown"),
        ("train nothing.npz --out run --grid foo", "grid kind 'foo' is unknown"),
        ("train d.npz --out run --set model.budget=-1", "model.budget = -1 is wrong: input should be greater than 0"),
        ("train d.npz --out run --set model.budget=nan --preset linear", "input should be a finite number"),
        ("train d.npz --out run --set reverse.mix=7 --preset linear", "input should be less than or equal to 1"),
        ("train d.npz --out run --budget 1s --budget 2s", "--budget was given 2 times; give it once"),
        ("train d.npz", "--out"),
        ("predict RUN --out p.csv", "call it p.zarr"),
        ("predict RUN --out taken.zarr", "taken.zarr exists already and is never overwritten"),
        ("predict RUN nothing.npz --out p.zarr", "nothing.npz does not exist"),
        ("predict nothing --out p.zarr", "nothing does not exist"),
        ("predict taken.zarr --out p.zarr", "taken.zarr is not the folder of a run"),
        ("predict d.npz --out p.zarr", "d.npz is not a checkpoint of pdno"),
        ("predict RUN two.npz --out p.zarr", "which array of two.npz holds the inputs? It has p, q; name it with --a"),
        (
            "predict RUN two.npz --a q --out p.zarr",
            "a: a grid of 3; another grid than that of training needs 4 points",
        ),
        ("predict RUN --points 8x8 --out p.zarr", "points = (8, 8): expected a whole number, or one for each of 1 axes"),
        ("predict RUN --points some --out p.zarr", "--points some: expected whole numbers, such as 256"),
        ("predict RUN two.npz --a r --out p.zarr", "two.npz has no array 'r'"),
        ("predict RUN --split tset --out p.zarr", "there are no tset pairs; choose --split train, validation, test"),
        ("predict RUN --members 0 --out p.zarr", "members = 0: a standard deviation requires at least two"),
        ("predict RUN --members many --out p.zarr", "--members"),
        ("predict RUN --steps 9 --out p.zarr", "steps = 9: expected a number from 1 to 8"),
        ("predict RUN --quantiles half --out p.zarr", "--quantiles half: expected numbers from 0 to 1"),
        ("predict RUN --quantiles 1.5 --out p.zarr", "the quantile of level 1.5 does not exist"),
        ("predict RUN --out p.npz", "call it p.zarr"),
        ("predict RUN --out no/such/folder/p.zarr", "does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, words, done, refused) -> None:
    a, u = np.random.default_rng(4).standard_normal((2, 30, 16))
    np.savez("d.npz", a=a, u=u)
    np.savez("few.npz", a=a[:2], u=u[:2])
    np.savez("bad.npz", a=a, u=np.where(np.arange(30)[:, None] > 20, np.nan, u))
    np.savez("two.npz", p=a, q=a[:, :3])
    np.savez("anan.npz", u=u, a=np.where(np.arange(30)[:, None] > 20, np.nan, a))
    np.savez("empty.npz", a=a[:0], u=u[:0])
    np.savez("complex.npz", a=a + 1j, u=u)
    Path("taken.zarr").mkdir()
    before = {path.name for path in Path().iterdir()}
    assert words in refused(arguments.replace("RUN", str(done / "run")))
    assert {path.name for path in Path().iterdir()} - {"run"} == before
    assert not list(Path("run").glob("*"))


def test_a_device_that_is_not_there_is_refused_before_training(refused, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    np.savez("d.npz", a=np.eye(16), u=np.eye(16))
    assert "no device 'cuda' that torch can use" in refused("train d.npz --preset linear --device cuda --out run")


def test_a_folder_that_cannot_be_written(done, refused, monkeypatch) -> None:
    np.savez("d.npz", a=np.ones((30, 16)), u=np.ones((30, 16)))

    def denied(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:  # root may write anywhere
        patch.setattr("pdno.data.store.os.access", lambda path, mode: mode != os.W_OK)
        assert "is not writable" in refused(f"predict {done}/run --out p.zarr")
        patch.setattr(Path, "mkdir", denied)
        assert refused("train d.npz --out run") == "pdno: Permission denied: run\n"
