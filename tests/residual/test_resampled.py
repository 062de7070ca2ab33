"""Resampled residuals: whole fields of the training pairs, with their joint structure, and their size by input."""

import numpy as np
import pytest

from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Residuals, Rows
from pdno.residual.resampled import Resampled

RNG = np.random.default_rng(0)


def residuals(values: np.ndarray, a: np.ndarray | None = None) -> Residuals:
    a = RNG.standard_normal(values.shape) if a is None else a
    return Residuals(pairs_of(a, values), values)


def rows(members: int, inputs: int = 1) -> Rows:
    flat = np.arange(inputs * members)
    return Rows(3, flat // members, flat % members, flat // members)


def test_every_member_is_a_training_field_and_all_are_equally_probable() -> None:
    values = np.where(np.arange(40) % 4 == 0, 1.0, -1.0)[:, None, None] * np.linspace(1, 2, 8)  # two branches, 1 : 3
    law = Resampled().learn(residuals(values), None, Terms())
    drawn = law.draw(residuals(values).inputs, rows(2000))
    upper = (drawn > 0).all(axis=(1, 2))
    assert (upper | (drawn < 0).all(axis=(1, 2))).all()
    np.testing.assert_allclose(np.abs(drawn), np.broadcast_to(np.linspace(1, 2, 8), drawn.shape))
    assert abs(upper.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 2000)  # fails by chance with probability 6e-5


def test_fields_of_different_inputs_and_seeds_are_independent() -> None:
    """Members of two inputs, or of two seeds, have the same one of 20 fields with probability 1/20."""
    values = np.eye(20)[:, None]  # fields of equal size
    law, inputs = Resampled().learn(residuals(values), None, Terms()), residuals(values).inputs

    def drawn(rows: Rows) -> np.ndarray:
        return law.draw(inputs, rows)[:, 0].argmax(axis=1)

    one, two = drawn(rows(1000, inputs=2)).reshape(2, 1000)
    first = np.zeros(1000, dtype=int)
    for others in (two, drawn(Rows(4, first, np.arange(1000), first))):
        assert abs((one == others).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)
    alone = np.array([1])
    assert drawn(Rows(3, alone, np.array([7]), alone))[0] == two[7]  # a function of seed, input and member


def test_sizes_that_depend_on_the_input_are_those_of_the_new_input() -> None:
    size = np.exp(RNG.normal(size=(400, 1, 1)))
    a = size * np.sin(np.linspace(0, 6, 32))
    values = size * np.random.default_rng(1).normal(size=(400, 1, 32))
    law = Resampled().learn(residuals(values, a), None, Terms())
    new = np.array([0.3, 3.0])[:, None, None] * np.sin(np.linspace(0, 6, 32))
    inputs = residuals(np.zeros((2, 1, 32)), new).inputs
    drawn = law.draw(inputs, rows(500, inputs=2)).reshape(2, 500, 32)
    ratio = drawn[1].std() / drawn[0].std()
    assert law.std is None
    assert 8 < ratio < 12.5  # 10, but for the error of the estimated slope


def test_nodes_that_are_never_observed_are_zero() -> None:
    """With one mask for all fields, members are training fields where these are observed, and 0 elsewhere."""
    values, mask = RNG.standard_normal((30, 1, 8)), np.broadcast_to(np.arange(8) != 3, (30, 1, 8))
    pairs = pairs_of(RNG.standard_normal(values.shape), values, mask=mask)
    law = Resampled().learn(Residuals(pairs, np.where(mask, values, 0.0)), None, Terms())
    np.testing.assert_array_equal(law.fields, np.where(mask, values, 0.0))


def test_missing_values_are_drawn_given_the_observed_ones() -> None:
    """Of a random walk with a missing step, the missing value is about the average of its neighbours, with variance ½."""
    values = np.cumsum(np.random.default_rng(1).standard_normal((800, 1, 16)), axis=2)
    mask = np.ones(values.shape, dtype=bool)
    mask[np.arange(800), 0, np.arange(800) % 14 + 1] = False
    law = Resampled().learn(Residuals(pairs_of(0 * values, values, mask=mask), np.where(mask, values, 0.0)), None, Terms())
    ratio = law.fields[mask] / values[mask]  # 1/t, the same for all, as t does not depend on the input
    np.testing.assert_allclose(ratio, ratio[0])
    rest = (law.fields - (np.roll(law.fields, 1, axis=2) + np.roll(law.fields, -1, axis=2)) / 2)[~mask]
    assert abs(rest.mean()) < 5 * ratio[0] * np.sqrt(0.5 / 800)
    assert rest.var() == pytest.approx(0.5 * ratio[0] ** 2, rel=5 * np.sqrt(2 / 800))
