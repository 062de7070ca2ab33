"""The way in and out of a model: grids that differ, scalars, the user's own kind of array, and normalisation."""

import numpy as np
import pytest
import torch
import xarray as xr

from pdno import Pairs, UserError
from pdno.data.spaces import Frame
from pdno.learning.normalisation import Scaling


def frame_of(a: tuple[int, ...], u: tuple[int, ...], scalars: int = 0, **more: object) -> Frame:
    """A frame for a and u of these shapes (channel, *grid)."""
    return Frame(a, u, scalars, axes=tuple("xyz"[: len(u) - 1]), **more)


def linear(*points: int) -> np.ndarray:
    """1 + 2x − 3y … on the unit box with both ends: (1, 1, *points)."""
    mesh = np.meshgrid(*(np.linspace(0, 1, n) for n in points), indexing="ij")
    return (1 + sum(c * x for c, x in zip((2, -3), mesh, strict=False)))[None, None]


# Grids


@pytest.mark.parametrize(("coarse", "fine"), [((9,), (33,)), ((10,), (33,)), ((9, 5), (20, 33)), ((2, 7), (3, 7))])
def test_linear_functions_are_reproduced_on_a_finer_grid(coarse, fine) -> None:
    carried = frame_of((1, *coarse), (1, *fine)).condition(linear(*coarse), None)
    np.testing.assert_allclose(carried, linear(*fine), atol=1e-12)


@pytest.mark.parametrize(("a", "u"), [((33,), (9,)), ((33, 20), (7, 9)), ((9, 20), (33, 7)), ((64,), (2,)), ((1,), (6,))])
def test_constants_are_reproduced_on_any_grid(a, u) -> None:
    carried = frame_of((1, *a), (1, *u)).condition(np.full((2, 1, *a), 3.7), None)
    np.testing.assert_allclose(carried, np.full((2, 1, *u), 3.7), rtol=1e-14)


def test_a_coarser_grid_gets_averages_with_the_weights_of_hats() -> None:
    carried = frame_of((1, 5), (1, 3)).condition(np.array([[[1.0, 10.0, 100.0, 1000.0, 10000.0]]]), None)
    by_hand = [(2 * 1 + 10) / 3, (10 + 2 * 100 + 1000) / 4, (1000 + 2 * 10000) / 3]
    np.testing.assert_allclose(carried[0, 0], by_hand)


def test_averages_take_the_noise_out_that_a_stride_would_keep() -> None:
    noise = np.random.default_rng(0).standard_normal((200, 1, 257))
    assert frame_of((1, 257), (1, 17)).condition(noise, None).std() < 0.35


def test_the_same_grid_is_left_as_it_is() -> None:
    a = np.random.default_rng(1).standard_normal((3, 2, 4, 5))
    np.testing.assert_array_equal(frame_of((2, 4, 5), (1, 4, 5)).condition(a, None), a)


def test_scalars_become_constant_channels_after_those_of_a() -> None:
    a, s = np.random.default_rng(2).standard_normal((3, 1, 6)), np.array([[1.0, -2.0], [3.0, 4.0], [0.0, 7.0]])
    frame = frame_of((1, 6), (1, 6), scalars=2)
    condition = frame.condition(a, s)
    assert condition.shape == (3, frame.channels, 6)
    np.testing.assert_array_equal(condition[:, :1], a)
    np.testing.assert_array_equal(condition[:, 1:], np.repeat(s[:, :, None], 6, axis=2))


# Inputs and outputs


def test_every_way_to_write_an_input_gives_the_same() -> None:
    a = np.random.default_rng(3).standard_normal((4, 5, 6))
    frame = frame_of((1, 5, 6), (1, 5, 6))
    named = xr.DataArray(a.transpose(2, 0, 1), dims=("y", "sample", "x")).transpose("x", "y", "sample")
    stored = xr.DataArray(a[:, None], dims=("sample", "a_channel", "x", "y"))
    for given in (a, a[:, None], torch.from_numpy(a).requires_grad_(), named, stored, a.tolist()):
        np.testing.assert_array_equal(frame.inputs(given)[0], a[:, None])


def test_scalars_alone_and_scalars_of_one_number() -> None:
    s = np.array([[1.0], [2.0]])
    frame = frame_of((1, 4), (1, 4), scalars=1)
    for given in (s, s[:, 0], torch.from_numpy(s), s.astype(int)):
        field, parameters = frame.inputs(None, given)
        np.testing.assert_array_equal(field, np.zeros((2, 1, 4)))
        np.testing.assert_array_equal(parameters, s)
    square = frame_of((1, 4, 4), (1, 4, 4), scalars=1)
    np.testing.assert_array_equal(square.inputs(s)[1], s)  # cannot be fields


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
def test_inputs_that_do_not_fit_are_refused_in_a_sentence(inputs, words) -> None:
    with pytest.raises(UserError, match=words):
        frame_of((1, 6), (1, 6)).inputs(*inputs)


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
def test_scalars_that_do_not_fit_are_refused_in_a_sentence(scalars, words) -> None:
    with pytest.raises(UserError, match=words):
        frame_of((1, 6), (1, 6), scalars=2).inputs(np.ones((2, 6)), scalars)


