"""The Fourier neural operator: Li et al., Fourier neural operator for parametric partial differential equations (2021).

    x ← act(MLP(Kx) + Wx), four times;        Kx = F⁻¹(R·F x) on the modes below the cut, zero above it.

The lifting sees the fields and the coordinates linspace(0, 1, s); the activation is GELU, and none after the last layer.
2,376,449 parameters with dim=2, modes=12, width=32; 582,849 with dim=1, modes=16, width=64.
"""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .layers import Network, crop, sinusoid

__all__ = ["FNO"]

LAYERS = 4
MARGIN = 9  # zeros at the far side of each axis, so that a domain of two or three dimensions need not be periodic
STEP_WIDTH = 64  # of the sinusoid of the step n


class FNO(Network):
    """A Fourier neural operator in one, two or three dimensions.

    Args:
        dim: 1, 2 or 3.
        modes: Fourier modes kept along each axis.
        width: channels inside.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the result.
        time: whether the network depends on the step n: each layer then has a scale and a shift made from n.

    Good values: modes=12, width=32 (Darcy); modes=16, width=64 (Burgers).

    >>> import torch
    >>> FNO(dim=2, modes=4, width=8)(torch.randn(3, 1, 30, 40)).shape
    torch.Size([3, 1, 30, 40])
    """

    def __init__(
        self, dim: int, modes: int = 12, width: int = 32, in_channels: int = 1, out_channels: int = 1, time: bool = False
    ) -> None:
        super().__init__(dim, in_channels, out_channels, time, modes=modes, width=width)
        if dim not in (1, 2, 3):
            raise UserError(f"dim = {dim}: the FNO works in one, two or three dimensions")
        self.modes, self.margin = modes, MARGIN if dim > 1 else 0
        hidden = (4 if dim > 1 else 2) * width
        self.lift = _Pointwise(in_channels + dim, width)
        self.layers = nn.ModuleList(_Layer(dim, modes, width) for _ in range(LAYERS))
        self.out = nn.Sequential(_Pointwise(width, hidden), nn.GELU(), _Pointwise(hidden, out_channels))
        self.embed = _embedding(width) if time else None

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        grid = x.shape[2:]
        self._check_modes(grid)
        x = self.lift(torch.cat((x, _coordinates(x)), 1))
        x = F.pad(x, (0, self.margin) * self.dim)
        steps = [None] * LAYERS
        if self.embed and n is not None:
            steps = self.embed(sinusoid(n, STEP_WIDTH, x.dtype)).chunk(LAYERS, 1)
        for place, (layer, scale_shift) in enumerate(zip(self.layers, steps, strict=True), 1):
            x = layer(x, scale_shift)
            x = x if place == LAYERS else F.gelu(x)
        x = self.out(crop(x, grid))
        return x

    def _check_modes(self, grid: torch.Size) -> None:
        """Modes −m … m−1 of every axis but the last and 0 … m−1 of the last, whose negatives are conjugates, must exist."""
        least = [2 * self.modes - self.margin] * (self.dim - 1) + [2 * (self.modes - 1) - self.margin]
        if any(s < low for s, low in zip(grid, least, strict=True)):
            sides, need = "x".join(map(str, grid)), "x".join(str(max(1, low)) for low in least)
            raise UserError(f"a grid of {sides} is too small for an FNO of {self.modes} modes; it needs {need}, or fewer modes")


def _embedding(width: int) -> nn.Sequential:
    """From the sinusoid of n to a scale and a shift for each channel of each layer."""
    return nn.Sequential(nn.Linear(STEP_WIDTH, 4 * width), nn.GELU(), nn.Linear(4 * width, 2 * width * LAYERS))


class _Layer(nn.Module):
    """MLP(Kx) + Wx, with (scale + 1)·(…) + shift where the step n gives them."""

    def __init__(self, dim: int, modes: int, width: int) -> None:
        super().__init__()
        self.spectral = SpectralConv(dim, modes, width)
        self.mlp = nn.Sequential(_Pointwise(width, width), nn.GELU(), _Pointwise(width, width))
        self.skip = _Pointwise(width, width)

    def forward(self, x: Tensor, scale_shift: Tensor | None) -> Tensor:
        y: Tensor = self.mlp(self.spectral(x)) + self.skip(x)
        if scale_shift is None:
            return y
        scale, shift = scale_shift.reshape(len(x), -1, *[1] * (x.ndim - 2)).chunk(2, 1)
        return torch.addcmul(shift, y, scale + 1)


class SpectralConv(nn.Module):
    """K: a complex width × width matrix on each kept mode. The weight is real, (corner, in, out, *modes, 2).

    A corner is a choice of low or high (that is, negative) frequencies along every axis but the last.
    """

    def __init__(self, dim: int, modes: int, width: int) -> None:
        super().__init__()
        self.dim, self.modes = dim, modes
        self.weight = nn.Parameter(torch.rand(2 ** (dim - 1), width, width, *[modes] * dim, 2) / width**2)

    def forward(self, x: Tensor) -> Tensor:
        axes = tuple(range(-self.dim, 0))
        x_hat = torch.fft.rfftn(x, dim=axes)
        y_hat = torch.zeros_like(x_hat)
        low, high = slice(self.modes), slice(-self.modes, None)
        for corner, weight in zip(product((low, high), repeat=self.dim - 1), torch.view_as_complex(self.weight), strict=True):
            kept: tuple[Any, ...] = (..., *corner, low)
            y_hat[kept] = torch.einsum("bi...,io...->bo...", x_hat[kept], weight)
        y: Tensor = torch.fft.irfftn(y_hat, s=x.shape[2:], dim=axes)
        return y


class _Pointwise(nn.Conv1d):
    """A linear map of the channels at every point: (batch, i, *grid) → (batch, o, *grid)."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__(i, o, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(2)).view(len(x), -1, *x.shape[2:])


def _coordinates(x: Tensor) -> Tensor:
    """linspace(0, 1, s) along each axis: (batch, dim, *grid)."""
    axes = [torch.linspace(0, 1, s, device=x.device, dtype=x.dtype) for s in x.shape[2:]]
    mesh = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    return mesh.expand(len(x), *mesh.shape)
