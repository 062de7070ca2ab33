r"""Algorithm `alg:PDNO`, training stage: one visible loop, for one process or many, that survives anything.

    repeat   (a, u) from the data,   n ~ Unif{1 … N},   ε ~ N(0, 𝒞),   a step of gradient descent on L_DDSM

Every draw is a function of (seed, purpose, step), the learning rate is one of the step, and a checkpoint holds weights, their
moving average (EMA) and the optimiser: a run that was killed and resumed ends with the same bytes as one that was not.
`metrics.jsonl` has no clock in it and so is reproducible too; wall-clock times are in `times.jsonl`.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from ..draw import generator
from ..errors import UserError, nearest
from .resume import Record, State

__all__ = ["Objective", "Order", "Trained", "Training", "learning_rate", "train"]

Rows = NDArray[np.int64]
Optimizer = Literal["adam", "adamw"]
RateSchedule = Literal["constant", "step", "cosine", "one-cycle"]
CHECKS = 20  # parts of the steps that are left, after each of which a run looks at the clock
SLACK = 0.03  # of the budget, by which it may be missed


Objective = Callable[[Any, Rows, int, int], Tensor]
"""(network, rows, first, step) ↦ the loss of some rows, which stand at places first, first + 1, … of the step's batch."""


class Progress(Protocol):
    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@dataclass(frozen=True)
