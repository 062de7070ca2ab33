"""Pairs from any kind of array, splits that keep groups whole, batches, and the store."""

import numpy as np
import pytest
import torch
import xarray as xr

import pdno
from pdno import Dataset, Pairs, UserError
from pdno.data.selection import Selection, arrange, without_index


def some(count: int = 20, **more: object) -> Dataset:
    rng = np.random.default_rng(0)
    pairs = Pairs.of(rng.standard_normal((count, 8)), rng.standard_normal((count, 8)), **more)
    return Dataset(pairs, pairs[:0], {"schema": 1, "name": "some"})


def test_numpy_torch_and_xarray_give_the_same_pairs() -> None:
    a, u = np.random.default_rng(1).standard_normal((2, 5, 6, 4)).astype(np.float32)
    dims = ("sample", "x", "y")
    plain = Pairs.of(a, u, dims=(dims, dims))
    tensors = Pairs.of(torch.from_numpy(a), torch.from_numpy(u).requires_grad_(), dims=(dims, dims))
    x = np.linspace(0, 1, 6)
    named = Pairs.of(xr.DataArray(a, dims=dims, coords={"x": x}), xr.DataArray(u.transpose(1, 2, 0), dims=("x", "y", "sample")))
    for pairs in (plain, tensors, named):
        assert pairs.a.dtype == np.float32
        np.testing.assert_array_equal(pairs.a[:, 0], a)
        np.testing.assert_array_equal(pairs.u[:, 0], u)
    np.testing.assert_array_equal(named.xarray["x"], x)
    back = plain.torch()
    assert torch.equal(back[0], torch.from_numpy(a[:, None]))
    assert plain.xarray["u"].dims == ("sample", "u_channel", "x", "y")


def test_channels_scalars_masks_and_grids_that_differ() -> None:
    rng = np.random.default_rng(2)
    u = rng.standard_normal((4, 3, 10))
    u[1, 2, 3] = np.nan
    dims = (("sample", "x"), ("sample", "channel", "x"))
    pairs = Pairs.of(rng.standard_normal((4, 16)), u, dims=dims, scalars=rng.random((4, 2)), mask="nan")
    assert pairs.a.shape == (4, 1, 16)
    assert pairs.u.shape == (4, 3, 10)
    assert pairs.xarray["a"].dims == ("sample", "a_channel", "a_x")  # another grid than that of u
    assert pairs.scalars is not None
    assert pairs.scalars.shape == (4, 2)
    assert pairs.mask is not None
    assert pairs.mask.sum() == pairs.mask.size - 1
    assert not pairs.mask[1, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("bool", "f4"),
        ("uint8", "f4"),
        ("int16", "f4"),
        ("int32", "f8"),
        (">f4", "f4"),
        (">f8", "f8"),
        ("float16", "f4"),
        ("int64", "f8"),
    ],
)
def test_every_value_survives_its_type(dtype, expected) -> None:
    values = np.array([[0, 1], [1, 0], [100, 3]]).astype(dtype)
    field, _ = arrange(values, None, "a")
    assert field.dtype == np.dtype(expected)
    assert field.dtype.isnative
    np.testing.assert_array_equal(field[:, 0], values.astype("f8"))


def test_what_is_ambiguous_is_not_guessed() -> None:
    with pytest.raises(UserError, match="more than one way; say --dims sample,x,y or sample,channel,x"):
        Pairs.of(np.ones((3, 4, 5)), np.ones((3, 4, 5)))
    assert Pairs.of(np.ones((3, 1, 5)), np.ones((3, 1, 5))).u.shape == (3, 1, 5)


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


def test_repeat_visits_never_straddle_a_split() -> None:
    group = np.repeat(np.arange(12), 5)[np.random.default_rng(3).permutation(60)]
    data = some(60, group=[f"site {g}" for g in group]).split(0.25, 0.25, seed=3)
    assert data.validation is not None
    parts = [set(np.asarray(part.group)) for part in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [6, 3, 3]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]


def test_equal_inputs_never_straddle_a_split() -> None:
    """Unless they are so few that none could be held out; where all differ, rows are drawn as ever."""
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


def test_parts_that_are_given_stay() -> None:
    data = some(20)
    given = Dataset(data.train[:10], data.train[10:], {"schema": 1, "name": "some"})
    again = given.split(0.2, 0.2)
    np.testing.assert_array_equal(again.test.u, given.test.u)
    assert len(again.train) == 8


