r"""Fields of correlated errors that are known at some nodes only.

    x = d · B (s · r),        r ~ N(0, I),        W = Bᵀ e_z / s = Q R  for the unknown nodes z,  Q orthonormal:

the known nodes determine (I − Q Qᵀ) r, and leave Qᵀ r ~ N(0, I) undetermined. The covariance of the known nodes has
log det C_known = log det C + 2 log |det R|. Nodes with d = 0 (boundary values) are unknown, too: they have no effect on r.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from .._typing import Floats, Mask
from ..basis import Waves, modes

__all__ = ["Gap", "gaps_by_pattern", "work"]

Samples = NDArray[np.intp]


class Gap(NamedTuple):
    """Unknown nodes z in one channel of correlated errors."""

    null: Floats  # Q: (mode, node)
    volume: float  # log |det R|

    @classmethod
    def of(cls, zero: Mask, mode: Floats, periodic: Waves) -> "Gap":
        """Return Q and log |det R| of the nodes where `zero` is True, (*grid)."""
        places = np.flatnonzero(zero)
        spikes = np.zeros((len(places), zero.size))
        spikes[np.arange(len(places)), places] = 1
        waves = modes(spikes.reshape(-1, *zero.shape), periodic) / mode
        q, r = qr(waves.reshape(len(places), -1).T, mode="economic", check_finite=False)
        return cls(np.asarray(q, np.float64), float(np.log(np.abs(r.diagonal())).sum()))


def gaps_by_pattern(unknown: Mask, mode: Floats, periodic: Waves) -> Iterator[tuple[int, Samples, Gap]]:
    """Yield (channel, samples, gap) for each pattern of unknown nodes; patterns without any are left out.

    Args:
        unknown: (sample, channel, *grid).
        mode: s, (channel, *grid).
        periodic: whether each axis is periodic.
    """
    for channel in range(unknown.shape[1]):
        for pattern, samples in _patterns(unknown[:, channel]):
            if pattern.any():
                yield channel, samples, Gap.of(pattern, mode[channel], periodic)


def work(unknown: Mask) -> float:
    """Return the number of operations of `gaps_by_pattern`: two for each node and pair of unknown nodes of a pattern."""
    counts = [pattern.sum() for channel in range(unknown.shape[1]) for pattern, _ in _patterns(unknown[:, channel])]
    return float(2 * unknown[0, 0].size * np.square(np.array(counts, np.float64)).sum())


def _patterns(unknown: Mask) -> Iterator[tuple[Mask, Samples]]:
    """Yield each pattern, (*grid), with its samples."""
    packed = np.packbits(unknown.reshape(len(unknown), -1), axis=1)
    _, first, label = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    for k, sample in enumerate(first):
        yield unknown[sample], np.flatnonzero(label.reshape(-1) == k)
