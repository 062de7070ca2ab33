"""Model files: other and damaged files are refused, and nothing in them is executed."""

import io
import json
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
from pdno import Training, UserError
from pdno.mean import Kernel, Linear
from pdno.residual import Gaussian
from pdno.work import checkpoint
from tests.helpers import small


@pytest.fixture
def saved(model, tmp_path) -> Path:
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


class Evil:
    """An object that creates a file when it is unpickled."""

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
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-7]), "it is truncated"),
    "flipped": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x07"), "not those that were written"),
    "npz": (lambda path: path.write_bytes(npz()), "is not a checkpoint of pdno"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps(Evil(path.with_name("canary")))), "is not a checkpoint of pdno"),
    "torch": (lambda path: torch.save({"w": torch.ones(2)}, path), "is not a checkpoint of pdno"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "is not the folder of a run"),
    "nothing": (lambda path: path.unlink(), "does not exist"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_files_are_refused_and_not_executed(kind, saved) -> None:
    make, words = FOREIGN[kind]
    make(saved)
    with pytest.raises(UserError, match=words) as error:
        pdno.load(saved)
    assert str(saved) in str(error.value)
    assert not saved.with_name("canary").exists()


def test_a_newer_version_is_distinguished_from_a_damaged_file(model, tmp_path, monkeypatch) -> None:
    version = checkpoint.VERSION
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", version + 1)
        model.save(tmp_path / "new.safetensors")
    with pytest.raises(UserError, match=f"has format version {version + 1}, this version reads {version}; update pdno"):
        pdno.load(tmp_path / "new.safetensors")


def test_a_checkpoint_of_training_is_not_a_model(data, tmp_path) -> None:
    small().fit(*data, run=tmp_path / "run")
    with pytest.raises(UserError, match="holds a 'training', expected a 'model'"):
        pdno.load(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(UserError, match=r"is not the folder of a run; there is no model\.safetensors in it"):
        pdno.load(tmp_path / "run")


Metadata = dict[str, Any]


def forged(saved: Path, change: Callable[[dict[str, Tensor], Metadata], object]) -> Path:
    """Change something in the model's file, and seal it again."""
    tensors, metadata = checkpoint.load(saved, "model")
    change(tensors, metadata)
    checkpoint.save(saved, "model", tensors, metadata)
    return saved


def part(metadata: Metadata, path: str) -> Metadata:
    """Return a part of the tree, such as "law.residual"."""
    for name in path.split("."):
        metadata = metadata["parts"][name]
    return metadata


def network(metadata: Metadata) -> Metadata:
    """Return the settings of the network of the diffusion."""
    return part(metadata, "law.residual.network")["settings"]["network"]


def residual(metadata: Metadata) -> Metadata:
    """Return the settings of the residual law."""
    return part(metadata, "law.residual")["settings"]


@pytest.mark.parametrize(
    "change",
    [
        lambda t, m: network(m).update(base=10**6),
        lambda t, m: network(m).update(base=8 * 10**9),
        lambda t, m: network(m).update(multipliers=[1] * 10),
        lambda t, m: network(m).update(in_channels=10**9),
        lambda t, m: part(m, "law.residual.network")["settings"].update(
            network={"kind": "fno", "dim": 1, "modes": 10**6, "width": 10**4}
        ),
    ],
)
def test_an_absurd_network_is_refused_before_memory_is_allocated(change, saved) -> None:
    begin = time.monotonic()
    with pytest.raises(
        UserError,
        match=r"do not fit the network that the file describes|a network that does not exist: Storage size .* overflowed",
    ):
        pdno.load(forged(saved, change))
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    "change",
    [
        lambda t, m: m["settings"].update(model="gan"),
        lambda t, m: m["settings"].pop("model"),
        lambda t, m: m["settings"].update(surprise=1),
        lambda t, m: m["settings"].update(law=4),
        lambda t, m: m["settings"].pop("diffusion"),
        lambda t, m: m["settings"].update(reverse={"sampler": "os.system"}),
        lambda t, m: m["parts"].pop("law"),
        lambda t, m: part(m, "law")["parts"].pop("spaces"),
        lambda t, m: part(m, "law")["parts"].pop("mean"),
        lambda t, m: part(m, "law.mean")["settings"].update(name="os.system"),
        lambda t, m: part(m, "law.mean")["settings"].pop("name"),
        lambda t, m: part(m, "law.spaces")["settings"].pop("u_shape"),
        lambda t, m: part(m, "law.spaces")["settings"].update(surprise=1),
        lambda t, m: part(m, "law.residual.network.spaces")["settings"].pop("u_shape"),
        lambda t, m: residual(m).update(name="os.system"),
        lambda t, m: residual(m).pop("diffusion"),
        lambda t, m: residual(m)["diffusion"].update(gamma=[1.0, 2.0]),
        lambda t, m: residual(m)["diffusion"].update(gamma=["x"]),
        lambda t, m: residual(m)["diffusion"].update(base=[{"law": "os.system"}]),
        lambda t, m: residual(m).update(reverse={"sampler": "os.system"}),
        lambda t, m: part(m, "law.residual.network")["settings"].update(network={"kind": "os.system"}),
        lambda t, m: part(m, "law.residual.network")["settings"].update(network=3),
        lambda t, m: part(m, "law.residual.spread.scale")["settings"].update(kind="pixel"),
        lambda t, m: t.pop("law.residual.network.normalisations.u.mean"),
        lambda t, m: t.pop("law.mean.normalisation.mean"),
        lambda t, m: [t.pop(name) for name in list(t) if name.startswith("law.residual.network.normalisations.a")],
        lambda t, m: t.pop("law.residual.error"),
        lambda t, m: t.pop("law.fingerprints"),
        lambda t, m: t.pop(next(name for name in t if "weights" in name)),
    ],
)
def test_a_file_that_does_not_describe_a_model_is_refused(change, saved) -> None:
    with pytest.raises(UserError, match=r"model\.safetensors"):
        pdno.load(forged(saved, change))


def test_a_sealed_copy_is_the_same_model(saved, model, data) -> None:
    """Forging itself changes nothing."""
    again = pdno.load(forged(saved, lambda t, m: None))
    np.testing.assert_array_equal(again.sample(data[0][:2]), model.sample(data[0][:2]))
    assert again.settings() == model.settings()


# Settings


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mean": "linear", "law": "gaussian", "residual_scale": "point"},
        {"mean": {"name": "kernel", "kernel": "rq"}, "network": "zero"},
        {"mean": "none", "variance": "mixed", "mix": 0.25, "steps": 4, "spacing": "quadratic", "sampler": "heun"},
        {"normalise": ("scalar", "pointwise"), "t_start": 2, "last_noise": False},
        {"symmetries": "reflection", "kind": "periodic"},
        {"kind": ["vertex"], "budget": 60.0},
        {"mean": {"name": "sum", "parts": [Linear(), "kernel"]}, "law": "gaussian"},
        {"mean": Kernel("rq"), "law": Gaussian("point")},
        {"mean": "linear", "training": Training(updates=np.int64(2), batch=4), "steps": np.int64(3)},
    ],
    ids=lambda settings: ",".join(settings) or "default",
)
def test_settings_are_restored(settings, data, tmp_path) -> None:
    model = small(**settings).fit(*data, progress=False)
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors")
    assert again.settings() == model.settings() == json.loads(json.dumps(model.settings()))
    np.testing.assert_array_equal(again.sample(data[0][:2], 3), model.sample(data[0][:2], 3))
    assert (again.method, again.parameters, again.evaluations()) == (model.method, model.parameters, model.evaluations())


