"""The checks accept every part of the package, and reject parts that break the protocol."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pdno
from pdno.diffusion import SAMPLERS, Schedule
from pdno.mean import Constant, Kernel, Linear, LowFidelity, Network, Process, Sum, mean_from_state
from pdno.nn import NETWORKS
from pdno.residual import Censored, Copula, Diffused, Exact, Gaussian, PosteriorLaw, Resampled, Scaled, Statistics
from pdno.testing import CheckFailed, check_law, check_mean, check_model, check_network, check_sampler

LOOP = pdno.Training(updates=2, batch=8)
CHAIN = pdno.Diffusion(Schedule.cosine(5), target="v")
UNET = {"kind": "unet", "base": 8, "multipliers": (1,)}
FNO = {"kind": "fno", "modes": 2, "width": 4}


def cumulated(a: np.ndarray) -> np.ndarray:
    """A solver on the grid of a, with as many channels."""
    return np.repeat(np.cumsum(a, axis=-1).sum(axis=1, keepdims=True), a.shape[1], axis=1)


MEANS: dict[str, tuple[Any, Any]] = {
    "constant": (Constant, None),
    "linear": (Linear, None),
    "kernel": (lambda: Kernel("matern52"), None),
    "process": (lambda: Process(most=20), None),
    "network": (lambda: Network(FNO, training=LOOP), None),
    "sum": (lambda: Sum(Linear(degree=1), Constant()), lambda state: Sum.from_state(state, mean_from_state)),
    "lowfidelity": (lambda: LowFidelity(cumulated), lambda state: LowFidelity.from_state(state, cumulated)),
}
LAWS: dict[str, Any] = {
    "gaussian": Gaussian,
    "posterior": PosteriorLaw,
    "exact": Exact,
    "resampled": Resampled,
    "copula": Copula,
    "censored": Censored,
    "scaled": lambda: Scaled(training=LOOP),
    "statistics": lambda: Statistics(2, training=LOOP),
    "diffusion": lambda: Diffused(UNET, CHAIN, training=LOOP, search_steps=False),
}
SMALL = {"unet": {"base": 8, "multipliers": (1, 2)}, "fno": {"modes": 3, "width": 8}, "slim": {"widths": (8, 16), "blocks": 1}}
SMALL |= {"spectral": {"modes": 3, "width": 8}, "local": {"modes": 3, "width": 8}}
MODELS: dict[str, Any] = {
    "without mean": lambda: pdno.PDNO(UNET, CHAIN, mean=None, training=LOOP),
    "gaussian": lambda: pdno.PDNO(mean="linear", law="gaussian"),
    "diffusion": lambda: pdno.PDNO(UNET, CHAIN, mean="linear", law="diffusion", steps=3, training=LOOP),
    "fno": lambda: pdno.baseline.FNO(FNO, training=LOOP),
    "unet": lambda: pdno.baseline.UNet({"kind": "slim", **SMALL["slim"]}, training=LOOP),
    "deterministic": lambda: pdno.baseline.Deterministic("linear"),
}


@pytest.mark.parametrize("name", MEANS)
def test_every_mean_passes(name: str) -> None:
    assert check_mean(*MEANS[name])[-1] == "wrong input"


def test_every_named_mean_is_checked() -> None:
    assert set(pdno.mean.MEANS) <= set(MEANS)
    assert set(pdno.residual.LAWS) <= set(LAWS)
    assert set(NETWORKS) <= set(SMALL)


LONG = ("statistics", "diffusion")  # laws whose networks are trained


@pytest.mark.parametrize("name", [pytest.param(law, marks=[pytest.mark.slow] if law in LONG else []) for law in LAWS])
def test_every_law_passes(name: str) -> None:
    assert check_law(LAWS[name])[-1] == "saving"


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_passes(name: str, dim: int, time: bool) -> None:
    if name == "spectral" and dim == 2:
        with pytest.raises(pdno.UserError, match="one dimension"):
            NETWORKS[name](dim=2)
        return
    settings = {"dim": dim, "in_channels": 1 + time, "out_channels": 1, "time": time, **SMALL[name]}
    assert check_network(lambda: NETWORKS[name](**settings), dim=dim, time=time)[-1] == "gradients"


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_passes(name: str) -> None:
    assert "moments" in check_sampler(SAMPLERS[name])


@pytest.mark.parametrize("name", MODELS)
def test_every_model_passes(name: str) -> None:
    assert check_model(MODELS[name])[-1] == "saving"


class InSample(Linear):
    """Returns the in-sample residuals of a mean that interpolates."""

    def residuals(self, a, u, *args: Any, **more: Any) -> np.ndarray:
        return np.zeros(u.shape)


class Batchy(Linear):
    """Subtracts the mean of the batch."""

    def __call__(self, a, scalars=None) -> np.ndarray:
        m = super().__call__(a, scalars)
        return m - m.mean(axis=0)


class Forgetful(Linear):
    """Restores another model than it saved."""

    @classmethod
    def from_state(cls, state) -> "Forgetful":
        new = super().from_state(state)
        new._map = replace(new._map, intercept=new._map.intercept + 1)
        return new


@pytest.mark.parametrize(
    ("mean", "words"),
    [(InSample, "out-of-fold residuals change"), (Batchy, "depends on the batch"), (Forgetful, "makes other predictions")],
)
def test_a_mean_that_breaks_the_protocol_is_rejected(mean: Any, words: str) -> None:
    with pytest.raises(CheckFailed, match=words):
        check_mean(mean)


class Biased(Gaussian):
    """Is called centred, but is not."""

    def draw(self, inputs, rows, **sampling: Any) -> np.ndarray:
        return super().draw(inputs, rows, **sampling) + 0.1


class Global(Gaussian):
    """Draws from a global stream of random numbers."""

    stream = np.random.default_rng(0)

    def draw(self, inputs, rows, **sampling: Any) -> np.ndarray:
        return self.stream.standard_normal((len(rows.places), *inputs.mean.shape[1:]))


class Narrow(Gaussian):
    """Draws half of the spread that it states."""

    def draw(self, inputs, rows, **sampling: Any) -> np.ndarray:
        return 0.5 * super().draw(inputs, rows, **sampling)


@pytest.mark.parametrize(
    ("law", "words"),
    [(Biased, "standard errors from 0"), (Global, "same seed"), (Narrow, "std of draws differs")],
)
def test_a_law_that_breaks_the_protocol_is_rejected(law: Any, words: str) -> None:
    with pytest.raises(CheckFailed, match=words):
        check_law(law)


class Normed(nn.Module):
    """Mixes the samples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(2, 1, 1)

    def forward(self, n: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        x = self.layer(torch.cat([v, a], dim=1))
        return x - x.mean(dim=0)


def test_a_network_that_mixes_samples_is_rejected() -> None:
    with pytest.raises(CheckFailed, match="depends on the batch"):
        check_network(Normed)


def test_a_sampler_with_the_wrong_spread_is_rejected() -> None:
    def collapsed(denoise, v, a, chain, callback=None, **_: Any) -> torch.Tensor:
        out = denoise(int(chain.n[-1]), v, a)
        callback(0, out)
        return out

    with pytest.raises(CheckFailed, match="the std is"):
        check_sampler(collapsed)
