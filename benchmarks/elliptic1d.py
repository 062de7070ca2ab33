"""Train Test 1 of the paper on noisy pairs; write its scores to results/elliptic1d.json and a figure to results/elliptic1d.png.

Run by ``make bench-elliptic1d``; it takes an hour.

10⁴ pairs at 128 points have noise of standard deviation 0.05, 1 and 0.01, as in the paper. The model is that of `pdno train`
without a mean model, trained for at most 20 minutes. Scores are over 20 test inputs. Runs are saved in ``runs/``; an unfinished
one is resumed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.problem import Row, relative, row
from pdno.data.dataset import Dataset
from pdno.model.operator import PDNO
from pdno.model.prediction import Prediction
from pdno.plot.forecasts import bands
from pdno.run import results

ROOT = Path(__file__).parents[1]
SIGMAS = (0.05, 1.0, 0.01)
INPUTS = 20  # test inputs
MEMBERS = 500  # for each of them
STEPS = (5, 20)  # numbers of sampling steps


def trained(sigma: float, folder: Path, settings: list[str]) -> tuple[Path, Dataset]:
    """Generate and train by the commands of a user; return the folder of the run and its data."""
    data, run = folder / f"elliptic1d-{sigma:g}.zarr", folder / f"elliptic1d-{sigma:g}"
    pairs = ["--train", "10000", "--test", "100", "--noise", f"gaussian:{sigma:g}"]
    if not data.exists():
        _pdno("generate", "elliptic1d", *pairs, "--out", str(data))
    if not (run / "model.safetensors").exists():
        _pdno("train", str(data), "--out", str(run), "--budget", "20m", "--set", "model.mean=none", *settings)
    return run, pdno.open(data)


def _pdno(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pdno", *arguments], check=True)


def evaluated(sigma: float, run: Path, data: Dataset) -> Iterator[tuple[Row, Prediction]]:
    """Yield rows for several numbers of sampling steps, each with its prediction."""
    model = pdno.load(run)
    if not isinstance(model, PDNO):
        raise TypeError(f"{run} holds a {type(model).__name__}, expected a PDNO")
    parameters = sum(network.parameters for network in model.fitted.residual.networks)
    times = [json.loads(line)["seconds"] for line in (run / "times.jsonl").read_text().splitlines()]
    a, u = data.test.a[:INPUTS], data.test.u[:INPUTS]
    for steps in STEPS:
        begin = perf_counter()
        prediction = model.predict(a, members=MEMBERS, steps=steps)
        sample_seconds = perf_counter() - begin
        errors = relative(prediction.mean - u, u).ravel()
        spread = np.sqrt(np.mean(prediction.std**2, axis=(1, 2)))
        measured = {"mrle": errors, "mean_std": spread, "mean_std_over_noise": spread / sigma}
        if steps == STEPS[0]:
            measured["mrle_one_evaluation"] = relative(model.mean(a) - u, u).ravel()
        fields: dict[str, Any] = {
            "method": "pdno",
            "noise": f"gaussian:{sigma:g}",
            "members": MEMBERS,
            "evaluations": steps,
            "parameters": parameters,
            "train_seconds": times[-1],
            "sample_seconds": sample_seconds,
            "command": "make bench-elliptic1d",
        }
        for metric, values in measured.items():
            standard_error = float(values.std(ddof=1) / np.sqrt(len(values)))
            yield (
                row(pdno.equation.Elliptic1D(), metric, values.mean(), 10000, **{**fields, "error": standard_error}),
                prediction,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs", help="for data and runs")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a setting for pdno train")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    settings = [part for setting in options.set for part in ("--set", setting)]
    rows: list[Row] = []
    panels = []
    for sigma in SIGMAS:
        run, data = trained(sigma, options.folder, settings)
        for result, prediction in evaluated(sigma, run, data):
            rows.append(result)
            label = f"{result['noise']:>14} {result['evaluations']:>4} steps {result['metric']:<20}"
            print(label, f"{result['value']:.4g}", flush=True)
            if result["evaluations"] == STEPS[-1] and result["metric"] == "mrle":
                panels.append((f"noise std {sigma:g}", data.test.u[0, 0], prediction.mean[0, 0], prediction.std[0, 0], sigma))
    path = ROOT / "results" / "elliptic1d.json"
    results.write(path, rows, machine=results.machine())
    x = pdno.equation.Elliptic1D().grid.axes[0].nodes
    bands(x, sorted(panels, key=lambda panel: panel[-1])).savefig(path.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
