"""The noise that repeated inputs reveal, whatever the operator is:

    σ²(x) = Σ_g Σ_{i∈g} (u_i(x) − ū_g(x))² / Σ_g (k_g − 1),

g being the k_g pairs of one input and ū_g their mean: without bias, if repeats are independent. Its relative standard error is
√(2/ν) for Gaussian noise and ν = Σ_g (k_g − 1) degrees of freedom, that of σ is half of it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

__all__ = ["ENOUGH", "FEWEST", "replicate_noise"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEWEST = 10  # degrees of freedom that tell anything
ENOUGH = 100  # that tell σ(x) point by point, to 7 %


def replicate_noise(labels: NDArray[np.int64], u: Array, mask: Mask | None = None) -> Array | None:
    """σ at each point, (channel, *grid), from outputs (sample, channel, *grid) whose labels are equal for equal inputs.

    One number for all points of a channel (the root mean square of σ) if there are fewer degrees of freedom than `ENOUGH`,
    and None if there are fewer than `FEWEST` for a channel. Points of a field depend on each other and count once: degrees of
    freedom are those of whole fields. Values that the mask says are not known do not count; a point at which fewer than
    `FEWEST` are left has its channel's number.

    >>> u = np.random.default_rng(0).normal(0, [0.1, 2.0], size=(4000, 1, 2))
    >>> replicate_noise(np.repeat(np.arange(2000), 2), u).round(1).tolist()
    [[0.1, 2.0]]
    """
    u = np.asarray(u, dtype=np.float64)
    known = np.ones(u.shape, dtype=bool) if mask is None else np.asarray(mask) > 0
    labels = np.asarray(labels)
    _check(labels, u, known)
    squares, freedom = np.zeros(u.shape[1:]), np.zeros(u.shape[1:])
    fields = np.zeros(u.shape[1])  # degrees of freedom of whole fields, for each channel
    for rows in _groups(labels):
        k = known[rows].sum(axis=0)
        squares += _squares(u[rows], known[rows], k)
        freedom += np.maximum(k - 1, 0)
        compared = (known[rows] & (k > 1)).reshape(len(rows), u.shape[1], -1).any(axis=2)
        fields += np.maximum(compared.sum(axis=0) - 1, 0)
    if (fields < FEWEST).any():
        return None
    points = tuple(range(1, squares.ndim))
    pooled = squares.sum(axis=points, keepdims=True) / freedom.sum(axis=points, keepdims=True)
    alone = (freedom >= FEWEST) & (fields >= ENOUGH).reshape(-1, *(1 for _ in points))
    return np.sqrt(np.where(alone, squares / np.maximum(freedom, 1), pooled))


def _groups(labels: NDArray[np.int64]) -> Iterator[NDArray[np.intp]]:
    """Rows of each label that is there twice or more."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return (rows for rows in np.split(order, starts) if len(rows) > 1)


def _squares(u: Array, known: Mask, k: NDArray[np.integer]) -> Array:
    """Σ (u − ū)² over known values, about one of them first, so that exact repeats give an exact zero."""
    v = np.where(known, u, 0.0)
    v = np.where(known, v - np.take_along_axis(v, known.argmax(axis=0)[None], axis=0), 0.0)
    v -= np.where(known, v.sum(axis=0) / np.maximum(k, 1), 0.0)
    return np.asarray(np.square(v).sum(axis=0))


def _check(labels: NDArray[np.int64], u: Array, known: Mask) -> None:
    if u.ndim < 2 or 0 in u.shape[1:] or labels.shape != u.shape[:1] or known.shape != u.shape:
        raise UserError(
            f"labels, outputs and mask have shapes {labels.shape}, {u.shape} and {known.shape}; expected (sample,), "
            "(sample, channel, *grid) and the same; give a label for each sample and a mask for each value"
        )
    if not np.isfinite(u[known]).all():
        raise UserError("outputs have values that are NaN or infinite, expected numbers; mask them, or leave such pairs out")
