"""What a training run leaves in its folder, and how it goes on from there.

    checkpoint.safetensors           weights, moving average, optimiser, step (and .previous, the one before)
    metrics.jsonl                    a row every so many steps, without a clock: the same bytes for the same run
    times.jsonl                      when those rows were written, in seconds of this session

A run that was killed is taken up at its last checkpoint; rows that were written after it are dropped and written again.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from ..errors import UserError
from ..work import checkpoint
from ..work.whole import replacing

__all__ = ["Record", "State", "read_rows", "sessions"]

KIND = "training"


@dataclass
class State:
    """Everything that the next step depends on."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None = None
    step: int = 0
    losses: list[float] = field(default_factory=list)  # since the last row of the log

    @property
    def averaged(self) -> nn.Module:
        """The network with its averaged weights; the network itself if there is no average."""
        return self.network if self.average is None else self.average.module

    def mean_loss(self) -> float:
        """The mean since the last time it was asked for."""
        losses, self.losses = self.losses, []
        return math.fsum(losses) / len(losses)

    def tensors(self) -> dict[str, Tensor]:
        found = {f"network.{name}": v for name, v in self.network.state_dict().items()}
        if self.average is not None:
            found |= {f"ema.{name}": v for name, v in self.average.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            found |= {f"optimizer.{name}.{key}": v for key, v in self.optimizer.state.get(parameter, {}).items()}
        return {name: v.detach().cpu().contiguous().clone() for name, v in found.items()}

    def restore(self, tensors: dict[str, Tensor], step: int, losses: list[float]) -> None:
        """Copy values in place: strides, and with them the order of every sum, stay those of a run that never stopped."""
        self.network.load_state_dict(_below("network", tensors))
        if self.average is not None:
            self.average.load_state_dict(_below("ema", tensors))
        self.optimizer.state.clear()
        for name, parameter in self.network.named_parameters():
            for key, value in _below(f"optimizer.{name}", tensors).items():
                like = parameter if value.shape == parameter.shape else value
                fresh = torch.zeros_like(like, dtype=value.dtype, device=parameter.device)
                self.optimizer.state[parameter][key] = fresh.copy_(value)
        self.step, self.losses = step, losses


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


class Record:
    """The folder of a run; with None as the folder nothing is written, and rows are kept in memory.

    Args:
        folder: of the run, created if need be.
        plan: settings, as plain JSON types, that a run must share to be gone on with.
        writes: whether this process writes; the others of a distributed run only read.
    """

    def __init__(self, folder: Path | None, plan: dict[str, Any], writes: bool = True) -> None:
        self.folder, self.plan, self.writes = folder, json.loads(json.dumps(plan)), writes and folder is not None
        self.rows: list[dict[str, Any]] = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def resume(self, state: State, tell: Callable[[str], None]) -> int | None:
        """Put the state back to the last checkpoint, and return the run's number of steps; None if there is none."""
        if self.folder is None:
            return None
        found = checkpoint.latest(self.folder / "checkpoint.safetensors", KIND, tell)
        if found is None:
            return None
        tensors, metadata = found
        if metadata["plan"] != self.plan:
            changed = ", ".join(sorted(_differences(metadata["plan"], self.plan)))
            raise UserError(f"{self.folder} holds a run with other settings ({changed}); choose another folder for this one")
        try:
            state.restore(tensors, int(metadata["step"]), list(metadata["losses"]))
        except (RuntimeError, KeyError):
            raise UserError(f"the checkpoint in {self.folder} belongs to another network; choose another folder") from None
        self._keep_rows(state.step)
        return int(metadata["total"])

    def checkpoint(self, state: State, total: int) -> None:
        """Write the state; the rows of the log are on the disk before it is."""
        if not self.writes or self.folder is None:
            return
        for name in ("metrics.jsonl", "times.jsonl"):
            if (path := self.folder / name).exists():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
        metadata = {"plan": self.plan, "step": state.step, "total": total, "losses": state.losses}
        checkpoint.save(self.folder / "checkpoint.safetensors", KIND, state.tensors(), metadata, previous=True)

    def add(self, row: dict[str, Any], seconds: float) -> None:
        """Log a row, and when it was."""
        self.rows.append(row)
        if self.writes and self.folder is not None:
            for name, entry in (("metrics.jsonl", row), ("times.jsonl", {"step": row["step"], "seconds": round(seconds, 3)})):
                with (self.folder / name).open("a") as file:
                    file.write(json.dumps(entry) + "\n")

    def _keep_rows(self, step: int) -> None:
        """Drop rows that were logged after the checkpoint."""
        assert self.folder is not None
        for name in ("metrics.jsonl", "times.jsonl"):
            path = self.folder / name
            kept = [row for row in read_rows(path) if row["step"] <= step]
            if name == "metrics.jsonl":
                self.rows = kept
            if self.writes:
                with replacing(path) as partial:
                    partial.write_text("".join(json.dumps(row) + "\n" for row in kept))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line that was cut short is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def sessions(folder: Path) -> list[float]:
    """Seconds of each session of the run in a folder: in times.jsonl they begin anew."""
    times = [float(row["seconds"]) for row in read_rows(folder / "times.jsonl")]
    return [t for i, t in enumerate(times) if i + 1 == len(times) or times[i + 1] < t]


def _differences(a: Any, b: Any, name: str = "") -> set[str]:
    """Dotted names of the settings in which two plans differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        parts = [_differences(a.get(k), b.get(k), f"{name}.{k}" if name else str(k)) for k in {*a, *b}]
        return set().union(*parts)
    return set() if a == b else {name}
