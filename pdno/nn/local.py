r"""A Fourier neural operator with a local path, for one and two dimensions: many cheap updates instead of few large ones.

    x ← x + B R Bᵀ z + L z,        z = norm(x),        then x ← x + W₂ σ(W₁((1 + s) norm(x) + t))

B holds the lowest modes that fit the boundary along each axis (Fourier on periodic axes, cosines on others), with coefficients
as averages over the nodes; R is a matrix between channels for each mode; L is a depthwise convolution of five points; W₁ and W₂
act at each node. Norms are over channels only, never over space: they would remove the mean and the size of a field. s and t
depend on the step n and on the mean and the mean square of the lifted channels over the field. The last layer is initialised
with zero.

Transforms are products with thin matrices. An operator of low modes alone cannot make members as rough as the data; the local
path does.

**On other grids.** With `points`, those of the training grid, the network is an operator: each path is a function of position,
not of the index of a node, so that an input that is resolved on two grids has the same output on both, up to aliasing. L takes
values at the distances of the training grid on every grid, Lz(x) = Σ_j w_j z(x + j/points), interpolated linearly where that is
no node, and continued by reflection at the ends of an axis, as cosines are. Without `points` it takes neighbouring nodes.
Nodes are those of a periodic axis, i/n, or cell centres, (i + ½)/n (`pdno.grid`).
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
        points: of the training grid, one for all axes or one each, for a network that is an operator; None for one that is not.

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
        points: int | Sequence[int] | None = None,
    ) -> None:
        sizes: dict[str, int | list[int]] = {"modes": modes, "width": width, "layers": layers}
        if points is not None:
            sizes["points"] = [points] * dim if isinstance(points, int) else list(points)
        super().__init__(dim, in_channels, out_channels, time, None, **sizes)
        if dim > 2:
            raise UserError(f"dim = {dim}: this network works in one and two dimensions; use an FNO")
        self.periodic = (periodic,) * dim if isinstance(periodic, bool) else tuple(bool(p) for p in periodic)
        self.settings["periodic"] = list(self.periodic)
        self.modes, self.points = modes, self.settings.get("points")
        self.is_operator = points is not None
        coordinates = sum(2 if p else 1 for p in self.periodic)
        self.lift = nn.Linear(in_channels + coordinates, width)
        self.layers = nn.ModuleList(_Layer(dim, modes, width, self.periodic) for _ in range(layers))
        self.embed = nn.Sequential(nn.Linear(2 * width + (STEP_WIDTH if time else 0), 64), nn.GELU(), nn.Linear(64, 64))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, out_channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = tuple(x.shape[2:])
        places = _coordinates(grid, self.periodic, self.points is not None)
        fields = [x.movedim(1, -1), places.to(x).expand(len(x), *grid, -1)]
        y = self.lift(torch.cat(fields, -1))
        space = tuple(range(1, y.ndim - 1))
        known = [y.mean(space), y.square().mean(space).add(TINY).log()]
        known += [] if n is None else [sinusoid(n, STEP_WIDTH, y.dtype)]
        film = self.embed(torch.cat(known, -1))
        bases = [torch.as_tensor(low_modes(points, self.modes, p)).to(y) for points, p in zip(grid, self.periodic, strict=True)]
        ratios = None if self.points is None else [n / points for n, points in zip(grid, self.points, strict=True)]
        for layer in self.layers:
            y = layer(y, film, bases, ratios)
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

    def forward(self, x: Tensor, film: Tensor, bases: list[Tensor], ratios: list[float] | None = None) -> Tensor:
        z = self.norm1(x)
        x = self._spectral(z, bases, x + self._local(z, ratios))
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

    def _local(self, z: Tensor, ratios: list[float] | None) -> Tensor:
        """Return the depthwise convolution of z, continued periodically, or by its values at the ends of an axis.

        It is computed as a two-dimensional one in the order (batch, *grid, channel), in which fields are stored.

        Args:
            z: (batch, *grid, channel).
            ratios: nodes of this grid per node of the training grid, for each axis of an operator; its fields are continued by
                reflection. None for a network that is not one.
        """
        weight, dilations = self.local.weight, [1] * self.dim
        for axis, periodic in enumerate(self.periodic):
            taps, dilations[axis] = _taps(1.0 if ratios is None else ratios[axis])
            weight = torch.tensordot(weight, taps.to(weight), dims=([2], [0]))  # the next axis takes the place of this one
            half = weight.shape[-1] // 2 * dilations[axis]
            z = _continued(z, axis + 1, half, "periodic" if periodic else "constant" if ratios is None else "mirrored")
        flat, dilation = (z, tuple(dilations)) if self.dim == 2 else (z.unsqueeze(1), (1, *dilations))
        kernel = weight if self.dim == 2 else weight.unsqueeze(2)
        out = F.conv2d(flat.movedim(-1, 1), kernel, self.local.bias, dilation=dilation, groups=len(weight)).movedim(1, -1)
        return out if self.dim == 2 else out.squeeze(1)


def _continued(z: Tensor, axis: int, count: int, how: str) -> Tensor:
    """Return z with `count` further nodes at both ends of an axis: "periodic", "constant", or "mirrored" at the ends."""
    points = z.shape[axis]
    if how == "constant":
        shape = [count if k == axis else size for k, size in enumerate(z.shape)]
        return torch.cat([z.narrow(axis, 0, 1).expand(shape), z, z.narrow(axis, points - 1, 1).expand(shape)], axis)
    first, last = z.narrow(axis, 0, count), z.narrow(axis, points - count, count)
    ends = [last, first] if how == "periodic" else [first.flip(axis), last.flip(axis)]
    return torch.cat([ends[0], z, ends[1]], axis)


@lru_cache(maxsize=32)
def _taps(ratio: float) -> tuple[Tensor, int]:
    """Return the weights of nodes that interpolate the points of the local path, and the distance of these nodes.

    Args:
        ratio: distance of two points of the path, in nodes of the grid.

    Returns:
        (TAPS, node) of an odd number of nodes, and the distance: `ratio` if it is whole, and the weights are 1; otherwise 1.
    """
    if ratio.is_integer():
        return torch.eye(TAPS, dtype=torch.float64), int(ratio)
    places = ratio * (torch.arange(TAPS, dtype=torch.float64) - TAPS // 2)
    reach = int(np.ceil(ratio * (TAPS // 2)))
    return (1 - (places[:, None] - torch.arange(-reach, reach + 1)).abs()).clamp(min=0), 1


@lru_cache(maxsize=32)
def _coordinates(grid: tuple[int, ...], periodic: tuple[bool, ...], exact: bool = False) -> Tensor:
    """Return coordinates as channels, (*grid, coordinate): sine and cosine of periodic axes.

    With `exact`, those of the nodes i/n of a periodic axis; otherwise of i/n plus half a spacing, as weights of networks that
    are no operators were trained.
    """
    columns = []
    for axis, (points, wave) in enumerate(zip(grid, periodic, strict=True)):
        x = (np.arange(points) + (0.0 if exact and wave else 0.5)) / points
        values = [np.sin(2 * np.pi * x), np.cos(2 * np.pi * x)] if wave else [2 * x - 1]
        shape = [-1 if k == axis else 1 for k in range(len(grid))]
        columns += [np.broadcast_to(v.reshape(shape), grid) for v in values]
    return torch.as_tensor(np.stack(columns, axis=-1))
