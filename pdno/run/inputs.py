"""Inputs of other files, for `pdno predict` and `pdno evaluate`: which arrays they are, and how their axes are read.

Without options, names and dimensions are those of the training data. A file may have other axes than the training data, for
instance samples first instead of last: dimensions of training are used only if the grid of the model leaves no other reading.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data import store
from ..data.dataset import Dataset
from ..data.formats import Contents, contents
from ..data.open import file_dims, open_selected
from ..data.pairs import Pairs
from ..data.parameters import PARAMETER, is_table, read_parameters
from ..data.selection import CHANNEL, SAMPLE, Selection, aligned, arrange, pick, pick_scalars
from ..data.spaces import Spaces
from ..data.suggest import suggest
from ..errors import UserError, nearest
from ..work.engine import memory_allowed
from .folder import config_of, data_of

__all__ = ["inputs_of", "same_dims"]

SPLITS = ("train", "validation", "test")


def inputs_of(
    run: Path,
    spaces: Spaces,
    file: Path | None = None,
    split: str = "test",
    a: str | None = None,
    dims: str | None = None,
    scalars: str | None = None,
    tell: Callable[[str], None] = print,
) -> tuple[Any, Any]:
    """Return the inputs to predict for, and their scalars; arguments as in `pdno.run.predict.predict`.

    Raises:
        UserError: if it is ambiguous which array has the inputs, or how it is to be read.
    """
    config = config_of(run).data
    if a is None and (file is None or file.resolve() == Path(config.file).resolve()):
        return _split_inputs(data_of(run), split)
    path = Path(config.file) if file is None else file
    if is_table(path):
        return None, read_parameters(path)
    if store.is_store(path):
        if a or dims or scalars:
            raise UserError(f"{path} is a store of pdno, whose arrays are recorded; omit --a, --dims and --scalars")
        data = open_selected(path, None)
        return _split_inputs(data, split if split != "test" or len(data.test) else "train")
    if split not in SPLITS:
        raise UserError(f"--split {split}: {nearest(split, SPLITS)}")
    opened = contents(path, memory_allowed())
    recorded = {name: config.options.get(name) for name in ("a", "scalars", "dims")}
    if not recorded["a"] and (suggestion := suggest(opened)) is not None and suggestion.certain:
        recorded |= {"a": suggestion.selection.a, "dims": suggestion.selection.dims}  # as `pdno train` has done
    name = a or _recorded(opened, recorded["a"])
    values = pick(opened, name)
    s = scalars or recorded["scalars"]
    named = Selection(name, name, dims).dims_of("a") or file_dims(opened, name)
    if named is None and recorded["dims"] is not None:
        named = same_dims(values.shape, Selection(name, name, recorded["dims"]).dims_of("a"), spaces.a_shape[1:], name)
        tell(f"{name} of {path.name} is read as {','.join(named or ())}, as in training; --dims overrides this")
    if named == (SAMPLE, PARAMETER):
        return None, values
    if named is not None:
        values = aligned(arrange(values, named, name), spaces.a_axes)[0]
    if s is None:
        return values, None
    if not scalars and not is_table(s) and (absent := [n for n in s.split(",") if n.partition("[")[0] not in opened.entries]):
        raise UserError(f"{path.name} has no array {absent[0]!r}, a parameter of training; name the parameters with --scalars")
    return values, read_parameters(s) if is_table(s) else pick_scalars(opened, s, len(values))


def same_dims(
    shape: tuple[int, ...], dims: tuple[str, ...] | None, grid: tuple[int, ...], label: str
) -> tuple[str, ...] | None:
    """Return the dimensions of the training array for an array of another file.

    Args:
        shape: of the other array.
        dims: of the training array.
        grid: of the model's inputs.
        label: name of the array in error messages.

    Raises:
        UserError: if the array fits the grid also with the samples first.
    """
    if dims is None or dims[0] == SAMPLE:
        return dims
    first = (SAMPLE, *(name for name in dims if name != SAMPLE))
    if _fits(shape, dims, grid) and _fits(shape, first, grid):
        readings = f"{','.join(dims)}, as in training, and {','.join(first)}"
        raise UserError(f"{label} has shape {shape}, which fits two readings: {readings}; give one of them as --dims")
    return dims


def _fits(shape: tuple[int, ...], dims: tuple[str, ...], grid: tuple[int, ...]) -> bool:
    """Return whether an array with these dimensions is on a grid of this shape."""
    points = tuple(n for name, n in zip(dims, shape, strict=False) if name not in (SAMPLE, CHANNEL))
    return len(dims) == len(shape) and points == grid


def _recorded(file: Contents, name: str | None) -> str:
    """Return the name of the training inputs, or that of the only array."""
    if name is not None and name.partition("[")[0] in file.entries:
        return name
    if len(file.entries) == 1:
        return next(iter(file.entries))
    raise UserError(f"which array of {file.path.name} holds the inputs? It has {', '.join(file.entries)}; name it with --a")


def _split_inputs(data: Dataset, split: str) -> tuple[Any, Any]:
    """Return inputs and scalars of a split."""
    pairs: Pairs | None = data.splits().get(split)
    if not pairs:
        there = ", ".join(name for name, p in data.splits().items() if len(p))
        raise UserError(f"there are no {split} pairs; choose --split {there}")
    return pairs.xarray["a"], pairs.scalars
