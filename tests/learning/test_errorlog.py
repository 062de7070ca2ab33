"""The error during training: networks with a known prediction, and training that does not depend on the log."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pdno
from pdno import PDNO, Pairs, Training, UserError
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.schedule import Schedule
from pdno.learning.errorlog import ErrorLog
from pdno.model.baseline import FNO
from tests.learning.runs import fitted, reproducible, rows_of, same
from tests.learning.test_resume import disturbed

FROZEN = Training(updates=4, batch=4, rate=1e-30)  # 0.5 epochs per step


def size(network: nn.Module) -> float:
    return float(next(network.parameters()).detach().abs().sum())


def field(count: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 1, 16))


class Multiple(nn.Module):
    """Predict a multiple of the input, whatever the step and the noisy output are."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.factor * inputs[-1]


def errors(model) -> list[float | None]:
    return [row["mrle"] for row in model.history if "mrle" in row]


# When


def test_rows_after_every_two_epochs_and_at_the_end(tmp_path) -> None:
    """Steps have 0.4 epochs; the row has the weights after its step, averaged."""
    history = fitted(errors=(2, size), updates=12, folder=tmp_path).history
    logged = [row for row in history if "mrle" in row]
    assert [(row["step"], row["epoch"]) for row in logged] == [(5, 2.0), (10, 4.0), (12, 4.8)]
    assert logged[-1]["mrle"] == size(fitted(updates=12).network)
    assert "loss" in history[-1]
    assert rows_of(tmp_path) == history
    assert [row for row in history if "mrle" not in row] == fitted(updates=12).history


def test_a_limited_time_skips_measurements_that_take_long() -> None:
    log = ErrorLog(size, every=1, batch=10, pairs=10, is_limited=True, spent=3.0, longest=2.0)
    assert [log.is_due(1, 9, elapsed) for elapsed in (99.0, 101.0)] == [False, True]  # 5 s are a twentieth of 100 s
    assert log.is_due(9, 9, 1.0)


# Training does not depend on it


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_weights_are_the_same_without_the_log(ema) -> None:
    def careless(network: nn.Module) -> float:
        assert not network.training
        return float(torch.nan)

    with_log, without = fitted(errors=(0.1, careless), ema=ema), fitted(ema=ema)
    assert same(with_log.network, without.network)
    assert {row["mrle"] for row in with_log.history if "mrle" in row} == {None}


def test_an_interrupted_run_has_the_same_rows(tmp_path) -> None:
    how = {"errors": (1, size)}
    objective = disturbed(6, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run", **how)
    fitted(objective, folder=tmp_path / "run", **how)
    fitted(folder=tmp_path / "whole", **how)
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")


def test_a_diffusion_has_the_same_weights_without_the_log() -> None:
    a, models = field(40), []
    for log_error in (0, 2):
        network = {"kind": "unet", "base": 8}
        model = PDNO(network, Diffusion(Schedule.cosine(5)), mean=None, training=Training(updates=5, batch=10))
        models.append(model.fit(a, np.cumsum(a, axis=-1), progress=False, log_error=log_error))
    plain, logged = models
    assert same(plain.law.residual.net.module, logged.law.residual.net.module)
    assert len(errors(logged)) == 1
    assert np.array_equal(plain.sample(a[:2], 3), logged.sample(a[:2], 3))  # with the same e_n


# What: the error of a factor c in place of 1 is |c − 1|


def test_the_error_of_a_prediction() -> None:
    a = field()
    model = FNO(Multiple(0.7), normalise="none", training=FROZEN)
    model.fit(a, a, validation=(field(3, seed=1),) * 2, progress=False, log_error=1)
    assert errors(model) == pytest.approx([0.3, 0.3], rel=1e-6)


@pytest.mark.parametrize("variance", ["noise-free", "analytic"])
def test_the_error_of_members(variance) -> None:
    """A chain whose prediction of u₀ is 0.7 a ends there without noise; e_n of an exact prediction is 0."""
    a, held_out, factor = field(), field(3, seed=1), 0.7 if variance == "noise-free" else 1.0
    chain = Diffusion(Schedule.cosine(10), target="u0")
    model = PDNO(Multiple(factor), chain, mean=None, variance=variance, normalise="none", training=FROZEN)
    model.fit(a, a, validation=(held_out, held_out), progress=False, log_error=1)
    assert errors(model) == pytest.approx([1 - factor] * 2, abs=2e-3 if factor == 1 else 1e-6)


def test_the_error_on_other_pairs() -> None:
    """Outputs are 2 a there: a prediction of 0.7 a has the error 1.3/2, without validation pairs too."""
    a, other = field(), field(30, seed=1)
    pairs = Pairs.of(a, a), Pairs.of(other, 2 * other)
    chain = Diffusion(Schedule.cosine(10), target="u0")
    settings = {"normalise": "none", "training": FROZEN}
    for model in (
        FNO(Multiple(0.7), **settings),
        PDNO(Multiple(0.7), chain, mean=None, variance="noise-free", **settings),
    ):
        model.learn(pairs[0], None, log_error=2, log_pairs=pairs[1], progress=False)
        assert errors(model) == pytest.approx([0.65], rel=1e-6)


# Mistakes


@pytest.mark.parametrize("epochs", [-1, float("nan")])
def test_a_wrong_number_of_epochs_is_refused(epochs) -> None:
    with pytest.raises(UserError, match=r"log_error = .*: expected a number of epochs"):
        FNO(training=FROZEN).fit(field(), field(), log_error=epochs)


def test_the_error_needs_held_out_pairs(say, refused) -> None:
    pdno.generate(pdno.equation.Elliptic1D(points=16), train=20, test=2, out="d.zarr")
    small = "--set network.base=8 --set training.updates=2 --set diffusion.n_steps=4 --set reverse.steps=4"
    command = f"train d.zarr --preset paper:elliptic1d --out run --log-error 1 {small}"
    assert "logs the error on held-out pairs; got none, pass validation=0.1 (--validation 0.1)" in refused(command)
    say(f"{command} --validation 0.1")
    assert ["mrle" in row for row in rows_of(Path("run"))] == [True, False] * 2


def test_predictions_that_are_not_finite_do_not_stop_training() -> None:
    class Overflow(Multiple):
        def forward(self, *inputs: Tensor) -> Tensor:
            return super().forward(*inputs) if self.training else inputs[-1] / 0

    model = FNO(Overflow(0.7), normalise="none", training=FROZEN)
    model.fit(field(), field(), validation=(field(), field()), progress=False, log_error=2)
    assert errors(model) == [None]
