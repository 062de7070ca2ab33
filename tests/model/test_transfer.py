"""Predictions on other meshes: exact where a closed form exists."""

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.mean import Mean
from pdno.mean.base import AnyGrid, pairs_of
from pdno.model.baseline import Deterministic
from pdno.model.law import Law
from pdno.model.prediction import predict
from pdno.model.transfer import Transfer
from pdno.residual import Exact
from pdno.residual.law import Inputs

K = 5  # highest wavenumber of the inputs
TRAINED = 32  # points


def waves(points: int, count: int = 12, seed: int = 0) -> np.ndarray:
    """Return band-limited functions on the periodic interval, (count, 1, points)."""
    z = np.random.default_rng(seed).normal(size=(count, 2 * K + 1))
    angle = 2 * np.pi * np.outer(np.arange(1, K + 1), np.arange(points) / points)
    return (z @ np.concatenate([np.ones((1, points)), np.cos(angle), np.sin(angle)]))[:, None]


def heat(a: np.ndarray, t: float = 0.003) -> np.ndarray:
    """Return exp(t d²/dx²) a, which is diagonal in modes."""
    k = 2 * np.pi * np.fft.rfftfreq(a.shape[-1], 1 / a.shape[-1])
    return np.fft.irfft(np.exp(-t * k**2) * np.fft.rfft(a), a.shape[-1])


def gaussian(noise: np.ndarray, seed: int = 1):
    """Return a model with a linear mean and Gaussian residuals, of the heat equation with this noise."""
    a = waves(TRAINED, len(noise), seed)
    model = pdno.PDNO(mean="linear", law="gaussian", kind="periodic")
    return model.fit(a, heat(a) + noise, seed=0, progress=False)


@pytest.fixture(scope="module")
def exact():
    a = waves(TRAINED, 60, seed=1)
    return Deterministic("linear", kind="periodic").fit(a, heat(a), seed=0, progress=False)


@pytest.fixture(scope="module")
def white():
    """Return a model of white noise with standard deviation 0.1."""
    return gaussian(0.1 * np.random.default_rng(2).normal(size=(200, 1, TRAINED)))


@pytest.fixture(scope="module")
def smooth():
    """Return a model of smooth noise: three wavelengths, with standard deviation 0.1."""
    z, x = np.random.default_rng(3).normal(size=(200, 1, 2, 3)), np.arange(TRAINED) / TRAINED
    angle = 2 * np.pi * np.outer([1, 2, 3], x)
    return gaussian(0.1 / np.sqrt(3) * (z[:, :, 0] @ np.cos(angle) + z[:, :, 1] @ np.sin(angle)))


@pytest.mark.parametrize("points", [16, 17, 50, 64, 97, 512])
def test_a_linear_map_of_band_limited_functions_transfers_to_rounding(exact, points) -> None:
    on_training = np.abs(exact.predict(waves(TRAINED)).mean - heat(waves(TRAINED))).max()
    prediction = exact.predict(waves(points))
    assert prediction.mean.shape == (12, 1, points)
    np.testing.assert_allclose(prediction.mean, heat(waves(points)), atol=1e-10 + 3 * on_training)
    assert prediction.notes == (f"Trained on a grid of 32, predicted on {points}: predictions are interpolated.",)


def test_outputs_have_the_points_that_are_asked_for(exact) -> None:
    of_coarse = exact.predict(waves(20), points=48).mean
    np.testing.assert_allclose(of_coarse, heat(waves(48)), atol=1e-6)
    np.testing.assert_allclose(exact.predict(waves(TRAINED), points=48).mean, of_coarse, atol=1e-6)
    assert exact.sample(waves(20), points=(48,)).shape == (1, 12, 1, 48)
    assert exact.predict(waves(TRAINED)).notes == ()


def test_a_rectangle_with_odd_sides() -> None:
    def field(x: int, y: int) -> np.ndarray:
        return np.einsum("ncx,ncy->ncxy", waves(x, 80, 4), waves(y, 80, 5))

    model = Deterministic("linear", kind="periodic").fit(field(16, 16), 2 * field(16, 16), seed=0, progress=False)
    on_training = np.abs(model.predict(field(16, 16)).mean - 2 * field(16, 16)).max()
    np.testing.assert_allclose(model.predict(field(17, 24)).mean, 2 * field(17, 24), atol=1e-9 + 5 * on_training)


