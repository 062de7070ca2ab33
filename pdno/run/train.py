"""What `pdno train` does: the folder of a run.

RUN/config.toml               all settings, the file of the data, and how it was split
RUN/model.safetensors         the finished model, for pdno.load
RUN/checkpoint.safetensors    weights, moving average and optimiser; the same command run again goes on from here
RUN/metrics.jsonl, times.jsonl
RUN/mean.safetensors          the mean operator, until the model is finished
RUN/trials.json               what was tried for the mean operator, with times; networks that were have folders of their own
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.open import open_chosen
from ..data.pairs import Dataset
from ..data.selection import Selection
from ..errors import UserError
from ..mean.choice import FILE, Trial
from ..mean.choose import NETWORKS
from ..model.operator import PDNO
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..work.engine import is_first
from ..work.lock import alone
from ..work.whole import replacing
from .config import Config, DataSection

__all__ = ["config_of", "data_of", "digest_of", "train", "trials_of"]

Array = NDArray[Any]


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
    tell: Callable[[str], None] = print,
) -> Surrogate:
    """Train a model into a folder, or go on with the run that is there.

    Args:
        data: all pairs; 10 % are held out for validation and 10 % for the test unless the data have their own.
        source: where the data came from, the fields of `pdno.run.config.DataSection`.
        config: settings.
        out: the folder.
        seed, device, devices, precision: as in `Surrogate.learn`.
        tell: called with what the user should know.
    """
    config = config.of_data(data)
    held = data.split(source.get("validation", 0.1), source.get("test", 0.1), seed)
    counts = {name: len(pairs) for name, pairs in held.splits().items()}
    config = config.model_copy(update={"data": DataSection(**source, seed=seed, pairs=counts, digest=_ends(held))})
    options: dict[str, Any] = {"seed": seed, "run": out, "device": device, "devices": devices, "precision": precision}
    if not is_first():  # a helper of the process that writes
        if (out / "model.safetensors").exists():
            return load(out)
        return config.build().learn(held.train, held.validation, **options)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        fresh = _claim(out, config)
        if (out / "model.safetensors").exists():
            tell(f"{out} is finished already; choose another --out to train again")
            return load(out)
        begin = time.monotonic()
        try:
            model = config.build()
            if isinstance(model, PDNO):
                model.tell = tell
            model.learn(held.train, held.validation, **options)
        except UserError:
            if fresh:
                _release(out)
            raise
        model.provenance |= {"data": data.provenance.get("name", source.get("file", "")), "samples": counts}
        if isinstance(model, PDNO) and model.parts is not None:
            _write_trials(out / "trials.json", model.parts.trials)
        model.save(out / "model.safetensors")
        (out / FILE).unlink(missing_ok=True)
        for line in model.said if isinstance(model, PDNO) else ():
            tell(line)
        row = model.history[-1] if model.history else {}
        last = "".join(f", {name} {row[name]:.4g}" for name in ("loss", "validation") if name in row)
        tell(f"{out}: {model.provenance['updates']} steps in {(time.monotonic() - begin) / 60:.1f} minutes{last}")
    return model


def _write_trials(path: Path, trials: Sequence[Trial]) -> None:
    """What was tried for the mean; a file of its own, since it has times."""
    with replacing(path) as partial:
        partial.write_text(json.dumps([asdict(trial) for trial in trials], indent=1, ensure_ascii=False) + "\n")


def trials_of(run: Path) -> list[dict[str, Any]]:
    """What was tried for the mean operator of a run, nothing if it has none."""
    path = run / "trials.json"
    try:
        return list(json.loads(path.read_text())) if path.exists() else []
    except (json.JSONDecodeError, UnicodeDecodeError):
        return []


def _claim(out: Path, config: Config) -> bool:
    """Write the settings of the run, and say whether it is a new one; a run with other settings is left alone."""
    path = out / "config.toml"
    fresh = not path.exists()
    if not fresh:
        begun = Config.read(path)
        if begun != config:
            old, new = begun.model_dump(), config.model_dump()
            changed = [f"{s}.{k}" for s in new for k in new[s] if old[s].get(k) != new[s][k]]
            raise UserError(f"{out} holds a run with other settings ({', '.join(changed)}); choose another --out for this one")
    else:
        with replacing(path) as partial:
            partial.write_text(config.toml())
    return fresh


def _release(out: Path) -> None:
    """Leave no trace of a run that was refused before it learned anything, so that the mended command may use the folder."""
    if not (out / "metrics.jsonl").exists():
        for name in ("config.toml", "checkpoint.safetensors", FILE):
            (out / name).unlink(missing_ok=True)
        for candidate in ("mean", *(f"{name}{look}" for name in NETWORKS for look in ("", "-short", "-longer"))):
            rmtree(out / candidate, ignore_errors=True)


def data_of(run: Path) -> Dataset:
    """The data of a run, split as they were for training."""
    section = config_of(run).data
    if not Path(section.file).exists():
        raise UserError(f"the data of {run} were {section.file}, which is not there any more; name the file")
    names = dict(section.options)
    test, mask, cache = (names.pop(name, None) for name in ("test_file", "mask", "cache"))
    data = open_chosen(Path(section.file), Selection(**names) if names else None, test, mask, cache)
    held = data.split(section.validation, section.test, section.seed)
    counts = {name: len(pairs) for name, pairs in held.splits().items()}
    if counts != section.pairs:
        raise UserError(f"{section.file} has changed since {run} was trained: {section.pairs} pairs then, {counts} now")
    if section.digest and _ends(held) != section.digest:
        raise UserError(f"{section.file} has changed since {run} was trained: it has other values; name the file to use")
    return held


def _ends(data: Dataset) -> str:
    """A digest of the first and the last pair of each split: data that were made anew have another one."""
    parts = [part for pairs in data.splits().values() for part in (pairs[:1], pairs[-1:])]
    return digest_of(np.concatenate([np.nan_to_num(v).ravel() for part in parts for v in (part.a, part.u)]))


def config_of(run: Path) -> Config:
    """The settings that a run was started with."""
    if not (run / "config.toml").exists():
        raise UserError(f"{run} is not the folder of a run; `pdno train DATA --out RUN` makes one")
    return Config.read(run / "config.toml")


def digest_of(values: Array) -> str:
    """A short name of these values."""
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()
