"""Fit mean models to the paper's problems and write their errors to results/means.json.

Run by ``make bench-means``; it takes five minutes.

The MRLE is that of m(a) against the clean outputs of 100 test inputs. All settings are the defaults, except for the symmetries,
which the equations declare. No diffusion takes part.
"""

from pathlib import Path
from time import perf_counter
from typing import Any

import pdno
from benchmarks.problem import Row, row
from pdno import mean
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation import metrics
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "means.json"

CASES: tuple[tuple[Equation, int, str, mean.Mean], ...] = (
    (Advection(points=256), 1500, "none", mean.Linear()),
    (Advection(points=512), 1500, "none", mean.Linear()),
    (Advection(points=1024), 1500, "none", mean.Linear()),
    (Advection(points=256), 10000, "gaussian:0.5", mean.Linear()),
    (Elliptic1D(), 10000, "gaussian:0.01", mean.Linear()),
    (Elliptic1D(), 10000, "gaussian:0.05", mean.Linear()),
    (Elliptic1D(), 10000, "gaussian:1", mean.Linear()),
    (Darcy(points=64), 1000, "none", mean.Linear()),
    (Darcy(points=64), 1000, "none", mean.Kernel()),
    (Darcy(points=64), 1000, "none", mean.Kernel(symmetries=("square",))),
    (Burgers(points=512), 1024, "none", mean.Kernel(kind="periodic")),
    (Burgers(points=512), 1024, "none", mean.Kernel(kind="periodic", symmetries=Burgers.symmetries, shifts=4)),
)


def measure(eq: Equation, train: int, noise: str, m: mean.Mean) -> Row:
    """Return the row of one mean model."""
    data = pdno.generate(eq, train, 100, noise)
    begin = perf_counter()
    m.fit(data.train.a, data.train.u)
    seconds = perf_counter() - begin
    error = metrics.mrle(m(data.test.a), data.test.u)
    method = f"{m.name}, symmetries" if getattr(m, "symmetries", ()) else m.name
    fields: dict[str, Any] = {"noise": noise, "method": method, "error": error.error, "train_seconds": seconds}
    paper = results.paper(eq.name, str(eq.grid), noise, "mrle")
    return row(eq, "mrle_mean_model", error.value, train, **fields, paper=paper, command="make bench-means")


def main() -> None:
    rows: list[Row] = []
    for case in CASES:
        rows.append(measure(*case))
        labels = [f"{rows[-1][name]!s:>14}" for name in ("test", "grid", "noise", "method")]
        print(*labels, f"{rows[-1]['value']:.3g}", f"{rows[-1]['train_seconds']:.1f} s", flush=True)
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
