r"""A Fourier neural operator with a local path, for one and two dimensions: many cheap updates instead of few large ones.

    x ← x + B R Bᵀ z + L z,        z = norm(x),        then x ← x + W₂ σ(W₁((1 + s) norm(x) + t))

B holds the lowest modes that fit the boundary along each axis (Fourier on periodic axes, cosines on others), with coefficients
as averages over the nodes; R is a matrix between channels for each mode; L is a depthwise convolution of five points; W₁ and W₂
act at each node. Norms are over channels only, never over space: they would remove the mean and the size of a field. s and t
depend on the step n and on the mean and the mean square of the lifted channels over the field. The last layer is initialised
with zero.

Transforms are products with thin matrices. An operator of low modes alone cannot make members as rough as the data; the local
path does.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..basis import low_modes
from ..errors import UserError
from .base import GridNetwork
from .layers import STEP_WIDTH, sinusoid

__all__ = ["LocalFNO"]

TAPS = 5  # points of the local path
TINY = 1e-6  # added to mean squares before the logarithm


class LocalFNO(GridNetwork):
    """A Fourier neural operator with a local path.

    Args:
        dim: 1 or 2.
        modes: number of modes per axis; grids with fewer points use fewer.
        width: number of hidden channels.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n.
        layers: number of layers.
        periodic: whether the axes are periodic, one for all or one each.

    Good values: modes=25, width=48 in one dimension; modes=10, width=40 in two.

    >>> LocalFNO(dim=1, modes=5, width=8, in_channels=2, time=True)(3, torch.randn(2, 1, 12), torch.randn(2, 1, 12)).shape
    torch.Size([2, 1, 12])
    """

    def __init__(
        self,
        dim: int,
        modes: int = 25,
        width: int = 48,
        in_channels: int = 1,
        out_channels: int = 1,
        time: bool = False,
        layers: int = 4,
        periodic: bool | Sequence[bool] = False,
    ) -> None:
        super().__init__(dim, in_channels, out_channels, time, None, modes=modes, width=width, layers=layers)
        if dim > 2:
            raise UserError(f"dim = {dim}: this network works in one and two dimensions; use an FNO")
        self.periodic = (periodic,) * dim if isinstance(periodic, bool) else tuple(bool(p) for p in periodic)
        self.settings["periodic"] = list(self.periodic)
        self.modes = modes
        coordinates = sum(2 if p else 1 for p in self.periodic)
        self.lift = nn.Linear(in_channels + coordinates, width)
        self.layers = nn.ModuleList(_Layer(dim, modes, width, self.periodic) for _ in range(layers))
        self.embed = nn.Sequential(nn.Linear(2 * width + (STEP_WIDTH if time else 0), 64), nn.GELU(), nn.Linear(64, 64))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, out_channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = tuple(x.shape[2:])
        fields = [x.movedim(1, -1), _coordinates(grid, self.periodic).to(x).expand(len(x), *grid, -1)]
        y = self.lift(torch.cat(fields, -1))
        space = tuple(range(1, y.ndim - 1))
        known = [y.mean(space), y.square().mean(space).add(TINY).log()]
        known += [] if n is None else [sinusoid(n, STEP_WIDTH, y.dtype)]
        film = self.embed(torch.cat(known, -1))
        bases = [torch.as_tensor(low_modes(points, self.modes, p)).to(y) for points, p in zip(grid, self.periodic, strict=True)]
        for layer in self.layers:
            y = layer(y, film, bases)
        out: Tensor = self.out(self.norm(y)).movedim(-1, 1)
        return out


class _Layer(nn.Module):
    def __init__(self, dim: int, modes: int, width: int, periodic: tuple[bool, ...]) -> None:
        super().__init__()
        self.dim, self.modes, self.periodic = dim, modes, periodic
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = nn.Parameter(0.5 * torch.randn(*(modes,) * dim, width, width) / width**0.5)
        convolution = nn.Conv1d if dim == 1 else nn.Conv2d
        self.local = convolution(width, width, TAPS, groups=width)
        self.film = nn.Linear(64, 2 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Tensor, film: Tensor, bases: list[Tensor]) -> Tensor:
        z = self.norm1(x)
        x = self._spectral(z, bases, x + self._local(z))
        scale, shift = self.film(film).reshape(len(x), *(1,) * self.dim, -1).chunk(2, -1)
        out: Tensor = x + self.down(F.gelu(self.up(torch.addcmul(shift, self.norm2(x), 1 + scale))))
        return out

    def _spectral(self, z: Tensor, bases: list[Tensor], rest: Tensor) -> Tensor:
        """Return rest + B R Bᵀ z: transforms are products with matrices (mode, node), fields are (batch, *grid, channel)."""
        b, (rows, points, *_) = bases[0], z.shape
        f = torch.matmul(b / points, z.reshape(rows, points, -1))  # (batch, mode, …)
        if self.dim == 2:
            c = bases[1]
            f = torch.matmul(c / c.shape[1], f.reshape(rows * len(b), c.shape[1], -1))
        mix = self.mix[: len(b)] if self.dim == 1 else self.mix[: len(b), : len(bases[1])].flatten(0, 1)
        f = torch.bmm(f.reshape(rows, len(mix), -1).transpose(0, 1), mix).transpose(0, 1)  # (batch, modes, channel)
        if self.dim == 2:
            f = torch.matmul(c.T, f.reshape(rows * len(b), len(c), -1)).reshape(rows, len(b), -1)
        out = torch.baddbmm(rest.reshape(rows, points, -1), b.T.expand(rows, -1, -1), f)
        return out.reshape(z.shape)

    def _local(self, z: Tensor) -> Tensor:
        """Return the depthwise convolution of z, continued periodically or by its values at the ends.

        It is computed as a two-dimensional one in the order (batch, *grid, channel), in which fields are stored.
        """
        half = TAPS // 2
        for axis, periodic in enumerate(self.periodic, start=1):
            points = z.shape[axis]
            ends = [z.narrow(axis, points - half, half), z.narrow(axis, 0, half)]
            if not periodic:
                shape = [half if k == axis else size for k, size in enumerate(z.shape)]
                ends = [z.narrow(axis, 0, 1).expand(shape), z.narrow(axis, points - 1, 1).expand(shape)]
            z = torch.cat([ends[0], z, ends[1]], axis)
        weight, flat = self.local.weight, z if self.dim == 2 else z.unsqueeze(1)
        out = F.conv2d(
            flat.movedim(-1, 1), weight if self.dim == 2 else weight.unsqueeze(2), self.local.bias, groups=len(weight)
        )
        return out.movedim(1, -1) if self.dim == 2 else out.movedim(1, -1).squeeze(1)


@lru_cache(maxsize=32)
def _coordinates(grid: tuple[int, ...], periodic: tuple[bool, ...]) -> Tensor:
    """Return coordinates as channels, (*grid, coordinate): sine and cosine of periodic axes."""
    columns = []
    for axis, (points, wave) in enumerate(zip(grid, periodic, strict=True)):
        x = (np.arange(points) + 0.5) / points
        values = [np.sin(2 * np.pi * x), np.cos(2 * np.pi * x)] if wave else [2 * x - 1]
        shape = [-1 if k == axis else 1 for k in range(len(grid))]
        columns += [np.broadcast_to(v.reshape(shape), grid) for v in values]
    return torch.as_tensor(np.stack(columns, axis=-1))
