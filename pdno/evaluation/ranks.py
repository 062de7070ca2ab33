"""Ranks of observations among ensemble members, as the probability integral transform (PIT) with ties broken at random:

    PIT = (below + v·(ties + 1)) / (M + 1),    below = #{members < u},    ties = #{members = u},    v ~ U(0, 1),

at every point. If u and its M members are draws of the same distribution, u takes each of the M + 1 ranks with equal
probability, and PIT is exactly uniform on [0, 1] for any M ≥ 1. Tests of this are in `pdno.evaluation.calibration`.
"""

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats, Mask
from ..draw import generator
from ..errors import UserError

__all__ = ["FUNCTIONALS", "Ranks", "channel_functionals", "functionals", "pit"]

FUNCTIONALS = ("mean", "maximum", "roughness")  # of `channel_functionals`, in this order


class Ranks:
    """PIT of one input, accumulated over batches of members; v is a function of (seed, index), the number of the input.

    Args:
        u: the observation, (channel, *grid); NaN where it is missing.
        seed, index: identify v.
        tolerance: differences up to this are ties; broadcasts against u.

    >>> ranks = Ranks([0.5, 7.0, np.nan])
    >>> ranks.add([[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    >>> ranks.pit * 4 // 1  # ranks among three members
    array([ 1.,  3., nan])
    """

    def __init__(self, u: ArrayLike, seed: int = 0, index: int = 0, tolerance: float | Floats = 0.0) -> None:
        self.count = 0
        self._u = np.array(u, dtype=np.float64)
        self._below = np.zeros(self._u.shape, dtype=np.int64)
        self._ties = np.zeros(self._u.shape, dtype=np.int64)
        self._tolerance = np.broadcast_to(tolerance, self._u.shape)
        self._v = generator(seed, "pit", index).random(self._u.shape)

    def add(self, batch: ArrayLike) -> None:
        """Add a batch of members, (k, *u.shape)."""
        members = np.asarray(batch, dtype=np.float64)
        if members.ndim != self._u.ndim + 1 or members.shape[1:] != self._u.shape:
            expected = ", ".join(["k", *map(str, self._u.shape)])
            raise UserError(f"members have shape {members.shape}, expected ({expected}); put members on the first axis")
        if not np.isfinite(members[:, ~np.isnan(self._u)]).all():
            raise UserError("members are NaN or infinite where u is observed, expected numbers; remove such members")
        self.count += len(members)
        ties = np.abs(members - self._u) <= self._tolerance
        self._ties += ties.sum(axis=0)
        self._below += ((members < self._u) & ~ties).sum(axis=0)

    @property
    def tied(self) -> Mask:
        """Where all members are equal to u: there is nothing to judge, and ranks elsewhere stay uniform without it."""
        return np.asarray(self._ties == self.count)

    @property
    def pit(self) -> Floats:
        """PIT in the shape of u; NaN where u is NaN, and everywhere without members."""
        if self.count == 0:
            return np.full(self._u.shape, np.nan)
        values = (self._below + self._v * (self._ties + 1)) / (self.count + 1)
        return np.where(np.isnan(self._u), np.nan, values)


def pit(members: ArrayLike, u: ArrayLike, seed: int = 0) -> Floats:
    """Return PIT (sample, …) of members (member, sample, …) and u (sample, …), as `Ranks` with index = sample.

    Raises:
        UserError: if shapes do not fit, or members are not finite where u is observed.
    """
    members, u = np.asarray(members, dtype=np.float64), np.asarray(u, dtype=np.float64)
    if u.ndim == 0 or members.shape[1:] != u.shape:
        raise UserError(f"members have shape {members.shape}, u has {u.shape}; expected (member, sample, …) and (sample, …)")
    values = np.empty(u.shape)
    for i in range(len(u)):
        ranks = Ranks(u[i], seed, i)
        ranks.add(members[:, i])
        values[i] = ranks.pit
    return values


