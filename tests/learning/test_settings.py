"""Settings of the training loop: learning rates and numbers of steps by hand, and the order of the pairs."""

import math

import numpy as np
import pytest

from pdno import UserError
from pdno.learning.settings import Order, Training, learning_rate


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
def test_invalid_settings_are_refused(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        Training(**settings)


def test_zero_disables_a_setting() -> None:
    Training(weight_decay=0, ema=0, clip=0, validations=0, checkpoint_seconds=0)


# Order


@pytest.mark.parametrize(("pairs", "batch"), [(12, 4), (10, 4), (3, 7), (1, 1)])
def test_every_pair_occurs_once_per_epoch(pairs, batch) -> None:
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


def test_numbers_of_numpy_become_those_of_python() -> None:
    settings = Training(updates=np.int64(5), rate=np.float32(0.5))
    assert (type(settings.updates), type(settings.rate)) == (int, float)
    assert settings == Training(updates=5, rate=0.5)
