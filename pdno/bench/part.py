"""A part of the bench: one method on one experiment of the paper, trained and evaluated, with its rows of results."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

from ..data.dataset import Dataset
from ..equation.base import Equation
from ..evaluation.scoring import evaluate
from ..learning.resume import read_rows
from ..model.paper import FNO_TESTS, SETTINGS, Setting
from ..run import results
from ..work.folder import RunFolder
from .methods import METHODS, Method
from .scale import Scale
from .training import data_of, equation_of, file_name, trained

__all__ = ["PARTS", "Part"]

SCORES = ("mrle", "mrle_member", "mstd", "mean_std", "std_noise_ratio", "crps", "coverage_90")


@dataclass(frozen=True)
class Part:
    """A method on an experiment.

    Args:
        setting: the experiment.
        method: the method.
    """

    setting: Setting
    method: Method

    @property
    def name(self) -> str:
        """As on the command line: "darcy-64/diffusion"."""
        return f"{self.setting.name}/{self.method.name}"

    @property
    def file(self) -> str:
        """Name of its file of results."""
        return file_name(self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that select it: part, experiment, test and method."""
        return self.name, self.setting.name, self.setting.test, self.method.name

    def equation(self, scale: Scale) -> Equation:
        """Return the equation on the grid of a scale."""
        return equation_of(self.setting, scale)

    def data(self, scale: Scale, folder: Path) -> Dataset:
        """Return the pairs of its experiment."""
        return data_of(self.setting, scale, folder)

    def forget(self, folder: Path) -> None:
        """Remove its model."""
        rmtree(self.run_folder(folder), ignore_errors=True)

    def run_folder(self, folder: Path) -> Path:
        """Return the folder of its model."""
        return folder / "runs" / self.name.replace(":", "-")

    def run(self, scale: Scale, folder: Path, **engine: Any) -> list[dict[str, Any]]:
        """Train the model, or load it if it was trained before, evaluate it, and return the rows.

        Args:
            scale: sizes and times.
            folder: for data, runs and results; an interrupted training resumes.
            engine: device, devices and precision.
        """
        eq, split = self.equation(scale), self.data(scale, folder).split(self.method.holds_out, 0.0)
        log: dict[str, Any] = {"log_error": self.log_interval(scale), "log_pairs": split.test} if self.method.logs_error else {}
        make = partial(self.method.make, self.setting, eq, scale)
        model, seconds = trained(make, split, self.run_folder(folder), {**log, **engine})
        inputs, members = scale.scored(self.setting, self.method.name == "paper")
        members = 2 if model.fitted.residual.deterministic else members
        begin = perf_counter()
        e = evaluate(model, replace(split, test=split.test[:inputs]), members=members, calibrate=0)
        noise = self.setting.noise
        row = {
            "test": self.setting.test,
            "method": self.label(scale),
            "grid": str(eq.grid),
            "train": len(split.train),
            "noise": noise,
            "members": members,
            "evaluations": model.evaluations(),
            "parameters": model.parameters,
            "train_seconds": seconds,
            "sample_seconds": perf_counter() - begin,
            "seed": 0,
            "command": f"pdno bench {self.name} {scale.options}",
        }
        is_whole = scale.points is None
        return [
            results.row(
                name,
                e.scores[name].value,
                error=e.scores[name].error,
                paper=results.paper(self.setting.test, str(row["grid"]), noise, name, self.method.name) if is_whole else None,
                **row,
            )
            for name in SCORES
            if name in e.scores
        ]

    def details(self, folder: Path) -> dict[str, Any]:
        """Return the errors that were logged during training, if there are any: {"errors": {"epoch": …, "mrle": …}}."""
        path = RunFolder(self.run_folder(folder)).metrics
        logged = [row for row in read_rows(path) if row.get("mrle") is not None]
        columns = {name: [float(row[name]) for row in logged] for name in ("epoch", "mrle")}
        return {"errors": columns} if logged else {}

    def log_interval(self, scale: Scale) -> float:
        """Return the number of epochs between two logged errors."""
        return scale.log_interval(self.setting) if self.method.name == "paper" else scale.log_error

    def label(self, scale: Scale) -> str:
        """Return the name in results.

        It is "pdno" for diffusions of u, "pdno-paper" if every setting is the paper's, "pdno-paper-short" for a shorter
        training, and "pdno-paper-small" for a smaller network and fewer steps too.
        """
        if self.method.name == "paper" and scale.base is not None:
            return "pdno-paper-small"
        if self.method.name == "paper":
            return "pdno-paper" if scale.name == "paper" else "pdno-paper-short"
        return "pdno" if self.method.name == "diffusion" else self.method.name

    def listed(self, rows: list[dict[str, Any]]) -> str:
        """Return MRLE, that of the paper, and minutes of training, as columns of a list."""
        found = {row["metric"]: row for row in rows}
        paper = results.paper(self.setting.test, self.setting.grid, self.setting.noise, "mrle", self.method.name)
        mrle = f"{found['mrle']['value']:.2g}" if "mrle" in found else "not run"
        minutes = f"{found['mrle']['train_seconds'] / 60:.1f}" if "mrle" in found else ""
        return f"{mrle:>9} {'' if paper is None else f'{paper:.4f}':>9} {minutes:>8}"

    def summary(self, rows: list[dict[str, Any]]) -> str:
        """Return its main scores in a line."""
        values = {row["metric"]: row["value"] for row in rows}
        shown = [name for name in ("mrle", "mean_std", "crps") if values.get(name) is not None]
        return ", ".join(f"{name} {values[name]:.3g}" for name in shown)


def _parts() -> list[Part]:
    """Return all methods on all experiments, but an FNO where the paper has none."""
    return [
        Part(setting, method)
        for setting in SETTINGS.values()
        for method in METHODS.values()
        if not (method.name == "fno" and setting.test not in FNO_TESTS)
    ]


PARTS = {part.name: part for part in _parts()}
