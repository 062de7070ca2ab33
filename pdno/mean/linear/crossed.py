r"""Cross-validation of ridge regression for dependent pairs: the error on each fold for all penalties, from one decomposition.

Pairs of a group, or of equal inputs, are held out together. With W, s, V of the rows that are kept, x = (φ − φ̄) V s⁻¹ of a row
that is held out, and c = WᵀU, the prediction is f₀ ū + Σ_k f_k x_k c_k. Its square error, summed over the rows of a fold and
over the modes of a band, is quadratic in f = (f₀, f_1, …):

    Σ ‖u − Σ_k f_k x_k c_k‖² = Σ ‖u‖² − 2 fᵀd + fᵀ M f,        M = XᵀX ∘ C Cᵀ,        d = diag(Xᵀ U Cᵀ),

where x_0 = 1 and c_0 = ū: the cost does not depend on the number of penalties.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats

__all__ = ["Fold", "fold_errors"]


class Fold(NamedTuple):
    """A regression without the rows of a fold, and these rows."""

    values: Floats  # s, (k,)
    rows: Floats  # X with x_0 = 1, (row, 1 + k)
    coefficients: Floats  # C with c_0 = ū, (1 + k, mode)
    outputs: Floats  # U of the rows that are held out, (row, mode)
    kept: int  # number of rows that are kept

    def errors(self, shares: Floats, means: Floats, band: NDArray[np.intp]) -> Floats:
        """Return Σ ‖u − û‖² of each band: (f₀, λ, band).

        Args:
            shares: f_k, (k, λ).
            means: candidates for f₀, (f₀,).
            band: number of the band of each mode, (mode,).
        """
        gram, moments = self.rows.T @ self.rows, self.rows.T @ self.outputs
        out = []
        for b in range(int(band.max()) + 1):
            c, u = self.coefficients[:, band == b], self.outputs[:, band == b]
            m, d = gram * (c @ c.T), (c * moments[:, band == b]).sum(axis=1)
            own = (shares * (m[1:, 1:] @ shares)).sum(axis=0) - 2 * d[1:] @ shares
            with_mean = means[:, None] * (means[:, None] * m[0, 0] - 2 * d[0] + 2 * m[0, 1:] @ shares)
            out.append(np.square(u).sum() + own + with_mean)
        return np.stack(out, axis=2)


def fold_errors(
    folds: list[Fold], lost: Callable[[Floats, int], Floats], means: Floats, band: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """Return the mean square error of held-out rows, (f₀, λ, band), and the mean square of outputs, (band,).

    Args:
        folds: the regressions.
        lost: (s, number of rows) ↦ 1 − f_k, (k, λ).
        means: candidates for f₀.
        band: number of the band of each mode.
    """
    count = sum(len(fold.outputs) for fold in folds)
    errors = sum(fold.errors(1 - lost(fold.values, fold.kept), means, band) for fold in folds)
    size = sum(np.bincount(band, np.square(fold.outputs).sum(axis=0)) for fold in folds)
    return np.asarray(errors / count), np.asarray(size / count)
