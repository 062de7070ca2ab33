"""Checks of models, from fit to save and load."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import xarray as xr

from ..data.pairs import Pairs
from ..grid import restrict
from ..model.saving import load as load_model
from ..model.surrogate import Surrogate
from .common import CASES, close, refuses, require, synthetic_pairs

__all__ = ["check_model"]


def check_model(make: Callable[[], Surrogate], load: Callable[[Path], Surrogate] = load_model) -> list[str]:
    """Check a model from fit to save and load.

    Args:
        make: returns a new model that has not been fitted.
        load: loads a saved model; default: `pdno.load`. Pass your own parts here, for instance
            `lambda path: pdno.load(path, mean=MyMean.from_state)`.

    Returns:
        The names of the checks that passed.

    Raises:
        CheckFailed: if a check fails.
    """
    pairs, passed = synthetic_pairs(), []
    a, u = pairs.a[:, 0], pairs.u[:, 0]
    refuses(lambda: make().predict(a), "a prediction before fit")
    model = make().fit(a, u, seed=1, progress=False)
    pred = model.predict(a[:3], members=8, seed=2, progress=False)
    require(pred.mean.shape == u[:3].shape == pred.std.shape, f"the mean has shape {pred.mean.shape}; expected {u[:3].shape}")
    passed.append("shapes")
    again = make().fit(a, u, seed=1, progress=False)
    draws = np.asarray(model.sample(a[:3], members=8, seed=2))
    close(again.sample(a[:3], members=8, seed=2), draws, "two models fitted with the same seed draw different members", 0.0)
    passed.append("same seed")
    close(model.sample(a[2:3], members=2, seed=2, first=2)[:, 0], draws[:2, 2], "a member depends on the other inputs")
    close(model.sample(a[:3], members=8, seed=2, chunk=3), draws, "members depend on the chunk")
    passed.append("batch independence")
    if not model.deterministic:
        close(pred.std, draws.std(axis=0, ddof=1), "predict and sample disagree about the standard deviation", 1e-6)
        error = np.abs(pred.mean - draws.mean(axis=0)) / np.maximum(draws.std(axis=0, ddof=1) / np.sqrt(8), 1e-12)
        require(np.median(error) < 3, "predict and sample disagree about the mean")
    passed.append("moments")
    _check_types(make, model, pairs)
    passed.append("array types, channels and scalars")
    grid = model.spaces.grid
    fine = grid.with_points(3 * a.shape[1] - 2 if grid.axes[0].kind == "vertex" else 3 * a.shape[1])
    drawn = np.asarray(model.sample(a[:3], members=8, seed=2, points=fine.shape))
    close(restrict(drawn, fine, grid), draws, "a member has other values at the same nodes of a finer grid", 1e-6)
    passed.append("other grids")
    refuses(lambda: model.predict(a[:, None, None]), "an input with another number of axes")
    refuses(lambda: model.predict(np.where(np.arange(len(a[0])) == 3, np.nan, a[:2])), "an input with NaN")
    refuses(lambda: make().fit(a[:5], u, progress=False), "different numbers of inputs and outputs")
    passed.append("wrong input")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        back = load(path)
        close(back.sample(a[:3], members=8, seed=2), draws, "a loaded model draws other members", 0.0)
        require(back.fit_summary == model.fit_summary, "a loaded model has another summary")
    passed.append("saving")
    return passed


def _check_types(make: Callable[[], Surrogate], model: Surrogate, pairs: Pairs) -> None:
    """Require xarray for xarray, the channel axis of the user's u, and scalars."""
    x = xr.DataArray(pairs.a[:2, 0], dims=("sample", "x"))
    require(
        isinstance(model.predict(x, members=2, progress=False).mean, xr.DataArray), "xarray inputs do not give xarray outputs"
    )
    tensor = torch.as_tensor(pairs.a[:2, 0])
    close(model.sample(tensor, seed=4), model.sample(pairs.a[:2, 0], seed=4), "torch and NumPy inputs differ", 0.0)
    for name in ("two channels", "scalars", "two dimensions"):
        data = synthetic_pairs(**CASES[name])
        dims = ",".join(["sample", "channel", *"xy"[: data.u.ndim - 2]])
        fitted = make().fit(data.a, data.u, scalars=data.scalars, dims=dims, seed=0, progress=False)
        s = None if data.scalars is None else data.scalars[:2]
        drawn = fitted.sample(data.a[:2], members=2, scalars=s)
        require(drawn.shape == (2, *data.u[:2].shape), f"{name}: members have shape {drawn.shape}")
