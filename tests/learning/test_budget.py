"""Budgets: terms and plans by hand, and training runs that keep their time."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from pdno.learning.budget import CHECKS, PROBES, SLACK, Terms, Timetable, affordable_steps
from tests.learning.runs import fitted, reproducible, same, squares


class Clock:
    """A monotonic clock that the test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


# Terms


def test_the_time_left(clock) -> None:
    assert Terms().left() is None
    terms = Terms(deadline=1010.0)
    assert (terms.left(), terms.left(0.25), terms.left_here()) == (10, 2.5, 10)
    clock.now = 1011.0
    assert terms.left() == 0
    assert terms.within(5.0).deadline == 1016
    assert terms.within(None).left() is None


@pytest.mark.parametrize(("devices", "world", "single"), [(1, None, True), (1, "1", True), (2, None, False), (1, "2", False)])
def test_several_processes_do_not_decide_by_their_clocks(devices, world, single, clock, monkeypatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world is not None:
        monkeypatch.setenv("WORLD_SIZE", world)
    terms = Terms(devices=devices, deadline=1010.0)
    assert terms.single_process == single
    assert terms.left_here() == (10 if single else None)
    assert terms.left() == 10


def test_a_subfolder_of_the_run() -> None:
    assert Terms().below("mean").run is None
    terms = Terms(seed=3, run=Path("run")).below("mean")
    assert (terms.run, terms.seed) == (Path("run/mean"), 3)


# Plans


def test_affordable_steps_by_hand(clock) -> None:
    """The first step, which takes 8 s, is not timed; six of 2 s leave 80 of 100 s: 40 steps."""
    steps: list[float] = []

    def step() -> None:
        steps.append(clock.now)
        clock.now += 2 if len(steps) > 1 else 8

    def undo() -> None:
        steps.clear()

    assert affordable_steps(step, undo, deadline=1100.0) == 40
    assert PROBES == 6
    assert not steps
    assert affordable_steps(step, undo, deadline=0.0) == 1  # there is always one


def test_the_timetable_by_hand(clock) -> None:
    """100 steps in 100 s; after ten steps of 2 s each, there is time for 40 more."""
    table = Timetable(total=100, requested=1000, step=0, seconds=100.0)
    one = SimpleNamespace(broadcast=lambda number: number)
    every = 100 // CHECKS
    assert [step for step in range(12) if table.is_due(step)] == list(range(every, 12))
    clock.now += 20
    table.replan(10, one)
    assert table.total == 50
    assert not table.is_due(10)
    assert table.is_due(12)
    clock.now += 40  # 40 s for 20 steps, as planned
    table.replan(30, one)
    assert table.total == 50
    clock.now += 10  # 30 s are left at 1 s per step
    table.replan(40, one)
    assert table.total == 70


def test_a_plan_that_is_missed_by_little_is_kept(clock) -> None:
    table = Timetable(total=100, requested=1000, step=0, seconds=100.0)
    one = SimpleNamespace(broadcast=lambda number: number)
    clock.now += 50 + 0.9 * 100 * SLACK / 2  # late by .9 of the slack at the end
    table.replan(50, one)
    assert table.total == 100


def test_without_a_budget_the_clock_is_not_read() -> None:
    table = Timetable(total=100, requested=100, step=0, seconds=None)
    assert not any(table.is_due(step) for step in range(101))


# Training runs


def test_a_machine_that_becomes_slower_takes_fewer_steps() -> None:
    calls: list[int] = []

    def slow(network: Any, rows: Any, first: int, step: int) -> Tensor:
        calls.append(step)
        time.sleep(0.001 if len(calls) < 30 else 0.03)
        return squares(network, rows, first, step)

    cut = fitted(slow, updates=200, budget=1.0)
    assert 20 < cut.updates < 120  # 200 would have taken five seconds


def test_a_budget_reduces_the_number_of_steps() -> None:
    def slow(network: Any, rows: Any, first: int, step: int) -> Tensor:
        time.sleep(0.01)
        return squares(network, rows, first, step)

    cut = fitted(slow, updates=1000, budget=0.08)
    assert 1 <= cut.updates <= 8
    assert same(cut.network, fitted(updates=cut.updates).network)
    assert cut.history == fitted(updates=cut.updates).history


def test_steps_that_measured_time_are_undone(tmp_path) -> None:
    rich = fitted(folder=tmp_path / "budget", budget=1e9)
    assert rich.updates == 12
    assert same(rich.network, fitted(folder=tmp_path / "none").network)
    assert reproducible(tmp_path / "budget") == reproducible(tmp_path / "none")
