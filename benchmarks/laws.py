"""Learn distributions with a known truth and write scores relative to draws of the truth to results/laws.json.

Run by ``make bench-laws`` (17 distributions on 64 points, `benchmarks.gallery`) and ``make bench-laws-2d`` (six on 32 × 32
points, `benchmarks.gallery2d`). BUDGET is the training time of each model in seconds, ONLY names some of the distributions,
METHODS some of the methods: "pdno" is the plain default, "pdno-field" a diffusion of u itself. A model that was measured with
the same budget is not measured again, unless AGAIN=1.
"""

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.gallery import LINE, Gallery
from benchmarks.gallery2d import PLANE
from benchmarks.lawscores import MEMBERS, Scores
from benchmarks.measured import Key, Measured
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "laws.json"
PAIRS = 2000
INPUTS = 500  # test inputs
BLOCK = 100  # inputs whose members are in memory at a time
GALLERIES = {gallery.grid: gallery for gallery in (LINE, PLANE)}


def default(budget: float) -> pdno.PDNO:
    """Return the plain default."""
    return pdno.PDNO(budget=budget)


def field(budget: float) -> pdno.PDNO:
    """Return a diffusion of u itself with a small network."""
    return pdno.PDNO.field(budget, kind="periodic")


METHODS = {"pdno": default, "pdno-field": field}


def measure(gallery: Gallery, key: Key, budget: float, pairs: int = PAIRS, count: int = INPUTS) -> tuple[Any, pdno.PDNO]:
    """Train a model and score it.

    Args:
        gallery: of the law.
        key: test, grid and method.
        budget: seconds of training.
        pairs: for training and validation.
        count: of test inputs.

    Returns:
        The rows, and the model.
    """
    law, rng = gallery.laws[key["test"]], np.random.default_rng(2)
    a, new = gallery.inputs(pairs, 0), gallery.inputs(count, 1)
    u, observed = law(a, rng), law(new, rng)
    model = METHODS[key["method"]](budget)
    begin = perf_counter()
    model.fit(a, u, seed=0, dims=gallery.dims, progress=False)
    trained, drawing = perf_counter() - begin, 0.0
    scores = Scores(observed.std(axis=(0, *range(2, observed.ndim)), keepdims=True)[0])
    for first in range(0, count, BLOCK):
        some = slice(first, first + BLOCK)
        begin = perf_counter()
        members = model.sample(new[some], MEMBERS, seed=0, first=first)
        drawing += perf_counter() - begin
        scores.add(members, np.stack([law(new[some], rng) for _ in range(MEMBERS)]), observed[some])
    fields = {
        **key,
        "train": pairs,
        "noise": "none",
        "members": MEMBERS,
        "evaluations": model.evaluations(),
        "parameters": model.parameters,
        "train_seconds": trained,
        "sample_seconds": drawing,
        "seed": 0,
        "command": gallery.command,
    }
    return [results.row(metric, value, **fields) for metric, value in scores.values().items()], model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", default=LINE.grid, choices=list(GALLERIES), help="grid of the distributions")
    parser.add_argument("--budget", type=float, help="training time of each model in seconds; default: 120, in 2-D 300")
    parser.add_argument("--only", nargs="*", choices=sorted({*LINE.laws, *PLANE.laws}), help="distributions")
    parser.add_argument("--methods", nargs="*", default=["pdno"], choices=list(METHODS), help="methods")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured with this budget")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="training pairs")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="test inputs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    gallery, measured = GALLERIES[options.grid], Measured(options.out)
    budget = gallery.budget if options.budget is None else options.budget
    for name in gallery.laws if options.only is None else options.only:
        for method in options.methods:
            key = {"test": name, "grid": gallery.grid, "method": method}
            if measured.has(key, budget) and not options.again:
                print(name, method, "was measured", flush=True)
                continue
            rows, model = measure(gallery, key, budget, options.pairs, options.inputs)
            law, summary = model.fitted.residual.name, model.fit_summary
            measured.add(key, rows, budget=budget, law=law, summary=summary)
            print(name, method, law, *summary, sep="\n    ", flush=True)
            print("   ", {row["metric"]: round(row["value"], 3) for row in rows}, flush=True)


if __name__ == "__main__":
    main()
