"""Models in files: what comes back, and what is refused without being run."""

import io
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pdno
from pdno import UserError
from pdno.work import checkpoint
from tests.helpers import small


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


class Evil:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.canary,))


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.ones(3))
    return file.getvalue()


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "it is empty"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-7]), "it is cut off"),
    "flipped": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"), "not those that were written"),
    "npz": (lambda path: path.write_bytes(npz()), "is not a checkpoint of pdno"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(Evil(path.with_name("canary")))), "is not a checkpoint of pdno"),
    "torch": (lambda path: torch.save({"w": torch.ones(2)}, path), "is not a checkpoint of pdno"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "is not the folder of a run"),
    "nothing": (lambda path: path.unlink(), "does not exist"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_a_model_is_refused_and_nothing_is_run(kind, saved) -> None:
    make, words = FOREIGN[kind]
    make(saved)
    with pytest.raises(UserError, match=words) as error:
        pdno.load(saved)
    assert str(saved) in str(error.value)
    assert not saved.with_name("canary").exists()


def test_a_newer_version_is_told_from_a_damaged_file(model, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 2)
        model.save(tmp_path / "new.safetensors")
    with pytest.raises(UserError, match="has format version 2, this version reads 1; update pdno"):
        pdno.load(tmp_path / "new.safetensors")


def test_a_checkpoint_of_training_is_not_a_model(data, tmp_path) -> None:
    small().fit(*data, run=tmp_path / "run")
    with pytest.raises(UserError, match="holds a 'training', expected a 'model'"):
        pdno.load(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(UserError, match=r"is not the folder of a run; there is no model\.safetensors in it"):
        pdno.load(tmp_path / "run")


def forged(saved: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], object]) -> Path:
    """The model's file with something changed, and sealed again."""
    tensors, metadata = checkpoint.load(saved, "model")
    change(tensors, metadata)
    checkpoint.save(saved, "model", tensors, metadata)
    return saved


@pytest.mark.parametrize(
    "change",
    [
        lambda t, m: m["network"].update(base=10**6),
        lambda t, m: m["network"].update(base=8 * 10**9),
        lambda t, m: m["network"].update(multipliers=[1] * 10),
        lambda t, m: m["network"].update(in_channels=10**9),
        lambda t, m: m.update(network={"kind": "fno", "dim": 1, "modes": 10**6, "width": 10**4}),
    ],
)
def test_an_absurd_network_is_refused_before_memory_is_taken(change, saved) -> None:
    begin = time.monotonic()
    with pytest.raises(
        UserError, match=r"do not fit the network that it describes|a network that does not exist: Storage size .* overflowed"
    ):
        pdno.load(forged(saved, change))
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    "change",
    [
        lambda t, m: m.update(model="gan"),
        lambda t, m: m.pop("frame"),
        lambda t, m: m["frame"].pop("u_shape"),
        lambda t, m: m["frame"].update(surprise=1),
        lambda t, m: m.pop("diffusion"),
        lambda t, m: m["diffusion"].update(gamma=[1.0, 2.0]),
        lambda t, m: m["diffusion"].update(gamma=["x"]),
        lambda t, m: m["diffusion"].update(base=[{"law": "os.system"}]),
        lambda t, m: m.update(network={"kind": "os.system"}),
        lambda t, m: m.update(network=3),
        lambda t, m: m.update(reverse={"sampler": "os.system"}),
        lambda t, m: t.pop("scaling.u.mean"),
        lambda t, m: [t.pop(name) for name in list(t) if name.startswith("scaling.a")],
        lambda t, m: t.pop("model.error"),
        lambda t, m: t.pop(next(iter(t))),
    ],
)
def test_a_file_that_does_not_describe_a_model_is_refused(change, saved) -> None:
    with pytest.raises(UserError, match=r"model\.safetensors"):
        pdno.load(forged(saved, change))
