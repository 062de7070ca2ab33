"""Mean, standard deviation and quantiles of an ensemble, accumulated over batches of members in constant memory.

    m_n = n⁻¹ Σ_i u_i,        s_n² = (n − 1)⁻¹ Σ_i (u_i − m_n)²,        q_p = u_(t), t = p·(n − 1),

at every point of the grid separately, where u_(0) ≤ … ≤ u_(n−1) are the ordered members, and u_(t) is interpolated linearly
between them (as by `numpy.quantile`). Up to rounding, results do not depend on how members are divided into batches.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats
from ..errors import UserError

__all__ = ["Moments", "Quantiles", "Statistics", "central"]

BUDGET = 2**25  # bytes of memory for the members that quantiles keep
MIN_KEPT = 64  # members that quantiles keep even if this exceeds the budget
BLOCK_VALUES = 2**18  # numbers that a sort or a query uses in addition: 2 MB of floats


class Moments:
    """Mean and standard deviation by pairwise updates (Chan, Golub and LeVeque 1983): for n members and a batch of k, with

        δ = m_k − m_n:        m_{n+k} = m_n + δ·k/(n + k),        M_{n+k} = M_n + M_k + δ²·nk/(n + k),

    where M = Σ_i (u_i − m)². There is no cancellation between large sums: a deviation of 10⁻³ around a mean of 10⁶ is accurate.

    >>> moments = Moments(shape=(2,))
    >>> moments.add([[1, 10], [3, 10]])
    >>> moments.add([[5, 10]])
    >>> moments.mean, moments.std
    (array([ 3., 10.]), array([2., 0.]))
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.count = 0
        self._mean = np.zeros(tuple(shape))
        self._squares = np.zeros(tuple(shape))

    def add(self, batch: NDArray[np.floating] | Sequence[object]) -> None:
        """Add a batch of members, (k, *shape)."""
        members = _members(batch, self._mean.shape)
        k = len(members)
        if k == 0:
            return
        mean = members.mean(axis=0)
        delta = mean - self._mean
        self._squares += np.square(members - mean).sum(axis=0) + delta**2 * (self.count * k / (self.count + k))
        self._mean += delta * (k / (self.count + k))
        self.count += k

    @property
    def mean(self) -> Floats:
        """m_n; NaN without members."""
        return self._mean.copy() if self.count else np.full_like(self._mean, np.nan)

    @property
    def std(self) -> Floats:
        """s_n; NaN for fewer than two members."""
        return np.sqrt(self._squares / (self.count - 1)) if self.count > 1 else np.full_like(self._mean, np.nan)


