"""Pairs from any type of array, batches, labels, and the store."""

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


def test_ambiguous_shapes_are_refused() -> None:
    with pytest.raises(UserError, match="is ambiguous; give --dims sample,x,y or sample,channel,x"):
        Pairs.of(np.ones((3, 4, 5)), np.ones((3, 4, 5)))
    assert Pairs.of(np.ones((3, 1, 5)), np.ones((3, 1, 5))).u.shape == (3, 1, 5)


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
        (lambda: Selection("a", "u", test_a="b"), "give both or none"),
        (lambda: Selection("a", "u", "x,y").dims_of("a"), "one of them 'sample'"),
        (lambda: Selection("a", "u", "a:b:c").dims_of("a"), "3 parts"),
        (lambda: without_index("u[__import__('os')]"), "whole numbers and colons only"),
        (lambda: without_index("u[:,:::1]"), "is invalid"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_missing_outputs_are_filled_with_zeros() -> None:
    u = np.arange(12.0).reshape(3, 1, 4)
    u[1, 0, 2] = np.nan
    pairs = Pairs.of(np.ones((3, 4)), u, mask="nan")
    np.testing.assert_array_equal(pairs.filled, np.where(np.isnan(u), 0.0, u))
    np.testing.assert_array_equal(pairs[:1].filled, u[:1])
    plain = Pairs.of(np.ones((3, 4)), np.ones((3, 4), "f4"))
    assert plain.filled.dtype == np.float32
    np.testing.assert_array_equal(plain.filled, plain.u)


def test_pairs_with_other_outputs() -> None:
    rng = np.random.default_rng(5)
    a, u, eta, s = rng.random((4, 8)), rng.random((4, 8)), rng.random((4, 8)), rng.random((4, 2))
    x = np.linspace(0, 1, 8)
    pairs = Pairs.of(a, u, u_eta=eta, scalars=s, group=[0, 0, 1, 1], coordinates={"x": x})
    other = pairs.with_outputs(2 * pairs.u)
    np.testing.assert_array_equal(other.u[:, 0], 2 * u)
    np.testing.assert_array_equal(pairs.u[:, 0], u)  # unchanged
    assert other.u_eta is None
    assert pairs.u_eta is not None
    for name in ("a", "scalars", "group"):
        np.testing.assert_array_equal(getattr(other, name), getattr(pairs, name))
    np.testing.assert_array_equal(other.xarray["x"], x)
    assert other.xarray["u"].dims == pairs.xarray["u"].dims


def test_labels_are_equal_for_pairs_of_a_group_or_of_equal_inputs() -> None:
    a, u = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), np.arange(6.0).reshape(3, 2)
    one, two, again = Pairs.of(a, u).labels()
    assert one == again != two
    np.testing.assert_array_equal(Pairs.of(a, u, group=["b", "a", "a"]).labels(), [1, 0, 0])  # groups take precedence
    np.testing.assert_array_equal(np.sort(Pairs.of(u, a).labels()), [0, 1, 2])
    assert len(Pairs.of(a, u)[:0].labels()) == 0


def test_independent_pairs_have_no_shared_labels() -> None:
    a, u = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), np.arange(6.0).reshape(3, 2)
    assert Pairs.of(u, a).shared_labels() is None
    pairs = Pairs.of(a, u)
    np.testing.assert_array_equal(pairs.shared_labels(), pairs.labels())


def test_fingerprints_distinguish_inputs() -> None:
    a, p = np.ones((3, 1, 4)), np.array([[1.0], [2.0], [1.0]])
    assert len(set(Pairs.of(a, a).fingerprints())) == 1
    one, two, again = Pairs.of(a, a, scalars=p).fingerprints()
    assert one == again != two
    np.testing.assert_array_equal(Pairs.of(a.astype(np.float32), a).fingerprints(), Pairs.of(a, 2 * a).fingerprints())
    assert len(Pairs.of(a, a)[:0].fingerprints()) == 0
