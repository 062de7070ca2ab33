"""Fixtures that several tests of means share."""

import numpy as np
import pytest

import pdno.mean.kernel.search as search


@pytest.fixture
def one_nugget(monkeypatch) -> None:
    """The same nugget for all modes, as in textbooks."""
    monkeypatch.setattr(search, "select_nuggets", lambda errors: (np.zeros(errors.shape[1], dtype=int), np.array([1e-3])))
