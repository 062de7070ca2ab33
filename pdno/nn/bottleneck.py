r"""A network with a bottleneck: what a whole field shares, compressed to a few numbers.

    z = R tanh((L r + E(P r, Q c, ⟨r, c⟩/⟨c, c⟩))/R),        r̂ = D(c, z + δη),    η ~ N(0, I)

L, P and Q are linear and start with leading principal components of r and of c; E is a small dense network, and starts with
zero. It also sees the coefficients of r on each field of c, which are products that it would learn slowly: an effect that is
proportional to a field has different signs in different samples. D is a network on the grid with z as constant channels. r is
the field to reconstruct, c the fields on which both are conditioned. The jitter δ, which is 0 after training, keeps D smooth in
z and bounds the information that z carries. The encoder is cheap: nearly all of the time is for D.

The linear bottleneck is z = L r and r̂ = L⁺ z, the projection of r on its principal components, and is not trained.
"""

import math

import torch
from torch import Tensor, nn

from .base import GridNetwork
from .build import build

__all__ = ["COMPONENTS", "Bottleneck", "LinearBottleneck"]

COMPONENTS = 32  # of r, and of c, that the encoder sees
HIDDEN = 128  # units of the two hidden layers of the encoder
JITTER = 0.03  # δ, in units of the standard deviation of a uniform z
SMALL = 0.1  # added to the mean square of a field of c, which is 1 on average
RANGE = math.sqrt(3)  # R: a uniform distribution then has unit variance


class Bottleneck(GridNetwork):
    """Encoder and decoder with K numbers between them.

    Args:
        grid: number of points along each axis.
        in_channels: channels of r, then of c, then of η, which is constant on the grid.
        out_channels: channels of r.
        latents: K.
        kind: of the decoder, see `pdno.nn.build`.
        seed: of the initial weights.
        periodic: whether each axis is periodic.

    `start` sets L, P and Q.

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
        conditions, nodes = in_channels - out_channels - latents, math.prod(grid)
        self.decoder = build(kind, grid, conditions + latents, out_channels, False, seed, periodic)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            last = nn.Linear(HIDDEN, latents)
            layers = [
                nn.Linear(2 * COMPONENTS + conditions * out_channels, HIDDEN),
                nn.GELU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.GELU(),
                last,
            ]
            self.encoder = nn.Sequential(*layers)
            self.linear = nn.Linear(out_channels * nodes, latents, bias=False)
            self.of_r = nn.Linear(out_channels * nodes, COMPONENTS, bias=False)
            self.of_c = nn.Linear(conditions * nodes, COMPONENTS, bias=False)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    @torch.no_grad()
    def start(self, of_r: Tensor, of_c: Tensor) -> None:
        """Set L and P, and Q: directions of r and of c, (COMPONENTS, channel · node)."""
        self.linear.weight.copy_(of_r[: self.latents])
        self.of_r.weight.copy_(of_r)
        self.of_c.weight.copy_(of_c)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        fields, eta = x[:, : -self.latents], x[:, -self.latents :].flatten(2)[:, :, 0]
        return self.decode(fields[:, self.observed :], self.encode(fields) + JITTER * eta)

    def encode(self, x: Tensor) -> Tensor:
        """Return z, (batch, K), of r and c in one tensor, (batch, channel, *grid)."""
        fields, conditions = x[:, : self.observed].flatten(2), x[:, self.observed :].flatten(2)
        r, c = fields.flatten(1), conditions.flatten(1)
        sizes = conditions.square().mean(2)
        on_c = (fields @ conditions.mT / conditions.shape[2] / (sizes + SMALL)[:, None]).flatten(1)
        z: Tensor = self.linear(r) + self.encoder(torch.cat([self.of_r(r), self.of_c(c), on_c], 1))
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
        self.observed, self.latents = out_channels, latents
        self.linear = nn.Linear(out_channels * math.prod(grid), latents, bias=False)

    @torch.no_grad()
    def start(self, of_r: Tensor, of_c: Tensor) -> None:
        """Set L to the first K directions of r, (COMPONENTS, channel · node); those of c are not used."""
        self.linear.weight.copy_(of_r[: self.latents])

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
