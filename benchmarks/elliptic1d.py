"""Test 1 of the paper, learned from noisy pairs: into results/elliptic1d.json and .png. Run by ``make bench-elliptic1d``.

10⁴ pairs at 128 points with noise of std .05, 1 and .01, as in the paper; the model is that of `pdno train` without a mean,
at most 20 minutes of training each. Runs are kept in ``runs/`` and gone on with; the numbers are those of 20 fresh inputs.
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
from torch import nn

import pdno
from benchmarks.problem import Row, relative, row
from pdno.data.pairs import Dataset
from pdno.model.prediction import Prediction
from pdno.plot.forecasts import bands
from pdno.run import results

ROOT = Path(__file__).parents[1]
SIGMAS = (0.05, 1.0, 0.01)
INPUTS, MEMBERS = 20, 500


def learned(sigma: float, folder: Path, settings: list[str]) -> tuple[Path, Dataset]:
    """The folder of the run, by the commands that a user would type, and its data."""
    data, run = folder / f"elliptic1d-{sigma:g}.zarr", folder / f"elliptic1d-{sigma:g}"
    pairs = ["--train", "10000", "--test", "100", "--noise", f"gaussian:{sigma:g}"]
    if not data.exists():
        _pdno("generate", "elliptic1d", *pairs, "--out", str(data))
    if not (run / "model.safetensors").exists():
        _pdno("train", str(data), "--out", str(run), "--budget", "20m", "--set", "model.mean=none", *settings)
    return run, pdno.open(data)


def _pdno(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pdno", *arguments], check=True)


def judged(sigma: float, run: Path, data: Dataset) -> Iterator[tuple[Row, Prediction]]:
    """Rows for several numbers of steps, each with its prediction."""
    model = pdno.load(run)
    assert isinstance(model, pdno.PDNO)
    assert isinstance(model.network, nn.Module)
    parameters = sum(p.numel() for p in model.network.parameters())
    times = [json.loads(line)["seconds"] for line in (run / "times.jsonl").read_text().splitlines()]
    a, u = data.test.a[:INPUTS], data.test.u[:INPUTS]
    for steps in (5, 20):
        begin = perf_counter()
        prediction = model.predict(a, members=MEMBERS, steps=steps)
        sample_seconds = perf_counter() - begin
        errors = relative(prediction.mean - u, u).ravel()
        spread = np.sqrt(np.mean(prediction.std**2, axis=(1, 2)))
        measured = {"mrle": errors, "mean_std": spread, "mean_std_over_noise": spread / sigma}
        if steps == 5:
            measured["mrle_one_evaluation"] = relative(model.mean(a) - u, u).ravel()
        more: dict[str, Any] = {
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
            yield row(pdno.equation.Elliptic1D(), metric, values.mean(), 10000, **{**more, "error": standard_error}), prediction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs", help="for data and runs")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="handed on to pdno train")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    settings = [part for setting in options.set for part in ("--set", setting)]
    rows: list[Row] = []
    panels = []
    for sigma in SIGMAS:
        run, data = learned(sigma, options.folder, settings)
        for result, prediction in judged(sigma, run, data):
            rows.append(result)
            told = f"{result['noise']:>14} {result['evaluations']:>4} steps {result['metric']:<20}"
            print(told, f"{result['value']:.4g}", flush=True)
            if result["evaluations"] == 20 and result["metric"] == "mrle":
                panels.append((f"noise std {sigma:g}", data.test.u[0, 0], prediction.mean[0, 0], prediction.std[0, 0], sigma))
    path = ROOT / "results" / "elliptic1d.json"
    results.write(path, rows, machine=results.machine())
    x = pdno.equation.Elliptic1D().grid.axes[0].nodes
    bands(x, sorted(panels, key=lambda panel: panel[-1])).savefig(path.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main()
