"""Checkpoints of numbered steps that several tests save, load and refuse."""

from pathlib import Path

import pytest
import torch

from pdno import UserError
from pdno.work.checkpoint import latest, load, save


def step(number: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((300,), float(number)), "v": torch.full((7,), number)}


def save_step(path: Path, number: int, previous: bool = True) -> None:
    save(path, "state", step(number), {"step": number}, previous)


def resumed_step(path: Path, told: list[str]) -> int:
    """Return the step of the checkpoint that `latest` reads, whose tensors must be those of that step."""
    content = latest(path, "state", told.append)
    assert content is not None
    tensors, metadata = content
    for name, tensor in step(metadata["step"]).items():
        assert torch.equal(tensors[name], tensor)
    return int(metadata["step"])


def names(path: Path) -> set[str]:
    """Return the names in the folder; in those that begin with the file's own name, what follows it."""
    return {entry.name.removeprefix(path.name) for entry in path.parent.iterdir()}


def refusal(path: Path, kind: str = "state") -> str:
    with pytest.raises(UserError) as caught:
        load(path, kind)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)
