"""Spaces of a and u: different grids, scalars, the user's types of arrays, and saving."""

import numpy as np
import pytest
import torch
import xarray as xr

from pdno import Pairs, UserError
from pdno.data.spaces import Spaces
from pdno.grid import Axis, Grid
from pdno.work.checkpoint import load_state, save_state
from pdno.work.state import State


def spaces_of(a: tuple[int, ...], u: tuple[int, ...], scalars: int = 0, **more: object) -> Spaces:
    """Return the spaces of a and u of these shapes (channel, *grid)."""
    return Spaces(a, u, scalars, axes=tuple("xyz"[: len(u) - 1]), **more)


def linear(*points: int) -> np.ndarray:
    """1 + 2x − 3y … on the unit box with both ends: (1, 1, *points)."""
    mesh = np.meshgrid(*(np.linspace(0, 1, n) for n in points), indexing="ij")
    return (1 + sum(c * x for c, x in zip((2, -3), mesh, strict=False)))[None, None]


# Grids


@pytest.mark.parametrize(("coarse", "fine"), [((9,), (33,)), ((10,), (33,)), ((9, 5), (20, 33)), ((2, 7), (3, 7))])
def test_linear_functions_are_reproduced_on_a_finer_grid(coarse, fine) -> None:
    carried = spaces_of((1, *coarse), (1, *fine)).condition(linear(*coarse), None)
    np.testing.assert_allclose(carried, linear(*fine), atol=1e-12)


@pytest.mark.parametrize(("a", "u"), [((33,), (9,)), ((33, 20), (7, 9)), ((9, 20), (33, 7)), ((64,), (2,)), ((1,), (6,))])
def test_constants_are_reproduced_on_any_grid(a, u) -> None:
    carried = spaces_of((1, *a), (1, *u)).condition(np.full((2, 1, *a), 3.7), None)
    np.testing.assert_allclose(carried, np.full((2, 1, *u), 3.7), rtol=1e-14)


def test_a_coarser_grid_gets_averages_with_the_weights_of_hats() -> None:
    carried = spaces_of((1, 5), (1, 3)).condition(np.array([[[1.0, 10.0, 100.0, 1000.0, 10000.0]]]), None)
    by_hand = [(2 * 1 + 10) / 3, (10 + 2 * 100 + 1000) / 4, (1000 + 2 * 10000) / 3]
    np.testing.assert_allclose(carried[0, 0], by_hand)


def test_averages_reduce_noise_that_a_stride_would_keep() -> None:
    noise = np.random.default_rng(0).standard_normal((200, 1, 257))
    assert spaces_of((1, 257), (1, 17)).condition(noise, None).std() < 0.35


def test_the_same_grid_leaves_values_unchanged() -> None:
    a = np.random.default_rng(1).standard_normal((3, 2, 4, 5))
    np.testing.assert_array_equal(spaces_of((2, 4, 5), (1, 4, 5)).condition(a, None), a)


def test_scalars_become_constant_channels_after_those_of_a() -> None:
    a, s = np.random.default_rng(2).standard_normal((3, 1, 6)), np.array([[1.0, -2.0], [3.0, 4.0], [0.0, 7.0]])
    spaces = spaces_of((1, 6), (1, 6), scalars=2)
    condition = spaces.condition(a, s)
    assert condition.shape == (3, spaces.channels, 6)
    np.testing.assert_array_equal(condition[:, :1], a)
    np.testing.assert_array_equal(condition[:, 1:], np.repeat(s[:, :, None], 6, axis=2))


# Inputs and outputs


def test_all_types_of_inputs_give_the_same() -> None:
    a = np.random.default_rng(3).standard_normal((4, 5, 6))
    spaces = spaces_of((1, 5, 6), (1, 5, 6))
    named = xr.DataArray(a.transpose(2, 0, 1), dims=("y", "sample", "x")).transpose("x", "y", "sample")
    stored = xr.DataArray(a[:, None], dims=("sample", "a_channel", "x", "y"))
    for given in (a, a[:, None], torch.from_numpy(a).requires_grad_(), named, stored, a.tolist()):
        np.testing.assert_array_equal(spaces.inputs(given)[0], a[:, None])


