"""Compare the default with textbook emulators on few runs of simulations with a few parameters; write results/runs.json.

The error with twice the runs is forecast and measured. Run by ``make bench-runs``; ONLY names some of the problems of
`benchmarks.runproblems`, RUNS numbers of runs, SEEDS designs and METHODS methods. A model that is in the file is not trained
again unless AGAIN is set.
"""

import argparse
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import pdno
from benchmarks.emulators import EMULATORS
from benchmarks.measured import Measured
from benchmarks.runproblems import PROBLEMS
from pdno._typing import Floats
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "runs.json"
RUNS = (20, 40, 80, 200)
FEW = (5, 8, 12)  # numbers of runs for which the default alone is measured, by coverage
DESIGNS = 3
TEST_RUNS = 200
TEST_SEED = 1000  # of the test runs
MEMBERS = 50
TWICE = (160, 400)  # numbers of runs for which the default alone is measured, by its error: twice those of others
MOST = 200  # runs, beyond which, and of whose error with twice as many, there is one design only, to save time
REPETITIONS = 1  # of refits for a forecast
THINNED = 2  # every so many points along each axis of a plane are scored, to save time
LEVEL = 0.9  # of the intervals whose coverage is measured
BUDGET = 60.0  # seconds of training of the default
METHODS = ("pdno", *EMULATORS)


@cache
def test_runs(name: str) -> tuple[Floats, Floats]:
    """Return parameters and fields of the test runs."""
    problem = PROBLEMS[name]
    new = problem.uniform(TEST_RUNS, TEST_SEED)
    return new, problem.observed(new, TEST_SEED)


@cache
def training_runs(name: str, runs: int, seed: int) -> tuple[Floats, Floats]:
    """Return parameters and fields of the training runs."""
    x = PROBLEMS[name].design(runs, seed)
    return x, PROBLEMS[name].observed(x, seed)


def measure(name: str, runs: int, seed: int, method: str) -> tuple[dict[str, float], list[str], float]:
    """Return the scores of a method, its summary, and the seconds of one core that training took."""
    x, u = training_runs(name, runs, seed)
    new, truth = test_runs(name)
    begin, summary, extra = process_time(), [], {}
    if method == "pdno":
        model = pdno.PDNO(budget=BUDGET).fit(None, u, scalars=x, dims=dims(u), seed=seed, progress=False)
        seconds, summary = process_time() - begin, model.fit_summary
        members = np.asarray(model.sample(np.zeros(truth.shape), MEMBERS, scalars=new, seed=seed))
        extra = errors(model, u, new, truth)
        if runs in RUNS and (runs < MOST or seed == 0):
            extra["forecast_rmse"] = _forecast(model, x, u) / float(u.std())
    else:
        draw = EMULATORS[method](x, u.reshape(runs, -1))
        seconds = process_time() - begin
        members = draw(new, MEMBERS, np.random.default_rng(seed)).reshape(MEMBERS, *truth.shape)
    some = (..., *(slice(None, None, THINNED),) * 2) if u.ndim == 3 else ...
    return {**scores(members[some], truth[some]), **extra, "largest_std": largest_std(members, u)}, summary, seconds


def dims(u: Floats) -> str:
    """Return the names of the axes of fields."""
    return f"sample,{','.join('xy'[: u.ndim - 1])}"


def errors(model: pdno.PDNO, u: Floats, new: Floats, truth: Floats) -> dict[str, float]:
    """Return the error of the mean, relative to that of the training mean, the promised one, and the root mean square."""
    difference = np.asarray(model.mean(np.zeros(truth.shape), scalars=new)) - truth
    values = {"error": np.abs(difference).mean() / np.abs(truth - u.mean(axis=0)).mean()}
    values["rmse"] = np.sqrt(np.square(difference).mean()) / truth.std()
    promised = next((trial.error for trial in model.leaderboard if trial.selected), None)
    return {key: float(value) for key, value in values.items()} | ({} if promised is None else {"promised_error": promised})


def _forecast(model: pdno.PDNO, x: Floats, u: Floats) -> float:
    """Return the root mean square error that the learning curve expects with twice the runs; NaN if there is none."""
    fields = u[:, None]
    pairs = pdno.Pairs.of(np.zeros_like(fields), fields, scalars=x)
    try:
        return pdno.learning_curve(model, pairs, repetitions=REPETITIONS).forecast(2 * len(x))[0]
    except pdno.UserError:  # the mean has no cheap refits
        return float("nan")


def scores(members: Floats, truth: Floats) -> dict[str, float]:
    """Return the CRPS, relative to the standard deviation of the truth, and the coverage: its average and lowest decile."""
    low, high = np.quantile(members, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    inside = ((truth >= low) & (truth <= high)).reshape(len(truth), -1).mean(axis=1)
    crps = pdno.evaluation.metrics.crps(members, truth).value / truth.std()
    values = {"crps": crps, "coverage_90": inside.mean(), "coverage_90_lowest_decile": np.quantile(inside, 0.1)}
    return {metric: float(value) for metric, value in values.items()}


def largest_std(members: Floats, u: Floats) -> float:
    """Return the largest predicted standard deviation, relative to the largest deviation of a run from the average run."""
    return float(members.std(axis=0).max() / np.abs(u - u.mean(axis=0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS), help="problems")
    parser.add_argument("--runs", nargs="*", type=int, default=[*FEW, *RUNS, *TWICE], help="numbers of runs")
    parser.add_argument("--seeds", type=int, default=DESIGNS, help="number of designs")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="methods")
    parser.add_argument("--again", action="store_true", help="measure what is in the file again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    measured = Measured(options.out)
    for seed in range(options.seeds):
        for runs in (runs for runs in options.runs if runs <= MOST or seed == 0):
            for name in options.only:
                for method in options.methods if runs in RUNS else ["pdno"]:
                    key = {"test": name, "train": runs, "seed": seed, "method": method}
                    if options.again or not measured.has(key, BUDGET):
                        measured.add(key, **_entry(key, *measure(name, runs, seed, method)))


def _entry(key: dict[str, Any], values: dict[str, float], summary: list[str], seconds: float) -> dict[str, Any]:
    """Return the rows of a model, and the details of the list of models."""
    grid = "x".join(map(str, test_runs(key["test"])[1].shape[1:]))
    noise = f"{PROBLEMS[key['test']].noise:.0%}"
    fields = {**key, "grid": grid, "noise": noise, "members": MEMBERS, "train_seconds": seconds, "command": "make bench-runs"}
    print(key, {metric: round(value, 4) for metric, value in values.items()}, f"{seconds:.1f} s", flush=True)
    return {
        "rows": [results.row(metric, value, **fields) for metric, value in values.items()],
        "budget": BUDGET,
        "summary": summary,
    }


if __name__ == "__main__":
    main()
