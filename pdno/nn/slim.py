"""A small UNet for CPUs: patches of the field are folded into channels, followed by residual blocks without attention.

    input:    fold patches, conv3
    down:     (x + conv3 σ conv3 GN(x)) × blocks, half the grid;   for each level
    up:       twice the grid, add the output of the same level of the downward path, the same blocks;   for each level
    output:   conv3, unfold patches

With patches of p points per side the network works on a grid that is p times coarser: with p in proportion to the number of
points per side, its cost does not depend on the grid. The last convolution is initialised with zero, so the output is zero at
first. It has 2,152,916 parameters with the defaults in 2-D, one input and one output channel, and time=False.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .base import GridNetwork
from .layers import EPS, GROUPS, STEP_WIDTH, Conv, crop, sinusoid

__all__ = ["Slim"]


class Slim(GridNetwork):
    """A small UNet on any grid of at least patch·2^(levels−1) points along each axis.

    Args:
        dim: 1 or 2.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n.
        widths: channels of each level, multiples of 8.
        blocks: number of residual blocks per level; twice as many on the coarsest level.
        patch: points per side of a patch.

    Activations are on the grid of patches, so that batches may be large.

    Good values: the defaults for 64², patch=4 for 128²; widths=(32, 64, 96) for short training.

    >>> Slim(dim=2, time=False, in_channels=1, widths=(8, 16))(torch.randn(3, 1, 30, 40)).shape
    torch.Size([3, 1, 30, 40])
    """

    call_values = 2**18

    def __init__(
        self,
        dim: int,
        in_channels: int = 2,
        out_channels: int = 1,
        time: bool = True,
        widths: Sequence[int] = (48, 96, 128),
        blocks: int = 2,
        patch: int = 2,
    ) -> None:
        super().__init__(dim, in_channels, out_channels, time, widths=list(widths), blocks=blocks, patch=patch)
        if dim not in (1, 2):
            raise UserError(f"dim = {dim}: the slim UNet works in one or two dimensions; use an FNO")
        if any(width % GROUPS for width in widths):
            raise UserError(
                f"widths = {list(widths)}: channels are normalised in {GROUPS} groups; choose multiples of {GROUPS}"
            )
        self.patch = (1, patch) if dim == 1 else (patch, patch)
        self.factor = patch * 2 ** (len(widths) - 1)
        t = 4 * widths[0] if time else None
        folded = patch**dim
        self.embed = nn.Sequential(nn.Linear(STEP_WIDTH, t), nn.GELU(), nn.Linear(t, t), nn.GELU()) if t else None
        self.input = Conv(dim, in_channels * folded, widths[0], 3)
        self.down = nn.ModuleList(_Down(dim, i, o, blocks, t) for i, o in pairwise(widths))
        self.middle = nn.ModuleList(_Block(dim, widths[-1], t) for _ in range(2 * blocks))
        self.up = nn.ModuleList(_Up(dim, o, i, blocks, t) for i, o in reversed(list(pairwise(widths))))
        self.out = Conv(dim, widths[0], out_channels * folded, 3)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = x.shape[2:]
        t = self.embed(sinusoid(n, STEP_WIDTH, x.dtype)) if self.embed and n is not None else None
        x = self.input(fold(self._pad(x), *self.patch).contiguous(memory_format=torch.channels_last))
        stack: list[Tensor] = []
        for down in self.down:
            x = down(x, t, stack)
        for block in self.middle:
            x = block(x, t)
        for up in self.up:
            x = up(x, t, stack)
        x = unfold(self.out(x), *self.patch)
        return crop(x if self.dim == 2 else x[:, :, 0], grid).contiguous()

    def _pad(self, x: Tensor) -> Tensor:
        """Return x with two grid axes, padded with the last value to multiples of the coarsest level's cells."""
        grid = x.shape[2:]
        if min(grid) < self.factor:
            sides = "x".join(map(str, grid))
            raise UserError(f"a grid of {sides} is too small for this network, which needs {self.factor} points per side")
        x = x if self.dim == 2 else x[:, :, None]
        far = [-s % self.factor for s in grid] if self.dim == 2 else [0, -grid[0] % self.factor]
        return F.pad(x, (0, far[1], 0, far[0]), mode="replicate") if any(far) else x


def fold(x: Tensor, p: int, q: int) -> Tensor:
    """Reshape patches of p × q points to channels: (batch, c, h, w) → (batch, c·p·q, h/p, w/q)."""
    b, c, h, w = x.shape
    return x.reshape(b, c, h // p, p, w // q, q).permute(0, 1, 3, 5, 2, 4).reshape(b, c * p * q, h // p, w // q)


def unfold(x: Tensor, p: int, q: int) -> Tensor:
    """Invert `fold`: (batch, c·p·q, h, w) → (batch, c, h·p, w·q)."""
    b, c, h, w = x.shape
    return x.reshape(b, c // (p * q), p, q, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // (p * q), h * p, w * q)


class _Block(nn.Module):
    """x + conv3 σ conv3 ((scale + 1)·GN(x) + shift); scale and shift depend on the step n, and are 0 without it."""

    def __init__(self, dim: int, channels: int, time: int | None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels, EPS)
        self.first, self.second = Conv(dim, channels, channels, 3), Conv(dim, channels, channels, 3)
        self.time = nn.Linear(time, 2 * channels) if time else None
        with torch.no_grad():
            self.second.weight.mul_(0.1)

    def forward(self, x: Tensor, t: Tensor | None) -> Tensor:
        y = torch.group_norm(x, GROUPS, self.norm.weight, self.norm.bias, EPS)  # F.group_norm refuses one value per group
        if self.time is not None and t is not None:
            scale, shift = self.time(t)[:, :, None, None].chunk(2, 1)
            y = torch.addcmul(shift, y, scale + 1)
        z: Tensor = x + self.second(F.gelu(self.first(y)))
        return z


class _Down(nn.Module):
    """(batch, i, h, w) → (batch, o, h/2, w/2), with one tensor pushed to the stack."""

    def __init__(self, dim: int, i: int, o: int, blocks: int, time: int | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(dim, i, time) for _ in range(blocks))
        self.coarsen = Conv(dim, i, o, 2, stride=2)

    def forward(self, x: Tensor, t: Tensor | None, stack: list[Tensor]) -> Tensor:
        for block in self.blocks:
            x = block(x, t)
        stack.append(x)
        y: Tensor = self.coarsen(x)
        return y


class _Up(nn.Module):
    """(batch, i, h, w) and one tensor popped from the stack → (batch, o, 2h, 2w)."""

    def __init__(self, dim: int, i: int, o: int, blocks: int, time: int | None) -> None:
        super().__init__()
        self.sides = (1, 2) if dim == 1 else (2, 2)
        self.twice = Conv(dim, i, o * 2**dim, 1)
        self.blocks = nn.ModuleList(_Block(dim, o, time) for _ in range(blocks))

    def forward(self, x: Tensor, t: Tensor | None, stack: list[Tensor]) -> Tensor:
        x = unfold(self.twice(x), *self.sides) + stack.pop()
        for block in self.blocks:
            x = block(x, t)
        return x
