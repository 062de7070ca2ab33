"""`pdno bench --figures`: the figures of the paper, from the trained models of parts.

OUT/SCALE/figures/LABEL.png        with ":" in the label replaced by "-"
OUT/SCALE/figures/figures.json     label → the parts that a figure was drawn from

A figure needs a part of each of its groups, and is drawn from the first that was run; that of errors from all that were run.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .._typing import Floats
from ..data.pairs import Pairs
from ..evaluation.density import density
from ..model.paper import SETTINGS
from ..model.prediction import Prediction
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..noise import GaussianMixture, parse
from ..plot import paper
from ..run import results
from ..work.files import replacing
from ..work.folder import RunFolder
from .part import PARTS, Part
from .scale import Scale, scale_of

__all__ = ["FIGURES", "draw_figures", "figure_states", "file_name"]

DPI = 130
INPUTS = 2  # of a figure with several panels
DENSITY_POINTS = 4096


@dataclass(frozen=True)
class Trained:
    """A part that was run.

    Args:
        part: method and experiment.
        scale: at which it was run.
        folder: of the scale.
        device: where to compute.
    """

    part: Part
    scale: Scale
    folder: Path
    device: str = "cpu"

    @property
    def files(self) -> RunFolder:
        """The files of its run."""
        return RunFolder(self.part.run_folder(self.folder))

    @cached_property
    def model(self) -> Surrogate:
        """The trained model."""
        return load(self.files.model, device=self.device)

    @cached_property
    def test(self) -> Pairs:
        """The test pairs."""
        return self.part.data(self.scale, self.folder).test

    @property
    def x(self) -> Floats:
        """Nodes of the first axis."""
        return self.part.equation(self.scale).grid.axes[0].nodes

    @property
    def members(self) -> int:
        """Members of an input of a figure."""
        return self.scale.drawn(self.part.setting)

    @property
    def sigma(self) -> float:
        """Standard deviation of its Gaussian noise."""
        return float(self.part.setting.noise.partition(":")[2])

    def predicted(self, count: int | None = INPUTS) -> Prediction:
        """Return the prediction for the first test inputs; for all if `count` is None."""
        return self.model.predict(self.test.a[:count], self.members, progress=False)

    def errors(self) -> tuple[list[float], list[float]]:
        """Return epochs, and the MRLE that was logged then, from the file of results."""
        path = self.folder / "results" / self.part.file
        errors = results.read(path).get("errors", {}) if path.exists() else {}
        return errors.get("epoch", []), errors.get("mrle", [])


Groups = Sequence[Sequence[Trained]]


@dataclass(frozen=True)
class Recipe:
    """How a figure is drawn.

    Args:
        draw: parts that were run, of each group ↦ the figure.
        groups: names of parts, of which one of each group is needed; an experiment stands for the paper's method on it.
        is_available: whether a part can be used.
        takes_all: whether it is drawn from all parts of a group that were run, not from the first only.
    """

    draw: Callable[[Groups], Figure]
    groups: tuple[tuple[str, ...], ...] = ()
    is_available: Callable[[Trained], bool] = lambda trained: trained.files.model.exists()
    takes_all: bool = False

    def available(self, scale: Scale, folder: Path, device: str = "cpu") -> list[list[Trained]]:
        """Return the parts of each group that can be used."""
        groups = ([Trained(PARTS[_part(name, scale)], scale, folder, device) for name in group] for group in self.groups)
        return [[each for each in group if self.is_available(each)] for group in groups]

    def missing(self, scale: Scale, folder: Path) -> list[str]:
        """Return the first part of each group of which no part can be used."""
        found = zip(self.groups, self.available(scale, folder), strict=True)
        return [_part(group[0], scale) for group, usable in found if not usable]


def _part(name: str, scale: Scale) -> str:
    """Return the name of a part; of an experiment alone, that of the paper's method as far as the scale can train it."""
    return name if "/" in name else f"{name}/{'paper' if scale.name == 'paper' else 'diffusion'}"


# Each figure


def _bands(groups: Groups) -> Figure:
    panels = []
    for trained, *_ in groups:
        prediction = trained.predicted(1)
        fields: tuple[Any, ...] = (trained.test.u[0, 0], prediction.mean[0, 0], prediction.std[0, 0])
        panels.append((f"noise of std {trained.sigma:g}", *fields, trained.sigma))
    return paper.bands(groups[0][0].x, panels)


def _large_noise(groups: Groups) -> Figure:
    trained = groups[0][0]
    prediction, test = trained.predicted(), trained.test[:INPUTS]
    return paper.large_noise(trained.x, test.u, np.asarray(test.u_eta), prediction.mean, prediction.std, trained.sigma)


def _history(groups: Groups) -> Figure:
    trained, evolution = groups[0][0], paper.Evolution()
    trained.model.sample(trained.test.a[:1], callback=evolution)
    axes = trained.part.equation(trained.scale).grid.axes
    return paper.history(evolution.frames, x=[axis.nodes for axis in axes])


