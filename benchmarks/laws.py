"""Learn distributions with a known truth and write scores relative to draws of the truth to results/laws.json.

Run by ``make bench-laws``; BUDGET is the training time of each model in seconds, ONLY names some of the laws of
`benchmarks.gallery`. The method "pdno-field", a diffusion of u itself with a small network, takes an hour for all of them. The
method "pdno", the plain default, takes much longer if it keeps a diffusion, because its members are slow to draw.
"""

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.gallery import LAWS, POINTS, inputs, scores
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "laws.json"
PAIRS = 2000
INPUTS = 500  # test inputs
MEMBERS = 50  # of each


def default(budget: float) -> pdno.PDNO:
    """Return the plain default."""
    return pdno.PDNO(budget=budget, kind="periodic")


def field(budget: float) -> pdno.PDNO:
    """Return a diffusion of u itself with a small network."""
    return pdno.PDNO.field(budget, kind="periodic")


METHODS = {"pdno": default, "pdno-field": field}


def measure(name: str, method: str, budget: float) -> list[dict[str, Any]]:
    """Return the rows of one law and one method."""
    law, rng = LAWS[name], np.random.default_rng(2)
    a, new = inputs(PAIRS, 0), inputs(INPUTS, 1)
    u, observed, truth = law(a, rng), law(new, rng), np.stack([law(new, rng) for _ in range(MEMBERS)])
    model = METHODS[method](budget)
    begin = perf_counter()
    model.fit(a, u, seed=0, dims="sample,channel,x", progress=False)
    trained = perf_counter()
    members = model.sample(new, MEMBERS, seed=0)
    drawn = perf_counter()
    fields = {
        "test": name,
        "method": method,
        "grid": str(POINTS),
        "train": PAIRS,
        "noise": "none",
        "members": MEMBERS,
        "evaluations": model.evaluations(),
        "parameters": model.parameters,
        "train_seconds": trained - begin,
        "sample_seconds": drawn - trained,
        "seed": 0,
        "command": "make bench-laws",
    }
    print(name, method, *model.fit_summary, sep="\n    ", flush=True)
    return [results.row(metric, value, **fields) for metric, value in scores(members, truth, observed).items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=120.0, help="training time of each model in seconds")
    parser.add_argument("--only", nargs="*", default=list(LAWS), choices=list(LAWS), help="laws")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS), help="methods")
    options = parser.parse_args()
    for name in options.only:
        for method in options.methods:
            rows = results.read(RESULTS)["rows"] if RESULTS.exists() else []
            kept = [row for row in rows if (row["test"], row["method"]) != (name, method)]
            new = measure(name, method, options.budget)
            results.write(RESULTS, [*kept, *new], machine=results.machine())
            print("   ", {row["metric"]: round(row["value"], 3) for row in new}, flush=True)


if __name__ == "__main__":
    main()
