"""Suggest which arrays of a file are a and u, with the reason; a suggestion is used without asking only if it is certain.

Layouts of well-known collections are recognised by their structure:

| collection     | structure                                                                     |
|----------------|-------------------------------------------------------------------------------|
| FNO            | `coeff` and `sol`; or `a` and `u`, optionally with times `t` in the last axis |
| PDEBench       | `tensor` with `x-coordinate` …, optionally with `nu`                          |
| The Well       | groups `t0_fields` … and `dimensions`; (trajectory, time, *grid)              |
| neuraloperator | a torch file with `x` and `y`                                                 |
| meshes         | `points` (node, 2 or 3), fields (sample, node), optionally a table of scalars |

In other files, the names of the arrays decide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .formats import Contents, Entry
from .nodes import NODE
from .parameters import PARAMETER
from .selection import CHANNEL, SAMPLE, Selection

__all__ = ["CELLS", "POINTS", "WEIGHTS", "Suggestion", "complete", "obstacle", "samples_last", "suggest", "with_dims"]

# Usual names of inputs and of outputs, the most usual first.
INPUTS = ("a", "x", "u0", "v", "f", "coeff", "nu", "k", "input", "inputs", "in", "features", "params", "initial", "u_0", "q")
OUTPUTS = ("u", "y", "sol", "output", "outputs", "out", "solution", "s", "target", "targets", "labels", "uT", "ut", "p")
# Names of the coordinates of nodes, of cells, and of the weights of nodes.
POINTS = ("points", "nodes", "coordinates", "coords")
CELLS = ("cells", "triangles", "elements", "tetrahedra")
WEIGHTS = ("weights", "node_weights", "node_weight", "areas")
# Names of the coordinates of times.
TIMES = ("time", "times", "t")
# Words in names of arrays that denote a split.
SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "val": "validation",
    "vali": "validation",
    "valid": "validation",
    "validation": "validation",
}
# Usual names of the dimension of samples and of that of channels.
SAMPLES = ("sample", "samples", "batch", "n", "index", "realization", "trajectory", "member", "number")
FEW_PARAMETERS = 8  # most columns of a table that are taken for parameters rather than points, beside a longer u
FEW_CHANNELS = 4  # largest second axis that is taken for channels rather than points, before a longer one
CHANNELS = ("channel", "channels", "a_channel", "u_channel", "variable", "component", "feature")


@dataclass(frozen=True)
class Suggestion:
    """A selection, the reason for it, and whether it is the only possible one."""

    selection: Selection
    reason: str
    certain: bool


def suggest(contents: Contents) -> Suggestion | None:
    """Return the best suggestion for a file, None if there is none."""
    for recognise in (_mesh, _pdebench, _the_well, _fno, _neuraloperator):
        suggestion = recognise(contents)
        if suggestion is not None:
            return suggestion
    return _by_name(contents)


def complete(contents: Contents, selection: Selection | None, rows: int) -> Suggestion | None:
    """Return the best suggestion for a file beside which there may be a table of parameters.

    Args:
        contents: of the file.
        selection: with the name of the table and no others; None if there is no table.
        rows: of the table.
    """
    suggestion = suggest(contents)
    if selection is None:
        return suggestion
    fields = [entry for entry in contents.entries.values() if _is_field(entry) and entry.shape[0] == rows]
    if (
        suggestion is not None
        and contents.format != "mesh"
        and {suggestion.selection.a, suggestion.selection.u} <= {entry.name for entry in fields}
    ):
        both = replace(suggestion.selection, parameters=selection.parameters, test_a=None, test_u=None)
        return replace(suggestion, selection=replace(both, validation_a=None, validation_u=None))
    if not fields:
        return None
    u = min(fields, key=lambda entry: _rank(entry.name, OUTPUTS))
    names = _rename(u) if u.dims else (SAMPLE, *_axis_names(u.shape[1:], contents))
    dims = None if len(u.shape) == 2 or _named(u) else ",".join(names)
    certain = len(fields) == 1 and (dims is None or bool(u.dims))
    only = "the only array" if len(fields) == 1 else "by its name, of the arrays"
    reason = f"{u.name} is u, {only} with a sample for each of the {rows} rows of {selection.parameters}"
    return Suggestion(replace(selection, u=u.name, dims=dims), reason, certain)


def with_dims(contents: Contents, selection: Selection) -> Suggestion | None:
    """Return a selection without dimensions with a guess of them, None if it needs none or none is possible."""
    a, u = (contents.entries.get(name or "") for name in (selection.a, selection.u))
    if selection.dims is not None or a is None or u is None or min(len(a.shape), len(u.shape)) < 2:
        return None
    dims = _common_dims(a, u, contents)
    return None if dims is None else Suggestion(replace(selection, dims=dims), f"dimensions {dims}, by the shapes", False)


def obstacle(contents: Contents) -> str:
    """Return the reason why there is no suggestion for a file, and what to do."""
    shapes = {name: shape for name, shape in _shapes(contents).items() if len(shape) > 1}
    listed = ", ".join(f"{name} {shape}" for name, shape in list((shapes or _shapes(contents)).items())[:8])
    if any(0 in entry.shape for entry in contents.entries.values()):
        reason = "some arrays are empty"
    elif len(shapes) < 2:
        reason = "there are no two arrays with samples and a grid"
    elif all(shape[0] == 1 for shape in shapes.values()):
        reason = "there is only one sample, and training needs several"
    elif len({shape[0] for shape in shapes.values()}) == len(shapes):
        reason = "numbers of samples differ, and pairs need as many inputs as outputs"
    else:
        reason = "it is unclear which arrays are a and u"
    if samples_last(contents):
        reason = f"{reason}; the last axis of all arrays has the same length, so that it may be that of the samples"
    return f"{reason}: the file has {listed}; name arrays and dimensions with --a, --u and --dims (in Python a=, u=, dims=)"


def samples_last(contents: Contents) -> bool:
    """Return whether arrays share the length of their last axis, and not that of the first, as if it numbered the samples."""
    shapes = [shape for shape in _shapes(contents).values() if len(shape) > 1]
    return len(shapes) > 1 and len({shape[-1] for shape in shapes}) == 1 < len({shape[0] for shape in shapes})


def _shapes(contents: Contents) -> dict[str, tuple[int, ...]]:
    return {name: entry.shape for name, entry in contents.entries.items()}


def _mesh(contents: Contents) -> Suggestion | None:
    """Recognise fields on the nodes of a mesh, and a table of scalars if there is one."""
    shapes = _shapes(contents)
    points = next((name for name in POINTS if len(shapes.get(name, ())) == 2 and shapes[name][1] in (2, 3)), None)
    if points is None and contents.format != "mesh":
        return None
    count = shapes["points" if points is None else points][0]
    rest = {name: shape for name, shape in shapes.items() if name not in (*POINTS, *CELLS, *WEIGHTS)}
    fields = [name for name, shape in rest.items() if len(shape) in (2, 3) and shape[1] == count]
    tables = [name for name, shape in rest.items() if len(shape) == 2 and shape[1] != count]
    if not fields or len(fields) + len(tables) < 2:
        return None
    a, u = (
        (tables[0], min(fields, key=lambda name: _rank(name, OUTPUTS)))
        if tables
        else _roles({name: rest[name] for name in fields})
    )
    dims = {name: ",".join((SAMPLE, NODE, CHANNEL)[: len(shapes[name])]) for name in fields}
    dims |= dict.fromkeys(tables, f"{SAMPLE},{PARAMETER}")
    named = contents.entries[a].dims and contents.entries[u].dims
    selection = Selection(a, u, None if named else dims[a] if dims[a] == dims[u] else f"{dims[a]}:{dims[u]}")
    usual = bool(tables) or (_rank(a, INPUTS) < len(INPUTS) and _rank(u, OUTPUTS) < len(OUTPUTS))
    certain = usual and len(fields) + len(tables) == 2
    return Suggestion(selection, f"fields on {count} nodes: {a} is a, {u} is u", certain)


def _fno(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    if contents.format.startswith("mat") and {"coeff", "sol"} <= set(shapes) and shapes["coeff"] == shapes["sol"]:
        selection = Selection("coeff", "sol", _dims(len(shapes["sol"]) - 1))
        return Suggestion(selection, "the Darcy layout of the FNO data sets: coeff and sol", certain=True)
    if not contents.format.startswith("mat") or not {"a", "u"} <= set(shapes):
        return None
    a, u = shapes["a"], shapes["u"]
    if len(u) == len(a) + 1 and u[: len(a)] == a and "t" in shapes:
        axes = ",".join("xyz"[: len(a) - 1])
        selection = Selection("a", "u", f"{SAMPLE},{axes}:{SAMPLE},{axes},{CHANNEL}")
        return Suggestion(selection, "the Navier–Stokes layout of the FNO data sets: times in the last axis", certain=True)
    if a == u:
        selection = Selection("a", "u", _dims(len(u) - 1))
        return Suggestion(selection, "the layout of the FNO data sets: a and u", certain=True)
    return None


def _pdebench(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    if "tensor" not in shapes or not any(name.endswith("-coordinate") for name in shapes):
        return None
    tensor = shapes["tensor"]
    if "nu" in shapes and len(tensor) == len(shapes["nu"]) + 1:
        axes = ",".join("xyz"[: len(shapes["nu"]) - 1])
        selection = Selection("nu", "tensor", f"{SAMPLE},{axes}:{SAMPLE},{CHANNEL},{axes}")
        return Suggestion(selection, "the Darcy layout of PDEBench: nu and tensor", certain=True)
    selection = Selection("tensor[:,0]", "tensor[:,-1]", _dims(len(tensor) - 2))
    return Suggestion(selection, "the layout of PDEBench: the first time of tensor is a, the last is u", certain=True)


def _the_well(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    fields = [name for name in shapes if re.match(r"t[0-2]_fields/", name) and len(shapes[name]) >= 3]
    if not fields or not any(name.startswith("dimensions/") for name in shapes):
        return None
    name = fields[0]
    axes = len([d for d in shapes if d.startswith("dimensions/") and not d.endswith("time")])
    dims = ",".join([SAMPLE, *"xyz"[:axes], *([CHANNEL] if len(shapes[name]) == axes + 3 else [])])
    reason = f"the layout of The Well: the first time of {name} is a, the last is u"
    return Suggestion(Selection(f"{name}[:,0]", f"{name}[:,-1]", dims), reason, certain=len(fields) == 1)


def _neuraloperator(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    if contents.format != "torch" or not {"x", "y"} <= set(shapes) or shapes["x"][:1] != shapes["y"][:1]:
        return None
    x, y = shapes["x"], shapes["y"]
    if len(x) == len(y):
        return Suggestion(Selection("x", "y", _dims(len(y) - 1)), "the layout of neuraloperator: x and y", certain=True)
    return None


def _dims(axes: int) -> str:
    """Return the dimensions of fields without channels."""
    return ",".join([SAMPLE, *"xyz"[:axes]])


def _by_name(contents: Contents) -> Suggestion | None:
    """Suggest two arrays with the same number of samples, by their names; names also denote splits."""
    fields = {name: entry for name, entry in contents.entries.items() if _is_field(entry)}
    families: dict[str, dict[str, str]] = {}  # base name → split → array
    for name in fields:
        base, split = _split_of(name)
        families.setdefault(base, {})[split] = name
    training = {base: fields[splits["train"]].shape for base, splits in families.items() if "train" in splits}
    if len(training) < 2:
        return None
    a, u = _roles(training)
    names = families[a]["train"], families[u]["train"]
    if fields[names[0]].shape[0] != fields[names[1]].shape[0]:
        return None
    selection = Selection(*names, _common_dims(fields[names[0]], fields[names[1]], contents))
    for split in ("test", "validation"):
        if split in families[a] and split in families[u]:
            selection = replace(selection, **{f"{split}_a": families[a][split], f"{split}_u": families[u][split]})
    usual = _rank(a, INPUTS) < len(INPUTS) and _rank(u, OUTPUTS) < len(OUTPUTS)
    like = " and grid" if training[a][1:] == training[u][1:] else ""
    reason = "by their names" if usual else f"the first two arrays with the same number of samples{like}"
    unambiguous = all(len(fields[name].shape) == 2 or fields[name].dims for name in names)
    unambiguous &= not _are_parameters(*(fields[name] for name in names))
    certain = usual and unambiguous and len(training) == 2
    return Suggestion(selection, f"{reason}: {names[0]} is a, {names[1]} is u", certain)


def _is_field(entry: Entry) -> bool:
    """Return whether an array is not empty and has at least two axes of more than one value."""
    return len(entry.shape) >= 2 and min(entry.shape) > 0 and sum(n > 1 for n in entry.shape) >= 2


def _roles(shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, str]:
    """Return which of at least two arrays is a and which is u.

    The most usual names decide. Without a usual name for u, it is the first array that is on the grid of a, or of its number of
    samples, and has no usual name of inputs.
    """
    inputs = sorted(shapes, key=lambda name: _rank(name, INPUTS))
    outputs = sorted(shapes, key=lambda name: _rank(name, OUTPUTS))
    if _rank(outputs[0], OUTPUTS) < len(OUTPUTS):
        u = outputs[0]
        return next(name for name in inputs if name != u), u
    a = inputs[0]

    def unlike(name: str) -> tuple[bool, bool, bool]:
        same = shapes[name][0] == shapes[a][0]
        return not same, shapes[name][1:] != shapes[a][1:], _rank(name, INPUTS) < len(INPUTS)

    return a, min((name for name in shapes if name != a), key=unlike)


def _split_of(name: str) -> tuple[str, str]:
    """Return base name and split of an array, (x_16, train) of x_train_16; names without a split are of training."""
    words = re.split(r"([_/.-])", name)
    for i, word in enumerate(words):
        if word.lower() in SPLITS:
            rest = words[:i] + words[i + 2 :] if i + 2 <= len(words) and i == 0 else words[: max(i - 1, 0)] + words[i + 1 :]
            return "".join(rest), SPLITS[word.lower()]
    return name, "train"


def _rank(name: str, usual: tuple[str, ...]) -> int:
    """Return the position of a name, or of its last or first word, among the usual names; their number if it is not there."""
    words = re.split(r"[_/.-]", name)
    for word in (name, words[-1], words[0]):
        if word in usual or word.lower() in usual:
            return usual.index(word if word in usual else word.lower())
    return len(usual)


def _common_dims(a: Entry, u: Entry, contents: Contents) -> str | None:
    """Return the dimensions of a and u from the names in the file or from their shapes; None if they need not be given."""
    if a.dims and u.dims:
        return None if _named(a) and _named(u) else ":".join(",".join(_rename(entry)) for entry in (a, u))
    if _are_parameters(a, u):
        return f"{SAMPLE},{PARAMETER}:" + ",".join([SAMPLE, *_axis_names(u.shape[1:], contents)])
    if len(a.shape) == 2 and len(u.shape) == 2:
        return None
    grid = _common_grid(a.shape[1:], u.shape[1:])
    names = (_axis_names(a.shape[1:], contents), _axis_names(u.shape[1:], contents))
    if grid is not None:
        axes = _axis_names(grid, contents)
        first = next((name for name in TIMES if contents.entries.get(name, u).shape == u.shape[1:2]), CHANNEL)
        names = (_with_channel(a.shape[1:], grid, axes), _with_channel(u.shape[1:], grid, axes, first))
    dims = [",".join([SAMPLE, *each]) for each in names]
    return dims[0] if dims[0] == dims[1] else ":".join(dims)


def _are_parameters(a: Entry, u: Entry) -> bool:
    """Return whether a looks like a table of parameters, (sample, parameter), rather than a field of few points."""
    return len(a.shape) == 2 and not a.dims and a.shape[1] <= FEW_PARAMETERS < max(u.shape[1:])


def _common_grid(a: tuple[int, ...], u: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the grid of a and u, of these shapes without samples, where one axis more is the channel; None if none fits."""
    if a == u:
        return a[1:] if len(a) > 1 and a[0] <= FEW_CHANNELS < a[1] else a
    grids = (grid for grid in (a, u, a[1:], a[:-1]) if grid in (a, a[1:], a[:-1]) and grid in (u, u[1:], u[:-1]))
    return next((grid for grid in grids if grid), None)


