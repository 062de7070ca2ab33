"""Darcy flow from 16 × 16 to 64 × 64 points by a cascade; write results/cascade.json.

Run by ``make bench-cascade``: three minutes of one core. A kernel regression with Gaussian residuals, without and with the
symmetries of the square, is trained on averages over 4 × 4 cells; its members are interpolated, or refined by a small network
that is trained on the detail for a number of updates. For comparison, the same regression on the fine grid itself, and the
error of interpolating the exact averages. Times are processor seconds.
"""

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

import pdno
from pdno._typing import Array
from pdno.evaluation import metrics
from pdno.mean import Network
from pdno.model.cascade import Cascade
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "cascade.json"
POINTS, FACTOR = 64, 4
TRAIN, TEST, MEMBERS = 400, 40, 10
EXACT = "exact averages, interpolated"
TRAINING = pdno.Training(updates=300, batch=8, rate=2e-3, weight_decay=1e-3, ema=0.98, validations=0)


SYMMETRIES = {"": (), ", symmetries": "square"}  # of the regressions, by the end of the name of a method


def timed(task: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a task and its processor seconds."""
    begin = process_time()
    return task(), process_time() - begin


def methods(a: Array, u: Array, new: Array, truth: Array, symmetries: Any) -> dict[str, tuple[Callable[[], Array], float]]:
    """Train models; return for each the function that draws members, and the training time.

    Args:
        a, u: training pairs.
        new, truth: test pairs.
        symmetries: of the regressions.
    """
    coarse, again, direct = (pdno.PDNO(mean="kernel", law="gaussian", symmetries=symmetries) for _ in range(3))
    detail = pdno.PDNO(mean=Network("small", symmetries="square", training=TRAINING), law="gaussian")
    cascade = Cascade(coarse, detail, FACTOR)
    _, whole = timed(lambda: cascade.fit(a, u, progress=False))
    _, alone = timed(lambda: again.fit(cascade.restricted(a), cascade.restricted(u), progress=False))
    _, fine = timed(lambda: direct.fit(a, u, progress=False))
    return {
        "coarse model, interpolated": (lambda: cascade.interpolated(new, MEMBERS), alone),
        "cascade": (lambda: cascade.sample(new, MEMBERS), whole),
        "fine model": (lambda: direct.sample(new, MEMBERS), fine),
        EXACT: (lambda: cascade.raised(cascade.restricted(truth))[None], 0.0),
    }


def main() -> None:
    torch.set_num_threads(1)
    data = pdno.generate(pdno.equation.Darcy(points=POINTS), train=TRAIN, test=TEST, seed=0)
    a, u, new, truth = (np.asarray(x) for x in (data.train.a, data.train.u, data.test.a, data.test.u))
    shared = {"test": "darcy", "grid": f"{POINTS}x{POINTS}", "train": TRAIN, "noise": "none", "seed": 0}
    shared |= {"command": "make bench-cascade"}
    rows: list[dict[str, Any]] = []
    for end, symmetries in SYMMETRIES.items():
        for name, (draw, seconds) in methods(a, u, new, truth, symmetries).items():
            if name == EXACT and end == "":
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
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
