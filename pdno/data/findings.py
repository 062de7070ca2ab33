"""What may be wrong with data: each finding names the array, says how many samples it concerns, and gives the first."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .pairs import Dataset, Pairs

__all__ = ["Finding", "check", "outliers"]

Array = NDArray[Any]
LOOKED_AT = 2**27  # bytes of an array that the look for outliers reads; of larger arrays the first samples


@dataclass(frozen=True)
class Finding:
    """An error makes data unusable, a warning should be looked at, a note is good to know."""

    level: Literal["error", "warning", "note"]
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.text}"


def check(data: Dataset) -> list[Finding]:
    """All findings about a data set."""
    found = [finding for split, pairs in data.splits().items() if len(pairs) for finding in _check_pairs(split, pairs)]
    return [*found, *_check_leaks(data), *_check_axes(data.train), *_check_coordinates(data.train)]


def _check_pairs(split: str, pairs: Pairs) -> Iterator[Finding]:
    masked = pairs.mask is not None
    for name in ("a", "u", "u_eta"):
        values = getattr(pairs, name)
        if values is None:
            continue
        where = f"{split} {name}"
        yield from _check_finite(where, values, masked and name == "u")
        yield from _check_constant(where, values)
        yield from _check_outliers(where, values)
    yield from _check_repeats(split, pairs)


def _check_finite(where: str, values: Array, masked: bool) -> Iterator[Finding]:
    bad = ~np.isfinite(values)
    if bad.any():
        samples = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
        text = f"NaN or infinite values in {_samples(samples)}, {bad.sum()} in all"
        if masked:
            yield Finding("note", where, f"{text}; they are masked")
        else:
            advice = "take them as missing with mask='nan'" if where.endswith(" u") else "remove or repair these samples"
            yield Finding("error", where, f"{text}, first at {_place(bad)}; {advice}")


def _check_constant(where: str, values: Array) -> Iterator[Finding]:
    rows = values.reshape(len(values), -1)
    constant = np.flatnonzero(rows.max(axis=1) == rows.min(axis=1))
    if len(constant):
        yield Finding("warning", where, f"{_samples(constant)} have the same value everywhere")


def _check_outliers(where: str, values: Array) -> Iterator[Finding]:
    part = values[: max(20, LOOKED_AT // max(1, values[:1].nbytes))]
    odd = outliers(part)
    if odd.any():
        samples = np.flatnonzero(odd.reshape(len(part), -1).any(axis=1))
        place = tuple(int(i) for i in np.argwhere(odd)[0])
        first = f"first {where.split()[-1]}[{', '.join(map(str, place))}] = {part[place]:.3g}"
        text = f"values in {_samples(samples)} lie far outside those of the others at the same point, {odd.sum()} in all"
        yield Finding("warning", where, f"{text}, {first}")


def outliers(values: Array) -> Array:
    """Values far outside the bulk of the samples at the same point; nothing can be said of fewer than twenty samples.

    The bulk leaves out the k lowest and highest values, k a two-hundredth of the samples. Far is five times its width and
    a twentieth of the array's standard deviation, so that neither heavy tails nor tiny wiggles count.
    """
    if len(values) < 20:
        return np.zeros(values.shape, dtype=bool)
    filled = np.where(np.isfinite(values), values, 0.0)
    k = max(1, len(values) // 200)
    ordered = np.partition(filled, (k, len(values) - 1 - k), axis=0)
    low, high = ordered[k], ordered[-1 - k]
    far = 5 * (high - low) + 0.05 * filled.std()
    return np.asarray((filled < low - far) | (filled > high + far))


def _check_repeats(split: str, pairs: Pairs) -> Iterator[Finding]:
    by_input: dict[int, set[bytes]] = defaultdict(set)
    again, copies = 0, 0
    for key, u in zip(pairs.fingerprints().tolist(), pairs.u, strict=True):
        output = _digest(u)
        copies += output in by_input[key]
        again += len(by_input[key]) > 0 and output not in by_input[key]
        by_input[key].add(output)
    if again:
        text = f"{again} pairs repeat the input of another with a different output: repeated noisy observations"
        advice = "" if pairs.group is not None else "; to keep repeats on one side of a split, name a group"
        yield Finding("note", f"{split} a", text + advice)
    if copies:
        yield Finding("warning", f"{split} a, u", f"{copies} pairs are exact copies of others")


def _check_leaks(data: Dataset) -> Iterator[Finding]:
    """Inputs to learn from that are also judged by."""
    known = data.train.fingerprints()
    for split, pairs in data.splits().items():
        shared = 0 if split == "train" else int(np.isin(pairs.fingerprints(), known).sum())
        if shared:
            yield Finding("warning", f"{split} a", f"{shared} of {len(pairs)} inputs are also in train: scores will flatter")


def _check_axes(pairs: Pairs) -> Iterator[Finding]:
    """Axes of a and u that look swapped."""
    a, u = (pairs.xarray[name].shape[2:] for name in ("a", "u"))
    if a != u and a == u[::-1]:
        shapes = " and ".join(f"{name} on {' × '.join(map(str, shape))}" for name, shape in (("a", a), ("u", u)))
        yield Finding("warning", "a, u", f"{shapes} points: are the axes of one of them swapped? Name them with dims")


def _check_coordinates(pairs: Pairs) -> Iterator[Finding]:
    for name, coordinate in pairs.xarray.coords.items():
        steps = np.diff(coordinate.values)
        if (steps <= 0).any():
            yield Finding(
                "warning", f"coordinate {name}", "does not ascend; sort the axis, or its order will be taken as the grid's"
            )
        elif len(steps) > 1 and np.ptp(steps) > 1e-3 * steps.mean():
            spread = f"steps from {steps.min():.3g} to {steps.max():.3g}"
            yield Finding("warning", f"coordinate {name}", f"is uneven ({spread}); the axis will be taken as uniform")


def _digest(values: Array) -> bytes:
    return blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


def _samples(samples: Array) -> str:
    return f"sample {samples[0]}" if len(samples) == 1 else f"{len(samples)} samples (first {samples[0]})"


def _place(bad: Array) -> str:
    return f"[{', '.join(str(i) for i in np.argwhere(bad)[0])}]"
