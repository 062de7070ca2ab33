r"""Monotone maps of coordinates, so that a process that is stationary in w varies faster at one end of the range of x:

    w(t) = log(1 + (e^c − 1) t)/c  for c > 0,        w(t; −c) = 1 − w(1 − t; c),        t = (x − low)/(high − low),

linear for c → 0 and beyond the range. c = 4 is about a logarithmic scale from 1 to 50. The bends c of all coordinates and the
hyper-parameters of all processes maximise the product of their posterior densities, in which c has a Gaussian prior.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ..._typing import Floats, Ints
from ...work.state import State
from .minimise import Objective, minimise
from .regression import Hyper, gaps_of, objective_of

__all__ = ["Warp", "curve", "warped"]

SPREAD = 1.0  # standard deviation of the prior of c
STEPS = 40  # of the search
STEP = 1e-4  # change of c in finite differences
LEAST = 1e-4  # c below which w is linear


@dataclass(frozen=True, eq=False)
class Warp:
    """A map of each coordinate, to values of unit variance.

    Args:
        low, high: range of each coordinate in training, (coordinate,).
        bend: c, (coordinate,).
        centre, scale: mean and standard deviation of w in training, (coordinate,).
    """

    low: Floats
    high: Floats
    bend: Floats
    centre: Floats
    scale: Floats

    @classmethod
    def of(cls, x: Floats, bend: Floats | None = None) -> Self:
        """Return the map for training coordinates (run, coordinate); default: a linear one."""
        low, high = x.min(axis=0), x.max(axis=0)
        high = np.where(high > low, high, np.inf)
        bend = np.zeros(len(low)) if bend is None else bend
        w = curve((x - low) / (high - low), bend)
        return cls(low, high, bend, w.mean(axis=0), np.where(np.isfinite(high), w.std(axis=0), np.inf))

    def __call__(self, x: Floats) -> Floats:
        """Return the coordinates of the processes, (row, coordinate)."""
        return np.asarray((curve((x - self.low) / (self.high - self.low), self.bend) - self.centre) / self.scale)

    def state(self) -> State:
        """Return all arrays, to be saved."""
        return State({}, dict(vars(self)))

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        return cls(**{name: np.array(values) for name, values in state.arrays.items()})


def curve(t: Floats, bend: Floats) -> Floats:
    """Return w(t), (row, coordinate), for bends (coordinate,).

    >>> curve(np.array([[0.0], [0.1], [1.0]]), np.array([4.0])).round(2).ravel().tolist()
    [0.0, 0.46, 1.0]
    """
    size = np.maximum(np.abs(bend), LEAST)
    s = np.where(bend < 0, 1 - t, t)
    inside = np.clip(s, 0, 1)
    beyond = np.where(s < 0, np.expm1(size), -np.expm1(-size)) / size * (s - inside)
    w = np.log1p(np.expm1(size) * inside) / size + beyond
    return np.where(np.abs(bend) < LEAST, t, np.where(bend < 0, 1 - w, w))


def warped(x: Floats, y: Floats, hyper: Hyper, bend: Floats | None = None, steps: int = STEPS) -> tuple[Warp, Hyper]:
    """Return maps of coordinates and hyper-parameters of largest posterior density.

    Args:
        x: coordinates, (run, coordinate).
        y: numbers, (run, process).
        hyper: where the search starts.
        bend: likewise, (coordinate,); default: 0.
        steps: of the search, at most.
    """
    count, d = hyper.log.shape[0], x.shape[1]
    if not count:
        return Warp.of(x), hyper
    start = np.append(hyper.log.ravel(), np.zeros(d) if bend is None else bend)
    best, _ = minimise(_objective(x, y, hyper), start[None], steps)
    return Warp.of(x, best[0, -d:]), Hyper(hyper.kernel, best[0, :-d].reshape(count, -1))


def _objective(x: Floats, y: Floats, hyper: Hyper) -> Objective:
    """Return the function of all log ℓ, log ν and c that is minimised."""
    d = x.shape[1]

    def objective(args: Floats, rows: Ints) -> tuple[Floats, Floats]:
        values, slopes = np.empty(len(args)), np.empty(args.shape)
        for i, each in enumerate(args):
            log, bend = each[:-d].reshape(len(hyper.log), -1), each[-d:]
            up, down = (gaps_of(*2 * (Warp.of(x, bend + h)(x),)) for h in (STEP, -STEP))
            own = objective_of(Warp.of(x, bend)(x), y, hyper.kernel, (up - down) / (2 * STEP))
            cost, slope = own(log, np.arange(len(log)))
            values[i] = cost.sum() + np.square(bend / SPREAD).sum() / 2
            slopes[i] = np.append(slope[:, : d + 1].ravel(), slope[:, d + 1 :].sum(axis=0) + bend / SPREAD**2)
        return values, slopes

    return objective
