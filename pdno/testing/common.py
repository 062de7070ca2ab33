"""Synthetic data and comparisons that all checks share."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from ..data.pairs import Pairs
from ..errors import UserError
from ..learning.budget import Terms
from ..mean.base import pairs_of
from ..work.state import State, flatten, unflatten

__all__ = [
    "CASES",
    "NOISE",
    "CheckFailed",
    "close",
    "refuses",
    "require",
    "saved_state",
    "synthetic_pairs",
    "terms_of",
    "with_missing",
]

POINTS = 12  # of the synthetic fields, per axis
SAMPLES = 60  # synthetic pairs
NOISE = 0.1  # standard deviation of the synthetic noise
ROUNDING = 1e-4  # relative difference that single precision may make between batches


class CheckFailed(AssertionError):
    """A part does not fulfil its protocol; the message says what was expected and what happened."""


def require(condition: Any, message: str) -> None:
    """Raise CheckFailed with this message unless the condition is true."""
    if not condition:
        raise CheckFailed(message)


def refuses(action: Callable[[], Any], what: str) -> None:
    """Require that wrong input is refused by a UserError.

    Args:
        action: passes the wrong input.
        what: description of the input, for the message.

    Raises:
        CheckFailed: if the action succeeds, or raises another exception.
    """
    try:
        action()
    except UserError as error:
        require(len(str(error)) > 10, f"{what} is refused by {str(error)!r}; expected a sentence that says what to do")
    except Exception as error:
        raise CheckFailed(f"{what} raises {type(error).__name__} ({error}); expected pdno.UserError") from error
    else:
        raise CheckFailed(f"{what} is accepted; expected pdno.UserError")


def close(x: Any, y: Any, message: str, tolerance: float = ROUNDING) -> None:
    """Require that two arrays agree.

    Args:
        x, y: arrays of the same shape.
        message: says what should be equal.
        tolerance: largest difference, relative to the largest absolute value of y.

    Raises:
        CheckFailed: if they differ by more.
    """
    gap, size = float(np.abs(np.asarray(x) - np.asarray(y)).max(initial=0.0)), float(np.abs(np.asarray(y)).max(initial=0.0))
    require(gap <= tolerance * (size or 1.0), f"{message}: they differ by {gap:.3g}, values are up to {size:.3g}")


def synthetic_pairs(a_channels: int = 1, u_channels: int = 1, dim: int = 1, scalars: int = 0, seed: int = 0) -> Pairs:
    """Return noisy pairs of smooth fields, u = ∫ a dx (along the last axis) + sum of scalars + NOISE ξ.

    Args:
        a_channels, u_channels: number of channels of inputs and outputs.
        dim: of the grid.
        scalars: number of scalars.
        seed: of all draws.

    Returns:
        SAMPLES pairs with POINTS nodes per axis.
    """
    rng, grid = np.random.default_rng(seed), (POINTS,) * dim
    low = rng.standard_normal((SAMPLES, a_channels, *(3,) * dim))
    waves = np.cos(np.pi * np.arange(3)[:, None] * (np.arange(POINTS) + 0.5) / POINTS)
    a = low
    for _ in range(dim):
        a = np.moveaxis(a, 2, -1) @ waves
    s = rng.uniform(size=(SAMPLES, scalars)) if scalars else None
    mean = np.cumsum(a, axis=-1).sum(axis=1, keepdims=True) / POINTS
    u = np.concatenate([(c + 1) * mean for c in range(u_channels)], axis=1)
    if s is not None:
        u = u + s.sum(axis=1).reshape(-1, *(1,) * (dim + 1))
    return pairs_of(a, u + NOISE * rng.standard_normal((SAMPLES, u_channels, *grid)), s)


def with_missing(pairs: Pairs, value: float) -> Pairs:
    """Return pairs with a third of the outputs masked as missing; they have this value."""
    mask = np.random.default_rng(1).random(pairs.u.shape) < 2 / 3
    data = pairs.with_outputs(np.where(mask, pairs.u, value)).xarray
    return Pairs(data.assign(mask=xr.Variable(data["u"].dims, mask)))


CASES: dict[str, dict[str, int]] = {
    "one channel": {},
    "two channels": {"a_channels": 2, "u_channels": 2},
    "scalars": {"scalars": 2},
    "two dimensions": {"dim": 2},
}


def terms_of(seed: int = 0) -> Terms:
    """Return terms of training on the CPU without files, progress bars or deadline."""
    return Terms(seed, device="cpu", progress=False)


def saved_state(part: Any, name: str) -> State:
    """Return the state of a part as it is read back from a file.

    Raises:
        CheckFailed: if its settings are not plain JSON types.
    """
    arrays, metadata = flatten(part.state())
    try:
        text = json.dumps(metadata)
    except TypeError as error:
        raise CheckFailed(f"the settings of {name}.state() are not plain JSON types: {error}") from error
    return unflatten({key: np.array(values) for key, values in arrays.items()}, json.loads(text))
