"""The coarsest mesh that holds the fields of a data set up to a tolerance."""

import numpy as np

from .._typing import Array
from ..basis import Kind
from ..errors import UserError
from ..grid import Axis, Grid, interpolate

__all__ = ["coarsest"]

FEWEST_POINTS = 32
TINY = 1e-300


def coarsest(fields: tuple[Array, ...], kind: Kind, tolerance: float) -> int:
    """Return the number of points of the coarsest mesh of a line, by halving.

    Args:
        fields: (sample, channel, x), all on the same mesh.
        kind: of the axis.
        tolerance: largest error of moving fields to the coarse mesh and back, relative to their standard deviation.
    """
    count = int(fields[0].shape[2])
    fine = Grid((Axis(count, kind),))

    def lost(points: int) -> float:
        coarse = fine.with_points(points)
        back = [interpolate(interpolate(x, fine, coarse, "spectral"), coarse, fine, "spectral") for x in fields]
        return max(float(np.abs(y - x).mean() / max(x.std(), TINY)) for x, y in zip(fields, back, strict=True))

    points = count
    try:
        while points // 2 >= FEWEST_POINTS and lost(points // 2) < tolerance:
            points //= 2
    except UserError:  # an axis without such a series
        return count
    return points
