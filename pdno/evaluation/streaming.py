"""Mean, standard deviation and quantiles of an ensemble whose members come batch by batch, at constant memory.

    m_n = n⁻¹ Σ_i u_i,        s_n² = (n − 1)⁻¹ Σ_i (u_i − m_n)²,        q_p = u_(t), t = p·(n − 1),

at every point of the grid on its own, where u_(0) ≤ … ≤ u_(n−1) are the ordered members and u_(t) between two of them is
interpolated linearly (as by `numpy.quantile`). No result depends, beyond rounding, on how members are cut into batches.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

__all__ = ["Moments", "Quantiles", "Statistics", "central"]

Array = NDArray[np.float64]

BUDGET = 2**25  # bytes that quantiles keep
FEWEST = 64  # members that quantiles keep, whatever the budget
BLOCK = 2**18  # numbers that a sort or a query holds besides (2 MB)


class Moments:
    """Mean and standard deviation by pairwise updates (Chan, Golub and LeVeque 1983): of n members and a batch of k, with

        δ = m_k − m_n:        m_{n+k} = m_n + δ·k/(n + k),        M_{n+k} = M_n + M_k + δ²·nk/(n + k),

    where M = Σ_i (u_i − m)². No difference of large sums is taken, so a mean of 10⁶ does not spoil a deviation of 10⁻³.

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
        """Take in a batch (k, *shape)."""
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
    def mean(self) -> Array:
        """m_n; NaN without members."""
        return self._mean.copy() if self.count else np.full_like(self._mean, np.nan)

    @property
    def std(self) -> Array:
        """s_n; NaN for fewer than two members."""
        return np.sqrt(self._squares / (self.count - 1)) if self.count > 1 else np.full_like(self._mean, np.nan)


