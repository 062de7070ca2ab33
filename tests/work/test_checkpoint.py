"""Checkpoints: after a kill, truncation, flipped bits, forgery or a full disk, a valid file is left or a clear error."""

import errno
import json
import os
import pickle
import random
import re
import signal
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pdno import UserError
from pdno.work import checkpoint, files
from pdno.work.checkpoint import latest, load, save
from pdno.work.files import partial_path

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


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state.safetensors"


@pytest.fixture
def told() -> list[str]:
    return []


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


# Content


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


# Crashes while writing

LOOP = """
import sys, torch
from pathlib import Path
from pdno.work.checkpoint import save
path, number = Path(sys.argv[1]), int(sys.argv[2])
while True:
    number += 1
    save(path, "state", {"w": torch.full((300,), float(number)), "v": torch.full((7,), number)}, {"step": number}, True)
    print(number, flush=True)
"""


def test_killed_at_any_moment(path, told) -> None:
    save_step(path, 0)
    moments, done = random.Random(0), 0
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", LOOP, path, str(done)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(moments.uniform(0, 0.05))
        writer.send_signal(signal.SIGKILL)
        reported = [int(line) for line in writer.stdout]
        writer.wait()
        writer.stdout.close()
        left = resumed_step(path, told)
        assert left >= max(reported, default=done + 1)
        done = left
    assert told == []
    save_step(path, done + 1)
    assert names(path) == {"", ".previous"}


class Crash(BaseException):
    """Nothing that any handler expects."""


CALLS = ("open", "fsync", "replace", "replace", "open", "fsync")  # of os by a save with a previous file, in order
REPLACED = (CALLS.index("replace") + 1, True)  # the call after which the new file has its name


def crash_at(monkeypatch, number: int, error: BaseException, after: bool) -> list[str]:
    """Raise at the call with this number of those in CALLS, before or after it has its effect.

    Returns:
        The list to which the names of the calls are appended.
    """
    made: list[str] = []

    def breaking(name: str) -> Callable[..., object]:
        original = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            made.append(name)
            if len(made) == number + 1 and not after:
                raise error
            result = original(*arguments, **options)
            if len(made) == number + 1:
                raise error
            return result

        return call

    for name in set(CALLS):
        monkeypatch.setattr(files.os, name, breaking(name))
    return made


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("cleanup", [True, False])
def test_a_crash_between_any_two_steps(path, told, monkeypatch, number, after, cleanup) -> None:
    save_step(path, 1)
    save_step(path, 2)
    with monkeypatch.context() as patch:
        made = crash_at(patch, number, Crash(), after)
        if not cleanup:  # a process that is killed does not clean up
            patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Crash):
            save_step(path, 3)
        assert tuple(made) == CALLS[: number + 1]
    assert resumed_step(path, told) == (3 if (number, after) >= REPLACED else 2)
    assert told == []
    assert partial_path(path).exists() == (not cleanup and (number, after) < REPLACED)
    save_step(path, 4)
    assert resumed_step(path, told) == 4
    assert names(path) == {"", ".previous"}


def test_a_partial_file_of_a_killed_writer_is_not_a_checkpoint(path, told) -> None:
    save_step(path, 1)
    path.rename(partial_path(path))
    assert latest(path, "state", told.append) is None
    save_step(path, 2)
    assert names(path) == {""}


class FullDisk:
    """A file on a disk with room for some bytes only."""

    def __init__(self, path: Path, mode: str, room: int) -> None:
        self.file, self.room = path.open(mode), room

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def writelines(self, parts) -> None:
        data = b"".join(parts)
        assert self.file.write(data[: self.room]) < len(data)
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("room", [0, 100, 1000])
def test_a_full_disk(path, told, monkeypatch, room) -> None:
    save_step(path, 1)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "open", lambda path, mode: FullDisk(path, mode, room), raising=False)
        with pytest.raises(OSError, match="No space left"):
            save_step(path, 2)
    assert path.read_bytes() == before
    assert names(path) == {""}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_read_only_folder(path, monkeypatch, code) -> None:
    save_step(path, 1)
    before = path.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "open", refuse, raising=False)
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            save_step(path, 2)
    assert caught.value.__context__ is None  # the first failure, not that of the clean-up
    assert path.read_bytes() == before
    assert names(path) == {""}


def test_a_missing_folder(path) -> None:
    with pytest.raises(FileNotFoundError):
        save_step(path.parent / "missing" / path.name, 1)


