"""The generator and its store: the same bytes whatever happens, and nothing damaged goes unnoticed."""

import dataclasses
import hashlib
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
import xarray as xr

import pdno
import pdno.store
from pdno import UserError
from pdno.cli import main
from pdno.equation import Advection, Darcy, Elliptic1D
from pdno.generation import FIRST
from pdno.noise import Gaussian, GaussianMixture, Heteroscedastic

SMALL = Darcy(points=8)


def digest(store: Path) -> str:
    """SHA-256 of every path and byte below a folder."""
    total = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        total.update(str(path.relative_to(store)).encode() + b"\0")
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Blocks of four Darcy samples at 8², so that a small store has many."""
    monkeypatch.setattr("pdno.store.CHUNK_BYTES", 4 * 8 * 64)


def test_pairs_are_what_they_say() -> None:
    noise = Gaussian(0.01)
    data = pdno.generate(SMALL, train=6, test=3, noise=noise, seed=5)
    a = SMALL.sample_input(6, seed=5)
    np.testing.assert_array_equal(data.train.a, a)
    u = SMALL.solve(a)
    np.testing.assert_array_equal(data.train.u, u + noise.sample(u, seed=5))
    assert data.train.u_eta is None
    np.testing.assert_array_equal(data.test.u, SMALL.solve(data.test.a))
    assert data.test.u_eta is not None
    assert 0.008 < (data.test.u_eta - data.test.u).std() < 0.012
    shared = set(map(bytes, data.train.a)) & set(map(bytes, data.test.a))
    assert not shared


def test_noise_of_train_and_test_is_independent() -> None:
    data = pdno.generate(Elliptic1D(points=64), train=200, test=200, noise=Gaussian(1.0))
    assert data.test.u_eta is not None
    train = data.train.u - Elliptic1D(points=64).solve(data.train.a)
    test = data.test.u_eta - data.test.u
    assert abs((train * test).mean()) < 5 / np.sqrt(test.size)


def test_test_pairs_do_not_depend_on_training_pairs_and_a_larger_set_begins_with_the_smaller() -> None:
    small, large = (pdno.generate(SMALL, train=n, test=2, noise="mixture:2") for n in (3, 9))
    np.testing.assert_array_equal(small.test.u_eta, large.test.u_eta)
    np.testing.assert_array_equal(small.train.u, large.train.u[:3])


def test_store_round_trip_and_provenance(tmp_path) -> None:
    data = pdno.generate(SMALL, train=6, test=3, noise=GaussianMixture.case(1), seed=2)
    data.save(tmp_path / "darcy.zarr")
    back = pdno.open(tmp_path / "darcy.zarr")
    for split in ("train", "test"):
        for name in ("a", "u", "u_eta"):
            np.testing.assert_array_equal(getattr(getattr(back, split), name), getattr(getattr(data, split), name))
    assert back.grid == SMALL.grid
    assert back.provenance == data.provenance
    assert back.provenance["equation"] == {"name": "darcy", "settings": SMALL.settings()}
    assert (back.provenance["noise"], back.provenance["seed"]) == ("mixture:1", 2)
    assert back.provenance["software"]["numpy"] == np.__version__


def test_xarray_opens_the_store_with_names_and_coordinates(tmp_path) -> None:
    data = pdno.generate(SMALL, train=5, test=2, noise="gaussian:0.1", out=tmp_path / "d.zarr")
    with xr.open_zarr(tmp_path / "d.zarr", group="test", consolidated=False) as test:
        assert test["u_eta"].dims == ("sample", "u_channel", "x", "y")
        assert test["a"].dims == ("sample", "a_channel", "x", "y")
        np.testing.assert_allclose(test["x"], (np.arange(8) + 0.5) / 8)
        np.testing.assert_array_equal(test["u"].values, data.test.u)
    zarr_json = json.loads((tmp_path / "d.zarr" / "train" / "u" / "zarr.json").read_text())
    assert zarr_json["zarr_format"] == 3
    assert zarr_json["fill_value"] == "NaN"
    assert zarr_json["codecs"][-1]["configuration"]["checksum"] is True


def test_the_recorded_command_makes_the_same_store(tmp_path) -> None:
    eq = pdno.equation.Burgers(points=32, viscosity=0.1 / 3, speed=1.0)
    data = pdno.generate(eq, train=3, test=2, noise="field:0.1", seed=7, out=tmp_path / "one.zarr")
    command = data.provenance["command"]
    assert "--set viscosity=0.03333333333333333" in command
    assert "rtol" not in command
    with pytest.raises(SystemExit) as stop:
        main([*command.split()[1:], "--out", str(tmp_path / "two.zarr")])
    assert stop.value.code == 0
    assert digest(tmp_path / "one.zarr") == digest(tmp_path / "two.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_every_way_of_writing_gives_the_same_bytes(tmp_path) -> None:
    make = {"train": 18, "test": 5, "noise": "gaussian:0.1", "seed": 3}
    pdno.generate(SMALL, **make, out=tmp_path / "one.zarr")
    pdno.generate(SMALL, **make).save(tmp_path / "saved.zarr")
    pdno.open(tmp_path / "one.zarr").save(tmp_path / "copied.zarr")
    assert digest(tmp_path / "one.zarr") == digest(tmp_path / "saved.zarr") == digest(tmp_path / "copied.zarr")
    pdno.generate(SMALL, **{**make, "seed": 4}, out=tmp_path / "other.zarr")
    assert digest(tmp_path / "one.zarr") != digest(tmp_path / "other.zarr")


GENERATE = [sys.executable, "-m", "pdno", "generate", "darcy", "--points", "48", "--train", "900", "--test", "70"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> str:
    """The digest of a store that one worker wrote in peace."""
    store = tmp_path_factory.mktemp("peace") / "d.zarr"
    subprocess.run([*GENERATE, "--workers", "1", "--out", store], check=True, capture_output=True)
    return digest(store)


def chunks(store: Path) -> int:
    partial = store.with_name(store.name + ".partial")
    return sum(1 for path in partial.glob("*/u/c/*/0/0/0")) if partial.exists() else 0


@contextmanager
def started(store: Path, workers: str):
    """`pdno generate` in the background, once it has written something new."""
    before = chunks(store)
    process = subprocess.Popen(
        [*GENERATE, "--workers", workers, "--out", store], stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while chunks(store) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def alive_in_session(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left-over processes in /proc")
def test_killed_and_run_again_the_store_is_the_same_to_the_byte(tmp_path, uninterrupted) -> None:
    """kill −9 of the command twice (its workers must end by themselves), then of a worker; then it is let be."""
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


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]])
def test_interrupted_it_says_how_to_go_on(signals, tmp_path, uninterrupted) -> None:
    """Ctrl-C, an impatient Ctrl-C, and what batch systems send."""
    store = tmp_path / "d.zarr"
    with started(store, "2") as process:
        for i, number in enumerate(signals):
            time.sleep(0.2 * i)
            if process.poll() is None:
                process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors.decode().strip() == "pdno: stopped; run the same command again to go on"
    subprocess.run([*GENERATE, "--workers", "2", "--out", store], check=True, capture_output=True)
    assert digest(store) == uninterrupted


def interrupt_after(pairs: int):
    def stop(done: int, total: int) -> None:
        if done >= pairs:
            raise KeyboardInterrupt

    return stop


@pytest.mark.usefixtures("small_blocks")
def test_only_what_is_missing_or_damaged_is_made_again(tmp_path, monkeypatch) -> None:
    """Truncated, flipped, missing and left-over files, in each array, in the partial store of a killed run."""
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
    (root / "train/a/c/0/0/0/0.abc.partial").write_bytes(b"rest of a killed write")
    written, write = [], pdno.store.write
    monkeypatch.setattr(
        "pdno.store.write",
        lambda root, split, first, arrays: written.append((split, first)) or write(root, split, first, arrays),
    )
    pdno.generate(SMALL, **make, out=tmp_path / "d.zarr")
    assert written == [("train", 0), ("train", 4), ("test", 0), ("test", 4)]
    assert digest(tmp_path / "d.zarr") == digest(tmp_path / "whole.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_left_overs_of_a_worker_killed_on_the_way_do_not_stay(tmp_path) -> None:
    def litter(done: int, total: int) -> None:
        (tmp_path / "d.zarr.partial/train/a/c/0/0/0/0.abc.partial").write_bytes(b"rest of a killed write")

    pdno.generate(SMALL, train=8, out=tmp_path / "d.zarr", progress=litter)
    assert not list((tmp_path / "d.zarr").rglob("*.partial"))


@pytest.mark.usefixtures("small_blocks")
def test_a_store_is_not_finished_by_another_recipe(tmp_path) -> None:
    """Own laws of noise have the same name, but not the same first pair."""
    with pytest.raises(KeyboardInterrupt):
        pdno.generate(
            SMALL, 12, noise=Heteroscedastic(lambda u: 0 * u + 0.001), out=tmp_path / "d.zarr", progress=interrupt_after(4)
        )
    with pytest.raises(UserError, match="other settings"):
        pdno.generate(SMALL, 12, noise=Heteroscedastic(lambda u: 0 * u + 5.0), out=tmp_path / "d.zarr")


def test_a_folder_that_is_in_the_way_is_left_alone(tmp_path) -> None:
    (tmp_path / "res.partial").mkdir()
    (tmp_path / "res.partial" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="in the way"):
        pdno.generate(SMALL, train=2, out=tmp_path / "res")
    assert (tmp_path / "res.partial" / "thesis.txt").read_text() == "precious"


def test_workers_have_ended_when_generate_has(tmp_path) -> None:
    """Also when the callback raises: nothing is written after the lock is let go."""
    with pytest.raises(KeyboardInterrupt) as caught:
        pdno.generate(Darcy(points=48), train=1500, out=tmp_path / "d.zarr", workers=2, progress=interrupt_after(1))
    before = chunks(tmp_path / "d.zarr")
    time.sleep(1.0)
    assert chunks(tmp_path / "d.zarr") == before
    assert caught.tb is not None


def test_a_run_killed_while_it_began_starts_afresh(tmp_path) -> None:
    (tmp_path / "d.zarr.partial" / "train").mkdir(parents=True)
    pdno.generate(SMALL, train=3, out=tmp_path / "d.zarr")
    assert len(pdno.open(tmp_path / "d.zarr").train) == 3


@pytest.mark.usefixtures("small_blocks")
def test_a_partial_store_of_other_settings_is_left_alone(tmp_path) -> None:
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
def test_damage_to_a_finished_store_is_noticed(tmp_path) -> None:
    store = tmp_path / "d.zarr"
    pdno.generate(SMALL, train=20, test=4, out=store)
    chunk = store / "train" / "u" / "c" / "2" / "0" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.rename(chunk.with_name("0.abc.partial"))  # a file in its place does not count
    with pytest.raises(UserError, match="1 of 5 chunks of train/u are missing"):
        pdno.open(store)
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 4
    for damaged in (bytes(flipped), whole[:-20], b""):
        chunk.write_bytes(damaged)
        with pytest.raises(UserError, match=r"'u' .* is damaged"):
            pdno.open(store).train.u  # noqa: B018
    chunk.write_bytes(whole)
    assert np.isfinite(pdno.open(store).train.u).all()


def test_what_is_not_a_store_is_refused(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.zarr").write_text("no")
    for name in ("folder", "file.zarr"):
        with pytest.raises(UserError):
            pdno.open(tmp_path / name)
    with pytest.raises(UserError, match="does not exist"):
        pdno.open(tmp_path / "nothing.zarr")


def test_damaged_descriptions_are_noticed(tmp_path) -> None:
    for damage in (lambda store: shutil.rmtree(store / "test"), lambda store: (store / "test/u/zarr.json").write_text("{")):
        store = tmp_path / f"{id(damage)}.zarr"
        pdno.generate(SMALL, train=2, test=2, out=store)
        damage(store)
        with pytest.raises(UserError, match="damaged"):
            pdno.open(store)


def test_a_part_of_a_data_set_is_saved_as_it_is(tmp_path) -> None:
    data = pdno.generate(SMALL, train=10, test=2)
    dataclasses.replace(data, train=data.train[:6]).save(tmp_path / "part.zarr")
    np.testing.assert_array_equal(pdno.open(tmp_path / "part.zarr").train.u, data.train.u[:6])


def test_numpy_numbers_will_do(tmp_path) -> None:
    plain = pdno.generate(Darcy(points=8, a_low=4, a_high=12, tau=3, r=2), train=3, out=tmp_path / "a.zarr")
    pdno.generate(Darcy(points=np.int64(8)), train=np.int64(3), seed=np.int32(0), out=tmp_path / "b.zarr")  # type: ignore[arg-type]
    assert digest(tmp_path / "a.zarr") == digest(tmp_path / "b.zarr")
    assert plain.provenance["command"].startswith("pdno generate darcy --points 8 --train 3")


def test_a_store_of_a_later_version_is_refused_by_name(tmp_path) -> None:
    pdno.generate(SMALL, train=2, out=tmp_path / "d.zarr")
    path = tmp_path / "d.zarr" / "zarr.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(UserError, match="schema 2"):
        pdno.open(tmp_path / "d.zarr")


def test_on_a_dask_cluster(tmp_path, monkeypatch) -> None:
    """The same bytes through a scheduler on this machine."""
    from distributed import LocalCluster

    monkeypatch.setattr("pdno.store.CHUNK_BYTES", 4 * 8 * 32)
    make = {"train": 30, "test": 6, "noise": "gaussian:0.1"}
    pdno.generate(Advection(points=32), **make, out=tmp_path / "here.zarr")
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        pdno.generate(Advection(points=32), **make, out=tmp_path / "there.zarr", scheduler=cluster.scheduler_address)
    assert digest(tmp_path / "here.zarr") == digest(tmp_path / "there.zarr")


def test_own_equation_and_own_noise(tmp_path) -> None:
    """A user's equation with two output channels, and noise that depends on u."""

    class Powers(pdno.equation.Equation):
        name = "powers"
        grid = pdno.Grid.uniform(16)

        def sample_input(self, count: int, seed: int = 0, first: int = 0) -> np.ndarray:
            return pdno.Field(tau=3, r=2).sample(self.grid, count, seed, first)[:, None]

        def solve(self, a: np.ndarray) -> np.ndarray:
            return np.concatenate([a**2, a**3], axis=1)

        def residual(self, u: np.ndarray, a: np.ndarray) -> np.ndarray:
            return u - self.solve(a)

    data = pdno.generate(Powers(), train=4, test=2, noise=Heteroscedastic(lambda u: 0.1 * abs(u)), out=tmp_path / "p.zarr")
    assert data.train.u.shape == (4, 2, 16)
    assert data.provenance["noise"].startswith("heteroscedastic")
    assert data.provenance["command"] == ""
    np.testing.assert_array_equal(data.test.u[:, 0], data.test.a[:, 0] ** 2)


