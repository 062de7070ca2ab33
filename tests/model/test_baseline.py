"""Deterministic baselines behind the protocol of models: predictions, symmetries, saving, mistakes."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import Training, UserError
from pdno.grid import Grid
from pdno.mean import Kernel, Linear, LowFidelity, Network, mean_of
from pdno.model.baseline import FNO, Deterministic, UNet
from pdno.model.surrogate import Surrogate
from pdno.symmetry import group

POINTS = 16
LOOP = Training(updates=4, batch=4, rate=1e-2, ema=0.0)
SLIM = {"kind": "slim", "widths": [8, 16], "blocks": 1}
MAKERS: dict[str, Callable[..., Surrogate]] = {
    "linear": lambda **more: Deterministic("linear", **more),
    "kernel": lambda **more: Deterministic("kernel", **more),
    "unet": lambda **more: UNet(SLIM, training=LOOP, **more),
    "fno": lambda **more: FNO({"kind": "fno", "modes": 3, "width": 12}, training=LOOP, **more),
}
CLOSED_FORM, NETWORKS = ("linear", "kernel"), ("unet", "fno")
each_baseline = pytest.mark.parametrize("baseline", MAKERS)


def inputs(samples: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, *(shape or (POINTS,))))


def operator(a: np.ndarray) -> np.ndarray:
    return 1 + np.cumsum(a, axis=-1) / 4 + 0.1 * np.tanh(a)


@pytest.fixture(scope="module")
def learned() -> Callable[[str], Surrogate]:
    """Return each baseline, trained once."""
    cache: dict[str, Surrogate] = {}

    def get(baseline: str) -> Surrogate:
        if baseline not in cache:
            cache[baseline] = MAKERS[baseline]().fit(inputs(40), operator(inputs(40)), progress=False)
        return cache[baseline]

    return get


def same(x: object, y: object) -> bool:
    return bool(np.array_equal(np.asarray(x), np.asarray(y)))


# Predictions


@each_baseline
def test_shapes(learned, baseline) -> None:
    model, new = learned(baseline), inputs(5, seed=1)
    assert model.sample(new, members=3).shape == (3, 5, POINTS)
    predicted = model.predict(new, members=3, quantiles=(0.1, 0.5), progress=False)
    assert predicted.mean.shape == predicted.std.shape == predicted.quantile(0.1).shape == (5, POINTS)
    assert predicted.members == 3
    assert predicted.novelty.shape == (5,)


@each_baseline
def test_channels_are_kept(baseline) -> None:
    a, u = inputs(12, 2, POINTS), inputs(12, 3, POINTS, seed=1)
    model = MAKERS[baseline]().fit(a, u, dims="sample,channel,x", progress=False)
    assert model.sample(a[:4], members=2).shape == (2, 4, 3, POINTS)
    assert model.predict(a[:4], progress=False).mean.shape == (4, 3, POINTS)


@each_baseline
def test_members_have_no_spread(learned, baseline) -> None:
    model, new = learned(baseline), inputs(5, seed=1)
    draws = model.sample(new, members=4, chunk=1)
    assert all(same(member, draws[0]) for member in draws)
    predicted = model.predict(new, members=50, chunk=1, progress=False)
    assert not predicted.std.any()
    np.testing.assert_allclose(predicted.mean, draws[0], rtol=1e-12)
    for level in (0.05, 0.95):
        np.testing.assert_allclose(predicted.quantile(level), draws[0], rtol=1e-12)


@each_baseline
def test_predictions_are_deterministic(learned, baseline) -> None:
    """They depend neither on the seed nor on the number of an input."""
    model, new = learned(baseline), inputs(5, seed=1)
    once = model.sample(new)
    assert same(once, model.sample(new, seed=9, first=100))
    assert not np.isclose(once[0, 0], once[0, 1]).all()


@each_baseline
def test_fitting_again_gives_the_same(learned, baseline) -> None:
    again = MAKERS[baseline]().fit(inputs(40), operator(inputs(40)), progress=False)
    assert same(again.sample(inputs(5, seed=1)), learned(baseline).sample(inputs(5, seed=1)))


def test_a_linear_operator_is_recovered_exactly() -> None:
    a, new = inputs(60), inputs(5, seed=1)
    matrix = inputs(POINTS, seed=2)
    predicted = Deterministic().fit(a, 2 + a @ matrix, progress=False).predict(new, progress=False)
    np.testing.assert_allclose(predicted.mean, 2 + new @ matrix, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("baseline", "mean"), [("linear", Linear), ("kernel", Kernel)])
def test_predictions_are_those_of_the_mean(baseline, mean) -> None:
    """The mean is trained on the pairs that are not held out."""
    a, u, new = inputs(30), operator(inputs(30)), inputs(5, seed=1)
    expected = mean().fit(a[:, None], u[:, None])(new[:, None])
    validation = (inputs(9, seed=3), inputs(9, seed=4))
    for held_out in (0.0, validation):
        model = Deterministic(baseline).fit(a, u, validation=held_out, progress=False)
        np.testing.assert_allclose(model.sample(new)[0], expected[:, 0], rtol=1e-10, atol=1e-12)
    other = Deterministic(baseline).fit(a, u, validation=0.5, progress=False).sample(new)[0]
    assert np.abs(other - expected[:, 0]).max() > 1e-3


@pytest.mark.parametrize("baseline", NETWORKS)
def test_networks_predict_the_same_as_a_network_mean(baseline) -> None:
    a, u, new = inputs(12), operator(inputs(12)), inputs(5, seed=1)
    model = MAKERS[baseline]().fit(a, u, validation=0.0, progress=False)
    mean = Network(model.network, training=LOOP).fit(a[:, None], u[:, None])
    assert same(model.sample(new)[0], mean(new[:, None])[:, 0])
    assert model.parameters == mean.parameters


@pytest.mark.parametrize("mean", [{"name": "kernel", "kernel": "rq"}, Kernel("rq")], ids=["settings", "instance"])
def test_a_mean_may_be_settings_or_an_instance(mean) -> None:
    model = Deterministic(mean).fit(inputs(20), operator(inputs(20)), progress=False)
    assert model.law.mean.hyper.kernel == "rq"
    assert model.law.mean is not mean
    assert model.method == "kernel"


@each_baseline
def test_scalars_are_used(baseline, tmp_path) -> None:
    """u = (3 + s) times a profile, where s is the scalar; fields are noise."""
    a, s = inputs(60), inputs(60, 1, seed=1)
    profile = np.sin(np.linspace(0, 3, POINTS))
    model = MAKERS[baseline]()
    model.training = Training(updates=150, batch=20, rate=1e-2, ema=0.0)
    model.fit(a, (3 + s) * profile, scalars=s, progress=False)
    new, values = inputs(20, seed=2), inputs(20, 1, seed=3)
    error = model.predict(new, scalars=values, progress=False).mean - (3 + values) * profile
    assert np.sqrt(np.square(error).mean()) < 0.3 * np.sqrt(np.square(values * profile).mean())
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    assert same(again.sample(new, scalars=values), model.sample(new, scalars=values))
    with pytest.raises(UserError, match=r"scalars: got none; this model needs \(sample, 1\)"):
        model.sample(new)


def test_scalars_alone_are_enough() -> None:
    s, profile = inputs(30, 2), inputs(2, 5, 6, seed=1)
    model = Deterministic().fit(None, np.tensordot(s, profile, axes=1), scalars=s, dims="sample,x,y", progress=False)
    new = inputs(4, 2, seed=2)
    np.testing.assert_allclose(model.sample(None, scalars=new)[0], np.tensordot(new, profile, axes=1), atol=1e-8)


@each_baseline
def test_xarray_in_gives_xarray_out(learned, baseline) -> None:
    place = np.linspace(-1, 1, POINTS)
    a, u, new = (
        xr.DataArray(x, dims=("sample", "place"), coords={"place": place})
        for x in (inputs(40), operator(inputs(40)), inputs(5, seed=1))
    )
    new = new.assign_coords(sample=[3, 1, 4, 15, 9])
    model = MAKERS[baseline]().fit(a, u, progress=False)
    draws, predicted = model.sample(new, members=2), model.predict(new, progress=False)
    assert draws.dims == ("member", "sample", "place")
    assert predicted.mean.dims == predicted.std.dims == ("sample", "place")
    np.testing.assert_array_equal(predicted.mean["sample"], [3, 1, 4, 15, 9])
    np.testing.assert_array_equal(predicted.mean["place"], place)
    plain = learned(baseline).sample(new.values, members=2)  # which learned from the same numbers
    assert isinstance(plain, np.ndarray)
    assert same(draws, plain)


# Symmetries


@each_baseline
def test_symmetries_make_predictions_equivariant(baseline, tmp_path) -> None:
    """For new inputs, before and after the model is saved; the kind of the axes defines the reflection."""
    elements = group("odd-reflection", Grid.uniform(POINTS, kind="periodic"))
    a, new = inputs(20), inputs(4, seed=1)[:, None]
    model = MAKERS[baseline](symmetries="odd-reflection", kind="periodic").fit(a, a + a**3 / 10, progress=False)
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    assert again.settings() == model.settings()
    for each in (model, again):
        gap = np.abs(each.sample(elements[1].on_a(new))[0] - elements[1].on_u(each.sample(new)[0][:, None])[:, 0]).max()
        assert gap < 1e-10 if baseline != "linear" else gap > 1e-3  # which has no symmetries


def test_symmetries_are_passed_to_a_kernel() -> None:
    a = inputs(12, 6, 6)
    model = Deterministic("kernel", symmetries="square", kind=["cell", "cell"]).fit(
        a, np.sin(a), dims="sample,x,y", progress=False
    )
    kernel = model.law.mean
    assert isinstance(kernel, Kernel)
    assert (kernel.symmetries, kernel.kind) == (("square",), ("cell", "cell"))
    assert "symmetric copies (8)" in kernel.describe()


def test_own_maps_are_used_but_not_saved(tmp_path) -> None:
    a, new = inputs(20), inputs(4, seed=1)
    model = Deterministic("kernel", symmetries=[(np.negative, np.negative)])
    for _ in range(2):  # also a second time
        model.fit(a, np.sinh(a), progress=False)
        np.testing.assert_allclose(model.sample(-new), -model.sample(new), atol=1e-10)
    with pytest.raises(UserError, match="custom maps among the symmetries are code"):
        model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


# Saving


@each_baseline
def test_a_saved_baseline_predicts_bitwise_the_same(learned, baseline, tmp_path) -> None:
    model, new = learned(baseline), inputs(5, seed=1)
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    assert type(again) is type(model)
    assert same(again.sample(new, members=2), model.sample(new, members=2))
    ours, theirs = (each.predict(new, progress=False) for each in (model, again))
    for name in ("mean", "std", "novelty"):
        assert same(getattr(ours, name), getattr(theirs, name))
    facts = [(each.method, each.settings(), each.parameters, each.provenance) for each in (model, again)]
    assert facts[0] == facts[1]
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "mean",
    [{"name": "sum", "parts": ["linear", {"name": "kernel", "kernel": "rq"}]}, Network(SLIM, "reflection", training=LOOP)],
    ids=["sum", "network"],
)
def test_other_means_are_saved(mean, tmp_path) -> None:
    model = Deterministic(mean).fit(inputs(20), operator(inputs(20)), progress=False)
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    assert same(again.sample(inputs(5, seed=1)), model.sample(inputs(5, seed=1)))
    assert again.method == model.method == mean_of(mean).name


def test_a_mean_with_code_of_the_user_is_passed_to_load(tmp_path) -> None:
    model = Deterministic(LowFidelity(np.sin)).fit(inputs(20), np.sin(inputs(20)), progress=False)
    assert model.method == "lowfidelity"
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"cannot be loaded: the file has a mean 'lowfidelity' of your own; pass its class"):
        pdno.load(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors", mean=lambda state: LowFidelity.from_state(state, np.sin))
    assert same(again.sample(inputs(5, seed=1)), model.sample(inputs(5, seed=1)))


@each_baseline
def test_the_name_of_the_method(learned, baseline) -> None:
    model = learned(baseline)
    assert model.method == baseline
    if baseline in CLOSED_FORM:
        assert (model.name, model.settings()["mean"]) == ("deterministic", baseline)
        with pytest.raises(UserError, match="has not been fitted"):
            _ = Deterministic(baseline).method
    else:
        (network,) = model.law.mean.networks
        assert network.settings["kind"] == model.settings()["network"]["kind"] == {"unet": "slim", "fno": "fno"}[baseline]


@pytest.mark.parametrize("baseline", NETWORKS)
def test_the_training_log_of_networks_is_kept(learned, baseline) -> None:
    assert [row["step"] for row in learned(baseline).history] == [1, 2, 3, 4]
    assert all(np.isfinite(row["validation"]) for row in learned(baseline).history)


@each_baseline
def test_parameters_and_evaluations_are_counted(learned, baseline) -> None:
    model = learned(baseline)
    if baseline in CLOSED_FORM:
        assert model.parameters == sum(np.size(values) for values in model.law.mean.state().arrays.values()) > POINTS
        assert (model.evaluations(), model.provenance["updates"]) == (0, 0)
    else:
        assert model.parameters == sum(p.numel() for p in model.law.mean.networks[0].module.parameters())
        assert (model.evaluations(), model.provenance["updates"]) == (1, 4)
    assert model.provenance["pairs"] == 36  # a tenth is held out
    assert model.deterministic


def test_a_slim_network_is_the_default_unet() -> None:
    a = inputs(4, 1, 8, 8)
    model = UNet(training=Training(updates=1, batch=2)).fit(a, a, progress=False)
    assert model.parameters == 2_152_916
    assert model.sample(a[:1]).shape == (1, 1, 1, 8, 8)


# Mistakes


@each_baseline
@pytest.mark.parametrize("sampling", [{"steps": 3}, {"sampler": "ddim"}])
def test_settings_of_a_sampler_are_refused(learned, baseline, sampling) -> None:
    message = f"the law 'exact' has no sampler and no setting '{next(iter(sampling))}'; omit it"
    with pytest.raises(UserError, match=message):
        learned(baseline).sample(inputs(2), **sampling)
    with pytest.raises(UserError, match=message):
        learned(baseline).predict(inputs(2), progress=False, **sampling)


@pytest.mark.parametrize("baseline", CLOSED_FORM)
def test_missing_outputs_are_completed(baseline) -> None:
    a, u = inputs(20), operator(inputs(20))
    missing = u.copy()
    missing[3, 5] = np.nan
    assert np.isfinite(Deterministic(baseline).fit(a, missing, mask="nan", progress=False).sample(a[:2])).all()
    full = Deterministic(baseline).fit(a, u, mask="nan", progress=False)  # a mask of observed values only
    assert same(full.sample(a[:2]), Deterministic(baseline).fit(a, u, progress=False).sample(a[:2]))
    UNet(SLIM, training=LOOP).fit(a, missing, mask="nan", progress=False)


def test_a_fit_that_fails_leaves_the_model_unfitted() -> None:
    a, u = inputs(20), operator(inputs(20))
    model = Deterministic(pdno.mean.Linear(log=True)).fit(np.exp(a), u, progress=False)
    with pytest.raises(UserError, match="log = True"):
        model.fit(a, u, progress=False)
    with pytest.raises(UserError, match="has not been fitted"):
        model.sample(a)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Deterministic("liner"), r"mean 'liner' is unknown; did you mean 'linear'\?"),
        (Deterministic("auto"), "mean 'auto' is unknown; expected one of constant, linear"),
        (Deterministic(3), "mean = 3: expected a name"),
        (Deterministic({"name": "kernel", "lenght": 1}), "the mean 'kernel' does not take these settings"),
        (Deterministic("kernel", symmetries="translation"), "symmetry 'translation' needs a periodic axis"),
        (UNet({"kind": "slim", "modes": 3}, training=LOOP), "the network 'slim' does not take these settings"),
    ],
)
def test_wrong_settings_are_refused(model, message) -> None:
    with pytest.raises(UserError, match=message):
        model.fit(inputs(12), inputs(12), progress=False)


@each_baseline
def test_inputs_of_another_shape_are_refused(learned, baseline) -> None:
    with pytest.raises(UserError, match=r"a has shape \(2, 2, 16\); this model was trained on inputs of shape"):
        learned(baseline).sample(np.ones((2, 2, 16)))
    with pytest.raises(UserError, match="has not been fitted"):
        MAKERS[baseline]().sample(inputs(2))
