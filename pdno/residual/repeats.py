"""The standard deviation of the observation noise, estimated from repeated inputs, whatever the operator is:

    σ²(x) = Σ_g Σ_{i∈g} (u_i(x) − ū_g(x))² / Σ_g (k_g − 1),

where g are the k_g pairs of one input, and ū_g is the mean of their outputs. σ² is unbiased if repeats are independent. With
ν = Σ_g (k_g − 1) degrees of freedom and Gaussian noise, its relative standard error is √(2/ν), and that of σ is half of it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats, Ints, Mask
from ..errors import UserError

__all__ = ["ENOUGH", "FEWEST", "replicate_noise"]

FEWEST = 10  # degrees of freedom below which σ is not estimated: its relative standard error is above 22 %
ENOUGH = 100  # degrees of freedom from which σ(x) is estimated at each node: its relative standard error is 7 %


def replicate_noise(labels: Ints, u: Floats, mask: Mask | None = None) -> Floats | None:
    """Estimate σ from repeated inputs.

    Degrees of freedom are counted in whole fields, because the nodes of a field are dependent.

    Args:
        labels: (sample,), equal for equal inputs.
        u: outputs, (sample, channel, *grid).
        mask: True where u is observed; other values are ignored.

    Returns:
        σ at each node, (channel, *grid). The nodes of a channel with fewer than `ENOUGH` degrees of freedom, and single nodes
        with fewer than `FEWEST`, have the root mean square of their channel. None if a channel has fewer than `FEWEST`.

    Raises:
        UserError: if shapes do not fit, or observed values are not finite.

    >>> u = np.random.default_rng(0).normal(0, [0.1, 2.0], size=(4000, 1, 2))
    >>> replicate_noise(np.repeat(np.arange(2000), 2), u).round(1).tolist()
    [[0.1, 2.0]]
    """
    u = np.asarray(u, dtype=np.float64)
    observed = np.ones(u.shape, dtype=bool) if mask is None else np.asarray(mask) > 0
    labels = np.asarray(labels)
    _check(labels, u, observed)
    squares, freedom = np.zeros(u.shape[1:]), np.zeros(u.shape[1:])
    fields = np.zeros(u.shape[1])  # degrees of freedom of each channel, in whole fields
    for rows in _groups(labels):
        k = observed[rows].sum(axis=0)
        squares += _squares(u[rows], observed[rows], k)
        freedom += np.maximum(k - 1, 0)
        compared = (observed[rows] & (k > 1)).reshape(len(rows), u.shape[1], -1).any(axis=2)
        fields += np.maximum(compared.sum(axis=0) - 1, 0)
    if (fields < FEWEST).any():
        return None
    nodes = tuple(range(1, squares.ndim))
    pooled = squares.sum(axis=nodes, keepdims=True) / freedom.sum(axis=nodes, keepdims=True)
    at_each_node = (freedom >= FEWEST) & (fields >= ENOUGH).reshape(-1, *(1 for _ in nodes))
    return np.sqrt(np.where(at_each_node, squares / np.maximum(freedom, 1), pooled))


def _groups(labels: Ints) -> Iterator[NDArray[np.intp]]:
    """Yield the rows of each label that occurs at least twice."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return (rows for rows in np.split(order, starts) if len(rows) > 1)


def _squares(u: Floats, observed: Mask, k: Ints) -> Floats:
    """Return Σ (u − ū)² over observed values; one of them is subtracted first, so that exact repeats give exactly 0."""
    v = np.where(observed, u, 0.0)
    v = np.where(observed, v - np.take_along_axis(v, observed.argmax(axis=0)[None], axis=0), 0.0)
    v -= np.where(observed, v.sum(axis=0) / np.maximum(k, 1), 0.0)
    return np.asarray(np.square(v).sum(axis=0))


def _check(labels: Ints, u: Floats, observed: Mask) -> None:
    if u.ndim < 2 or 0 in u.shape[1:] or labels.shape != u.shape[:1] or observed.shape != u.shape:
        raise UserError(
            f"labels, outputs and mask have shapes {labels.shape}, {u.shape} and {observed.shape}; expected (sample,), "
            "(sample, channel, *grid) and the same; give a label for each sample and a mask for each value"
        )
    if not np.isfinite(u[observed]).all():
        raise UserError("outputs have NaN or infinite values, expected finite numbers; mask them, or remove such pairs")
