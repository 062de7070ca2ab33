"""Probabilistic operator learning: the law of a PDE solution u given its parameters a, from pairs (a, u).

>>> import pdno
>>> eq = pdno.equation.Elliptic1D(points=128)
>>> data = pdno.generate(eq, train=8, test=2, noise=pdno.noise.Gaussian(0.05), seed=0)
>>> data.train.a.shape, data.train.u.shape
((8, 1, 128), (8, 1, 128))

Names are loaded on first use, so that ``import pdno`` and ``pdno --help`` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "PDNO",
    "Dataset",
    "Diffusion",
    "Field",
    "Grid",
    "Pairs",
    "Schedule",
    "Training",
    "UserError",
    "base",
    "baseline",
    "calibration",
    "density",
    "diffusion",
    "equation",
    "evaluate",
    "generate",
    "grid",
    "load",
    "mean",
    "metrics",
    "nn",
    "noise",
    "open",
    "plot",
    "reverse",
    "schedule",
    "symmetry",
]

if TYPE_CHECKING:
    from . import (
        base,
        baseline,
        calibration,
        density,
        diffusion,
        equation,
        grid,
        mean,
        metrics,
        nn,
        noise,
        plot,
        reverse,
        schedule,
        symmetry,
    )
    from .dataset import Dataset, Pairs
    from .diffusion import Diffusion
    from .errors import UserError
    from .evaluation import evaluate
    from .field import Field
    from .generation import generate
    from .grid import Grid
    from .loading import open
    from .operator import PDNO
    from .saved import load
    from .schedule import Schedule
    from .train import Training

_HOME = {
    "Diffusion": "diffusion",
    "PDNO": "operator",
    "Schedule": "schedule",
    "Training": "train",
    "load": "saved",
    "Dataset": "dataset",
    "Field": "field",
    "Grid": "grid",
    "UserError": "errors",
    "evaluate": "evaluation",
    "generate": "generation",
    "Pairs": "dataset",
    "open": "loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'pdno' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
