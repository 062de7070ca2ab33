r"""Likelihood of correlated errors at a block of nodes, for fields that are too large or too often incomplete for all nodes.

    log N(x_w; 0, C_ww + εI),        w: the observed nodes of a block of neighbours

It is an exact marginal likelihood, by one Cholesky factor for each pattern of observed nodes.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.ndimage import uniform_filter

from .._typing import Array, Floats, Mask
from ..basis import fields, modes
from .scale import Scale

__all__ = ["block_of_nodes", "block_squares_and_volume"]

NODES = 400  # of a block, in each channel
NUGGET = 1e-9  # ε, relative to the mean variance: smooth fields have singular covariances


def block_of_nodes(count: Floats) -> Mask:
    """Return the block of nodes with the most observations, the same in all channels: (channel, *grid).

    Args:
        count: number of observations, (channel, *grid).
    """
    grid = count.shape[1:]
    sides = list(grid)
    while np.prod(sides) > NODES:
        sides[int(np.argmax(sides))] -= 1
    near = uniform_filter(count.sum(axis=0), sides, mode="constant")
    valid = tuple(slice(side // 2, n - (side - 1) // 2) for side, n in zip(sides, grid, strict=True))
    centre = np.unravel_index(int(np.argmax(near[valid])), near[valid].shape)  # lowest corner of the block
    block = np.zeros(count.shape, bool)
    block[(slice(None), *(slice(c, c + side) for c, side in zip(centre, sides, strict=True)))] = True
    return block


def block_squares_and_volume(scale: Scale, residuals: Array, mask: Mask, block: Mask) -> tuple[Floats, Floats]:
    """Return `Scale.squares_and_volume` of the observed nodes in a block: (sample,) twice.

    Args:
        scale: S.
        residuals: (sample, channel, *grid).
        mask: True where they are observed.
        block: nodes, (channel, *grid).
    """
    if scale.independent:
        return scale.squares_and_volume(residuals, mask & block)
    squares, volume = np.zeros((2, len(residuals)))
    d = np.broadcast_to(scale.point, block.shape)
    for channel in range(len(block)):
        nodes = np.flatnonzero(block[channel] & (d[channel] > 0))
        if not len(nodes):
            continue
        covariance = _covariance(scale, channel, nodes, d[channel])
        x, known = (each[:, channel].reshape(len(each), -1)[:, nodes] for each in (residuals, mask))
        for sample, some in enumerate(known):
            if some.any():
                factor = cho_factor(covariance[np.ix_(some, some)], lower=True, check_finite=False)
                squares[sample] += x[sample, some] @ cho_solve(factor, x[sample, some], check_finite=False)
                volume[sample] += np.log(np.sqrt(2 * np.pi) * factor[0].diagonal()).sum()
    return squares, volume


def _covariance(scale: Scale, channel: int, nodes: Array, d: Floats) -> Floats:
    """Return the covariance of some nodes of a channel, with the nugget: (node, node)."""
    spikes = np.zeros((len(nodes), d.size))
    spikes[np.arange(len(nodes)), nodes] = 1
    waves = modes(spikes.reshape(-1, *d.shape), scale.periodic) * np.square(scale.mode[channel])
    near = fields(waves, scale.periodic).reshape(len(nodes), -1)[:, nodes] + NUGGET * np.eye(len(nodes))
    local = d.ravel()[nodes]
    return np.asarray(local[:, None] * near * local)
