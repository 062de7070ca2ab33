"""The methods that are compared on the paper's experiments.

"diffusion" and "paper" learn mean and noise together by a conditional diffusion, the paper's method. "default" is a mean model
with a law of its residuals, and "fno", "linear" and "kernel" are deterministic regressions.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..diffusion.chain import Diffusion
from ..diffusion.schedule import Schedule
from ..equation.base import Equation
from ..learning.settings import Training
from ..mean.network import recipe
from ..model.baseline import FNO, Deterministic
from ..model.operator import PDNO
from ..model.paper import FNO_TESTS, Setting
from ..model.surrogate import Surrogate
from ..residual.diffused import RECIPE
from .scale import Scale

__all__ = ["METHODS", "Method"]

PATCHES = 16  # along each side of a 2-D field
COARSE = 128  # points on which solutions of Burgers' equation are resolved

Make = Callable[[Setting, Equation, Scale], Surrogate]


@dataclass(frozen=True)
class Method:
    """A method.

    Args:
        name: in results.
        make: (setting, equation, scale) ↦ an untrained model.
        holds_out: share of the pairs that it selects by.
        logs_error: whether the error on test pairs is logged during training.
    """

    name: str
    make: Make
    holds_out: float = 0.1
    logs_error: bool = False


def _shared(eq: Equation) -> dict[str, Any]:
    return {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind}


def _diffusion(setting: Setting, eq: Equation, scale: Scale) -> PDNO:
    """A diffusion of u with a small network that predicts u₀: the paper's method at the scale of an ordinary machine."""
    network, training = _small_network(setting.test, eq)
    chain = Diffusion(Schedule.cosine(scale.n_steps), target="u0")
    return PDNO(network, chain, mean=None, training=training, budget=scale.budget(setting), **_shared(eq))


def _small_network(test: str, eq: Equation) -> tuple[str | dict[str, Any], Training]:
    """Return the network of a diffusion, and its training.

    Solutions of Burgers' equation commute with translations, and so does the spectral network; they are smooth, so that its
    layers need no fine grid. Advection moves jumps through
    half of the domain, a diagonal operation in Fourier modes, of which a jump has all. The cost of a step in two dimensions
    does not depend on the grid: the UNet works on as many patches.
    """
    if test == "burgers":
        network = {"kind": "spectral", "points": COARSE}
        return network, replace(RECIPE, batch=16, rate=3e-3, ema=0.999, weight_decay=0.0)
    if test == "advection":
        (points,) = eq.grid.shape
        return {"kind": "local", "modes": points, "width": 24, "layers": 3, "periodic": [True]}, replace(RECIPE, batch=32)
    if test == "elliptic1d":
        return "local", RECIPE
    patch = max(1, eq.grid.shape[0] // PATCHES)
    return {"kind": "slim", "patch": patch}, replace(RECIPE, batch=16, ema=0.998)


def _default(setting: Setting, eq: Equation, scale: Scale) -> PDNO:
    return PDNO(budget=scale.budget(setting), **_shared(eq))


def _fno(setting: Setting, eq: Equation, scale: Scale) -> FNO:
    """The FNO with the paper's number of parameters; within a budget, with our training."""
    settings = dict(FNO_TESTS[setting.test])
    if scale.baseline_seconds is not None:
        settings["training"] = recipe(network="fno")
    return FNO(**settings, budget=scale.baseline_seconds)


def _paper(setting: Setting, eq: Equation, scale: Scale) -> PDNO:
    """The paper's network and settings, for fewer epochs or within a budget, and smaller with fewer steps in a smoke test."""
    table = setting.table if scale.base is None else replace(setting.table, base=scale.base, n_steps=scale.n_steps)
    if setting.name in scale.epochs:
        return PDNO(**replace(table, epochs=scale.epochs[setting.name]).arguments(setting.noisy))
    return PDNO(**table.arguments(setting.noisy), budget=scale.budget(setting))


METHODS = {
    method.name: method
    for method in (
        Method("diffusion", _diffusion, logs_error=True),
        Method("default", _default),
        Method("fno", _fno),
        Method("linear", lambda setting, eq, scale: Deterministic("linear")),
        Method("kernel", lambda setting, eq, scale: Deterministic("kernel", **_shared(eq))),
        Method("paper", _paper, holds_out=0.0, logs_error=True),
    )
}
