r"""A learned projection of inputs to a grid of another dimension.

    c_j(x) = Σ_k (W z + M(z))_{jk} φ_k(x),        z_{ik} = mean of a_i ψ_k over the nodes of a

ψ and φ are the lowest modes on the grids of a and of u: products of cosines, or of Fourier modes along periodic axes. W is a
matrix and M a small dense network, so that z may be combined nonlinearly before it is spread over the grid of u. M starts with
zero. Details of a beyond its lowest modes are lost.
"""

import math

import torch
from torch import Tensor, nn

from ..basis import low_modes

__all__ = ["Projected", "Projection"]

MODES = {1: 32, 2: 12, 3: 6}  # along each axis, by the dimension of the grid
HIDDEN = 64  # units of the hidden layer of M

Lattice = tuple[tuple[int, ...], tuple[bool, ...]]
"""Points along each axis of a grid, and whether each axis is periodic."""


class Projection(nn.Module):
    """A map of fields on one grid to channels on another.

    Args:
        source, target: grids of a and of u: points along each axis, and whether each is periodic.
        in_channels: channels of a.
        out_channels: channels on the grid of u.
        seed: of the initial weights.

    >>> project = Projection(((20,), (False,)), ((8, 10), (False, True)), in_channels=2, out_channels=3)
    >>> project(torch.randn(5, 2, 20)).shape
    torch.Size([5, 3, 8, 10])
    """

    def __init__(self, source: Lattice, target: Lattice, in_channels: int, out_channels: int, seed: int = 0) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.analysis, self.synthesis = _modes(source), _modes(target)
        inner = in_channels * math.prod(len(b) for b in self.analysis)
        outer = out_channels * math.prod(len(b) for b in self.synthesis)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self.linear, last = nn.Linear(inner, outer), nn.Linear(HIDDEN, outer)
            self.mlp = nn.Sequential(nn.Linear(inner, HIDDEN), nn.GELU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, a: Tensor) -> Tensor:
        """Map (batch, in_channels, *grid of a) to (batch, out_channels, *grid of u)."""
        for b in self.analysis:  # the first axis of the grid becomes the last one
            a = a.movedim(2, -1) @ (b.T / b.shape[1]).to(a)
        z = a.flatten(1)
        c: Tensor = self.linear(z) + self.mlp(z)
        c = c.reshape(len(z), self.out_channels, *(len(b) for b in self.synthesis))
        for b in self.synthesis:
            c = c.movedim(2, -1) @ b.to(c)
        return c


class Projected(nn.Module):
    """A network F_θ(n, v, P a) or s_θ(P a) with a learned projection P of a to the grid of u.

    Args:
        projection: P.
        network: on the grid of u.
    """

    def __init__(self, projection: Projection, network: nn.Module) -> None:
        super().__init__()
        self.projection, self.network = projection, network

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the output of the network, (batch, channel, *grid of u), for n, v and a, or a alone, on its own grid."""
        out: Tensor = self.network(*inputs[:-1], self.projection(inputs[-1]))
        return out


def _modes(grid: Lattice) -> list[Tensor]:
    """Return the lowest modes along each axis: (mode, node) each."""
    points, periodic = grid
    count = MODES[len(points)]
    return [torch.from_numpy(low_modes(n, count, wave)) for n, wave in zip(points, periodic, strict=True)]
