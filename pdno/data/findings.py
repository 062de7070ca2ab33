"""Problems of data: each finding has the name of an array, the number of affected samples, and the first of them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np

from .._typing import Array, Ints, Mask
from .dataset import Dataset
from .nodes import COORDINATES, NODE
from .pairs import Pairs
from .series import ratio

__all__ = ["Finding", "check", "check_parameters", "outliers"]

OUTLIER_BYTES = 2**27  # of an array in which outliers are looked for: the first samples of larger arrays
FEWEST_SAMPLES = 20  # from which outliers can be identified
TRIMMED = 200  # one sample in this number is left out at either end of the bulk: heavy tails are not outliers
FAR_WIDTHS = 5  # distance of an outlier from the bulk / width of the bulk
FAR_DEVIATIONS = 0.05  # added distance / standard deviation of the array: tiny variations are not outliers
SMOOTH = 0.3  # roughness along an axis, below which it is taken for one of a grid
ROUGH = 0.7  # above which it is taken for one of samples
MOST_COMPARED = 1000  # samples and points of which the roughness is computed
UNEVEN = 1e-3  # spread of the spacing of coordinates / mean spacing, above which an axis is not uniform


@dataclass(frozen=True)
class Finding:
    """A problem of data.

    Args:
        level: an "error" makes data unusable, a "warning" should be checked, a "note" is information.
        where: split and array.
        text: the problem, and what to do about it.
    """

    level: Literal["error", "warning", "note"]
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.text}"


def check(data: Dataset) -> list[Finding]:
    """Return all findings about a data set."""
    findings = [finding for split, pairs in data.splits().items() if len(pairs) for finding in _check_pairs(split, pairs)]
    checks = (_check_series, _check_samples, _check_axes, _check_coordinates, _check_nodes)
    return [*findings, *_check_leaks(data), *(finding for each in checks for finding in each(data.train))]


def _check_pairs(split: str, pairs: Pairs) -> Iterator[Finding]:
    masked = pairs.mask is not None
    for name in ("a", "u", "u_eta"):
        values = getattr(pairs, name)
        if values is None or (name == "a" and pairs.without_field):
            continue
        where = f"{split} {name}"
        yield from _check_finite(where, values, masked and name == "u")
        if values[0].size > 1:
            yield from _check_constant(where, values)
        yield from _check_outliers(where, values)
    yield from check_parameters(pairs, split)
    yield from _check_repeats(split, pairs)


def check_parameters(pairs: Pairs, split: str = "train") -> Iterator[Finding]:
    """Yield findings about the scalars of pairs: values that are not finite, and parameters that never change."""
    scalars = np.empty((0, 0)) if pairs.scalars is None else pairs.scalars
    for name, values in zip(pairs.parameters, scalars.T, strict=False):
        where = f"{split} parameter {name!r}"
        yield from _check_finite(where, values, masked=False)
        if len(values) > 1 and np.ptp(values) == 0:
            text = f"never changes ({values[0]:.4g}), so that the model cannot depend on it; vary it or remove it"
            yield Finding("warning", where, text)


def _check_finite(where: str, values: Array, masked: bool) -> Iterator[Finding]:
    bad = ~np.isfinite(values)
    if bad.any():
        samples = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
        text = f"NaN or infinite values in {_samples(samples)}, {bad.sum()} in total"
        if masked:
            yield Finding("note", where, f"{text}; they are masked")
        else:
            advice = "mark them as missing with --mask nan" if where.endswith(" u") else "remove or correct these samples"
            yield Finding("error", where, f"{text}, first at {_place(bad)}; {advice}")


def _check_constant(where: str, values: Array) -> Iterator[Finding]:
    rows = values.reshape(len(values), -1)
    constant = np.flatnonzero(rows.max(axis=1) == rows.min(axis=1))
    if len(constant):
        yield Finding("warning", where, f"{_samples(constant)} have the same value everywhere")


def _check_outliers(where: str, values: Array) -> Iterator[Finding]:
    part = values[: max(FEWEST_SAMPLES, OUTLIER_BYTES // max(1, values[:1].nbytes))]
    far = outliers(part)
    if far.any():
        samples = np.flatnonzero(far.reshape(len(part), -1).any(axis=1))
        place = tuple(int(i) for i in np.argwhere(far)[0])
        first = f"first {where.split()[-1]}[{', '.join(map(str, place))}] = {part[place]:.3g}"
        text = f"values in {_samples(samples)} are far outside the range of the others at the same point, {far.sum()} in total"
        yield Finding("warning", where, f"{text}, {first}")


def outliers(values: Array) -> Mask:
    """Return which values are outliers: far outside the bulk [l, h] of all samples at the same point,

        v < l − d  or  v > h + d,        d = 5 (h − l) + 0.05 std,

    where the bulk leaves out the k lowest and the k highest values, k = samples / 200 (at least 1), and std is the standard
    deviation of the array. With fewer than twenty samples there are none.

    Args:
        values: (sample, …).

    Returns:
        A mask in the shape of the values.
    """
    if len(values) < FEWEST_SAMPLES:
        return np.zeros(values.shape, dtype=bool)
    filled = np.where(np.isfinite(values), values, 0.0)
    k = max(1, len(values) // TRIMMED)
    ordered = np.partition(filled, (k, len(values) - 1 - k), axis=0)
    low, high = ordered[k], ordered[-1 - k]
    far = FAR_WIDTHS * (high - low) + FAR_DEVIATIONS * filled.std()
    return np.asarray((filled < low - far) | (filled > high + far))


def _check_repeats(split: str, pairs: Pairs) -> Iterator[Finding]:
    outputs: dict[int, set[bytes]] = defaultdict(set)  # of each input
    repeats, copies = 0, []
    for i, (key, u) in enumerate(zip(pairs.fingerprints().tolist(), pairs.u, strict=True)):
        output = _digest(u)
        copies += [i] if output in outputs[key] else []
        repeats += len(outputs[key]) > 0 and output not in outputs[key]
        outputs[key].add(output)
    if repeats:
        text = f"{repeats} pairs repeat the input of another with a different output: repeated noisy observations"
        advice = "" if pairs.group is not None else "; splits keep pairs with equal inputs together"
        yield Finding("note", f"{split} a", text + advice)
    if copies:
        first = f"the first is sample {copies[0]}; remove them"
        yield Finding("warning", f"{split} a, u", f"{len(copies)} pairs are exact copies of others, {first}")


def _check_series(pairs: Pairs) -> Iterator[Finding]:
    if pairs.group is None and len(pairs) and pairs.is_series():
        text = (
            "consecutive samples are alike, as in a time series: splits hold out blocks of them; name groups if you have some"
        )
        yield Finding("note", "train", text)


def _check_samples(pairs: Pairs) -> Iterator[Finding]:
    """Find arrays of two axes whose second axis, not the first, looks like that of the samples."""
    fields = [values[:, 0] for values in ((pairs.u,) if pairs.without_field else (pairs.a, pairs.u)) if values.ndim == 3]
    if fields and all(_roughness(v) < SMOOTH and _roughness(v.T) > ROUGH for v in fields):
        text = "values are smooth along the samples and not along the grid: if samples are the last axis, give --dims x,sample"
        yield Finding("warning", "train", text)


def _roughness(values: Array) -> float:
    """Return von Neumann's ratio along the first axis of (i, other): about 1 for independent values, less for smooth ones."""
    part = values[:MOST_COMPARED, :MOST_COMPARED].astype(np.float64)
    return ratio(np.where(np.isfinite(part), part, 0.0))


