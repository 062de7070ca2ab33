r"""What all mean operators share.

    m(a) ≈ E[u | a],        r_i = u_i − m_{−i}(a_i),

where m_{−i} has not learned from pair i nor from those that belong to its group: these *out-of-fold* residuals are as large as
those of new inputs will be, in-sample ones are too small.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..draw import generator
from ..errors import UserError

__all__ = ["Array", "Mean", "checked", "folds", "inputs"]

Array = NDArray[np.float64]


class Mean(ABC):
    """A regression of u on a. Arrays are (sample, channel, *grid); scalars are (sample, parameter)."""

    name: ClassVar[str]

    @property
    def inner(self) -> "tuple[Mean, ...]":
        """Means that it is made of, if any."""
        return ()

    def parts_below(self) -> "list[Mean]":
        """Itself, or what it is made of and that is made of no others."""
        return [part for each in self.inner for part in each.parts_below()] or [self]

    @property
    def cheap_folds(self) -> bool:
        """Whether out-of-fold residuals cost little more than fitting."""
        return all(part.cheap_folds for part in self.inner)

    def to(self, device: str) -> None:
        """Compute there, if it computes on devices at all."""
        for part in self.inner:
            part.to(device)

    @property
    def label(self) -> str:
        """A name for people."""
        return self.name

    @property
    def parameters(self) -> int:
        """Numbers that were learned, those that are kept to compare with included."""
        return sum(int(np.size(values)) for values in self.arrays().values())

    def describe(self) -> str:
        """What was learned, in a sentence."""
        return f"A {self.name} mean."

    @abstractmethod
    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        """Learn from pairs."""

    @abstractmethod
    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        """m(a), in the shape of u."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as plain JSON types."""

    @abstractmethod
    def arrays(self) -> dict[str, Array]:
        """What was learned, as arrays."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, Array]) -> Self:
        """Take in what `arrays` gave."""

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: NDArray[np.integer] | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Out-of-fold residuals, in the shape of u, from `count` copies that each learn from all folds but one."""
        found = np.empty(u.shape)
        for kept, left in folds(len(u), count, group, seed):
            s, held = (None, None) if scalars is None else (scalars[kept], scalars[left])
            copy = deepcopy(self).fit(a[kept], u[kept], s, seed)
            found[left] = u[left] - copy(a[left], held)
        return found


def folds(
    samples: int, count: int, group: NDArray[np.integer] | None = None, seed: int = 0
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """(rows to learn from, rows left out) for each of `count` folds; a group is on one side."""
    labels = np.arange(samples) if group is None else np.unique(group, return_inverse=True)[1]
    names = generator(seed, "folds", 0).permutation(int(labels.max()) + 1 if samples else 0)
    count = min(count, len(names))
    if count < 2:
        raise UserError(f"{len(names)} independent pairs cannot be divided into folds; bring at least two")
    for k in range(count):
        left = np.isin(labels, names[k::count])
        yield np.flatnonzero(~left), np.flatnonzero(left)


def checked(a: Any, u: Any, scalars: Any = None, least: int = 1) -> tuple[Array, Array, Array]:
    """Inputs, outputs and scalars, (sample, 0) for none, as numbers that are finite and of as many samples, `least` or more."""
    a, u = (np.asarray(values, dtype=np.float64) for values in (a, u))
    s = np.zeros((len(a), 0)) if scalars is None else np.asarray(scalars, dtype=np.float64)
    if min(a.ndim, u.ndim) < 2 or s.ndim != 2 or not least <= len(a) == len(u) == len(s) or 0 in u.shape[1:]:
        raise UserError(
            f"a, u and scalars have shapes {a.shape}, {u.shape} and {s.shape}; expected (sample, channel, *grid) twice and "
            "(sample, parameter); give as many samples of each, at least one"
        )
    for name, values in (("inputs", a), ("outputs", u), ("scalars", s)):
        if not np.isfinite(values).all():
            raise UserError(f"{name} have values that are NaN or infinite, expected numbers; leave such pairs out")
    return a, u, s


def inputs(a: Array, scalars: Array | None = None) -> Array:
    """All numbers that describe an input: (sample, number)."""
    flat = np.asarray(a, dtype=np.float64).reshape(len(a), -1)
    return flat if scalars is None else np.concatenate([flat, np.asarray(scalars, dtype=np.float64)], axis=1)
