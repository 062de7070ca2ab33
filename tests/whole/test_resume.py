"""Training and predicting under fire: killed, interrupted, damaged, in several processes. The same bytes come out.

What is to be killed is a process of its own; what is not runs here, which saves its start.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pdno
from pdno.cli import main
from pdno.work import checkpoint
from tests.helpers import alive_in_session, digest

SETTINGS = ["network.base=8", "network.multipliers=[1]", "diffusion.n_steps=10", "training.updates=24", "training.batch=8"]
SETTINGS += ["training.validations=4", "training.log_every=2", "training.checkpoint_seconds=0"]  # a checkpoint after every step
TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "pdno"]
ALONE = [sys.executable, "-m", "pdno"]
STOPPED = "pdno: interrupted; run the same command again to resume"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

needs_proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for left-over processes in /proc")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the other processes: sums have the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    store = tmp_path_factory.mktemp("data") / "d.zarr"
    pdno.generate(pdno.equation.Elliptic1D(points=16), train=64, test=8, noise="gaussian:0.05", out=store)
    return store


def train(data: Path, run: Path, *more: str) -> list[str]:
    """Arguments of the command; `more` wins over the settings."""
    return ["train", str(data), "--out", str(run), *(word for s in SETTINGS for word in ("--set", s)), *more]


def here(arguments: list[str]) -> int | str | None:
    """The exit code of a command that is run in this process."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory) -> Path:
    """A run that nobody disturbed."""
    run = tmp_path_factory.mktemp("peace") / "run"
    assert here(train(data, run)) == 0
    return run


def bytes_of(run: Path) -> dict[str, str]:
    """SHA-256 of everything that two runs share."""
    names = ("model.safetensors", "checkpoint.safetensors", "metrics.jsonl", "config.toml")
    return {name: sha256((run / name).read_bytes()).hexdigest() for name in names}


def logged(run: Path) -> int:
    """The last step in the log of a run, as far as it can be read just now."""
    try:
        lines = (run / "metrics.jsonl").read_bytes().split(b"\n")
    except OSError:
        return 0
    return int(json.loads(lines[-2])["step"]) if len(lines) > 1 else 0


