"""Splits and folds keep dependent pairs on one side."""

import numpy as np
import pytest

from pdno import Dataset, Pairs, UserError
from pdno.data.series import is_series
from pdno.data.split import folds, some_rows


def some(count: int = 20, **more: object) -> Dataset:
    rng = np.random.default_rng(0)
    pairs = Pairs.of(rng.standard_normal((count, 8)), rng.standard_normal((count, 8)), **more)
    return Dataset(pairs, pairs[:0], {"schema": 1, "name": "some"})


def test_splits_are_disjoint_complete_and_reproducible() -> None:
    data = some(50)
    one, two, other = data.split(0.2, 0.1, seed=1), data.split(0.2, 0.1, seed=1), data.split(0.2, 0.1, seed=2)
    assert one.validation is not None
    assert (len(one.train), len(one.validation), len(one.test)) == (35, 10, 5)
    rows = np.concatenate([part.a[:, 0, 0] for part in (one.train, one.validation, one.test)])
    assert set(rows) == set(data.train.a[:, 0, 0])
    np.testing.assert_array_equal(one.test.u, two.test.u)
    assert not np.array_equal(one.test.u, other.test.u)


def test_a_split_is_recorded() -> None:
    data = some(20).split(0.2, 0.1, seed=4)
    assert data.provenance["split"] == {"validation": 0.2, "test": 0.1, "seed": 4}
    assert "split" not in some(20).provenance


def test_groups_stay_together_in_splits() -> None:
    group = np.repeat(np.arange(12), 5)[np.random.default_rng(3).permutation(60)]
    data = some(60, group=[f"site {g}" for g in group]).split(0.25, 0.25, seed=3)
    assert data.validation is not None
    parts = [set(np.asarray(part.group)) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [6, 3, 3]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]


def test_equal_inputs_stay_together_in_splits() -> None:
    """Unless there are too few different inputs to hold any out."""
    rng = np.random.default_rng(4)
    a = np.repeat(rng.standard_normal((20, 8)), 5, axis=0)[rng.permutation(100)]
    pairs = Pairs.of(a, rng.standard_normal((100, 8)))
    data = Dataset(pairs, pairs[:0], {"name": "repeated"}).split(0.2, 0.2)
    parts = [set(part.fingerprints().tolist()) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [12, 4, 4]
    alike = Pairs.of(np.ones((50, 8)), rng.standard_normal((50, 8)))
    assert len(Dataset(alike, alike[:0], {"name": "alike"}).split(0.2, 0.0).validation) == 10


def test_few_groups_can_be_split_and_split_again() -> None:
    group = np.repeat(np.arange(5), 20)
    once = some(100, group=group).split(0.0, 0.1)
    assert len(once.test) == 20
    again = Dataset(once.train, once.test[:0], {"name": "rest"}).split(0.1, 0.0)
    assert len(again.validation) == 20
    assert len(again.train) == 60


def test_existing_splits_are_kept() -> None:
    data = some(20)
    given = Dataset(data.train[:10], data.train[10:], {"schema": 1, "name": "some"})
    again = given.split(0.2, 0.2)
    np.testing.assert_array_equal(again.test.u, given.test.u)
    assert len(again.train) == 8


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ((0.5, 0.5), "sum to less than 1"),
        ((-0.1, 0.2), "must not be negative"),
        ((0.1, 0.0), "1 independent pairs are too few to hold out a fraction of 0.1 for validation"),
    ],
)
def test_impossible_splits_are_explained(fractions, message) -> None:
    with pytest.raises(UserError, match=message):
        some(1).split(*fractions)


def chain(count: int, rho: float = 0.95) -> np.ndarray:
    """Fields of an autoregressive process, (sample, 1, node)."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(1, 8))]
    for _ in range(count - 1):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.normal(size=(1, 8)))
    return np.stack(x)


def test_blocks_of_a_series_stay_together() -> None:
    """Held-out samples are whole blocks, folds too; the number of blocks is recorded."""
    a = chain(400)
    data = Dataset(Pairs.of(a, a), Pairs.of(a, a)[:0], {"name": "series"}).split()
    assert data.provenance["series"] == 10
    assert data.validation is not None
    for part in (data.validation, data.test):
        assert len(part) == 40
        assert len(np.unique(part.group)) == 1
    assert len(np.unique(data.train.labels())) == 8
    given = Dataset(Pairs.of(a, a, group=np.arange(400) % 7), Pairs.of(a, a)[:0], {"name": "series"}).split()
    assert "series" not in given.provenance


@pytest.mark.parametrize("rho", [0.8, 0.95])
def test_a_series_is_recognised(rho) -> None:
    assert is_series(chain(100, rho))


@pytest.mark.parametrize("seed", range(20))
def test_independent_sorted_and_repeated_samples_are_no_series(seed) -> None:
    rng = np.random.default_rng(seed)
    white, p = rng.normal(size=(60, 1, 8)), rng.uniform(size=(12, 1))
    assert not is_series(white)
    assert not is_series(white[np.argsort(white[:, 0, 0])])
    factorial = np.stack(np.meshgrid(p[:, 0], np.sort(p[:, 0]), indexing="ij"), axis=-1).reshape(-1, 2)
    assert not is_series(factorial[np.lexsort(factorial.T[::-1])])
    assert not Pairs.of(np.repeat(white, 4, axis=0), np.repeat(white, 4, axis=0)).is_series()


def test_many_pairs_are_put_in_a_random_order() -> None:
    a = np.sort(np.random.default_rng(0).normal(size=200))[:, None]
    mixed = Pairs.of(a, 2 * a).in_random_order(0)
    np.testing.assert_array_equal(np.sort(mixed.a.ravel()), a.ravel())
    np.testing.assert_array_equal(mixed.u, 2 * mixed.a)
    assert abs(mixed.a[:50].mean() - a.mean()) < 5 * a.std() / np.sqrt(50)
    few = Pairs.of(a, a)[:10]
    assert few.in_random_order(0) is few


def test_some_rows_are_a_sample() -> None:
    rows = some_rows(1000, 100)
    assert len(np.unique(rows)) == 100
    assert abs(rows.mean() - 500) < 5 * 289 / 10  # five standard errors
    np.testing.assert_array_equal(some_rows(5, 100), np.arange(5))


def test_folds_are_disjoint_complete_and_reproducible() -> None:
    parts = list(folds(23, 5, seed=3))
    assert [len(held_out) for _, held_out in parts] == [5, 5, 5, 4, 4]
    assert sorted(np.concatenate([held_out for _, held_out in parts])) == list(range(23))
    for (train, held_out), (train_again, held_out_again) in zip(parts, folds(23, 5, seed=3), strict=True):
        assert sorted([*train, *held_out]) == list(range(23))
        np.testing.assert_array_equal(train, train_again)
        np.testing.assert_array_equal(held_out, held_out_again)
    assert any(not np.array_equal(one[1], two[1]) for one, two in zip(parts, folds(23, 5, seed=4), strict=True))


def test_groups_are_in_one_fold() -> None:
    group = np.array([7, 7, -1, 3, 3, 3, 9, -1])
    for train, held_out in folds(8, 3, group):
        assert not set(group[train]) & set(group[held_out])
    assert len(list(folds(8, 100, group))) == 4  # as many as groups


@pytest.mark.parametrize(("samples", "group"), [(0, None), (1, None), (5, np.zeros(5, dtype=int))])
def test_folds_need_two_independent_pairs(samples, group) -> None:
    with pytest.raises(UserError, match="cannot be divided into folds; provide at least two"):
        next(folds(samples, 5, group))
