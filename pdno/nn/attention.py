"""Attention layers of the UNet, linear and full.

    linear attention:   y = W_o Σ_n v_nᵀ k_n q,     q softmax over the features of a head, k softmax over the positions n
    full attention:     y = W_o softmax(q kᵀ/√32) v

For many positions, linear attention is computed in two halves with hand-written derivatives:

    gather:   S = softmax_n(z W_kᵀ)ᵀ z      over positions n: (batch, n, c) → (batch, inner, c)
    scatter:  y = softmax_h(z W_qᵀ) M + b   over the features of each head: (batch, n, c) → (batch, n, c)

At the finest level q and k are several times larger than the field itself. The two halves compute them for a few samples at a
time, small enough for the cache, and recompute them in the backward pass instead of storing them. This is faster than moving
them through memory, and halves the memory of a training step.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from .layers import EPS

__all__ = ["Attention", "LinearAttention", "gather", "scatter"]

HEADS = 4  # number of heads
FEATURES = 32  # of each head
INNER = HEADS * FEATURES
BLOCK = 2**20  # entries of q or k that are computed at once: 4 MB in single precision, about the size of a cache


class LinearAttention(nn.Module):
    """Linear attention with a residual connection, x + LN(Σ_heads W_o vᵀk q).

    q is a softmax over features, scaled by FEATURES^(−½); k is a softmax over positions; in 2-D, v is divided by h·w.
    """

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.dim = dim
        self.norm = nn.LayerNorm(channels, EPS, bias=False)
        self.qkv = nn.Linear(channels, 3 * INNER, bias=False)
        self.out = nn.Linear(INNER, channels)
        self.out_norm = nn.LayerNorm(channels, EPS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channel, h, w) to the same shape."""
        z = self.norm(_tokens(x))
        factor = FEATURES**-0.5 / (z.shape[1] if self.dim > 1 else 1)
        y = self._many(z, factor) if z.shape[1] > z.shape[2] else self._few(z, factor)
        return _field(self.out_norm(y), x).add_(x)

    def _few(self, z: Tensor, factor: float) -> Tensor:
        """Few positions: form kᵀv of each head."""
        q, k, v = _split_heads(self.qkv(z))
        y: Tensor = self.out(_merge_heads(q.softmax(3) @ (factor * (k.softmax(2).mT @ v))))
        return y

    def _many(self, z: Tensor, factor: float) -> Tensor:
        """Many positions: W_o vᵀk = W_o W_v zᵀk is a small matrix for each head, and v is never formed."""
        w_q, w_k, w_v = self.qkv.weight.chunk(3)
        w_o = (self.out.weight * factor).T
        kv = gather(z, w_k).view(len(z), HEADS, FEATURES, -1) @ w_v.view(HEADS, FEATURES, -1).mT
        return scatter(z, w_q, (kv @ w_o.view(HEADS, FEATURES, -1)).flatten(1, 2), self.out.bias)


class Attention(nn.Module):
    """x + W_o softmax(q kᵀ/√32) v over all positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, EPS, bias=False)
        self.qkv = nn.Linear(channels, 3 * INNER, bias=False)
        self.out = nn.Linear(INNER, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channel, h, w) to the same shape."""
        y = _merge_heads(F.scaled_dot_product_attention(*_split_heads(self.qkv(self.norm(_tokens(x))))))
        return _field(self.out(y), x).add_(x)


