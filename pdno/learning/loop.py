r"""Training stage of Algorithm `alg:PDNO`: one visible loop, for one process or many, that survives interruptions.

    repeat   (a, u) from the data,   n ~ Unif{1 … N},   ε ~ N(0, 𝒞),   a step of gradient descent on L_DDSM

Every draw is a function of (seed, purpose, step), the learning rate is a function of the step, and a checkpoint holds weights,
their moving average (EMA), the best weights so far and the optimiser: a run that was killed and resumed ends with the same
bytes as an uninterrupted one. `metrics.jsonl` contains no times and is therefore reproducible too; wall-clock times are in
`times.jsonl`.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from ..errors import UserError
from .budget import Timetable, affordable_steps
from .errorlog import ErrorLog
from .resume import Record, TrainingState
from .settings import Order, Rows, Training, learning_rate

__all__ = ["Objective", "Trained", "train"]

Objective = Callable[[Any, Rows, int, int], Tensor]
"""(network, rows, first, step) ↦ the loss of some rows, which stand at places first, first + 1, … of the step's batch."""

COOLING = 0.2  # steps after the end of patience, in which the learning rate decays, relative to those before
LEAST_INTERVAL = 20  # steps between two validations, with patience: they take the time of a few steps each
NO_LIMIT = 10**9  # steps, if a time budget ends training and their number is not given

Step = Callable[[float, bool], tuple[float, bool]]
"""(learning rate, interrupted) ↦ (loss, stop), over all processes."""


