"""The training loop against hand arithmetic and a loop of a few lines."""

import math
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pdno import UserError
from pdno.diffusion.base import White
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.schedule import Schedule
from pdno.learning.loop import train
from pdno.learning.settings import Order, Training, learning_rate
from pdno.work.engine import fabric
from tests.learning.runs import INPUTS, PAIRS, X, Y, fitted, linear, reproducible, same, saved_step, squares


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {"optimizer": "adamw", "weight_decay": 0.1}),
        (torch.optim.Adam, {"optimizer": "adam", "weight_decay": 0.1, "rate_schedule": "cosine"}),
        (torch.optim.AdamW, {"clip": 0.0, "ema": 0.5, "rate_schedule": "constant"}),
        (torch.optim.Adam, {"optimizer": "adam", "clip": 0.01, "ema": 0.0, "rate_schedule": "step", "halve_every": 2}),
    ],
)
def test_the_loop_equals_one_of_a_few_lines(kind, settings) -> None:
    trained = fitted(**settings, seed=5, updates=30)
    expected = Training(**{"updates": 30, "batch": 4, "rate": 0.05, **settings})
    network, order = linear(), Order(PAIRS, 4, seed=5)
    optimizer = kind(network.parameters(), weight_decay=expected.weight_decay)
    average = [p.detach().clone() for p in network.parameters()]
    for step in range(30):
        optimizer.param_groups[0]["lr"] = learning_rate(expected, step, 30, PAIRS)
        optimizer.zero_grad()
        squares(network, order(step), 0, step).backward()
        if expected.clip:
            nn.utils.clip_grad_norm_(network.parameters(), expected.clip)
        optimizer.step()
        decay = min(expected.ema, (1 + step) / (10 + step)) if step else 0.0  # the first average is the first weights
        average = [decay * mean + (1 - decay) * p.detach() for mean, p in zip(average, network.parameters(), strict=True)]
    for mine, theirs in zip(trained.network.parameters(), average, strict=True):
        torch.testing.assert_close(mine.detach(), theirs, rtol=1e-5, atol=1e-6)
    assert trained.updates == 30
    assert not trained.network.training


def steep(network: Any, rows: Any, first: int, step: int) -> Tensor:
    """Return a loss whose derivative with respect to each of the 3 biases and 9 weights is 100."""
    return 100 * network(torch.ones(1, INPUTS)).sum()


@pytest.mark.parametrize(("clip", "norm"), [(0.5, 0.5), (0.0, 100 * math.sqrt(12)), (1000.0, 100 * math.sqrt(12))])
def test_clipping_bounds_the_gradient(clip, norm) -> None:
    network = fitted(steep, clip=clip, ema=0.0, updates=2).network
    assert math.hypot(*(float(p.grad.norm()) for p in network.parameters())) == pytest.approx(norm, rel=1e-5)


def test_weight_decay_of_adam_is_in_the_gradient_and_that_of_adamw_is_not() -> None:
    """With zero loss, AdamW multiplies weights by a factor; Adam divides gradients by their size and subtracts a constant."""

    def nothing(network: Any, rows: Any, first: int, step: int) -> Tensor:
        return 0 * network(X[rows]).sum()

    how = {"rate": 0.01, "rate_schedule": "constant", "weight_decay": 0.5, "ema": 0.0, "clip": 0.0}
    before = linear().weight.detach()
    adamw = fitted(nothing, optimizer="adamw", updates=3, **how).network.weight.detach()
    torch.testing.assert_close(adamw, before * (1 - 0.01 * 0.5) ** 3)
    adam = fitted(nothing, optimizer="adam", updates=1, **how).network.weight.detach()
    torch.testing.assert_close(adam, before - 0.01 * before.sign(), rtol=1e-5, atol=1e-6)


def test_rows_of_the_log() -> None:
    """The loss is the mean since the last row."""

    def number(network: Any, rows: Any, first: int, step: int) -> Tensor:
        return 0 * network(X[rows]).sum() + step

    history = fitted(number, updates=10, log_every=4, rate_schedule="constant").history
    assert [row["step"] for row in history] == [4, 8, 10]
    assert [row["loss"] for row in history] == pytest.approx([1.5, 5.5, 8.5])
    assert [row["epoch"] for row in history] == pytest.approx([1.6, 3.2, 4.0])
    assert [row["rate"] for row in history] == [0.05] * 3