def _tokens(x: Tensor) -> Tensor:
    """Reshape (batch, channel, h, w) to (batch, h·w, channel): a view in channels-last memory."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _field(tokens: Tensor, like: Tensor) -> Tensor:
    """Invert `_tokens`."""
    return tokens.view(len(like), *like.shape[2:], -1).permute(0, 3, 1, 2)


def _split_heads(qkv: Tensor) -> Tensor:
    """Reshape (batch, n, 3·inner) to q, k, v of each head, (3, batch, head, n, feature)."""
    return qkv.view(*qkv.shape[:2], 3, HEADS, FEATURES).permute(2, 0, 3, 1, 4)


def _merge_heads(y: Tensor) -> Tensor:
    """Reshape (batch, head, n, feature) to (batch, n, inner)."""
    return y.transpose(1, 2).flatten(2)


def gather(z: Tensor, w: Tensor) -> Tensor:
    """Return softmax_n(z wᵀ)ᵀ z: (batch, n, c), (inner, c) → (batch, inner, c)."""
    return _in_full_precision(_Gather, z, w)


def scatter(z: Tensor, w: Tensor, m: Tensor, bias: Tensor) -> Tensor:
    """Return softmax_h(z wᵀ) m + bias: (batch, n, c), (inner, c), (batch, inner, c), (c,) → (batch, n, c)."""
    return _in_full_precision(_Scatter, z, w, m, bias)


def _in_full_precision(function: type[Function], *inputs: Tensor) -> Tensor:
    """Apply a function in the type of its weights, also under mixed precision."""
    z, w = inputs[:2]
    if not torch.is_autocast_enabled(z.device.type):
        return function.apply(*inputs)  # type: ignore[no-any-return, no-untyped-call]
    with torch.autocast(z.device.type, enabled=False):
        return function.apply(*(x.to(w.dtype) for x in inputs))  # type: ignore[no-any-return, no-untyped-call]


def _head_softmax(q: Tensor) -> Tensor:
    """Apply softmax over the features of each head: (batch, n, inner) → (batch, n, inner)."""
    return _by_head(q).softmax(-1).view(q.shape)


def _by_head(q: Tensor) -> Tensor:
    """Reshape (batch, n, inner) to (batch, n, head, feature)."""
    return q.view(*q.shape[:-1], HEADS, FEATURES)


def _parts(z: Tensor) -> Iterator[slice]:
    """Return slices of the batch; on devices other than the CPU one for all samples."""
    size = max(1, BLOCK // (z.shape[1] * INNER)) if z.device.type == "cpu" else len(z)
    return (slice(low, low + size) for low in range(0, len(z), size))


class _Gather(Function):
    """`gather` with its derivative."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, w: Tensor) -> Tensor:
        s = z.new_empty(len(z), len(w), z.shape[2])
        log_sum = z.new_empty(len(z), 1, len(w))
        for part in _parts(z):
            k = z[part] @ w.T
            top = k.amax(1, keepdim=True)
            total = k.sub_(top).exp_().sum(1, keepdim=True)
            s[part] = torch.bmm(k.mT, z[part]).div_(total.mT)
            log_sum[part] = total.log_().add_(top)
        ctx.save_for_backward(z, w, s, log_sum)
        return s

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ds: Tensor) -> tuple[Tensor, Tensor]:
        """Return dz and dw; with ℓ = z wᵀ, dℓ = k⊙(z dsᵀ − Σ_n k⊙z dsᵀ), where the sum over positions is Σ_c s⊙ds."""
        z, w, s, log_sum = ctx.saved_tensors
        mean = (s * ds).sum(2)[:, None]
        dz, dw = z.new_empty(z.shape), torch.zeros_like(w)
        for part in _parts(z):
            k = (z[part] @ w.T).sub_(log_sum[part]).exp_()
            dl = torch.bmm(z[part], ds[part].mT).sub_(mean[part]).mul_(k).flatten(0, 1)
            torch.bmm(k, ds[part], out=dz[part])
            dz[part].flatten(0, 1).addmm_(dl, w)
            dw.addmm_(dl.T, z[part].flatten(0, 1))
        return dz, dw


class _Scatter(Function):
    """`scatter` with its derivative."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, w: Tensor, m: Tensor, bias: Tensor) -> Tensor:
        y = z.new_empty(z.shape)
        for part in _parts(z):
            torch.baddbmm(bias, _head_softmax(z[part] @ w.T), m[part], out=y[part])
        ctx.save_for_backward(z, w, m)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        z, w, m = ctx.saved_tensors
        dz, dw, dm = z.new_empty(z.shape), torch.zeros_like(w), m.new_empty(m.shape)
        for part in _parts(z):
            q = _head_softmax(z[part] @ w.T)
            torch.bmm(q.mT, dy[part], out=dm[part])
            dq = torch.bmm(dy[part], m[part].mT)
            dp = torch._softmax_backward_data(_by_head(dq), _by_head(q), -1, q.dtype).view(-1, INNER)
            torch.mm(dp, w, out=dz[part].flatten(0, 1))
            dw.addmm_(dp.T, z[part].flatten(0, 1))
        return dz, dw, dm, dy.sum((0, 1))
