"""Fixtures that several test files share."""

from collections.abc import Callable

import pytest

from pdno.cli import main


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys) -> Callable[[str], str]:
    """Run the command line in an empty folder on a user's mistake: one line on standard error, exit code 2. The line."""
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
    """Blocks of four Darcy samples at 8², so that a small store has many."""
    monkeypatch.setattr("pdno.store.CHUNK_BYTES", 4 * 8 * 64)