def test_batches_are_a_permutation_that_depends_on_seed_and_epoch() -> None:
    pairs = some(23).train
    one, two, other = (list(pairs.batches(5, seed=1, epoch=epoch)) for epoch in (0, 0, 1))
    assert [len(a) for a, _ in one] == [5, 5, 5, 5, 3]
    order = np.concatenate([a[:, 0, 0] for a, _ in one])
    assert set(order) == set(pairs.a[:, 0, 0])
    np.testing.assert_array_equal(order, np.concatenate([a[:, 0, 0] for a, _ in two]))
    assert not np.array_equal(order, np.concatenate([a[:, 0, 0] for a, _ in other]))
    for a, u in one:
        row = np.flatnonzero(pairs.a[:, 0, 0] == a[0, 0, 0])[0]
        np.testing.assert_array_equal(u[0], pairs.u[row])


def test_everything_survives_the_store(tmp_path) -> None:
    rng = np.random.default_rng(4)
    u = rng.standard_normal((9, 2, 7)).astype(np.float32)
    u[3] = np.nan
    dims = (("sample", "x"), ("sample", "channel", "x"))
    pairs = Pairs.of(
        rng.standard_normal((9, 7)),
        u,
        dims=dims,
        scalars=rng.random(9),
        mask="nan",
        group=np.arange(9) // 2,
        coordinates={"x": np.arange(7.0)},
    )
    Dataset(pairs[:6], pairs[6:], {"schema": 1, "name": "mine"}, validation=pairs[4:6]).save(tmp_path / "mine.zarr")
    back = pdno.open(tmp_path / "mine.zarr")
    assert back.validation is not None
    for name in ("a", "u", "mask", "scalars", "group"):
        np.testing.assert_array_equal(getattr(back.train, name), getattr(pairs[:6], name))
        np.testing.assert_array_equal(getattr(back.validation, name), getattr(pairs[4:6], name))
    assert back.train.u.dtype == np.float32
    np.testing.assert_array_equal(back.train.xarray["x"], np.arange(7.0))


def test_selections_are_written_and_read() -> None:
    chosen = Selection("x y", "u[:,-1]", "sample,x:sample,channel,x", test_a="b", test_u="c")
    assert chosen.options() == "--a 'x y' --u 'u[:,-1]' --dims sample,x:sample,channel,x --test-a b --test-u c"
    assert chosen.dims_of("a") == ("sample", "x")
    assert chosen.dims_of("u_eta") == ("sample", "channel", "x")
    assert without_index("g/u[0, :,-1]") == ("g/u", (0, slice(None), -1))
    assert without_index("u[1:3:1]") == ("u", (slice(1, 3, 1),))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pairs.of(np.ones((3, 4)), np.ones((2, 4))), "3 of a, 2 of u"),
        (lambda: Pairs.of(np.ones((3, 4)), np.ones((3, 4)), dims=(("sample", "x", "y"), None)), "3 dimensions were named"),
        (lambda: Pairs.of(np.ones((3, 4)), np.ones((3, 4)), dims=(("x", "y"), None)), "one of them must be 'sample'"),
        (lambda: some(1).split(0.1, 0.0), "too few"),
        (lambda: some(5).split(0.5, 0.5), "something left"),
        (lambda: Selection("a", "u", test_a="b"), "give both or none"),
        (lambda: Selection("a", "u", "x,y").dims_of("a"), "one of them 'sample'"),
        (lambda: Selection("a", "u", "a:b:c").dims_of("a"), "3 parts"),
        (lambda: without_index("u[__import__('os')]"), "whole numbers and colons only"),
        (lambda: without_index("u[:,:::1]"), "not understood"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_fingerprints_tell_inputs_apart() -> None:
    a, p = np.ones((3, 1, 4)), np.array([[1.0], [2.0], [1.0]])
    assert len(set(Pairs.of(a, a).fingerprints())) == 1
    one, two, again = Pairs.of(a, a, scalars=p).fingerprints()
    assert one == again != two
    np.testing.assert_array_equal(Pairs.of(a.astype(np.float32), a).fingerprints(), Pairs.of(a, 2 * a).fingerprints())
    assert len(Pairs.of(a, a)[:0].fingerprints()) == 0
