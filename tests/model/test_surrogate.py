"""What all models share, as users meet it: the contract, arrays of every kind, missing outputs, validation pairs."""

import numpy as np
import pytest
import torch
import xarray as xr

import pdno
from pdno import PDNO, Diffusion, Pairs, Schedule, Training, UserError
from tests.helpers import STILL, TWO, ExactDenoiser, normal, small


def network_of(model: PDNO) -> torch.nn.Module:
    """Return the trained network of a diffusion."""
    return model.fitted.residual.networks[0].module


# The contract


def test_fit_predict_sample_save_and_load(tmp_path) -> None:
    eq = pdno.equation.Elliptic1D(points=32)
    data = pdno.generate(eq, train=20, test=3, noise=pdno.noise.Gaussian(0.05), seed=0)
    model = PDNO(mean=None, training=TWO)
    model.fit(data.train.a, data.train.u, seed=0)
    pred = model.predict(data.test.a, members=4, seed=0, quantiles=(0.05, 0.95), chunk=12)
    assert pred.mean.shape == pred.std.shape == pred.quantile(0.05).shape == (3, 1, 32)
    assert (pred.quantile(0.05) <= pred.quantile(0.95)).all()
    draws = model.sample(data.test.a, members=2, seed=0, chunk=6)
    assert draws.shape == (2, 3, 1, 32)
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.sample(data.test.a, members=2, seed=0, chunk=6), draws)
    assert again.settings() == model.settings()
    assert not np.array_equal(again.sample(data.test.a, members=2, seed=1, chunk=6), draws)


def test_a_fit_is_a_function_of_its_seed(data, model) -> None:
    same, other = small().fit(*data, seed=0), small().fit(*data, seed=1)
    a = data[0][:2]
    np.testing.assert_array_equal(same.sample(a, chunk=4), model.sample(a, chunk=4))
    assert not np.array_equal(other.sample(a, chunk=4), model.sample(a, chunk=4))


def test_fitting_again_does_not_depend_on_the_first_fit(data, model) -> None:
    a, u = data
    again = small().fit(normal(6, 1, 8, 8), normal(6, 1, 8, 8)).fit(a, u, seed=0)
    np.testing.assert_array_equal(again.sample(a[:2], chunk=2), model.sample(a[:2], chunk=2))
    own = ExactDenoiser(s=1.0)
    small(network=own, diffusion=Diffusion()).fit(a, u)
    assert own.one.item() == 1  # a copy was trained


def test_fitting_twice_gives_the_same_model(data) -> None:
    model = small().fit(*data)
    first = model.sample(data[0][:1], chunk=1)
    np.testing.assert_array_equal(model.fit(*data).sample(data[0][:1], chunk=1), first)


def test_the_training_log_has_validation_losses(model) -> None:
    assert [row["step"] for row in model.history] == [1, 2]
    assert all(np.isfinite(row["validation"]) for row in model.history)
    assert model.provenance["pairs"] == 22  # two of 24 are held out
    assert model.provenance["updates"] == 2


def test_validation_pairs_of_the_user(data) -> None:
    a, u = data
    model = small().fit(a[:20], u[:20], validation=Pairs.of(a[20:], u[20:]))
    assert model.provenance["pairs"] == 20
    assert small(variance="gaussian").fit(a, u, validation=0).provenance["pairs"] == 24
    with pytest.raises(UserError, match="measured on held-out pairs; got none, pass validation="):
        small().fit(a, u, validation=0)


def test_validation_may_be_a_pair_of_arrays(data) -> None:
    a, u = data
    pairs = small().fit(a, u, validation=Pairs.of(a[:4], u[:4]))
    np.testing.assert_array_equal(small().fit(a, u, validation=(a[:4], u[:4])).law.residual.error, pairs.law.residual.error)


def test_numpy_integers_are_integers(data) -> None:
    model = small(steps=np.int64(3)).fit(*data, seed=np.int64(0))
    np.testing.assert_array_equal(model.sample(data[0][:1]), small(steps=3).fit(*data).sample(data[0][:1]))


def test_mixed_precision_keeps_single_precision_weights(data) -> None:
    model = small().fit(*data, precision="bf16-mixed")
    assert next(network_of(model).parameters()).dtype == torch.float32
    np.testing.assert_allclose(model.sample(data[0][:1]), small().fit(*data).sample(data[0][:1]), atol=0.1)


