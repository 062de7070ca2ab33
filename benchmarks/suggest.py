"""Compare runs that `pdno.suggest` selects from a pool with random ones; write results/suggest.json.

A model is trained on a Latin hypercube of START runs of a problem of `benchmarks.runproblems`. Then, BATCHES times, BATCH runs
are selected from a pool and added, and the model is trained again. The error and the coverage are those on test runs of the law
of the pool. Run by ``make bench-suggest``; a model that is in the file is not trained again.
"""

import argparse
from pathlib import Path

import numpy as np

import pdno
from benchmarks.measured import Measured
from benchmarks.runproblems import PROBLEMS
from benchmarks.runs import BUDGET, MEMBERS, THINNED, dims, errors, largest_std, scores, test_runs
from pdno._typing import Floats
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "suggest.json"
START = 20
BATCHES = 4
BATCH = 10
POOL = 400
POOL_SEED = 2000  # of the pools
DESIGNS = 2
METHODS = ("suggest", "random")


def measure(name: str, seed: int, method: str) -> dict[str, float]:
    """Return the scores of a model after all batches."""
    problem = PROBLEMS[name]
    x, pool = problem.design(START, seed), problem.uniform(POOL, POOL_SEED + seed)
    u, of_pool = problem.observed(x, seed), problem.observed(pool, POOL_SEED + seed)
    free = np.ones(POOL, dtype=bool)
    order = np.random.default_rng(seed).permutation(POOL)
    if method == "random":
        some = order[: BATCHES * BATCH]
        x, u = np.concatenate([x, pool[some]]), np.concatenate([u, of_pool[some]])
    model = _trained(x, u, seed)
    for _ in range(BATCHES if method == "suggest" else 0):
        left = np.flatnonzero(free)
        design = pdno.suggest(model, pool[left], BATCH, seed=seed)
        assert design.rows is not None
        some = left[design.rows]
        free[some] = False
        x, u = np.concatenate([x, pool[some]]), np.concatenate([u, of_pool[some]])
        model = _trained(x, u, seed)
    new, truth = test_runs(name)
    members = np.asarray(model.sample(np.zeros(truth.shape), MEMBERS, scalars=new, seed=seed))
    thin = (..., *(slice(None, None, THINNED),) * 2) if u.ndim == 3 else ...
    return {**scores(members[thin], truth[thin]), **errors(model, u, new, truth), "largest_std": largest_std(members, u)}


def _trained(x: Floats, u: Floats, seed: int) -> pdno.PDNO:
    return pdno.PDNO(budget=BUDGET).fit(None, u, scalars=x, dims=dims(u), seed=seed, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS), help="problems")
    parser.add_argument("--seeds", type=int, default=DESIGNS, help="number of designs")
    parser.add_argument("--again", action="store_true", help="measure what is in the file again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    measured = Measured(options.out)
    for seed in range(options.seeds):
        for name in options.only:
            for method in METHODS:
                key = {"test": name, "train": START + BATCHES * BATCH, "seed": seed, "method": method}
                if options.again or not measured.has(key, BUDGET):
                    values = measure(name, seed, method)
                    print(key, {metric: round(value, 4) for metric, value in values.items()}, flush=True)
                    fields = {**key, "members": MEMBERS, "command": "make bench-suggest"}
                    rows = [results.row(metric, value, **fields) for metric, value in values.items()]
                    measured.add(key, rows, budget=BUDGET)


if __name__ == "__main__":
    main()