def test_members_are_one_function_on_all_meshes(smooth) -> None:
    members = {n: smooth.sample(waves(n), 3, seed=7) for n in (TRAINED, 48, 64, 128)}
    np.testing.assert_allclose(members[64][..., ::2], members[TRAINED], atol=1e-9)
    np.testing.assert_allclose(members[128][..., ::2], members[64], atol=1e-9)
    np.testing.assert_allclose(members[48][..., ::3], members[128][..., ::8], atol=1e-9)
    assert not smooth.law.transfer.white.exists


def test_smooth_noise_keeps_std_and_correlation_across_a_factor_of_eight(smooth) -> None:
    def moments(points: int) -> tuple[float, float]:
        r = smooth.sample(waves(points, 1), 400, seed=1)[:, 0, 0] - smooth.mean(waves(points, 1))[0, 0]
        return float(r.std()), float(np.mean(r * np.roll(r, points // 16, axis=1)) / r.var())

    np.testing.assert_allclose(moments(16), moments(128), rtol=0.02)
    assert moments(128)[0] == pytest.approx(0.1, rel=0.1)


def test_white_noise_keeps_its_std_and_stays_white(white) -> None:
    for points in (24, 64, 256):
        r = white.sample(waves(points, 1), 400, seed=1)[:, 0, 0] - white.mean(waves(points, 1))[0, 0]
        assert r.std(axis=0).min() > 0.08
        assert r.std() == pytest.approx(0.1, rel=0.05)
        assert abs(np.mean(r * np.roll(r, 1, axis=1)) / r.var()) < 0.05  # 400·24 products: five standard errors
        assert r.mean(axis=1).std() == pytest.approx(0.1 / np.sqrt(points), rel=0.2)
    assert white.law.transfer.white.share.min() == 1
    assert "White noise has the standard deviation of training at every node" in white.predict(waves(64), 2).notes[1]


def test_white_noise_is_nested_in_the_grid(white) -> None:
    a = {n: waves(n, 2) for n in (TRAINED, 64, 128)}
    noise = {n: white.sample(x, 3, seed=7) - white.mean(x) for n, x in a.items()}
    np.testing.assert_allclose(noise[64][..., ::2], noise[TRAINED], atol=1e-9)
    np.testing.assert_allclose(noise[128][..., ::2], noise[64], atol=1e-9)
    later = white.sample(a[64][1:], 3, seed=7, first=1) - white.mean(a[64][1:])
    np.testing.assert_allclose(later, noise[64][:, 1:], atol=1e-9)
    assert np.abs(white.sample(a[64], 1, seed=8) - white.mean(a[64]) - noise[64][:1]).max() > 0.1


def test_white_noise_beside_a_smooth_part() -> None:
    rng, x = np.random.default_rng(5), np.arange(TRAINED) / TRAINED
    model = gaussian(0.3 * rng.normal(size=(300, 1, 1)) * np.sin(2 * np.pi * x) + 0.1 * rng.normal(size=(300, 1, TRAINED)))
    neighbours, along = {}, {}
    for points in (TRAINED, 256):
        r = model.sample(waves(points, 1), 1000, seed=1)[:, 0, 0] - model.mean(waves(points, 1))[0, 0]
        neighbours[points] = float(np.sqrt(np.mean((r - np.roll(r, 1, axis=1)) ** 2) / 2))
        along[points] = float((r @ np.sin(2 * np.pi * np.arange(points) / points) * 2 / points).std())
    assert neighbours[256] == pytest.approx(0.1, rel=0.1)  # of neighbours that are eight times closer
    assert along[256] == pytest.approx(along[TRAINED], rel=0.05)


def test_aleatoric_std_and_novelty_are_those_of_the_same_function(smooth) -> None:
    here, there = smooth.predict(waves(TRAINED), 4), smooth.predict(waves(96), 4)
    np.testing.assert_allclose(there.novelty, here.novelty, rtol=1e-6)
    np.testing.assert_allclose(there.std[..., ::3], here.std, atol=1e-9)


class Operator(Mean, AnyGrid):
    """The exact operator, with an error on the grid of training, and another one on others."""

    any_grid = True

    def __init__(self, here: float, there: float) -> None:
        self.here, self.there = here, there

    def __call__(self, a, scalars=None) -> np.ndarray:
        assert a.shape[-1] == TRAINED
        return heat(a) + self.here

    def on_grid(self, a, scalars=None) -> np.ndarray:
        return heat(a) + self.there

    learn = residuals = describe = state = from_state = None


@pytest.mark.parametrize(("here", "there"), [(0.1, 0.0), (0.0, 0.1)])
def test_the_evaluation_with_the_smaller_error_on_half_the_grid_is_selected(exact, here, there) -> None:
    operator, a = Operator(here, there), waves(TRAINED)
    transfer = Transfer.of(operator, pairs_of(a, heat(a)), exact.spaces)
    errors = np.array(transfer.errors)
    assert errors.min() < 1e-6
    assert transfer.direct == (there == 0)
    law = Law(exact.spaces, operator, Exact(), transfer=transfer)
    prediction = predict(law, waves(48), 1, progress=False)
    np.testing.assert_allclose(prediction.mean, heat(waves(48)), atol=1e-6)
    way = "the mean is evaluated on this grid" if transfer.direct else "predictions are interpolated"
    assert way in prediction.notes[0]
    assert f"{errors[0]:.2g} interpolated, {errors[1]:.2g} directly" in transfer.describe()


def test_a_saved_model_predicts_the_same_on_other_meshes(white, tmp_path) -> None:
    white.save(tmp_path / "model.safetensors")
    loaded = pdno.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.sample(waves(50), 2), white.sample(waves(50), 2))
    assert "On other meshes" in loaded.fit_summary[-1]


def test_coordinates_of_xarray_inputs(exact) -> None:
    def named(points: int, length: float = 2.0) -> xr.DataArray:
        nodes = length * np.arange(points) / points
        return xr.DataArray(waves(points, 60, seed=1)[:, 0], dims=("sample", "x"), coords={"x": nodes})

    trained = named(TRAINED)
    model = Deterministic("linear", kind="periodic").fit(trained, 2 * trained, seed=0, progress=False)
    prediction = model.predict(named(48)[:3])
    assert np.array_equal(prediction.mean["x"], named(48)["x"])
    np.testing.assert_allclose(prediction.mean, 2 * named(48)[:3], atol=1e-6)
    np.testing.assert_allclose(model.predict(trained[:3], points=64).mean["x"], 2 * np.arange(64) / 64)
    with pytest.raises(
        UserError, match=r"axis 'x' of a spans \(0, 3\), that of training \(0, 2\), for a grid of kind 'periodic'"
    ):
        model.predict(named(48, 3.0)[:3])
    uneven = named(48)[:3].assign_coords(x=np.arange(48.0) ** 2)
    with pytest.raises(UserError, match="the nodes of the axis 'x' are not evenly spaced"):
        model.predict(uneven)


def test_unresolved_inputs_are_warned_about(exact) -> None:
    rough = np.random.default_rng(0).normal(size=(2, 1, 48))
    with pytest.warns(UserWarning, match="inputs are not resolved on their grid of 48: 2. % of their variance"):
        exact.predict(rough)
    exact.predict(np.random.default_rng(0).normal(size=(2, 1, 64)))  # has the nodes of training


def test_jumps_that_the_grid_of_training_does_not_resolve_are_noted() -> None:
    """Waves are resolved, their signs are not; a map that is evaluated on the finer grid itself has no such limit."""
    shift = np.random.default_rng(0).random((150, 1, 1))
    a = np.cos(2 * np.pi * (np.arange(TRAINED) / TRAINED - shift))

    def notes(u: np.ndarray, points: int) -> str:
        model = Deterministic("kernel", kind="periodic").fit(a, u, seed=0, progress=False)
        return " ".join(model.predict(np.cos(2 * np.pi * (np.arange(points) / points - shift[:3]))).notes)

    said = "Outputs are not resolved on the grid of training"
    assert said in notes(np.sign(a), 48)
    assert said not in notes(np.sign(a), 16)  # a coarser grid
    assert said not in notes(a**2, 48)
    coarse, fine = (pdno.equation.Advection(points=points) for points in (TRAINED, 2 * TRAINED))
    steps = coarse.sample_input(400)
    moved = Deterministic("linear", kind="left").fit(steps, coarse.solve(steps), seed=0, progress=False)
    assert moved.law.transfer.rough > 0.01
    assert said not in " ".join(moved.predict(fine.sample_input(3, seed=1)).notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"a": np.ones((2, 1, 8, 8))},
            r"a has shape \(2, 1, 8, 8\); this model was trained on inputs of shape \(sample, 1, 32\)",
        ),
        ({"a": np.ones((2, 2, 48))}, r"a has shape \(2, 2, 48\)"),
        ({"a": np.ones((2, 3))}, "a: a grid of 3; another grid than that of training needs 4 points per axis"),
        ({"a": np.ones((2, 32)), "points": 2}, "points: a grid of 2; another grid"),
        (
            {"a": np.ones((2, 32)), "points": (32, 32)},
            r"points = \(32, 32\): expected a whole number, or one for each of 1 axes",
        ),
        ({"a": np.ones((2, 32)), "points": 48.5}, r"points = 48.5: expected a whole number"),
    ],
)
def test_grids_that_cannot_be_predicted_on(exact, arguments, message) -> None:
    with pytest.raises(UserError, match=message):
        exact.predict(**arguments)


