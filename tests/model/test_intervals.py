"""Intervals, bands and functionals of predictions, compared with closed forms of Gaussian noise; files and plots of them."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import pdno
from pdno import UserError

POINTS, SIGMA = 12, 0.5
A = np.random.default_rng(0).standard_normal((60, POINTS))


def noisy(a: np.ndarray, seed: int) -> np.ndarray:
    return 2 * a + SIGMA * np.random.default_rng(seed).standard_normal(a.shape)


@pytest.fixture(scope="module")
def model():
    return pdno.PDNO(mean="linear", law="gaussian").fit(A, noisy(A, 1), seed=0)


@pytest.fixture(scope="module")
def pred(model):
    return model.predict(A[:3], members=2000, progress=False)


def test_intervals_of_any_level_are_those_of_the_members(pred) -> None:
    for level in (0.5, 0.9):
        lower, upper = pred.interval(level)
        assert lower.shape == pred.mean.shape
        np.testing.assert_allclose((upper - lower) / pred.std, 2 * norm.ppf((1 + level) / 2), rtol=0.1)
    for level in (0.0, 1.0, 90, "0.9"):
        with pytest.raises(UserError, match="expected a number between 0 and 1"):
            pred.interval(level)


def test_a_band_covers_whole_members(model, pred) -> None:
    """P(max over n independent nodes of |z| ≤ c) = (2Φ(c) − 1)^n."""
    lower, upper = pred.band(0.9)
    c = norm.ppf((1 + 0.9 ** (1 / POINTS)) / 2)
    np.testing.assert_allclose((upper - lower) / (2 * pred.std), c, rtol=0.05)
    others = model.sample(A[:3], members=2000, seed=9)
    inside = ((lower <= others) & (others <= upper)).all(axis=-1).mean(axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=0.04)


def test_functionals_are_those_of_the_sample(model, pred) -> None:
    largest = pred.functional(lambda u: u.max(axis=-1))
    members = model.sample(A[:3], members=2000).max(axis=-1)
    np.testing.assert_allclose(largest.members, members, atol=1e-12)
    np.testing.assert_allclose(largest.mean, members.mean(axis=0))
    np.testing.assert_allclose(largest.std, members.std(axis=0, ddof=1))
    average = pred.functional(lambda u: u.mean(axis=-1))
    np.testing.assert_allclose(average.std, SIGMA / np.sqrt(POINTS), rtol=0.2)
    low, high = average.interval(0.9)
    np.testing.assert_allclose((high - low) / average.std, 2 * norm.ppf(0.95), rtol=0.1)
    with pytest.raises(UserError, match="keep the first axis, that of the members"):
        pred.functional(lambda u: u.max())


@pytest.mark.slow
def test_calibrated_intervals_and_bands_cover(tmp_path) -> None:
    """The model was trained on outputs with half of the noise: its own intervals are too narrow."""
    model = pdno.PDNO(mean="linear", law="gaussian").fit(A, 2 * A + (noisy(A, 1) - 2 * A) / 2, seed=0)
    a = np.random.default_rng(2).standard_normal((400, POINTS))
    u = noisy(a, 3)
    narrow = model.predict(a, members=40, progress=False)
    assert narrow.intervals is None
    assert _covered(u, *narrow.interval(0.9)).mean() < 0.75
    held = np.random.default_rng(4).standard_normal((200, POINTS))
    model.calibrate(pdno.Pairs.of(held, noisy(held, 5)), members=40, progress=False)
    model.save(tmp_path / "m.safetensors")
    for calibrated in (model, pdno.load(tmp_path / "m.safetensors")):
        right = calibrated.predict(a, members=40, progress=False)
        assert _covered(u, *right.interval(0.9)).mean() == pytest.approx(0.9, abs=0.02)
        assert _covered(u, *right.band(0.9)).all(axis=1).mean() == pytest.approx(0.9, abs=0.06)
        assert _covered(u, *right.interval(0.8)).mean() < 0.65  # of another level: of the members
    assert model.predict(a[:1], members=40, points=24, progress=False).intervals is None  # another grid
    assert model.predict(a[:1], members=41, progress=False).intervals is None  # bounds that vary less
    with pytest.raises(UserError, match="calibration pairs"):
        model.calibrate(pdno.Pairs.of(held[:5], held[:5]), progress=False)


def _covered(u: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    return (lower <= u) & (u <= upper)


@pytest.mark.parametrize("labelled", [False, True])
def test_predictions_as_data_sets_and_files(labelled, tmp_path) -> None:
    x = np.linspace(0, 1, POINTS)
    a, u = (xr.DataArray(v, dims=("sample", "x"), coords={"x": x}) for v in (A, noisy(A, 1)))
    model = pdno.PDNO(mean="linear", law="gaussian").fit(a, u, seed=0)
    pred = model.predict(a[:3] if labelled else A[:3], members=20, progress=False)
    found = pred.to_xarray()
    assert found["mean"].dims == ("sample", "x")
    assert {"std", "quantile_0.05", "quantile_0.95", "novelty", "is_ood"} <= set(found)
    np.testing.assert_array_equal(found["x"], x)
    for name in ("p.nc", "p.zarr"):
        pred.save(tmp_path / name)
        read = xr.open_dataset if name == "p.nc" else partial(xr.open_zarr, consolidated=False)
        with read(tmp_path / name) as back:
            np.testing.assert_array_equal(back["mean"], pred.mean)
            assert back.attrs["members"] == 20
        with pytest.raises(UserError, match="never overwritten"):
            pred.save(tmp_path / name)
    with pytest.raises(UserError, match=r"call it p\.nc or p\.zarr"):
        pred.save(tmp_path / "p.csv")


def test_a_prediction_is_plotted(pred) -> None:
    titles = [axes.get_title() for axes in pred.plot(1, u=noisy(A, 1)[1]).axes]
    assert titles == ["input a", "output u", "error and spread"]
    shown = [line for line in pred.plot(1).axes[1].lines if line.get_label() == "members"]
    flat = pdno.PDNO(mean="linear", law="gaussian").fit(A.reshape(60, 3, 4), noisy(A, 1).reshape(60, 3, 4), dims="sample,x,y")
    assert "truth" in [axes.get_title() for axes in flat.predict(A.reshape(60, 3, 4)[:2]).plot(1, u=np.ones((3, 4))).axes]
    expected = pred.draws.given.law.given(A[1:2, None]).centre[0, 0]
    assert len(shown) >= 1
    assert np.abs(shown[0].get_ydata() - expected).max() < 6 * SIGMA


def test_the_summary_says_how_much_of_the_outputs_is_noise() -> None:
    """An error of nearly all of the variance is a triumph if nearly all of it is noise: σ² / (σ² + 0.04) = 0.96."""
    rng = np.random.default_rng(6)
    a = np.repeat(rng.standard_normal((100, POINTS)), 4, axis=0)
    model = pdno.PDNO(mean="linear", law="gaussian").fit(a, 0.2 * a + rng.standard_normal(a.shape), seed=0)
    line = next(line for line in model.fit_summary if line.startswith("By repeated inputs"))
    assert float(line.split()[5]) == pytest.approx(0.96, abs=0.03)
    assert any("mean square error, noise included, is 0.9" in line for line in model.fit_summary)
