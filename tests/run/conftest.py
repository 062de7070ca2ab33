"""Fixtures that tests of the commands share."""

import shutil
from pathlib import Path

import pytest

import pdno
from pdno.cli import main
from tests.helpers import SMALL


@pytest.fixture
def run(done, tmp_path, monkeypatch) -> Path:
    """A copy of the finished run and its data, in the current folder."""
    shutil.copytree(done, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    config = Path("run/config.toml")
    config.write_text(config.read_text().replace(str(done), str(tmp_path / "here")))
    return Path("run")


@pytest.fixture(scope="session")
def noisy(tmp_path_factory) -> Path:
    """A folder with a store of the elliptic equation, noisy and with test pairs, and an evaluated run."""
    folder = tmp_path_factory.mktemp("noisy")
    pdno.generate(pdno.equation.Elliptic1D(points=16), train=120, test=8, noise="gaussian:0.1", out=folder / "d.zarr")
    for command in (
        f"train {folder / 'd.zarr'} --out {folder / 'run'} {SMALL} --set model.mean=none",
        f"evaluate {folder / 'run'} --members 20",
    ):
        with pytest.raises(SystemExit) as stop:
            main(command.split())
        assert stop.value.code == 0
    return folder / "run"
