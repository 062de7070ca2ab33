"""What `pdno predict` does: mean, spread and quantiles of u for new inputs, into a Zarr store.

mean, std, quantile_0.05, …       (sample, channel, *grid)
novelty, unfamiliar               (sample,): the distance of an input from those learned from, and whether it is flagged
lower_0.9, upper_0.9              repaired intervals, where `pdno evaluate` has measured the repair
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import xarray as xr

from .. import __version__
from ..data import store
from ..data.formats import contents
from ..data.open import memory_allowed, open_chosen
from ..data.pairs import Dataset, Pairs
from ..data.selection import Selection, arrange, pick
from ..errors import UserError
from ..evaluation.conformal import Conformal
from ..evaluation.scoring import FEWEST
from ..evaluation.streaming import central
from ..model.prediction import Prediction
from ..model.saving import load
from ..model.surrogate import Surrogate
from .evaluate import digest, intervals
from .train import config_of, data_of, digest_of

__all__ = ["predict"]

BLOCK = 8  # inputs of a prediction that are written at once


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
    repair = intervals(run, FEWEST if model.deterministic else members, how)
    ends = () if repair is None else central(repair.level, members)
    asked = {"members": members, "seed": seed, "quantiles": list(levels), "inputs": digest_of(inputs), **how}
    asked |= {"model": digest(run), "repair": None if repair is None else digest_of(repair.factor)}
    plan = _layout(model, len(inputs), levels, repair, {"run": str(run), "version": __version__, **asked})
    with store.building(out, plan) as partial:
        for group, first, end in store.blocks(plan):
            if not store.is_whole(partial, group, first, end):
                part = inputs[first:end], members, seed, (*levels, *ends)
                s = None if parameters is None else parameters[first:end]
                p = model.predict(*part, scalars=s, first=first, progress=False, **how)
                store.write(partial, group, first, _values(p, levels, repair, ends))
            if progress is not None:
                progress(end * members, len(inputs) * members)
    predicted: xr.Dataset = xr.open_zarr(out, consolidated=False, chunks=None)
    return predicted


def _values(p: Prediction, levels: tuple[float, ...], repair: Conformal | None, ends: tuple[float, ...]) -> dict[str, Any]:
    """The arrays of a block by name; fields come last, as their presence shows that a block is whole."""
    values: dict[str, Any] = {} if p.novelty is None else {"novelty": p.novelty, "unfamiliar": p.unfamiliar}
    values |= {"mean": p.mean, "std": p.std} | {f"quantile_{q:g}": p.quantiles[q] for q in levels}
    if repair is not None:
        low, high = (p.quantiles[q] for q in ends)
        shape = (-1, *repair.factor.shape)  # channels or none, as the user's u
        repaired = repair.repair(*(v.reshape(shape) for v in (low, high, p.std)))
        names = (f"lower_{repair.level:g}", f"upper_{repair.level:g}")
        values |= {name: end.reshape(p.mean.shape) for name, end in zip(names, repaired, strict=True)}
    return values


def _layout(
    model: Surrogate, count: int, levels: tuple[float, ...], repair: Conformal | None, provenance: dict[str, Any]
) -> store.Layout:
    frame = model.fitted()
    shape = frame.u_shape if frame.channel else frame.u_shape[1:]
    dims = ("sample", *(["channel"] if frame.channel else []), *frame.axes)
    names = {"mean": "mean of the members", "std": "standard deviation of the members"}
    names |= {f"quantile_{q:g}": f"{100 * q:g} % quantile of the members" for q in levels}
    if repair is not None:
        held = f"repaired {100 * repair.level:g} % interval (conformal, {repair.samples} held-out pairs)"
        names |= {f"{end}_{repair.level:g}": f"{end} end of the {held}" for end in ("lower", "upper")}
    arrays = {name: store.Spec(shape, frame.dtype, dims, meaning) for name, meaning in names.items()}
    if model.novelty is not None:
        distance, flag = (
            "distance of the input from those learned from, 1 is the limit",
            "novelty above 1: do not trust the rest",
        )
        arrays["novelty"] = store.Spec((), "float64", ("sample",), distance)
        arrays["unfamiliar"] = store.Spec((), "bool", ("sample",), flag)
    return store.Layout({"": count}, {"": arrays}, {"": frame.coordinates}, {"pdno": provenance}, BLOCK)


def _inputs(run: Path, file: Path | None, split: str, a: str | None, dims: str | None, scalars: str | None) -> tuple[Any, Any]:
    """The inputs to predict for, and their scalars."""
    config = config_of(run).data
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
