r"""Numbers φ that stand for an input in a regression that is linear in them.

    φ(x) = (z, w·(t_i t_j)_{i ≤ j}),        t = Dᵀz,

x being all values of the input and its scalars, or the logarithms of those that are positive, z the same with each channel and
each scalar about its mean and in units of its total standard deviation, so that no unit of measurement matters, and D the
leading principal directions of z. Products bring in the curvature of an operator where inputs vary most.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ..base import Array

__all__ = ["Features"]

WEIGHTS = (0.3, 1.0, 0.1)  # w, relative


@dataclass(frozen=True, eq=False)
class Features:
    """x ↦ φ, for rows of x."""

    logged: Array  # 1 where a logarithm is taken
    origin: Array
    scale: Array
    leading: Array  # D, (number, component); with no component there are no products
    weight: Array  # w

    @classmethod
    def of(cls, x: Array, group: NDArray[np.intp], logged: NDArray[np.bool_]) -> Self:
        """Without products; group numbers the channel or scalar of each number."""
        y = _logs(x, logged)
        origin = y.mean(axis=0)
        variance, size = np.bincount(group, np.square(y - origin).mean(axis=0)), np.bincount(group, np.square(origin))
        scale = np.sqrt(np.where(variance > 1e-24 * size, variance, 1.0))[group]  # less is rounding
        return cls(logged.astype(np.float64), origin, scale, np.zeros((len(group), 0)), np.zeros(1))

    def plain(self) -> Self:
        """The numbers themselves, or their logarithms."""
        zero = np.zeros_like(self.origin)
        return replace(self, origin=zero, scale=zero + 1, leading=np.zeros((len(zero), 0)), weight=np.zeros(1))

    def with_products(self, z: Array, leading: Array) -> Iterator[Self]:
        """With as many leading components as have fewer products than half the pairs, for each of the weights.

        At w = 1 products are as large, in the mean square over all pairs, as the components are.
        """
        leading = leading[:, : int(np.sqrt(1 + 4 * len(z)) - 1) // 2]
        t = z @ leading
        products = _products(t)
        size = np.linalg.norm(products - products.mean(axis=0))
        if size > 1e-10 * np.linalg.norm(products):
            for weight in WEIGHTS:
                yield replace(self, leading=leading, weight=np.array([weight * np.linalg.norm(t) / size]))

    def __call__(self, x: Array) -> Array:
        z = (_logs(x, self.logged > 0) - self.origin) / self.scale
        return np.concatenate([z, self.weight * _products(z @ self.leading)], axis=1) if self.leading.size else z


def _products(t: Array) -> Array:
    i, j = np.triu_indices(t.shape[1])
    return t[:, i] * t[:, j]


def _logs(x: Array, logged: NDArray[np.bool_]) -> Array:
    """x with the logarithms of some columns."""
    if not logged.any():
        return x
    if not (x[:, logged] > 0).all():
        raise UserError(
            f"inputs have values down to {x[:, logged].min():g}, but those learned from were positive and their logarithms are "
            "taken; give positive inputs, or learn with log=False"
        )
    return np.log(x, out=x.copy(), where=logged)