class Progress(Protocol):
    """A function that is called after each step, with the number of steps done and planned, and a note."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@dataclass
class Trained:
    """Result of training: the network with its averaged weights, and the rows of the log."""

    network: nn.Module
    history: list[dict[str, Any]]
    updates: int
    seconds: float


def train(
    network: nn.Module,
    objective: Objective,
    pairs: int,
    settings: Training,
    fabric: Any,
    *,
    seed: int = 0,
    folder: Path | None = None,
    plan: dict[str, Any] | None = None,
    budget: float | None = None,
    validate: Callable[[nn.Module], float] | None = None,
    errors: tuple[float, Callable[[nn.Module], float]] | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Trained:
    """Minimise an objective over `pairs` pairs.

    Args:
        network: trained in place.
        objective: the loss of some rows of the pairs.
        pairs: number of training pairs.
        settings: of the loop.
        fabric: device, precision and processes, from `pdno.work.engine.fabric`.
        seed: of the order of the pairs.
        folder: for checkpoints and logs; an unfinished run in it is resumed.
        plan: settings, as plain JSON types, that must equal those of an unfinished run.
        budget: seconds; the number of steps is what the measured time per step allows, and at most that of `settings`.
        validate: the loss of a network on held-out pairs.
        errors: epochs between two measurements of the MRLE of a network, and the function that measures it; None for none.
        progress: called with (done, total, note).
        warn: called with messages for the user.

    Returns:
        The trained network in evaluation mode, with its history.

    Raises:
        UserError: if the loss becomes NaN or infinite, or `folder` holds a run with another plan.
    """
    begin = saved = time.monotonic()
    state, step = _prepare(network, objective, pairs, settings, fabric, seed)
    record = Record(folder, plan or {}, writes=fabric.global_rank == 0)
    session = _Session(state, step, record, settings, pairs, fabric, begin)
    table = session.timetable(budget, warn)
    log = None if errors is None else ErrorLog(errors[1], errors[0], settings.batch, pairs, budget is not None)
    with _interruptions() as interrupted:
        while state.step < (total := table.total):
            rate = learning_rate(settings, state.step, total, pairs)
            loss, stop = step(rate, interrupted())
            state.losses.append(_finite(loss, state.step, total, settings))
            if log is not None:
                session.log_error(log, table)
            validating = validate is not None and _is_validated(settings, state.step, total)
            if validating or state.step % settings.log_every == 0 or state.step == total:
                session.log_loss(rate, validate if validating else None)
            if table.is_due(state.step):
                table.replan(state.step, fabric)
            if validating and session.is_out_of_patience():
                table.shorten(state.step + math.ceil(COOLING * state.step))
            if progress is not None:
                progress(state.step, total, f"loss {loss:.3g}  rate {rate:.2g}")
            if stop or state.step == table.total or time.monotonic() - saved > settings.checkpoint_seconds:
                record.checkpoint(state, table.total)
                saved = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    state.take_best()  # of all validations, with patience
    return Trained(state.averaged.eval(), record.rows, total, session.seconds())


@dataclass(frozen=True)
class _Session:
    """Training from the first step or the last checkpoint until the end or an interruption.

    Args:
        state: changed by each step.
        step: takes a step.
        record: checkpoints and logs.
        settings: of the loop.
        pairs: number of training pairs.
        fabric: processes.
        begin: of the session, on the monotonic clock.
    """

    state: TrainingState
    step: Step
    record: Record
    settings: Training
    pairs: int
    fabric: Any
    begin: float

    def seconds(self) -> float:
        """Return the time since the session began."""
        return time.monotonic() - self.begin

    def timetable(self, budget: float | None, warn: Callable[[str], None]) -> Timetable:
        """Resume the state from the last checkpoint, if there is one, and plan the number of steps."""
        requested = self.settings.total(self.pairs) if budget is None else self.settings.total(self.pairs, NO_LIMIT)
        with self.fabric.rank_zero_first():  # a damaged checkpoint is set aside once
            total = self.record.resume(self.state, warn)
        if total is None:
            total = requested if budget is None else self._affordable(requested, self.begin + budget)
            self.record.checkpoint(self.state, total)
        left = None if budget is None else (self.begin + budget - time.monotonic()) * (1 - self.state.step / total)
        return Timetable(total, total if self.is_out_of_patience() else requested, self.state.step, left)

    def _affordable(self, requested: int, deadline: float) -> int:
        """Return the number of steps that the measured pace allows before a deadline, and at most those requested."""
        before = self.state.tensors()
        possible = affordable_steps(
            lambda: self.step(self.settings.rate, False), lambda: self.state.restore(before, 0, []), deadline
        )
        total: int = self.fabric.broadcast(min(requested, possible))
        return total

    def is_out_of_patience(self) -> bool:
        """Return whether the last validations, as many as the patience, did not lower the loss; False without patience."""
        return bool(self.settings.patience) and self.state.validations_since_best() >= self.settings.patience

    def log_error(self, log: ErrorLog, table: Timetable) -> None:
        """Measure the error if it is due, and log it; the pace of the timetable does not include the measurement."""
        elapsed = self.seconds()
        if self.fabric.broadcast(log.is_due(self.state.step, table.total, elapsed)):
            self.record.add(log.row(self.state.averaged, self.state.step), elapsed)
            table.pause(self.seconds() - elapsed)

    def log_loss(self, rate: float, validate: Callable[[nn.Module], float] | None) -> None:
        """Log the mean loss since the last row, and that of a validation, if there is one; patience depends on the latter."""
        validation = None if validate is None else self.fabric.broadcast(_validated(self.state, validate))
        epoch = self.state.step * self.settings.batch / self.pairs
        row = {"step": self.state.step, "epoch": epoch, "loss": self.state.mean_loss(), "rate": rate}
        if validation is not None:
            row["validation"] = validation
            if self.settings.patience:
                self.state.add_validation(validation)
        self.record.add(row, self.seconds())


def _is_validated(settings: Training, step: int, total: int) -> bool:
    """Return whether there is a validation after a step."""
    interval = _validation_interval(settings, total)
    return step % interval == 0 or (step == total and interval <= total)


def _validation_interval(settings: Training, total: int) -> int:
    """Return the number of steps between two validations; more than all steps if there are none."""
    if not settings.validations:
        return total + 1
    return max(math.ceil(total / settings.validations), min(LEAST_INTERVAL, math.ceil(total / 2)) if settings.patience else 1)


def _validated(state: TrainingState, validate: Callable[[nn.Module], float]) -> float:
    """Return the validation loss of the averaged weights."""
    loss = validate(state.averaged.eval())
    state.averaged.train()
    return loss


def _prepare(
    network: nn.Module, objective: Objective, pairs: int, settings: Training, fabric: Any, seed: int
) -> tuple[TrainingState, Step]:
    """Return the state of a fresh run, and the function that takes one step of it."""
    if settings.batch % fabric.world_size:
        raise UserError(
            f"a batch of {settings.batch} cannot be divided among {fabric.world_size} processes; choose a multiple of it"
        )
    network.to(fabric.device).train()
    optimizer_type = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    real = all(parameter.is_floating_point() for parameter in network.parameters())  # complex weights cannot be fused
    optimizer = optimizer_type(network.parameters(), lr=settings.rate, weight_decay=settings.weight_decay, fused=real)
    module, stepper = fabric.setup(network, optimizer)  # also converts the network to the requested precision
    state = TrainingState(network, optimizer, AveragedModel(network, multi_avg_fn=_ema(settings.ema)) if settings.ema else None)
    order, share = Order(pairs, settings.batch, seed), settings.batch // fabric.world_size
    mine = slice(fabric.global_rank * share, (fabric.global_rank + 1) * share)

    def step(rate: float, interrupted: bool) -> tuple[float, bool]:
        """Take one step of Algorithm `alg:PDNO`; return the loss and whether to stop, over all processes."""
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = objective(module, order(state.step)[mine], mine.start, state.step)
        stepper.zero_grad()
        fabric.backward(loss)
        norm = fabric.clip_gradients(module, stepper, max_norm=settings.clip or math.inf, error_if_nonfinite=False)
        stepper.step()
        if state.average is not None:
            state.average.update_parameters(network)
        state.step += 1
        reported = loss.detach() if torch.isfinite(norm) else norm.to(loss.dtype)
        both = fabric.all_reduce(torch.stack([reported, loss.new_tensor(float(interrupted))]), reduce_op="mean")
        return float(both[0]), bool(both[1] > 0)

    return state, step


def _ema(decay: float) -> Callable[..., None]:
    """Return the update θ̄ ← θ̄ + (1−δ)(θ − θ̄) of averaged weights.

    δ increases to `decay`, so that the initial weights have no effect on the average after a few steps.
    """

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        weight = 1 - min(decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(averaged, current, weight)

    return update


def _finite(loss: float, step: int, total: int, settings: Training) -> float:
    """Return the loss; raise UserError if it is NaN or infinite."""
    if not math.isfinite(loss):
        raise UserError(
            f"the loss or its gradient became {loss} at step {step} of {total}; check the data with `pdno inspect`, or lower "
            f"the rate ({settings.rate:g}); the last checkpoint is kept"
        )
    return loss


@contextmanager
def _interruptions() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C or SIGTERM has been received.

    The loop then finishes and saves the current step before it stops; a second signal stops it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