class Training:
    """Settings of the loop.

    Args:
        epochs: passes over the data; `updates`, if given, counts instead.
        updates: steps of the optimiser.
        batch: pairs a step, over all processes.
        optimizer: "adam" or "adamw".
        rate: the largest learning rate.
        rate_schedule: "constant"; "step" halves it every `halve_every` epochs; "cosine" lets it fall to zero; "one-cycle"
            lets it rise over the first tenth, then fall to zero.
        weight_decay: of the optimiser.
        ema: decay of the moving average of the weights that is used in the end; 0 takes the weights themselves.
        clip: largest norm of the gradient; 0 does not clip.
        log_every: steps between rows of metrics.jsonl.
        validations: number of times that the validation loss is computed.
        checkpoint_seconds: time between checkpoints.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # where settings come from a file

    epochs: float | None = None
    updates: int | None = None
    batch: int = 32
    optimizer: Optimizer = "adamw"
    rate: float = 1e-3
    rate_schedule: RateSchedule = "one-cycle"
    halve_every: float = 100
    weight_decay: float = 0.0
    ema: float = 0.999
    clip: float = 1.0
    log_every: int = 50
    validations: int = 10
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, known in (("optimizer", get_args(Optimizer)), ("rate_schedule", get_args(RateSchedule))):
            if getattr(self, name) not in known:
                raise UserError(f"{name} {getattr(self, name)!r} is unknown; {nearest(str(getattr(self, name)), known)}")
        given = {name: value for name, value in vars(self).items() if not isinstance(value, str | None)}
        whole = ("updates", "batch", "log_every", "validations")
        zero = ("weight_decay", "ema", "clip", "validations", "checkpoint_seconds")
        wrong = [
            f"{name} = {value}"
            for name, value in given.items()
            if not (value >= 0 if name in zero else value > 0) or (name in whole and value % 1 != 0)
        ]
        wrong += [f"ema = {self.ema}"] if self.ema >= 1 else []
        if wrong:
            raise UserError(
                f"training cannot work with {', '.join(wrong)}; numbers must be positive, counts whole, and ema in [0, 1)"
            )

    def total(self, pairs: int, default: int = 4000) -> int:
        """Steps of the optimiser for this number of pairs."""
        if self.updates is not None:
            return self.updates
        return default if self.epochs is None else max(1, math.ceil(self.epochs * pairs / self.batch))


def learning_rate(settings: Training, step: int, total: int, pairs: int) -> float:
    """The rate of step 0 … total − 1.

    >>> [round(learning_rate(Training(rate=1.0), step, 100, 1), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    if settings.rate_schedule == "constant":
        return settings.rate
    if settings.rate_schedule == "step":
        return float(settings.rate * 0.5 ** (step * settings.batch / pairs // settings.halve_every))
    rise = max(1, total // 10) if settings.rate_schedule == "one-cycle" else 0
    if step < rise:
        return settings.rate * (step + 1) / rise
    return settings.rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, total - rise)))


@dataclass(frozen=True)
class Order:
    """The rows of each step: windows of one random order of all pairs after another, so every batch is full.

    >>> order = Order(pairs=5, batch=4, seed=0)
    >>> sorted(np.concatenate([order(step) for step in range(5)]).tolist()) == sorted([*range(5)] * 4)
    True
    """

    pairs: int
    batch: int
    seed: int

    def __call__(self, step: int) -> Rows:
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, inside = np.divmod(places, self.pairs)
        rows = [_permutation(self.seed, int(e), self.pairs)[inside[epochs == e]] for e in np.unique(epochs)]
        return np.concatenate(rows)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, pairs: int) -> Rows:
    return generator(seed, "batches", epoch).permutation(pairs)


@dataclass
class Trained:
    """What training gave: the network with its averaged weights, and what was logged on the way."""

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
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Trained:
    """Minimise an objective over `pairs` pairs.

    Args:
        network: trained in place.
        objective: the loss of some rows.
        pairs: their number.
        settings: of the loop.
        fabric: device, precision and processes, from `pdno.work.engine.fabric`.
        seed: of the order of the pairs.
        folder: where checkpoints and logs go; a run that is found there is gone on with.
        plan: settings, as plain JSON types, that a run must share to be gone on with.
        budget: seconds; where they do not suffice for the steps asked for, there will be fewer steps, as many as the pace of
            the machine allows, which is looked at again and again.
        validate: the loss of a network on pairs that are not learned from.
        progress: called with (done, total, note).
        tell: called with what the user should know.
    """
    begin = saved = time.monotonic()
    state, step = _prepare(network, objective, pairs, settings, fabric, seed)
    record = Record(folder, plan or {}, writes=fabric.global_rank == 0)
    with fabric.rank_zero_first():  # a damaged checkpoint is set aside once
        total = record.resume(state, tell)
    if total is None:
        total = settings.total(pairs)
        if budget is not None:
            total = fabric.broadcast(min(total, _affordable(step, state, settings.rate, begin + budget)))
        record.checkpoint(state, total)
    left = None if budget is None else (begin + budget - time.monotonic()) * (1 - state.step / total)
    table = Timetable(total, settings.total(pairs), state.step, left)
    with _interruptions() as interrupted:
        while state.step < (total := table.total):
            rate = learning_rate(settings, state.step, total, pairs)
            loss, stop = step(rate, interrupted())
            state.losses.append(_finite(loss, state.step, total, settings))
            every = math.ceil(total / settings.validations) if settings.validations and validate is not None else total + 1
            validating = state.step % every == 0 or (state.step == total and every <= total)
            if validating or state.step % settings.log_every == 0 or state.step == total:
                row = _row(state, state.step * settings.batch / pairs, rate, validate if validating else None)
                record.add(row, time.monotonic() - begin)
            if table.due(state.step):
                table.look(state.step, fabric)
            if progress is not None:
                progress(state.step, total, f"loss {loss:.3g}  rate {rate:.2g}")
            if stop or state.step == total or time.monotonic() - saved > settings.checkpoint_seconds:
                record.checkpoint(state, table.total)
                saved = time.monotonic()
            if stop:
                raise KeyboardInterrupt
    return Trained(state.averaged.eval(), record.rows, total, time.monotonic() - begin)


def _row(state: State, epoch: float, rate: float, validate: Callable[[nn.Module], float] | None) -> dict[str, Any]:
    """A row of metrics.jsonl."""
    row = {"step": state.step, "epoch": epoch, "loss": state.mean_loss(), "rate": rate}
    if validate is not None:
        row["validation"] = validate(state.averaged.eval())
        state.averaged.train()
    return row


Step = Callable[[float, bool], tuple[float, bool]]


def _prepare(
    network: nn.Module, objective: Objective, pairs: int, settings: Training, fabric: Any, seed: int
) -> tuple[State, Step]:
    """The state of a fresh run, and the function that takes one step of it."""
    if settings.batch % fabric.world_size:
        raise UserError(f"a batch of {settings.batch} cannot be shared by {fabric.world_size} processes; take a multiple")
    network.to(fabric.device).train()
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    real = all(parameter.is_floating_point() for parameter in network.parameters())  # else it cannot be fused
    optimizer = kind(network.parameters(), lr=settings.rate, weight_decay=settings.weight_decay, fused=real)
    module, stepper = fabric.setup(network, optimizer)  # also puts the network into the precision that was asked for
    state = State(network, optimizer, AveragedModel(network, multi_avg_fn=_ema(settings.ema)) if settings.ema else None)
    order, share = Order(pairs, settings.batch, seed), settings.batch // fabric.world_size
    mine = slice(fabric.global_rank * share, (fabric.global_rank + 1) * share)

    def step(rate: float, interrupted: bool) -> tuple[float, bool]:
        """One step of Algorithm `alg:PDNO`: the loss, and whether to stop, over all processes."""
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
        told = loss.detach() if torch.isfinite(norm) else norm.to(loss.dtype)
        both = fabric.all_reduce(torch.stack([told, loss.new_tensor(float(interrupted))]), reduce_op="mean")
        return float(both[0]), bool(both[1] > 0)

    return state, step


def _ema(decay: float) -> Callable[..., None]:
    """θ̄ ← θ̄ + (1−δ)(θ − θ̄), with δ rising to `decay`: an average of few weights should not remember the first."""

    @torch.no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        weight = 1 - min(decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(averaged, current, weight)

    return update


def _affordable(step: Step, state: State, rate: float, deadline: float, tries: int = 6) -> int:
    """How many steps are possible before a deadline, from a few that are then undone."""
    before = state.tensors()
    step(rate, False)  # the first one also sets things up
    begin = time.monotonic()
    for _ in range(tries):
        step(rate, False)
    seconds = (time.monotonic() - begin) / tries
    state.restore(before, 0, [])
    return max(1, int((deadline - time.monotonic()) / seconds))


class Timetable:
    """How many steps there will be: those asked for, or as many as the time allows at the pace of the latest ones.

    Args:
        total: steps that are planned.
        asked: steps that there may be.
        step: steps that are behind.
        seconds: that the rest may take; None for any time.
    """

    def __init__(self, total: int, asked: int, step: int, seconds: float | None) -> None:
        self.total, self.asked, self.seconds = total, asked, seconds
        self.end = time.monotonic() + (seconds or 0.0)
        self._mark(step)

    def _mark(self, step: int) -> None:
        self.step, self.time = step, time.monotonic()
        self.next = step + max(1, (self.total - step) // CHECKS)

    def due(self, step: int) -> bool:
        """Whether to look at the clock: at the same steps in all processes."""
        return self.seconds is not None and self.next <= step < self.total

    def look(self, step: int, fabric: Any) -> None:
        """Plan anew if the steps planned would end too late, or too early for what was asked."""
        now = time.monotonic()
        pace = (now - self.time) / (step - self.step)
        self.total = fabric.broadcast(
            replanned(self.total, self.asked, step, pace, self.end - now, SLACK * (self.seconds or 0))
        )
        self._mark(step)


def replanned(total: int, asked: int, step: int, pace: float, left: float, slack: float) -> int:
    """Steps, at a pace in seconds a step and with some seconds left: those planned, if they miss that by no more than `slack`.

    >>> [replanned(100, 1000, 10, pace, left=90.0, slack=5.0) for pace in (0.5, 0.99, 2.0, 1e9)]
    [190, 100, 55, 11]
    """
    if abs((total - step) * pace - left) <= slack:
        return total
    return min(asked, max(step + 1, step + int(left / pace)))


def _finite(loss: float, step: int, total: int, settings: Training) -> float:
    if not math.isfinite(loss):
        raise UserError(
            f"the loss or its gradient became {loss} at step {step} of {total}; look at the data with `pdno inspect`, or lower "
            f"the rate ({settings.rate:g}); the last checkpoint is kept"
        )
    return loss


@contextmanager
def _interruptions() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came: a step is finished and saved before the run stops; the second time it stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
