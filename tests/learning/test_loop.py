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

from pdno import UserError
from pdno.diffusion.base import White
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.schedule import Schedule
from pdno.learning.loop import Order, Trained, Training, learning_rate, train
from pdno.learning.resume import State
from pdno.work import checkpoint
from pdno.work.engine import fabric
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
        decay = min(asked.ema, (1 + step) / (10 + step)) if step else 0.0  # the first average is the first weights
        average = [decay * mean + (1 - decay) * p.detach() for mean, p in zip(average, network.parameters(), strict=True)]
    for mine, theirs in zip(trained.network.parameters(), average, strict=True):
        torch.testing.assert_close(mine.detach(), theirs, rtol=1e-5, atol=1e-6)
    assert trained.updates == 30
    assert not trained.network.training


def steep(network: Any, rows: Any, first: int, step: int) -> Tensor:
    """The derivative by each of the 3 biases and 9 weights is 100."""
    return 100 * network(torch.ones(1, INPUTS)).sum()


@pytest.mark.parametrize(("clip", "norm"), [(0.5, 0.5), (0.0, 100 * math.sqrt(12)), (1000.0, 100 * math.sqrt(12))])
def test_clipping_bounds_the_gradient(clip, norm) -> None:
    network = fitted(steep, clip=clip, ema=0.0, updates=2).network
    assert math.hypot(*(float(p.grad.norm()) for p in network.parameters())) == pytest.approx(norm, rel=1e-5)


def test_weight_decay_of_adam_is_in_the_gradient_and_that_of_adamw_is_not() -> None:
    """Without a loss AdamW shrinks weights by a factor; Adam, which divides gradients by their size, by a distance."""

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
def test_validation_is_of_the_averaged_weights(updates, validations, steps) -> None:
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


def test_without_validation_there_is_none() -> None:
    assert not any("validation" in row for row in fitted().history)
    assert not any("validation" in row for row in fitted(validate=lambda network: 1.0, validations=0).history)


def test_validating_and_logging_change_nothing() -> None:
    plain = fitted(updates=20).network
    assert same(plain, fitted(updates=20, validate=lambda network: 1.0, log_every=1).network)


def test_training_in_another_thread() -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(fitted().network))
    thread.start()
    thread.join()
    assert same(found[0], fitted().network)


def test_double_precision_is_that_of_the_average_too() -> None:
    def exact(network: Any, rows: Any, first: int, step: int) -> Tensor:
        return ((network(X[rows].double()) - Y[rows]) ** 2).mean()

    trained = fitted(exact, precision="64-true")
    assert all(p.dtype == torch.float64 for p in trained.network.parameters())
    for mine, theirs in zip(trained.network.parameters(), fitted().network.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach().double(), rtol=1e-4, atol=1e-5)


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    with pytest.raises(UserError, match="batch of 4 cannot be shared by 3 processes"):
        train(linear(), squares, PAIRS, Training(batch=4), SimpleNamespace(world_size=3))


# Budget


def test_a_machine_that_becomes_slower_cuts_it_further() -> None:
    calls: list[int] = []

    def slow(network: Any, rows: Any, first: int, step: int) -> Tensor:
        calls.append(step)
        time.sleep(0.001 if len(calls) < 30 else 0.03)
        return squares(network, rows, first, step)

    cut = fitted(slow, updates=200, budget=1.0)
    assert 20 < cut.updates < 120  # 200 would have taken five seconds


def test_a_budget_cuts_the_number_of_steps() -> None:
    def slow(network: Any, rows: Any, first: int, step: int) -> Tensor:
        time.sleep(0.01)
        return squares(network, rows, first, step)

    cut = fitted(slow, updates=1000, budget=0.08)
    assert 1 <= cut.updates <= 8
    assert same(cut.network, fitted(updates=cut.updates).network)
    assert cut.history == fitted(updates=cut.updates).history


def test_the_steps_that_measured_time_are_undone(tmp_path) -> None:
    rich = fitted(folder=tmp_path / "budget", budget=1e9)
    assert rich.updates == 12
    assert same(rich.network, fitted(folder=tmp_path / "none").network)
    assert reproducible(tmp_path / "budget") == reproducible(tmp_path / "none")


# Going on


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert fitted(checkpoint_seconds=0).history
    assert not list(tmp_path.iterdir())


