"""What `pdno train` and `pdno predict` do: the folder of a run, and the store of a prediction.

RUN/config.toml               all settings, the file of the data, and how it was split
RUN/model.safetensors         the finished model, for pdno.load
RUN/checkpoint.safetensors    weights, moving average and optimiser; the same command run again goes on from here
RUN/metrics.jsonl, times.jsonl
"""

import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from . import __version__, store
from .config import Config, DataSection
from .dataset import Dataset, Pairs
from .engine import is_first
from .errors import UserError
from .formats import contents
from .loading import memory_allowed, open_chosen
from .lock import alone
from .saved import load
from .selection import Selection, arrange, pick
from .surrogate import Surrogate

__all__ = ["data_of", "predict", "train"]

Array = NDArray[Any]
BLOCK = 8  # inputs of a prediction that are written at once


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
        source: where the data came from, the fields of `pdno.config.DataSection`.
        config: settings.
        out: the folder.
        seed, device, devices, precision: as in `Surrogate.learn`.
        tell: called with what the user should know.
    """
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
            model = config.build().learn(held.train, held.validation, **options)
        except UserError:
            if fresh:
                _release(out)
            raise
        model.provenance |= {"data": data.provenance.get("name", source.get("file", "")), "samples": counts}
        model.save(out / "model.safetensors")
        row = model.history[-1]
        last = ", ".join(f"{name} {row[name]:.4g}" for name in ("loss", "validation") if name in row)
        tell(f"{out}: {model.provenance['updates']} steps in {(time.monotonic() - begin) / 60:.1f} minutes, {last}")
    return model


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
        temporary = path.with_name("config.toml.partial")
        temporary.write_text(config.toml())
        temporary.replace(path)
    return fresh


def _release(out: Path) -> None:
    """Leave no trace of a run that was refused before it learned anything, so that the mended command may use the folder."""
    if not (out / "metrics.jsonl").exists():
        for name in ("config.toml", "checkpoint.safetensors"):
            (out / name).unlink(missing_ok=True)


def data_of(run: Path) -> Dataset:
    """The data of a run, split as they were for training."""
    section = _config(run).data
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
    return _digest(np.concatenate([np.nan_to_num(v).ravel() for part in parts for v in (part.a, part.u)]))


def _config(run: Path) -> Config:
    if not (run / "config.toml").exists():
        raise UserError(f"{run} is not the folder of a run; `pdno train DATA --out RUN` makes one")
    return Config.read(run / "config.toml")


def predict(
    run: Path,
    file: Path | None,
    out: Path,
    *,
    members: int = 100,
    quantiles: Iterable[float] = (0.05, 0.5, 0.95),
    seed: int = 0,
    split: str = "test",
    a: str | None = None,
    dims: str | None = None,
    scalars: str | None = None,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> xr.Dataset:
    """Predict into a Zarr store, block by block; the same call goes on with an unfinished one.

    The inputs are those of a split of the run's own data or of another store, or the array `a` of any file.
    """
    store.check_free(out)
    model = load(run, device=device)
    if members < 2:
        raise UserError(f"members = {members}: a spread needs at least two")
    inputs, parameters = _inputs(run, file, split, a, dims, scalars)
    assert model.frame is not None
    inputs, parameters = model.frame.inputs(inputs, parameters)
    levels = tuple(dict.fromkeys(quantiles))
    asked = {"members": members, "seed": seed, "quantiles": list(levels), "inputs": _digest(inputs), **how}
    asked["model"] = blake2b((run / "model.safetensors").read_bytes(), digest_size=8).hexdigest()
    names = ["mean", "std", *(f"quantile_{q:g}" for q in levels)]
    plan = _layout(model, len(inputs), names, {"run": str(run), "version": __version__, **asked})
    with store.building(out, plan) as partial:
        for group, first, end in store.blocks(plan):
            if not store.is_whole(partial, group, first, end):
                s = None if parameters is None else parameters[first:end]
                p = model.predict(inputs[first:end], members, seed, levels, scalars=s, first=first, progress=False, **how)
                values = [p.mean, p.std, *(p.quantiles[q] for q in levels)]
                store.write(partial, group, first, dict(zip(names, values, strict=True)))
            if progress is not None:
                progress(end * members, len(inputs) * members)
    predicted: xr.Dataset = xr.open_zarr(out, consolidated=False, chunks=None)
    return predicted


def _layout(model: Surrogate, count: int, names: list[str], provenance: dict[str, Any]) -> store.Layout:
    frame = model.frame
    assert frame is not None
    shape = frame.u_shape if frame.channel else frame.u_shape[1:]
    dims = ("sample", *(["channel"] if frame.channel else []), *frame.axes)
    spec = store.Spec(shape, frame.dtype, dims)
    return store.Layout({"": count}, {"": dict.fromkeys(names, spec)}, {"": frame.coordinates}, {"pdno": provenance}, BLOCK)


def _digest(values: Array) -> str:
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).hexdigest()


def _inputs(run: Path, file: Path | None, split: str, a: str | None, dims: str | None, scalars: str | None) -> tuple[Any, Any]:
    """The inputs to predict for, and their scalars."""
    config = _config(run).data
    if a is None and (file is None or file.resolve() == Path(config.file).resolve()):
        return _of(data_of(run), split)
    assert file is not None or a is not None
    path = Path(config.file) if file is None else file
    if store.is_store(path):
        if a or dims or scalars:
            raise UserError(f"{path} is a store of pdno and knows its arrays; give no names")
        data = open_chosen(path, None)
        return _of(data, split if split != "test" or len(data.test) else "train")
    found = contents(path, memory_allowed())
    recorded = {name: config.options.get(name) for name in ("a", "scalars", "dims")}
    name = a or (recorded["a"] if recorded["a"] in found.entries else None)
    if name is None and len(found.entries) == 1:
        name = next(iter(found.entries))
    if name is None:
        raise UserError(f"which array of {path.name} holds the inputs? It has {', '.join(found.entries)}; name it with --a")
    s = scalars or (recorded["scalars"] if recorded["scalars"] in found.entries else None)
    spoken = dims or recorded["dims"]
    values = pick(found, name)
    if spoken is not None:
        values = arrange(values, Selection(name, name, spoken).dims_of("a"), name)[0]
    return values, None if s is None else pick(found, s)


def _of(data: Dataset, split: str) -> tuple[Any, Any]:
    pairs: Pairs | None = data.splits().get(split)
    if not pairs:
        there = ", ".join(name for name, p in data.splits().items() if len(p))
        raise UserError(f"there are no {split} pairs; choose --split {there}")
    return pairs.a, pairs.scalars