def _noise(groups: Groups) -> Figure:
    """Draw the density of η at the centre of the first test input."""
    cases = []
    for trained, *_ in groups:
        noise = parse(trained.part.setting.noise)
        if not isinstance(noise, GaussianMixture):
            raise TypeError(f"{trained.part.name} has no mixture noise")
        place = tuple((n - 1) // 2 for n in trained.test.u.shape[2:])  # (63, 63) of 128²
        draws = np.empty(trained.members)
        for _, numbers, fields in trained.model.given(trained.test.a[:1]).stream(trained.members):
            draws[numbers] = fields[(slice(None), 0, *place)]
        eta = draws - trained.test.u[(0, 0, *place)]
        learned = density(eta, DENSITY_POINTS)
        exact = np.exp(noise.log_prob(learned.x[:, None, None]))
        title = f"Case {trained.part.setting.noise.partition(':')[2]}, {trained.part.equation(trained.scale).grid} points"
        cases.append((title, learned.x, exact, learned.density, eta))
    return paper.noise_distribution(cases)


def _advection(groups: Groups) -> Figure:
    pdno, fno = groups[0][0], groups[1][0]
    return paper.advection(pdno.x, pdno.test.u, pdno.predicted(None).mean, fno.predicted(None).mean)


def _noisy_samples(groups: Groups) -> Figure:
    trained = groups[0][0]
    test = trained.test[:INPUTS]
    return paper.noisy_samples(trained.x, test.a, np.asarray(test.u_eta))


def _learned_solutions(groups: Groups) -> Figure:
    trained = groups[0][0]
    return paper.learned_solutions(trained.x, trained.test.u[:INPUTS], trained.predicted().mean)


def _errors(groups: Groups) -> Figure:
    return paper.error_vs_epoch(
        {group[0].part.setting.test: {each.part.name: each.errors() for each in group} for group in groups}
    )


def _logged(test: str) -> tuple[str, ...]:
    """Return the parts of a test whose errors are logged, from noise-free data."""
    settings = [setting.name for setting in SETTINGS.values() if setting.test == test and not setting.noisy]
    return tuple(f"{name}/{method}" for method in ("diffusion", "paper") for name in settings)


NOISY_ADVECTION = (("advection-256-gaussian:0.5", "advection-512-gaussian:0.5"),)
FIGURES = {
    "fig:op-diagram": Recipe(lambda groups: paper.operators()),
    "fig:schemeDDMP": Recipe(lambda groups: paper.inference()),
    "fig:1d_noisy": Recipe(_bands, (("elliptic1d-128-gaussian:0.01",), ("elliptic1d-128-gaussian:0.05",))),
    "fig:1d_large_noise": Recipe(_large_noise, (("elliptic1d-128-gaussian:1",),)),
    "fig:darcyflow_history": Recipe(_history, (("darcy-64", "darcy-128", "darcy-256"),)),
    "fig:noise_distribution": Recipe(
        _noise, tuple((f"darcy-128-mixture:{case}", f"darcy-64-mixture:{case}") for case in (1, 2))
    ),
    "fig:advection_history": Recipe(_history, (("advection-256", "advection-512", "advection-1024"),)),
    "fig:advection": Recipe(_advection, (("advection-256",), ("advection-256/fno",))),
    "fig:noisy_advection_sample": Recipe(_noisy_samples, NOISY_ADVECTION),
    "fig:learned_solutions_advection": Recipe(_learned_solutions, NOISY_ADVECTION),
    "fig:error_vs_epoch": Recipe(
        _errors,
        tuple(_logged(test) for test in ("darcy", "burgers", "advection")),
        is_available=lambda trained: bool(trained.errors()[0]),
        takes_all=True,
    ),
}
"""Label of a figure → how it is drawn."""


# All figures


def file_name(label: str) -> str:
    """Return the file of a figure.

    >>> file_name("fig:1d_noisy")
    'fig-1d_noisy.png'
    """
    return f"{label.replace(':', '-')}.png"


def draw_figures(scale: str, out: Path, *, tell: Callable[[str], None], device: str = "cpu") -> None:
    """Draw all figures whose parts were run.

    Args:
        scale: "smoke", "cpu" or "paper".
        out: folder of the bench.
        tell: called with a line for each figure: its file and its parts, or the parts that are missing.
        device: where to compute.
    """
    size = scale_of(scale)
    folder = out / size.name
    sources = folder / "figures" / "figures.json"
    sources.parent.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, list[str]] = json.loads(sources.read_text()) if sources.exists() else {}
    for label, recipe in FIGURES.items():
        if missing := recipe.missing(size, folder):
            tell(f"{label}: not drawn, needs `pdno bench {' '.join(missing)} --scale {size.name}`")
            continue
        groups = recipe.available(size, folder, device)
        used = groups if recipe.takes_all else [group[:1] for group in groups]
        path = sources.parent / file_name(label)
        recipe.draw(used).savefig(path, dpi=DPI)
        drawn[label] = [each.part.name for group in used for each in group]
        with replacing(sources) as partial:
            partial.write_text(json.dumps(drawn, indent=1) + "\n")
        tell(f"{label}: {path}" + (f" from {', '.join(drawn[label])}" if drawn[label] else ""))


def figure_states(scale: str, out: Path) -> list[str]:
    """Return a line for each figure: drawn, ready to be drawn, or the part that it needs."""
    size = scale_of(scale)
    folder = out / size.name
    lines = [f"{'figure':<34} state"]
    for label, recipe in FIGURES.items():
        missing = recipe.missing(size, folder)
        state = f"needs {missing[0]}" if missing else "ready for --figures"
        lines.append(f"{label:<34} {'drawn' if (folder / 'figures' / file_name(label)).exists() else state}")
    return lines