@pytest.mark.parametrize(
    ("updates", "validations", "steps"), [(12, 3, [4, 8, 12]), (13, 3, [5, 10, 13]), (3, 10, [1, 2, 3]), (12, 1, [12])]
)
def test_the_validation_loss_is_that_of_the_averaged_weights(updates, validations, steps) -> None:
    seen = []

    def validate(network: nn.Module) -> float:
        seen.append([p.detach().clone() for p in network.parameters()])
        return float(squares(network, np.arange(PAIRS), 0, 0).detach())

    raw = linear()
    trained = fitted(network=raw, validate=validate, ema=0.9, updates=updates, validations=validations)
    rows = [row for row in trained.history if "validation" in row]
    assert [row["step"] for row in rows] == steps
    assert len(seen) == len(steps)
    assert all(torch.equal(a, b) for a, b in zip(seen[-1], trained.network.parameters(), strict=True))
    assert rows[-1]["validation"] == validate(trained.network) != validate(raw)


def test_without_validation_the_log_has_no_validation_loss() -> None:
    assert not any("validation" in row for row in fitted().history)
    assert not any("validation" in row for row in fitted(validate=lambda network: 1.0, validations=0).history)


def test_validation_and_logging_do_not_change_the_weights() -> None:
    plain = fitted(updates=20).network
    assert same(plain, fitted(updates=20, validate=lambda network: 1.0, log_every=1).network)


def test_training_in_another_thread() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(fitted().network))
    thread.start()
    thread.join()
    assert same(found[0], fitted().network)


def test_averaged_weights_have_double_precision_too() -> None:
    def exact(network: Any, rows: Any, first: int, step: int) -> Tensor:
        return ((network(X[rows].double()) - Y[rows]) ** 2).mean()

    trained = fitted(exact, precision="64-true")
    assert all(p.dtype == torch.float64 for p in trained.network.parameters())
    for mine, theirs in zip(trained.network.parameters(), fitted().network.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach().double(), rtol=1e-4, atol=1e-5)


def test_a_batch_that_cannot_be_divided_is_refused() -> None:
    with pytest.raises(UserError, match="batch of 4 cannot be divided among 3 processes"):
        train(linear(), squares, PAIRS, Training(batch=4), SimpleNamespace(world_size=3))


# Losses that are not finite


def infinite_loss(network: Any, loss: Tensor) -> Tensor:
    return loss / 0


def nan_loss(network: Any, loss: Tensor) -> Tensor:
    return loss * math.nan


def nan_gradient(network: Any, loss: Tensor) -> Tensor:
    """Add √x at x = 0, where x does not depend on the weights: finite, with the derivative ∞ · 0."""
    return loss + (0 * network(X).sum()).sqrt()


@pytest.mark.parametrize("spoil", [infinite_loss, nan_loss, nan_gradient])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_loss_that_is_not_finite_stops_the_run(spoil, clip, tmp_path) -> None:
    def objective(network: Any, rows: Any, first: int, step: int) -> Tensor:
        loss = squares(network, rows, first, step)
        return spoil(network, loss) if step == 7 else loss

    how = {"clip": clip, "checkpoint_seconds": 0}
    with pytest.raises(UserError, match=r"became (nan|inf) at step 8 of 12.* the last checkpoint is kept"):
        fitted(objective, folder=tmp_path / "run", **how)
    assert saved_step(tmp_path / "run") == 7
    fitted(folder=tmp_path / "run", **how)
    fitted(folder=tmp_path / "whole", **how)
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")


# A closed form


class LinearInSteps(nn.Module):
    """A linear map of (v, a) for each n."""

    def __init__(self, steps: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(steps, outputs, outputs + inputs, dtype=torch.float64))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        return (self.weight[n - 1] @ torch.cat([v[:, 0], a], dim=1)[..., None]).transpose(1, 2)


