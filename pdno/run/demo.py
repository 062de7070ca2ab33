"""`pdno demo`: the complete workflow on a small noisy problem, in two or three minutes.

It generates noisy pairs of the 1-D elliptic equation, trains a model of p(u | a), evaluates it on held-out pairs, predicts, and
writes a report. Every step prints the equivalent command.
"""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ..data.dataset import Dataset, open_store
from ..data.generate import generate
from ..equation import Elliptic1D
from ..errors import UserError
from ..noise import Gaussian
from ..work.engine import cores
from ..work.folder import RunFolder
from ..work.progress import progress_bar
from . import results
from .config import Config, seconds
from .evaluate import evaluate_run
from .folder import is_current
from .noise import noise_table
from .predict import predict
from .report import statements, table, write_report
from .train import train

__all__ = ["demo"]

EQUATION = Elliptic1D(points=64, log_scale=0.5)
NOISE = Gaussian(0.05)
TRAIN = 2000  # pairs
TEST = 50  # pairs
BUDGET = "60s"  # of training
MEMBERS = 60  # of each input


def demo(out: Path) -> None:
    """Run the workflow in the folder `out`; steps whose files exist are skipped."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    store, run, prediction = out / "noisy.zarr", out / "run", out / "prediction.zarr"

    def step(number: int, title: str, command: str) -> None:
        console.print(f"\n{number}  {title}", style="bold", markup=False, highlight=False)
        console.print(f"   pdno {command}", soft_wrap=True, markup=False, highlight=False)

    def show(text: str) -> None:
        console.print(f"   {text}", soft_wrap=True, markup=False, highlight=False)

    pairs = f"--train {TRAIN} --test {TEST} --noise {NOISE.spec} --out {store}"
    command = f"generate elliptic1d --points 64 --set log_scale={EQUATION.log_scale:g} {pairs}"
    step(1, "Generate noisy pairs (a, u) of −(a u′)′ = 0", command)
    data = _data(store, show)
    step(2, "Train a model of p(u | a) on them", f"train {store} --budget {BUDGET} --out {run}")
    settings = Config().with_set([f"model.budget={seconds(BUDGET)}"])
    train(data, {"file": str(store.resolve())}, settings, run, tell=show)
    step(3, "Evaluate the model on held-out pairs", f"evaluate {run} --members {MEMBERS}")
    if not is_current(run):
        evaluate_run(run, members=MEMBERS)
    contents = results.read(RunFolder(run).results)
    console.print(table(contents))
    if (noise := noise_table(contents)) is not None:
        console.print(noise)
    step(4, "Predict u for the test inputs", f"predict {run} --members {MEMBERS} --out {prediction}")
    if not prediction.exists():
        with progress_bar("predicting", "members") as progress:
            predict(run, None, prediction, members=MEMBERS, progress=progress)
    show(f'xarray.open_zarr("{prediction}", consolidated=False) has mean, std, quantiles and conformal intervals')
    step(5, "Write a report", f"report {run}")
    path = write_report(run)
    console.print("\n[bold]Verdict[/bold]\n")
    for text in statements(contents):
        console.print(text, markup=False, highlight=False)
    console.print(f"Report: {path}", soft_wrap=True, markup=False, highlight=False)


def _data(path: Path, show: Callable[[str], None]) -> Dataset:
    """Return the data in the store, which is generated if it does not exist."""
    if path.exists():
        data = open_store(path)
        if data.provenance.get("noise") != NOISE.spec or data.equation != EQUATION:
            raise UserError(f"{path} exists and was not made by `pdno demo`; name another folder with --out")
    else:
        with progress_bar("generating", "pairs") as progress:
            data = generate(EQUATION, TRAIN, TEST, NOISE, out=path, workers=cores(), progress=progress)
    show(repr(data))
    return data
