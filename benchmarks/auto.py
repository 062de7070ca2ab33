"""The default against its rivals, into results/auto.json. Run by ``make bench-auto``; an hour on two cores with all data.

Data: the four equations, and sets that other people published (``make bench-auto DATA=FOLDER``). On each, `PDNO()` and linear,
kernel, FNO and UNet regression get the same pairs, symmetries and time, each all of it; CRPS is that of observations that none
of them has seen, for a rival the mean absolute error of its one answer. Plain ridge regression is there for scale.
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
from pdno.data.open import open_chosen
from pdno.data.pairs import Dataset
from pdno.data.selection import Selection
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.mean import Linear
from pdno.mean.network import recipe
from pdno.model.baseline import FNO, Plain, UNet
from pdno.model.surrogate import Surrogate
from pdno.run import results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "auto.json"
SCORES = ("crps", "mrle", "coverage_90")
BUDGET = 120.0  # seconds

EQUATIONS: tuple[tuple[Equation, int, str], ...] = (
    (Elliptic1D(), 2000, "gaussian:0.05"),
    (Advection(points=256), 1500, "gaussian:0.1"),
    (Burgers(points=256), 1024, "none"),
    (Darcy(points=32), 1000, "none"),
)


Problem = tuple[str, Callable[[], Dataset], dict[str, Any]]  # name, its data, and what is known of it


def published(folder: Path) -> Iterator[Problem]:
    """Data sets by others, opened as `pdno inspect` suggests; no symmetries are declared."""
    for name, (file, chosen) in PUBLISHED.items():
        if (folder / name / file).exists():
            yield name, partial(open_chosen, folder / name / file, chosen), {}


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
    for eq, train, noise in EQUATIONS:
        known = {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind}
        yield eq.name, partial(pdno.generate, eq, train, 100, noise), known


def methods(budget: float, known: dict[str, Any]) -> dict[str, Callable[[], Surrogate]]:
    return {
        "pdno": lambda: pdno.PDNO(budget=budget, **known),
        "ridge": lambda: Plain(Linear(log=False, degree=1, smooth=False, sparse=False)),
        "linear": lambda: Plain("linear"),
        "kernel": lambda: Plain("kernel", **known),
        "fno": lambda: FNO(training=recipe(True, network="fno"), budget=budget, **known),
        "unet": lambda: UNet(training=recipe(True, network="slim"), budget=budget, **known),
    }


def measured(name: str, data: Dataset, model: Surrogate, method: str, budget: float, members: int) -> Iterator[Row]:
    held = data.split(0.1, 0.0 if len(data.test) else 0.1)
    held = replace(held, test=held.test[:200])
    if isinstance(model, pdno.PDNO):
        model.tell = lambda text: print(f"    {text}", flush=True)
    begin = perf_counter()
    model.learn(held.train, held.validation)
    seconds = perf_counter() - begin
    e = pdno.evaluate(model, held, members=members, calibrate=0)
    grid = "x".join(map(str, np.shape(held.train.u)[2:]))
    row: Row = {"test": name, "method": method, "grid": grid, "train": len(held.train), "noise": e.facts["noise"]}
    row |= {"parameters": model.parameters, "train_seconds": seconds, "members": members}
    row["command"] = "make bench-auto" + (f" BUDGET={budget:g} OUT=FILE" if budget != BUDGET else "")
    for metric in SCORES:
        if metric in e.scores:
            yield results.row(metric, e.scores[metric].value, **row, error=e.scores[metric].error, seed=0)
    yield results.row("time_over_budget", seconds / budget, **row, seed=0)
    told = [f"{metric} {e.scores[metric].value:.4g}" for metric in SCORES if metric in e.scores]
    print(f"{name:>24} {method:>7}", *told, f"{seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of published data, one folder each")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for each model")
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULTS, help="results file")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="data sets; others keep their rows")
    parser.add_argument("--methods", nargs="*", default=[], metavar="NAME", help="models, such as pdno; others keep their rows")
    options = parser.parse_args()
    others = () if options.data is None else published(options.data)
    for name, load, known in (*generated(), *others):
        if options.only and name not in options.only:
            continue
        data = load()
        for method, make in methods(options.budget, known).items():
            if not options.methods or method in options.methods:
                rows = list(measured(name, data, make(), method, options.budget, options.members))
                old = results.read(options.out)["rows"] if options.out.exists() else []
                kept = [r for r in old if (r["test"], r["method"]) != (name, method)]
                results.write(options.out, kept + rows, machine=results.machine(), budget=options.budget)


if __name__ == "__main__":
    main()
