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
    from . import diffusion, equation, grid, mean, nn, noise, plot, symmetry
    from .data.generate import generate
    from .data.open import open
    from .data.pairs import Dataset, Pairs
    from .diffusion import base, reverse, schedule
    from .diffusion.chain import Diffusion
    from .diffusion.schedule import Schedule
    from .errors import UserError
    from .evaluation import calibration, density, metrics
    from .evaluation.scoring import evaluate
    from .field import Field
    from .grid import Grid
    from .learning.loop import Training
    from .model import baseline
    from .model.operator import PDNO
    from .model.saving import load

_HOME = {
    "Diffusion": "diffusion",
    "PDNO": "model.operator",
    "Schedule": "diffusion.schedule",
    "Training": "learning.loop",
    "load": "model.saving",
    "Dataset": "data.pairs",
    "Field": "field",
    "Grid": "grid",
    "UserError": "errors",
    "evaluate": "evaluation",
    "generate": "data.generate",
    "Pairs": "data.pairs",
    "open": "data.open",
}


_MODULES = {
    "base": "diffusion.base",
    "baseline": "model.baseline",
    "calibration": "evaluation.calibration",
    "density": "evaluation.density",
    "metrics": "evaluation.metrics",
    "reverse": "diffusion.reverse",
    "schedule": "diffusion.schedule",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__:
        return import_module(f".{_MODULES.get(name, name)}", __name__)
    raise AttributeError(f"module 'pdno' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