@contextmanager
def background(command: list[str], ready: Callable[[], bool]) -> Iterator[subprocess.Popen[str]]:
    """A command that has come so far, and has not ended."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENVIRONMENT
    )
    try:
        deadline = time.monotonic() + 120
        while not ready() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        assert process.poll() is None, f"ended too soon: {process.communicate()}"
        assert ready()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
def test_killed_it_ends_with_the_same_bytes(times, data, whole, tmp_path) -> None:
    run, moments = tmp_path / "run", np.random.default_rng(0)
    for _ in range(times):
        target = logged(run) + int(moments.integers(2, 6))
        with background([*ALONE, *train(data, run)], lambda target=target: logged(run) >= target) as process:
            time.sleep(moments.uniform(0, 0.03))
            process.kill()
            process.wait()
        assert target <= logged(run) < 24
        assert not (run / "model.safetensors").exists()
    assert here(train(data, run)) == 0
    assert bytes_of(run) == bytes_of(whole)


@pytest.fixture(scope="module")
def half(data, tmp_path_factory) -> SimpleNamespace:
    """A run stopped half-way by SIGTERM, and what happened; while it ran, another one wanted its folder."""
    run = tmp_path_factory.mktemp("half") / "run"
    with background([*ALONE, *train(data, run)], lambda: logged(run) >= 8) as process, pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("typer.echo", lambda text, err=False: said.append(text))
        second = here(train(data, run)), said
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    return SimpleNamespace(run=run, code=process.returncode, errors=errors, second=second)


@pytest.mark.slow
def test_terminated_it_says_how_to_go_on(half, data, whole, tmp_path) -> None:
    assert (half.code, half.errors.strip()) == (130, STOPPED)
    assert 8 <= logged(half.run) < 24
    shutil.copytree(half.run, tmp_path / "run")
    assert here(train(data, tmp_path / "run")) == 0
    assert bytes_of(tmp_path / "run") == bytes_of(whole)


def test_a_second_writer_is_refused(half) -> None:
    code, said = half.second
    assert code == 2
    assert len(said) == 1
    assert "another process is writing" in said[0]


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    return content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:]


@pytest.mark.parametrize("damage", [truncate, flip, lambda content: b""], ids=["truncated", "flipped", "empty"])
@pytest.mark.slow
def test_after_damage_it_goes_on_from_the_checkpoint_before(damage, half, data, whole, tmp_path, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(half.run, run)
    path = run / "checkpoint.safetensors"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    assert here(train(data, run)) == 0
    told = capsys.readouterr().err.strip()
    assert told.count("\n") == 0
    assert "(renamed to checkpoint.safetensors.damaged)" in told
    assert (run / "checkpoint.safetensors.damaged").read_bytes() == damaged
    assert bytes_of(run) == bytes_of(whole)


def test_if_all_checkpoints_are_damaged_it_does_not_begin_anew(half, data, tmp_path, refused, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(half.run, run)
    for name in ("checkpoint.safetensors", "checkpoint.safetensors.previous"):
        (run / name).write_bytes(flip((run / name).read_bytes()))
    rows = (run / "metrics.jsonl").read_bytes()
    assert here(train(data, run)) == 2
    assert capsys.readouterr().err.count("(renamed to ") == 2
    assert "delete them to start again" in refused(" ".join(train(data, run)))
    assert (run / "metrics.jsonl").read_bytes() == rows


def test_other_settings_do_not_go_on_with_a_run(half, data, refused) -> None:
    before = digest(half.run)
    assert "training.rate" in refused(" ".join(train(data, half.run, "--set", "training.rate=0.5")))
    assert "data.seed" in refused(" ".join(train(data, half.run, "--seed", "1")))
    assert digest(half.run) == before


@pytest.mark.slow
def test_a_killed_prediction_ends_with_the_same_bytes(whole, tmp_path) -> None:
    def predict(out: Path) -> list[str]:
        return ["predict", str(whole), "--split", "train", "--members", "8", "--out", str(out)]

    def blocks(count: int) -> bool:
        return len(list((tmp_path / "p.zarr.partial").glob("mean/c/*/*"))) >= count

    assert here(predict(tmp_path / "whole.zarr")) == 0
    with background([*ALONE, *predict(tmp_path / "p.zarr")], lambda: blocks(2)) as process:
        process.kill()
        process.wait()
    assert not (tmp_path / "p.zarr").exists()
    assert here(predict(tmp_path / "p.zarr")) == 0
    assert digest(tmp_path / "p.zarr") == digest(tmp_path / "whole.zarr")


# Two processes. Adam makes whole steps of gradients that are zero but for rounding (of biases in front of a normalisation),
# unless rounding is well below its ε: hence double precision.

DOUBLE = ("--precision", "64-true")


def killed_in(data: Path, run: Path, step: int, helper: bool) -> SimpleNamespace:
    """kill −9 of one of two processes, once they have come to this step: the exit code, and who is left after a while."""
    command = [*ALONE, *train(data, run, *DOUBLE, "--devices", "2")]
    with background(command, lambda: logged(run) >= step) as process:
        (other,) = set(alive_in_session(process.pid)) - {process.pid}
        os.kill(other if helper else process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        left = left_over(lambda: alive_in_session(process.pid))
    return SimpleNamespace(run=run, code=process.returncode, left=left)


def left_over(alive: Callable[[], list[int]]) -> list[int]:
    """Processes that have not ended after a while."""
    deadline = time.monotonic() + 30
    while alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive()


def finish(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT, timeout=120)


@needs_proc
@pytest.mark.slow
def test_if_one_of_two_processes_dies_the_other_stops(data, tmp_path) -> None:
    widowed = killed_in(data, tmp_path / "run", 8, helper=True)
    assert not widowed.left
    assert widowed.code != 0
    assert 8 <= logged(widowed.run) < 24
    assert not (widowed.run / "model.safetensors").exists()


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(data, tmp_path) -> None:
    few = (*DOUBLE, "--set", "training.updates=12")
    finish([*ALONE, *train(data, tmp_path / "two", *few, "--devices", "2")])
    assert here(train(data, tmp_path / "one", *few)) == 0
    one, two = (checkpoint.load(tmp_path / name / "model.safetensors", "model")[0] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
    for mine, theirs in zip(rows(tmp_path / "one"), rows(tmp_path / "two"), strict=True):
        assert theirs == pytest.approx(mine, rel=1e-7)


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_helper_of_a_finished_run_does_not_wait_for_the_first_process(whole, data, monkeypatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("pdno.learning.network.fabric", lambda *_: pytest.fail("waits for a process that has ended"))
    assert here(train(data, whole)) == 0


@needs_proc
@pytest.mark.slow
def test_two_processes_killed_three_times_end_with_the_same_bytes(data, tmp_path) -> None:
    """The helper, the first and the helper again; torchrun and --devices start the same run."""
    finish([*TOGETHER, *train(data, tmp_path / "whole", *DOUBLE)])
    moments = np.random.default_rng(1)
    for helper in (True, False, True):
        killed = killed_in(data, tmp_path / "run", logged(tmp_path / "run") + int(moments.integers(2, 6)), helper)
        assert not killed.left
        assert killed.code != 0
    finish([*ALONE, *train(data, tmp_path / "run", *DOUBLE, "--devices", "2")])
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")
    finish([*TOGETHER, *train(data, tmp_path / "run", *DOUBLE)])  # there is nothing left to do
    assert bytes_of(tmp_path / "run") == bytes_of(tmp_path / "whole")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("command", [ALONE, TOGETHER], ids=["devices", "torchrun"])
def test_two_processes_stop_together_when_terminated(command, data, tmp_path) -> None:
    """The signal reaches the starter only; both finish the step, which is saved, and nobody is left."""
    run = tmp_path / "run"
    more = ["--devices", "2"] if command is ALONE else []
    arguments = train(data, run, *more, "--set", "training.checkpoint_seconds=1000")
    with background([*command, *arguments], lambda: logged(run) >= 8) as process:
        family = descendants(process.pid)
        assert len(family) == (1 if command is ALONE else 2)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode != 0
    assert STOPPED in errors
    assert not left_over(lambda: [pid for pid in family if Path(f"/proc/{pid}").exists()])
    assert checkpoint.load(run / "checkpoint.safetensors", "training")[1]["step"] >= 8


def descendants(pid: int) -> list[int]:
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return children + [d for child in children for d in descendants(child)]


@pytest.mark.slow
def test_a_default_run_killed_while_it_tries_networks_goes_on(tmp_path) -> None:
    """Finished candidates are not trained again, and unfinished ones have the budget of the new session."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((60, 1, 4)) @ np.cos(np.arange(4)[:, None] * np.linspace(0, np.pi, 24))
    pairs = pdno.Pairs.of(a, np.tanh(a * a[..., ::-1]))

    def learned(stop: bool) -> pdno.PDNO:
        model = pdno.PDNO(budget=14.0)

        def tell(text: str) -> None:
            if stop and text.startswith("fno-screening"):
                raise KeyboardInterrupt

        model.log = tell
        return model.learn(pairs[:50], pairs[50:], run=tmp_path / "run", progress=False)

    with pytest.raises(KeyboardInterrupt):
        learned(stop=True)
    steps = (tmp_path / "run" / "fno-screening" / "metrics.jsonl").read_bytes()
    model = learned(stop=False)
    assert (tmp_path / "run" / "fno-screening" / "metrics.jsonl").read_bytes() == steps
    assert [trial.name for trial in model.leaderboard][:5] == [
        "constant",
        "linear",
        "kernel",
        "fno-screening",
        "slim-screening",
    ]