def test_outputs_are_those_of_the_user() -> None:
    values = np.random.default_rng(4).standard_normal((3, 2, 1, 6))  # member, sample, channel, x
    plain = frame_of((1, 6), (1, 6), channel=False, dtype="float32").outputs(values, np.ones((2, 6)))
    assert plain.dtype == np.float32
    np.testing.assert_array_equal(plain, values[:, :, 0].astype("f4"))
    x, places = np.linspace(-1, 1, 6), ["Bonn", "Köln"]
    frame = frame_of((1, 3), (1, 6), coordinates={"x": x})
    like = xr.DataArray(np.ones((2, 3)), dims=("sample", "x"), coords={"sample": places, "x": [0, 1, 2], "height": 7.0})
    named = frame.outputs(values, like)
    assert named.dims == ("member", "sample", "channel", "x")
    assert list(named["sample"].values) == places
    np.testing.assert_array_equal(named["x"], x)  # those of u, not those of a
    assert frame.outputs(values[0], like).dims == ("sample", "channel", "x")


def test_pairs_make_the_frame_and_json_keeps_it() -> None:
    x = np.linspace(0, 1, 6)
    u = xr.DataArray(np.ones((4, 2, 6), "f4"), dims=("sample", "channel", "x"), coords={"x": x})
    pairs = Pairs.of(np.ones((4, 9)), u, scalars=np.ones((4, 3)))
    frame = Frame.of(pairs)
    assert (frame.a_shape, frame.u_shape, frame.scalars, frame.channels) == ((1, 9), (2, 6), 3, 4)
    assert (frame.axes, frame.dtype) == (("x",), "float32")
    again = Frame.from_json(frame.to_json(), frame.coordinates)
    assert again.to_json() == frame.to_json()
    assert isinstance(again.u_shape, tuple)
    np.testing.assert_array_equal(again.coordinates["x"], x)


def test_inputs_and_outputs_of_different_dimensions_are_refused() -> None:
    pairs = Pairs.of(np.ones((4, 9)), np.ones((4, 1, 5, 5)))
    with pytest.raises(UserError, match="inputs have 1 dimensions and outputs 2"):
        Frame.of(pairs)


# Normalisation


@pytest.fixture
def values() -> np.ndarray:
    """Two channels of very different size on 3 × 4 nodes, (50, 2, 3, 4)."""
    return np.random.default_rng(5).standard_normal((50, 2, 3, 4)) * [[[2.0]], [[100.0]]] + [[[5.0]], [[-3000.0]]]


@pytest.mark.parametrize(("kind", "axes"), [("scalar", (0, 2, 3)), ("pointwise", (0,))])
def test_mean_and_deviation_are_those_of_the_training_set(kind, axes, values, monkeypatch) -> None:
    monkeypatch.setattr("pdno.learning.normalisation.BLOCK_BYTES", 7 * values[:1].nbytes)  # blocks that do not divide 50
    scaling = Scaling.of(values, kind)
    np.testing.assert_allclose(scaling.mean, values.mean(axis=axes, keepdims=True)[0], rtol=1e-12)
    np.testing.assert_allclose(scaling.std, values.std(axis=axes, keepdims=True)[0], rtol=1e-12)


@pytest.mark.parametrize("kind", ["none", "scalar", "pointwise"])
def test_restoring_undoes_normalising(kind, values) -> None:
    scaling = Scaling.of(values, kind)
    np.testing.assert_allclose(scaling.restore(scaling.normalise(values)), values, rtol=1e-13)
    if kind == "none":
        np.testing.assert_array_equal(scaling.normalise(values), values)
    else:
        assert abs(scaling.normalise(values).std() - 1) < 1e-12


@pytest.mark.parametrize("kind", ["scalar", "pointwise"])
@pytest.mark.parametrize("garbage", [1e6, np.nan, np.inf])
def test_masked_values_do_not_count(kind, garbage, values) -> None:
    mask = np.random.default_rng(6).random(values.shape) < 0.7
    scaling = Scaling.of(np.where(mask, values, garbage), kind, mask)
    known = np.ma.masked_array(values, ~mask)
    axes = (0, 2, 3) if kind == "scalar" else (0,)
    np.testing.assert_allclose(scaling.mean, known.mean(axis=axes, keepdims=True)[0], rtol=1e-12)
    np.testing.assert_allclose(scaling.std, known.std(axis=axes, keepdims=True)[0], rtol=1e-12)


def test_nodes_that_never_change_are_scaled_like_the_others(values) -> None:
    values[:, :, 0] = 0.1  # a boundary value, with a mean that is rounded
    scaling = Scaling.of(values, "pointwise")
    moving = scaling.std[:, 1:]
    np.testing.assert_allclose(moving, values[:, :, 1:].std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.std[:, 0], np.sqrt(np.mean(moving**2) * 2 / 3), rtol=1e-12)
    np.testing.assert_allclose(scaling.normalise(values)[:, :, 0], 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["scalar", "pointwise"])
def test_a_field_that_never_changes_is_only_shifted(kind) -> None:
    scaling = Scaling.of(np.full((7, 1, 3), 0.1), kind)
    np.testing.assert_array_equal(scaling.std, np.ones_like(scaling.std))
    np.testing.assert_allclose(scaling.normalise(np.full((1, 1, 3), 0.2)), 0.1, rtol=1e-12)


def test_a_small_deviation_from_a_large_mean_is_one() -> None:
    values = 1e6 + 1e-3 * np.random.default_rng(7).standard_normal((400, 1, 8))
    np.testing.assert_allclose(Scaling.of(values, "scalar").std, values.std(), rtol=1e-6)


def test_a_node_that_is_never_known_stays_finite(values) -> None:
    mask = np.ones(values.shape, dtype=bool)
    mask[:, 1, 2, 3] = False
    scaling = Scaling.of(np.where(mask, values, np.nan), "pointwise", mask)
    assert np.isfinite(scaling.mean).all()
    assert (scaling.std > 0).all()


def test_an_unknown_normalisation_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"normalise 'pointwize' is unknown; did you mean 'pointwise'\?"):
        Scaling.of(np.ones((2, 1, 3)), "pointwize")