def test_training_pairs_on_several_grids() -> None:
    parts = [(waves(n, 40, seed=n)[:, 0], heat(waves(n, 40, seed=n))[:, 0]) for n in (TRAINED, 24)]
    model = Deterministic("linear", kind="periodic").fit(parts, seed=0, progress=False)
    assert model.spaces.u_shape == (1, TRAINED)
    assert model.fit_summary[0] == "Training pairs on coarser grids (24) were interpolated."
    assert model.predict(waves(48)[:, 0]).mean.shape == (12, 48)
    np.testing.assert_allclose(model.predict(waves(48)[:, 0]).mean, heat(waves(48))[:, 0], atol=1e-6)
    first = Deterministic("linear", kind="periodic").fit(*parts[0], seed=0, progress=False)
    assert not any("coarser grids" in line for line in first.fit_summary)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "expected pairs of arrays on each grid"),
        ([waves(8), waves(8)], "expected pairs of arrays on each grid"),
        ([(waves(8),) * 2, (waves(8)[:, :, None],) * 2], "they need the same channels and number of axes"),
        (waves(8), "there are no outputs to train on"),
    ],
)
def test_parts_that_do_not_fit_together(parts, message) -> None:
    with pytest.raises(UserError, match=message):
        Deterministic("linear").fit(parts)