def disturbed(at: int, act: Callable[[], None]):
    """The objective, which does something at a step, the first time that it comes there."""
    done: list[int] = []

    def objective(network: Any, rows: Any, first: int, step: int) -> Tensor:
        if step == at and not done:
            done.append(step)
            act()
        return squares(network, rows, first, step)

    return objective


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_finishes_the_step_and_goes_on_to_the_same_bytes(number, tmp_path) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    objective = disturbed(5, lambda: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run")
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert saved_step(tmp_path / "run") in (6, 7)  # the one that was under way, or the next
    resumed, whole = fitted(objective, folder=tmp_path / "run"), fitted(folder=tmp_path / "whole")
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")
    assert same(resumed.network, whole.network)
    assert resumed.history == whole.history == rows_of(tmp_path / "run")


def saved_step(folder: Path) -> int:
    return int(checkpoint.load(folder / "checkpoint.safetensors", "training")[1]["step"])


def test_interrupted_twice_it_stops_at_once(tmp_path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    objective = disturbed(5, twice)
    with pytest.raises(KeyboardInterrupt):
        fitted(objective, folder=tmp_path / "run")
    assert saved_step(tmp_path / "run") == 0
    fitted(objective, folder=tmp_path / "run")
    fitted(folder=tmp_path / "whole")
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")


class Crash(Exception):
    """Somebody else's."""


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_rows_that_are_ahead_of_the_checkpoint_or_cut_short_are_written_again(seconds, tmp_path) -> None:
    def crash() -> None:
        with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
            file.write('{"step": 10, "epoch": 4.0, "loss": 1, "rate": 1}\n{"step": 1')
        raise Crash

    objective = disturbed(9, crash)
    how = {"log_every": 2, "checkpoint_seconds": seconds}
    with pytest.raises(Crash):
        fitted(objective, folder=tmp_path / "run", **how)
    assert saved_step(tmp_path / "run") == (0 if seconds else 9)
    fitted(objective, folder=tmp_path / "run", **how)
    fitted(folder=tmp_path / "whole", **how)
    assert reproducible(tmp_path / "run") == reproducible(tmp_path / "whole")
    times = [json.loads(line)["step"] for line in (tmp_path / "run" / "times.jsonl").read_text().splitlines()]
    assert times == [2, 4, 6, 8, 10, 12]


def test_a_finished_run_is_not_trained_further(tmp_path) -> None:
    def never(network: Any, rows: Any, first: int, step: int) -> Tensor:
        raise AssertionError("took a step")

    first = fitted(folder=tmp_path)
    before = digest(tmp_path)
    again = fitted(never, folder=tmp_path)
    assert same(again.network, first.network)
    assert (again.history, again.updates) == (first.history, first.updates)
    assert digest(tmp_path) == before


def test_a_run_with_other_settings_is_left_alone(tmp_path) -> None:
    plan = {"training": {"rate": 0.1, "batch": 4}, "seed": 0, "gamma": [1.0, 0.5]}
    fitted(folder=tmp_path, plan=plan)
    before = digest(tmp_path)
    others = [
        ({**plan, "seed": 1}, "seed"),
        ({**plan, "training": {"rate": 0.2, "batch": 4}}, r"training\.rate"),
        ({**plan, "training": {"rate": 0.1}, "gamma": [1.0]}, r"gamma, training\.batch"),
    ]
    for other, names in others:
        with pytest.raises(UserError, match=rf"other settings \({names}\)"):
            fitted(folder=tmp_path, plan=other)
    with pytest.raises(UserError, match="another network"):
        fitted(folder=tmp_path, plan=plan, network=nn.Linear(INPUTS, 2))
    assert digest(tmp_path) == before
    fitted(folder=tmp_path, plan=plan)


@pytest.mark.filterwarnings("ignore:.*no-op")  # a tensor on "meta" has no values, but a place
def test_the_optimiser_comes_back_to_where_the_weights_are() -> None:
    network = nn.Linear(2, 1, device="meta")
    state = State(network, torch.optim.Adam(network.parameters()))
    tensors = {"network.weight": torch.ones(1, 2), "network.bias": torch.ones(1)}
    tensors |= {f"optimizer.weight.{name}": torch.ones(1, 2) for name in ("exp_avg", "exp_avg_sq")}
    state.restore({**tensors, "optimizer.weight.step": torch.tensor(3.0)}, 3, [])
    found = state.optimizer.state[network.weight]
    assert {name: (v.device.type, tuple(v.shape)) for name, v in found.items()} == {
        "exp_avg": ("meta", (1, 2)),
        "exp_avg_sq": ("meta", (1, 2)),
        "step": ("meta", ()),
    }


# Trouble


def infinite_loss(network: Any, loss: Tensor) -> Tensor:
    return loss / 0


def nan_loss(network: Any, loss: Tensor) -> Tensor:
    return loss * math.nan


def nan_gradient(network: Any, loss: Tensor) -> Tensor:
    """√x at 0 where x does not depend on the weights: a finite value with derivative ∞ · 0."""
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


# The whole


class LinearInSteps(nn.Module):
    """Linear in (v, a), with other weights for each n."""

    def __init__(self, steps: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(steps, outputs, outputs + inputs, dtype=torch.float64))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        return (self.weight[n - 1] @ torch.cat([v[:, 0], a], dim=1)[..., None]).transpose(1, 2)


@pytest.mark.parametrize("target", ["u0", "eps"])
def test_training_approaches_the_posterior_mean(target) -> None:
    """u = G a + η with a, η and ε jointly of mean zero and covariance I (±√k times each unit vector of R^k)."""
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