def test_a_loaded_model_can_be_fitted_again(data, tmp_path) -> None:
    model = small().fit(*data, progress=False)
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors").fit(*data, progress=False)
    np.testing.assert_array_equal(again.sample(data[0][:2], 3), model.sample(data[0][:2], 3))


def test_annotations_are_saved(data, tmp_path) -> None:
    model = small().fit(*data, progress=False)
    model.annotate(source="mine.npz")
    model.save(tmp_path / "m.safetensors")
    assert pdno.load(tmp_path / "m.safetensors").provenance == {**model.provenance, "source": "mine.npz"}


@pytest.mark.parametrize("attention", ["middle", "none"])
def test_a_network_without_attention_is_restored(attention, tmp_path) -> None:
    data = pdno.generate(pdno.equation.Elliptic1D(points=16), train=20)
    network = {"kind": "unet", "base": 8, "attention": attention}
    model = pdno.PDNO(network, mean=None, variance="gaussian", steps=2, training=Training(updates=1))
    model.fit(data.train.a, data.train.u, seed=0).save(tmp_path / "model.safetensors")
    restored = pdno.load(tmp_path / "model.safetensors")
    assert restored.parameters == model.parameters
    assert np.array_equal(*(each.sample(data.train.a[:2], members=2, seed=0) for each in (model, restored)))
