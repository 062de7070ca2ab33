"""Small networks, short training and inputs that several tests of networks share."""

import numpy as np
import torch
from torch import Tensor, nn

from pdno import Training
from pdno.learning.budget import Terms
from pdno.mean import Mean, Network
from pdno.work.state import flatten

SLIM = {"kind": "slim", "widths": [8, 16], "blocks": 1}
SPECTRAL = {"kind": "spectral", "modes": 4, "width": 12, "layers": 2}
SHORT = Training(updates=4, batch=4, rate=1e-2, ema=0.5)
QUIET = Terms(progress=False)


class Factor(nn.Module):
    """a ↦ factor·a."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, a: Tensor) -> Tensor:
        return self.factor * a


def noise(samples: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, *(shape or (1, 16))))


def waves(samples: int, points: int = 16, seed: int = 0) -> np.ndarray:
    """Random periodic functions with frequencies 1 and 2: (samples, 1, points)."""
    angles = 2 * np.pi * np.outer([1, 2], np.arange(points) / points)
    return noise(samples, 1, 4, seed=seed) @ np.concatenate([np.cos(angles), np.sin(angles)])


def short(network: object = SLIM, a: np.ndarray | None = None, **settings: object) -> Network:
    """A network after a few steps, on noise."""
    a = noise(12) if a is None else a
    return Network(network, training=SHORT, **settings).fit(a, np.cumsum(a, axis=-1))


def same_arrays(x: Mean, y: Mean) -> bool:
    ours, theirs = (flatten(mean.state())[0] for mean in (x, y))
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
