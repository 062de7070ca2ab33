"""Train the default on pure noise, u independent of a, and write its coverage to results/purenoise.json.

Run by ``make bench-purenoise``; BUDGET is the training time of each model in seconds, ONLY names some of the kinds of noise. 50
and 200 pairs, twenty seeds each: coverage of 90 % intervals on 200 fresh pairs, and whether another law than the Gaussian, or
another mean than a constant, was selected, which can only be by chance. A model that was measured with the same budget is not
measured again, unless AGAIN=1.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.gallery import LINE
from benchmarks.lawscores import MEMBERS, inside
from benchmarks.measured import Key, Measured
from pdno._typing import Floats
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "purenoise.json"
PAIRS = (50, 200)
SEEDS = 20
FRESH = 200  # test pairs
LENGTH = 0.1  # of the correlated noise

Noise = Callable[[tuple[int, ...], np.random.Generator], Floats]


def correlated(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Return Gaussian fields of unit variance with a Gaussian correlation, in this shape."""
    x = (np.arange(shape[-1]) + 0.5) / shape[-1]
    covariance = np.exp(-0.5 * ((x[:, None] - x) / LENGTH) ** 2) + 1e-8 * np.eye(len(x))
    return np.asarray(rng.normal(size=shape) @ np.linalg.cholesky(covariance).T)


NOISES: dict[str, Noise] = {"white": lambda shape, rng: rng.normal(size=shape), "correlated": correlated}


def measure(key: Key, budget: float) -> tuple[list[dict[str, Any]], pdno.PDNO]:
    """Train a model and measure it; return the rows and the model.

    Args:
        key: test, grid, method, train and seed.
        budget: seconds of training.
    """
    noise, pairs, seed = NOISES[key["test"]], key["train"], key["seed"]
    a, rng = LINE.inputs(pairs + FRESH, 100 + seed), np.random.default_rng(seed)
    u = noise(a.shape, rng)
    model = pdno.PDNO(budget=budget)
    begin = perf_counter()
    model.fit(a[:pairs], u[:pairs], seed=seed, dims=LINE.dims, progress=False)
    trained = perf_counter()
    members, observed = model.sample(a[pairs:], MEMBERS, seed=seed), u[pairs:]
    drawn = perf_counter()
    law = model.fitted
    values = {
        "coverage_90": inside(members, observed).mean(),
        "coverage_90_mean": inside(members.mean(axis=-1), observed.mean(axis=-1)).mean(),
        "other_law": float(law.residual.name != "gaussian"),
        "other_mean": float(law.mean.name != "constant"),
    }
    fields = {**key, "noise": key["test"], "members": MEMBERS, "parameters": model.parameters}
    fields |= {"train_seconds": trained - begin, "sample_seconds": drawn - trained, "command": "make bench-purenoise"}
    return [results.row(metric, value, **fields) for metric, value in values.items()], model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=20.0, help="training time of each model in seconds")
    parser.add_argument("--only", nargs="*", default=list(NOISES), choices=list(NOISES), help="kinds of noise")
    parser.add_argument("--pairs", nargs="*", type=int, default=list(PAIRS), help="numbers of training pairs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured with this budget")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    measured = Measured(options.out)
    keys = [
        {"test": name, "grid": LINE.grid, "method": "pdno", "train": pairs, "seed": seed}
        for name in options.only
        for pairs in options.pairs
        for seed in range(options.seeds)
    ]
    for key in keys:
        if measured.has(key, options.budget) and not options.again:
            continue
        rows, model = measure(key, options.budget)
        law, mean = model.fitted.residual.name, model.fitted.mean.name
        measured.add(key, rows, budget=options.budget, law=law, mean=mean, summary=model.fit_summary)
        values = {row["metric"]: round(row["value"], 3) for row in rows}
        print(key["test"], key["train"], key["seed"], mean, law, values, f"{rows[0]['train_seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
