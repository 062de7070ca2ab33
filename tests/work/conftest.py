"""Fixtures that the tests of checkpoints share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state.safetensors"


@pytest.fixture
def told() -> list[str]:
    return []