@pytest.mark.parametrize("devices", [0, -1, 1.5])
def test_the_number_of_devices_is_checked(devices, data) -> None:
    with pytest.raises(UserError, match="devices"):
        small().fit(*data, devices=devices)


# Arrays


@pytest.mark.parametrize(
    ("a", "u", "dims"),
    [
        ((16,), (16,), None),
        ((1, 16), (1, 16), None),
        ((16,), (1, 16), None),
        ((8, 8), (8, 8), "sample,x,y"),
        ((1, 8, 8), (1, 8, 8), None),
        ((3, 16), (2, 16), "sample,channel,x"),
        ((16,), (2, 16), "sample,x:sample,channel,x"),
        ((2, 8, 8), (8, 8), "sample,channel,x,y:sample,x,y"),
        ((16,), (24,), "sample,x:sample,x"),
        ((1, 24), (16,), None),
        ((1, 12, 6), (1, 8, 10), None),
        ((2, 5), (3, 16), "sample,channel,x"),
    ],
)
def test_predictions_have_the_shape_of_u(a, u, dims) -> None:
    inputs = normal(6, *a)
    model = small().fit(inputs, normal(6, *u, seed=1), dims=dims)
    assert model.sample(inputs[:2], members=3, steps=2, chunk=6).shape == (3, 2, *u)
    pred = model.predict(inputs[:1], members=2, steps=1, chunk=2)
    assert pred.mean.shape == pred.std.shape == pred.quantile(0.95).shape == (1, *u)


@pytest.mark.parametrize("points", [(100,), (50, 50), (33, 70)])
def test_the_default_network_works_on_any_grid(points) -> None:
    a, u = normal(2, 3, 1, *points)
    model = small(network="auto", training=Training(updates=1, batch=2)).fit(a, u)
    assert model.sample(a[:1], steps=1, chunk=1).shape == (1, 1, 1, *points)


def test_the_default_network_in_three_dimensions_is_an_fno() -> None:
    a, u = normal(2, 3, 1, 4, 4, 4)
    model = small(network={"width": 4}, diffusion=Diffusion(Schedule.cosine(2)), training=STILL).fit(a, u)
    assert isinstance(network_of(model), pdno.nn.FNO)
    assert model.sample(a[:1], steps=1, chunk=1).shape == (1, 1, 1, 4, 4, 4)


def test_torch_tensors_give_the_same_as_numpy_arrays(data, model) -> None:
    a, u = (torch.from_numpy(v) for v in data)
    again = small().fit(a.requires_grad_(), u, seed=0)
    draws = again.sample(a[:2], members=2, chunk=4)
    assert isinstance(draws, np.ndarray)
    np.testing.assert_array_equal(draws, model.sample(data[0][:2], members=2, chunk=4))


def test_predictions_have_the_type_of_u(data) -> None:
    a, u = data
    model = small().fit(a, u.astype("f4"))
    assert model.sample(a[:1], chunk=1).dtype == model.predict(a[:1], members=2, chunk=1).mean.dtype == np.float32


def test_double_precision_is_kept(data, tmp_path) -> None:
    model = small().fit(*data, precision="64-true")
    assert next(network_of(model).parameters()).dtype == torch.float64
    model.save(tmp_path / "m.safetensors")
    draws = model.sample(data[0][:1], chunk=1)
    np.testing.assert_array_equal(pdno.load(tmp_path / "m.safetensors").sample(data[0][:1], chunk=1), draws)
    assert not np.array_equal(draws, draws.astype("f4"))


def test_xarray_in_gives_xarray_out_with_coordinates(tmp_path) -> None:
    x, year = np.linspace(-1, 1, 16), np.arange(2000, 2010)
    a = xr.DataArray(normal(6, 12), dims=("sample", "x"), coords={"x": np.linspace(0, 9, 12), "sample": list("abcdef")})
    u = xr.DataArray(normal(16, 6, 10, seed=1), dims=("x", "sample", "year"), coords={"x": x, "year": year})
    a = a.expand_dims(year=4).transpose("year", "sample", "x")
    model = small().fit(a, u)
    model.save(tmp_path / "m.safetensors")
    for each in (model, pdno.load(tmp_path / "m.safetensors")):
        draws = each.sample(a.isel(sample=[4, 1]), members=2, steps=1, chunk=4)
        assert draws.dims == ("member", "sample", "x", "year")
        assert draws.shape == (2, 2, 16, 10)
        np.testing.assert_array_equal(draws["x"], x)
        np.testing.assert_array_equal(draws["year"], year)
        assert list(draws["sample"].values) == ["e", "b"]
        mean = each.predict(a.isel(sample=[0]), members=2, steps=1, chunk=2).mean
        assert mean.dims == ("sample", "x", "year")


