"""Errors that are aligned with a field: found on new pairs, and drawn with the same alignment at the same size."""

import numpy as np
import pytest

from pdno.evaluation.bands import OCTAVES, Bands
from pdno.residual.alignment import Alignment

BANDS = Bands((64,), (True,), OCTAVES)


def smooth(count: int, rng: np.random.Generator) -> np.ndarray:
    k, x = np.arange(1, 9), np.arange(64) / 64
    waves = np.sin(2 * np.pi * (k[:, None] * x + rng.random((count, 8, 1))))
    return np.asarray((rng.normal(size=(count, 8, 1)) / k[:, None] * waves).sum(axis=1)[:, None])


@pytest.fixture(scope="module")
def aligned() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    f = smooth(500, rng)
    return 0.1 * smooth(500, rng) + 0.1 * rng.normal(size=(500, 1, 1)) * f, f


def test_draws_have_the_alignment_of_new_pairs(aligned: tuple[np.ndarray, np.ndarray]) -> None:
    errors, fields = aligned
    alignment, rng = Alignment.of(errors, fields, (True,)), np.random.default_rng(1)
    draws = errors[rng.permutation(len(errors))]
    new = alignment(draws, fields)
    want, had, have = (np.arctanh(BANDS.cosines(e, fields)[:, 0, 1:3]) for e in (errors, draws, new))
    assert np.mean(want**2) > 1.5 * np.mean(had**2)
    np.testing.assert_allclose(have.T @ have / 500, want.T @ want / 500, rtol=0.1)
    assert np.mean(want.prod(axis=1)) > 0.2 > 0.05 > abs(np.mean(had.prod(axis=1)))


def test_the_sizes_of_draws_stay(aligned: tuple[np.ndarray, np.ndarray]) -> None:
    errors, fields = aligned
    draws = np.roll(errors, 3, axis=0)
    new = Alignment.of(errors, fields, (True,))(draws, fields)
    np.testing.assert_allclose(BANDS.products(new, new), BANDS.products(draws, draws), rtol=1e-6, atol=1e-12)


def test_independent_errors_stay_as_they_are() -> None:
    rng = np.random.default_rng(2)
    errors = rng.normal(size=(2000, 1, 64))
    alignment = Alignment.of(errors, smooth(2000, rng), (True,))
    np.testing.assert_allclose(alignment.matrices[0], np.eye(BANDS.count), atol=0.1)


def test_few_pairs_do_not_tell() -> None:
    fields = smooth(49, np.random.default_rng(3))
    alignment = Alignment.of(fields, fields, (True,))
    np.testing.assert_array_equal(alignment.matrices[0], np.eye(BANDS.count))


def test_it_is_restored(aligned: tuple[np.ndarray, np.ndarray]) -> None:
    alignment = Alignment.of(*aligned, (True,))
    again = Alignment.from_state(alignment.state())
    np.testing.assert_array_equal(alignment(*aligned), again(*aligned))
