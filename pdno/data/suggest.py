"""A guess, with its reason, at which arrays of a file are a and u: offered to the user, and taken only where it is certain.

Layouts of well-known collections are recognised by their structure:

| collection     | structure                                                                     |
|----------------|-------------------------------------------------------------------------------|
| FNO            | `coeff` and `sol`; or `a` and `u`, perhaps with times `t` in the last axis     |
| PDEBench       | `tensor` with `x-coordinate` …, perhaps with `nu`                             |
| The Well       | groups `t0_fields` … and `dimensions`; (trajectory, time, *grid)              |
| neuraloperator | a torch file with `x` and `y`                                                 |
"""

import re
from dataclasses import dataclass, replace

from .formats import Contents, Entry
from .selection import CHANNEL, SAMPLE, Selection

__all__ = ["Suggestion", "suggest"]

INPUTS = ("a", "x", "u0", "v", "f", "coeff", "nu", "k", "input", "inputs", "in", "features", "params", "initial", "u_0", "q")
OUTPUTS = ("u", "y", "sol", "output", "outputs", "out", "solution", "s", "target", "targets", "labels", "uT", "ut", "p")
SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "val": "validation",
    "vali": "validation",
    "valid": "validation",
}
SPLITS |= {"validation": "validation"}
SAMPLES = ("sample", "samples", "batch", "n", "index", "realization", "trajectory", "member", "number")
CHANNELS = ("channel", "channels", "a_channel", "u_channel", "variable", "component", "feature")


@dataclass(frozen=True)
class Suggestion:
    """A selection, why it was made, and whether nothing else came into question."""

    selection: Selection
    reason: str
    certain: bool


def suggest(contents: Contents) -> Suggestion | None:
    """The best guess for a file, None if there is none."""
    for recognise in (_pdebench, _the_well, _fno, _neuraloperator):
        found = recognise(contents)
        if found is not None:
            return found
    return _by_name(contents)


def _shapes(contents: Contents) -> dict[str, tuple[int, ...]]:
    return {name: entry.shape for name, entry in contents.entries.items()}


