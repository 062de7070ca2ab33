"""Trajectories, whose time is an axis, and three dimensions: through all commands."""

import numpy as np
import pytest
import xarray as xr

NOISE = 0.02
CELLS = (np.arange(24) + 0.5) / 24


def trajectories(count: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return arrays of decaying waves with two parameters, on 50 times and 64 points, and their parameters."""
    t, x, q = np.linspace(0, 1, 50), np.arange(64) / 64, rng.uniform(0.5, 1.5, (count, 2))
    u = q[:, :1, None] * np.sin(2 * np.pi * (x - q[:, 1:, None] * t[:, None])) * np.exp(-t[:, None])
    return {"t": t, "x": x, "q": q}, u


def cubes(count: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return inputs of eight modes on 24³ cells, and twice as much."""
    waves = np.cos(np.pi * np.outer([0, 1], CELLS))
    a = np.einsum("sijk,ix,jy,kz->sxyz", rng.normal(size=(count, 2, 2, 2)), waves, waves, waves)
    return {"a": a}, 2 * a


PROBLEMS = {"trajectory": trajectories, "cube": cubes}
NAMES = {"trajectory": "--a q --u u --dims sample,parameter:sample,t,x", "cube": "--a a --u u --dims sample,x,y,z"}
PARTS = {"trajectory": ("process", "posterior"), "cube": ("linear", "gaussian")}  # mean and law


def trained(say, tmp_path, problem: str) -> None:
    """Train on noisy pairs; new.npz has inputs and true outputs of three others."""
    arrays, u = PROBLEMS[problem](40, np.random.default_rng(0))
    noise = NOISE * np.random.default_rng(1).normal(size=u.shape)
    np.savez(tmp_path / "data.npz", **{name: x.astype(np.float32) for name, x in arrays.items()}, u=(u + noise).astype("f4"))
    mean, law = PARTS[problem]
    say(f"train data.npz {NAMES[problem]} --out run --set model.mean={mean} --set model.law={law}")
    arrays, u = PROBLEMS[problem](3, np.random.default_rng(2))
    np.savez(tmp_path / "new.npz", **arrays)
    np.save(tmp_path / "truth.npy", u)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.slow
def test_from_training_to_predictions(problem, say, tmp_path) -> None:
    trained(say, tmp_path, problem)
    assert "coverage of 90 % intervals" in say("evaluate run --members 20")
    name, dims = NAMES[problem].split()[1], NAMES[problem].split()[-1].split(":")[0]
    say(f"predict run new.npz --a {name} --dims {dims} --members 20 --out pred.zarr")
    found = xr.open_zarr(tmp_path / "pred.zarr", consolidated=False)
    assert found["mean"].dims[2:] == (("t", "x") if problem == "trajectory" else ("x", "y", "z"))
    truth = np.load(tmp_path / "truth.npy")
    assert np.linalg.norm(found["mean"].values[:, 0] - truth) < 0.05 * np.linalg.norm(truth)
    assert np.median(found["std"].values) == pytest.approx(NOISE, rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_reports_are_written(problem, say, tmp_path) -> None:
    trained(say, tmp_path, problem)
    say("evaluate run --members 20")
    say("report run")
    assert "data:image/png" in (tmp_path / "run/report.html").read_text()
