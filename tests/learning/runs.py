"""A linear network on ten pairs, which trains within milliseconds."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pdno.learning.loop import Trained, train
from pdno.learning.settings import Training
from pdno.work import checkpoint
from pdno.work.engine import fabric

PAIRS, INPUTS = 10, 3
OWN = ("folder", "plan", "budget", "validate", "errors", "seed", "warn")  # arguments of `train`
X, Y = torch.randn(2, PAIRS, INPUTS, generator=torch.Generator().manual_seed(0))


def linear() -> nn.Linear:
    """Return an untrained network, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(INPUTS, INPUTS)


def squares(network: Any, rows: Any, first: int, step: int) -> Tensor:
    """Return the mean squared error of some rows."""
    return ((network(X[rows]) - Y[rows]) ** 2).mean()


def fitted(objective=squares, precision: str = "32-true", network: nn.Module | None = None, **options: Any) -> Trained:
    """Train a linear network for a few steps; options that are not arguments of `train` are settings."""
    own = {name: options.pop(name) for name in OWN if name in options}
    settings = Training(**{"updates": 12, "batch": 4, "rate": 0.05, "log_every": 4, **options})
    return train(network or linear(), objective, PAIRS, settings, fabric("cpu", precision=precision), **own)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks have bitwise the same weights."""
    a, b = one.state_dict(), other.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the log."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def reproducible(folder: Path) -> tuple[bytes, bytes]:
    """Return the bytes that two runs must share."""
    return (folder / "checkpoint.safetensors").read_bytes(), (folder / "metrics.jsonl").read_bytes()


def saved_step(folder: Path) -> int:
    """Return the step of the last checkpoint."""
    return int(checkpoint.load(folder / "checkpoint.safetensors", "training")[1]["step"])
