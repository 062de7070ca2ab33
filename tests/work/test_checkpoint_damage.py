"""Checkpoints after a kill, a full disk, truncation or flipped bits: a valid file is left or a clear error."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdno import UserError
from pdno.work import checkpoint, files
from pdno.work.checkpoint import latest, save
from pdno.work.files import partial_path
from tests.work.checkpoints import names, refusal, resumed_step, save_step

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


@pytest.mark.slow
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
