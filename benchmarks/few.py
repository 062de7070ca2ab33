"""Compare the plain default with three textbook methods on six small data sets; write results/few.json.

Run by ``make bench-few``; BUDGET is the training time of the default in seconds, ONLY names some of the sets of
`benchmarks.smallsets`, METHODS some of the methods.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks import textbook
from benchmarks.smallsets import SETS, Small
from pdno._typing import Array, Floats
from pdno.evaluation import metrics
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "few.json"
MEMBERS = 100
LEVEL = 0.9  # of the intervals whose coverage is measured
METHODS = ("pdno", *textbook.METHODS)

Sample = Callable[[Floats], Floats]  # new inputs ↦ (member, sample, 1, *grid)


def trained(method: str, small: Small, budget: float) -> tuple[Sample, list[str], dict[str, Any]]:
    """Return a function that draws members for new inputs, a summary, and fields of the rows."""
    if method == "pdno":
        model = pdno.PDNO(budget=budget, kind=small.kind)
        model.fit(small.a, small.u, seed=0, dims=small.dims, progress=False, mask=small.mask, group=small.group)
        fields = {"evaluations": model.evaluations(), "parameters": model.parameters}
        return lambda new: np.asarray(model.sample(new, MEMBERS, seed=0)), model.fit_summary, fields
    u, count = filled(small.u), len(small.a)
    group = np.arange(count) if small.group is None else small.group
    plain = textbook.METHODS[method]().fit(small.a.reshape(count, -1), u.reshape(count, -1), group)

    def sample(new: Floats) -> Floats:
        drawn = plain.sample(new.reshape(len(new), -1), MEMBERS, np.random.default_rng(0))
        return drawn.reshape(MEMBERS, len(new), *u.shape[1:])

    return sample, [], {"evaluations": 0}


def filled(u: Floats) -> Floats:
    """Return outputs with missing values interpolated along the last axis, and zeros where a row has none."""
    rows = u.reshape(-1, u.shape[-1]).copy()
    for row in rows:
        known = np.isfinite(row)
        row[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), row[known]) if known.any() else 0.0
    return rows.reshape(u.shape)


def scores(members: Array, small: Small) -> dict[str, float]:
    """Return CRPS, energy score, and coverage of values and of the field's average, where outputs are observed."""
    places = np.ones(small.truth.shape[2:], bool) if small.places is None else small.places
    drawn, truth = members[..., places], small.truth[..., places]
    return {
        "crps": metrics.crps(drawn, truth).value,
        "energy_score": metrics.energy_score(drawn, truth).value,
        "coverage_90": covered(drawn, truth),
        "coverage_90_mean": covered(drawn.mean(axis=-1), truth.mean(axis=-1)),
    }


def covered(members: Array, observed: Array) -> float:
    """Return the fraction of observations within the central interval of members."""
    low, high = np.quantile(members, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    rounding = 1e-9 * np.abs(observed).max()
    return float(((observed >= low - rounding) & (observed <= high + rounding)).mean())


def measure(name: str, method: str, budget: float) -> list[dict[str, Any]]:
    """Return the rows of one set and one method."""
    small = SETS[name](np.random.default_rng(0))
    begin = perf_counter()
    sample, summary, fields = trained(method, small, budget)
    end = perf_counter()
    members = sample(small.new)
    one = perf_counter()
    sample(small.new[:1])
    seconds = perf_counter() - one
    fields |= {
        "test": name,
        "method": method,
        "grid": "x".join(map(str, small.u.shape[2:])),
        "train": len(small.a),
        "noise": "unknown",
        "members": MEMBERS,
        "train_seconds": end - begin,
        "sample_seconds": seconds,
        "seed": 0,
        "command": "make bench-few",
    }
    print(name, method, *summary, sep="\n    ", flush=True)
    values = {**scores(members, small), "seconds_per_input": seconds}
    return [results.row(metric, value, **fields) for metric, value in values.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=180.0, help="training time of the default in seconds")
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS), help="data sets")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="methods")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    for name in options.only:
        for method in options.methods:
            rows = results.read(options.out)["rows"] if options.out.exists() else []
            kept = [row for row in rows if (row["test"], row["method"]) != (name, method)]
            new = measure(name, method, options.budget)
            results.write(options.out, [*kept, *new], machine=results.machine())
            print("   ", {row["metric"]: round(row["value"], 3) for row in new}, flush=True)


if __name__ == "__main__":
    main()
