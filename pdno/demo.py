"""``pdno demo``: the main job on small problems, in two or three minutes.

Noisy pairs of the paper's four equations, with a check that the clean outputs solve their equations and that the noise has
the strength it should have; then a model that learns one of them and recovers mean and noise; pictures of both.
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from .config import Config
from .dataset import Dataset, open_store
from .engine import cores
from .equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from .errors import UserError
from .generation import generate
from .noise import FieldNoise, Gaussian, GaussianMixture
from .plot import bands, pairs
from .progress import progress_bar
from .runs import train
from .saved import load

__all__ = ["demo"]


@dataclass(frozen=True)
class Example:
    """A small noisy problem."""

    title: str
    equation: Equation
    noise: Gaussian | GaussianMixture | FieldNoise


EXAMPLES = (
    Example("1-D elliptic, white noise", Elliptic1D(points=128), Gaussian(0.05)),
    Example("Darcy flow, mixture noise", Darcy(points=64), GaussianMixture.case(1)),
    Example("Burgers, field noise", Burgers(points=256), FieldNoise(0.1, tau=10.0, r=2.0)),
    Example("advection, strong white noise", Advection(points=256), Gaussian(0.5)),
)


TRAIN, TEST = 200, 100
LEARNED = Example("1-D elliptic, white noise", Elliptic1D(points=64), Gaussian(0.05))
LEARN, INPUTS, MEMBERS, UPDATES = 2000, 20, 50, 500


def demo(out: Path) -> None:
    """Generate, check, learn and draw into the folder `out`; what is there already is used."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder for the demonstration")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    _generate_and_check(out, console)
    _learn(out, console)


def _generate_and_check(out: Path, console: Console) -> None:
    table = Table(
        title=f"{TRAIN} train and {TEST} test pairs of each of the paper's equations",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("equation", "grid", "noise", "its std", "found", "residual", "seconds"):
        table.add_column(heading, justify="left" if heading in ("equation", "noise") else "right", no_wrap=True)
    sets = []
    for example in EXAMPLES:
        start = perf_counter()
        data = _data(example, out / f"{example.equation.name}.zarr", TRAIN, TEST)
        sets.append((example.title, data))
        table.add_row(*_row(example, data), f"{perf_counter() - start:.1f}")
    picture = out / "equations.png"
    pairs(sets).savefig(picture, dpi=110)
    console.print(table)
    console.print("found: std of observed − clean outputs; residual: ‖G(u; a)‖/‖u‖ of clean outputs\n", soft_wrap=True)
    console.print(f"picture  {picture}", soft_wrap=True)
    console.print(f"data     {out}/*.zarr, in Python: pdno.open('{out}/darcy.zarr').train.a\n", soft_wrap=True)


def _learn(out: Path, console: Console) -> None:
    """Train a small model on noisy pairs, and compare what it says with the clean solution and the true noise."""
    path, run = out / "learned.zarr", out / "run"
    data = _data(LEARNED, path, LEARN, INPUTS)
    config = Config().with_set([f"training.updates={UPDATES}", "training.batch=16"])
    console.print(f"Learning u | a from {LEARN} noisy pairs of the {LEARNED.equation.name} equation …")
    train(data, {"file": str(path.resolve())}, config, run, tell=lambda text: console.print(text, soft_wrap=True, markup=False))
    prediction = load(run).predict(data.test.a, members=MEMBERS)
    u, noise = data.test.u, LEARNED.noise.std
    error = np.mean(np.linalg.norm(prediction.mean - u, axis=-1) / np.linalg.norm(u, axis=-1))
    found = float(np.sqrt(np.mean(prediction.std**2)))
    console.print(f"mean     {error:.1%} from the clean solution (relative L2 error, {INPUTS} fresh inputs)", soft_wrap=True)
    console.print(f"spread   {found:.4f}, where the noise in the data has a std of {noise:.4f}", soft_wrap=True)
    picture = out / "learned.png"
    panels = [(f"input {i}", u[i, 0], prediction.mean[i, 0], prediction.std[i, 0], noise) for i in range(2)]
    bands(LEARNED.equation.grid.axes[0].nodes, panels).savefig(picture, dpi=110)
    console.print(f"picture  {picture}", soft_wrap=True)
    console.print(f"model    {run}, in Python: pdno.load('{run}').predict(a, members=100)", soft_wrap=True)


def _data(example: Example, path: Path, train: int, test: int) -> Dataset:
    if path.exists():
        data = open_store(path)
        if data.provenance.get("noise") != example.noise.spec or data.train.a.shape[2:] != example.equation.grid.shape:
            raise UserError(f"{path} is there already and not of this demonstration; name another folder with --out")
        return data
    with progress_bar(example.title, "pairs") as progress:
        return generate(example.equation, train, test, example.noise, out=path, workers=cores(), progress=progress)


def _row(example: Example, data: Dataset) -> tuple[str, ...]:
    a, u, u_eta = data.test.a, data.test.u, data.test.u_eta
    assert u_eta is not None
    residual = np.linalg.norm(example.equation.residual(u, a)) / np.linalg.norm(u)
    name, noise = example.equation.name, example.noise
    found = f"{np.std(u_eta - u):.3g}"
    return name, str(example.equation.grid), noise.spec, f"{noise.std:.3g}", found, f"{residual:.0e}"