def _fno(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    if contents.format.startswith("mat") and {"coeff", "sol"} <= set(shapes) and shapes["coeff"] == shapes["sol"]:
        selection = Selection("coeff", "sol", _dims(len(shapes["sol"]) - 1))
        return Suggestion(selection, "the Darcy layout of the Fourier neural operator's files: coeff and sol", certain=True)
    if not contents.format.startswith("mat") or not {"a", "u"} <= set(shapes):
        return None
    a, u = shapes["a"], shapes["u"]
    if len(u) == len(a) + 1 and u[: len(a)] == a and "t" in shapes:
        axes = ",".join("xyz"[: len(a) - 1])
        selection = Selection("a", "u", f"{SAMPLE},{axes}:{SAMPLE},{axes},{CHANNEL}")
        return Suggestion(
            selection, "the Navier–Stokes layout of the Fourier neural operator's files: times last", certain=True
        )
    if a == u:
        selection = Selection("a", "u", _dims(len(u) - 1))
        return Suggestion(selection, "the layout of the Fourier neural operator's files: a and u", certain=True)
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
    return Suggestion(selection, "the layout of PDEBench: the first time of tensor to the last", certain=True)


def _the_well(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    fields = [name for name in shapes if re.match(r"t[0-2]_fields/", name) and len(shapes[name]) >= 3]
    if not fields or not any(name.startswith("dimensions/") for name in shapes):
        return None
    name = fields[0]
    axes = len([d for d in shapes if d.startswith("dimensions/") and not d.endswith("time")])
    dims = ",".join([SAMPLE, *"xyz"[:axes], *([CHANNEL] if len(shapes[name]) == axes + 3 else [])])
    reason = f"the layout of The Well: the first time of {name} to the last"
    return Suggestion(Selection(f"{name}[:,0]", f"{name}[:,-1]", dims), reason, certain=len(fields) == 1)


def _neuraloperator(contents: Contents) -> Suggestion | None:
    shapes = _shapes(contents)
    if contents.format != "torch" or not {"x", "y"} <= set(shapes) or shapes["x"][:1] != shapes["y"][:1]:
        return None
    x, y = shapes["x"], shapes["y"]
    if len(x) == len(y):
        return Suggestion(Selection("x", "y", _dims(len(y) - 1)), "the layout of neuraloperator's files: x and y", certain=True)
    return None


def _dims(axes: int) -> str:
    """Dimensions of fields without channels."""
    return ",".join([SAMPLE, *"xyz"[:axes]])


def _by_name(contents: Contents) -> Suggestion | None:
    """Two arrays with as many samples; names say which is which, and what is held out."""
    fields = {name: entry for name, entry in contents.entries.items() if len(entry.shape) >= 2 and min(entry.shape) > 0}
    fields = {name: entry for name, entry in fields.items() if sum(n > 1 for n in entry.shape) >= 2}
    families: dict[str, dict[str, str]] = {}  # base name → split → array
    for name in fields:
        base, split = _split_of(name)
        families.setdefault(base, {})[split] = name
    learnable = [base for base, splits in families.items() if "train" in splits]
    ranked = sorted(learnable, key=lambda base: _rank(base, INPUTS))
    outputs = sorted(learnable, key=lambda base: _rank(base, OUTPUTS))
    if len(learnable) < 2:
        return None
    if _rank(outputs[0], OUTPUTS) < len(OUTPUTS):
        u = outputs[0]
        a = next(base for base in ranked if base != u)
    else:
        a = ranked[0]
        u = next(base for base in learnable if base != a)
    chosen = families[a]["train"], families[u]["train"]
    if fields[chosen[0]].shape[0] != fields[chosen[1]].shape[0]:
        return None
    selection = Selection(*chosen, _common_dims(fields[chosen[0]], fields[chosen[1]], contents))
    for split in ("test", "validation"):
        if split in families[a] and split in families[u]:
            selection = replace(selection, **{f"{split}_a": families[a][split], f"{split}_u": families[u][split]})
    named = _rank(a, INPUTS) < len(INPUTS) and _rank(u, OUTPUTS) < len(OUTPUTS)
    reason = "by their names" if named else "the first two arrays with as many samples"
    plain = all(len(fields[name].shape) == 2 or fields[name].dims for name in chosen)
    return Suggestion(selection, f"{reason}: {chosen[0]} to {chosen[1]}", certain=named and plain and len(learnable) == 2)


def _split_of(name: str) -> tuple[str, str]:
    """Base name and split: x_train_16 → (x_16, train); a name without a word for it is for training."""
    words = re.split(r"([_/.-])", name)
    for i, word in enumerate(words):
        if word.lower() in SPLITS:
            rest = words[:i] + words[i + 2 :] if i + 2 <= len(words) and i == 0 else words[: max(i - 1, 0)] + words[i + 1 :]
            return "".join(rest), SPLITS[word.lower()]
    return name, "train"


def _rank(base: str, known: tuple[str, ...]) -> int:
    """Place of a name, or of its first word, among the known ones."""
    for word in (base, re.split(r"[_/.-]", base)[-1], re.split(r"[_/.-]", base)[0]):
        if word in known or word.lower() in known:
            return known.index(word if word in known else word.lower())
    return len(known)


def _common_dims(a: Entry, u: Entry, contents: Contents) -> str | None:
    """Dimensions of a and u, from the file or from their shapes."""
    if a.dims and u.dims:
        return None if _named(a) and _named(u) else ":".join(",".join(_rename(entry)) for entry in (a, u))
    if len(a.shape) == 2 and len(u.shape) == 2:
        return None
    axes = _axis_names(a.shape[1:], contents)
    if a.shape[1:] == u.shape[1:]:
        return ",".join([SAMPLE, *axes])
    if len(u.shape) == len(a.shape) + 1 and u.shape[2:] == a.shape[1:]:
        return f"{SAMPLE},{','.join(axes)}:{SAMPLE},{CHANNEL},{','.join(axes)}"
    if len(u.shape) == len(a.shape) + 1 and u.shape[1:-1] == a.shape[1:]:
        return f"{SAMPLE},{','.join(axes)}:{SAMPLE},{','.join(axes)},{CHANNEL}"
    return f"{SAMPLE},{','.join(axes)}:{SAMPLE},{','.join(_axis_names(u.shape[1:], contents))}"


def _axis_names(shape: tuple[int, ...], contents: Contents) -> list[str]:
    """Names of coordinate arrays of the right length where there are any, x, y, z otherwise."""
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
    """The file's names, with the usual words for samples and channels put right; the first is the sample if none is."""
    names = tuple(SAMPLE if d.lower() in SAMPLES else CHANNEL if d.lower() in CHANNELS else d for d in entry.dims or ())
    return names if SAMPLE in names else (SAMPLE, *names[1:])
