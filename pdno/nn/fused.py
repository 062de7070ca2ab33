"""The two halves of a linear attention, with derivatives by hand.

    gather:   S = softmax_n(z W_kᵀ)ᵀ z      over positions n: (batch, n, c) → (batch, inner, c)
    scatter:  y = softmax_h(z W_qᵀ) M + b   over the features of each head: (batch, n, c) → (batch, n, c)

At the finest level q and k are several times larger than the field itself. Here they live for a few samples at a time, small
enough for the cache, and are made again for the derivative instead of being kept; that is faster than moving them, and halves
the memory of a training step.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

__all__ = ["FEATURES", "HEADS", "INNER", "gather", "scatter"]

HEADS = 4
FEATURES = 32  # of a head
INNER = HEADS * FEATURES
BLOCK = 2**20  # numbers in a part of q or k: 4 MB in single precision


def gather(z: Tensor, w: Tensor) -> Tensor:
    """softmax_n(z wᵀ)ᵀ z: (batch, n, c), (inner, c) → (batch, inner, c)."""
    return _exact(_Gather, z, w)


def scatter(z: Tensor, w: Tensor, m: Tensor, bias: Tensor) -> Tensor:
    """softmax_h(z wᵀ) m + bias: (batch, n, c), (inner, c), (batch, inner, c), (c,) → (batch, n, c)."""
    return _exact(_Scatter, z, w, m, bias)


def _exact(function: type[Function], *inputs: Tensor) -> Tensor:
    """Apply a function in the type of its weights: mixed precision leaves it alone."""
    z, w = inputs[:2]
    if not torch.is_autocast_enabled(z.device.type):
        return function.apply(*inputs)  # type: ignore[no-any-return, no-untyped-call]
    with torch.autocast(z.device.type, enabled=False):
        return function.apply(*(x.to(w.dtype) for x in inputs))  # type: ignore[no-any-return, no-untyped-call]


def _head_softmax(q: Tensor) -> Tensor:
    """softmax over the features of each head: (batch, n, inner) → (batch, n, inner)."""
    return _heads(q).softmax(-1).view(q.shape)


def _heads(q: Tensor) -> Tensor:
    return q.view(*q.shape[:-1], HEADS, FEATURES)


def _parts(z: Tensor) -> Iterator[slice]:
    """Slices of the batch; one for all on devices other than the processor."""
    size = max(1, BLOCK // (z.shape[1] * INNER)) if z.device.type == "cpu" else len(z)
    return (slice(low, low + size) for low in range(0, len(z), size))


class _Gather(Function):
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
        """With ℓ = z wᵀ: dℓ = k⊙(z dsᵀ − Σ_n k⊙z dsᵀ), where the sum over positions is Σ_c s⊙ds."""
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
            dp = torch._softmax_backward_data(_heads(dq), _heads(q), -1, q.dtype).view(-1, INNER)
            torch.mm(dp, w, out=dz[part].flatten(0, 1))
            dw.addmm_(dp.T, z[part].flatten(0, 1))
        return dz, dw, dm, dy.sum((0, 1))