# Damage


def flips(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (byte, bit) anywhere in the file, half of them in its first 300 bytes, which matter most."""
    numbers = random.Random(1)
    for i in range(count):
        yield numbers.randrange(size if i % 2 else 300), 1 << numbers.randrange(8)


def test_flipped_bits_are_noticed(tmp_path, told) -> None:
    (tmp_path / "original").mkdir()
    original = tmp_path / "original" / "state"
    save_step(original, 1)
    save_step(original, 2)
    good = original.read_bytes()
    assert good.index(b"version") < 300
    for i, (place, bit) in enumerate(flips(len(good), 200)):
        bad = bytearray(good)
        bad[place] ^= bit
        path = tmp_path / str(i)
        path.write_bytes(bad)
        os.link(original.with_name("state.previous"), tmp_path / f"{i}.previous")
        refusal(path)
        assert resumed_step(path, told) == 1
        assert len(told) == i + 1
        assert (tmp_path / f"{i}.damaged").read_bytes() == bad


def test_a_flipped_version_or_kind_is_damage_not_another_version(path) -> None:
    save_step(path, 1)
    good = path.read_bytes()
    for old, new in ((rb"version\":2", rb"version\":9"), (rb"kind\":\"state", rb"kind\":\"stats"), (b"pdno", b"pdnn")):
        assert good.count(old) == 1
        path.write_bytes(good.replace(old, new))
        assert "damaged" in refusal(path)


def test_equal_numbers_in_other_letters_are_damage(path) -> None:
    """One flipped bit turns 1e-05 into 1E-05, which is the same number in JSON."""
    save(path, "state", {}, {"lr": 1e-05})
    path.write_bytes(path.read_bytes().replace(b"1e-05", b"1E-05"))
    assert "not those that were written" in refusal(path)


def test_truncated_files(path, told) -> None:
    save_step(path, 1)
    save_step(path, 2)
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    for size in (0, 1, 7, 8, 9, 100, header - 1, header, header + 1, len(good) - 96, len(good) - 1):
        path.write_bytes(good[:size])
        assert ("truncated" if size > 8 else "not a checkpoint") in refusal(path)
        assert resumed_step(path, told) == 1
    path.write_bytes(good + b"\0")
    assert "too long" in refusal(path)
    assert "it is empty" in told[0]


def test_damaged_files_are_never_overwritten(path, told) -> None:
    save_step(path, 1)
    save_step(path, 2)
    for i in range(3):
        path.write_bytes(b"%d" % i)
        assert resumed_step(path, told) == 1
    kept = [path.with_name(path.name + suffix) for suffix in (".damaged", ".damaged.2", ".damaged.3")]
    assert [entry.read_bytes() for entry in kept] == [b"0", b"1", b"2"]
    assert told[2].endswith(f"(renamed to {path.name}.damaged.3)")


@pytest.mark.parametrize("name", ["state.safetensors", "state[1]*"])
def test_all_bad(tmp_path, told, name) -> None:
    path = tmp_path / name
    save_step(path, 1)
    save_step(path, 2)
    path.write_bytes(b"bad")
    path.with_name(path.name + ".previous").write_bytes(b"worse")
    for _ in range(2):  # nor does the same command, run again, silently start from the beginning
        with pytest.raises(
            UserError, match=rf"{re.escape(name)}\.damaged, .*\.previous\.damaged are .* delete them to start again"
        ):
            latest(path, "state", told.append)
        assert len(told) == 2
    for entry in path.parent.iterdir():
        entry.unlink()
    assert latest(path, "state", told.append) is None


def test_nothing_there(path, told) -> None:
    assert latest(path, "state", told.append) is None
    assert latest(path.parent / "missing" / "state", "state", told.append) is None
    assert "does not exist" in refusal(path)
    assert "is not a file" in refusal(path.parent)
    path.with_name("another.damaged").touch()
    path.with_name(path.name + "2.damaged").touch()
    assert latest(path, "state", told.append) is None
    assert told == []


def test_after_damage_the_previous_one_stays_until_there_is_a_new_one(path, told) -> None:
    save_step(path, 1)
    save_step(path, 2)
    path.write_bytes(b"bad")
    assert resumed_step(path, told) == 1
    save_step(path, 2)
    assert names(path) == {"", ".previous", ".damaged"}
    assert resumed_step(path, told) == 2


# Files that are something else


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
