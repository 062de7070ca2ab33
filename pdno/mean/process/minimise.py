"""Minimisation of many functions at once, each by the limited-memory BFGS method (Nocedal and Wright, chapter 7)."""

from collections.abc import Callable

import numpy as np

from ..._typing import Floats, Ints

__all__ = ["Objective", "minimise"]

MEMORY = 8  # steps from which curvature is estimated
ARMIJO = 1e-4  # share of the decrease that the slope promises, that a step must achieve
HALVINGS = 8  # of a step, before a function counts as converged
LONGEST = 1.0  # change of an argument in one step
GAIN = 1e-3  # decrease below which a function counts as converged
TINY = 1e-300

Objective = Callable[[Floats, Ints], tuple[Floats, Floats]]


def minimise(objective: Objective, start: Floats, steps: int = 100) -> tuple[Floats, Floats]:
    """Minimise functions that have nothing to do with each other.

    Args:
        objective: arguments (row, argument) and numbers of the functions (row,) ↦ values (row,) and slopes (row, argument).
        start: of each function, (function, argument).
        steps: at most.

    Returns:
        The arguments, (function, argument), and the values there, (function,).

    >>> x, value = minimise(lambda x, rows: (((x - 3) ** 2).sum(axis=1), 2 * (x - 3)), np.zeros((2, 1)))
    >>> x.round(3).tolist(), value.round(6).tolist()
    ([[3.0], [3.0]], [0.0, 0.0])
    """
    x, active = start.copy(), np.arange(len(start))
    value, slope = objective(x, active)
    moves, bends = (np.zeros((MEMORY, *x.shape)) for _ in range(2))  # changes of arguments and of slopes
    for _ in range(steps):
        direction = -_curved(slope[active], moves[:, active], bends[:, active])
        direction *= np.minimum(1.0, LONGEST / np.maximum(np.abs(direction).max(axis=1, keepdims=True), TINY))
        descent = (direction * slope[active]).sum(axis=1)
        size, open_ = np.ones(len(active)), np.arange(len(active))
        new, new_value, new_slope = x[active].copy(), value[active].copy(), slope[active].copy()
        for _ in range(HALVINGS):
            tried = x[active[open_]] + size[open_, None] * direction[open_]
            v, g = objective(tried, active[open_])
            good = v <= value[active[open_]] + ARMIJO * size[open_] * descent[open_]  # False for NaN
            done = open_[good]
            new[done], new_value[done], new_slope[done] = tried[good], v[good], g[good]
            open_ = open_[~good]
            if not len(open_):
                break
            size[open_] /= 2
        moves, bends = np.roll(moves, 1, axis=0), np.roll(bends, 1, axis=0)
        moves[0], bends[0] = 0.0, 0.0
        moves[0, active], bends[0, active] = new - x[active], new_slope - slope[active]
        gain = value[active] - new_value
        x[active], value[active], slope[active] = new, new_value, new_slope
        active = active[gain > GAIN]
        if not len(active):
            break
    return x, value


def _curved(slope: Floats, moves: Floats, bends: Floats) -> Floats:
    """Return the inverse of the estimated curvature times the slope, (function, argument), from the latest steps first."""
    q, weights = slope.copy(), []
    curvature = (moves * bends).sum(axis=2)
    inverse = np.where(curvature > TINY, 1 / np.where(curvature > TINY, curvature, 1.0), 0.0)  # 0 ignores a step
    for s, y, rho in zip(moves, bends, inverse, strict=True):
        weights.append(rho * (s * q).sum(axis=1))
        q -= weights[-1][:, None] * y
    latest, size = curvature[0], (bends[0] ** 2).sum(axis=1)
    q *= np.where((latest > TINY) & (size > TINY), latest / np.where(size > TINY, size, 1.0), 1.0)[:, None]
    for s, y, rho, weight in reversed(list(zip(moves, bends, inverse, weights, strict=True))):
        q += (weight - rho * (y * q).sum(axis=1))[:, None] * s
    return q
