"""Measure how closely the default model keeps its budget and write it to results/budget.json.

Run by ``make bench-budget``; it takes fifteen minutes.

Darcy flow with the symmetries of the square is the hardest case: a kernel on symmetric copies, networks, and a diffusion.
"""

import argparse
from pathlib import Path
from time import perf_counter

import pdno
from benchmarks.problem import row
from pdno.equation import Burgers, Darcy
from pdno.evaluation import metrics
from pdno.run import results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "budget.json"
CASES = (  # equation, pairs and budget in seconds
    (Burgers(points=256), 1024, 40.0),
    (Darcy(points=32), 1000, 40.0),
    (Darcy(points=64), 1000, 600.0),
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = []
    for eq, pairs, budget in CASES:
        data = pdno.generate(eq, pairs, 100).split(0.1, 0.0)
        model = pdno.PDNO(budget=budget, symmetries=eq.symmetries, kind=eq.grid.axes[0].kind)
        model.log = lambda text: print(f"    {text}", flush=True)
        begin = perf_counter()
        model.learn(data.train, data.validation)
        seconds = perf_counter() - begin
        fields = {
            "method": "pdno",
            "command": "make bench-budget",
            "train_seconds": seconds,
            "evaluations": model.evaluations(),
        }
        rows.append(row(eq, "budget_fraction", seconds / budget, pairs, **fields))
        score = metrics.mrle(model.fitted.mean(data.test.a), data.test.u)
        rows.append(row(eq, "mrle_mean_model", score.value, pairs, **fields, error=score.error))
        print(f"{eq.name} {eq.grid}: {seconds:.0f} s of {budget:.0f} s, MRLE {score.value:.3g}", flush=True)
        results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
