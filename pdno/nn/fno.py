"""The Fourier neural operator: Li et al., Fourier neural operator for parametric partial differential equations (2021).

    x ← σ(MLP(Kx) + Wx), four times;        Kx = F⁻¹(R·F x) on the modes below the cutoff, zero above it.

The lifting takes the fields and the coordinates linspace(0, 1, s). σ is GELU; the last layer has no activation.
2,376,449 parameters with dim=2, modes=12, width=32; 582,849 with dim=1, modes=16, width=64.
"""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .base import GridNetwork
from .layers import STEP_WIDTH, crop, sinusoid

__all__ = ["FNO"]

LAYERS = 4  # as in the original code
MARGIN = 9  # zeros appended to each axis in two and three dimensions, because the domain need not be periodic


class FNO(GridNetwork):
    """A Fourier neural operator in one, two or three dimensions.

    Args:
        dim: 1, 2 or 3.
        modes: number of Fourier modes along each axis.
        width: number of hidden channels.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n; each layer then has a scale and a shift that depend on n.

    Good values: modes=12, width=32 (Darcy); modes=16, width=64 (Burgers).

    >>> import torch
    >>> FNO(dim=2, modes=4, width=8)(torch.randn(3, 1, 30, 40)).shape
    torch.Size([3, 1, 30, 40])
    """

    is_operator = True

    def __init__(
        self, dim: int, modes: int = 12, width: int = 32, in_channels: int = 1, out_channels: int = 1, time: bool = False
    ) -> None:
        super().__init__(dim, in_channels, out_channels, time, modes=modes, width=width)
        if dim not in (1, 2, 3):
            raise UserError(f"dim = {dim}: the FNO works in one, two or three dimensions")
        self.modes, self.margin = modes, MARGIN if dim > 1 else 0
        hidden = (4 if dim > 1 else 2) * width
        self.lift = nn.Conv1d(in_channels + dim, width, 1)
        self.layers = nn.ModuleList(_Layer(dim, modes, width) for _ in range(LAYERS))
        self.out = nn.Sequential(nn.Conv1d(width, hidden, 1), nn.GELU(), nn.Conv1d(hidden, out_channels, 1))
        self.embed = _embedding(width) if time else None

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = x.shape[2:]
        self._check_modes(grid)
        x = _pointwise(self.lift, torch.cat((x, _coordinates(x)), 1))
        x = F.pad(x, (0, self.margin) * self.dim)
        steps = [None] * LAYERS
        if self.embed and n is not None:
            steps = self.embed(sinusoid(n, STEP_WIDTH, x.dtype)).chunk(LAYERS, 1)
        for place, (layer, scale_shift) in enumerate(zip(self.layers, steps, strict=True), 1):
            x = layer(x, scale_shift)
            x = x if place == LAYERS else F.gelu(x)
        return _pointwise(self.out, crop(x, grid))

    def _check_modes(self, grid: torch.Size) -> None:
        """Require the modes −m … m−1 of every axis but the last, and 0 … m−1 of the last, whose negatives are conjugates."""
        least = [2 * self.modes - self.margin] * (self.dim - 1) + [2 * (self.modes - 1) - self.margin]
        if any(s < low for s, low in zip(grid, least, strict=True)):
            sides, need = "x".join(map(str, grid)), "x".join(str(max(1, low)) for low in least)
            raise UserError(
                f"a grid of {sides} is too small for an FNO of {self.modes} modes; use at least {need} points, or fewer modes"
            )


def _embedding(width: int) -> nn.Sequential:
    """Return a map from the sinusoid of n to a scale and a shift for each channel of each layer."""
    return nn.Sequential(nn.Linear(STEP_WIDTH, 4 * width), nn.GELU(), nn.Linear(4 * width, 2 * width * LAYERS))


class _Layer(nn.Module):
    """(scale + 1)·(MLP(Kx) + Wx) + shift; scale and shift depend on the step n, and are 0 without it."""

    def __init__(self, dim: int, modes: int, width: int) -> None:
        super().__init__()
        self.spectral = SpectralConv(dim, modes, width)
        self.mlp = nn.Sequential(nn.Conv1d(width, width, 1), nn.GELU(), nn.Conv1d(width, width, 1))
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, scale_shift: Tensor | None) -> Tensor:
        """Map x (batch, width, *grid) and scale_shift (batch, 2·width) to the shape of x."""
        y = _pointwise(self.mlp, self.spectral(x)) + _pointwise(self.skip, x)
        if scale_shift is None:
            return y
        scale, shift = scale_shift.reshape(len(x), -1, *[1] * (x.ndim - 2)).chunk(2, 1)
        return torch.addcmul(shift, y, scale + 1)


class SpectralConv(nn.Module):
    """K: a complex width × width matrix for each mode below the cutoff.

    The weight is stored as real and imaginary parts, (corner, in, out, *modes, 2). A corner is a choice of low or high (that
    is, negative) frequencies along every axis but the last.
    """

    def __init__(self, dim: int, modes: int, width: int) -> None:
        super().__init__()
        self.dim, self.modes = dim, modes
        self.weight = nn.Parameter(torch.rand(2 ** (dim - 1), width, width, *[modes] * dim, 2) / width**2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width, *grid) to the same shape."""
        axes = tuple(range(-self.dim, 0))
        x_hat = torch.fft.rfftn(x, dim=axes)
        y_hat = torch.zeros_like(x_hat)
        low, high = slice(self.modes), slice(-self.modes, None)
        for corner, weight in zip(product((low, high), repeat=self.dim - 1), torch.view_as_complex(self.weight), strict=True):
            kept: tuple[Any, ...] = (..., *corner, low)
            y_hat[kept] = torch.einsum("bi...,io...->bo...", x_hat[kept], weight)
        y: Tensor = torch.fft.irfftn(y_hat, s=x.shape[2:], dim=axes)
        return y


def _pointwise(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a layer for (batch, i, points) at every point of a grid: (batch, i, *grid) → (batch, o, *grid)."""
    y: Tensor = layer(x.flatten(2))
    return y.view(len(x), -1, *x.shape[2:])


def _coordinates(x: Tensor) -> Tensor:
    """Return linspace(0, 1, s) along each axis, (batch, dim, *grid)."""
    axes = [torch.linspace(0, 1, s, device=x.device, dtype=x.dtype) for s in x.shape[2:]]
    mesh = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return mesh.expand(len(x), *mesh.shape)
