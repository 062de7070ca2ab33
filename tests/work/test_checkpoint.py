"""Checkpoints: what is saved is loaded again, and the same content makes the same bytes."""

import json
import os
import subprocess
import sys
from hashlib import sha256

import pytest
import torch

from pdno import UserError
from pdno.work import checkpoint
from pdno.work.checkpoint import load, save
from tests.work.checkpoints import names, resumed_step, save_step

TENSORS = {
    "float32": torch.linspace(-1, 1, 24).reshape(2, 3, 4),
    "float64": torch.tensor([0.1, float("nan"), float("inf")], dtype=torch.float64),
    "int64": torch.tensor([-(2**62), 3]),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(2.5),
    "step": torch.tensor(7),
    "empty": torch.zeros(0, 3),
    "bfloat16 ü": torch.ones(3, dtype=torch.bfloat16),
}
METADATA = {
    "step": 7,
    "lr": 1e-05,
    "name": "Köln\n\"'\\",
    "none": None,
    "levels": [0.05, 0.95],
    "nested": {"b": 1, "a": "0" * 64},
}


def test_round_trip(path) -> None:
    save(path, "model", TENSORS, METADATA)
    tensors, metadata = load(path, "model")
    assert metadata == METADATA
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert torch.equal(tensors[name].nan_to_num(), tensor.nan_to_num())
    tensors["float32"] += 1  # they are writable
    assert names(path) == {""}


def test_tensors_of_all_makes(path) -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    makes = {
        "tied": weight,
        "tied again": weight,
        "view": weight[1:],
        "transposed": weight.T,
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(weight),
    }
    save(path, "model", makes, {})
    tensors, _ = load(path, "model")
    for name, tensor in makes.items():
        assert torch.equal(tensors[name], tensor)


def test_a_checkpoint_may_be_empty(path) -> None:
    save(path, "model", {}, {})
    assert load(path, "model") == ({}, {})


def test_the_same_content_makes_the_same_bytes(path) -> None:
    save(path, "model", TENSORS, METADATA)
    first = path.read_bytes()
    turned = dict(reversed(METADATA.items()))
    turned["nested"] = dict(reversed(METADATA["nested"].items()))
    save(path, "model", dict(reversed(TENSORS.items())), turned)
    assert path.read_bytes() == first
    code = (
        "import sys; from pathlib import Path; from pdno.work.checkpoint import *; "
        "tensors, metadata = load(Path(sys.argv[1]), 'model'); save(Path(sys.argv[1]), 'model', tensors, metadata)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, env={**os.environ, "PYTHONHASHSEED": "5"})
    assert path.read_bytes() == first


def test_the_digest_is_that_of_the_file_with_zeros_for_it(path) -> None:
    save(path, "model", TENSORS, METADATA)
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"].keys() == {"pdno"}
    envelope = json.loads(header["__metadata__"]["pdno"])
    assert envelope["version"] == checkpoint.VERSION == 2
    digest = envelope["sha256"].encode()
    assert data.count(digest) == 1
    assert sha256(data.replace(digest, b"0" * 64)).hexdigest().encode() == digest


def test_the_previous_one_is_kept_on_demand(path, told) -> None:
    save_step(path, 1, previous=False)
    save_step(path, 2, previous=False)
    assert names(path) == {""}
    save_step(path, 3)
    save_step(path, 4)
    assert names(path) == {"", ".previous"}
    assert resumed_step(path, told) == 4
    assert load(path.with_name(path.name + ".previous"), "state")[1] == {"step": 3}


def test_metadata_that_json_cannot_hold(path) -> None:
    save_step(path, 1)
    with pytest.raises(TypeError):
        save(path, "state", {}, {"x": torch.zeros(2)})
    assert names(path) == {""}


def test_what_could_not_be_read_is_not_written(path) -> None:
    save_step(path, 1)
    with pytest.raises(UserError, match="put long metadata into a tensor"):
        save(path, "state", {}, {"x": "x" * checkpoint.HEADER_BYTES})
    assert load(path, "state")[1] == {"step": 1}
    assert names(path) == {""}