def test_a_diffusion_of_functions_draws_on_a_finer_grid() -> None:
    a = waves(16, 40, seed=1)
    chain = pdno.Diffusion(pdno.Schedule.geometric(20, 0.01, 40), pdno.Field(tau=5, r=1.5, condition="periodic"), target="v")
    network = {"kind": "operator", "modes": 5, "width": 4, "layers": 1}
    settings = {"mean": None, "sampler": "dpm", "steps": 3, "kind": "periodic", "training": pdno.Training(updates=2)}
    model = pdno.PDNO(network, chain, **settings).fit(a, heat(a), seed=0, progress=False)
    assert model.law.residual.any_grid
    assert model.predict(waves(32), 2).notes == ("Trained on a grid of 16, predicted on 32: members are drawn on this grid.",)
    assert "predictions are interpolated" in model.predict(waves(32), 2, points=12).notes[0]
    fine, direct = waves(32, 2), model.sample(waves(32, 2), 3, seed=5)
    law, level = model.law, model.law.mean.normalisation.mean
    inputs = Inputs(fine, np.broadcast_to(level, fine.shape))
    np.testing.assert_allclose(direct, inputs.mean + law.residual.members(inputs, np.arange(2), 3, 5, 0), atol=1e-5)


def test_inputs_without_a_grid() -> None:
    """Numbers, as fields of one node or as scalars, give outputs on any grid."""
    numbers = np.random.default_rng(0).normal(size=(40, 1))

    def outputs(points: int) -> np.ndarray:
        return numbers * np.linspace(0, 1, points) ** 2

    line = "sample,channel,x"
    model = Deterministic("linear", kind="vertex").fit(numbers[:, None], outputs(16), dims=f"{line}:sample,x", progress=False)
    np.testing.assert_allclose(model.predict(numbers[:, None], points=50).mean, outputs(50), atol=1e-6)
    model = Deterministic("linear", kind="vertex").fit(None, outputs(16), scalars=numbers, progress=False)
    np.testing.assert_allclose(model.predict(None, scalars=numbers, points=50).mean, outputs(50), atol=1e-6)