class Quantiles:
    """Quantiles at every point: exact while all members fit into the budget, then from a deterministic sketch.

    The sketch has items of weights 2^h on levels h = 0, 1, …; initially all are members (h = 0). When it is full, one level is
    sorted, and every second item (first, third, … or second, fourth, …) moves up to level h + 1, the others are dropped. The
    weights of all items always sum to n, and quantiles are those of the items, each repeated by its weight. All points have the
    same number of members, hence one schedule: the level with the most items is halved. The smallest and the largest member
    stay on level 0, so quantiles 0 and 1 are exact.

    **Error.** If r of the sorted items are ≤ x (or < x), then of those that move up ⌈r/2⌉ are (first, third, …) or ⌊r/2⌋
    (second, fourth, …), with twice the weight. So one halving of level h changes the rank of any x by +2^h or 0 in the first
    case, by −2^h or 0 in the second. The sums E₊ and E₋ of these 2^h are kept, and the case with the smaller sum is used.
    Hence |#{items ≤ x} − #{members ≤ x}| ≤ max(E₊, E₋) = n·`rank_error` for every x, the same for <, and the quantile q_p,
    with t = p·(n − 1), satisfies

        #{members ≤ q_p} ≥ ⌊t⌋ + 1 − n·rank_error,        #{members < q_p} ≤ ⌈t⌉ + n·rank_error.

    Args:
        shape: of a member.
        levels: of the quantiles that `values` returns, each in [0, 1].
        budget: bytes of memory; budget / (8·points) members are kept, but at least 64, even if that exceeds the budget. (64
            items suffice for up to 2⁶⁰ members.)

    Good values: 2²⁵ bytes keep 1024 members of 64 × 64 points, and bound the rank error of 10,000 by 0.006; 256 members of
    128 × 128 points, by 0.06. For independent members the error is typically a fifth of that.

    >>> quantiles = Quantiles(shape=(), levels=[0.25, 0.5])
    >>> quantiles.add([3, 1, 2])
    >>> quantiles.values
    {0.25: array(1.5), 0.5: array(2.)}
    """

    def __init__(self, shape: Sequence[int], levels: Sequence[float], budget: int = BUDGET) -> None:
        self.count = 0
        self.levels = tuple(_level(level) for level in levels)
        self._shape = tuple(shape)
        points = int(np.prod(self._shape))
        self._items = np.empty((max(MIN_KEPT, budget // (8 * max(1, points))), points))  # highest level first, level 0 last
        self._sizes = [0]  # items on level h
        self._errors = [0, 0]  # E₊, E₋

    def add(self, batch: NDArray[np.floating] | Sequence[object]) -> None:
        """Add a batch of members, (k, *shape)."""
        members = _members(batch, self._shape).reshape(-1, self._items.shape[1])
        while len(members):
            if self._used == len(self._items):
                self._halve()
            taken = members[: len(self._items) - self._used]
            self._items[self._used : self._used + len(taken)] = taken
            self._sizes[0] += len(taken)
            self.count += len(taken)
            members = members[len(taken) :]

    def quantile(self, level: float) -> Floats:
        """Return q_level in the shape of a member; NaN without members."""
        return self._quantiles((_level(level),))[0]

    @property
    def values(self) -> dict[float, Floats]:
        """The quantile of each of the levels."""
        return dict(zip(self.levels, self._quantiles(self.levels), strict=True))

    @property
    def rank_error(self) -> float:
        """Bound on the error of any rank, as a fraction of the number of members: 0 while quantiles are exact."""
        return min(1.0, max(self._errors) / max(1, self.count))

    @property
    def _used(self) -> int:
        return sum(self._sizes)

    def _pairs(self, h: int) -> int:
        """Return the number of pairs on level h, one item of each of which would move up; on level 0 the extremes stay."""
        return max(0, self._sizes[h] - 2 * (h == 0)) // 2

    def _halve(self) -> None:
        """Halve the largest level. A full sketch has a level with a pair, because it has more items than levels."""
        h = max(range(len(self._sizes)), key=self._pairs)
        pairs, used = self._pairs(h), self._used
        case = int(self._errors[0] > self._errors[1])
        start = sum(self._sizes[h + 1 :])
        first = start + (h == 0)
        up = np.arange(first + case, first + 2 * pairs, 2)
        kept = np.concatenate([up, np.arange(start, first), np.arange(first + 2 * pairs, used)])
        for block in self._blocks():
            self._items[start : start + self._sizes[h], block].sort(axis=0)
            self._items[start : start + len(kept), block] = self._items[kept, block]
        if h + 1 == len(self._sizes):
            self._sizes.append(0)
        self._sizes[h] -= 2 * pairs
        self._sizes[h + 1] += pairs
        self._errors[case] += 2**h

    def _quantiles(self, levels: tuple[float, ...]) -> list[Floats]:
        """Interpolate between the order statistics ⌊t⌋ and ⌈t⌉ of the items repeated by weight."""
        values = np.full((len(levels), self._items.shape[1]), np.nan)
        weights = np.repeat([2**h for h in reversed(range(len(self._sizes)))], self._sizes[::-1])
        for block in self._blocks() if self.count else ():
            items = self._items[: self._used, block]
            order = items.argsort(axis=0)
            ends = weights[order].cumsum(axis=0)  # an item has the ranks from the previous end up to its own
            items = np.take_along_axis(items, order, axis=0)
            for value, level in zip(values, levels, strict=True):
                t = level * (self.count - 1)
                rows = [(ends <= rank).sum(axis=0, keepdims=True) for rank in (np.floor(t), np.ceil(t))]
                low, high = (np.take_along_axis(items, row, axis=0)[0] for row in rows)
                value[block] = low + (high - low) * (t - np.floor(t))
        return [value.reshape(self._shape) for value in values]

    def _blocks(self) -> Iterator[slice]:
        """Return slices of the points to process at a time."""
        width = max(1, BLOCK_VALUES // max(1, self._used))
        return (slice(first, first + width) for first in range(0, self._items.shape[1], width))


def central(level: float, members: int) -> tuple[float, float]:
    """Return levels of the two quantiles of M members that bound a new draw with probability `level`.

    A draw from the same distribution is below the k-th smallest member with probability k/(M + 1). The bounds are therefore
    k = (M + 1)(1 ± level)/2, which are the quantiles of levels p = (k − 1)/(M − 1). The plain levels (1 ± level)/2 would cover
    only (M − 1)/(M + 1) of `level`. With fewer than (1 + level)/(1 − level) members, the bounds are the smallest and the
    largest member.

    >>> central(0.9, 19), central(0.9, 10**6)[0].__round__(5)
    ((0.0, 1.0), 0.05)
    """
    if members < 2:
        return 0.0, 1.0
    low = max(0.0, ((members + 1) * (1 - level) / 2 - 1) / (members - 1))
    return low, 1 - low


class Statistics:
    """`Moments` and `Quantiles` of the same members."""

    def __init__(self, shape: Sequence[int], levels: Sequence[float], budget: int = BUDGET) -> None:
        self.moments = Moments(shape)
        self.quantiles = Quantiles(shape, levels, budget)

    def add(self, batch: NDArray[np.floating] | Sequence[object]) -> None:
        """Add a batch of members, (k, *shape)."""
        self.moments.add(batch)
        self.quantiles.add(batch)


def _level(level: float) -> float:
    """Return the level; raise UserError unless it is in [0, 1]."""
    if not 0 <= level <= 1:
        raise UserError(f"the quantile of level {level} does not exist; choose a level between 0 and 1")
    return float(level)


def _members(batch: NDArray[np.floating] | Sequence[object], shape: tuple[int, ...]) -> Floats:
    """Return a batch of members as floats, checked."""
    members = np.asarray(batch, dtype=np.float64)
    if members.shape[1:] != shape or members.ndim != len(shape) + 1:
        expected = ", ".join(["k", *map(str, shape)])
        raise UserError(f"a batch of members has shape {members.shape}, expected ({expected}); put members on the first axis")
    if not np.isfinite(members).all():
        raise UserError("members of an ensemble have values that are NaN or infinite, expected numbers; remove such members")
    return members
