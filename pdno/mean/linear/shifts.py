r"""Linear maps of a few displaced values, on any grid.

    u(x) = c(x) + Σ_k w_k(x) a(x + d_k(x))

A map on a grid in which each output depends on a few inputs is of this form, with displacements d_k and weights w_k for each
cell. Advection by whole cells is an example: w = 1 and one d. On another grid, a node has the displacements and the weights of
the cell of training that it is in, and values of a are taken at the nearest node.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..._typing import Array, Floats, Ints

__all__ = ["MOST_VALUES", "Shifts"]

FEW = 4  # inputs that an output may depend on
NEGLIGIBLE = 1e-6  # weight relative to the largest one
MOST_VALUES = 2048  # of an input, whose map is examined


@dataclass(frozen=True, eq=False)
class Shifts:
    """A map between fields on grids of one shape.

    Args:
        sources: position of each input in the array (channel, *grid), (channel of u, *grid, FEW).
        weights: of these inputs, in the same shape.
        constant: c, (channel of u, *grid).
        channels: number of channels of a.
    """

    sources: Ints
    weights: Floats
    constant: Floats
    channels: int

    @classmethod
    def of(cls, matrix: Floats, constant: Floats, channels: int, shape: tuple[int, ...]) -> Self | None:
        """Return the map; None if outputs depend on more than a few inputs, or grids differ.

        Args:
            matrix: (input, output).
            constant: (output,).
            channels: of a.
            shape: (channel, *grid) of u.
        """
        size = int(np.prod(shape[1:]))
        if len(matrix) != channels * size or matrix.shape[1] != shape[0] * size:
            return None
        large = np.abs(matrix) > NEGLIGIBLE * np.abs(matrix).max()
        if large.sum(axis=0).max() > FEW:
            return None
        order = np.argsort(~large, axis=0, kind="stable")[:FEW]
        weights = np.where(np.take_along_axis(large, order, 0), np.take_along_axis(matrix, order, 0), 0.0)
        return cls(order.T.reshape(*shape, -1), weights.T.reshape(*shape, -1), constant.reshape(shape), channels)

    def __call__(self, a: Array) -> Floats:
        """Return u on the grid of a, (sample, channel, *grid)."""
        grid, others = self.constant.shape[1:], a.shape[2:]
        cells = np.ix_(np.arange(len(self.constant)), *(_cells(n, m) for n, m in zip(grid, others, strict=True)))
        channel, *places = np.unravel_index(self.sources[cells], (self.channels, *grid))
        index: list[Array] = [channel]
        for axis, (place, n, m) in enumerate(zip(places, grid, others, strict=True)):
            ones = (1,) * (len(grid) - 1 - axis)
            own, node = (x.reshape(-1, *ones, 1) for x in (_cells(n, m), np.arange(m)))
            index.append(np.clip(node + np.rint((place - own) * m / n).astype(np.intp), 0, m - 1))
        weights = self.weights[cells]
        places_of_a: tuple[Any, ...] = (slice(None), *index)
        return np.asarray((a[places_of_a] * weights).sum(axis=-1) + self.constant[cells])


def _cells(points: int, others: int) -> Ints:
    """Return the cell of a grid with `points` cells that the middle of each of `others` cells is in."""
    return np.asarray((2 * np.arange(others) + 1) * points // (2 * others))
