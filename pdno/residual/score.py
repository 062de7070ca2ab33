r"""The score by which residual laws are compared: a mean of three proper scores of draws.

    score = ⅓ (CRPS + energy score + energy score of increments)

Increments are differences of neighbouring nodes: the energy score of fields alone hardly sees how rough they are if they have a
random shift. Values and increments are in units of the residuals, which are the same for all laws and pairs that are compared.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._typing import Array
from ..evaluation.metrics import crps, energy_score
from .sizes import root_mean_square

__all__ = ["Units", "neighbours", "scores"]

ROUNDING = 1e-6  # root mean square of increments, relative to that of values, below which fields are constant


@dataclass(frozen=True, eq=False)
class Units:
    """Units of values and increments.

    Args:
        values: (1, channel, 1, …).
        steps: (1, channel, 1), relative to those of values; None if increments do not count, because some sample has none.
    """

    values: Array
    steps: Array | None

    @classmethod
    def of(cls, values: Array, mask: Array | None = None) -> "Units":
        """Return the root mean squares of residuals, (sample, channel, *grid), and of their increments."""
        size = root_mean_square(values, mask)
        unit, grid = np.where(size > 0, size, 1.0), values.ndim - 2
        increments = neighbours(values / unit, np.subtract, grid)
        seen = None if mask is None else neighbours(mask, np.logical_and, grid)
        if not increments.size or (seen is not None and not seen.any(axis=(1, 2)).all()):
            return cls(unit, None)
        steps = root_mean_square(increments, seen)
        return cls(unit, np.where(steps > ROUNDING, steps, 1.0))


def scores(drawn: Array, values: Array, mask: Array | None, units: Units) -> Array:
    """Return the score of each sample, (sample,).

    Args:
        drawn: (member, sample, channel, *grid).
        values: residuals, (sample, channel, *grid).
        mask: True where they are observed; None if they are everywhere.
        units: of values and increments.
    """
    drawn, values, grid = drawn / units.values, values / units.values, values.ndim - 2
    each = [crps(drawn, values, mask=mask).each, energy_score(drawn, values, mask=mask).each]
    if units.steps is not None:
        seen = None if mask is None else neighbours(mask, np.logical_and, grid)
        steps = [neighbours(x, np.subtract, grid) / units.steps for x in (drawn, values)]
        each.append(energy_score(*steps, mask=seen).each)
    return np.asarray(np.mean(each, axis=0))


def neighbours(fields: Array, join: Callable[[Array, Array], Array], grid: int) -> Array:
    """Return join(next, this) for neighbouring nodes along each of the last `grid` axes: (…, channel, pair)."""
    parts = [join(*(np.take(fields, range(1 - k, fields.shape[axis] - k), axis) for k in (0, 1))) for axis in range(-grid, 0)]
    return np.concatenate([part.reshape(*fields.shape[:-grid], -1) for part in parts], axis=-1)
