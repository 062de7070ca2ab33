"""``pdno demo``: the main job on small problems, in a minute.

Noisy pairs of the paper's four equations; a check that the clean outputs solve their equations and that the noise has the
strength it should have; a picture.
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from .dataset import Dataset, open_store
from .engine import cores
from .equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from .errors import UserError
from .generation import generate
from .noise import FieldNoise, Gaussian, GaussianMixture
from .plot import pairs
from .progress import progress_bar

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


def demo(out: Path) -> None:
    """Generate, check and draw the examples into the folder `out`; what is there already is used."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; name a folder for the demonstration")
    out.mkdir(parents=True, exist_ok=True)
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
        data = _data(example, out)
        sets.append((example.title, data))
        table.add_row(*_row(example, data), f"{perf_counter() - start:.1f}")
    picture = out / "equations.png"
    pairs(sets).savefig(picture, dpi=110)
    console = Console()
    console.print(table)
    console.print("found: std of observed − clean outputs; residual: ‖G(u; a)‖/‖u‖ of clean outputs\n", soft_wrap=True)
    console.print(f"picture  {picture}", soft_wrap=True)
    console.print(f"data     {out}/*.zarr, in Python: pdno.open('{out}/darcy.zarr').train.a", soft_wrap=True)


def _data(example: Example, out: Path) -> Dataset:
    path = out / f"{example.equation.name}.zarr"
    if path.exists():
        data = open_store(path)
        if data.provenance.get("noise") != example.noise.spec or data.train.a.shape[2:] != example.equation.grid.shape:
            raise UserError(f"{path} is there already and not of this demonstration; name another folder with --out")
        return data
    with progress_bar(example.title, "pairs") as progress:
        return generate(example.equation, TRAIN, TEST, example.noise, out=path, workers=cores(), progress=progress)


def _row(example: Example, data: Dataset) -> tuple[str, ...]:
    a, u, u_eta = data.test.a, data.test.u, data.test.u_eta
    assert u_eta is not None
    residual = np.linalg.norm(example.equation.residual(u, a)) / np.linalg.norm(u)
    name, noise = example.equation.name, example.noise
    found = f"{np.std(u_eta - u):.3g}"
    return name, str(example.equation.grid), noise.spec, f"{noise.std:.3g}", found, f"{residual:.0e}"
