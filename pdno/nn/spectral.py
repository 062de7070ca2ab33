"""A Fourier neural operator in one dimension, with residual layers and without coordinates.

    x ← x + W₂ σ(W₁(Kx + Wx) + b₁) + b₂,        Kx = F⁻¹(R·F x) on the modes below the cutoff, zero above it.

It commutes exactly with translations of a periodic domain by whole grid cells, and its output depends little on the grid.
With few modes, F is a thin matrix, and a matrix product is faster than a fast Fourier transform. The last layer is initialised
with zero, so the output is zero at first.
"""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .base import GridNetwork
from .layers import STEP_WIDTH, sinusoid

__all__ = ["Spectral"]


class Spectral(GridNetwork):
    """A Fourier neural operator in one dimension with residual layers.

    Args:
        dim: 1.
        modes: number of Fourier modes.
        width: number of hidden channels.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n; each layer then has a scale and a shift that depend on n.
        layers: number of layers.
        coordinates: whether the coordinate x is an input, for domains with boundaries. The network then no longer commutes
            with translations.
        points: of a coarser grid on which the layers are evaluated, if the input has more; fields are restricted to its
            Fourier modes, and the output is interpolated by them: enough for smooth outputs, also of noisy inputs. None for
            the grid of the input.

    Good values: modes=24, width=48 (Burgers).

    >>> Spectral(dim=1, modes=4, width=8)(torch.randn(3, 1, 30)).shape
    torch.Size([3, 1, 30])
    """

    is_operator = True

    def __init__(
        self,
        dim: int,
        modes: int = 24,
        width: int = 48,
        in_channels: int = 1,
        out_channels: int = 1,
        time: bool = False,
        layers: int = 4,
        coordinates: bool = False,
        points: int | None = None,
    ) -> None:
        choices, sizes = {"coordinates": coordinates}, {"modes": modes, "width": width, "layers": layers}
        super().__init__(dim, in_channels, out_channels, time, choices, **sizes)
        if points is not None and points < 2 * modes - 1:
            raise UserError(f"points = {points}: {modes} modes need at least {2 * modes - 1} points; use more, or fewer modes")
        if dim != 1:
            raise UserError(f"dim = {dim}: the spectral network works in one dimension; use an FNO")
        self.modes, self.coordinates, self.points = modes, coordinates, points
        self.settings |= {} if points is None else {"points": points}
        self.lift = nn.Linear(in_channels + coordinates, width)
        self.layers = nn.ModuleList(_Layer(modes, width) for _ in range(layers))
        last = nn.Linear(2 * width, out_channels)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.out = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), last)
        hidden, numbers = 4 * width, 2 * width * layers
        self.embed = nn.Sequential(nn.Linear(STEP_WIDTH, hidden), nn.GELU(), nn.Linear(hidden, numbers)) if time else None

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        finest = x.shape[2]
        points = finest if self.points is None else min(self.points, finest)
        if points < 2 * self.modes - 1:
            raise UserError(
                f"a grid of {points} points is too small for {self.modes} modes; "
                f"use at least {2 * self.modes - 1} points, or fewer modes"
            )
        y = x.permute(2, 0, 1)  # (points, batch, channel): the transform of all fields is one matrix product
        if points < finest:
            y = (resampling(finest, points).to(x) @ y.flatten(1)).view(points, *y.shape[1:])
        if self.coordinates:
            coordinate = torch.linspace(0, 1, points, device=x.device, dtype=x.dtype)
            y = torch.cat((y, coordinate[:, None, None].expand(points, len(x), 1)), 2)
        y = self.lift(y)
        steps: list[Tensor | None] = [None] * len(self.layers)
        if self.embed is not None and n is not None:
            steps = list(self.embed(sinusoid(n, STEP_WIDTH, x.dtype)).chunk(len(self.layers), 1))
        transform, inverse = (matrix.to(x) for matrix in transforms(points, self.modes))
        for layer, scale_shift in zip(self.layers, steps, strict=True):
            y = layer(y, transform, inverse, scale_shift)
        y = self.out(y)
        if points < finest:
            y = (resampling(points, finest).to(x) @ y.flatten(1)).view(finest, *y.shape[1:])
        output: Tensor = y.permute(1, 2, 0).contiguous()
        return output


@lru_cache(maxsize=16)
def transforms(points: int, modes: int) -> tuple[Tensor, Tensor]:
    """Return F and F⁻¹ on the lowest modes, in double precision.

    Returns:
        F, (2·modes, points), with the rows cos/points and then −sin/points; and F⁻¹, (points, 2·modes), where modes k ≥ 1
        have the factor 2, because they also stand for their conjugates.
    """
    k, i = (torch.arange(count, dtype=torch.float64) for count in (modes, points))
    angle = 2 * math.pi * torch.outer(k, i) / points
    transform = torch.cat((angle.cos(), -angle.sin())) / points
    twice = torch.full((modes, 1), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    return transform, torch.cat((twice * angle.cos(), -twice * angle.sin())).T.contiguous()


@lru_cache(maxsize=16)
def resampling(points: int, others: int) -> Tensor:
    """Return the matrix from one grid to another, (others, points), by the modes that both have."""
    modes = (min(points, others) + 1) // 2
    return transforms(others, modes)[1] @ transforms(points, modes)[0]


class _Layer(nn.Module):
    """x + W₂ σ(W₁((scale + 1)·(Kx + Wx) + shift)); scale and shift depend on the step n, and are 0 without it."""

    def __init__(self, modes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(modes, width, width, 2) * (0.5 / width))  # R, real and imaginary parts
        self.skip, self.first, self.second = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, transform: Tensor, inverse: Tensor, scale_shift: Tensor | None) -> Tensor:
        """Map x (points, batch, width) to the same shape; transform and inverse as in `transforms`."""
        points, batch, width = x.shape
        modes = len(self.weight)
        x_hat = (transform @ x.flatten(1)).view(2, modes, batch, width).permute(1, 2, 0, 3).reshape(modes, batch, 2 * width)
        real, imaginary = self.weight.unbind(3)
        r = torch.cat((torch.cat((real, imaginary), 2), torch.cat((-imaginary, real), 2)), 1)  # acts on (Re, Im)
        y_hat = torch.bmm(x_hat, r).view(modes, batch, 2, width).permute(2, 0, 1, 3).reshape(2 * modes, batch * width)
        y = (inverse @ y_hat).view(points, batch, width) + self.skip(x)
        if scale_shift is not None:
            scale, shift = scale_shift.chunk(2, 1)
            y = torch.addcmul(shift, y, scale + 1)
        z: Tensor = x + self.second(F.gelu(self.first(y)))
        return z
