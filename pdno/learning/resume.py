"""Files of a training run, and how an interrupted run is resumed from them.

    checkpoint.safetensors           weights, moving average, optimiser, step, with patience also validation losses and best
                                     weights (and .previous, the checkpoint before it)
    metrics.jsonl                    a row every `log_every` steps, without times: the same bytes for the same run
    times.jsonl                      when those rows were written, in seconds of this session

A run that was killed resumes from its last checkpoint; rows that were logged after it are dropped and written again.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from ..errors import UserError
from ..work import checkpoint
from ..work.files import replacing
from ..work.folder import RunFolder

__all__ = ["Record", "TrainingState", "read_rows", "session_seconds"]

KIND = "training"


@dataclass
class TrainingState:
    """Everything that the next step depends on."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None = None
    step: int = 0
    losses: list[float] = field(default_factory=list)  # since the last row of the log
    best: dict[str, Tensor] = field(default_factory=dict)  # averaged weights of the lowest validation loss
    validated: list[float] = field(default_factory=list)  # validation losses

    @property
    def averaged(self) -> nn.Module:
        """The network with its averaged weights; the network itself if there is no average."""
        return self.network if self.average is None else self.average.module

    def mean_loss(self) -> float:
        """Return the mean loss since the last call."""
        losses, self.losses = self.losses, []
        return math.fsum(losses) / len(losses)

    def add_validation(self, loss: float) -> None:
        """Record a validation loss; keep a copy of the averaged weights if it is the lowest."""
        loss = loss if math.isfinite(loss) else math.inf
        if math.isfinite(loss) and loss < min(self.validated, default=math.inf):
            self.best = {name: v.detach().clone() for name, v in self.averaged.state_dict().items()}
        self.validated.append(loss)

    def validations_since_best(self) -> int:
        """Return the number of validations after that of the lowest loss."""
        return len(self.validated) - 1 - self.validated.index(min(self.validated)) if self.validated else 0

    def take_best(self) -> None:
        """Replace the averaged weights by those of the lowest validation loss."""
        if self.best:
            self.averaged.load_state_dict(self.best)

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of all tensors by name, on the CPU."""
        named = {f"network.{name}": v for name, v in self.network.state_dict().items()}
        if self.average is not None:
            named |= {f"ema.{name}": v for name, v in self.average.state_dict().items()}
        named |= {f"best.{name}": v for name, v in self.best.items()}
        for name, parameter in self.network.named_parameters():
            named |= {f"optimizer.{name}.{key}": v for key, v in self.optimizer.state.get(parameter, {}).items()}
        return {name: v.detach().cpu().contiguous().clone() for name, v in named.items()}

    def restore(self, tensors: dict[str, Tensor], step: int, losses: list[float], validated: Sequence[float] = ()) -> None:
        """Copy values in place: strides, and with them the order of every sum, stay those of an uninterrupted run."""
        self.network.load_state_dict(_below("network", tensors))
        if self.average is not None:
            self.average.load_state_dict(_below("ema", tensors))
        self.optimizer.state.clear()
        for name, parameter in self.network.named_parameters():
            for key, value in _below(f"optimizer.{name}", tensors).items():
                like = parameter if value.shape == parameter.shape else value
                fresh = torch.zeros_like(like, dtype=value.dtype, device=parameter.device)
                self.optimizer.state[parameter][key] = fresh.copy_(value)
        weights = self.averaged.state_dict()
        self.best = {name: value.to(weights[name].device) for name, value in _below("best", tensors).items()}
        self.step, self.losses, self.validated = step, losses, list(validated)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


class Record:
    """Checkpoints and logs of a run; with None as the folder nothing is written, and rows are kept in memory.

    Args:
        folder: of the run, created if necessary.
        plan: settings, as plain JSON types, that must equal those of a run to be resumed.
        writes: whether this process writes; the other processes of a distributed run only read.
    """

    def __init__(self, folder: Path | None, plan: dict[str, Any], writes: bool = True) -> None:
        self.files = None if folder is None else RunFolder(folder)
        self.plan, self.writes = json.loads(json.dumps(plan)), writes
        self.rows: list[dict[str, Any]] = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def resume(self, state: TrainingState, warn: Callable[[str], None]) -> int | None:
        """Restore the state from the last checkpoint.

        Returns:
            The number of steps of the run; None if there is no checkpoint.

        Raises:
            UserError: if the checkpoint belongs to a run with other settings or to another network.
        """
        if self.files is None:
            return None
        latest = checkpoint.latest(self.files.checkpoint, KIND, warn)
        if latest is None:
            return None
        tensors, metadata = latest
        folder = self.files.path
        if metadata["plan"] != self.plan:
            changed = ", ".join(sorted(_differences(metadata["plan"], self.plan)))
            raise UserError(f"{folder} holds a run with other settings ({changed}); choose another folder for this one")
        try:
            state.restore(tensors, int(metadata["step"]), list(metadata["losses"]), metadata.get("validated", ()))
        except (RuntimeError, KeyError):
            raise UserError(f"the checkpoint in {folder} belongs to another network; choose another folder") from None
        self._drop_rows_after(state.step, self.files)
        return int(metadata["total"])

    def checkpoint(self, state: TrainingState, total: int) -> None:
        """Write the state; the rows of the log reach the disk first."""
        if not self.writes or self.files is None:
            return
        for path in (self.files.metrics, self.files.times):
            if path.exists():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        metadata = {"plan": self.plan, "step": state.step, "total": total, "losses": state.losses}
        metadata["validated"] = state.validated
        checkpoint.save(self.files.checkpoint, KIND, state.tensors(), metadata, previous=True)

    def add(self, row: dict[str, Any], seconds: float) -> None:
        """Log a row, and the time at which it was logged."""
        self.rows.append(row)
        if self.writes and self.files is not None:
            entries = ((self.files.metrics, row), (self.files.times, {"step": row["step"], "seconds": round(seconds, 3)}))
            for path, entry in entries:
                with path.open("a") as file:
                    file.write(json.dumps(entry) + "\n")

    def _drop_rows_after(self, step: int, files: RunFolder) -> None:
        """Drop rows that were logged after the checkpoint."""
        for path in (files.metrics, files.times):
            kept = [row for row in read_rows(path) if row["step"] <= step]
            if path == files.metrics:
                self.rows = kept
            if self.writes:
                with replacing(path) as partial:
                    partial.write_text("".join(json.dumps(row) + "\n" for row in kept))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a log; a last line that was cut short is ignored."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def session_seconds(folder: Path) -> list[float]:
    """Return the duration of each session of a run, in seconds: the times in times.jsonl restart with each session."""
    times = [float(row["seconds"]) for row in read_rows(RunFolder(folder).times)]
    return [t for i, t in enumerate(times) if i + 1 == len(times) or times[i + 1] < t]


def _differences(a: Any, b: Any, name: str = "") -> set[str]:
    """Return the dotted names of the settings in which two plans differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        parts = [_differences(a.get(k), b.get(k), f"{name}.{k}" if name else str(k)) for k in {*a, *b}]
        return set().union(*parts)
    return set() if a == b else {name}