def test_scalars_alone_and_scalars_of_one_number() -> None:
    s = np.array([[1.0], [2.0]])
    spaces = spaces_of((1, 4), (1, 4), scalars=1)
    for given in (s, s[:, 0], torch.from_numpy(s), s.astype(int)):
        field, parameters = spaces.inputs(None, given)
        np.testing.assert_array_equal(field, np.zeros((2, 1, 4)))
        np.testing.assert_array_equal(parameters, s)
    square = spaces_of((1, 4, 4), (1, 4, 4), scalars=1)
    np.testing.assert_array_equal(square.inputs(s)[1], s)  # a table cannot be fields on a square


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((np.ones((2, 7)),), r"a has shape \(2, 7\); this model was trained on inputs of shape \(sample, 1, 6\)"),
        ((np.ones((2, 2, 6)),), r"a has shape \(2, 2, 6\)"),
        ((np.ones(6),), r"a has shape \(6,\)"),
        ((np.ones((2, 6)) * 1j,), "a has type complex128; expected real numbers"),
        ((np.full((2, 6), "1"),), "a has type <U1; expected real numbers"),
        ((np.full((2, 6), None),), "a has type object; expected real numbers"),
        ((xr.DataArray(np.ones((2, 6)) * 1j, dims=("sample", "x")),), "a has type complex128"),
        ((xr.DataArray(np.ones((2, 6)), dims=("time", "x")),), "one of them must be 'sample'"),
        ((np.ones((0, 6)),), "there are no inputs"),
        ((None,), "there are no inputs"),
        ((np.full((2, 6), np.nan),), "inputs have NaN or infinite values"),
        ((np.ones((2, 6)), np.ones((2, 1))), r"scalars: got an array of shape \(2, 1\); this model needs none"),
    ],
)
def test_inputs_of_other_shapes_or_types_are_refused(inputs, words) -> None:
    with pytest.raises(UserError, match=words):
        spaces_of((1, 6), (1, 6)).inputs(*inputs)


@pytest.mark.parametrize(
    ("scalars", "words"),
    [
        (None, r"scalars: got none; this model needs \(sample, 2\)"),
        (np.ones((2, 3)), r"scalars: got an array of shape \(2, 3\)"),
        (np.ones((3, 2)), "numbers of samples differ: 2 of a, 3 of scalars"),
        (np.full((2, 2), np.inf), "NaN or infinite"),
        (np.full((2, 2), "x"), "scalars has type <U1"),
    ],
)
def test_scalars_of_other_shapes_or_types_are_refused(scalars, words) -> None:
    with pytest.raises(UserError, match=words):
        spaces_of((1, 6), (1, 6), scalars=2).inputs(np.ones((2, 6)), scalars)


def test_outputs_have_the_layout_of_the_user() -> None:
    values = np.random.default_rng(4).standard_normal((3, 2, 1, 6))  # member, sample, channel, x
    plain = spaces_of((1, 6), (1, 6), channel=False, dtype="float32").outputs(values, np.ones((2, 6)))
    assert plain.dtype == np.float32
    np.testing.assert_array_equal(plain, values[:, :, 0].astype("f4"))
    x, places = np.linspace(-1, 1, 6), ["Bonn", "Köln"]
    spaces = spaces_of((1, 3), (1, 6), coordinates={"x": x})
    like = xr.DataArray(np.ones((2, 3)), dims=("sample", "x"), coords={"sample": places, "x": [0, 1, 2], "height": 7.0})
    named = spaces.outputs(values, like)
    assert named.dims == ("member", "sample", "channel", "x")
    assert list(named["sample"].values) == places
    np.testing.assert_array_equal(named["x"], x)  # those of u, not those of a
    assert spaces.outputs(values[0], like).dims == ("sample", "channel", "x")


