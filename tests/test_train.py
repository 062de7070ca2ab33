"""The training loop against hand arithmetic and a loop of a few lines; interrupted, spoiled and resumed in this process."""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pdno import UserError, checkpoint
from pdno.base import White
from pdno.diffusion import Diffusion
from pdno.engine import fabric
from pdno.record import State
from pdno.schedule import Schedule
from pdno.train import Order, Trained, Training, learning_rate, train
from tests.helpers import digest

PAIRS, INPUTS = 10, 3
X, Y = torch.randn(2, PAIRS, INPUTS, generator=torch.Generator().manual_seed(0))


def linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(INPUTS, INPUTS)


def squares(network: Any, rows: Any, first: int, step: int) -> Tensor:
    return ((network(X[rows]) - Y[rows]) ** 2).mean()


def fitted(objective=squares, precision: str = "32-true", network: nn.Module | None = None, **options: Any) -> Trained:
    """A linear network after a few steps; options that are none of `train` are settings."""
    own = {name: options.pop(name) for name in ("folder", "plan", "budget", "validate", "seed", "tell") if name in options}
    settings = Training(**{"updates": 12, "batch": 4, "rate": 0.05, "log_every": 4, **options})
    return train(network or linear(), objective, PAIRS, settings, fabric("cpu", precision=precision), **own)


def same(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def reproducible(folder: Path) -> tuple[bytes, bytes]:
    """What two runs must share to the byte."""
    return (folder / "checkpoint.safetensors").read_bytes(), (folder / "metrics.jsonl").read_bytes()


# Settings


@pytest.mark.parametrize(
    ("settings", "total", "expected"),
    [
        ({"rate_schedule": "constant"}, 4, [2, 2, 2, 2]),
        ({"rate_schedule": "step", "batch": 5, "halve_every": 2}, 9, [2, 2, 2, 2, 1, 1, 1, 1, 0.5]),  # an epoch is two steps
        ({"rate_schedule": "step", "batch": 20, "halve_every": 3}, 4, [2, 2, 1, 0.5]),  # a step is two epochs
        ({"rate_schedule": "cosine"}, 4, [2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5)]),
        ({"rate_schedule": "one-cycle"}, 10, [2, *(1 + math.cos(math.pi * k / 9) for k in range(9))]),
        ({"rate_schedule": "one-cycle"}, 22, [1, 2, *(1 + math.cos(math.pi * k / 20) for k in range(20))]),
        ({"rate_schedule": "one-cycle"}, 1, [2]),
    ],
)
def test_rates_by_hand(settings, total, expected) -> None:
    rates = [learning_rate(Training(rate=2, **settings), step, total, pairs=10) for step in range(total)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_the_number_of_steps() -> None:
    assert Training(epochs=3, batch=4).total(10) == 8  # 30 / 4, rounded up
    assert Training(epochs=0.1, batch=40).total(10) == 1
    assert Training(epochs=3, updates=5).total(10) == 5
    assert Training().total(10, default=7) == 7
    assert Training().total(10) == Training().total(10**6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"updates": -1}, "updates = -1"),
        ({"updates": 2.5}, r"updates = 2\.5"),
        ({"batch": 0}, "batch = 0"),
        ({"batch": 0.5}, r"batch = 0\.5"),
        ({"rate": 0.0}, r"rate = 0\.0"),
        ({"rate": math.nan}, "rate = nan"),
        ({"halve_every": 0}, "halve_every = 0"),
        ({"weight_decay": -0.1}, r"weight_decay = -0\.1"),
        ({"weight_decay": math.nan}, "weight_decay = nan"),
        ({"ema": 1.0}, r"ema = 1\.0"),
        ({"ema": -0.1}, r"ema = -0\.1"),
        ({"clip": -1}, "clip = -1"),
        ({"log_every": 0}, "log_every = 0"),
        ({"validations": -1}, "validations = -1"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds = -1"),
        ({"batch": 0, "ema": 2}, "batch = 0, ema = 2"),
        ({"optimizer": "sgd"}, "optimizer 'sgd' is unknown; .*adamw"),
        ({"rate_schedule": "onecycle"}, "rate_schedule 'onecycle' is unknown; did you mean 'one-cycle'"),
    ],
)
def test_nonsense_is_refused(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        Training(**settings)


def test_zero_means_without() -> None:
    Training(weight_decay=0, ema=0, clip=0, validations=0, checkpoint_seconds=0)


# Order


@pytest.mark.parametrize(("pairs", "batch"), [(12, 4), (10, 4), (3, 7), (1, 1)])
def test_every_pair_comes_once_an_epoch(pairs, batch) -> None:
    order = Order(pairs, batch, seed=3)
    seen = np.concatenate([order(step) for step in range(pairs)])  # `batch` epochs
    assert len(seen) == pairs * batch
    for epoch in seen.reshape(batch, pairs):
        assert sorted(epoch) == list(range(pairs))


def test_the_order_is_a_function_of_seed_and_step() -> None:
    steps = [Order(50, 8, seed=0)(step) for step in range(30)]
    for step in (29, 3, 17):
        np.testing.assert_array_equal(Order(50, 8, seed=0)(step), steps[step])
    assert not np.array_equal(Order(50, 8, seed=1)(0), steps[0])
    first, second = np.concatenate(steps)[:50], np.concatenate(steps)[50:100]
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.arange(50))