def test_what_cannot_be_sent_to_other_processes_is_said(tmp_path) -> None:
    with pytest.raises(UserError, match="take one worker"):
        pdno.generate(SMALL, train=200, test=200, noise=Heteroscedastic(lambda u: 0.1 * u), workers=2)


def test_a_script_without_the_usual_guard_is_told(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import pdno\npdno.generate(pdno.equation.Advection(points=16), train=200, test=200, workers=2)\n")
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert answer.returncode != 0
    assert 'if __name__ == "__main__":' in answer.stderr.strip().splitlines()[-1]


def test_inputs_that_are_not_numbered_are_refused() -> None:
    """An equation that ignores `first` would repeat its training inputs in the test."""

    class Careless(Advection):
        def sample_input(self, count: int, seed: int = 0, first: int = 0) -> np.ndarray:
            return np.random.default_rng(seed).standard_normal((count, 1, *self.grid.shape))

    with pytest.raises(UserError, match="does not number its inputs"):
        pdno.generate(Careless(points=16), train=4)


@pytest.mark.parametrize("wrong", [lambda a: a[:1], lambda a: a[:, 0], lambda a: a + 0j, lambda a: a[..., :3], lambda a: None])
def test_what_a_solver_gives_is_checked(wrong) -> None:
    class Wrong(Advection):
        def solve(self, a: np.ndarray) -> np.ndarray:
            return wrong(np.concatenate([a, a]))

    with pytest.raises(UserError, match="solve of advection gave"):
        pdno.generate(Wrong(points=16), train=4)


def test_the_equation_comes_back_from_a_store(tmp_path) -> None:
    eq = pdno.equation.Burgers(points=32, viscosity=0.01)
    data = pdno.generate(eq, train=2, out=tmp_path / "b.zarr")
    assert pdno.open(tmp_path / "b.zarr").equation == data.equation == eq


def test_a_solver_that_fails_is_named() -> None:
    class Broken(Advection):
        def solve(self, a: np.ndarray) -> np.ndarray:
            return np.full(np.shape(a), np.nan)

    with pytest.raises(UserError, match="advection gave NaN"):
        pdno.generate(Broken(points=16), train=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": 0}, "train = 0"),
        ({"test": -1}, "test = -1"),
        ({"workers": 0}, "workers = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"train": 2.5}, "whole number"),
        ({"train": "3"}, "whole number"),
        ({"seed": None}, "whole number"),
        ({"equation": "darcy"}, "is not an equation"),
        ({"equation": Darcy}, "is not an equation"),
        ({"noise": 0.1}, "no law of noise"),
        ({"noise": Gaussian}, "no law of noise"),
        ({"out": "d.npz"}, "call it d.zarr"),
        ({"noise": "gaussian:-1"}, "not negative"),
        ({"noise": "field:0.1,nan,2"}, "a field needs"),
        ({"out": "no/such/folder/d.zarr"}, "does not exist; create it"),
    ],
)
def test_mistakes_are_explained(change, message) -> None:
    with pytest.raises(UserError, match=message):
        pdno.generate(**{"equation": SMALL, "train": 2, **change})


def test_splits_cannot_meet() -> None:
    with pytest.raises(UserError, match="whole number from 1 to"):
        pdno.generate(SMALL, train=FIRST["test"] + 1)
