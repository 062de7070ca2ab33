"""The methods that are compared on the paper's experiments.

"diffusion" and "paper" learn mean and noise together by a conditional diffusion, the paper's method. "default" is a mean model
with a law of its residuals, and "fno", "linear" and "kernel" are deterministic regressions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..diffusion.chain import Diffusion
from ..diffusion.schedule import Schedule
from ..equation.base import Equation
from ..mean.network import recipe
from ..model.baseline import FNO, Deterministic
from ..model.operator import PDNO
from ..model.paper import FNO_TESTS, PDNO_TESTS, Setting
from ..model.surrogate import Surrogate
from ..residual.diffused import RECIPE

__all__ = ["METHODS", "Method"]

Make = Callable[[Setting, Equation, float | None], Surrogate]


@dataclass(frozen=True)
class Method:
    """A method.

    Args:
        name: in results.
        make: (setting, equation, seconds of training) ↦ an untrained model.
        is_baseline: whether it gets the time of a baseline.
        holds_out: share of the pairs that it selects by.
    """

    name: str
    make: Make
    is_baseline: bool = False
    holds_out: float = 0.1


def _shared(eq: Equation) -> dict[str, Any]:
    return {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind}


def _diffusion(setting: Setting, eq: Equation, seconds: float | None) -> PDNO:
    """A diffusion of u with a small network that predicts u₀: the paper's method at the scale of an ordinary machine."""
    network = "local" if len(eq.grid.shape) == 1 else "slim"
    chain = Diffusion(Schedule.cosine(100), target="u0")
    return PDNO(network, chain, mean=None, training=RECIPE, budget=seconds, **_shared(eq))


def _default(setting: Setting, eq: Equation, seconds: float | None) -> PDNO:
    return PDNO(budget=seconds, **_shared(eq))


def _fno(setting: Setting, eq: Equation, seconds: float | None) -> FNO:
    """The FNO with the paper's number of parameters; within a budget, with our training."""
    settings = dict(FNO_TESTS[setting.test])
    if seconds is not None:
        settings["training"] = recipe(network="fno")
    return FNO(**settings, budget=seconds)


def _paper(setting: Setting, eq: Equation, seconds: float | None) -> PDNO:
    """The paper's network and settings, for fewer epochs within a budget."""
    return PDNO(**PDNO_TESTS[setting.test].arguments(setting.noisy), budget=seconds)


METHODS = {
    method.name: method
    for method in (
        Method("diffusion", _diffusion),
        Method("default", _default),
        Method("fno", _fno, is_baseline=True),
        Method("linear", lambda setting, eq, seconds: Deterministic("linear"), is_baseline=True),
        Method("kernel", lambda setting, eq, seconds: Deterministic("kernel", **_shared(eq)), is_baseline=True),
        Method("paper", _paper, holds_out=0.0),
    )
}