# The loop


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {"optimizer": "adamw", "weight_decay": 0.1}),
        (torch.optim.Adam, {"optimizer": "adam", "weight_decay": 0.1, "rate_schedule": "cosine"}),
        (torch.optim.AdamW, {"clip": 0.0, "ema": 0.5, "rate_schedule": "constant"}),
        (torch.optim.Adam, {"optimizer": "adam", "clip": 0.01, "ema": 0.0, "rate_schedule": "step", "halve_every": 2}),
    ],
)
def test_the_loop_is_the_one_that_anybody_would_write(kind, settings) -> None:
    trained = fitted(**settings, seed=5, updates=30)
    asked = Training(**{"updates": 30, "batch": 4, "rate": 0.05, **settings})
    network, order = linear(), Order(PAIRS, 4, seed=5)
    optimizer = kind(network.parameters(), weight_decay=asked.weight_decay)
    average = [p.detach().clone() for p in network.parameters()]
    for step in range(30):
        optimizer.param_groups[0]["lr"] = learning_rate(asked, step, 30, PAIRS)
        optimizer.zero_grad()
        squares(network, order(step), 0, step).backward()
        if asked.clip:
            nn.utils.clip_grad_norm_(network.parameters(), asked.clip)
        optimizer.step()
        decay = min(asked.ema, step / (9 + step)) if step else 0.0  # the first average is the first weights
        average = [decay * mean + (1 - decay) * p.detach() for mean, p in zip(average, network.parameters(), strict=True)]
    for mine, theirs in zip(trained.network.parameters(), average, strict=True):
        torch.testing.assert_close(mine.detach(), theirs, rtol=1e-5, atol=1e-6)
    assert trained.updates == 30
    assert not trained.network.training


def constant_gradient(network: Any, rows: Any, first: int, step: int) -> Tensor:
    return 100 * network(torch.ones(1, INPUTS)).sum()


@pytest.mark.parametrize(("clip", "norm"), [(0.5, 0.5), (0.0, 600.0), (1000.0, 600.0)])
def test_clipping_bounds_the_gradient(clip, norm) -> None:
    """3 biases and 9 weights with derivative 100: its norm is 100 √12; that of the six of two outputs would be less."""
    network = fitted(constant_gradient, clip=clip, ema=0.0, updates=2).network
    found = math.sqrt(sum(float((p.grad**2).sum()) for p in network.parameters() if p.grad is not None))
    assert found == pytest.approx(norm if clip == 0.5 else 100 * math.sqrt(12), rel=1e-5)
