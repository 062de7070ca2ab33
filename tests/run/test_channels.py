"""Two channels of different units from training to the report: scores, verdict and figures of each by name."""

import json

import numpy as np

from pdno.run.channels import channel_of, channel_rows, channel_table, plotted
from pdno.run.report import render
from tests.run.helpers import output, read


def test_two_channels_from_training_to_the_report(tmp_path, capsys, no_pictures) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 1, 12))
    u = np.concatenate([300 + 5 * a, 1e-3 * rng.normal(size=a.shape)], axis=1)  # the second one has nothing to learn
    np.savez(tmp_path / "d.npz", a=a, u=u)
    settings = "--set model.mean=linear --set model.law=gaussian --set training.updates=1"
    run = tmp_path / "run"
    output(capsys, f"train {tmp_path / 'd.npz'} --a a --u u --dims sample,channel,x --out {run} {settings}")
    printed = output(capsys, f"evaluate {run} --members 20")
    assert "channel 1" in printed
    assert "channel 2: The mean" in printed
    contents = json.loads((run / "results.json").read_text())
    errors = {name: next(r["value"] for r in rows if r["metric"] == "mrle") for name, rows in contents["channels"].items()}
    assert errors["channel 1"] < 1e-4
    assert errors["channel 2"] > 0.9
    page = read(render(run))
    for words in ("in units of the channel", "Largest error", "domain, channel 1.", "domain, channel 2."):
        assert words in page.text


def test_tables_and_fields_of_channels() -> None:
    row = {"metric": "mrle", "value": 0.1234, "error": 0.01}
    contents = {"channels": {"p": [row], "T": [{**row, "error": None}, {**row, "metric": "crps"}]}}
    assert channel_rows(contents) == (
        ["in units of the channel", "relative error", "CRPS"],
        [["p", "12.3 ± 1.0 %", ""], ["T", "12.3 %", "0.123 ± 0.010"]],
    )
    assert channel_table({"channels": {}}) is None
    assert channel_table({}) is None
    assert plotted({}) == [""]
    assert plotted({"channels": {name: [] for name in "abcdef"}}) == [", a", ", b", ", c", ", d"]
    fields = np.arange(6).reshape(2, 3)
    assert channel_of(fields, 1, "u").tolist() == [[3, 4, 5]]
    assert channel_of(fields, 1, "a").tolist() == [[0, 1, 2]]
    assert [m.tolist() for m in channel_of(np.stack([fields, fields]), 1, "members")] == [[[3, 4, 5]]] * 2
