"""Fixtures that several test files share."""

import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pdno import PDNO
from pdno.cli import main
from tests.helpers import SMALL, normal, small


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys) -> Callable[[str], str]:
    """Run a command that fails, in an empty folder: exit code 2, and one line on standard error, which is returned."""
    monkeypatch.chdir(tmp_path)

    def run(arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(arguments.split())
        errors = capsys.readouterr().err
        assert stop.value.code == 2
        assert errors.startswith("pdno: ")
        assert errors.count("\n") == 1
        return errors

    return run


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Store blocks of four Darcy samples at 8², so that a small store has many blocks."""
    monkeypatch.setattr("pdno.data.store.CHUNK_BYTES", 4 * 8 * 64)


@pytest.fixture
def say(tmp_path, monkeypatch, capsys) -> Callable[[str], str]:
    """Run a command that succeeds, in an empty folder; return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(shlex.split(arguments))
        answer = capsys.readouterr()
        assert stop.value.code == 0, answer.err
        return answer.out

    return run


@pytest.fixture(scope="session")
def done(tmp_path_factory) -> Path:
    """Return a folder with mine.npz (40 pairs named force and deflection, groups of two) and a finished run."""
    folder = tmp_path_factory.mktemp("done")
    a, u = np.random.default_rng(0).standard_normal((2, 40, 16))
    np.savez(folder / "mine.npz", force=a, deflection=u, site=np.repeat(np.arange(20), 2))
    names = "--a force --u deflection --dims sample,x --group site"
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(f"train {folder / 'mine.npz'} {names} --out {folder / 'run'} {SMALL}"))
    assert stop.value.code == 0
    return folder


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Return 24 pairs of noise."""
    return normal(24, 16), normal(24, 16, seed=1)


@pytest.fixture(scope="module")
def model(data) -> PDNO:
    """Return a model that was trained on `data` for milliseconds."""
    return small().fit(*data, seed=0)


@pytest.fixture
def no_pictures(monkeypatch) -> None:
    """Do not render the figures of reports, which takes seconds."""
    monkeypatch.setattr("pdno.run.report._png", lambda figure: "data:image/png;base64,AAAA")


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Restore signal handlers: an interrupted command ignores signals, which later child processes would inherit."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
