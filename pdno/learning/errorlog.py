"""The error on held-out pairs during training: rows {"step", "epoch", "mrle"} of metrics.jsonl.

The error is measured whenever a number of epochs is complete, and after the last step, with the averaged weights. Training does
not depend on it: a measurement changes no weights, and its draws are functions of (seed, pair) as all others are. If the time
of training is limited, measurements in between are skipped that would take more than a twentieth of the time so far.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..data.pairs import Pairs
from ..errors import UserError

__all__ = ["ErrorLog", "check_log"]

SHARE = 0.05  # of the time so far that measurements may take, if time is limited


@dataclass
class ErrorLog:
    """Decides when the error is measured, and measures it.

    Args:
        measure: the MRLE of a network in evaluation mode on held-out pairs.
        every: epochs between two measurements.
        batch: pairs per step.
        pairs: number of training pairs.
        is_limited: whether the time of training is limited.
    """

    measure: Callable[[nn.Module], float]
    every: float
    batch: int
    pairs: int
    is_limited: bool = False
    spent: float = 0.0  # seconds of all measurements
    longest: float = 0.0  # seconds of the longest one

    def is_due(self, step: int, total: int, elapsed: float) -> bool:
        """Return whether to measure after a step.

        Args:
            step: number of steps done.
            total: number of steps planned.
            elapsed: seconds since training began.

        >>> log = ErrorLog(lambda network: 0.0, every=2, batch=4, pairs=10)
        >>> [step for step in range(1, 14) if log.is_due(step, 13, 0.0)]
        [5, 10, 13]
        """
        if step == total:
            return True
        interval = self.every * self.pairs
        is_complete = math.floor(step * self.batch / interval) > math.floor((step - 1) * self.batch / interval)
        return is_complete and not (self.is_limited and self.spent + self.longest > SHARE * elapsed)

    def row(self, network: nn.Module, step: int) -> dict[str, Any]:
        """Measure the error of a network after a step; return the row of the log, with None for an error that is not finite."""
        begin = time.monotonic()
        error = self.measure(network.eval())
        network.train()
        seconds = time.monotonic() - begin
        self.spent, self.longest = self.spent + seconds, max(self.longest, seconds)
        return {"step": step, "epoch": step * self.batch / self.pairs, "mrle": error if math.isfinite(error) else None}


def check_log(epochs: float, held_out: Pairs | None) -> None:
    """Check that the error can be logged.

    Args:
        epochs: between two measurements; 0 for none.
        held_out: pairs to measure it on.

    Raises:
        UserError: if there are none, or the number of epochs is negative or not finite.
    """
    if not (math.isfinite(epochs) and epochs >= 0):
        raise UserError(f"log_error = {epochs}: expected a number of epochs, or 0 for no log of the error")
    if epochs and not held_out:
        raise UserError(
            f"log_error = {epochs:g} logs the error on held-out pairs; got none, pass validation=0.1 (--validation 0.1)"
        )
