"""A part of the bench: one method on one experiment of the paper, trained and evaluated, with its rows of results."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from ..data.generate import generate
from ..data.open import open as open_data
from ..data.pairs import Dataset
from ..equation import EQUATIONS
from ..equation.base import Equation
from ..evaluation.scoring import evaluate
from ..learning.resume import session_seconds
from ..model.paper import FNO_TESTS, SETTINGS, Setting
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..run import results
from .methods import METHODS, Method
from .scale import Scale

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
        return f"{self.name.replace('/', '-').replace(':', '-')}.json"

    def equation(self, scale: Scale) -> Equation:
        """Return the equation on the grid of a scale."""
        make: Callable[..., Equation] = EQUATIONS[self.setting.test]
        return make(points=scale.grid_points(self.setting))

    def data(self, scale: Scale, folder: Path) -> Dataset:
        """Return the pairs, generated into the folder once for all methods."""
        s = self.setting
        path = folder / "data" / f"{s.name.replace(':', '-')}.zarr"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            generate(self.equation(scale), scale.train(s), scale.inputs(s), s.noise, out=path)
        return open_data(path)

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
        split = self.data(scale, folder).split(self.method.holds_out, 0.0)
        model, seconds = self._trained(split, scale, self.run_folder(folder), engine)
        begin, members = perf_counter(), 2 if model.fitted.residual.deterministic else scale.members(self.setting)
        e = evaluate(model, split, members=members, calibrate=0)
        noise = self.setting.noise
        row = {
            "test": self.setting.test,
            "method": self.label(scale),
            "grid": str(self.equation(scale).grid),
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

    def _trained(self, split: Dataset, scale: Scale, run: Path, engine: dict[str, Any]) -> tuple[Surrogate, float]:
        """Return the model and its training time."""
        path = run / "model.safetensors"
        if path.exists():
            model = load(path)
            return model, float(model.provenance["seconds"])
        model = self.method.make(self.setting, self.equation(scale), scale)
        log: dict[str, Any] = {"log_error": scale.log_error, "log_pairs": split.test} if self.method.logs_error else {}
        begin = perf_counter()
        run.mkdir(parents=True, exist_ok=True)
        model.learn(split.train, split.validation, run=run, **log, **engine)
        seconds = max(perf_counter() - begin, sum(session_seconds(run)))
        model.annotate(seconds=seconds)
        model.save(path)
        return model, seconds


def _parts() -> list[Part]:
    """Return all methods on all experiments, but an FNO where the paper has none."""
    return [
        Part(setting, method)
        for setting in SETTINGS.values()
        for method in METHODS.values()
        if not (method.name == "fno" and setting.test not in FNO_TESTS)
    ]


PARTS = {part.name: part for part in _parts()}