def test_spaces_of_pairs() -> None:
    x = np.linspace(0, 1, 6)
    u = xr.DataArray(np.ones((4, 2, 6), "f4"), dims=("sample", "channel", "x"), coords={"x": x})
    pairs = Pairs.of(np.ones((4, 9)), u, scalars=np.ones((4, 3)))
    spaces = Spaces.of(pairs)
    assert (spaces.a_shape, spaces.u_shape, spaces.scalars, spaces.channels) == ((1, 9), (2, 6), 3, 4)
    assert (spaces.axes, spaces.a_axes, spaces.dtype, spaces.kind) == (("x",), ("x",), "float32", ("cell",))
    np.testing.assert_array_equal(spaces.coordinates["x"], x)


def test_files_keep_the_spaces(tmp_path) -> None:
    """Texts as coordinates are not saved."""
    coordinates = {"x": np.linspace(0, 1, 6), "y": np.array(list("abcde"))}
    dims = ("sample", "x", "y")
    pairs = Pairs.of(
        np.ones((4, 6, 5)), np.ones((4, 6, 5)), dims=(dims, dims), coordinates=coordinates, scalars=np.ones((4, 1))
    )
    spaces = Spaces.of(pairs, channel=False, kind=("periodic", "vertex"))
    save_state(tmp_path / "spaces", "spaces", spaces.state())
    again = Spaces.from_state(load_state(tmp_path / "spaces", "spaces"))
    different = {name for name in vars(spaces) if name != "coordinates" and getattr(again, name) != getattr(spaces, name)}
    assert not different
    assert list(again.coordinates) == ["x"]
    np.testing.assert_array_equal(again.coordinates["x"], coordinates["x"])
    assert again.grid == spaces.grid


def test_settings_that_are_missing_or_unknown_are_errors() -> None:
    state = spaces_of((1, 6), (1, 6)).state()
    for settings in ({**state.settings, "surprise": 1}, {k: v for k, v in state.settings.items() if k != "u_shape"}):
        with pytest.raises((KeyError, TypeError)):
            Spaces.from_state(State(settings))


def test_grids_have_the_kinds_and_names_of_the_axes() -> None:
    dims = ("sample", "x", "height")
    pairs = Pairs.of(np.ones((4, 6, 5)), np.ones((4, 12, 9)), dims=(dims, dims))
    spaces = Spaces.of(pairs, kind=["periodic", "vertex"])
    assert spaces.kind == ("periodic", "vertex")
    assert spaces.grid == Grid((Axis(12, "periodic", name="x"), Axis(9, "vertex", name="height")))
    assert spaces.a_grid == Grid((Axis(6, "periodic", name="x"), Axis(5, "vertex", name="height")))
    assert spaces.grid is spaces.grid  # computed once
    assert Spaces.of(pairs, kind="left").kind == ("left", "left")
    assert Spaces((1, 8, 8), (1, 8, 8)).grid == Grid.uniform(8, dim=2, kind="cell")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (("cell", "cell"), r"got 2 kinds of axes \(cell, cell\) for a grid of 1; give one for all or one each"),
        ((), r"got 0 kinds of axes"),
        ("cel", "grid kind 'cel' is unknown; did you mean 'cell'"),
        (("vertec",), "grid kind 'vertec' is unknown; did you mean 'vertex'"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(kind, words) -> None:
    with pytest.raises(UserError, match=words):
        Spaces.of(Pairs.of(np.ones((4, 9)), np.ones((4, 9))), kind=kind)


def test_inputs_of_another_dimension_stay_on_their_own_grid() -> None:
    pairs = Pairs.of(a := np.random.default_rng(6).standard_normal((4, 1, 9)), np.ones((4, 1, 5, 5)), scalars=np.arange(4.0))
    spaces = Spaces.of(pairs, kind="periodic")
    assert not spaces.same_dimension
    assert spaces.a_grid == Grid((Axis(9, "periodic"),))
    condition = spaces.condition(a, pairs.scalars)
    np.testing.assert_array_equal(condition[:, :1], a)
    np.testing.assert_array_equal(condition[:, 1], np.repeat(np.arange(4.0)[:, None], 9, axis=1))
