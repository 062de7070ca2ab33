"""Layers that several networks share: the embedding of the step n, and the convolutions and residual blocks of the UNet.

These layers work on (batch, channel, height, width) in channels-last memory, where convolutions are fastest and the tokens
(batch, height·width, channel) of an attention layer are a view. A 1-D field has height 1, a 1-D kernel the shape (1, k).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["EPS", "GROUPS", "STEP_WIDTH", "Block", "Conv", "ResBlock", "crop", "pointwise", "sinusoid"]

EPS = 1e-5  # added to variances in normalisations
GROUPS = 8  # of a group normalisation
STEP_WIDTH = 64  # width of the sinusoidal embedding of the step n, except in the UNet of the paper


def crop(x: Tensor, grid: torch.Size) -> Tensor:
    """Return the near corner of a padded field, with the shape of the grid."""
    for axis, side in enumerate(grid, x.ndim - len(grid)):
        x = x.narrow(axis, 0, side)
    return x


def sinusoid(n: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return sin and cos of (n − 1)·exp(−ln 10⁴·i/(width/2 − 1)), i = 0 … width/2 − 1: (batch,) → (batch, width)."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=n.device, dtype=dtype) * (-math.log(1e4) / (half - 1)))
    angles = (n - 1).to(dtype)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)


class Conv(nn.Module):
    """A convolution with k points along each axis of the field, which keeps the grid if stride = 1.

    The kernel is stored as (out, height, width, in), so that neither the kernel nor its gradient is ever reordered.

    Args:
        dim: 1 or 2.
        i, o: input and output channels.
        k: points of the kernel along each axis.
        stride: of the output grid.
        standardise: whether the kernel is shifted and scaled to mean 0 and variance 1 for each output channel.
    """

    def __init__(self, dim: int, i: int, o: int, k: int, stride: int = 1, standardise: bool = False) -> None:
        super().__init__()
        pad = (k - 1) // 2
        self.stride, self.padding = ((1, stride), (0, pad)) if dim == 1 else ((stride, stride), (pad, pad))
        self.standardise = standardise
        bound = (i * k**dim) ** -0.5
        self.weight = nn.Parameter(torch.empty(o, 1 if dim == 1 else k, k, i).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(o).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, i, h, w) to (batch, o, h/stride, w/stride)."""
        kernel = F.layer_norm(self.weight, self.weight.shape[1:], eps=EPS) if self.standardise else self.weight
        return F.conv2d(x, kernel.permute(0, 3, 1, 2), self.bias, self.stride, self.padding)


def pointwise(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply a linear map to the channels at every point, a 1×1 convolution: (batch, i, h, w) → (batch, o, h, w)."""
    y: Tensor = layer(x.permute(0, 2, 3, 1))
    return y.permute(0, 3, 1, 2)


class Block(nn.Module):
    """SiLU((scale + 1)·GroupNorm(W̃ ∗ x) + shift), with W̃ the kernel at mean 0 and variance 1."""

    def __init__(self, dim: int, i: int, o: int) -> None:
        super().__init__()
        self.conv = Conv(dim, i, o, 3, standardise=True)
        self.norm = nn.GroupNorm(GROUPS, o, EPS)

    def forward(self, x: Tensor, scale_shift: Tensor | None = None) -> Tensor:
        """Map x (batch, i, h, w) and scale_shift (batch, 2·o) to (batch, o, h, w)."""
        x = torch.group_norm(self.conv(x), GROUPS, self.norm.weight, self.norm.bias, EPS)
        if scale_shift is not None:
            scale, shift = scale_shift[:, :, None, None].chunk(2, 1)
            x = torch.addcmul(shift, x, scale + 1)
        return F.silu(x)


class ResBlock(nn.Module):
    """Two blocks and a skip connection; the embedding of the step gives scale and shift of the first block."""

    def __init__(self, dim: int, i: int, o: int, time: int | None) -> None:
        super().__init__()
        self.time = nn.Linear(time, 2 * o) if time else None
        self.first, self.second = Block(dim, i, o), Block(dim, o, o)
        self.skip = nn.Linear(i, o) if i != o else None

    def forward(self, x: Tensor, t: Tensor | None) -> Tensor:
        """Map x (batch, i, h, w) and SiLU of the embedding t (batch, time) to (batch, o, h, w)."""
        y: Tensor = self.second(self.first(x, self.time(t) if self.time else None))
        return y.add_(x if self.skip is None else pointwise(self.skip, x))
