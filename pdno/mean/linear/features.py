r"""Features φ of an input, for regressions that are linear in them.

    φ(x) = (z, w·(t_i t_j)_{i ≤ j}),        t = Dᵀz,

where x are all values of the input and its scalars, or the logarithms of those that are positive, z is x with each channel and
each scalar centred and divided by its total standard deviation, so that units of measurement do not matter, and D are the
leading principal directions of z. Products add the curvature of an operator where inputs vary most.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Mask
from ...errors import UserError

__all__ = ["Features"]

WEIGHTS = (0.3, 1.0, 0.1)  # of products, relative to that at which they are as large as the components; in the order of trial
VARIANCE_ROUNDING = 1e-24  # relative to the squared mean: a smaller variance is rounding error
PRODUCT_ROUNDING = 1e-10  # relative to the products: a smaller variation of them is rounding error


@dataclass(frozen=True, eq=False)
class Features:
    """The map x ↦ φ, for rows of x.

    Args:
        logged: 1 for values of which logarithms are taken, (value,).
        origin, scale: by which values are normalised, (value,).
        leading: D, (value, component); without components there are no products.
        weight: w, (1,).
    """

    logged: Floats
    origin: Floats
    scale: Floats
    leading: Floats
    weight: Floats

    @classmethod
    def of(cls, x: Floats, group: NDArray[np.intp], logged: Mask) -> Self:
        """Estimate the normalisation; there are no products.

        Args:
            x: (sample, value).
            group: number of the channel or scalar of each value, (value,).
            logged: of which values logarithms are taken, (value,).
        """
        y = _logarithms(x, logged)
        origin = y.mean(axis=0)
        variance, size = np.bincount(group, np.square(y - origin).mean(axis=0)), np.bincount(group, np.square(origin))
        scale = np.sqrt(np.where(variance > VARIANCE_ROUNDING * size, variance, 1.0))[group]
        return cls(logged.astype(np.float64), origin, scale, np.zeros((len(group), 0)), np.zeros(1))

    def plain(self) -> Self:
        """Return the features that are the values themselves, or their logarithms."""
        zero = np.zeros_like(self.origin)
        return replace(self, origin=zero, scale=zero + 1, leading=np.zeros((len(zero), 0)), weight=np.zeros(1))

    def with_products(self, z: Floats, leading: Floats) -> Iterator[Self]:
        """Yield these features with products, for each of WEIGHTS.

        At w = 1 products are as large as the components, in the mean square over all pairs. The number of components is limited
        such that there are fewer products than half the number of pairs.

        Args:
            z: (sample, value).
            leading: principal directions, (value, component).
        """
        leading = leading[:, : int(np.sqrt(1 + 4 * len(z)) - 1) // 2]
        t = z @ leading
        products = _products(t)
        size = np.linalg.norm(products - products.mean(axis=0))
        if size > PRODUCT_ROUNDING * np.linalg.norm(products):
            for weight in WEIGHTS:
                yield replace(self, leading=leading, weight=np.array([weight * np.linalg.norm(t) / size]))

    def __call__(self, x: Floats) -> Floats:
        """Return φ, (sample, feature), for rows x (sample, value)."""
        z = (_logarithms(x, self.logged > 0) - self.origin) / self.scale
        return np.concatenate([z, self.weight * _products(z @ self.leading)], axis=1) if self.leading.size else z


def _products(t: Floats) -> Floats:
    i, j = np.triu_indices(t.shape[1])
    return t[:, i] * t[:, j]


def _logarithms(x: Floats, logged: Mask) -> Floats:
    """Return x with the logarithms of some columns."""
    if not logged.any():
        return x
    if not (x[:, logged] > 0).all():
        raise UserError(
            f"inputs have values down to {x[:, logged].min():g}, but training inputs were positive and their logarithms are "
            "taken; give positive inputs, or train with log=False"
        )
    return np.log(x, out=x.copy(), where=logged)
