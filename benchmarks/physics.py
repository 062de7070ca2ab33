"""Train networks on few pairs, on the residual of the equation, and on both; write results/physics.json.

Run by ``make bench-physics``; it takes seven minutes. All networks of a problem take the same number of steps. Kernel
regression on the same pairs is the reference.
"""

import math
from pathlib import Path
from time import perf_counter
from typing import Any

import pdno
from benchmarks.problem import Row, row
from pdno import Training
from pdno.equation import Darcy, Elliptic1D, Equation
from pdno.evaluation import metrics
from pdno.mean import Kernel, Mean, Network, Physics
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "physics.json"
PAIRS = (20, 100)
TEST = 200
FURTHER = 2000  # inputs without outputs
WEIGHT = 0.01  # λ, of a few powers of ten the best one in a trial with 50 other pairs of each problem
TRAINING = Training(updates=500, batch=16, rate=2e-3, ema=0.99)
PROBLEMS: tuple[tuple[Equation, str], ...] = ((Elliptic1D(points=64, log_scale=0.5), "small-fno"), (Darcy(points=16), "small"))


def means(eq: Equation, network: str) -> dict[str, Mean]:
    """Return the mean models by the name of their loss."""
    further = eq.sample_input(FURTHER, seed=2)
    losses = {
        "data": None,
        "equation": Physics(eq, math.inf),
        "equation, further inputs": Physics(eq, math.inf, further),
        "equation, further inputs, s = 1": Physics(eq, math.inf, further, smoothing=1.0),
        "both": Physics(eq, WEIGHT),
        "both, further inputs": Physics(eq, WEIGHT, further),
    }
    kind = eq.grid.axes[0].kind
    networks = {name: Network(network, kind=kind, training=TRAINING, physics=each) for name, each in losses.items()}
    return {"kernel": Kernel(kind=kind), **networks}


def measure(eq: Equation, train: int, name: str, mean: Mean) -> Row:
    """Return the row of one mean model."""
    data = pdno.generate(eq, train, TEST, seed=10)
    begin = perf_counter()
    mean.fit(data.train.a, data.train.u)
    seconds = perf_counter() - begin
    error = metrics.mrle(mean(data.test.a), data.test.u)
    fields: dict[str, Any] = {"method": name, "error": error.error, "train_seconds": seconds, "seed": 10}
    return row(eq, "mrle_mean_model", error.value, train, **fields, command="make bench-physics")


def main() -> None:
    rows: list[Row] = []
    for eq, network in PROBLEMS:
        for train in PAIRS:
            for name, mean in means(eq, network).items():
                rows.append(measure(eq, train, name, mean))
                print(eq.name, train, name, f"{rows[-1]['value']:.3g}", f"{rows[-1]['train_seconds']:.1f} s", flush=True)
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