@pytest.mark.parametrize("mean", ["kernel", pytest.param({"name": "slim", "widths": [8]}, marks=pytest.mark.slow)])
def test_a_run_killed_while_its_diffusion_learns_keeps_its_mean(mean, tmp_path, monkeypatch) -> None:
    """Selecting again by the clock might select another one; predictions are those of an uninterrupted run."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 1, 16))
    pairs = pdno.Pairs.of(a, np.sinh(a) + 0.3 * rng.standard_exponential(a.shape))

    def learned(run: Path) -> pdno.PDNO:
        loop = pdno.Training(updates=4, batch=4)
        model = pdno.PDNO({"kind": "slim", "widths": [8]}, mean=mean, residual_scale="scalar", training=loop)
        return model.learn(pairs[:30], pairs[30:], run=run, progress=False)

    whole = learned(tmp_path / "peace").sample(a[:2], 3)
    with monkeypatch.context() as patch:
        patch.setattr("pdno.residual.diffused.Diffused.train", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            learned(tmp_path / "run")
    monkeypatch.setattr("pdno.model.search.choose_mean", lambda *_, **__: pytest.fail("chooses again"))
    np.testing.assert_array_equal(learned(tmp_path / "run").sample(a[:2], 3), whole)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("limit", [["--set", "training.updates=6"], ["--budget", "20s"]], ids=["steps", "budget"])
def test_the_default_learns_in_two_processes(limit, tmp_path) -> None:
    """Both select the same mean, whatever their clocks say."""
    store, run = tmp_path / "d.zarr", tmp_path / "run"
    pdno.generate(pdno.equation.Burgers(points=32), train=60, test=8, out=store)
    finish([*ALONE, "train", str(store), "--out", str(run), "--devices", "2", *limit])
    model = pdno.load(run)
    assert isinstance(model, pdno.PDNO)
    assert {trial.name.split("-")[0] for trial in model.leaderboard} == {"linear", "kernel", "fno", "slim"}
    assert np.isfinite(model.sample(pdno.open(store).test.a[:2], 3)).all()
