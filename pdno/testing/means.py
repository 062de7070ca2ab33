"""Checks of mean models."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np

from ..data.pairs import Pairs
from ..mean.base import Mean
from ..work.state import State
from .common import CASES, close, refuses, require, saved_state, synthetic_pairs, terms_of, with_missing

__all__ = ["check_mean"]

HUGE = 1e6  # value put in place of missing outputs, which must not matter


def check_mean(make: Callable[[], Mean], restore: Callable[[State], Mean] | None = None) -> list[str]:
    """Check a mean model.

    Args:
        make: returns a new, untrained mean.
        restore: restores a mean from its state; default: `from_state` of its class.

    Returns:
        The names of the checks that passed.

    Raises:
        CheckFailed: if a check fails.
    """
    pairs, passed = synthetic_pairs(), []
    refuses(lambda: make()(pairs.a), "a prediction before training")
    for name, case in CASES.items():
        data = synthetic_pairs(**case)
        mean = make().learn(data, None, terms_of())
        predicted = mean(data.a[:5], data.scalars if data.scalars is None else data.scalars[:5])
        shape = data.u[:5].shape
        require(np.shape(predicted) == shape, f"{name}: m(a) has shape {np.shape(predicted)}; expected {shape}, that of u")
        require(np.isfinite(predicted).all(), f"{name}: m(a) is not finite")
    passed.append("shapes")
    mean, again = (make().learn(pairs, None, terms_of(3)) for _ in range(2))
    m = np.asarray(mean(pairs.a))
    close(again(pairs.a), m, "two means trained with the same seed make different predictions", 0.0)
    passed.append("same seed")
    close(np.concatenate([mean(pairs.a[i : i + 1]) for i in range(4)]), m[:4], "m(a) depends on the batch")
    passed.append("batch independence")
    _check_residuals(mean, pairs)
    passed.append("out-of-fold residuals")
    if mean.accepts_missing:
        zero, huge = (make().learn(with_missing(pairs, value), None, terms_of())(pairs.a) for value in (0.0, HUGE))
        close(zero, huge, "values at missing nodes change the predictions", 0.0)
        passed.append("missing values")
    copy = deepcopy(mean)
    copy.learn(synthetic_pairs(seed=5), None, terms_of())
    close(mean(pairs.a), m, "training a copy changes the predictions of the original", 0.0)
    passed.append("copies")
    back = (restore or type(mean).from_state)(saved_state(mean, "mean"))
    close(back(pairs.a), m, "a restored mean makes other predictions", 0.0)
    require(back.describe() == mean.describe(), "a restored mean describes itself in other words")
    passed.append("saving")
    wide = np.concatenate([pairs.a, pairs.a], axis=1)
    if np.ptp(m, axis=0).max() > 0:  # else the mean ignores its input
        refuses(lambda: mean(wide), "an input with another number of channels")
    passed.append("wrong input")
    return passed


def _check_residuals(mean: Mean, pairs: Pairs) -> None:
    """Require that u_i, changed by δ, changes its own residual by about δ: m_{−i} must not have seen it."""
    base = np.asarray(mean.residuals(pairs.a, pairs.u))
    require(base.shape == pairs.u.shape, f"residuals have shape {base.shape}; expected {pairs.u.shape}, that of u")
    changed, delta = pairs.u.copy(), 0.5 * float(pairs.u.std())
    changed[7] += delta
    moved = float((np.asarray(mean.residuals(pairs.a, changed))[7] - base[7]).mean())
    require(
        moved > 0.5 * delta,
        f"a change of u by {delta:.3g} changes its own residual by {moved:.3g}; out-of-fold residuals change by about as much",
    )
