"""Settings of the training loop: number of updates, learning rate, and the order of the pairs."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..draw import generator
from ..errors import UserError, nearest

__all__ = ["Order", "Rows", "Training", "learning_rate"]

Rows = NDArray[np.int64]
Optimizer = Literal["adam", "adamw"]
RateSchedule = Literal["constant", "step", "cosine", "one-cycle"]
DEFAULT_UPDATES = 4000  # where neither updates, epochs nor a time budget are given


@dataclass(frozen=True)
class Training:
    """Settings of the training loop.

    Args:
        epochs: passes over the data; ignored if `updates` is given.
        updates: optimiser steps.
        batch: pairs per step, over all processes.
        optimizer: "adam" or "adamw".
        rate: the largest learning rate.
        rate_schedule: "constant"; "step" halves the rate every `halve_every` epochs; "cosine" decays to zero; "one-cycle"
            rises linearly over the first tenth of the steps, then decays to zero.
        halve_every: epochs between two halvings of the schedule "step".
        weight_decay: of the optimiser.
        ema: decay of the exponential moving average of the weights, which replaces the weights after training; 0 disables it.
        clip: largest norm of the gradient; 0 disables clipping.
        log_every: steps between two rows of metrics.jsonl.
        validations: number of times that the validation loss is evaluated.
        patience: number of validations without a lower loss after which training is shortened to a fifth more than the steps so
            far, so that the schedules "cosine" and "one-cycle" lower the learning rate to zero. Validations are at least 20
            steps apart then, and the averaged weights of the lowest loss are restored at the end. 0 disables all this.
        checkpoint_seconds: seconds between two checkpoints.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}  # settings may come from a file

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
    patience: int = 0
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # settings are written as JSON
                object.__setattr__(self, name, value.item())
        for name, choices in (("optimizer", get_args(Optimizer)), ("rate_schedule", get_args(RateSchedule))):
            if getattr(self, name) not in choices:
                raise UserError(f"{name} {getattr(self, name)!r} is unknown; {nearest(str(getattr(self, name)), choices)}")
        numbers = {name: value for name, value in vars(self).items() if not isinstance(value, str | None)}
        whole = ("updates", "batch", "log_every", "validations", "patience")
        may_be_zero = ("weight_decay", "ema", "clip", "validations", "patience", "checkpoint_seconds")
        wrong = [
            f"{name} = {value}"
            for name, value in numbers.items()
            if not (value >= 0 if name in may_be_zero else value > 0) or (name in whole and value % 1 != 0)
        ]
        wrong += [f"ema = {self.ema}"] if self.ema >= 1 else []
        if wrong:
            raise UserError(
                f"training cannot work with {', '.join(wrong)}; numbers must be positive, counts whole, and ema in [0, 1)"
            )

    @property
    def is_limited(self) -> bool:
        """Whether the number of steps is given."""
        return self.updates is not None or self.epochs is not None

    def total(self, pairs: int, default: int = DEFAULT_UPDATES) -> int:
        """Return the number of optimiser steps for this number of pairs."""
        if self.updates is not None:
            return self.updates
        return default if self.epochs is None else max(1, math.ceil(self.epochs * pairs / self.batch))


def learning_rate(settings: Training, step: int, total: int, pairs: int) -> float:
    """Return the learning rate of step 0 … total − 1.

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
    """The rows of each step: consecutive windows of one random permutation of all pairs after another; every batch is full.

    >>> order = Order(pairs=5, batch=4, seed=0)
    >>> sorted(np.concatenate([order(step) for step in range(5)]).tolist()) == sorted([*range(5)] * 4)
    True
    """

    pairs: int
    batch: int
    seed: int

    def __call__(self, step: int) -> Rows:
        """Return the rows of a step: (batch,)."""
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, inside = np.divmod(places, self.pairs)
        rows = [_permutation(self.seed, int(e), self.pairs)[inside[epochs == e]] for e in np.unique(epochs)]
        return np.concatenate(rows)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, pairs: int) -> Rows:
    return generator(seed, "batches", epoch).permutation(pairs)
