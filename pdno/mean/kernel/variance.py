"""The posterior variance of kernel regression, relative to the variance s² of outputs, see `pdno.mean.kernel.kernel`:

    v(a) = k(a, a) − k(a)ᵀK_ν⁻¹k(a) + (1 − 1ᵀK_ν⁻¹k(a))²/(1ᵀK_ν⁻¹1),

for each character of the group of symmetries and each nugget ν; the last term belongs to the unknown constant, which the
trivial character has.
"""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..._typing import Floats
from ...symmetry import Symmetry
from .characters import Characters
from .covariance import Features
from .solve import cholesky_of

__all__ = ["Variance"]

BLOCK = 2**22  # numbers of the matrices of all characters that are in memory at a time


class Variance:
    """The function a ↦ v(a). It keeps the Cholesky factors of K_ν and the features of the training inputs.

    Args:
        split: characters of the group whose copies of the pairs were trained on.
        features: of inputs.
        a, s: training inputs and scalars.
        nuggets: ν.
    """

    def __init__(self, split: Characters, features: Features, a: Floats, s: Floats, nuggets: Floats) -> None:
        self.split, self.features = split, features
        self.trained = [features(g.on_a(a), s) for g in split.elements]  # of the copies of the training inputs
        self.factors: list[list[tuple[Floats, Floats]]] = []  # for each character and nugget the factor, and K_ν⁻¹1
        for k in self._matrices(self.trained[0]):
            factors = [cholesky_of(k, nugget) for nugget in nuggets]
            self.factors.append([(factor, cho_solve((factor, True), np.ones(len(k)))) for factor in factors])

    def _matrices(self, phi: Floats, new: bool = False) -> list[Floats]:
        """Return for each character the matrix of k_χ between inputs with features φ and the training inputs."""
        gram, elements = self.features.hyper.gram, self.split.elements
        return self.split.matrices(lambda g: gram(phi, self.trained[elements.index(g)]), new)

    def __call__(self, a: Floats, s: Floats, images: Sequence[Symmetry]) -> Floats:
        """Return v for new inputs, averaged over their images: (sample, character, nugget); some inputs at a time."""
        width = len(self.split.signs) * len(self.split.copies) * len(self.trained[0])
        rows = max(1, BLOCK // width)
        parts = [self._block(a[i : i + rows], s[i : i + rows], images) for i in range(0, len(a), rows)]
        return np.concatenate(parts) if parts else self._block(a, s, images)

    def _block(self, a: Floats, s: Floats, images: Sequence[Symmetry]) -> Floats:
        split, covariance = self.split, self.features.hyper.covariance
        variances = np.zeros((len(a), len(self.factors), len(self.factors[0])))
        for image in images:
            phi = self.features(image.on_a(a), s)
            copies = [self.features(split.elements[g].on_a(image.on_a(a)), s) for g in split.subgroup]
            own = [covariance((phi * f).sum(axis=1), np.square(phi - f).sum(axis=1)) for f in copies]
            for x, k in enumerate(self._matrices(phi, new=True)):
                for i, (factor, ones) in enumerate(self.factors[x]):
                    v = split.signs[x] @ own - np.square(solve_triangular(factor, k.T, lower=True)).sum(axis=0)
                    variances[:, x, i] += (v + (x == 0) * (1 - k @ ones) ** 2 / ones.sum()) / len(images)
        return variances