def _check_leaks(data: Dataset) -> Iterator[Finding]:
    """Find training inputs among those of validation and test."""
    training = data.train.fingerprints()
    for split, pairs in data.splits().items():
        shared = 0 if split == "train" else int(np.isin(pairs.fingerprints(), training).sum())
        if shared:
            yield Finding(
                "warning", f"{split} a", f"{shared} of {len(pairs)} inputs are also in train: scores will be optimistic"
            )


def _check_axes(pairs: Pairs) -> Iterator[Finding]:
    """Find axes of a and u that look swapped."""
    a, u = (pairs.xarray[name].shape[2:] for name in ("a", "u"))
    if a != u and a == u[::-1]:
        shapes = " and ".join(f"{name} on {' × '.join(map(str, shape))}" for name, shape in (("a", a), ("u", u)))
        yield Finding("warning", "a, u", f"{shapes} points: are the axes of one of them swapped? Name them with dims")


def _check_coordinates(pairs: Pairs) -> Iterator[Finding]:
    for name, coordinate in pairs.xarray.coords.items():
        if coordinate.dtype.kind not in "iuf" or name in COORDINATES:
            continue
        steps = np.diff(coordinate.values)
        if (steps <= 0).any():
            text = "does not increase; sort the axis, otherwise the nodes are used in this order"
            yield Finding("warning", f"coordinate {name}", text)
        elif len(steps) > 1 and np.ptp(steps) > UNEVEN * steps.mean():
            spread = f"spacing from {steps.min():.3g} to {steps.max():.3g}"
            yield Finding("warning", f"coordinate {name}", f"is not uniform ({spread}); the axis is treated as uniform")


def _check_nodes(pairs: Pairs) -> Iterator[Finding]:
    """Find nodes of a mesh without coordinates, cells or weights."""
    if NODE not in pairs.xarray["u"].dims:
        return
    nodes = pairs.nodes
    if nodes is None:
        text = "the nodes have no coordinates, so they count equally and are not drawn; add an array points, (node, 2)"
        yield Finding("warning", NODE, text)
    elif not len(nodes.cells) and not np.ptp(nodes.weights):
        text = (
            "there are no cells and no weights: all nodes count equally in norms and scores; add cells, (cell, 3), or weights"
        )
        yield Finding("warning", NODE, text)
    elif lost := int((nodes.weights == 0).sum()):
        yield Finding("warning", NODE, f"{lost} of {len(nodes.weights)} nodes belong to no cell and do not count in scores")


def _digest(values: Array) -> bytes:
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


def _samples(samples: Ints) -> str:
    """Return the number of samples and the first of them, as text."""
    return f"sample {samples[0]}" if len(samples) == 1 else f"{len(samples)} samples (first {samples[0]})"


def _place(bad: Mask) -> str:
    """Return the first index at which a mask is True, as text."""
    return f"[{', '.join(str(i) for i in np.argwhere(bad)[0])}]"
