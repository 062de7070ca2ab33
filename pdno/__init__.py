"""Probabilistic operator learning: the conditional distribution of a PDE solution u given its parameters a.

    u | a = m(a) + residual,        m: `pdno.mean`,        the residual: `pdno.residual`,        together: `pdno.PDNO`

>>> import pdno
>>> eq = pdno.equation.Elliptic1D(points=128)
>>> data = pdno.generate(eq, train=8, test=2, noise=pdno.noise.Gaussian(0.05), seed=0)
>>> data.train.a.shape, data.train.u.shape
((8, 1, 128), (8, 1, 128))

Modules are imported on first use, so that ``import pdno`` and ``pdno --help`` are fast.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
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
    "basis",
    "calibration",
    "data",
    "density",
    "diffusion",
    "draw",
    "equation",
    "evaluate",
    "evaluation",
    "field",
    "generate",
    "grid",
    "learning",
    "learning_curve",
    "load",
    "mean",
    "metrics",
    "model",
    "nn",
    "noise",
    "open",
    "plot",
    "residual",
    "reverse",
    "run",
    "schedule",
    "sensitivity",
    "suggest",
    "symmetry",
    "testing",
    "work",
]

if TYPE_CHECKING:
    from . import (
        basis,
        data,
        diffusion,
        draw,
        equation,
        evaluation,
        field,
        grid,
        learning,
        mean,
        model,
        nn,
        noise,
        plot,
        residual,
        run,
        symmetry,
        testing,
        work,
    )
    from .data.dataset import Dataset
    from .data.generate import generate
    from .data.open import open
    from .data.pairs import Pairs
    from .diffusion import base, reverse, schedule
    from .diffusion.chain import Diffusion
    from .diffusion.schedule import Schedule
    from .errors import UserError
    from .evaluation import calibration, density, metrics
    from .evaluation.scoring import evaluate
    from .field import Field
    from .grid import Grid
    from .learning.settings import Training
    from .model import baseline
    from .model.design.curve import learning_curve
    from .model.design.sensitivity import sensitivity
    from .model.design.suggest import suggest
    from .model.operator import PDNO
    from .model.saving import load

_HOME = {  # modules of the names that are not modules
    "PDNO": "model.operator",
    "Dataset": "data.dataset",
    "Diffusion": "diffusion.chain",
    "Field": "field",
    "Grid": "grid",
    "Pairs": "data.pairs",
    "Schedule": "diffusion.schedule",
    "Training": "learning.settings",
    "UserError": "errors",
    "evaluate": "evaluation.scoring",
    "generate": "data.generate",
    "learning_curve": "model.design.curve",
    "load": "model.saving",
    "open": "data.open",
    "sensitivity": "model.design.sensitivity",
    "suggest": "model.design.suggest",
}
_SHORT = {  # modules of packages that also have a short name
    "base": "diffusion.base",
    "baseline": "model.baseline",
    "calibration": "evaluation.calibration",
    "density": "evaluation.density",
    "metrics": "evaluation.metrics",
    "reverse": "diffusion.reverse",
    "schedule": "diffusion.schedule",
}


def lazy_submodules(package: str) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for a package that imports its modules on first use: `pdno.mean.choose` needs no import."""

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        try:
            if not name.startswith("_"):
                return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:  # a dependency of the module is missing
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load


_module = lazy_submodules(__name__)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in __all__:
        return import_module(f".{_SHORT[name]}", __name__) if name in _SHORT else _module(name)
    raise AttributeError(f"module 'pdno' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
