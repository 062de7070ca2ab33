"""The store after kills, interruptions and damage: it has the same bytes in the end, or there is a clear message."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import pdno
import pdno.data.store
from pdno import UserError
from pdno.equation import Darcy
from pdno.noise import Heteroscedastic
from tests.helpers import alive_in_session, digest

SMALL = Darcy(points=8)


GENERATE = [sys.executable, "-m", "pdno", "generate", "darcy", "--points", "48", "--train", "450", "--test", "70"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> str:
    """Return the digest of a store that one worker wrote without interruption."""
    store = tmp_path_factory.mktemp("uninterrupted") / "d.zarr"
    subprocess.run([*GENERATE, "--workers", "1", "--out", store], check=True, capture_output=True)
    return digest(store)


def chunks(store: Path) -> int:
    partial = store.with_name(store.name + ".partial")
    return sum(1 for path in partial.glob("*/u/c/*/0/0/0")) if partial.exists() else 0


@contextmanager
def started(store: Path, workers: str):
    """Start `pdno generate` in the background and wait until it has written a new chunk."""
    before = chunks(store)
    before_signals = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    process = subprocess.Popen(
        [*GENERATE, "--workers", workers, "--out", store], stderr=subprocess.PIPE, start_new_session=True
    )
    signal.signal(signal.SIGINT, before_signals)
    deadline = time.monotonic() + 60
    while chunks(store) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left-over processes in /proc")
def test_a_store_resumed_after_kills_has_the_same_bytes(tmp_path, uninterrupted) -> None:
    """kill −9 of the command twice (its workers must end by themselves), then of a worker; then the command finishes."""
    store = tmp_path / "d.zarr"
    for workers in ("1", "2"):
        with started(store, workers) as process:
            assert process.poll() is None, "finished before it could be killed"
            process.kill()
            process.wait()
            deadline = time.monotonic() + 20
            while alive_in_session(process.pid) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not alive_in_session(process.pid)
        assert chunks(store) > 0
        assert not store.exists()
    with started(store, "2") as process:
        children = [pid for pid in alive_in_session(process.pid) if pid != process.pid and b"spawn_main" in cmdline(pid)]
        assert children, "no worker to kill"
        os.kill(children[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert digest(store) == uninterrupted
    assert [path.name for path in tmp_path.iterdir()] == ["d.zarr"]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


OTHERS = [pytest.param(signals, marks=pytest.mark.slow) for signals in ([signal.SIGINT] * 2, [signal.SIGTERM])]


@pytest.mark.parametrize("signals", [[signal.SIGINT], *OTHERS])
@pytest.mark.slow
def test_an_interrupted_command_explains_how_to_resume(signals, tmp_path, uninterrupted) -> None:
    """Ctrl-C, Ctrl-C twice, and the signal of batch systems."""
    store = tmp_path / "d.zarr"
    with started(store, "2") as process:
        for i, number in enumerate(signals):
            time.sleep(0.2 * i)
            if process.poll() is None:
                process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors.decode().strip() == "pdno: interrupted; run the same command again to resume"
    subprocess.run([*GENERATE, "--workers", "2", "--out", store], check=True, capture_output=True)
    assert digest(store) == uninterrupted


def interrupt_after(pairs: int):
    def stop(done: int, total: int) -> None:
        if done >= pairs:
            raise KeyboardInterrupt

    return stop


@pytest.mark.usefixtures("small_blocks")
def test_only_missing_or_damaged_blocks_are_computed_again(tmp_path, monkeypatch) -> None:
    """Truncated, flipped, missing and temporary files, in each array, in the partial store of a killed run."""
    make = {"train": 28, "test": 8, "noise": "gaussian:0.1"}
    pdno.generate(SMALL, **make, out=tmp_path / "whole.zarr")
    with pytest.raises(KeyboardInterrupt):
        pdno.generate(SMALL, **make, out=tmp_path / "d.zarr", progress=interrupt_after(32))
    root = tmp_path / "d.zarr.partial"

    def chunk(array: str, block: int) -> Path:
        return root / array / "c" / str(block) / "0" / "0" / "0"

    truncated, flipped, missing = chunk("train/u", 0), chunk("train/a", 1), chunk("test/u_eta", 0)
    truncated.write_bytes(truncated.read_bytes()[:50])
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    missing.unlink()
    (root / "train/a/c/0/0/0/0.abc.partial").write_bytes(b"part of a killed write")
    written, write = [], pdno.data.store.write
    monkeypatch.setattr(
        "pdno.data.store.write",
        lambda root, split, first, arrays: written.append((split, first)) or write(root, split, first, arrays),
    )
    pdno.generate(SMALL, **make, out=tmp_path / "d.zarr")
    assert written == [("train", 0), ("train", 4), ("test", 0), ("test", 4)]
    assert digest(tmp_path / "d.zarr") == digest(tmp_path / "whole.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_temporary_files_of_a_killed_worker_are_removed(tmp_path) -> None:
    def litter(done: int, total: int) -> None:
        (tmp_path / "d.zarr.partial/train/a/c/0/0/0/0.abc.partial").write_bytes(b"part of a killed write")

    pdno.generate(SMALL, train=8, out=tmp_path / "d.zarr", progress=litter)
    assert not list((tmp_path / "d.zarr").rglob("*.partial"))


@pytest.mark.usefixtures("small_blocks")
def test_a_store_is_not_completed_by_another_recipe(tmp_path) -> None:
    """Two noise distributions of the user have the same name, but not the same first pair."""
    with pytest.raises(KeyboardInterrupt):
        pdno.generate(
            SMALL, 12, noise=Heteroscedastic(lambda u: 0 * u + 0.001), out=tmp_path / "d.zarr", progress=interrupt_after(4)
        )
    with pytest.raises(UserError, match="other settings"):
        pdno.generate(SMALL, 12, noise=Heteroscedastic(lambda u: 0 * u + 5.0), out=tmp_path / "d.zarr")


def test_a_foreign_folder_is_not_modified(tmp_path) -> None:
    (tmp_path / "res.partial").mkdir()
    (tmp_path / "res.partial" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="exists already and is not an unfinished store"):
        pdno.generate(SMALL, train=2, out=tmp_path / "res")
    assert (tmp_path / "res.partial" / "thesis.txt").read_text() == "precious"


@pytest.mark.slow
def test_workers_have_ended_when_generate_has(tmp_path) -> None:
    """Also if the callback raises: nothing is written after the lock is released."""
    with pytest.raises(KeyboardInterrupt) as caught:
        pdno.generate(Darcy(points=48), train=1500, out=tmp_path / "d.zarr", workers=2, progress=interrupt_after(1))
    before = chunks(tmp_path / "d.zarr")
    time.sleep(1.0)
    assert chunks(tmp_path / "d.zarr") == before
    assert caught.tb is not None


def test_a_store_whose_creation_was_interrupted_is_created_again(tmp_path) -> None:
    (tmp_path / "d.zarr.partial" / "train").mkdir(parents=True)
    pdno.generate(SMALL, train=3, out=tmp_path / "d.zarr")
    assert len(pdno.open(tmp_path / "d.zarr").train) == 3


@pytest.mark.usefixtures("small_blocks")
def test_a_partial_store_of_other_settings_is_not_modified(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pdno.generate(SMALL, train=12, out=tmp_path / "d.zarr", progress=interrupt_after(4))
    before = digest(tmp_path / "d.zarr.partial")
    with pytest.raises(UserError, match="other settings"):
        pdno.generate(SMALL, train=13, out=tmp_path / "d.zarr")
    assert digest(tmp_path / "d.zarr.partial") == before
    with pytest.raises(UserError, match="unfinished"):
        pdno.open(tmp_path / "d.zarr")


def test_a_second_writer_is_refused(tmp_path) -> None:
    import fcntl

    (tmp_path / "d.zarr.partial").mkdir()
    held = os.open(tmp_path / "d.zarr.partial", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(UserError, match="another process is writing"):
            pdno.generate(SMALL, train=2, out=tmp_path / "d.zarr")
    finally:
        os.close(held)
    pdno.generate(SMALL, train=2, out=tmp_path / "d.zarr")


def test_an_existing_path_is_never_overwritten(tmp_path) -> None:
    (tmp_path / "d.zarr").write_text("precious")
    with pytest.raises(UserError, match="never overwritten"):
        pdno.generate(SMALL, train=2, out=tmp_path / "d.zarr")
    with pytest.raises(UserError, match="never overwritten"):
        pdno.generate(SMALL, train=2).save(tmp_path / "d.zarr")
    assert (tmp_path / "d.zarr").read_text() == "precious"


@pytest.mark.usefixtures("small_blocks")
def test_damage_to_a_complete_store_is_detected(tmp_path) -> None:
    store = tmp_path / "d.zarr"
    pdno.generate(SMALL, train=20, test=4, out=store)
    chunk = store / "train" / "u" / "c" / "2" / "0" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.rename(chunk.with_name("0.abc.partial"))  # another file in its folder does not count
    with pytest.raises(UserError, match="1 of 5 chunks of train/u are missing"):
        pdno.open(store)
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 4
    for damaged in (bytes(flipped), whole[:-20], b""):
        chunk.write_bytes(damaged)
        with pytest.raises(UserError, match=r"u' .*is damaged"):
            pdno.open(store).train.u  # noqa: B018
    chunk.write_bytes(whole)
    assert np.isfinite(pdno.open(store).train.u).all()


def test_other_files_and_folders_are_not_stores(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.zarr").write_text("no")
    for name in ("folder", "file.zarr"):
        with pytest.raises(UserError):
            pdno.open(tmp_path / name)
    with pytest.raises(UserError, match="does not exist"):
        pdno.open(tmp_path / "nothing.zarr")


def test_damaged_metadata_are_detected(tmp_path) -> None:
    for damage in (lambda store: shutil.rmtree(store / "test"), lambda store: (store / "test/u/zarr.json").write_text("{")):
        store = tmp_path / f"{id(damage)}.zarr"
        pdno.generate(SMALL, train=2, test=2, out=store)
        damage(store)
        with pytest.raises(UserError, match="damaged"):
            pdno.open(store)


def test_a_store_of_a_later_version_is_refused_by_name(tmp_path) -> None:
    pdno.generate(SMALL, train=2, out=tmp_path / "d.zarr")
    path = tmp_path / "d.zarr" / "zarr.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UserError, match="schema 2"):
        pdno.open(tmp_path / "d.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_a_store_has_the_arrays_that_were_written(tmp_path) -> None:
    """An array less, one more or another one: all chunks are valid, but they are not those that were written."""
    path = tmp_path / "d.zarr"
    pdno.generate(SMALL, train=8, test=4, noise="gaussian:0.1", out=path)
    u_eta = path / "test" / "u_eta"
    u_eta.rename(tmp_path / "kept")
    with pytest.raises(UserError, match="has no array 'test/u_eta'"):
        pdno.open(path)
    shutil.copytree(path / "test" / "u", u_eta)
    with pytest.raises(UserError, match=r"'test/u_eta' is damaged: its checksum"):
        pdno.open(path)
    shutil.rmtree(u_eta)
    (tmp_path / "kept").rename(u_eta)
    shutil.copytree(u_eta, path / "train" / "u_eta")
    with pytest.raises(UserError, match="unexpected array 'train/u_eta'"):
        pdno.open(path)
    shutil.rmtree(path / "train" / "u_eta")
    assert len(pdno.open(path).train) == 8
    shutil.copy(path / "train/u/c/0/0/0/0", path / "train/u/c/1/0/0/0")
    with pytest.raises(UserError, match=r"'train/u' is damaged: its checksum"):
        pdno.open(path)


def test_a_store_without_checksums_is_read(tmp_path) -> None:
    """Stores of earlier versions record no arrays."""
    path = tmp_path / "d.zarr"
    data = pdno.generate(SMALL, train=2, test=1, out=path)
    metadata = json.loads((path / "zarr.json").read_text())
    assert set(metadata["attributes"]["pdno"].pop("checksums")) == {f"{s}/{n}" for s in ("train", "test") for n in "auxy"}
    (path / "zarr.json").write_text(json.dumps(metadata))
    np.testing.assert_array_equal(pdno.open(path).train.u, data.train.u)
    shutil.rmtree(path / "test" / "u")
    with pytest.raises(UserError, match="has no array 'test/u'"):
        pdno.open(path)


def test_a_chunk_of_zeros_is_written(tmp_path) -> None:
    """Zarr omits chunks that contain the fill value only, which would look like missing ones."""
    pairs = pdno.Pairs.of(np.ones((4, 8)), np.ones((4, 8)), group=np.zeros(4))
    pdno.Dataset(pairs, pairs[:0], {"schema": 1, "name": "d"}).save(tmp_path / "d.zarr")
    assert pdno.open(tmp_path / "d.zarr").train.group.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["p.csv", "p.nc", "p.txt"])
def test_a_store_is_not_written_under_the_name_of_another_format(name, tmp_path) -> None:
    with pytest.raises(UserError, match=r"call it p\.zarr"):
        pdno.data.store.check_free(tmp_path / name)
