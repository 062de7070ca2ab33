"""Settings of the paper's experiments: Tables A1–A4 for its models, and its FNO baselines."""

from collections.abc import Callable
from typing import Any

from ..diffusion.base import White
from ..diffusion.chain import Diffusion
from ..diffusion.schedule import Schedule
from ..learning.normalisation import Normalise
from ..learning.settings import Training

__all__ = ["FNO_TESTS", "PDNO_TESTS"]


def _pdno(base: int, batch: int, noisy: bool, **options: Any) -> dict[str, Any]:
    """Return arguments of `PDNO`; common to all: N = 100, 1000 epochs of Adam, rate 1e-4 halved every 100 epochs, target ε."""
    loop: dict[str, Any] = {"epochs": 1000, "batch": batch, "optimizer": "adam", "rate": 1e-4, "rate_schedule": "step"}
    schedule, normalise = options.pop("schedule", Schedule.cosine), options.pop("normalise", "none")
    return {
        "network": {"kind": "unet", "base": base},
        "diffusion": Diffusion(schedule(100), White(), "eps", "ddsm"),
        "variance": "gaussian" if noisy else "noise-free",
        "steps": 100,
        "mean": None,
        "normalise": normalise,
        "training": Training(ema=0.0, clip=0.0, **(loop | options)),
    }


PDNO_TESTS: dict[str, Callable[[bool], dict[str, Any]]] = {  # by whether the data are noisy
    "elliptic1d": lambda noisy: _pdno(32, 50, noisy),  # `tab:params-test1`
    "darcy": lambda noisy: _pdno(64, 20, noisy, normalise="scalar"),  # `tab:params-test2`
    "burgers": lambda noisy: _pdno(32, 32, noisy, schedule=Schedule.linear),  # `tab:params-test3`
    "advection": lambda noisy: _pdno(  # `tab:params-test4`
        32, 20, noisy, rate=8e-5, rate_schedule="constant", normalise="scalar" if noisy else "none"
    ),
}


def _fno(modes: int, width: int, halve_every: float, normalise: Normalise = "none") -> dict[str, Any]:
    """Return arguments of `FNO`; common to all: 500 epochs of Adam at 1e-3 with a weight decay of 1e-4."""
    training = Training(
        epochs=500,
        batch=20,
        optimizer="adam",
        rate=1e-3,
        rate_schedule="step",
        halve_every=halve_every,
        weight_decay=1e-4,
        ema=0.0,
        clip=0.0,
    )
    return {"network": {"kind": "fno", "modes": modes, "width": width}, "normalise": normalise, "training": training}


FNO_TESTS = {
    "darcy": _fno(12, 32, 100, "pointwise"),
    "burgers": _fno(16, 64, 50),
    "advection": _fno(16, 128, 50),
}
