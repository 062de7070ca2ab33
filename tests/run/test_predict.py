"""Options of `pdno predict` and `pdno evaluate` about what is computed, and where it is written."""

import json

import numpy as np
import pytest
import xarray as xr

from pdno.run import results
from pdno.run.folder import data_of
from tests.run.helpers import output


def test_parts_together_are_the_whole_prediction(noisy, tmp_path, capsys) -> None:
    command = f"predict {noisy} --members 20 --out {tmp_path}"
    output(capsys, f"{command}/whole.zarr")
    said = [output(capsys, f"{command}/{k}.zarr --part {k}/3") for k in (1, 2, 3)]
    assert "This is part 2/3" in said[1]
    parts = [xr.open_zarr(tmp_path / f"{k}.zarr", consolidated=False, chunks=None) for k in (1, 2, 3)]
    assert [part.sizes["sample"] for part in parts] == [2, 3, 3]
    together = xr.concat(parts, "sample", data_vars="all", combine_attrs="drop")
    xr.testing.assert_allclose(together, xr.open_zarr(tmp_path / "whole.zarr", consolidated=False, chunks=None))


def test_only_some_outputs_are_written(noisy, tmp_path, capsys) -> None:
    command = f"predict {noisy} --members 20 --out {tmp_path}"
    output(capsys, f"{command}/all.nc")
    said = output(capsys, f"{command}/some.nc --only std,mean")
    assert "xarray.open_dataset" in said
    assert "no conformal intervals" not in said
    with xr.open_dataset(tmp_path / "all.nc") as whole, xr.open_dataset(tmp_path / "some.nc") as some:
        assert set(some.data_vars) == {"mean", "std"}
        assert {"quantile_0.05", "lower_0.9", "novelty"} <= set(whole.data_vars)
        np.testing.assert_array_equal(some["std"], whole["std"])
        assert json.loads(some.attrs["pdno"])["only"] == ["mean", "std"]
    output(capsys, f"{command}/bands.zarr --only quantiles,intervals --quantiles 0.5")
    found = xr.open_zarr(tmp_path / "bands.zarr", consolidated=False, chunks=None)
    assert set(found.data_vars) == {"quantile_0.5", "lower_0.9", "upper_0.9"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("predict RUN --only means --out p.zarr", "'means' is unknown; did you mean 'mean'?"),
        ("predict RUN --only novelty --out p.zarr", "expected at least one of mean, std and quantiles"),
        ("predict RUN --part 0/4 --out p.zarr", "expected K/N with K from 1 to N"),
        ("predict RUN --part 1/9 --out p.zarr", "part 1/9 of 4 inputs is empty"),
        ("predict RUN new.npz --split tset --out p.zarr", "--split tset: did you mean 'test'?"),
        ("evaluate RUN --members some", "expected a whole number, or auto"),
        ("evaluate RUN --calibrate -1", "expected a number of pairs, or 0"),
        ("evaluate RUN new.npz --split validation", "selects pairs of the run's own data, but new.npz was given"),
        ("evaluate RUN new.npz --out no/such", "because the folder no does not exist"),
        ("report nowhere", "pdno: nowhere is not the folder of a run"),
    ],
)
def test_requests_that_cannot_work(arguments, words, done, refused) -> None:
    np.savez("new.npz", force=np.ones((3, 16)), deflection=np.ones((3, 16)))
    assert words in refused(arguments.replace("RUN", str(done / "run")))


def test_evaluation_with_as_many_members_as_mean_and_std_need(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    a, u = np.random.default_rng(0).standard_normal((2, 30, 16))
    np.savez("old.npz", a=a, u=u)
    output(capsys, "train old.npz --set model.mean=linear --set model.law=gaussian --out run")
    said = output(capsys, "evaluate run --members auto --calibrate 0")
    row = results.read(tmp_path / "run" / "results.json")["rows"][0]
    assert f"drawing {row['members']} members for each test input" in said
    assert row["members"] > 300  # of a Gaussian: (3 − 1) / (4 · 0.03²) = 556


def test_arrays_that_train_recognised_are_recognised_by_predict(tmp_path, monkeypatch, capsys) -> None:
    """Without names, as in training; a deterministic model has one prediction of each input."""
    monkeypatch.chdir(tmp_path)
    a, u = np.random.default_rng(0).standard_normal((2, 30, 16))
    np.savez("old.npz", a=a, u=u)
    np.savez("new.npz", a=a + 1, u=u)
    assert "trained in" in output(capsys, "train old.npz --preset linear --out run")
    said = output(capsys, "predict run new.npz --out p.zarr")
    assert "30 inputs, one prediction each\n" in said
    assert "drawing" not in output(capsys, "evaluate run new.npz")
    assert len(data_of(tmp_path / "run").test) == 3
