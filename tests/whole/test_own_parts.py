"""Parts of a user's own, through the public interface alone: each is fitted, used, saved, loaded and evaluated."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pdno
from pdno.diffusion import Schedule, evaluations
from pdno.learning.budget import Terms
from pdno.mean import Mean, refitted
from pdno.residual import Inputs, ResidualLaw, Residuals, Rows
from pdno.testing import check_law, check_mean, check_model, check_network, check_sampler
from pdno.work.state import State

LOOP = pdno.Training(updates=3, batch=8)
CHAIN = pdno.Diffusion(Schedule.cosine(8))
UNET = {"kind": "unet", "base": 8, "multipliers": (1, 2)}


class Laplace(ResidualLaw):
    """Independent Laplace noise with one scale per node."""

    name = "laplace"
    centred = True

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> "Laplace":
        self.scale = np.abs(residuals.values).mean(axis=0)  # maximum likelihood
        self.std = np.sqrt(2) * self.scale
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> np.ndarray:
        if sampling:
            raise pdno.UserError(f"a Laplace law has no setting {min(sampling)!r}; omit it")
        members = zip(rows.inputs, rows.members, strict=True)
        draws = [pdno.draw.generator(rows.seed, "laplace", int(i), int(m)) for i, m in members]
        return self.scale * np.stack([draw.laplace(size=self.scale.shape) for draw in draws])

    def evaluations(self, **sampling: Any) -> int:
        return 0

    def describe(self) -> str:
        return f"Laplace noise of mean absolute value {self.scale.mean():.3g}."

    def state(self) -> State:
        return State({}, {"scale": self.scale})

    @classmethod
    def from_state(cls, state: State) -> "Laplace":
        new = cls()
        new.scale = state.arrays["scale"]
        new.std = np.sqrt(2) * new.scale
        return new


class Descent(Mean):
    """A linear map by gradient descent, for as many steps as the budget allows, at most `steps`."""

    name = "descent"
    cheap_folds = False  # residuals come from held-out pairs

    def __init__(self, steps: int = 50) -> None:
        self.steps = steps
        self.map: np.ndarray | None = None

    def learn(self, pairs: pdno.Pairs, held_out: pdno.Pairs | None, terms: Terms) -> "Descent":
        x, y = _inputs(pairs.a, pairs.scalars), pairs.filled.reshape(len(pairs), -1)
        self.map, self.shape, self.done = np.zeros((x.shape[1], y.shape[1])), pairs.u.shape[1:], 0
        rate = 1 / np.linalg.norm(x, 2) ** 2
        while self.done < self.steps and terms.left() != 0.0:
            self.map += rate * x.T @ (y - x @ self.map)
            self.done += 1
        return self

    def __call__(self, a: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
        if self.map is None:
            raise pdno.UserError("this mean has not been trained; call fit first")
        x = _inputs(a, scalars)
        if x.shape[1] != len(self.map):
            raise pdno.UserError(f"an input has {x.shape[1] - 1} numbers, expected {len(self.map) - 1}; give the same channels")
        return (x @ self.map).reshape(len(a), *self.shape)

    def residuals(self, a, u, scalars=None, group=None, count=5, seed=0) -> np.ndarray:
        return refitted(self, a, u, scalars, group, count, seed)

    def describe(self) -> str:
        return f"A linear map after {self.done} steps."

    def state(self) -> State:
        return State({"steps": self.steps, "shape": list(self.shape), "done": self.done}, {"map": self.map})

    @classmethod
    def from_state(cls, state: State) -> "Descent":
        new = cls(state.settings["steps"])
        new.map, new.shape, new.done = state.arrays["map"], tuple(state.settings["shape"]), state.settings["done"]
        return new


def _inputs(a: np.ndarray, scalars: np.ndarray | None) -> np.ndarray:
    parts = [np.ones((len(a), 1)), a.reshape(len(a), -1), *([] if scalars is None else [scalars])]
    return np.concatenate(parts, axis=1)


@evaluations(lambda steps: 2 * steps)
def midpoint(denoise, v, a, chain, callback=None, **_: Any) -> torch.Tensor:
    """The deterministic chain, with û₀ averaged over two evaluations."""
    for k in range(chain.n_steps, 0, -1):
        n, gamma, before = int(chain.n[k]), chain.gamma[k], chain.gamma[k - 1]
        u0 = (denoise(n, v, a) + denoise(n, v, a)) / 2
        eps = (v - float(np.sqrt(gamma)) * u0) / float(np.sqrt(1 - gamma))
        v = float(np.sqrt(before)) * u0 + float(np.sqrt(1 - before)) * eps
        if callback is not None:
            callback(int(chain.n[k - 1]), v)
    return v


class Pointwise(nn.Module):
    """A network (n, v, a) ↦ prediction without any mixing between nodes."""

    def __init__(self, channels: int = 2, out_channels: int = 1, dim: int = 1) -> None:
        super().__init__()
        conv = nn.Conv1d if dim == 1 else nn.Conv2d
        self.layers = nn.Sequential(conv(channels, 8, 1), nn.GELU(), conv(8, out_channels, 1))

    def forward(self, n: torch.Tensor, v: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(torch.cat([v, a], dim=1))
        return out


def test_the_parts_pass_the_checks_of_the_package() -> None:
    assert "moments" in check_law(Laplace)
    assert "out-of-fold residuals" in check_mean(Descent)
    assert "moments" in check_sampler(midpoint)
    assert "gradients" in check_network(Pointwise)
    check_model(
        lambda: pdno.PDNO(mean=Descent(), law=Laplace()),
        lambda path: pdno.load(path, mean=Descent.from_state, law=Laplace.from_state),
    )


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "law": ({"mean": "linear", "law": Laplace()}, {"law": Laplace.from_state}),
    "mean": ({"mean": Descent(), "law": "gaussian"}, {"mean": Descent.from_state}),
    "sampler": ({"network": UNET, "mean": None, "diffusion": CHAIN, "sampler": midpoint}, {"sampler": midpoint}),
    "network": ({"network": Pointwise(), "mean": None, "diffusion": CHAIN}, {"network": Pointwise()}),
}


@pytest.mark.parametrize("part", CASES)
def test_a_part_goes_through_fit_predict_save_load_and_evaluate(part: str, tmp_path: Path) -> None:
    settings, loading = CASES[part]
    data = pdno.generate(pdno.equation.Elliptic1D(points=16), train=40, test=6, noise=pdno.noise.Gaussian(0.05), seed=0)
    model = pdno.PDNO(**settings, training=LOOP).fit(data.train.a, data.train.u, seed=0, progress=False)
    pred = model.predict(data.test.a, members=20, progress=False)
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(pdno.UserError, match="of your own"):
        pdno.load(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors", **loading)
    np.testing.assert_array_equal(again.predict(data.test.a, members=20, progress=False).mean, pred.mean)
    evaluation = pdno.evaluate(again, data.test, members=20, progress=False)
    assert np.isfinite(evaluation.scores["crps"].value)
    assert again.fit_summary == model.fit_summary


def test_an_own_mean_keeps_the_budget_of_the_model() -> None:
    a = np.random.default_rng(0).standard_normal((200, 1, 64))
    begin = time.monotonic()
    model = pdno.PDNO(mean=Descent(steps=10**9), law="gaussian", budget=1.0).fit(a, a, progress=False, validation=0.5)
    assert model.law is not None
    assert "steps" in model.fit_summary[0]
    assert time.monotonic() - begin < 60  # without a deadline it would not end


def test_an_own_sampler_counts_its_own_evaluations() -> None:
    a = np.random.default_rng(0).standard_normal((20, 16))
    model = pdno.PDNO(UNET, CHAIN, mean=None, sampler=midpoint, steps=4, training=LOOP).fit(a, a, progress=False)
    assert model.evaluations() == 8
    assert model.evaluations(sampler="ddim") == 4
