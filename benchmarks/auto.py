"""Compare the default model with deterministic baselines and write the scores to results/auto.json.

Run by ``make bench-auto``; it takes an hour on two cores with all data.

Data are the four equations, and published data sets (``make bench-auto DATA=FOLDER``). On each of them `PDNO()` and linear,
kernel, FNO and UNet regression have the same pairs, symmetries and budget. The CRPS is that of test observations; for a
deterministic baseline it is the mean absolute error. Ridge regression without feature selection is a reference.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.problem import Row
from pdno.data.dataset import Dataset
from pdno.data.open import open_selected
from pdno.data.selection import Selection
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.mean import Linear
from pdno.mean.network import recipe
from pdno.model.baseline import FNO, Deterministic, UNet
from pdno.model.surrogate import Surrogate
from pdno.run import results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "auto.json"
SCORES = ("crps", "mrle", "coverage_90")
BUDGET = 120.0  # seconds of training, for each model
TEST_INPUTS = 200  # at most

EQUATIONS: tuple[tuple[Equation, int, str], ...] = (
    (Elliptic1D(), 2000, "gaussian:0.05"),
    (Advection(points=256), 1500, "gaussian:0.1"),
    (Burgers(points=256), 1024, "none"),
    (Darcy(points=32), 1000, "none"),
)


Problem = tuple[str, Callable[[], Dataset], dict[str, Any]]  # name, its data, symmetries and kind of axes


def published(folder: Path) -> Iterator[Problem]:
    """Yield the published data sets that are there, opened as `pdno inspect` suggests; no symmetries are declared."""
    for name, (file, selection) in PUBLISHED.items():
        if (folder / name / file).exists():
            yield name, partial(open_selected, folder / name / file, selection), {}


PUBLISHED = {
    "advection_pina": ("advection_gauss.npz", Selection("u0_train", "u_train", test_a="u0_test", test_u="u_test")),
    "antiderivative_deeponet": ("antiderivative.npz", Selection("v_train", "u_train", test_a="v_test", test_u="u_test")),
    "burgers_neuralop": (
        "burgers.npz",
        Selection("u0_train", "u_train", "sample,x:sample,channel,x", test_a="u0_test", test_u="u_test"),
    ),
    "darcy_neuralop": (
        "darcy.npz",
        Selection("x_train_16", "y_train_16", "sample,x,y", test_a="x_test_16", test_u="y_test_16"),
    ),
    "reacdiff_lno": (
        "reacdiff.npz",
        Selection(
            "f_train",
            "u_train",
            "sample,x,t",
            test_a="f_test",
            test_u="u_test",
            validation_a="f_vali",
            validation_u="u_vali",
        ),
    ),
}


def generated() -> Iterator[Problem]:
    """Yield the problems of the four equations."""
    for eq, train, noise in EQUATIONS:
        yield (
            eq.name,
            partial(pdno.generate, eq, train, 100, noise),
            {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind},
        )


def methods(budget: float, shared: dict[str, Any]) -> dict[str, Callable[[], Surrogate]]:
    """Return functions that make the models, by name."""
    return {
        "pdno": lambda: pdno.PDNO(budget=budget, **shared),
        "ridge": lambda: Deterministic(Linear(log=False, degree=1, smooth=False, sparse=False)),
        "linear": lambda: Deterministic("linear"),
        "kernel": lambda: Deterministic("kernel", **shared),
        "fno": lambda: FNO(training=recipe(network="fno"), budget=budget, **shared),
        "unet": lambda: UNet(training=recipe(network="slim"), budget=budget, **shared),
    }


def measured(name: str, data: Dataset, model: Surrogate, method: str, budget: float, members: int) -> Iterator[Row]:
    """Train a model and yield the rows of its scores."""
    split = data.split(0.1, 0.0 if len(data.test) else 0.1)
    split = replace(split, test=split.test[:TEST_INPUTS])
    model.log = lambda text: print(f"    {text}", flush=True)
    begin = perf_counter()
    model.learn(split.train, split.validation)
    seconds = perf_counter() - begin
    e = pdno.evaluate(model, split, members=members, calibrate=0)
    grid = "x".join(map(str, np.shape(split.train.u)[2:]))
    row: Row = {"test": name, "method": method, "grid": grid, "train": len(split.train), "noise": e.metadata["noise"]}
    row |= {"parameters": model.parameters, "train_seconds": seconds, "members": members, "evaluations": model.evaluations()}
    row["command"] = "make bench-auto" + (f" BUDGET={budget:g} OUT=FILE" if budget != BUDGET else "")
    for metric in SCORES:
        if metric in e.scores:
            yield results.row(metric, e.scores[metric].value, **row, error=e.scores[metric].error, seed=0)
    yield results.row("budget_fraction", seconds / budget, **row, seed=0)
    scores = [f"{metric} {e.scores[metric].value:.4g}" for metric in SCORES if metric in e.scores]
    print(f"{name:>24} {method:>7}", *scores, f"{seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of published data sets, each in a folder of its own")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of training for each model")
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="data sets to run; rows of others are kept")
    parser.add_argument(
        "--methods", nargs="*", default=[], metavar="NAME", help="models to run, such as pdno; rows of others are kept"
    )
    options = parser.parse_args()
    others = () if options.data is None else published(options.data)
    for name, load, shared in (*generated(), *others):
        if options.only and name not in options.only:
            continue
        data = load()
        for method, make in methods(options.budget, shared).items():
            if not options.methods or method in options.methods:
                rows = list(measured(name, data, make(), method, options.budget, options.members))
                old = results.read(options.out)["rows"] if options.out.exists() else []
                kept = [r for r in old if (r["test"], r["method"]) != (name, method)]
                results.write(options.out, kept + rows, machine=results.machine(), budget=options.budget)


if __name__ == "__main__":
    main()