@pytest.mark.parametrize("target", ["u0", "eps"])
def test_training_approaches_the_posterior_mean(target) -> None:
    """u = G a + η, where (a, η, ε) are ±√k times the unit vectors of R^k: of mean zero and covariance I exactly."""
    steps, inputs, size = 3, 1, 2
    diffusion = Diffusion(Schedule.cosine(steps), White(), target)
    g = torch.tensor([[1.0], [-0.5]], dtype=torch.float64)
    factor = torch.tensor([[0.6, 0.0], [0.3, 0.4]], dtype=torch.float64)
    k = inputs + 2 * size
    unit = k**0.5 * torch.eye(k, dtype=torch.float64)
    a, z, eps = torch.cat([unit, -unit]).repeat(steps, 1).split([inputs, size, size], dim=1)
    u0, eps = (a @ g.T + z @ factor.T)[:, None], eps[:, None]
    n = torch.arange(1, steps + 1).repeat_interleave(2 * k)

    def objective(network: Any, rows: Any, first: int, step: int) -> Tensor:
        return diffusion.loss(network, n[rows], u0[rows], eps[rows], a[rows])

    settings = Training(updates=1500, batch=10, rate=0.03, rate_schedule="one-cycle", log_every=500)
    trained = train(LinearInSteps(steps, inputs, size), objective, len(n), settings, fabric("cpu", precision="64-true"))
    v = torch.tensor([[[1.0, -1.0]], [[0.3, 0.8]]], dtype=torch.float64)
    given, sigma = torch.tensor([[1.0], [-2.0]], dtype=torch.float64), factor @ factor.T
    for step in range(1, steps + 1):
        gamma, mean = diffusion.schedule.gamma[step], (given @ g.T)[:, None]
        gain = gamma**0.5 * sigma @ torch.linalg.inv(gamma * sigma + (1 - gamma) * torch.eye(size, dtype=torch.float64))
        with torch.no_grad():
            found = diffusion.denoiser(trained.network)(step, v, given)
        torch.testing.assert_close(found, mean + (v - gamma**0.5 * mean) @ gain.T, rtol=0.01, atol=0.01)


def losses(values: list[float], seen: list[list[Tensor]]):
    """Return a validation loss that has these values one after the other, and records the weights."""

    def validate(network: nn.Module) -> float:
        seen.append([p.detach().clone() for p in network.parameters()])
        return values[len(seen) - 1]

    return validate


@pytest.mark.parametrize(("last", "best"), [(3.0, 1), (0.5, 4)])
def test_patience_shortens_training_and_restores_the_weights_of_the_lowest_loss(last, best, monkeypatch) -> None:
    monkeypatch.setattr("pdno.learning.loop.LEAST_INTERVAL", 2)
    seen: list[list[Tensor]] = []
    validate = losses([3.0, 1.0, 2.0, 1.5, last], seen)
    trained = fitted(validate=validate, ema=0.9, updates=40, validations=20, patience=2, log_every=1)
    assert trained.updates == 10  # validations at steps 2, 4, 6 and 8, and a fifth of eight steps more
    assert all(torch.equal(a, b) for a, b in zip(seen[best], trained.network.parameters(), strict=True))
    rates = [row["rate"] for row in trained.history]
    assert rates[-1] < 0.1 * rates[7]


def test_with_patience_the_best_weights_are_kept_at_the_end_too(monkeypatch) -> None:
    monkeypatch.setattr("pdno.learning.loop.LEAST_INTERVAL", 2)
    seen: list[list[Tensor]] = []
    trained = fitted(validate=losses([3.0, 1.0, 2.0], seen), ema=0.0, updates=6, validations=20, patience=2)
    assert trained.updates == 6
    assert all(torch.equal(a, b) for a, b in zip(seen[1], trained.network.parameters(), strict=True))
    assert not torch.equal(seen[1][0], seen[2][0])


def test_validations_with_patience_are_not_too_frequent() -> None:
    seen: list[list[Tensor]] = []
    fitted(validate=losses([1.0] * 9, seen), updates=100, validations=50, patience=9)
    assert len(seen) == 5


def test_a_validation_loss_that_is_not_finite_is_never_the_best(monkeypatch) -> None:
    monkeypatch.setattr("pdno.learning.loop.LEAST_INTERVAL", 2)
    seen: list[list[Tensor]] = []
    trained = fitted(validate=losses([math.nan, 2.0, math.inf], seen), ema=0.0, updates=6, validations=20, patience=3)
    assert all(torch.equal(a, b) for a, b in zip(seen[1], trained.network.parameters(), strict=True))
