"""Read the folder of a run: settings, data, leaderboard and conformal calibration."""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import Array
from ..data.dataset import Dataset
from ..data.open import open_selected
from ..data.parameters import PARAMETER
from ..data.selection import Selection
from ..errors import UserError
from ..evaluation.conformal import Conformal
from ..model.intervals import KIND, intervals_in
from ..work import checkpoint
from ..work.folder import RunFolder
from ..work.state import State
from . import results
from .config import Config

__all__ = [
    "array_digest",
    "calibrated_members",
    "config_of",
    "conformal_of",
    "data_of",
    "is_current",
    "leaderboard_of",
    "model_digest",
    "results_folder",
    "save_conformal",
    "split_digest",
]


def config_of(run: Path) -> Config:
    """Return the settings that a run was started with."""
    if not RunFolder(run).config.exists():
        raise UserError(f"{run} is not the folder of a run; `pdno train DATA --out RUN` creates one")
    return Config.read(RunFolder(run).config)


def data_of(run: Path) -> Dataset:
    """Return the data of a run with the split used for training; raise UserError if the file has changed."""
    section = config_of(run).data
    if not Path(section.file).exists():
        raise UserError(f"the data file {section.file} of {run} no longer exists; pass the data file to use")
    names = dict(section.options)
    test, mask, cache = (names.pop(name, None) for name in ("test_file", "mask", "cache"))
    # The folder of a cache may be anywhere and the run be foreign: it is read, never written.
    data = open_selected(Path(section.file), Selection(**names) if names else None, test, mask, cache, fill=False)
    split = data.split(section.validation, section.test, section.seed)
    counts = {name: len(pairs) for name, pairs in split.splits().items()}
    if counts != section.pairs:
        raise UserError(
            f"{section.file} has changed since {run} was trained: {section.pairs} pairs then, {counts} now; "
            "pass the data file to use"
        )
    if section.digest and split_digest(split) != section.digest:
        raise UserError(f"{section.file} has changed since {run} was trained: its values differ; pass the data file to use")
    return split


def split_digest(data: Dataset) -> str:
    """Return a digest of the first and the last pair of each split, which identifies the data."""
    parts = [part for pairs in data.splits().values() for part in (pairs[:1], pairs[-1:])]
    arrays = [v for part in parts for v in (part.a, part.u)]
    arrays += [part.xarray["scalars"].values for part in parts if PARAMETER in part.xarray.coords]  # of a table
    return array_digest(np.concatenate([np.nan_to_num(v).ravel() for v in arrays]))


def array_digest(values: Array) -> str:
    """Return a digest of the bytes of an array."""
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


def model_digest(run: Path) -> str:
    """Return a digest of the model's file, which identifies the model that results belong to."""
    return RunFolder(run).digest()


def leaderboard_of(run: Path) -> list[dict[str, Any]]:
    """Return the candidates for the mean model of a run; empty if it has none."""
    path = RunFolder(run).trials
    try:
        return [results.renamed_trial(trial) for trial in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    except (json.JSONDecodeError, UnicodeDecodeError):
        return []


def results_folder(run: Path, file: Path | None = None, split: str = "test") -> Path:
    """Return the folder of results: that of the run for its own test pairs, else a subfolder."""
    own = file is None or file.resolve() == Path(config_of(run).data.file).resolve()
    if own and split == "test":
        return run
    name = split if file is None or own else re.sub(r"[^\w-]+", "-", file.stem)
    return run / f"evaluation-{name}"


def is_current(run: Path, file: Path | None = None) -> bool:
    """Return whether there are results of this run's present model, on its own test pairs or on another file."""
    folder = RunFolder(results_folder(run, file))
    if not folder.results.exists() or not folder.evaluation.exists():
        return False
    contents = results.read(folder.results)
    same = file is None or Path(contents.get("metadata", {}).get("file", "")).resolve() == file.resolve()
    return same and contents.get("model") == model_digest(run)


def save_conformal(run: Path, calibrations: Mapping[str, Conformal], members: int, sampling: Mapping[str, Any]) -> None:
    """Write the conformal calibrations for "points" and "fields"; remove the file if there are none."""
    path = RunFolder(run).intervals
    if not calibrations:
        path.unlink(missing_ok=True)
        return
    settings = {"model": model_digest(run), "members": members, "sampling": dict(sampling)}
    checkpoint.save_state(path, KIND, State(settings, {}, {name: c.state() for name, c in calibrations.items()}))


def conformal_of(run: Path, members: int | None, sampling: Mapping[str, Any]) -> Conformal | None:
    """Return the pointwise calibration by `pdno evaluate`; None unless it belongs to this model and these settings.

    Args:
        run: folder of the run.
        members: number of members for each input, which must be that of the calibration; None for a deterministic model.
        sampling: sampling settings.
    """
    intervals = intervals_in(RunFolder(run))
    return intervals.points if intervals is not None and intervals.belong_to(members, sampling) else None


def calibrated_members(run: Path) -> int:
    """Return the number of members that conformal intervals were calibrated with."""
    return int(checkpoint.load_state(RunFolder(run).intervals, KIND).settings["members"])
