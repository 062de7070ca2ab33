"""`pdno predict`: mean, standard deviation and quantiles of u for new inputs, written to a Zarr store.

mean, std, quantile_0.05, …       (sample, channel, *grid)
novelty, is_ood                   (sample,): the novelty score of each input, and whether it is out of distribution
lower_0.9, upper_0.9              conformal intervals, if `pdno evaluate` has calibrated them
parameters                        (sample, parameter): the scalars of each input, with their names, if the model has any
"""

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import xarray as xr

from .. import __version__
from .._typing import Array
from ..data import store
from ..data.meshes import Points
from ..data.parameters import PARAMETER
from ..errors import UserError
from ..evaluation.conformal import Conformal
from ..evaluation.streaming import central
from ..model.law import Given, Law
from ..model.members import TOLERANCE, members_needed
from ..model.prediction import DESCRIPTIONS, given_for
from ..model.prediction import predict as predict_block
from ..model.saving import load
from ..work.folder import RunFolder
from .folder import array_digest, calibrated_members, conformal_of, model_digest
from .inputs import inputs_of
from .options import OUTPUTS

__all__ = ["predict", "summary"]


BLOCK_INPUTS = 8  # inputs that are predicted and written at a time


def predict(
    run: Path,
    file: Path | None,
    out: Path,
    *,
    members: int | Literal["auto"] = 100,
    quantiles: Iterable[float] = (0.05, 0.5, 0.95),
    seed: int = 0,
    split: str = "test",
    a: str | None = None,
    dims: str | None = None,
    scalars: str | None = None,
    points: Points | None = None,
    only: Sequence[str] = OUTPUTS,
    part: tuple[int, int] = (1, 1),
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = print,
    **sampling: Any,
) -> xr.Dataset:
    """Predict into a Zarr store, block by block; the same call resumes an unfinished store.

    Args:
        run: folder of the run.
        file: inputs, or a table of parameters if the model has no other inputs; default: the data of the run.
        out: store to write; a name with the suffix .vtu or .vtk for meshes.
        members: number of members for each input; "auto" for a Monte-Carlo error of mean and std below 3 % of the std.
        quantiles: levels in [0, 1].
        seed: of the members.
        split: of the run's own data or of another store: "train", "validation" or "test".
        a: array of inputs, in a file of another format.
        dims: its dimensions.
        scalars: arrays of further parameters, separated by commas, or a table in another file.
        points: of the grid of the predictions; default: that of the inputs.
        only: the outputs to write, among OUTPUTS.
        part: (k, n) for the k-th of n parts of the inputs, so that several processes share the work; members are those of the
            whole prediction.
        device: where to compute.
        progress: called with the numbers of finished and of all members.
        tell: called with messages for the user.
        sampling: sampling settings of the model, such as steps=20.

    Returns:
        The store, opened.

    Raises:
        UserError: if inputs do not fit the model, it is ambiguous which array has them, or `out` holds something else.
    """
    store.check_free(out)
    model = load(run, device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        law, given = given_for(model.fitted, *inputs_of(run, model.spaces, file, split, a, dims, scalars, tell), points)
    inputs = _Inputs.of(given, *part)
    count = max(2, members_needed(given, TOLERANCE, seed, **sampling)) if members == "auto" else int(members)
    if count < 2:
        raise UserError(f"members = {count}: a standard deviation requires at least two")
    levels = tuple(dict.fromkeys(quantiles)) if "quantiles" in only else ()
    calibrated = "intervals" in only and law.mesh is None  # on the grid of training, to which conformal intervals belong
    conformal = conformal_of(run, None if model.deterministic else count, sampling) if calibrated else None
    request = _Request(law, count, seed, sampling, levels, conformal, only)
    settings = request.settings(inputs, model_digest(run))
    settings |= {"part": f"{part[0]}/{part[1]}"} if part[1] > 1 else {}
    if law.mesh is not None:
        notes = [*law.mesh.notes(law.residual), *(str(warning.message) for warning in caught)]
        settings |= {"grid": str(law.spaces.grid), "notes": notes}
    request.write(out, inputs, {"run": str(run), "version": __version__, **settings}, progress)
    opened: xr.Dataset = xr.open_zarr(out, consolidated=False, chunks=None)
    return opened


@dataclass(frozen=True)
class _Inputs:
    """Consecutive inputs of a prediction.

    Args:
        start: number of the first one, of which members are a function.
        a: (sample, channel, *grid).
        scalars: (sample, parameter).
    """

    start: int
    a: Array
    scalars: Array | None

    @classmethod
    def of(cls, given: Given, k: int, n: int) -> Self:
        """Return the k-th of n parts of all inputs; raise UserError if it is empty."""
        start, end = (len(given.a) * i // n for i in (k - 1, k))
        if start == end:
            raise UserError(f"part {k}/{n} of {len(given.a)} inputs is empty; use fewer parts")
        return cls(0, given.a, given.scalars).block(start, end)

    def block(self, first: int, end: int) -> Self:
        """Return the inputs `first` to `end` of these."""
        scalars = None if self.scalars is None else self.scalars[first:end]
        return replace(self, start=self.start + first, a=self.a[first:end], scalars=scalars)

    def digest(self) -> str:
        """Return a digest of the values."""
        return array_digest(self.a if self.scalars is None else np.concatenate([self.a.ravel(), self.scalars.ravel()]))


@dataclass(frozen=True)
class _Request:
    """Model and settings of a prediction, the same for all its inputs.

    Args:
        law: of u given a, on the grid of the predictions.
        members: number of members.
        seed: of the members.
        sampling: sampling settings.
        levels: of the quantiles.
        conformal: calibration of the conformal intervals; None for no intervals.
        only: the outputs to write, among OUTPUTS.
    """

    law: Law
    members: int
    seed: int
    sampling: dict[str, Any]
    levels: tuple[float, ...]
    conformal: Conformal | None
    only: Sequence[str]

    def settings(self, inputs: _Inputs, model: str) -> dict[str, Any]:
        """Return the settings that the predictions depend on; `model` is a digest."""
        settings = {"members": self.members, "seed": self.seed, "quantiles": list(self.levels), "inputs": inputs.digest()}
        settings |= self.sampling
        settings |= {"model": model, "conformal": None if self.conformal is None else array_digest(self.conformal.factor)}
        settings |= {"deterministic": True} if self.law.residual.deterministic else {}
        return settings | ({"only": list(self.only)} if tuple(self.only) != OUTPUTS else {})

    def write(
        self, out: Path, inputs: _Inputs, provenance: dict[str, Any], progress: Callable[[int, int], None] | None
    ) -> None:
        """Write the predictions into a store, block by block; an unfinished store is resumed."""
        count = len(inputs.a)
        layout = self._layout(count, provenance)
        written = layout.arrays[""]
        with store.building(out, layout) as partial, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they are among the notes
            for group, first, end in store.blocks(layout):
                if not store.is_complete(partial, group, first, end):
                    values = self._values(inputs.block(first, end))
                    store.write(partial, group, first, {name: v for name, v in values.items() if name in written})
                if progress is not None:
                    progress(end * self.members, count * self.members)

    def _values(self, inputs: _Inputs) -> dict[str, Any]:
        """Return the arrays of a block by name; fields are last, because their presence marks a block as complete."""
        bounds = () if self.conformal is None else central(self.conformal.level, self.members)
        given = inputs.a, self.members, self.seed, (*self.levels, *bounds)
        p = predict_block(self.law, *given, scalars=inputs.scalars, start=inputs.start, progress=False, **self.sampling)
        values: dict[str, Any] = {} if inputs.scalars is None else {"parameters": inputs.scalars}
        values |= {} if p.novelty is None else {"novelty": p.novelty, "is_ood": p.is_ood}
        values |= {"mean": p.mean, "std": p.std} | {f"quantile_{q:g}": p.quantiles[q] for q in self.levels}
        if self.conformal is not None:
            low, high = (p.quantiles[q] for q in bounds)
            shape = (-1, *self.conformal.factor.shape)  # with a channel axis, which the user's u may lack
            intervals = self.conformal.apply(*(v.reshape(shape) for v in (low, high, p.std)))
            names = (f"{bound}_{self.conformal.level:g}" for bound in ("lower", "upper"))
            values |= {name: bound.reshape(p.mean.shape) for name, bound in zip(names, intervals, strict=True)}
        return values

    def _layout(self, count: int, provenance: dict[str, Any]) -> store.Layout:
        """Return the arrays of a store with predictions for `count` inputs, with their descriptions."""
        spaces = self.law.spaces
        shape = spaces.u_shape if spaces.channel else spaces.u_shape[1:]
        dims = ("sample", *(["channel"] if spaces.channel else []), *spaces.axes)
        names = {name: text for name, text in DESCRIPTIONS.items() if name in self.only}
        names |= {f"quantile_{q:g}": f"{100 * q:g} % quantile of the members" for q in self.levels}
        if self.conformal is not None:
            level, pairs = self.conformal.level, self.conformal.samples
            interval = f"conformal {100 * level:g} % interval ({pairs} calibration pairs)"
            names |= {f"{bound}_{level:g}": f"{bound} bound of the {interval}" for bound in ("lower", "upper")}
        units = spaces.labels.get("u", {}).get("units", "")
        arrays = {name: store.Spec(shape, spaces.dtype, dims, description, units) for name, description in names.items()}
        if self.law.novelty is not None and "novelty" in self.only:
            score, flag = "novelty score of the input, threshold 1", "novelty above 1: the input is out of distribution"
            arrays["novelty"] = store.Spec((), "float64", ("sample",), score)
            arrays["is_ood"] = store.Spec((), "bool", ("sample",), flag)
        if spaces.scalars:
            meaning = f"parameters of the input: {', '.join(spaces.parameters)}"
            arrays["parameters"] = store.Spec((spaces.scalars,), "float64", ("sample", PARAMETER), meaning)
        along = spaces.coordinates | ({} if spaces.nodes is None else spaces.nodes.coordinates())
        return store.Layout({"": count}, {"": arrays}, {"": along}, {"pdno": provenance}, BLOCK_INPUTS, spaces.labels)


def summary(run: Path, out: Path, predicted: xr.Dataset) -> list[str]:
    """Return lines about a prediction that was written: how many inputs, its notes, and how to read it in Python."""
    metadata = json.loads(predicted.attrs["pdno"])
    count = predicted.sizes["sample"]
    deterministic = metadata.get("deterministic", False)
    each = "one prediction each" if deterministic else f"{metadata['members']} members each"
    spread = "" if "std" not in predicted or deterministic else f"; mean std {float(predicted['std'].mean()):.4g}"
    first, last = (out if out.exists() else out.with_name(f"{out.stem}_{i}{out.suffix}") for i in (0, count - 1))  # of meshes
    written = f"{out}" if out.exists() else f"{first} to {last.name}"
    lines = [f"{written}: {count} {'input' if count == 1 else 'inputs'}, {each}{spread}", *metadata.get("notes", ())]
    wanted = "intervals" in metadata.get("only", OUTPUTS)
    if wanted and "lower_0.9" not in predicted and RunFolder(run).intervals.exists():
        lines.append(
            "no conformal intervals: they were calibrated for another model, grid, --steps or number of members; use the "
            f"options of `pdno evaluate {run}` (its --members is {calibrated_members(run)})"
        )
    flagged = int(predicted["is_ood"].sum()) if "is_ood" in predicted else 0
    if flagged:
        inputs = "1 input is" if flagged == 1 else f"{flagged} inputs are"
        their = "its" if flagged == 1 else "their"
        lines.append(f"{inputs} flagged as out of distribution (`is_ood`): {their} intervals may be unreliable")
    if part := metadata.get("part"):
        lines.append(f'This is part {part}: with all parts, xarray.concat([…], "sample") is the whole prediction')
    by_suffix = {".nc": f"xarray.open_dataset({str(out)!r})", ".zarr": f"xarray.open_zarr({str(out)!r}, consolidated=False)"}
    default = by_suffix[".zarr"] if out.is_dir() else f"meshio.read({str(first)!r}); ParaView opens the same file"
    return [*lines, f"In Python:  {by_suffix.get(out.suffix, default)}"]
