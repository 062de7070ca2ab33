"""Kernels of inputs: k(a, b) = κ(|φ(a) − φ(b)|/ℓ) on weighted modes φ, as `pdno.mean.kernel.kernel` describes them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...modes import Waves, modes, squared_waves
from ..base import Array

__all__ = ["KERNELS", "Hyper", "Units", "unit_of"]

KERNELS = ("rq", "matern52", "linear", "gaussian", "matern32")
MODES, SHIFT = 8192, 2.0  # most modes, and 2 in |k|² + 2


class Hyper(NamedTuple):
    """What is chosen: κ, ℓ, s, α, the weight of scalars against fields, and whether a is taken by its logarithm."""

    kernel: str = "matern52"
    length: float = 4.0
    exponent: float = 1.0
    shape: float = 0.5
    balance: float = 1.0
    log: bool = False

    def gram(self, f: Array, g: Array) -> Array:
        """k(a, b) for features (n, d) and (m, d): (n, m)."""
        inner = f @ g.T
        return self.of(inner, np.square(f).sum(axis=1)[:, None] + np.square(g).sum(axis=1) - 2 * inner)

    def of(self, inner: Array, distance: Array) -> Array:
        """k from φ(a)ᵀφ(b) and |φ(a) − φ(b)|²."""
        if self.kernel == "linear":
            return inner
        q = np.maximum(distance, 0) / self.length**2
        if self.kernel == "rq":
            return np.asarray((1 + q / (2 * self.shape)) ** -self.shape)
        if self.kernel == "gaussian":
            return np.asarray(np.exp(-q / 2))
        r = np.sqrt((5 if self.kernel == "matern52" else 3) * q)
        return np.asarray((1 + r + (r**2 / 3 if self.kernel == "matern52" else 0)) * np.exp(-r))

    def near(self, step: float, scalars: bool) -> Iterator["Hyper"]:
        """Neighbours, for a search."""
        for sign in (1, -1):
            length, balance = (round(x * 2 ** (sign * step), 6) for x in (self.length, self.balance))
            yield self._replace(exponent=max(0.0, self.exponent + sign * step / 2))
            if self.kernel != "linear":
                yield self._replace(length=length)
            if self.kernel == "rq":
                yield self._replace(shape=round(self.shape * 4 ** (sign * step), 6))
            if scalars:
                yield self._replace(balance=balance)
                yield self._replace(balance=balance, length=length)


class Units(NamedTuple):
    """Of each channel and scalar, and the mean square of each channel's modes by |k|."""

    centre: Array
    scale: Array
    middle: Array
    spread: Array
    power: Array

    @classmethod
    def of(cls, a: Array, scalars: Array, log: bool, waves: Waves) -> "Units":
        x, axes = np.log(a) if log else a, (0, *range(2, a.ndim))
        bare = cls(x.mean(axis=axes), unit_of(x, axes), scalars.mean(axis=0), unit_of(scalars, (0,)), np.zeros(0))
        found = bare.modes(a, scalars, log, waves)[:, : -scalars.shape[1] or None]
        return bare._replace(power=np.square(found).mean(axis=0).reshape(a.shape[1], -1))

    def modes(self, a: Array, scalars: Array, log: bool, waves: Waves) -> Array:
        """(sample, feature): the lowest modes of each channel, whole rings of them, and scalars."""
        wide, order = (-1, *(1 for _ in waves)), np.argsort(squares := squared_waves(a.shape[2:], waves), kind="stable")
        if len(order) > MODES // a.shape[1]:
            order = order[squares[order] < squares[order[MODES // a.shape[1]]]]
        x = modes(((np.log(a) if log else a) - self.centre.reshape(wide)) / self.scale.reshape(wide), waves)
        x = x.reshape(*x.shape[:2], -1)[..., order].reshape(len(x), -1)
        return np.concatenate([x, (scalars - self.middle) / self.spread], axis=1)

    def weights(self, hyper: Hyper, grid: tuple[int, ...], waves: Waves) -> Array:
        """φ is the product of these and of modes."""
        w = (np.sort(squared_waves(grid, waves))[: self.power.shape[1]] + SHIFT) ** (-hyper.exponent / 2)
        size = np.sqrt((w**2 * self.power).sum(axis=1, keepdims=True))
        return np.concatenate([(w / np.where(size > 0, size, 1)).ravel(), np.full(len(self.middle), hyper.balance)])


def unit_of(x: Array, axes: tuple[int, ...]) -> Array:
    """Standard deviation, or one where that is but rounding."""
    std = x.std(axis=axes)
    return np.where(std > 1e-13 * np.abs(x.mean(axis=axes)), std, 1.0)
