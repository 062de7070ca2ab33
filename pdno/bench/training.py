"""Data and trained models of the bench: made once, and kept in its folder."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from ..data.dataset import Dataset
from ..data.generate import generate
from ..data.open import open as open_data
from ..equation import EQUATIONS
from ..equation.base import Equation
from ..learning.resume import session_seconds
from ..model.paper import Setting
from ..model.saving import load
from ..model.surrogate import Surrogate
from .scale import Scale

__all__ = ["data_of", "equation_of", "file_name", "trained"]


def file_name(part: str) -> str:
    """Return the name of the file of results of a part."""
    return f"{part.replace('/', '-').replace(':', '-')}.json"


def equation_of(setting: Setting, scale: Scale) -> Equation:
    """Return the equation of an experiment on the grid of a scale."""
    make: Callable[..., Equation] = EQUATIONS[setting.test]
    return make(points=scale.grid_points(setting))


def data_of(setting: Setting, scale: Scale, folder: Path) -> Dataset:
    """Return the pairs of an experiment, generated into the folder once for all parts."""
    path = folder / "data" / f"{setting.name.replace(':', '-')}.zarr"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        generate(equation_of(setting, scale), scale.train(setting), scale.inputs(setting), setting.noise, out=path)
    return open_data(path)


def trained(make: Callable[[], Surrogate], split: Dataset, run: Path, engine: dict[str, Any]) -> tuple[Surrogate, float]:
    """Return a model and its training time in seconds: trained before, or trained now and saved.

    Args:
        make: returns the untrained model.
        split: training and validation pairs.
        run: folder of the model; an interrupted training resumes.
        engine: device, devices, precision, and what is logged.
    """
    path = run / "model.safetensors"
    if path.exists():
        model = load(path, device=engine.get("device", "cpu"))
        return model, float(model.provenance["seconds"])
    model, begin = make(), perf_counter()
    run.mkdir(parents=True, exist_ok=True)
    model.learn(split.train, split.validation, run=run, **engine)
    seconds = max(perf_counter() - begin, sum(session_seconds(run)))
    model.annotate(seconds=seconds)
    model.save(path)
    return model, seconds