def functionals(fields: ArrayLike, *, mask: ArrayLike | None = None) -> Floats:
    """Return two functionals of each whole field, its mean and its roughness:

        mean = average of u_x over x,        roughness = average of (u_x − u_y)² over neighbours x, y along all grid axes.

    Ranks at points do not depend on the correlation between points. Ranks of the mean do (without a shared mode the mean is too
    narrow), and so do ranks of the roughness. To test them, use `Ranks(functionals(u[None])[0])` and `add(functionals(batch))`,
    and diagnose the columns pit[:, :1] and pit[:, 1:] of pit (sample, 2).

    Args:
        fields: (k, channel, *grid).
        mask: True at the observed points, (channel, *grid).

    Returns:
        Mean and roughness of each field, (k, 2).

    Raises:
        UserError: if fields or mask have another shape, or no point is observed.

    >>> functionals([[[0.0, 2.0, 4.0]]])
    array([[2., 4.]])
    """
    u = np.asarray(fields, dtype=np.float64)
    if u.ndim < 2:
        raise UserError(f"fields have shape {u.shape}, expected (k, channel, *grid); pass one field as fields[None]")
    observed = np.ones(u.shape[1:], dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if observed.shape != u.shape[1:] or not observed.any():
        raise UserError(
            f"the mask has shape {observed.shape} and {observed.sum()} observed points, expected {u.shape[1:]} and at least "
            "one; pass the mask of one field"
        )
    squares, pairs = np.zeros(len(u)), 0
    for axis in range(2, u.ndim):
        both = np.logical_and(*(np.moveaxis(observed, axis - 1, 0)[cut] for cut in (slice(1, None), slice(-1))))
        differences = np.moveaxis(np.diff(u, axis=axis), axis, 1)[:, both]
        squares += np.square(differences).sum(axis=1)
        pairs += differences.shape[1]
    return np.stack([u[:, observed].mean(axis=1), squares / max(1, pairs)], axis=1)


def channel_functionals(fields: ArrayLike, *, mask: ArrayLike | None = None) -> Floats:
    """Return three functionals of each channel of each field: mean, maximum, and roughness,

        roughness = root mean square of the differences u_x − u_y of neighbours x, y along all grid axes.

    Args:
        fields: (k, channel, *grid).
        mask: True at the observed points, (channel, *grid).

    Returns:
        (k, 3, channel); NaN for channels without an observed point, roughness 0 without observed neighbours.

    >>> channel_functionals([[[0.0, 2.0, 4.0]]])[0, :, 0]
    array([2., 4., 2.])
    """
    u = np.asarray(fields, dtype=np.float64)
    axes = tuple(range(2, u.ndim))
    if mask is None:
        differences = [np.diff(u, axis=axis) for axis in axes]
        squares = sum((np.square(d).sum(axis=axes) for d in differences), np.zeros(u.shape[:2]))
        pairs = sum(d[0, 0].size for d in differences) if len(u) else 1
        return np.stack([u.mean(axis=axes), u.max(axis=axes), np.sqrt(squares / max(1, pairs))], axis=1)
    observed = np.asarray(mask, dtype=bool)
    count = observed.sum(axis=tuple(range(1, observed.ndim)))
    filled = np.where(observed, u, 0.0)
    mean = filled.sum(axis=axes) / np.maximum(count, 1)
    largest = np.where(observed, u, -np.inf).max(axis=axes)
    squares, number = np.zeros(mean.shape), np.zeros(mean.shape[1:])
    for axis in axes:
        both = np.logical_and(*(np.moveaxis(observed, axis - 1, -1)[..., cut] for cut in (slice(1, None), slice(-1))))
        squares += np.square(np.where(both, np.diff(np.moveaxis(filled, axis, -1), axis=-1), 0.0)).sum(axis=axes)
        number += both.sum(axis=tuple(range(1, both.ndim)))
    values = np.stack([mean, largest, np.sqrt(squares / np.maximum(number, 1))], axis=1)
    return np.where(count > 0, values, np.nan)
