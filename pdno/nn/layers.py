"""What the networks share: their protocol, the sinusoid of the step n, and the layers of the UNet.

The layers work on (batch, channel, height, width) in channels-last memory, where convolutions are fastest and the tokens
(batch, height·width, channel) of an attention are a view. A 1-D field is one of height 1, a 1-D kernel one of shape (1, k).
"""

import math
from abc import ABC, abstractmethod
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .fused import FEATURES, HEADS, INNER, gather, scatter

__all__ = ["Attention", "Block", "Conv", "LinearAttention", "Network", "Pointwise", "ResBlock", "crop", "sinusoid"]

EPS = 1e-5
GROUPS = 8


class Network(nn.Module, ABC):
    """A network with ``forward(n, v, a)``, or ``forward(a)`` with time=False.

    Args of forward:
        n: the step 1 … N, an integer or a tensor (batch,) of them.
        v: the field at step n, (batch, channel, *grid).
        a: the parameters, (batch, channel, *grid).

    The result is (batch, out_channels, *grid). ``type(net)(**net.settings)`` builds the same network with new weights.
    """

    def __init__(self, dim: int, in_channels: int, out_channels: int, time: bool, **more: Any) -> None:
        super().__init__()
        self.dim, self.in_channels, self.time = dim, in_channels, time
        self.settings = {"dim": dim, "in_channels": in_channels, "out_channels": out_channels, "time": time, **more}
        for name, value in self.settings.items():
            numbers = value if isinstance(value, list) else [value]
            if name != "time" and not (numbers and all(isinstance(number, int) and number > 0 for number in numbers)):
                raise UserError(f"{name} = {value!r}: a network needs whole numbers of at least 1")

    def forward(self, *inputs: Any) -> Tensor:
        """ε_θ(n, v, a), or the plain regression s_θ(a)."""
        if len(inputs) != (3 if self.time else 1):
            raise UserError(f"the network got {len(inputs)} inputs; with time={self.time} call it as {self._call}")
        fields = inputs[:0:-1] if self.time else inputs  # a comes first: "(a, u_n)"
        for field in fields:
            self._check(field)
        if len({(len(field), field.shape[2:]) for field in fields}) > 1:
            raise UserError(f"v is {_shape(inputs[1])} and a is {_shape(inputs[2])}; they need the same batch and grid")
        x = torch.cat(fields, 1) if self.time else fields[0]
        if x.shape[1] != self.in_channels:
            raise UserError(
                f"the inputs have {x.shape[1]} channels, but the network was made with in_channels={self.in_channels}"
            )
        return self.evaluate(x, self._steps(inputs[0], x) if self.time else None)

    @abstractmethod
    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        """The network on the concatenated fields x (batch, in_channels, *grid) and the steps n (batch,)."""

    @property
    def _call(self) -> str:
        return "network(n, v, a)" if self.time else "network(a)"

    def _check(self, field: Any) -> None:
        if not isinstance(field, Tensor):
            raise UserError(f"the network got a {type(field).__name__}; give it tensors, as {self._call}")
        if field.ndim != self.dim + 2:
            raise UserError(
                f"a {self.dim}-D network takes (batch, channel, {', '.join('xyz'[: self.dim])}); got {_shape(field)}"
            )
        expected = next(chain(self.parameters(), self.buffers())).dtype
        if field.dtype != expected and not torch.is_autocast_enabled(field.device.type):
            raise UserError(
                f"the network computes in {expected}, but got {field.dtype}; convert the field with .to({expected})"
            )

    @staticmethod
    def _steps(n: Any, x: Tensor) -> Tensor:
        steps = torch.as_tensor(n, device=x.device)
        if steps.shape not in ((), (len(x),)):
            raise UserError(f"n has shape {_shape(steps)}; give one step, or one for each of the {len(x)} fields")
        return steps.expand(len(x))


