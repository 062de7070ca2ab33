"""``pdno demo``: the main job end to end on a small noisy problem, in two or three minutes.

Noisy pairs of the 1-D elliptic equation are generated; a model learns the law of u given a from them, predicts, is judged by
pairs that it has not seen, and gets a report. Every step shows the command that does the same.
"""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ..data.generate import generate
from ..data.pairs import Dataset, open_store
from ..equation import Elliptic1D
from ..errors import UserError
from ..noise import Gaussian
from ..work.engine import cores
from ..work.progress import progress_bar
from . import results
from .config import Config, seconds
from .evaluate import assess, is_current
from .predict import predict
from .report import statements, table, write_report
from .train import train

__all__ = ["demo"]

EQUATION, NOISE = Elliptic1D(points=64, log_scale=0.5), Gaussian(0.05)
TRAIN, TEST = 2000, 50
BUDGET = "60s"
MEMBERS = 60


def demo(out: Path) -> None:
    """Do the main job into the folder `out`; what is there already is used."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder for the demonstration")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    store, run, prediction = out / "noisy.zarr", out / "run", out / "prediction.zarr"

    def step(number: int, what: str, command: str) -> None:
        console.print(f"\n{number}  {what}", style="bold", markup=False, highlight=False)
        console.print(f"   pdno {command}", soft_wrap=True, markup=False, highlight=False)

    def tell(text: str) -> None:
        console.print(f"   {text}", soft_wrap=True, markup=False, highlight=False)

    pairs = f"--train {TRAIN} --test {TEST} --noise {NOISE.spec} --out {store}"
    made = f"generate elliptic1d --points 64 --set log_scale={EQUATION.log_scale:g} {pairs}"
    step(1, "Noisy pairs (a, u) of −(a u′)′ = 0", made)
    data = _data(store, tell)
    step(2, "Learn the law of u given a", f"train {store} --budget {BUDGET} --out {run}")
    settings = Config().with_set([f"model.budget={seconds(BUDGET)}"])
    train(data, {"file": str(store.resolve())}, settings, run, tell=tell)
    step(3, "Judge it by pairs that it has not seen", f"evaluate {run} --members {MEMBERS}")
    if not is_current(run):
        assess(run, members=MEMBERS)
    found = results.read(run / "results.json")
    console.print(table(found))
    step(4, "Predict", f"predict {run} --members {MEMBERS} --out {prediction}")
    if not prediction.exists():
        with progress_bar("predicting", "members") as progress:
            predict(run, None, prediction, members=MEMBERS, progress=progress)
    tell(f'xarray.open_zarr("{prediction}", consolidated=False) has mean, std, quantiles and repaired intervals')
    step(5, "A report to show", f"report {run}")
    path = write_report(run)
    console.print("\n[bold]The verdict[/bold]\n")
    for text in statements(found):
        console.print(text, markup=False, highlight=False)
    console.print(f"Report: {path}", soft_wrap=True, markup=False, highlight=False)


def _data(path: Path, tell: Callable[[str], None]) -> Dataset:
    if path.exists():
        data = open_store(path)
        if data.provenance.get("noise") != NOISE.spec or data.equation != EQUATION:
            raise UserError(f"{path} is there already and not of this demonstration; name another folder with --out")
    else:
        with progress_bar("generating", "pairs") as progress:
            data = generate(EQUATION, TRAIN, TEST, NOISE, out=path, workers=cores(), progress=progress)
    tell(repr(data))
    return data
