r"""A network with a bottleneck: what a whole field shares, compressed to a few numbers.

    z = √3 tanh((L r + E(r, c))/√3),        r̂ = D(c, z + δη),    η ~ N(0, I)

L is linear, and starts with the leading principal components of r; E is a network on the grid whose channels are pooled over
the nodes (mean and mean square), and starts with zero; D is a network on the grid with z as constant channels. r is the field
to reconstruct, c the fields on which both are conditioned. The jitter δ, which is 0 after training, keeps D smooth in z and
bounds the information that z carries.

The linear bottleneck is z = L r and r̂ = L⁺ z, the projection of r on its principal components, and is not trained.
"""

import math

import torch
from torch import Tensor, nn

from .base import GridNetwork
from .build import build

__all__ = ["Bottleneck", "LinearBottleneck"]

POOLED = 32  # channels of the encoder, which are pooled
HIDDEN = 64  # units between pooled channels and z
JITTER = 0.03  # δ, in units of the standard deviation of a uniform z
RANGE = math.sqrt(3)  # of z: a uniform distribution then has unit variance


class Bottleneck(GridNetwork):
    """Encoder and decoder with K numbers between them.

    Args:
        grid: number of points along each axis.
        in_channels: channels of r, then of c, then of η, which is constant on the grid.
        out_channels: channels of r.
        latents: K.
        kind: of the two networks, see `pdno.nn.build`.
        seed: of the initial weights.
        periodic: whether each axis is periodic.

    `start` sets L.

    >>> net = Bottleneck((32,), in_channels=5, out_channels=1, latents=2)
    >>> x = torch.randn(4, 3, 32)
    >>> net(torch.cat([x, torch.randn(4, 2, 32)], 1)).shape, net.encode(x).shape, net.decode(x[:, 1:], net.encode(x)).shape
    (torch.Size([4, 1, 32]), torch.Size([4, 2]), torch.Size([4, 1, 32]))
    """

    def __init__(
        self,
        grid: tuple[int, ...],
        in_channels: int,
        out_channels: int,
        latents: int = 1,
        kind: str = "fno",
        seed: int = 0,
        periodic: tuple[bool, ...] = (),
    ) -> None:
        super().__init__(len(grid), in_channels, out_channels, False, None, latents=latents)
        self.observed, self.latents = out_channels, latents
        conditions = in_channels - out_channels - latents
        self.trunk = build(kind, grid, in_channels - latents, POOLED, False, seed, periodic)
        self.decoder = build(kind, grid, conditions + latents, out_channels, False, seed + 1, periodic)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            last = nn.Linear(HIDDEN, latents)
            self.head = nn.Sequential(nn.Linear(2 * POOLED, HIDDEN), nn.GELU(), last)
            self.linear = nn.Linear(out_channels * math.prod(grid), latents, bias=False)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    @torch.no_grad()
    def start(self, directions: Tensor) -> None:
        """Set L, (K, channel · node)."""
        self.linear.weight.copy_(directions)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        fields, eta = x[:, : -self.latents], x[:, -self.latents :].flatten(2)[:, :, 0]
        return self.decode(fields[:, self.observed :], self.encode(fields) + JITTER * eta)

    def encode(self, x: Tensor) -> Tensor:
        """Return z, (batch, K), of r and c in one tensor, (batch, channel, *grid)."""
        y = self.trunk(x).flatten(2)
        z: Tensor = self.linear(x[:, : self.observed].flatten(1))
        z = z + self.head(torch.cat([y.mean(2), y.square().mean(2)], 1))
        return RANGE * torch.tanh(z / RANGE)

    def decode(self, c: Tensor, z: Tensor) -> Tensor:
        """Return r̂, (batch, channel, *grid), of conditions c, (batch, channel, *grid), and z, (batch, K)."""
        constant = z.reshape(*z.shape, *(1,) * self.dim).expand(*z.shape, *c.shape[2:])
        out: Tensor = self.decoder(torch.cat([c, constant], 1))
        return out


class LinearBottleneck(GridNetwork):
    """The projection of r on K directions.

    Args:
        grid: number of points along each axis.
        in_channels: channels of r, then of c, which is not used.
        out_channels: channels of r.
        latents: K.

    `start` sets L, whose rows are orthogonal.
    """

    def __init__(self, grid: tuple[int, ...], in_channels: int, out_channels: int, latents: int = 1) -> None:
        super().__init__(len(grid), in_channels, out_channels, False, None, latents=latents)
        self.observed = out_channels
        self.linear = nn.Linear(out_channels * math.prod(grid), latents, bias=False)

    @torch.no_grad()
    def start(self, directions: Tensor) -> None:
        """Set L, (K, channel · node)."""
        self.linear.weight.copy_(directions)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        return self.decode(x[:, self.observed :], self.encode(x))

    def encode(self, x: Tensor) -> Tensor:
        """Return z, (batch, K), of r and c in one tensor, (batch, channel, *grid)."""
        z: Tensor = self.linear(x[:, : self.observed].flatten(1))
        return z

    def decode(self, c: Tensor, z: Tensor) -> Tensor:
        """Return r̂, (batch, channel, *grid)."""
        weight = self.linear.weight
        back = weight / weight.square().sum(1, keepdim=True).clamp(min=1e-12)  # L⁺, as rows of L are orthogonal
        return (z @ back).reshape(len(z), self.observed, *c.shape[2:])
