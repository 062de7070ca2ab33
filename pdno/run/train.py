"""`pdno train`: train a model into the folder of a run, or resume the run (`pdno.work.folder` lists its files)."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from typing import Any

from ..data.arrays import check_finite
from ..data.dataset import Dataset
from ..data.findings import check_parameters
from ..data.parameters import resolved
from ..errors import UserError
from ..mean.choice import Trial
from ..mean.choose import CANDIDATES
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..work.engine import is_first
from ..work.files import locked, replacing
from ..work.folder import RunFolder
from . import results
from .config import Config, DataSection, seconds
from .folder import split_digest

__all__ = ["settings_of", "train"]


def train(
    data: Dataset,
    source: dict[str, Any],
    config: Config,
    out: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    devices: int = 1,
    precision: str = "32-true",
    log_error: float = 0.0,
    tell: Callable[[str], None] = print,
) -> Surrogate:
    """Train a model into a folder, or resume the run that is there.

    Args:
        data: all pairs; 10 % are held out for validation and 10 % for the test unless the data have splits of their own.
        source: origin of the data, the fields of `pdno.run.config.DataSection`.
        config: settings.
        out: the folder.
        seed, device, devices, precision, log_error: as in `Surrogate.learn`.
        tell: called with messages for the user.

    Raises:
        UserError: if the folder holds a run with other settings, or the model cannot be trained on the data.
    """
    config, files = config.of_data(data), RunFolder(out)
    options = dict(source.get("options", {}))
    options |= {"parameters": resolved(options["parameters"])} if "parameters" in options else {}
    source = {**source, "options": options}
    check_finite(data.train)  # before the split, so that samples have the numbers of the file
    split = data.split(source.get("validation", 0.1), source.get("test", 0.1), seed)
    counts = {name: len(pairs) for name, pairs in split.splits().items()}
    config = config.model_copy(update={"data": DataSection(**source, seed=seed, pairs=counts, digest=split_digest(split))})
    options = {"seed": seed, "run": out, "device": device, "devices": devices, "precision": precision}
    options["log_error"] = log_error
    if not is_first():  # another process of a distributed run, which does not write
        return load(out) if files.model.exists() else config.build().learn(split.train, split.validation, **options)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        is_new = _claim(files, config)
        if number := split.provenance.get("series"):
            tell(f"Consecutive samples are alike, as in a time series: splits and folds are of {number} blocks of them.")
        if files.model.exists():
            tell(f"{out} is finished already; choose another --out to train again")
            return load(out)
        begin = time.monotonic()
        for finding in check_parameters(data.train):
            tell(str(finding))
        try:
            model = config.build()
            model.log = tell
            model.learn(split.train, split.validation, **options)
        except UserError:
            if is_new:
                _release(files)
            raise
        model.annotate(data=data.provenance.get("name", source.get("file", "")), samples=counts)
        _finish(model, files)
        for line in (*model.fit_summary, _closing_line(model, out, time.monotonic() - begin)):
            tell(line)
    return model


def settings_of(
    preset: str,
    file: Path | None = None,
    settings: Sequence[str] = (),
    budget: str | None = None,
    symmetries: str | None = None,
    grid: str | None = None,
) -> Config:
    """Return the settings that options of the command line give.

    Args:
        preset: its name.
        file: settings in TOML, which override those of the preset.
        settings: SECTION.KEY=VALUE, which override both.
        budget: a time, such as 10m.
        symmetries, grid: names, separated by commas.

    Raises:
        UserError: if one of them is wrong.
    """
    config = Config.preset(preset)
    config = config if file is None else config.with_file(file)
    config = config.with_set(settings)
    if budget is not None:
        config = config.with_set([f"model.budget={seconds(budget)}"])
    for name, text in (("symmetries", symmetries), ("grid", grid)):
        if text is not None:
            several = [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]
            value = several[0] if name == "grid" and len(several) == 1 else several
            config = config.changed({"model": {name: value}}, f"--{name} {text}")
    config.build()  # checks the settings that parts of the model check
    return config


def _finish(model: Surrogate, files: RunFolder) -> None:
    """Write the leaderboard, with times, and the model."""
    if model.leaderboard:
        _write_leaderboard(files.trials, model.leaderboard)
    model.save(files.model)
    files.mean.unlink(missing_ok=True)


def _closing_line(model: Surrogate, out: Path, seconds: float) -> str:
    row = model.history[-1] if model.history else {}
    losses = "".join(f", {name} {row[name]:.4g}" for name in ("loss", "validation") if name in row)
    updates = model.provenance["updates"]  # of the law; the mean is described in the summary
    steps = f" ({updates} step{'s' * (updates > 1)} of the last network)" if updates else ""
    return f"{out}: trained in {results.duration(seconds)}{steps}{losses}"


def _write_leaderboard(path: Path, trials: Sequence[Trial]) -> None:
    with replacing(path) as partial:
        partial.write_text(
            json.dumps([asdict(trial) for trial in trials], indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def _claim(files: RunFolder, config: Config) -> bool:
    """Write the settings of a new run; return whether it is new.

    Raises:
        UserError: if the folder holds a run with other settings, which is not modified.
    """
    if files.config.exists():
        begun = Config.read(files.config)
        if begun != config:
            old, new = begun.model_dump(), config.model_dump()
            changed = [f"{s}.{k}" for s in new for k in new[s] if old[s].get(k) != new[s][k]]
            raise UserError(
                f"{files.path} holds a run with other settings ({', '.join(changed)}); choose another --out for this one"
            )
        return False
    with replacing(files.config) as partial:
        partial.write_text(config.toml(), encoding="utf-8")
    return True


def _release(files: RunFolder) -> None:
    """Remove the files of a run that was refused before it was trained, so that the corrected command may use the folder."""
    if not files.metrics.exists():
        for path in (files.config, files.checkpoint, files.mean):
            path.unlink(missing_ok=True)
        for candidate in CANDIDATES:
            rmtree(files.path / candidate, ignore_errors=True)
