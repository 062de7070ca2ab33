"""Scales S to test with: random ones, planted ones, and S as a dense matrix."""

import numpy as np
import pytest

from pdno.residual.scale import KINDS, Scale
from tests.helpers import normal

POINTS = 64
X = (np.arange(POINTS) + 0.5) / POINTS
BUMP = 0.05 + np.exp(-20 * (X - 0.4) ** 2)
by_kind = pytest.mark.parametrize("kind", KINDS)


def unit(s: np.ndarray) -> np.ndarray:
    """Return s (channel, *grid), scaled to mean square one."""
    return s / np.sqrt(np.square(s).mean(axis=tuple(range(1, s.ndim)), keepdims=True))


def random_scale(grid, periodic, kind="both", seed: int = 1) -> Scale:
    """Return a scale of two channels with log-normal d and s; s is the same for k and −k."""
    rng = np.random.default_rng(seed)
    point, mode = np.exp(rng.normal(size=(2, *grid))), np.exp(rng.normal(size=(2, *grid)))
    axes = tuple(axis + 1 for axis, wave in enumerate(periodic) if wave)
    mode = unit(mode + np.roll(np.flip(mode, axes), 1, axes) if axes else mode)
    ones = (1,) * len(grid)
    return Scale(
        point if kind in ("point", "both") else point.reshape(2, -1)[:, :1].reshape(2, *ones),
        mode if kind in ("mode", "both") else np.ones((1, *ones)),
        periodic,
        kind,
    )


def dense(scale: Scale, shape: tuple[int, ...]) -> np.ndarray:
    """Return S as a matrix, column by column."""
    size = int(np.prod(shape))
    return scale.sqrt(np.eye(size).reshape(size, *shape)).reshape(size, size).T


def wave(points: int, periodic: bool) -> np.ndarray:
    """Return the wave number of each mode."""
    k = np.arange(points)
    return np.minimum(k, points - k) if periodic else k


def planted(kind, periodic: bool = False, power: float = 4.0) -> Scale:
    """Return a scale with d = 0.1, times a bump if it varies, and s = (1 + k)⁻⁴ if errors are correlated."""
    mode = unit((1.0 + wave(POINTS, periodic)[None]) ** -power)
    return Scale(
        0.1 * BUMP[None] if kind in ("point", "both") else np.full((1, 1), 0.1),
        mode if kind in ("mode", "both") else np.ones((1, 1)),
        (periodic,),
        kind,
    )


def drawn(scale: Scale, samples: int, seed: int = 0) -> np.ndarray:
    """Draw residuals S ξ: (sample, 1, POINTS)."""
    return scale.sqrt(normal(samples, 1, POINTS, seed=seed))
