"""The UNet of the paper, with the same number of parameters: 35,707,841 (dim=2, base=64) and 3,980,129 (dim=1, base=32).

    input:    r = conv7(a, v)
    down:     (ResBlock, ResBlock + linear attention, half the grid) × levels
    middle:   ResBlock, attention, ResBlock
    up:       (ResBlock, ResBlock + linear attention, twice the grid) × levels
    output:   conv1(ResBlock(…, r))

The attention layers are optional: `attention="middle"` has the one in the middle alone, "none" has none of them. Each ResBlock
of the upward path is also given the output of its counterpart of the downward path. Grids whose sides are not multiples of
2^(levels−1) are padded at the far end with the last value, and the output is cropped.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError, nearest
from .attention import Attention, LinearAttention
from .base import GridNetwork
from .layers import GROUPS, Conv, ResBlock, crop, pointwise, sinusoid

__all__ = ["UNet"]

Layers = Literal["all", "middle", "none"]


class UNet(GridNetwork):
    """A UNet on any grid of at least 2^(levels−1) points along each axis.

    Args:
        dim: 1 or 2.
        base: channels b of the finest level, a multiple of 8.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        multipliers: level i ends with multipliers[i]·b channels.
        time: whether the network depends on the step n.
        attention: "all" for linear attention at every level and full attention in the middle, as the paper's numbers of
            parameters imply; "middle" for the latter alone, as its text says; "none".

    Good values: base=64 (2-D) and 32 (1-D) in the paper; base=32 for a 64² grid on a few CPU cores.

    >>> import torch
    >>> net = UNet(dim=2, base=8)
    >>> net(5, torch.randn(3, 1, 30, 40), torch.randn(3, 1, 30, 40)).shape
    torch.Size([3, 1, 30, 40])
    """

    def __init__(
        self,
        dim: int,
        base: int = 64,
        in_channels: int = 2,
        out_channels: int = 1,
        multipliers: Sequence[int] = (1, 2, 4, 8),
        time: bool = True,
        attention: Layers = "all",
    ) -> None:
        choices = {"attention": attention}
        super().__init__(dim, in_channels, out_channels, time, choices, base=base, multipliers=list(multipliers))
        if dim not in (1, 2):
            raise UserError(f"dim = {dim}: the UNet works in one or two dimensions; use an FNO")
        if base % GROUPS:
            raise UserError(f"base = {base}: the UNet normalises channels in {GROUPS} groups; choose a multiple of {GROUPS}")
        if attention not in get_args(Layers):
            raise UserError(f"attention = {attention!r} is unknown; {nearest(str(attention), get_args(Layers))}")
        self.base, self.factor = base, 2 ** (len(multipliers) - 1)
        widths = [base, *(base * m for m in multipliers)]
        pairs = list(pairwise(widths))
        t, linear = 4 * base if time else None, attention == "all"
        self.input = Conv(dim, in_channels, base, 7)
        self.embed = nn.Sequential(nn.Linear(base, 4 * base), nn.GELU(), nn.Linear(4 * base, 4 * base)) if time else None
        self.down = nn.ModuleList(
            _Down(dim, i, o, t, linear, last=place == len(pairs)) for place, (i, o) in enumerate(pairs, 1)
        )
        self.middle = _Middle(dim, widths[-1], t, attention != "none")
        self.up = nn.ModuleList(
            _Up(dim, i, o, t, linear, last=place == 0) for place, (i, o) in reversed(list(enumerate(pairs)))
        )
        self.final = _Final(dim, base, out_channels, t)

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = x.shape[2:]
        t = F.silu(self.embed(sinusoid(n, self.base, x.dtype))) if self.embed and n is not None else None
        x = r = self.input(self._pad(x))
        stack: list[Tensor] = []
        for down in self.down:
            x = down(x, t, stack)
        x = self.middle(x, t)
        for up in self.up:
            x = up(x, t, stack)
        x = self.final(torch.cat((x, r), 1), t)
        return crop(x if self.dim == 2 else x[:, :, 0], grid).contiguous()

    def _pad(self, x: Tensor) -> Tensor:
        """Return x in channels-last memory, with two grid axes, padded to multiples of the coarsest level's cells."""
        grid = x.shape[2:]
        if min(grid) < self.factor:
            sides = "x".join(map(str, grid))
            raise UserError(
                f"a grid of {sides} is too small for a UNet of {len(self.down)} levels; it needs {self.factor} points per side"
            )
        x = x if self.dim == 2 else x[:, :, None]
        far = [-s % self.factor for s in grid] if self.dim == 2 else [0, -grid[0] % self.factor]
        if any(far):
            x = F.pad(x, (0, far[1], 0, far[0]), mode="replicate")
        return x.contiguous(memory_format=torch.channels_last)


class _Down(nn.Module):
    """(batch, i, h, w) → (batch, o, h/2, w/2), with two tensors pushed to the stack. The last level keeps the grid."""

    def __init__(self, dim: int, i: int, o: int, time: int | None, attention: bool, last: bool) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, i, i, time), ResBlock(dim, i, i, time)
        self.attention = LinearAttention(dim, i) if attention else nn.Identity()
        half = Conv(1, i, o, 4, stride=2) if dim == 1 else Conv(2, i, o, 2, stride=2)  # 2-D: 1×1 on space-to-depth
        self.resize = Conv(dim, i, o, 3) if last else half

    def forward(self, x: Tensor, t: Tensor | None, stack: list[Tensor]) -> Tensor:
        stack.append(self.first(x, t))
        stack.append(self.attention(self.second(stack[-1], t)))
        y: Tensor = self.resize(stack[-1])
        return y


class _Middle(nn.Module):
    """ResBlock, attention, ResBlock on the coarsest grid."""

    def __init__(self, dim: int, channels: int, time: int | None, attention: bool) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, channels, channels, time), ResBlock(dim, channels, channels, time)
        self.attention = Attention(channels) if attention else nn.Identity()

    def forward(self, x: Tensor, t: Tensor | None) -> Tensor:
        y: Tensor = self.second(self.attention(self.first(x, t)), t)
        return y


class _Up(nn.Module):
    """(batch, o, h, w) and two tensors popped from the stack → (batch, i, 2h, 2w). The last level keeps the grid."""

    def __init__(self, dim: int, i: int, o: int, time: int | None, attention: bool, last: bool) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, o + i, o, time), ResBlock(dim, o + i, o, time)
        self.attention = LinearAttention(dim, o) if attention else nn.Identity()
        self.scale = None if last else (1.0, 2.0) if dim == 1 else (2.0, 2.0)
        self.resize = Conv(dim, o, i, 3)

    def forward(self, x: Tensor, t: Tensor | None, stack: list[Tensor]) -> Tensor:
        x = self.first(torch.cat((x, stack.pop()), 1), t)
        x = self.attention(self.second(torch.cat((x, stack.pop()), 1), t))
        y: Tensor = self.resize(F.interpolate(x, scale_factor=self.scale, mode="nearest") if self.scale else x)
        return y


class _Final(nn.Module):
    """(batch, 2·base, h, w) → (batch, out_channels, h, w)."""

    def __init__(self, dim: int, base: int, out_channels: int, time: int | None) -> None:
        super().__init__()
        self.block = ResBlock(dim, 2 * base, base, time)
        self.out = nn.Linear(base, out_channels)

    def forward(self, x: Tensor, t: Tensor | None) -> Tensor:
        return pointwise(self.out, self.block(x, t))