def _shape(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"


def crop(x: Tensor, grid: torch.Size) -> Tensor:
    """The near corner of a padded field."""
    for axis, side in enumerate(grid, x.ndim - len(grid)):
        x = x.narrow(axis, 0, side)
    return x


def sinusoid(n: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """sin and cos of (n − 1)·exp(−ln 10⁴·i/(width/2 − 1)), i = 0 … width/2 − 1: (batch,) → (batch, width)."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=n.device, dtype=dtype) * (-math.log(1e4) / (half - 1)))
    angles = (n - 1).to(dtype)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), 1)


class Conv(nn.Module):
    """A convolution with k points along each axis of the field, which keeps the size when stride = 1.

    The kernel is kept as (out, height, width, in), so that neither it nor its gradient is ever reordered.
    """

    def __init__(self, dim: int, i: int, o: int, k: int, stride: int = 1) -> None:
        super().__init__()
        pad = (k - 1) // 2
        self.stride, self.padding = ((1, stride), (0, pad)) if dim == 1 else ((stride, stride), (pad, pad))
        bound = (i * k**dim) ** -0.5
        self.weight = nn.Parameter(torch.empty(o, 1 if dim == 1 else k, k, i).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(o).uniform_(-bound, bound))

    def kernel(self) -> Tensor:
        return self.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel().permute(0, 3, 1, 2), self.bias, self.stride, self.padding)


class StandardConv(Conv):
    """The kernel at mean 0 and variance 1 for each output channel."""

    def kernel(self) -> Tensor:
        return F.layer_norm(self.weight, self.weight.shape[1:], eps=EPS)


class Pointwise(nn.Linear):
    """A 1×1 convolution."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """SiLU((scale + 1)·GroupNorm(W̃ ∗ x) + shift), with W̃ the kernel at mean 0 and variance 1."""

    def __init__(self, dim: int, i: int, o: int) -> None:
        super().__init__()
        self.conv = StandardConv(dim, i, o, 3)
        self.norm = nn.GroupNorm(GROUPS, o, EPS)

    def forward(self, x: Tensor, scale_shift: Tensor | None = None) -> Tensor:
        x = torch.group_norm(self.conv(x), GROUPS, self.norm.weight, self.norm.bias, EPS)
        if scale_shift is not None:
            scale, shift = scale_shift[:, :, None, None].chunk(2, 1)
            x = torch.addcmul(shift, x, scale + 1)
        return F.silu(x)


class ResBlock(nn.Module):
    """Two blocks and a skip; the embedding of the step gives scale and shift of the first."""

    def __init__(self, dim: int, i: int, o: int, time: int | None) -> None:
        super().__init__()
        self.time = nn.Linear(time, 2 * o) if time else None
        self.first, self.second = Block(dim, i, o), Block(dim, o, o)
        self.skip = Pointwise(i, o) if i != o else nn.Identity()

    def forward(self, x: Tensor, t: Tensor | None) -> Tensor:
        """x (batch, i, h, w) and SiLU of the embedding t (batch, time) → (batch, o, h, w)."""
        y: Tensor = self.second(self.first(x, self.time(t) if self.time else None))
        return y.add_(self.skip(x))


def _tokens(x: Tensor) -> Tensor:
    """(batch, channel, h, w) → (batch, h·w, channel): a view in channels-last memory."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _field(tokens: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_tokens`."""
    return tokens.view(len(like), *like.shape[2:], -1).permute(0, 3, 1, 2)


def _heads(qkv: Tensor) -> Tensor:
    """(batch, n, 3·inner) → q, k, v of each head: (3, batch, head, n, feature)."""
    return qkv.view(*qkv.shape[:2], 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)


def _merge(y: Tensor) -> Tensor:
    """(batch, head, n, feature) → (batch, n, inner)."""
    return y.transpose(1, 2).flatten(2)


class LinearAttention(nn.Module):
    """x + LN(Σ_heads W_o vᵀk q): q softmax over features and scaled, k softmax over positions; in 2-D v/(h·w)."""

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.dim = dim
        self.norm = nn.LayerNorm(channels, EPS, bias=False)
        self.qkv = nn.Linear(channels, 3 * INNER, bias=False)
        self.out = nn.Linear(INNER, channels)
        self.out_norm = nn.LayerNorm(channels, EPS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(_tokens(x))
        factor = FEATURES**-0.5 / (z.shape[1] if self.dim > 1 else 1)
        y = self._many(z, factor) if z.shape[1] > z.shape[2] else self._few(z, factor)
        return _field(self.out_norm(y), x).add_(x)

    def _few(self, z: Tensor, factor: float) -> Tensor:
        """Few positions: kᵀv of each head, as written."""
        q, k, v = _heads(self.qkv(z))
        y: Tensor = self.out(_merge(q.softmax(3) @ (factor * (k.softmax(2).mT @ v))))
        return y

    def _many(self, z: Tensor, factor: float) -> Tensor:
        """Many positions: W_o vᵀk = W_o W_v zᵀk is a small matrix for each head, and v is never formed."""
        w_q, w_k, w_v = self.qkv.weight.chunk(3)
        w_o = (self.out.weight * factor).T
        seen = gather(z, w_k).view(len(z), HEADS, FEATURES, -1) @ w_v.view(HEADS, FEATURES, -1).mT
        return scatter(z, w_q, (seen @ w_o.view(HEADS, FEATURES, -1)).flatten(1, 2), self.out.bias)


class Attention(nn.Module):
    """x + W_o softmax(q kᵀ/√32) v over all positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, EPS, bias=False)
        self.qkv = nn.Linear(channels, 3 * INNER, bias=False)
        self.out = nn.Linear(INNER, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = _merge(F.scaled_dot_product_attention(*_heads(self.qkv(self.norm(_tokens(x))))))
        return _field(self.out(y), x).add_(x)
