"""The law without a residual: the same as S = 0."""

import numpy as np
import pytest

from pdno import Pairs, UserError
from pdno.learning.budget import Terms
from pdno.residual import Exact, Inputs, Residuals, Rows
from pdno.work.state import State
from tests.helpers import normal

ROWS = Rows(3, np.array([7, 7, 8]), np.array([0, 1, 0]), np.array([0, 0, 1]))


def test_all_draws_are_zero() -> None:
    inputs = Inputs(normal(2, 1, 5), normal(2, 3, 6))
    draws = Exact().draw(inputs, ROWS)
    assert draws.shape == (3, 3, 6)
    assert not draws.any()


def test_the_score_is_the_mean_of_absolute_value_and_norms() -> None:
    """The CRPS of a point mass at zero is the absolute value of the observation, its energy scores are norms."""
    a, values = normal(9, 1, 5), normal(9, 1, 5, seed=1)
    residuals = Residuals(Pairs.of(a, values), values)
    steps = np.diff(values)
    unit, norm = np.sqrt((values**2).mean()), lambda x: np.sqrt((x**2).mean(axis=(1, 2)) / (x**2).mean())
    expected = (np.abs(values).mean(axis=(1, 2)) / unit + norm(values) + norm(steps)) / 3
    np.testing.assert_allclose(Exact().score(residuals, members=3), expected, rtol=1e-12)


def test_it_is_deterministic_and_centred_and_needs_no_network() -> None:
    law = Exact()
    assert law.learn(Residuals(Pairs.of(normal(2, 5), normal(2, 5)), normal(2, 1, 5)), None, Terms()) is law
    assert (law.deterministic, law.centred, law.std, law.networks, law.evaluations()) == (True, True, None, (), 0)
    assert "deterministic" in law.describe()


def test_settings_of_a_sampler_are_refused() -> None:
    inputs = Inputs(normal(2, 1, 5), normal(2, 1, 5))
    for request in (lambda: Exact().draw(inputs, ROWS, steps=3), lambda: Exact().evaluations(steps=3)):
        with pytest.raises(UserError, match="the law 'exact' has no sampler and no setting 'steps'; omit it"):
            request()


def test_the_state_is_empty() -> None:
    state = Exact().state()
    assert (state.settings, state.arrays, state.parts) == ({}, {}, {})
    assert isinstance(Exact.from_state(State({})), Exact)
