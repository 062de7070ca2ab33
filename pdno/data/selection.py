"""Which arrays of a file are a and u, what their dimensions are, and which are held out.

A selection is the same on the command line:

    --a NAME --u NAME                        arrays of training pairs; NAME[:,0] selects a part, with indices as in NumPy
    --dims sample,x,y                        dimensions of both, in the order of the file
    --dims sample,x:sample,channel,x         dimensions of a, then of u
    --test-a NAME --test-u NAME              arrays of test pairs (also --validation-a, --validation-u)
    --u-eta NAME                             noisy outputs for evaluation; u is then taken as clean
    --group NAME                             labels; pairs with equal labels stay together in splits
    --scalars NAME[,NAME]                    further parameters of a pair, (sample, parameter) or (parameter, sample)
    --parameters FILE                        the same, in a table (`pdno.data.parameters`); u may then depend on them alone

`sample` numbers the pairs and `channel` the components; `node` numbers the nodes of a mesh, and `parameter` the numbers of a
table of scalar inputs; every other name is an axis of the grid.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .._typing import Array
from ..errors import UserError, nearest
from .formats import Contents

__all__ = ["CHANNEL", "SAMPLE", "Selection", "aligned", "arrange", "check_counts", "pick", "pick_scalars", "without_index"]

SAMPLE = "sample"  # name of the dimension that numbers the pairs
CHANNEL = "channel"  # name of the dimension that numbers the components of a field


@dataclass(frozen=True)
class Selection:
    """The options above, as attributes with the names of the arguments of `pdno.open`.

    >>> Selection(a="coeff", u="sol", dims="sample,x,y").options()
    '--a coeff --u sol --dims sample,x,y'
    """

    a: str | None = None
    u: str | None = None
    dims: str | None = None
    u_eta: str | None = None
    group: str | None = None
    scalars: str | None = None
    parameters: str | None = None
    test_a: str | None = None
    test_u: str | None = None
    validation_a: str | None = None
    validation_u: str | None = None

    def __post_init__(self) -> None:
        named = [field.name for field in fields(self) if getattr(self, field.name) is not None and field.name != "parameters"]
        if named and (self.u is None or (self.a is None and self.parameters is None)):
            lacking = "u" if self.u is None else "a"
            raise UserError(
                f"{', '.join(named)} given, but not the array {lacking}; name both a and u, or a table of parameters and u"
            )
        if self.scalars is not None and self.parameters is not None:
            raise UserError("scalars and parameters were both given; put all parameters into one of them")
        if self.test_u is not None and self.parameters is not None:
            raise UserError(
                "test_u was given, but the table of parameters is that of u; put all runs into u, a part is held out"
            )
        for split in ("test", "validation"):
            if (getattr(self, f"{split}_a") is None) != (getattr(self, f"{split}_u") is None):
                raise UserError(f"only one of {split}_a and {split}_u was given; give both or none")

    def options(self) -> str:
        """Return the selection as options of the command line."""
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " ".join(f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in values if value is not None)

    def arrays(self, split: str) -> dict[str, str]:
        """Return the names of the arrays of a split by role ("a", "u", …); an empty dict if the file has no such split."""
        if split == "train":
            roles = {"a": self.a, "u": self.u, "u_eta": self.u_eta, "group": self.group, "scalars": self.scalars}
        else:
            roles = {"a": getattr(self, f"{split}_a"), "u": getattr(self, f"{split}_u")}
        return {role: name for role, name in roles.items() if name is not None}

    def dims_of(self, role: str) -> tuple[str, ...] | None:
        """Return the dimensions of a or of an output that the selection names, None if it names none."""
        if self.dims is None:
            return None
        parts = self.dims.split(":")
        if len(parts) > 2:
            raise UserError(f"--dims {self.dims} has {len(parts)} parts; write the dimensions of a, a colon, and those of u")
        names = tuple(name.strip() for name in parts[0 if role == "a" else -1].split(","))
        if len(set(names)) != len(names) or SAMPLE not in names or not all(names):
            raise UserError(f"--dims {self.dims}: each array needs different names, one of them {SAMPLE!r}")
        return names


def without_index(expression: str) -> tuple[str, tuple[int | slice, ...]]:
    """Return name and index of an expression NAME or NAME[:,0].

    >>> without_index("tensor[:,-1]")
    ('tensor', (slice(None, None, None), -1))
    """
    match = re.fullmatch(r"(.+?)(?:\[([-\d:,\s]*)\])?", expression)
    if match is None or match[1].endswith("]"):
        raise UserError(
            f"{expression!r} is not the name of an array; write NAME or NAME[:,0], with whole numbers and colons only"
        )
    if match[2] is None:
        return match[1], ()
    try:
        return match[1], tuple(_one_index(part.strip()) for part in match[2].split(","))
    except (ValueError, TypeError):
        raise UserError(f"the index of {expression!r} is invalid; write for instance NAME[:,0]") from None


def _one_index(text: str) -> int | slice:
    if ":" in text:
        return slice(*(int(part) if part else None for part in text.split(":")))
    return int(text)


def pick(contents: Contents, expression: str, rows: slice = slice(None)) -> Array:
    """Read the values of an expression NAME or NAME[:,0]; of the first axis, `rows` only."""
    name, index = without_index(expression)
    if name not in contents.entries:
        if skipped := [note for note in contents.notes if note.startswith(f"{name!r} ")]:
            raise UserError(f"{contents.path.name}: {skipped[0]}; expected real numbers (of complex ones, two real channels)")
        raise UserError(f"{contents.path.name} has no array {name!r}; {nearest(name, contents.entries)}")
    values = contents.entries[name].read(rows)
    try:
        return np.asarray(values[index])
    except IndexError:
        raise UserError(f"{expression!r} does not fit the shape {contents.entries[name].shape} of {name!r}") from None


def pick_scalars(contents: Contents, expressions: str, samples: int) -> Array:
    """Read parameters from arrays (sample,), (sample, parameter) or, as in MATLAB, (parameter, sample).

    Args:
        contents: of the file.
        expressions: NAME or NAME[:,0], or several separated by commas.
        samples: number of samples, which decides which axis is that of the parameters; if both fit, it is the second.

    Returns:
        All parameters, (sample, parameter).

    Raises:
        UserError: if there is no such array, or its shape does not fit.
    """
    names = [expressions] if expressions in contents.entries else re.split(r",(?![^\[]*\])", expressions)
    columns = []
    for name in names:
        values = pick(contents, name.strip())
        if values.ndim == 2 and values.shape[0] != samples:
            values = values.T
        if values.ndim not in (1, 2) or len(values) != samples:
            shapes = f"({samples},), ({samples}, parameters) or (parameters, {samples})"
            raise UserError(f"scalars {name.strip()!r} have shape {values.shape}; for {samples} samples, expected {shapes}")
        columns.append(values.reshape(samples, -1))
    return np.concatenate(columns, axis=1)


def arrange(values: Array, dims: tuple[str, ...] | None, role: str) -> tuple[Array, tuple[str, ...]]:
    """Arrange a field as (sample, channel, *grid).

    Args:
        values: of the field.
        dims: names of its dimensions. None: two axes are (sample, x), a second axis of length one is the channel, and all other
            shapes are ambiguous.
        role: name of the field in error messages.

    Returns:
        The values as floats, and the names of the grid's axes.

    Raises:
        UserError: if dimensions are ambiguous or do not fit the shape.
    """
    if dims is None:
        dims = _default_dims(values.shape, role)
    if len(dims) != values.ndim:
        raise UserError(f"{role} has shape {values.shape}, but {len(dims)} dimensions were named: {', '.join(dims)}")
    if SAMPLE not in dims:
        raise UserError(f"{role} has the dimensions {', '.join(dims)}; one of them must be {SAMPLE!r}: name them with --dims")
    axes = tuple(name for name in dims if name not in (SAMPLE, CHANNEL))
    order = [dims.index(name) for name in (SAMPLE, CHANNEL, *axes) if name in dims]
    values = np.transpose(values, order)
    if CHANNEL not in dims:
        values = values[:, None]
    return np.ascontiguousarray(values, dtype=float_type(values.dtype)), axes


def float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the float type that represents all values of a type: 32 bits where they suffice."""
    return np.result_type(dtype, np.float32) if dtype.kind in "biuf" else np.dtype(np.float64)


def _default_dims(shape: tuple[int, ...], role: str) -> tuple[str, ...]:
    """Return the dimensions of a field without names, if its shape is unambiguous."""
    if len(shape) == 2:
        return (SAMPLE, "x")
    if len(shape) in (3, 4, 5) and shape[1] == 1:
        return (SAMPLE, CHANNEL, *"xyz"[: len(shape) - 2])
    names = {3: "sample,x,y or sample,channel,x", 4: "sample,channel,x,y or sample,x,y,z"}
    hint = names.get(len(shape), "sample and the axes of the grid")
    raise UserError(f"{role} has shape {shape}, which is ambiguous; give --dims {hint}")


def check_counts(counts: Mapping[str, int]) -> None:
    """Raise UserError unless arrays have equally many samples, by their names."""
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise UserError(
            f"numbers of samples differ: {numbers}; choose arrays that belong together, or name their axes with --dims"
        )


def aligned(field: tuple[Array, tuple[str, ...]], axes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Return a field (values and names of its axes) with its axes in this order, if they have the same names."""
    values, names = field
    if names == axes or set(names) != set(axes):
        return field
    return np.transpose(values, (0, 1, *(2 + names.index(axis) for axis in axes))), axes
