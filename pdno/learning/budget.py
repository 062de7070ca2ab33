"""Time budgets: how much time is left, and how many training steps fit into it.

`Terms` carries the deadline to every part of a model. `Timetable` plans the remaining steps of a training run from the measured
time per step, and repeats this during the run.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data.pairs import Pairs
from .settings import Training

__all__ = ["Terms", "Timetable", "affordable_steps", "replanned"]

CHECKS = 20  # the number of steps is planned again after 1/CHECKS of the remaining steps
SLACK = 0.03  # fraction of the budget by which the planned end may be missed
PROBES = 6  # steps that are timed before training


@dataclass(frozen=True)
class Terms:
    """Conditions under which a part of a model is trained.

    Args:
        seed: of everything that is drawn.
        run: folder for checkpoints and logs; None writes nothing.
        device: "auto", "cpu", "cuda", …
        devices: processes on this machine.
        precision: "32-true", "64-true" or "bf16-mixed".
        progress: show progress bars on terminals.
        deadline: on the monotonic clock; None for no limit.
        training: settings of the loop that the user gave for all networks; None for the recipe of each network.
        log: called with a line of text for each candidate that was tried.
        log_error: epochs of training a network between two measurements of its error, see `pdno.learning.errorlog`; 0 for none.
        log_pairs: pairs of these measurements where one network learns u; None for held-out pairs.
    """

    seed: int = 0
    run: Path | None = None
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    progress: bool = True
    deadline: float | None = None
    training: Training | None = None
    log: Callable[[str], None] = lambda text: None
    log_error: float = 0.0
    log_pairs: Pairs | None = None

    @property
    def single_process(self) -> bool:
        """Whether there is one process; several must not decide by their clocks, which may differ."""
        return self.devices == 1 and int(os.environ.get("WORLD_SIZE", "1")) == 1

    def left(self, share: float = 1.0) -> float | None:
        """Return the remaining seconds, or a share of them; None if there is no deadline."""
        return None if self.deadline is None else max(0.0, share * (self.deadline - time.monotonic()))

    def left_here(self, share: float = 1.0) -> float | None:
        """Return `left` where the clock may decide; None if there are several processes."""
        return self.left(share) if self.single_process else None

    def within(self, seconds: float | None) -> "Terms":
        """Return the terms with a deadline this many seconds from now; None removes the deadline."""
        return replace(self, deadline=None if seconds is None else time.monotonic() + seconds)

    def below(self, folder: str) -> "Terms":
        """Return the terms with a subfolder of the run."""
        return replace(self, run=None if self.run is None else self.run / folder)


def affordable_steps(step: Callable[[], Any], undo: Callable[[], None], deadline: float) -> int:
    """Take a few steps, undo them, and return the number of steps that their pace allows before a deadline.

    Args:
        step: takes one training step.
        undo: restores the state before the first step.
        deadline: on the monotonic clock.
    """
    step()  # the first one includes set-up
    begin = time.monotonic()
    for _ in range(PROBES):
        step()
    seconds = (time.monotonic() - begin) / PROBES
    undo()
    return max(1, int((deadline - time.monotonic()) / seconds))


class Timetable:
    """The number of training steps: those requested, or fewer if the measured pace does not allow them.

    Args:
        total: number of steps planned.
        requested: largest number of steps.
        step: number of steps done.
        seconds: time for the remaining steps; None for no limit.
    """

    def __init__(self, total: int, requested: int, step: int, seconds: float | None) -> None:
        self.total, self.requested, self.seconds = total, requested, seconds
        self.end = time.monotonic() + (seconds or 0.0)
        self._mark(step)

    def _mark(self, step: int) -> None:
        self.step, self.time = step, time.monotonic()
        self.next = step + max(1, (self.total - step) // CHECKS)

    def is_due(self, step: int) -> bool:
        """Return whether to compare with the clock after this step; the result is the same in all processes."""
        return self.seconds is not None and self.next <= step < self.total

    def pause(self, seconds: float) -> None:
        """Leave out seconds that were not spent on steps from the measured pace."""
        self.time += seconds

    def shorten(self, total: int) -> None:
        """Reduce the number of steps, for good."""
        if total < self.total:
            self.total = self.requested = total

    def replan(self, step: int, fabric: Any) -> None:
        """Change the number of steps if the plan would end too late, or too early with fewer steps than requested."""
        now = time.monotonic()
        pace = (now - self.time) / (step - self.step)
        slack = SLACK * (self.seconds or 0)
        self.total = fabric.broadcast(replanned(self.total, self.requested, step, pace, self.end - now, slack))
        self._mark(step)


def replanned(total: int, requested: int, step: int, pace: float, left: float, slack: float) -> int:
    """Return the number of steps at a pace (seconds per step); `total` if it misses the time left by at most `slack` seconds.

    >>> [replanned(100, 1000, 10, pace, left=90.0, slack=5.0) for pace in (0.5, 0.99, 2.0, 1e9)]
    [190, 100, 55, 11]
    """
    if abs((total - step) * pace - left) <= slack:
        return total
    return min(requested, max(step + 1, step + int(left / pace)))
