"""A plain implementation of the paper's UNet: conv1d or conv2d on contiguous memory, one operation after the other.

`pdno.nn.UNet` is compared with it: parameters have the same names and, with `load`, outputs are equal up to rounding.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pdno.nn import UNet

HEADS = 4  # of an attention
FEATURES = 32  # of a head


def conv(dim: int, i: int, o: int, k: int, stride: int = 1, padding: int = 0, bias: bool = True) -> nn.Conv1d | nn.Conv2d:
    return (nn.Conv1d if dim == 1 else nn.Conv2d)(i, o, k, stride, padding, bias=bias)


def load(fast: UNet) -> "PlainUNet":
    """Return a plain network with the weights of a `pdno.nn.UNet`, whose kernels have their channels last."""
    settings = fast.settings
    plain = PlainUNet(
        settings["dim"], settings["base"], settings["in_channels"], settings["out_channels"], settings["multipliers"]
    )
    weights = {name: channels_first(value) for name, value in fast.state_dict().items()}
    plain.load_state_dict({name: weights[name].reshape(value.shape) for name, value in plain.state_dict().items()})
    return plain.to(next(fast.parameters()).dtype)


def channels_first(weight: Tensor) -> Tensor:
    return weight.permute(0, 3, 1, 2) if weight.ndim == 4 else weight


class PlainUNet(nn.Module):
    def __init__(self, dim: int, base: int, in_channels: int, out_channels: int, multipliers: list[int]) -> None:
        super().__init__()
        self.base = base
        widths = [base, *(base * m for m in multipliers)]
        levels = len(multipliers)
        self.input = conv(dim, in_channels, base, 7, padding=3)
        self.embed = nn.Sequential(nn.Linear(base, 4 * base), nn.GELU(), nn.Linear(4 * base, 4 * base))
        self.down = nn.ModuleList(Down(dim, widths[i], widths[i + 1], 4 * base, i == levels - 1) for i in range(levels))
        self.middle = Middle(dim, widths[-1], 4 * base)
        self.up = nn.ModuleList(Up(dim, widths[i], widths[i + 1], 4 * base, i == 0) for i in reversed(range(levels)))
        self.final = Final(dim, base, out_channels)

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        x = r = self.input(torch.cat((a, v), dim=1))
        t = self.embed(self.sinusoid(n).to(x.dtype))
        stack: list[Tensor] = []
        for down in self.down:
            x = down(x, t, stack)
        x = self.middle(x, t)
        for up in self.up:
            x = up(x, t, stack)
        y: Tensor = self.final(torch.cat((x, r), dim=1), t)
        return y

    def sinusoid(self, n: Tensor) -> Tensor:
        half = self.base // 2
        frequencies = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000) / (half - 1)))
        angles = (n - 1)[:, None] * frequencies[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, dim: int, i: int, o: int) -> None:
        super().__init__()
        self.dim = dim
        self.conv = conv(dim, i, o, 3, padding=1)
        self.norm = nn.GroupNorm(8, o)

    def forward(self, x: Tensor, scale_shift: Tensor | None = None) -> Tensor:
        weight = self.conv.weight
        axes = tuple(range(1, weight.ndim))
        var, mean = torch.var_mean(weight, dim=axes, correction=0, keepdim=True)
        weight = (weight - mean) * (var + 1e-5).rsqrt()
        x = (F.conv1d if self.dim == 1 else F.conv2d)(x, weight, self.conv.bias, padding=1)
        x = self.norm(x)
        if scale_shift is not None:
            scale, shift = scale_shift.reshape(*scale_shift.shape, *[1] * self.dim).chunk(2, dim=1)
            x = x * (scale + 1) + shift
        return F.silu(x)


class ResBlock(nn.Module):
    def __init__(self, dim: int, i: int, o: int, time: int) -> None:
        super().__init__()
        self.time = nn.Linear(time, 2 * o)
        self.first = Block(dim, i, o)
        self.second = Block(dim, o, o)
        self.skip = conv(dim, i, o, 1) if i != o else nn.Identity()

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.first(x, self.time(F.silu(t)))
        y: Tensor = self.second(h) + self.skip(x)
        return y


class Norm(nn.Module):
    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, *[1] * dim))

    def forward(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return (x - mean) * (var + 1e-5).rsqrt() * self.weight


class LinearAttention(nn.Module):
    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.dim = dim
        self.norm = Norm(dim, channels)
        self.qkv = conv(dim, channels, 3 * HEADS * FEATURES, 1, bias=False)
        self.out = conv(dim, HEADS * FEATURES, channels, 1)
        self.out_norm = Norm(dim, channels)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).unflatten(1, (3, HEADS, FEATURES)).unbind(1)
        q = q.softmax(dim=-2) * FEATURES**-0.5
        k = k.softmax(dim=-1)
        v = v / v.shape[-1] if self.dim == 2 else v
        context = torch.einsum("bhdn,bhen->bhde", k, v)
        y = torch.einsum("bhde,bhdn->bhen", context, q)
        x = x + self.out_norm(self.out(y.reshape(len(x), HEADS * FEATURES, *x.shape[2:])))
        return x


class Attention(nn.Module):
    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.norm = Norm(dim, channels)
        self.qkv = conv(dim, channels, 3 * HEADS * FEATURES, 1, bias=False)
        self.out = conv(dim, HEADS * FEATURES, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).unflatten(1, (3, HEADS, FEATURES)).unbind(1)
        weights = torch.einsum("bhdi,bhdj->bhij", q * FEATURES**-0.5, k).softmax(dim=-1)
        y = torch.einsum("bhij,bhdj->bhdi", weights, v)
        x = x + self.out(y.reshape(len(x), HEADS * FEATURES, *x.shape[2:]))
        return x


class Down(nn.Module):
    def __init__(self, dim: int, i: int, o: int, time: int, last: bool) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, i, i, time), ResBlock(dim, i, i, time)
        self.attention = LinearAttention(dim, i)
        self.unshuffle = dim == 2 and not last
        if last:
            self.resize = conv(dim, i, o, 3, padding=1)
        else:
            self.resize = conv(1, i, o, 4, stride=2, padding=1) if dim == 1 else conv(2, 4 * i, o, 1)

    def forward(self, x: Tensor, t: Tensor, stack: list[Tensor]) -> Tensor:
        x = self.first(x, t)
        stack.append(x)
        x = self.attention(self.second(x, t))
        stack.append(x)
        x = self.resize(F.pixel_unshuffle(x, 2) if self.unshuffle else x)
        return x


class Middle(nn.Module):
    def __init__(self, dim: int, channels: int, time: int) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, channels, channels, time), ResBlock(dim, channels, channels, time)
        self.attention = Attention(dim, channels)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x = self.second(self.attention(self.first(x, t)), t)
        return x


class Up(nn.Module):
    def __init__(self, dim: int, i: int, o: int, time: int, last: bool) -> None:
        super().__init__()
        self.first, self.second = ResBlock(dim, o + i, o, time), ResBlock(dim, o + i, o, time)
        self.attention = LinearAttention(dim, o)
        self.upsample = nn.Identity() if last else nn.Upsample(scale_factor=2, mode="nearest")
        self.resize = conv(dim, o, i, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor, stack: list[Tensor]) -> Tensor:
        x = self.first(torch.cat((x, stack.pop()), dim=1), t)
        x = self.second(torch.cat((x, stack.pop()), dim=1), t)
        x = self.resize(self.upsample(self.attention(x)))
        return x


class Final(nn.Module):
    def __init__(self, dim: int, base: int, out_channels: int) -> None:
        super().__init__()
        self.block = ResBlock(dim, 2 * base, base, 4 * base)
        self.out = conv(dim, base, out_channels, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x = self.out(self.block(x, t))
        return x
