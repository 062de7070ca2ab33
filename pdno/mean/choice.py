"""A mean operator that was chosen, what else was tried, and why: kept in the folder of a run.

A run that is interrupted while its diffusion learns goes on with the same mean: choosing again, by the clock, might choose
another one, and residuals of that would not be those that the diffusion has begun to learn.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import UserError
from ..work import checkpoint
from . import Mean, is_saveable, mean_of

__all__ = ["FILE", "Chosen", "Trial"]

FILE = "mean.safetensors"


@dataclass(frozen=True)
class Trial:
    """A candidate: its error (see `pdno.mean.choose`), how long it took, and what it says of itself or why it was left out."""

    name: str
    error: float | None
    note: str
    seconds: float = field(default=0.0, compare=False)
    taken: bool = False

    def to_json(self) -> dict[str, Any]:
        """What is the same whenever it is tried: all but the time."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}


@dataclass(frozen=True)
class Chosen:
    """The mean operator that was taken, all trials, and the reason in plain words."""

    mean: Mean
    trials: tuple[Trial, ...]
    why: str
    exact: bool = False

    def keep(self, folder: Path, plan: Mapping[str, Any]) -> None:
        """Write it into the folder of a run with this plan; own code cannot be written, and is chosen anew."""
        if not is_saveable(self.mean):
            return
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: torch.from_numpy(np.array(values, order="C")) for name, values in self.mean.arrays().items()}
        told = {"trials": [asdict(trial) for trial in self.trials], "why": self.why, "exact": self.exact}
        mean = {"name": self.mean.name, **self.mean.settings()}
        checkpoint.save(folder / FILE, "mean", tensors, {"plan": _plain(plan), "mean": mean, **told})

    @classmethod
    def kept(cls, folder: Path, plan: Mapping[str, Any]) -> "Chosen | None":
        """The one of a run with the same plan; None if there is none, or it cannot be read."""
        try:
            tensors, told = checkpoint.load(folder / FILE, "mean")
        except UserError:
            return None
        if told["plan"] != _plain(plan):
            return None
        mean = mean_of(told["mean"]).restore({name: values.numpy() for name, values in tensors.items()})
        return cls(mean, tuple(Trial(**trial) for trial in told["trials"]), told["why"], told["exact"])


def _plain(plan: Mapping[str, Any]) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(plan, default=str))