def test_ambiguous_shapes_need_names() -> None:
    a, u = normal(2, 5, 8, 8)
    with pytest.raises(UserError, match="is ambiguous"):
        small().fit(a, u)
    named = [xr.DataArray(v, dims=("sample", "channel", "x")) for v in (a, u)]
    assert small().fit(*named).spaces.u_shape == (8, 8)
    assert small().fit(a, u, dims="sample,x,y").spaces.u_shape == (1, 8, 8)


def test_axes_are_matched_by_their_names() -> None:
    a, u = (xr.DataArray(normal(8, 8, 16, seed=s), dims=("sample", "x", "y")) for s in (0, 1))
    straight = small().fit(a, u, dims=None)
    turned = small().fit(a.transpose("sample", "y", "x"), u)
    expected = straight.sample(a[:2], members=2, chunk=4)
    xr.testing.assert_identical(turned.sample(a[:2], members=2, chunk=4), expected)
    xr.testing.assert_identical(straight.sample(a[:2].transpose("y", "sample", "x"), members=2, chunk=4), expected)


def test_scalars_beside_a_field(data) -> None:
    a, u = data
    s = normal(24, 2, seed=2)
    model = small(normalise="pointwise").fit(a, u, scalars=s)
    one, two = (model.sample(a[:3], members=2, scalars=s[:3] + shift, chunk=6) for shift in (0, 1))
    assert one.shape == (2, 3, 16)
    assert not np.array_equal(one, two)
    with pytest.raises(UserError, match=r"scalars: got none; this model needs \(sample, 2\)"):
        model.predict(a[:3])


@pytest.mark.parametrize("as_xarray", [False, True])
@pytest.mark.parametrize("points", [(16,), (8, 9)])
def test_scalars_alone(points, as_xarray, tmp_path) -> None:
    s, u = normal(6, 2), normal(6, *points, seed=1)
    dims = ("sample", *"xy"[: len(points)])
    given = xr.DataArray(u, dims=dims).transpose(*dims[1:], "sample") if as_xarray else u
    model = small().fit(None, given, scalars=s, dims=None if as_xarray else ",".join(dims))
    draws = model.sample(None, members=2, scalars=s[:3], chunk=6)
    assert draws.shape == (2, 3, *points)
    assert not np.array_equal(draws[0, 0], model.sample(None, scalars=s[:3] + 1, chunk=6)[0, 0])
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "m.safetensors").sample(None, 2, scalars=s[:3], chunk=6), draws)


def test_a_table_of_parameters_for_fields_in_two_dimensions() -> None:
    s, u = normal(6, 3), normal(6, 1, 8, 8, seed=1)
    positional, named = small().fit(s, u), small().fit(None, u, scalars=s)
    np.testing.assert_array_equal(positional.sample(s[:2], chunk=2), named.sample(None, scalars=s[:2], chunk=2))


def test_a_table_of_inputs_for_fields_in_one_dimension_is_ambiguous() -> None:
    with pytest.raises(UserError, match="a table of parameters"):
        small().fit(normal(8, 3), normal(8, 16))


# Missing outputs


def test_masked_outputs_do_not_change_the_model(data, tmp_path) -> None:
    a, u = data
    mask = np.random.default_rng(3).random(u.shape) < 0.7
    mask[0] = False  # a whole field
    draws = []
    for masked, how in ((np.nan, "nan"), (np.nan, mask), (1e6, mask), (-7.0, mask)):
        model = small().fit(a, np.where(mask, u, masked), mask=how, run=tmp_path / "run")  # the others resume the first run
        draws.append(model.sample(a[:2], members=2, chunk=4))
        assert np.isfinite(draws[-1]).all()
    for other in draws[1:]:
        np.testing.assert_array_equal(other, draws[0])
