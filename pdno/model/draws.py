"""The members of a prediction, drawn again for what was not asked of it at first: other quantiles, bands and functionals.

A member is a function of (seed, number of the input, number of the member), so that these are the members that mean and std
were computed from, and none of them has to be kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._typing import Array, Floats
from ..errors import UserError
from ..evaluation.streaming import Quantiles, central
from .law import Given

__all__ = ["Draws", "Functional", "central_of"]


@dataclass(frozen=True, eq=False)
class Functional:
    """A functional of the members of each input.

    Args:
        members: its values, (member, sample, …).
    """

    members: Array

    @property
    def mean(self) -> Floats:
        """Mean over members, (sample, …)."""
        return np.asarray(self.members.mean(axis=0))

    @property
    def std(self) -> Floats:
        """Standard deviation over members, (sample, …); 0 for a single one."""
        return np.asarray(self.members.std(axis=0, ddof=1) if len(self.members) > 1 else np.zeros(self.members.shape[1:]))

    def quantile(self, level: float) -> Floats:
        """Return the quantile of a level in [0, 1], (sample, …)."""
        return np.asarray(np.quantile(self.members, level, axis=0))

    def interval(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return lower and upper bound of the central interval that a new draw is in with this probability, (sample, …)."""
        low, high = central_of(level, len(self.members))
        return self.quantile(low), self.quantile(high)


@dataclass(frozen=True, eq=False)
class Draws:
    """What draws the members of a prediction.

    Args:
        given: the distribution for its inputs.
        count: members of each input.
        seed, start, chunk, sampling: as in `Given.stream`.
    """

    given: Given
    count: int
    seed: int = 0
    start: int = 0
    chunk: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def batches(self) -> Iterator[tuple[int, Array]]:
        """Yield (row of the input, some of its members (member, channel, *grid)) for all inputs in turn."""
        options = {"chunk": self.chunk, "start": self.start, **self.sampling}
        for inputs, _, values in self.given.stream(self.count, self.seed, **options):
            for i in np.unique(inputs):
                yield int(i), values[inputs == i]

    def of(self, row: int, count: int) -> "Draws":
        """Return the first members of one input."""
        g = self.given
        one = g.law.given(g.a[row : row + 1], None if g.scalars is None else g.scalars[row : row + 1])
        return replace(self, given=one, count=min(count, self.count), start=self.start + row)

    def quantiles(self, levels: tuple[float, ...]) -> Floats:
        """Return quantiles of the members, (level, sample, channel, *grid)."""
        shape = self.given.law.spaces.u_shape
        out = np.empty((len(levels), len(self.given.a), *shape))
        current = Quantiles(shape, levels)
        for i, values in self.batches():
            current.add(values)
            if current.count == self.count:
                out[:, i] = list(current.values.values()) if len(set(levels)) > 1 else current.quantile(levels[0])
                current = Quantiles(shape, levels)
        return out

    def functional(self, function: Callable[[Array], Any]) -> Functional:
        """Return a functional of all members.

        Args:
            function: of members of one input, (member, channel, *grid), with values (member, …).

        Raises:
            UserError: if its values are not one for each member.
        """
        rows: list[list[Array]] = [[] for _ in self.given.a]
        for i, values in self.batches():
            found = np.asarray(function(values))
            if found.shape[:1] != values.shape[:1]:
                raise UserError(
                    f"the functional has shape {found.shape} for members of shape {values.shape}; keep the first axis, that of "
                    "the members, as in lambda u: u.max(axis=-1)"
                )
            rows[i].append(found)
        return Functional(np.stack([np.concatenate(parts) for parts in rows], axis=1))

    def band_factor(self, mean: Array, std: Array, level: float) -> Floats:
        """Return c such that a whole member is within mean ± c·std with this probability, (sample,).

        Args:
            mean, std: of the members, (sample, channel, *grid).
            level: the probability.
        """
        rows = iter(self.batches())
        largest: list[list[Array]] = [[] for _ in self.given.a]
        for i, values in rows:
            distance = np.abs(values - mean[i]) / np.where(std[i] > 0, std[i], np.inf)
            largest[i].append(distance.reshape(len(values), -1).max(axis=1))
        rank = min(self.count, math.ceil((self.count + 1) * level)) - 1
        return np.array([np.sort(np.concatenate(parts))[rank] for parts in largest])


def central_of(level: float, members: int) -> tuple[float, float]:
    """Return `central`, for a level that exists.

    Raises:
        UserError: unless the level is between 0 and 1.
    """
    if isinstance(level, str) or not 0 < level < 1:
        raise UserError(f"level = {level!r}: expected a number between 0 and 1; 90 % is 0.9")
    return central(level, members)
