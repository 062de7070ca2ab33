"""The model as a user meets it: the contract, arrays of every kind, exact laws, presets."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats
from torch import Tensor, nn

import pdno
from pdno import PDNO, Diffusion, Pairs, Schedule, Training, UserError
from pdno.model.paper import PDNO_TESTS
from tests.helpers import TWO, normal, small

STILL = Training(updates=1, batch=2, rate=1e-12, ema=0.0)  # weights stay what they are


class Denoiser(nn.Module):
    """A network that answers E[U_0 | U_n = v] of u | a ~ N(slope·a, s²), with γ of the full chain."""

    def __init__(self, slope: float = 1.0, s: float = 0.0, schedule: Schedule | None = None) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))
        self.slope, self.s = slope, s
        gamma = (Schedule.cosine(100) if schedule is None else schedule).gamma
        self.register_buffer("gamma", torch.as_tensor(gamma, dtype=torch.float32))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        gamma = self.gamma[n].reshape(-1, *(1,) * (v.ndim - 1))
        gain = gamma.sqrt() * self.s**2 / (gamma * self.s**2 + 1 - gamma)
        mean = self.slope * a
        return self.one * (mean + gain * (v - gamma.sqrt() * mean))


def exact(slope: float = 1.0, s: float = 0.0, **settings: Any) -> PDNO:
    return PDNO(Denoiser(slope, s), mean=None, normalise="none", training=STILL, **settings)


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


def test_three_dimensions_take_an_fno() -> None:
    a, u = normal(2, 3, 1, 4, 4, 4)
    model = small(network={"width": 4}, diffusion=Diffusion(Schedule.cosine(2)), training=STILL).fit(a, u)
    assert isinstance(model.network, pdno.nn.FNO)
    assert model.sample(a[:1], steps=1, chunk=1).shape == (1, 1, 1, 4, 4, 4)


def test_torch_gives_what_numpy_gives(data, model) -> None:
    a, u = (torch.from_numpy(v) for v in data)
    again = small().fit(a.requires_grad_(), u, seed=0)
    draws = again.sample(a[:2], members=2, chunk=4)
    assert isinstance(draws, np.ndarray)
    np.testing.assert_array_equal(draws, model.sample(data[0][:2], members=2, chunk=4))


def test_the_type_of_u_is_that_of_predictions(data) -> None:
    a, u = data
    model = small().fit(a, u.astype("f4"))
    assert model.sample(a[:1], chunk=1).dtype == model.predict(a[:1], members=2, chunk=1).mean.dtype == np.float32


def test_double_precision_is_kept(data, tmp_path) -> None:
    model = small().fit(*data, precision="64-true")
    assert next(model.network.parameters()).dtype == torch.float64
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


def test_names_settle_what_shapes_do_not() -> None:
    a, u = normal(2, 5, 8, 8)
    with pytest.raises(UserError, match="more than one way"):
        small().fit(a, u)
    named = [xr.DataArray(v, dims=("sample", "channel", "x")) for v in (a, u)]
    assert small().fit(*named).frame.u_shape == (8, 8)
    assert small().fit(a, u, dims="sample,x,y").frame.u_shape == (1, 8, 8)


def test_scalars_beside_a_field_matter(data) -> None:
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


# Masks


def test_nothing_is_learned_from_masked_outputs(data, tmp_path) -> None:
    a, u = data
    mask = np.random.default_rng(3).random(u.shape) < 0.7
    mask[0] = False  # a whole field
    draws = []
    for masked, how in ((np.nan, "nan"), (np.nan, mask), (1e6, mask), (-7.0, mask)):
        model = small().fit(a, np.where(mask, u, masked), mask=how, run=tmp_path / "run")  # also goes on with the same run
        draws.append(model.sample(a[:2], members=2, chunk=4))
        assert np.isfinite(draws[-1]).all()
    for other in draws[1:]:
        np.testing.assert_array_equal(other, draws[0])


def test_the_denoising_error_is_that_of_known_outputs() -> None:
    class Zero(Denoiser):
        def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
            return 0 * self.one * v

    u, mask = normal(40, 16), np.random.default_rng(4).random((40, 16)) < 0.5
    validation = Pairs.of(u, u, mask=mask)
    model = PDNO(Zero(), mean=None, normalise="none", training=STILL).fit(u, u, validation=validation)
    gamma = Schedule.cosine(100).gamma[1:]
    np.testing.assert_allclose(model.error[1:], gamma / (1 - gamma) * np.mean(u[mask] ** 2), rtol=1e-4)


def test_a_coloured_base_with_masked_outputs_has_the_right_error() -> None:
    """Nothing is denoised: e_n = γ/(1−γ)·‖u‖²/‖ε‖² at the known nodes, and no jump at a hole is amplified."""

    class Zero(Denoiser):
        def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
            return v + 0 * self.one

    u = np.zeros((200, 32))
    mask = np.random.default_rng(4).random((200, 32)) < 0.7
    diffusion = Diffusion(base=pdno.Field(tau=3, r=1), target="u0")
    model = PDNO(Zero(), diffusion, mean=None, normalise="none", training=STILL).fit(u, u, validation=Pairs.of(u, u, mask=mask))
    root = np.sqrt(Schedule.cosine(100).gamma[1:])
    np.testing.assert_allclose(model.error[1:], root**2, rtol=1e-3)


# Members


def test_a_member_does_not_depend_on_what_else_is_asked_for(data, model) -> None:
    a = data[0][:5]
    all_of_them = model.sample(a, members=7, chunk=4)
    np.testing.assert_array_equal(model.sample(a, members=3, chunk=4), all_of_them[:3])
    np.testing.assert_array_equal(model.sample(a[:2], members=7, chunk=4), all_of_them[:, :2])
    np.testing.assert_array_equal(model.sample(a[3:], members=2, chunk=4, first=3), all_of_them[:2, 3:])
    np.testing.assert_array_equal(model.sample(a[4:], members=1, chunk=4, first=4), all_of_them[:1, 4:])
    assert len(np.unique(all_of_them[:, :, 0])) == 35


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_members_agree_at_any_chunk(chunk, data, model) -> None:
    a = data[0][:5]
    expected, draws = (model.sample(a, members=7, chunk=c) for c in (4, chunk))
    assert np.abs(draws - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_prediction_is_the_statistics_of_the_sample(data, model) -> None:
    a = data[0][:3]
    draws = model.sample(a, members=9, seed=5, chunk=4)
    pred = model.predict(a, members=9, seed=5, quantiles=(0.1, 0.5, 1), chunk=4)
    np.testing.assert_allclose(pred.mean, draws.mean(axis=0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pred.std, draws.std(axis=0, ddof=1), rtol=1e-12)
    for level in (0.1, 0.5, 1):
        np.testing.assert_allclose(pred.quantile(level), np.quantile(draws, level, axis=0), rtol=1e-12)
    assert (pred.members, pred.rank_error) == (9, 0)
    later = model.predict(a[2:], members=9, seed=5, quantiles=(), chunk=4, first=2)
    np.testing.assert_allclose(later.mean, pred.mean[2:], rtol=1e-12, atol=1e-14)


def peak(model: PDNO, a: np.ndarray, members: int) -> int:
    """Most bytes that a prediction held at a time."""
    tracemalloc.start()
    model.predict(a, members=members, steps=1, chunk=64)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def test_memory_does_not_grow_with_the_number_of_members() -> None:
    a = normal(20, 16)
    model = exact(s=1.0, variance="gaussian").fit(a, a)
    few = peak(model, a[:1], 100)
    assert peak(model, a[:1], 10_000) < few + 100_000  # the members themselves are 1.3 MB


# Exact laws


def test_an_exact_network_gives_calibrated_members() -> None:
    slope, s, members = 2.0, 0.3, 200
    a = normal(3000, 16)
    model = exact(slope, s).fit(a, slope * a + s * normal(3000, 16, seed=1), validation=0.6)
    a = normal(50, 16, seed=2)
    pred = model.predict(a, members=members, steps=10, chunk=1000)
    values = members * a.size
    scores = (pred.mean - slope * a) / s
    assert abs(scores.mean()) < 4 / np.sqrt(values)
    assert abs(scores.std() * np.sqrt(members) - 1) < 0.1
    assert np.sqrt(np.mean(pred.std**2)) == pytest.approx(s, rel=0.02)
    covered = np.diff(stats.norm.cdf([(pred.quantile(q) - slope * a) / s for q in (0.05, 0.95)]), axis=0).mean()
    assert covered == pytest.approx(0.9 * (members - 1) / (members + 1), abs=0.01)  # as quantiles of so few members have it


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm", "heun"])
def test_every_sampler_finds_a_law_without_spread(sampler) -> None:
    a = normal(20, 16)
    model = exact(variance="noise-free", sampler=sampler).fit(a, a)
    draws = model.sample(a[:3], members=2, steps=12)
    np.testing.assert_allclose(draws, np.broadcast_to(a[:3], draws.shape), atol=1e-4)
    by_name = exact(variance="noise-free").fit(a, a).sample(a[:3], members=2, steps=12, sampler=sampler)
    np.testing.assert_array_equal(by_name, draws)


def test_the_mean_comes_from_one_evaluation() -> None:
    a = normal(20, 16)
    model = exact(2.0, 0.3).fit(a, 2 * a)
    np.testing.assert_allclose(model.mean(a[:3]), 2 * a[:3], atol=1e-3)  # √γ_N of the noise is left
    named = model.mean(xr.DataArray(a[:3], dims=("sample", "x"), coords={"sample": list("abc")}))
    assert named.dims == ("sample", "x")
    assert list(named["sample"].values) == list("abc")


def test_a_model_that_has_learned_starts_anew(data, model) -> None:
    a, u = data
    again = small().fit(normal(6, 1, 8, 8), normal(6, 1, 8, 8)).fit(a, u, seed=0)
    np.testing.assert_array_equal(again.sample(a[:2], chunk=2), model.sample(a[:2], chunk=2))
    own = Denoiser(s=1.0)
    small(network=own, diffusion=Diffusion()).fit(a, u)
    assert own.one.item() == 1  # a copy was trained


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm", "heun"])
def test_a_callback_sees_the_chain_descend(sampler, data, model) -> None:
    seen: list[int] = []

    def note(n: int, v: Tensor) -> None:
        assert v.shape == (2, 1, 16)
        seen.append(n)

    model.sample(data[0][:2], steps=5, sampler=sampler, chunk=2, callback=note)
    assert seen == [10, 8, 6, 4, 2, 0]


def test_a_chain_that_ends_early_keeps_the_spread_of_its_last_step() -> None:
    a = normal(20, 16)
    model = exact(variance="noise-free", t_start=30).fit(a, a)
    gamma, seen = Schedule.cosine(100).gamma[30], []
    draws = model.sample(a[:1], members=400, steps=5, chunk=400, callback=lambda n, v: seen.append(n))
    assert seen[-1] == 30
    misses = (draws - a[:1]) / np.sqrt((1 - gamma) / gamma)
    assert abs(misses.mean()) < 4 / np.sqrt(misses.size)
    assert misses.std() == pytest.approx(1, abs=4 / np.sqrt(2 * misses.size))


# Learning


@pytest.fixture(scope="module")
def noise() -> tuple[PDNO, np.ndarray]:
    """A model that has learned to know outputs that are noise of standard deviation .3 around 5."""
    a, u = normal(600, 16), 5 + 0.3 * normal(600, 16, seed=1)
    loop, diffusion = Training(updates=200, batch=32, rate=3e-3, ema=0.95), Diffusion(Schedule.cosine(20), target="v")
    return small(diffusion=diffusion, training=loop).fit(a, u, validation=0.4, progress=False), a


def test_learned_noise_has_the_right_spread(noise) -> None:
    model, a = noise
    pred = model.predict(a[:6], members=60, chunk=120)
    assert np.sqrt(np.mean(pred.std**2)) == pytest.approx(0.3, rel=0.04)
    assert pred.mean.mean() == pytest.approx(5, abs=0.03)


def test_the_bound_of_the_likelihood_falls_with_training(noise) -> None:
    model, a = noise
    u = 5 + 0.3 * normal(600, 16, seed=3)
    before = small(diffusion=model.diffusion).fit(a, u).nvlb(a[:100], u[:100])
    assert np.isfinite(before)
    after = model.nvlb(a[:400], u[:400])
    assert entropy(0.3) - 0.6 < after < entropy(0.3) + 2  # an upper bound of it, but for 400 fields being few
    assert after < before - 5


def entropy(s: float) -> float:
    """Of N(m, s²) at 16 points: the least that −log of a density can be on average."""
    return 16 * 0.5 * np.log(2 * np.pi * np.e * s**2)


@pytest.mark.parametrize("s", [1.0, 0.3])
def test_the_bound_of_an_exact_network_is_the_entropy(s) -> None:
    a, u = normal(600, 16), normal(600, 16, seed=1)
    model = exact(2.0, s).fit(a, 2 * a + s * u, validation=0.5)
    assert model.nvlb(a, 2 * a + s * u) == pytest.approx(entropy(s), abs=4 * np.sqrt(16 / 2 / 600))


def test_the_bound_is_in_units_of_u(data) -> None:
    a, u = data
    one, ten = (small().fit(a, factor * u).nvlb(a, factor * u) for factor in (1, 10))
    assert ten - one == pytest.approx(16 * np.log(10), abs=1e-3)
    named = xr.DataArray(u.T, dims=("x", "sample"))
    assert small().fit(a, u).nvlb(a, named) == one


def test_training_is_logged_and_validated(model) -> None:
    assert [row["step"] for row in model.history] == [1, 2]
    assert all(np.isfinite(row["validation"]) for row in model.history)
    assert model.provenance["pairs"] == 22  # two of 24 are held out
    assert model.provenance["updates"] == 2


def test_pairs_of_ones_own_for_validation(data) -> None:
    a, u = data
    model = small().fit(a[:20], u[:20], validation=Pairs.of(a[20:], u[20:]))
    assert model.provenance["pairs"] == 20
    assert small(variance="gaussian").fit(a, u, validation=0).provenance["pairs"] == 24
    with pytest.raises(UserError, match="not learned from; hold some out"):
        small().fit(a, u, validation=0)


# The paper


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    ("test", "points", "base", "batch", "schedule", "rate", "falls", "normalised", "parameters"),
    [
        ("elliptic1d", (128,), 32, 50, Schedule.cosine, 1e-4, True, (False, False), 3_980_129),
        ("darcy", (64, 64), 64, 20, Schedule.cosine, 1e-4, True, (True, True), 35_707_841),
        ("burgers", (512,), 32, 32, Schedule.linear, 1e-4, True, (False, False), 3_980_129),
        ("advection", (256,), 32, 20, Schedule.cosine, 8e-5, False, (False, True), 3_980_129),
    ],
)
def test_presets_are_those_of_the_paper(
    test, points, base, batch, schedule, rate, falls, normalised, parameters, noisy
) -> None:
    """Tables `tab:params-test1` to `tab:params-test4`, then two steps of training and one of sampling."""
    model = PDNO.paper(test, noisy)
    assert model.network == {"kind": "unet", "base": base}
    np.testing.assert_array_equal(model.diffusion.schedule.gamma, schedule(100).gamma)
    assert (model.diffusion.target, model.steps, model.sampler) == ("eps", 100, "ancestral")
    assert model.variance == ("gaussian" if noisy else "noise-free")
    assert model.normalise == ("scalar" if normalised[noisy] else "none")
    loop = model.training
    assert (loop.epochs, loop.updates, loop.batch, loop.optimizer, loop.rate) == (1000, None, batch, "adam", rate)
    assert (loop.rate_schedule, loop.halve_every) == ("step" if falls else "constant", 100)
    assert (loop.ema, loop.clip, loop.weight_decay) == (0, 0, 0)
    model.training = replace(loop, batch=2, updates=2)
    a, u = normal(2, 2, 1, *points)
    model.fit(a, u, validation=0, progress=False)
    assert model.network.settings["multipliers"] == [1, 2, 4, 8]
    assert sum(p.numel() for p in model.network.parameters()) == parameters
    draws = model.sample(a[:1], steps=1, chunk=1)
    assert draws.shape == (1, 1, 1, *points)
    assert np.isfinite(draws).all()


def test_a_test_that_the_paper_has_not() -> None:
    assert list(PDNO_TESTS) == ["elliptic1d", "darcy", "burgers", "advection"]
    with pytest.raises(UserError, match=r"the paper has no test 'darci'; did you mean 'darcy'\?"):
        PDNO.paper("darci")


# What users do by and by


def test_a_network_of_ones_own_is_given_again_on_loading(tmp_path, data) -> None:
    a, _ = data
    model = exact(slope=3.0, s=0.1).fit(a, 3 * a)
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(UserError, match=r"a network of your own; give it: pdno\.load"):
        pdno.load(tmp_path / "own.safetensors")
    with pytest.raises(UserError, match="do not fit this network"):
        pdno.load(tmp_path / "own.safetensors", network=nn.Linear(2, 2))
    again = pdno.load(tmp_path / "own.safetensors", network=Denoiser(3.0, 0.1))
    np.testing.assert_array_equal(again.sample(a[:2], members=3), model.sample(a[:2], members=3))


def test_axes_are_matched_by_their_names() -> None:
    a, u = (xr.DataArray(normal(8, 8, 16, seed=s), dims=("sample", "x", "y")) for s in (0, 1))
    straight = small().fit(a, u, dims=None)
    turned = small().fit(a.transpose("sample", "y", "x"), u)
    expected = straight.sample(a[:2], members=2, chunk=4)
    xr.testing.assert_identical(turned.sample(a[:2], members=2, chunk=4), expected)
    xr.testing.assert_identical(straight.sample(a[:2].transpose("y", "sample", "x"), members=2, chunk=4), expected)


def test_a_table_beside_a_field_is_not_guessed() -> None:
    with pytest.raises(UserError, match="a table of parameters"):
        small().fit(normal(8, 3), normal(8, 16))


def test_a_second_fit_starts_anew(data) -> None:
    model = small().fit(*data)
    first = model.sample(data[0][:1], chunk=1)
    np.testing.assert_array_equal(model.fit(*data).sample(data[0][:1], chunk=1), first)


def test_numpy_integers_are_integers(data) -> None:
    model = small(steps=np.int64(3)).fit(*data, seed=np.int64(0))
    np.testing.assert_array_equal(model.sample(data[0][:1]), small(steps=3).fit(*data).sample(data[0][:1]))


def test_validation_may_be_a_pair_of_arrays(data) -> None:
    a, u = data
    pairs = small().fit(a, u, validation=Pairs.of(a[:4], u[:4]))
    np.testing.assert_array_equal(small().fit(a, u, validation=(a[:4], u[:4])).error, pairs.error)


def test_mixed_precision_keeps_single_precision_weights(data) -> None:
    model = small().fit(*data, precision="bf16-mixed")
    assert next(model.network.parameters()).dtype == torch.float32
    np.testing.assert_allclose(model.sample(data[0][:1]), small().fit(*data).sample(data[0][:1]), atol=0.1)


@pytest.mark.parametrize("devices", [0, -1, 1.5])
def test_devices_are_counted(devices, data) -> None:
    with pytest.raises(UserError, match="devices"):
        small().fit(*data, devices=devices)


def test_a_chain_that_stops_early_has_no_mean_and_no_bound(data) -> None:
    model = small(t_start=2).fit(*data)
    for ask in (lambda: model.mean(data[0]), lambda: model.nvlb(*data)):
        with pytest.raises(UserError, match="t_start = 2"):
            ask()


def test_the_mean_is_one_evaluation(data) -> None:
    model = small().fit(*data)
    np.testing.assert_array_equal(model.mean(data[0][:3]), model.sample(data[0][:3], steps=1, sampler="ddim")[0])
