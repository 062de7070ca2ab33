"""Darcy flow from 16 × 16 to 64 × 64 and from 64 × 64 to 256 × 256 points by a cascade; write results/cascade.json.

Run by ``make bench-cascade``: ten minutes of one core. A kernel regression with Gaussian residuals, without and with the
symmetries of the square, is trained on averages over 4 × 4 cells; its members are interpolated, or refined by a small network
that is trained on the detail for a number of updates. For comparison: the same regression on the fine grid itself, or on as
many solutions of the equation on the coarse grid, interpolated; and the error of interpolating the exact averages. Times are
processor seconds. A grid that was measured is not measured again, unless AGAIN=1; ONLY='64 256' selects some.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

import pdno
from benchmarks.measured import Measured
from pdno._typing import Array
from pdno.evaluation import metrics
from pdno.mean import Network
from pdno.model.cascade import Cascade
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "cascade.json"
FACTOR = 4
MEMBERS = 10
DIRECT = 64  # points of the finest grid on which the regression itself is trained: it needs a number for each node
EXACT = "exact averages, interpolated"
TRAINING = pdno.Training(batch=8, rate=2e-3, weight_decay=1e-3, ema=0.98, validations=0)
SYMMETRIES = {"": (), ", symmetries": "square"}  # of the regressions, by the end of the name of a method

Draw = Callable[[], Array]


@dataclass(frozen=True)
class Case:
    """A fine grid.

    Args:
        points: along each axis.
        train, test: numbers of pairs.
        updates: of the network of the detail.
        symmetries: ends of names of methods.
    """

    points: int
    train: int
    test: int
    updates: int
    symmetries: tuple[str, ...]


CASES = {"64": Case(64, 400, 40, 300, tuple(SYMMETRIES)), "256": Case(256, 400, 40, 100, (", symmetries",))}


def timed(task: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a task and its processor seconds."""
    begin = process_time()
    return task(), process_time() - begin


def kernel(symmetries: Any) -> pdno.PDNO:
    return pdno.PDNO(mean="kernel", law="gaussian", symmetries=symmetries)


def on_the_coarse_grid(case: Case, new: Array, symmetries: Any) -> tuple[Draw, float]:
    """Train on solutions on the coarse grid; return the function that draws members on the fine one, and the training time."""
    data = pdno.generate(pdno.equation.Darcy(points=case.points // FACTOR), train=case.train, test=0, seed=0)
    model, seconds = timed(lambda: kernel(symmetries).fit(data.train.a, data.train.u, progress=False))

    def draw() -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # inputs with jumps are not resolved
            return np.asarray(model.sample(new, MEMBERS))

    return draw, seconds


def methods(case: Case, a: Array, u: Array, new: Array, truth: Array, symmetries: Any) -> dict[str, tuple[Draw, float]]:
    """Train models; return for each the function that draws members, and the training time.

    Args:
        case: the fine grid.
        a, u: training pairs.
        new, truth: test pairs.
        symmetries: of the regressions.
    """
    coarse, direct = kernel(symmetries), kernel(symmetries)
    network = Network("small", symmetries="square", training=replace(TRAINING, updates=case.updates))
    cascade = Cascade(coarse, pdno.PDNO(mean=network, law="gaussian"), FACTOR)
    _, whole = timed(lambda: cascade.fit(a, u, progress=False))
    native, alone = on_the_coarse_grid(case, new, symmetries)
    found: dict[str, tuple[Draw, float]] = {
        "solutions on the coarse grid, interpolated": (native, alone),
        "coarse model, interpolated": (lambda: cascade.interpolated(new, MEMBERS), alone),  # of as many pairs
        "cascade": (lambda: cascade.sample(new, MEMBERS), whole),
    }
    if case.points <= DIRECT:
        _, fine = timed(lambda: direct.fit(a, u, progress=False))
        found["fine model"] = (lambda: direct.sample(new, MEMBERS), fine)
    return {**found, EXACT: (lambda: cascade.raised(cascade.restricted(truth))[None], 0.0)}


def measure(case: Case) -> list[dict[str, Any]]:
    """Train and score all methods on a grid; return the rows."""
    data = pdno.generate(pdno.equation.Darcy(points=case.points), train=case.train, test=case.test, seed=0)
    a, u, new, truth = (np.asarray(x) for x in (data.train.a, data.train.u, data.test.a, data.test.u))
    shared = {"test": "darcy", "grid": f"{case.points}x{case.points}", "train": case.train, "noise": "none", "seed": 0}
    shared |= {"command": "make bench-cascade"}
    rows: list[dict[str, Any]] = []
    for end in case.symmetries:
        for name, (draw, seconds) in methods(case, a, u, new, truth, SYMMETRIES[end]).items():
            if name == EXACT and end != case.symmetries[-1]:
                continue  # once is enough
            members, drawing = timed(draw)
            method = name if name == EXACT else name + end
            fields = {**shared, "method": method, "members": len(members), "train_seconds": seconds, "sample_seconds": drawing}
            values = {"mrle": metrics.mrle(members.mean(axis=0), truth).value}
            if name != EXACT:
                values |= {"crps": metrics.crps(members, truth).value}
                values |= {"energy_score": metrics.energy_score(members, truth).value}
            rows += [results.row(metric, value, **fields) for metric, value in values.items()]
            print(method, {key: f"{value:.4g}" for key, value in values.items()}, round(seconds), round(drawing), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), help="points per side of the fine grid")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = Measured(RESULTS)
    for name in options.only:
        case = CASES[name]
        key = {"test": "darcy", "grid": f"{case.points}x{case.points}"}
        if options.again or not measured.has(key, case.updates):
            measured.add(key, measure(case), budget=case.updates)


if __name__ == "__main__":
    main()