def _with_channel(shape: tuple[int, ...], grid: tuple[int, ...], axes: list[str], first: str = CHANNEL) -> list[str]:
    """Return the names of the axes of an array on a grid; an axis more is the channel, or has this name if it is the first."""
    if shape == grid:
        return axes
    return [first, *axes] if shape[1:] == grid else [*axes, CHANNEL]


def _axis_names(shape: tuple[int, ...], contents: Contents) -> list[str]:
    """Return the names of coordinate arrays of the right lengths if there are any, else x, y, z."""
    lengths = {name: max(e.shape) for name, e in contents.entries.items() if e.shape and sum(n > 1 for n in e.shape) == 1}
    names: list[str] = []
    for n in shape:
        fitting = [name for name, length in lengths.items() if length == n and name not in names and name.isidentifier()]
        if not fitting:
            return list("xyzw"[: len(shape)])
        names.append(fitting[0])
    return names


def _named(entry: Entry) -> bool:
    return SAMPLE in (entry.dims or ())


def _rename(entry: Entry) -> tuple[str, ...]:
    """Return the file's names, with sample and channel in place of usual synonyms; without any, the first is the sample."""
    names = tuple(SAMPLE if d.lower() in SAMPLES else CHANNEL if d.lower() in CHANNELS else d for d in entry.dims or ())
    return names if SAMPLE in names else (SAMPLE, *names[1:])
