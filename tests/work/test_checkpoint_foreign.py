"""Files that are no checkpoints of this kind or version, pickles and forgeries: refused, and never run."""

import json
import os
import pickle
import random
import struct
import tracemalloc
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pdno import UserError
from pdno.work import checkpoint
from pdno.work.checkpoint import latest, load
from tests.work.checkpoints import names, refusal, resumed_step, save_step


def test_another_kind_is_refused_not_renamed(path, told) -> None:
    save_step(path, 1)
    save_step(path, 2)
    assert "holds a 'state', expected a 'model'" in refusal(path, "model")
    with pytest.raises(UserError, match="expected a 'model'"):
        latest(path, "model", told.append)
    assert names(path) == {"", ".previous"}
    assert told == []


def test_a_newer_version_is_refused_not_renamed(path, told, monkeypatch) -> None:
    save_step(path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 7)
        save_step(path, 2)
        assert resumed_step(path, told) == 2
    assert refusal(path).endswith("has format version 7, this version reads 2; update pdno")
    with pytest.raises(UserError, match="update pdno"):
        latest(path, "state", told.append)
    assert names(path) == {"", ".previous"}
    assert told == []


def test_an_older_version_is_refused_by_name_not_renamed(path, told, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 1)
        save_step(path, 1)
    assert "format version 1, written by an earlier development version of pdno" in refusal(path)
    assert refusal(path).endswith("train it again, into a new folder")
    with pytest.raises(UserError, match="earlier development version"):
        latest(path, "state", told.append)
    assert names(path) == {""}
    assert told == []


class Canary:
    """Unpickling it creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("make", ["pickle", "torch", "old torch"])
def test_a_pickle_is_not_run(path, told, make) -> None:
    canary = Canary(path.parent / "canary")
    if make == "pickle":
        path.write_bytes(pickle.dumps(canary, 0))
    else:
        torch.save({"w": canary}, path, _use_new_zipfile_serialization=make == "torch")
    assert "not a checkpoint of pdno" in refusal(path)
    with pytest.raises(UserError):
        latest(path, "state", told.append)
    assert not Path(canary.path).exists()
    path.write_bytes(path.with_name(path.name + ".damaged").read_bytes())
    if make == "pickle":
        pickle.loads(path.read_bytes())
        assert Path(canary.path).exists()  # it was alive


def test_safetensors_of_others(path) -> None:
    for metadata in (None, {"format": "pt"}, {"pdno": "text"}, {"pdno": "[1]"}, {"pdno": '{"version": 1}'}):
        save_file({"w": torch.zeros(3)}, path, metadata)
        assert "not a checkpoint of pdno" in refusal(path)


def test_random_bytes(path) -> None:
    numbers = random.Random(2)
    for size in (1, 8, 9, 50, 5000):
        path.write_bytes(numbers.randbytes(size))
        assert "not a checkpoint of pdno" in refusal(path)


def sealed(header: dict[str, object], data: bytes = b"", **changes: object) -> bytes:
    """Return a file with a correct digest and any header."""
    envelope = {"sha256": "0" * 64, "version": checkpoint.VERSION, "kind": "state", "metadata": {}} | changes
    text = json.dumps({"__metadata__": {"pdno": json.dumps(envelope)}, **header}).encode()
    file = struct.pack("<Q", len(text)) + text + data
    return file.replace(b"0" * 64, sha256(file).hexdigest().encode(), 1)


def test_the_forger_of_these_tests_makes_valid_files(path) -> None:
    path.write_bytes(sealed({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)))
    assert torch.equal(load(path, "state")[0]["w"], torch.zeros(2))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 1e400]},
        {"dtype": "F32", "shape": [2], "data_offsets": []},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"dtype": "F8_E8M0", "shape": [8], "data_offsets": [0, 8]},
        {"dtype": "os.system", "shape": [2], "data_offsets": [0, 8]},
        {},
        None,
    ],
)
def test_forged_headers(path, entry) -> None:
    path.write_bytes(sealed({"w": entry}, bytes(8)))
    tracemalloc.start()
    refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_an_empty_tensor_of_a_size_that_torch_cannot_have(path) -> None:
    path.write_bytes(sealed({"w": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}))
    assert "not described correctly" in refusal(path)


@pytest.mark.parametrize(
    "changes", [{"version": "2"}, {"version": True}, {"kind": 3}, {"metadata": []}, {"sha256": None}, {"sha256": "\ud800" * 64}]
)
def test_forged_envelopes(path, changes) -> None:
    path.write_bytes(sealed({}, **changes))
    assert path.name in refusal(path)


def test_forged_texts_are_not_printed_raw(path) -> None:
    path.write_bytes(sealed({}, kind="\x1b[31m\n" + "x" * 10_000))
    assert len(refusal(path)) < 500
    assert "\x1b" not in refusal(path)


def test_headers_that_are_too_large_or_too_deep(path) -> None:
    for declared, text in ((2**63, b"{"), (20_000_000, b"{" + b" " * 20_000_000), (200_000, b'{"a":' + b"[" * 199_995)):
        path.write_bytes(struct.pack("<Q", declared) + text)
        tracemalloc.start()
        assert "not a checkpoint of pdno" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
        tracemalloc.stop()


def test_a_long_file_is_not_read_before_its_header_is(path) -> None:
    """A terabyte that needs no space on the disk."""
    path.write_bytes(sealed({}))
    os.truncate(path, 2**40)
    assert "too long" in refusal(path)
