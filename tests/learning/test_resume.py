"""Runs that are interrupted, damaged and resumed within this process."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pdno import UserError
from pdno.learning.resume import TrainingState, read_rows, session_seconds
from tests.helpers import digest
from tests.learning.runs import INPUTS, fitted, reproducible, rows_of, same, saved_step, squares


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fitted(checkpoint_seconds=0).history
    assert not list(tmp_path.iterdir())


def disturbed(at: int, act: Callable[[], None]):
    """Return the objective with a side effect, the first time that a step is reached."""
    done: list[int] = []

    def objective(network: Any, rows: Any, first: int, step: int) -> Tensor:
        if step == at and not done:
            done.append(step)
            act()
        return squares(network, rows, first, step)

    return objective


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_resumes_and_ends_with_the_same_bytes(number, tmp_path) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    objective = disturbed(5, lambda: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run")
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert saved_step(tmp_path / "run") in (6, 7)  # the step in progress, or the next one
    resumed, whole = fitted(objective, folder=tmp_path / "run"), fitted(folder=tmp_path / "whole")
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")
    assert same(resumed.network, whole.network)
    assert resumed.history == whole.history == rows_of(tmp_path / "run")


def test_a_second_signal_stops_at_once(tmp_path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    objective = disturbed(5, twice)
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run")
    assert saved_step(tmp_path / "run") == 0
    fitted(objective, folder=tmp_path / "run")
    fitted(folder=tmp_path / "whole")
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")


class Crash(Exception):
    """An exception of other code."""


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_rows_after_the_checkpoint_or_cut_short_are_written_again(seconds, tmp_path) -> None:
    def crash() -> None:
        with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 10, "epoch": 4.0, "loss": 1, "rate": 1}\n{"step": 1')
        raise Crash

    objective = disturbed(9, crash)
    how = {"log_every": 2, "checkpoint_seconds": seconds}
    with pytest.raises(Crash):
        fitted(objective, folder=tmp_path / "run", **how)
    assert saved_step(tmp_path / "run") == (0 if seconds else 9)
    fitted(objective, folder=tmp_path / "run", **how)
    fitted(folder=tmp_path / "whole", **how)
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")
    times = [json.loads(line)["step"] for line in (tmp_path / "run" / "times.jsonl").read_text().splitlines()]
    assert times == [2, 4, 6, 8, 10, 12]


def test_a_finished_run_takes_no_more_steps(tmp_path) -> None:
    def never(network: Any, rows: Any, first: int, step: int) -> Tensor:
        raise AssertionError("took a step")

    first = fitted(folder=tmp_path)
    before = digest(tmp_path)
    again = fitted(never, folder=tmp_path)
    assert same(again.network, first.network)
    assert (again.history, again.updates) == (first.history, first.updates)
    assert digest(tmp_path) == before


def test_a_run_with_other_settings_is_refused_and_not_modified(tmp_path) -> None:
    plan = {"training": {"rate": 0.1, "batch": 4}, "seed": 0, "gamma": [1.0, 0.5]}
    fitted(folder=tmp_path, plan=plan)
    before = digest(tmp_path)
    others = [
        ({**plan, "seed": 1}, "seed"),
        ({**plan, "training": {"rate": 0.2, "batch": 4}}, r"training\.rate"),
        ({**plan, "training": {"rate": 0.1}, "gamma": [1.0]}, r"gamma, training\.batch"),
    ]
    for other, names in others:
        with pytest.raises(UserError, match=rf"other settings \({names}\)"):
            fitted(folder=tmp_path, plan=other)
    with pytest.raises(UserError, match="another network"):
        fitted(folder=tmp_path, plan=plan, network=nn.Linear(INPUTS, 2))
    assert digest(tmp_path) == before
    fitted(folder=tmp_path, plan=plan)


@pytest.mark.filterwarnings("ignore:.*no-op")  # a tensor on "meta" has a device, but no values
def test_the_optimiser_is_restored_on_the_device_of_the_weights() -> None:
    network = nn.Linear(2, 1, device="meta")
    state = TrainingState(network, torch.optim.Adam(network.parameters()))
    tensors = {"network.weight": torch.ones(1, 2), "network.bias": torch.ones(1)}
    tensors |= {f"optimizer.weight.{name}": torch.ones(1, 2) for name in ("exp_avg", "exp_avg_sq")}
    state.restore({**tensors, "optimizer.weight.step": torch.tensor(3.0)}, 3, [])
    found = state.optimizer.state[network.weight]
    assert {name: (v.device.type, tuple(v.shape)) for name, v in found.items()} == {
        "exp_avg": ("meta", (1, 2)),
        "exp_avg_sq": ("meta", (1, 2)),
        "step": ("meta", ()),
    }


# Logs


def test_a_line_that_was_cut_short_ends_the_log(tmp_path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 1}, {"step": 2}]
    assert read_rows(tmp_path / "nothing.jsonl") == []


def test_the_times_of_a_log_restart_with_each_session(tmp_path) -> None:
    assert session_seconds(tmp_path) == []
    times = (1.0, 2.5, 0.5, 3.0, 0.25)
    (tmp_path / "times.jsonl").write_text("".join(f'{{"step": {i}, "seconds": {t}}}\n' for i, t in enumerate(times)))
    assert session_seconds(tmp_path) == [2.5, 3.0, 0.25]


def test_an_interrupted_run_with_patience_keeps_its_best_weights(tmp_path, monkeypatch) -> None:
    """The lowest loss is before the interruption, the end of training after it."""
    monkeypatch.setattr("pdno.learning.loop.LEAST_INTERVAL", 2)

    def validate(network: nn.Module) -> float:
        weight = float(next(network.parameters()).detach().abs().sum())
        return abs(weight - target)

    settings = {"updates": 20, "validations": 10, "patience": 3}
    target = 0.0
    early = fitted(**{**settings, "updates": 4, "rate_schedule": "constant"}, ema=0.0)
    target = float(next(early.network.parameters()).detach().abs().sum())
    how = {**settings, "rate_schedule": "constant", "ema": 0.0, "validate": validate}
    objective = disturbed(7, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run", **how)
    resumed, whole = fitted(objective, folder=tmp_path / "run", **how), fitted(**how)
    assert whole.updates == resumed.updates == 12
    assert same(resumed.network, whole.network)
    assert same(resumed.network, early.network)
    assert same(fitted(objective, folder=tmp_path / "run", **how).network, early.network)
