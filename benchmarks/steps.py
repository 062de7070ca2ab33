"""Compare few sampling steps with a hundred, for diffusions of u itself; write results/steps.json.

Run by ``make bench-steps``; BUDGET is the training time of each model in seconds, ONLY names some of the distributions of
`benchmarks.gallery`. One model for each, whose members are drawn with 10 and with 100 evaluations of its network: ratios of
CRPS and energy score to those of draws of the truth, and of the two to each other. A model that was measured with the same
budget is not measured again, unless AGAIN=1.
"""

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.gallery import LINE
from benchmarks.lawscores import Scores
from benchmarks.measured import Key, Measured
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "steps.json"
LAWS = ("shared-mixture-2", "random-branch", "field-noise", "hidden-parameter")
PAIRS = 2000
INPUTS = 100
MEMBERS = 50
STEPS = (10, 100)


def measure(key: Key, budget: float) -> list[dict[str, Any]]:
    """Train a model and score it with each number of steps; return the rows."""
    law, rng = LINE.laws[key["test"]], np.random.default_rng(2)
    a, new = LINE.inputs(PAIRS, 0), LINE.inputs(INPUTS, 1)
    u, observed = law(a, rng), law(new, rng)
    truth = np.stack([law(new, rng) for _ in range(MEMBERS)])
    model = pdno.PDNO.field(budget, kind="periodic")
    begin = perf_counter()
    model.fit(a, u, seed=0, dims=LINE.dims, progress=False)
    fields = {**key, "train": PAIRS, "noise": "none", "members": MEMBERS, "parameters": model.parameters, "seed": 0}
    fields |= {"train_seconds": perf_counter() - begin, "command": "make bench-steps"}
    rows, energies = [], []
    for steps in STEPS:
        scores, begin = Scores(observed.std(axis=(0, 2), keepdims=True)[0]), perf_counter()
        members = model.sample(new, MEMBERS, seed=0, steps=steps)
        drawn = {"sample_seconds": perf_counter() - begin, "evaluations": model.evaluations(steps=steps)}
        scores.add(members, truth, observed)
        values = scores.values()
        energies.append(values)
        rows += [
            results.row(metric, values[metric], **fields, **drawn) for metric in ("crps_ratio", "energy_ratio", "std_ratio")
        ]
    few, many = energies
    for metric in ("crps", "energy"):
        value = few[f"{metric}_ratio"] / many[f"{metric}_ratio"]
        rows.append(results.row(f"{metric}_few_to_many", value, **fields, evaluations=STEPS[0]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=120.0, help="training time of each model in seconds")
    parser.add_argument("--only", nargs="*", default=list(LAWS), choices=list(LINE.laws), help="distributions")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured with this budget")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    measured = Measured(options.out)
    for name in options.only:
        key = {"test": name, "grid": LINE.grid, "method": "pdno-field"}
        if measured.has(key, options.budget) and not options.again:
            continue
        rows = measure(key, options.budget)
        measured.add(key, rows, budget=options.budget)
        print(name, {(row["metric"], row["evaluations"]): round(row["value"], 4) for row in rows}, flush=True)


if __name__ == "__main__":
    main()
