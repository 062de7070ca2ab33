"""The paper's experiments: which parts there are, what is run, and what is kept."""

import json
from pathlib import Path

import pytest

from pdno import UserError
from pdno.bench import CLAIMS, PARTS, listing, run, selected
from pdno.bench.scale import FIRST_GRIDS, SCALES
from pdno.model.paper import SETTINGS

LINEAR = "burgers-512/linear"


def test_every_experiment_has_every_method() -> None:
    """But an FNO for Test 1, where the paper has none."""
    assert len(PARTS) == 6 * len(SETTINGS) - 3
    assert "elliptic1d-128-gaussian:1/fno" not in PARTS


@pytest.mark.parametrize(
    ("name", "count"), [("darcy-64/diffusion", 1), ("darcy-64", 6), ("burgers", 18), ("kernel", 18), ("fno", 15), ("claims", 6)]
)
def test_parts_are_selected_by_part_experiment_test_or_method(name, count) -> None:
    assert len(selected([name])) == count
    assert len(selected([name, name])) == count


def test_unknown_parts_and_scales_are_refused(tmp_path) -> None:
    with pytest.raises(UserError, match=r"the bench has no part 'darci'; did you mean 'darcy'\? `pdno bench --list` shows all"):
        selected(["darci"])
    with pytest.raises(UserError, match=r"--scale gpu is unknown"):
        run([LINEAR], "gpu", tmp_path, tell=print)
    assert len(selected([])) == len(PARTS) + len(CLAIMS)


def test_sizes_of_the_paper_are_those_of_its_tables() -> None:
    scale, setting = SCALES["paper"], SETTINGS["advection-256-gaussian:0.5"]
    assert (scale.train(setting), scale.inputs(setting), scale.members(setting)) == (10_000, 300, 10_000)
    assert scale.budget(setting) is None
    assert set(FIRST_GRIDS) <= set(SETTINGS)
    cpu = SCALES["cpu"]
    assert [cpu.budget(SETTINGS[name]) for name in ("darcy-64", "darcy-128")] == [45 * 60, 20 * 60]
    assert cpu.baseline_seconds == 10 * 60


def test_the_papers_network_is_scored_on_fewer_inputs_on_a_cpu() -> None:
    cpu, paper, setting = SCALES["cpu"], SCALES["paper"], SETTINGS["darcy-64-mixture:1"]
    assert (cpu.scored(setting, True), cpu.scored(setting, False)) == ((4, 20), (100, 100))
    assert paper.scored(setting, True) == paper.scored(setting, False) == (paper.inputs(setting), paper.members(setting))
    assert {each.test for each in SETTINGS.values()} == set(cpu.paper_inputs)


def test_a_part_is_run_once_and_listed(tmp_path: Path) -> None:
    told: list[str] = []
    run([LINEAR], "smoke", tmp_path, tell=told.append)
    (file,) = (tmp_path / "smoke" / "results").iterdir()
    rows = json.loads(file.read_text())["rows"]
    row = next(row for row in rows if row["metric"] == "mrle")
    assert (row["method"], row["evaluations"], row["train"]) == ("linear", 0, 58)
    assert row["command"] == f"pdno bench {LINEAR} --scale smoke"
    assert row["paper"] is None  # on a smaller grid
    assert 0 < row["value"] < 1  # 1 for predicting zero
    run([LINEAR], "smoke", tmp_path, tell=told.append)
    assert told[-1].endswith(f"{file} exists")
    model = tmp_path / "smoke" / "runs" / LINEAR / "model.safetensors"
    before = model.stat().st_mtime_ns
    run([LINEAR], "smoke", tmp_path, again=True, tell=told.append)
    assert model.stat().st_mtime_ns > before  # trained again
    lines = listing("smoke", tmp_path)
    assert len(lines) == 1 + len(PARTS) + len(CLAIMS)
    (mine,) = (line for line in lines if line.startswith(LINEAR + " "))
    assert f"{row['value']:.2g}" in mine
    assert sum("not run" in line for line in lines) == len(PARTS) + len(CLAIMS) - 1
    assert max(map(len, lines)) <= 80


def test_the_paper_with_fewer_channels_or_less_time_has_another_name() -> None:
    part, labels = PARTS["darcy-64/paper"], ("pdno-paper-small", "pdno-paper-short", "pdno-paper")
    assert tuple(part.label(SCALES[name]) for name in ("smoke", "cpu", "paper")) == labels
    smoke, whole = (part.method.make(part.setting, part.equation(SCALES[name]), SCALES[name]) for name in ("smoke", "paper"))
    assert (smoke.network["base"], whole.network["base"]) == (8, 64)
    assert (smoke.budget, whole.budget) == (SCALES["smoke"].seconds, None)


def test_the_network_of_the_paper_trains_for_fifteen_thousand_updates_on_advection() -> None:
    """The first 200 of the paper's 1000 epochs, as its rate is constant; --minutes shortens this part too."""
    part, cpu = PARTS["advection-256/paper"], SCALES["cpu"]
    long, short = (part.method.make(part.setting, part.equation(cpu), scale) for scale in (cpu, cpu.within(15)))
    assert long.training.epochs * part.setting.train // long.training.batch == 15_000
    assert long.training.rate_schedule == "constant"
    assert (long.budget, short.budget) == (None, 900)
    assert (part.log_interval(cpu), part.log_interval(cpu.within(15))) == (5, 1)
    assert PARTS["advection-256/diffusion"].log_interval(cpu) == 1


def test_parts_can_be_shortened() -> None:
    """All times are at most those of --minutes, which is part of the command in results."""
    cpu = SCALES["cpu"]
    short = cpu.within(15)
    assert (short.seconds, short.other_seconds, short.baseline_seconds) == (900, 900, 600)
    assert short.options == "--scale cpu --minutes 15"
    assert cpu.within(None) is cpu
    for scale, minutes in ((cpu, 0.0), (cpu, 50.0), (SCALES["paper"], 5.0)):
        with pytest.raises(UserError, match=f"--minutes {minutes:g}"):
            scale.within(minutes)
