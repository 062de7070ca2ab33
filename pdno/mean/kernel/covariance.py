"""Covariance functions of inputs: k(a, b) = κ(|φ(a) − φ(b)|/ℓ), with weighted modes φ, see `pdno.mean.kernel.kernel`."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..._typing import Floats
from ...basis import Waves, modes, squared_waves

__all__ = ["KERNELS", "Features", "Hyper", "Units", "unit_of"]

KERNELS = ("rq", "matern52", "linear", "gaussian", "matern32")
MOST_MODES = 8192  # of all channels of an input together
SHIFT = 2.0  # in the weights (|k|² + SHIFT)^(−s/2): keeps that of the constant mode finite
ROUNDING = 1e-13  # relative to the mean: a smaller standard deviation is rounding error


class Hyper(NamedTuple):
    """Hyper-parameters of the covariance.

    Args:
        kernel: κ, one of KERNELS.
        length: ℓ.
        exponent: s, of the weights of modes.
        shape: α of the rational quadratic kernel.
        balance: weight of scalars relative to fields.
        log: whether logarithms of the inputs are taken.
    """

    kernel: str = "matern52"
    length: float = 4.0
    exponent: float = 1.0
    shape: float = 0.5
    balance: float = 1.0
    log: bool = False

    def gram(self, f: Floats, g: Floats) -> Floats:
        """Return k(a, b) for features (n, d) and (m, d): (n, m)."""
        inner = f @ g.T
        return self.covariance(inner, np.square(f).sum(axis=1)[:, None] + np.square(g).sum(axis=1) - 2 * inner)

    def covariance(self, inner: Floats, squared_distance: Floats) -> Floats:
        """Return k from φ(a)ᵀφ(b) and |φ(a) − φ(b)|²."""
        if self.kernel == "linear":
            return inner
        q = np.maximum(squared_distance, 0) / self.length**2
        if self.kernel == "rq":
            return np.asarray((1 + q / (2 * self.shape)) ** -self.shape)
        if self.kernel == "gaussian":
            return np.asarray(np.exp(-q / 2))
        r = np.sqrt((5 if self.kernel == "matern52" else 3) * q)
        return np.asarray((1 + r + (r**2 / 3 if self.kernel == "matern52" else 0)) * np.exp(-r))

    def neighbours(self, step: float, scalars: bool) -> Iterator["Hyper"]:
        """Yield the hyper-parameters that a search tries next.

        Args:
            step: log₂ of the factor by which lengths are changed; the others are changed in proportion.
            scalars: whether inputs have scalars, so that `balance` matters.
        """
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
    """Means and standard deviations of inputs, by which features are normalised.

    Args:
        centre, scale: of each channel, (channel,).
        scalar_centre, scalar_scale: of each scalar, (parameter,).
        power: mean square of the normalised modes, in ascending order of |k|, (channel, mode).
    """

    centre: Floats
    scale: Floats
    scalar_centre: Floats
    scalar_scale: Floats
    power: Floats

    @classmethod
    def of(cls, a: Floats, scalars: Floats, log: bool, waves: Waves) -> "Units":
        """Estimate from inputs (sample, channel, *grid) and scalars (sample, parameter)."""
        x, axes = np.log(a) if log else a, (0, *range(2, a.ndim))
        bare = cls(x.mean(axis=axes), unit_of(x, axes), scalars.mean(axis=0), unit_of(scalars, (0,)), np.zeros(0))
        of_fields = bare.modes(a, scalars, log, waves)[:, : -scalars.shape[1] or None]
        return bare._replace(power=np.square(of_fields).mean(axis=0).reshape(a.shape[1], -1))

    def modes(self, a: Floats, scalars: Floats, log: bool, waves: Waves) -> Floats:
        """Return the normalised lowest modes of each channel, all or none of those with equal |k|, and the normalised scalars.

        Returns:
            (sample, feature).
        """
        wide, order = (-1, *(1 for _ in waves)), np.argsort(squares := squared_waves(a.shape[2:], waves), kind="stable")
        if len(order) > MOST_MODES // a.shape[1] and not squares.any():  # on the nodes of a mesh, evenly by their numbers
            order = order[:: -(-len(order) * a.shape[1] // MOST_MODES)]
        elif len(order) > MOST_MODES // a.shape[1]:
            order = order[squares[order] < squares[order[MOST_MODES // a.shape[1]]]]
        x = modes(((np.log(a) if log else a) - self.centre.reshape(wide)) / self.scale.reshape(wide), waves)
        x = x.reshape(*x.shape[:2], -1)[..., order].reshape(len(x), -1)
        return np.concatenate([x, (scalars - self.scalar_centre) / self.scalar_scale], axis=1)

    def weights(self, hyper: Hyper, grid: tuple[int, ...], waves: Waves) -> Floats:
        """Return the weights of the features, (feature,): φ is the product of these and of `modes`."""
        w = (np.sort(squared_waves(grid, waves))[: self.power.shape[1]] + SHIFT) ** (-hyper.exponent / 2)
        size = np.sqrt((w**2 * self.power).sum(axis=1, keepdims=True))
        return np.concatenate([(w / np.where(size > 0, size, 1)).ravel(), np.full(len(self.scalar_centre), hyper.balance)])


class Features(NamedTuple):
    """The map (a, scalars) ↦ φ.

    Args:
        hyper: hyper-parameters of the covariance.
        units: of inputs.
        waves: of the inputs' axes, whether each is periodic.
    """

    hyper: Hyper
    units: Units
    waves: Waves

    def __call__(self, a: Floats, scalars: Floats) -> Floats:
        """Return φ for inputs (sample, channel, *grid) and scalars (sample, parameter): (sample, feature)."""
        weights = self.units.weights(self.hyper, a.shape[2:], self.waves)
        return np.asarray(self.units.modes(a, scalars, self.hyper.log, self.waves) * weights)


def unit_of(x: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the standard deviation over some axes; one where it is rounding error."""
    std = x.std(axis=axes)
    return np.where(std > ROUNDING * np.abs(x.mean(axis=axes)), std, 1.0)
