"""Averages over the observed points of samples, and over groups of dependent samples."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._typing import Floats, Ints, Mask
from ..errors import UserError
from .score import Score, group_means, per_sample

__all__ = ["averages", "has_points", "mean_and_error", "observed_points"]


def observed_points(values: Floats, mask: ArrayLike | None) -> Mask:
    """Return where values are observed: not NaN, and True in the mask."""
    observed = ~np.isnan(values)
    given = np.asarray(True if mask is None else mask, dtype=bool)
    try:
        observed &= np.broadcast_to(given, values.shape)
    except ValueError:
        raise UserError(f"a mask of shape {given.shape} does not broadcast to {values.shape}; omit axes or pass all") from None
    if values.ndim < 1:
        raise UserError(f"a single number {values} was passed, expected an array (sample, channel, *grid); add the axes")
    return observed


def has_points(observed: Mask) -> Mask:
    """Return which samples have an observed point, (sample,)."""
    return np.asarray(observed.reshape(len(observed), math.prod(observed.shape[1:])).any(axis=1))


def averages(
    values: NDArray[np.generic], observed: Mask, weights: ArrayLike | None = None, groups: Ints | None = None
) -> Floats:
    """Average over the observed points of each sample that has one, and then over each group."""
    rows = has_points(observed)
    if not rows.any():
        raise UserError(f"none of the points of shape {observed.shape} is observed, expected some values of u; check the mask")
    each = per_sample(values[rows], mask=observed[rows], weights=weights)
    return group_means(each, None if groups is None else np.asarray(groups)[rows])


def mean_and_error(each: Sequence[Floats]) -> tuple[Floats, Floats]:
    scores = [Score.mean(values) for values in each]
    return np.array([score.value for score in scores]), np.array([score.error for score in scores])