class Quantiles:
    """Quantiles at every point: exact while all members fit into the budget, then from a deterministic sketch of them.

    The sketch has items of weights 2^h, h = 0, 1, …, at first the members themselves (h = 0). When it is full, one level h is
    sorted and every second item, first, third, … or second, fourth, …, goes up to level h + 1: half of the items stand for
    all. The weights of all items always add up to n, and quantiles are those of the items, each repeated as its weight says.
    All points have the same number of members, hence one schedule; it halves the level that has most items. The smallest and
    the largest member stay on level 0: quantiles 0 and 1 are exact.

    **Error.** If r of the sorted items are ≤ x (or < x), then of those that go up ⌈r/2⌉ are (first, third, …) or ⌊r/2⌋
    (second, fourth, …), with twice the weight. So one halving of level h changes the rank of any x by +2^h or 0 in the first
    case, by −2^h or 0 in the second. Sums E₊ and E₋ of these 2^h are kept, and the case is chosen that has the smaller one.
    Hence |#{items ≤ x} − #{members ≤ x}| ≤ max(E₊, E₋) = n·`rank_error` for every x, the same for <, and the quantile q_p,
    with t = p·(n − 1), obeys

        #{members ≤ q_p} ≥ ⌊t⌋ + 1 − n·rank_error,        #{members < q_p} ≤ ⌈t⌉ + n·rank_error.

    Args:
        shape: of a member.
        levels: that `values` has, each in [0, 1].
        budget: bytes of memory; budget / (8·points) members are kept. If these are fewer than 64, 64 are kept all the same
            and the budget is exceeded. (With 64, each of fewer than 2⁶⁰ members finds a place.)

    Good values: 2²⁵ bytes keep 1024 members of 64 × 64 points, and bound the rank error of 10,000 by 0.006; 256 members of
    128 × 128 points, by 0.06. For members in random order, as independent ones are, the error is typically a fifth of that.

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
        self._items = np.empty((max(FEWEST, budget // (8 * max(1, points))), points))  # highest level first, level 0 last
        self._sizes = [0]  # items on level h
        self._errors = [0, 0]  # E₊, E₋

    def add(self, batch: NDArray[np.floating] | Sequence[object]) -> None:
        """Take in a batch (k, *shape)."""
        members = _members(batch, self._shape).reshape(-1, self._items.shape[1])
        while len(members):
            if self._used == len(self._items):
                self._halve()
            taken = members[: len(self._items) - self._used]
            self._items[self._used : self._used + len(taken)] = taken
            self._sizes[0] += len(taken)
            self.count += len(taken)
            members = members[len(taken) :]

    def quantile(self, level: float) -> Array:
        """q_level, of the shape of a member; NaN without members."""
        return self._quantiles((_level(level),))[0]

    @property
    def values(self) -> dict[float, Array]:
        """The quantile of every level."""
        return dict(zip(self.levels, self._quantiles(self.levels), strict=True))

    @property
    def rank_error(self) -> float:
        """Bound of the error of any rank, as a fraction of the members: 0 while quantiles are exact."""
        return min(1.0, max(self._errors) / max(1, self.count))

    @property
    def _used(self) -> int:
        return sum(self._sizes)

    def _pairs(self, h: int) -> int:
        """Pairs of items on level h, of each of which one would go up; on level 0 the extremes stay."""
        return max(0, self._sizes[h] - 2 * (h == 0)) // 2

    def _halve(self) -> None:
        """Halve the largest level. A full sketch has one with a pair, as it has more items than levels."""
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

    def _quantiles(self, levels: tuple[float, ...]) -> list[Array]:
        """Order statistics ⌊t⌋ and ⌈t⌉ of the items repeated by weight, then the straight line between them."""
        values = np.full((len(levels), self._items.shape[1]), np.nan)
        weights = np.repeat([2**h for h in reversed(range(len(self._sizes)))], self._sizes[::-1])
        for block in self._blocks() if self.count else ():
            items = self._items[: self._used, block]
            order = items.argsort(axis=0)
            ends = weights[order].cumsum(axis=0)  # an item takes the ranks from the last one's end up to its own
            items = np.take_along_axis(items, order, axis=0)
            for value, level in zip(values, levels, strict=True):
                t = level * (self.count - 1)
                places = [(ends <= rank).sum(axis=0, keepdims=True) for rank in (np.floor(t), np.ceil(t))]
                low, high = (np.take_along_axis(items, place, axis=0)[0] for place in places)
                value[block] = low + (high - low) * (t - np.floor(t))
        return [value.reshape(self._shape) for value in values]

    def _blocks(self) -> Iterator[slice]:
        """Points to work on at a time."""
        width = max(1, BLOCK // max(1, self._used))
        return (slice(first, first + width) for first in range(0, self._items.shape[1], width))


def central(level: float, members: int) -> tuple[float, float]:
    """Levels of the two quantiles of M members between which another draw of their law falls with probability `level`.

    A draw is below the k-th smallest member with probability k/(M + 1), so that k = (M + 1)(1 ± level)/2 are meant, which are
    the quantiles of levels p = (k − 1)/(M − 1). The plain (1 ± level)/2 would hold (M − 1)/(M + 1) of `level` only. With
    fewer than (1 + level)/(1 − level) members, all that lies between the smallest and the largest is what there is.

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
        """Take in a batch (k, *shape)."""
        self.moments.add(batch)
        self.quantiles.add(batch)


def _level(level: float) -> float:
    if not 0 <= level <= 1:
        raise UserError(f"the quantile of level {level} does not exist; choose a level between 0 and 1")
    return float(level)


def _members(batch: NDArray[np.floating] | Sequence[object], shape: tuple[int, ...]) -> Array:
    members = np.asarray(batch, dtype=np.float64)
    if members.shape[1:] != shape or members.ndim != len(shape) + 1:
        expected = ", ".join(["k", *map(str, shape)])
        raise UserError(f"a batch of members has shape {members.shape}, expected ({expected}); put members on the first axis")
    if not np.isfinite(members).all():
        raise UserError("members of an ensemble have values that are NaN or infinite, expected numbers; leave such members out")
    return members
