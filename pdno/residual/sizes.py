"""Sizes of residual fields: root mean squares of observed values per channel."""

import numpy as np

from .._typing import Array

__all__ = ["enlargement", "root_mean_square"]

TINY = 1e-300


def root_mean_square(values: Array, mask: Array | None = None) -> Array:
    """Return the root mean square of observed values per channel: (1, channel, 1, …)."""
    axes = (0, *range(2, values.ndim))
    if mask is None:
        return np.asarray(np.sqrt(np.mean(values**2, axis=axes, keepdims=True)))
    count = np.maximum(mask.sum(axis=axes, keepdims=True), 1)
    return np.asarray(np.sqrt(np.where(mask, values**2, 0.0).sum(axis=axes, keepdims=True) / count))


def enlargement(train: Array, train_mask: Array | None, new: Array, new_mask: Array | None) -> Array:
    """Return the factor, at least 1, that gives in-sample values the size of held-out ones: (1, channel, 1, …)."""
    sizes = root_mean_square(new, new_mask), root_mean_square(train, train_mask)
    return np.maximum(sizes[0] / np.maximum(sizes[1], TINY), 1.0)
