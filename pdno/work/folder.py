"""The files in the folder of a run.

    RUN/config.toml               all settings, the data file and its split
    RUN/model.safetensors         the finished model, for `pdno.load`
    RUN/checkpoint.safetensors    weights, moving average and optimiser, from which training resumes
    RUN/metrics.jsonl             one row per logged step, without wall-clock times: reproducible byte for byte
    RUN/times.jsonl               the wall-clock times of these rows
    RUN/mean.safetensors          the selected mean model, until the model is finished
    RUN/trials.json               the candidates for the mean model, with their errors and times
    RUN/results.json              the scores of `pdno evaluate`, one row per number
    RUN/evaluation.npz            curves, maps and example fields for the report
    RUN/intervals.safetensors     the conformal calibration, which `pdno predict` applies
    RUN/report.html               the report

Each network that is tried as mean model has a subfolder with its own checkpoint, metrics and times. `pdno evaluate` with
another file, NAME.npz, writes results.json, evaluation.npz and report.html into the subfolder evaluation-NAME.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..errors import UserError

__all__ = ["RunFolder"]


@dataclass(frozen=True)
class RunFolder:
    """The paths of the files of a run.

    >>> RunFolder(Path("run")).model.as_posix()
    'run/model.safetensors'
    """

    path: Path

    def trial(self, name: str) -> "RunFolder":
        """Return the subfolder of a network that was tried as mean model.

        Raises:
            UserError: if the name, which may come from a file, is a path.
        """
        if not re.fullmatch(r"[\w-]+", name):
            raise UserError(f"{name!r} is not the name of a candidate for the mean model; {self.path} is damaged")
        return RunFolder(self.path / name)

    def digest(self) -> str:
        """Return a digest of the model's file, which identifies the model that results belong to."""
        return blake2b(self.model.read_bytes(), digest_size=8).hexdigest()

    @property
    def config(self) -> Path:
        """All settings of the run."""
        return self.path / "config.toml"

    @property
    def model(self) -> Path:
        """The finished model."""
        return self.path / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The state of training."""
        return self.path / "checkpoint.safetensors"

    @property
    def metrics(self) -> Path:
        """The log of training."""
        return self.path / "metrics.jsonl"

    @property
    def times(self) -> Path:
        """The wall-clock times of the log's rows."""
        return self.path / "times.jsonl"

    @property
    def mean(self) -> Path:
        """The selected mean model."""
        return self.path / "mean.safetensors"

    @property
    def trials(self) -> Path:
        """The candidates for the mean model."""
        return self.path / "trials.json"

    @property
    def results(self) -> Path:
        """The scores."""
        return self.path / "results.json"

    @property
    def evaluation(self) -> Path:
        """The arrays that the report plots."""
        return self.path / "evaluation.npz"

    @property
    def intervals(self) -> Path:
        """The conformal calibration."""
        return self.path / "intervals.safetensors"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"
