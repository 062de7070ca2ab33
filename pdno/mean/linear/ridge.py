r"""Ridge regression of fields on features φ, with a penalty for each band of output modes.

    Û = (f₀/n) 1 1ᵀU + Σ_k f_k w_k w_kᵀU,        f_k = s_k² / (s_k² + nλ),        Φ = W S Vᵀ,

for n centred rows Φ of features and coefficients U (n, mode) of the outputs, minimises n⁻¹‖U − 1bᵀ − ΦB‖² + λ‖B‖² if f₀ = 1.
One decomposition gives generalised cross-validation (Golub, Heath and Wahba 1979) and leave-one-out residuals,

    GCV(λ, f₀) = n ‖U − Û‖² / (n − f₀ − Σ_k f_k)²,        u_i − m_{−i}(a_i) = (u_i − û_i) / (1 − f₀/n − Σ_k f_k w_ik²),

which are exact for the penalties that were selected on all pairs (and, if f₀ < 1, with the mean of all inputs as the centre).

**Bands.** A field is smooth, whereas its noise is in all modes. Hence coefficients are taken in an orthonormal basis,

    nodes         the values themselves, one penalty for all of a channel, f₀ = 1,
    cosines       of the DCT-II,
    polynomials   orthogonal on equidistant nodes (Gram's), for fields that satisfy no boundary condition,

and modes share λ and f₀ if their |k|², k being the index, has the same number of binary digits. These half octaves are wide
enough that penalties are hardly selected by chance; λ = ∞ drops a band. The basis with the smallest GCV is selected.

**Dependent pairs.** GCV leaves out one pair while others of its group, or of the same input, stay. For such pairs the error on
folds of whole groups (`pdno.mean.linear.crossed`) takes the place of GCV.

**Few pairs.** The GCV of a single mode may have its minimum at λ → 0 by chance. The likelihood of B ~ N(0, σ²/(nλ)), whose
logarithm is −½(n − 1) log Σ_k (1 − f_k)(w_kᵀu)² + ½ Σ_k log(1 − f_k) for n − 1 numbers w_kᵀu, has no such minimum: λ is at
least the value one step of the grid below the most likely one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn
from scipy.linalg import eigh_tridiagonal

from ..._typing import Floats, Ints
from ...data.split import folds
from ...draw import generator
from ..base import steady
from .crossed import Fold, fold_errors

__all__ = ["BASES", "EXACT", "FINEST", "Affine", "Ridge", "relative_error"]

BASES = ("nodes", "cosines", "polynomials")
PENALTIES = np.concatenate([[0.0], np.geomspace(1e-14, 1e3, 52), [np.inf]])  # candidates for λ, ascending
MEANS = np.linspace(1, 0, 11)  # candidates for f₀
RANK = 1e-13  # relative to the largest s²: smaller ones are rounding error
EXACT = 1e-24  # score, a fraction of the variance, below which nothing is left to improve
SMALLEST = 1e-10  # divisor of leave-one-out residuals: with a smaller one they are not reliable
FOLDS = 5  # of dependent pairs
MOST_CROSSED = 1024  # dependent pairs that select penalties, if there are more
CANCELLED = 1e-12  # error on folds, relative to the mean square of outputs, below which it is rounding error
FINEST = 2048  # points along an axis up to which polynomials are tried, as their matrix has the square of that


@dataclass(frozen=True, eq=False)
class Affine:
    """The map φ ↦ intercept + ((φ − centre) directions) modes.

    Args:
        centre: (feature,).
        directions: (feature, direction).
        modes: (direction, output).
        intercept: (output,).
    """

    centre: Floats
    directions: Floats
    modes: Floats
    intercept: Floats

    def __call__(self, phi: Floats) -> Floats:
        """Return outputs (sample, output) for features (sample, feature)."""
        return np.asarray(self.intercept + ((phi - self.centre) @ self.directions) @ self.modes)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fit of `Ridge.of`, with its decomposition.

    Args:
        shape: of an output, (channel, *grid).
        basis: one of BASES.
        centre: mean of the features, (feature,).
        left, values, right: W, s and V.
        mean: of the outputs, (1, mode).
        coefficients: WᵀU, (k, mode).
        rest: (1 − WWᵀ)(U − mean), (sample, mode); one row of zeros if W spans all contrasts of samples.
        band: number of the band of each mode, (mode,).
        penalty: λ of each band.
        kept: f₀ of each band.
        steady: outputs of the nodes that never vary, which are kept as they are, (output,); NaN at all others.
        score: GCV of a channel, or its error on folds, relative to its variance, averaged over channels.
    """

    shape: tuple[int, ...]
    basis: str
    centre: Floats
    left: Floats
    values: Floats
    right: Floats
    mean: Floats
    coefficients: Floats
    rest: Floats
    band: NDArray[np.intp]
    penalty: Floats
    kept: Floats
    steady: Floats
    score: float

    @classmethod
    def of(
        cls,
        phi: Floats,
        u: Floats,
        bases: Sequence[str] = BASES,
        penalty: float | None = None,
        labels: Ints | None = None,
    ) -> "Ridge":
        """Fit outputs in each of the bases; return the fit with the smallest score.

        Args:
            phi: features, (sample, feature).
            u: outputs, (sample, channel, *grid).
            bases: to try.
            penalty: λ of all modes; None selects one for each band.
            labels: equal for pairs that are held out together, (sample,); None if all are independent.
        """
        centre, shape, flat = phi.mean(axis=0), u.shape[1:], u.reshape(len(u), -1)
        left, values, right = decomposed(phi - centre)
        mean = flat.mean(axis=0, keepdims=True)
        coefficients = left.T @ (flat - mean)
        rest = flat - mean - left @ coefficients if len(values) < len(u) - 1 else np.zeros_like(mean)
        size, parts = _sizes(flat - mean, shape[0]), [] if labels is None else _folds(phi, flat, labels)
        still = np.where(steady(u).ravel(), flat[0], np.nan)
        fits: list[Ridge] = []
        for basis in bases:
            m, c, r = (transform(part, shape, basis) for part in (mean, coefficients, rest))
            band = bands(shape, basis)
            held_out = [_in_basis(fold, shape, basis) for fold in parts]
            selected, kept, errors = _penalties(len(u), values, m, c, r, band, basis == "nodes", penalty, held_out)
            score = float((errors.reshape(shape[0], -1).sum(axis=1) / size).mean())
            fits.append(cls(shape, basis, centre, left, values, right, m, c, r, band, selected, kept, still, score))
            if score < EXACT:
                break
        return min(fits, key=lambda fit: fit.score)  # the first of equals

    @property
    def lost(self) -> Floats:
        """1 − f_k: (k, mode)."""
        return _lost(self.values, self.penalty, len(self.left))[:, self.band]

    def affine(self) -> Affine:
        """Return the fitted map."""
        modes = transform((1 - self.lost) * self.coefficients, self.shape, self.basis, inverse=True)
        intercept = transform(self.kept[self.band] * self.mean, self.shape, self.basis, inverse=True)
        varies = np.isnan(self.steady)
        return Affine(
            self.centre, self.right / self.values, np.where(varies, modes, 0.0), np.where(varies, intercept[0], self.steady)
        )

    def left_out(self) -> Floats | None:
        """Return leave-one-out residuals, (sample, channel, *grid); None if a direction depends on one pair alone."""
        n, k = self.left.shape
        squares, lost, dropped = np.square(self.left), self.lost, 1 - self.kept[self.band]
        outside = np.maximum(1 - 1 / n - squares.sum(axis=1, keepdims=True), 0) if k < n - 1 else np.zeros((n, 1))
        free = outside + dropped / n + squares @ lost
        if free.min() < SMALLEST:
            return None
        residual = self.rest + dropped * self.mean + self.left @ (lost * self.coefficients)
        left = transform(residual / free, self.shape, self.basis, inverse=True)
        return np.where(np.isnan(self.steady), left, 0.0).reshape(n, *self.shape)


def relative_error(prediction: Floats, u: Floats) -> float:
    """Return the mean square error of a channel relative to its variance, averaged over channels."""
    errors = np.square(prediction - u).reshape(*u.shape[:2], -1).sum(axis=2).mean(axis=0)
    return float((errors / _sizes(u - u.mean(axis=0), u.shape[1])).mean())


def decomposed(phi: Floats) -> tuple[Floats, Floats, Floats]:
    """Return W, s and V of centred rows (sample, feature), from the eigenvectors of ΦᵀΦ or ΦΦᵀ, whichever is smaller."""
    n, p = phi.shape
    squares, vectors = np.linalg.eigh(phi.T @ phi if p < n else phi @ phi.T)
    count = min(n - 1, int((squares > RANK * squares.max(initial=0)).sum()))
    vectors = vectors[:, ::-1][:, :count]
    other = (phi if p < n else phi.T) @ vectors
    values = np.linalg.norm(other, axis=0)
    other /= values
    return (other, values, vectors) if p < n else (vectors, values, other)


def transform(values: Floats, shape: tuple[int, ...], basis: str, inverse: bool = False) -> Floats:
    """Return coefficients of values (row, channel·grid) in an orthonormal basis, or values of coefficients: the same shape."""
    if basis == "nodes" or len(shape) == 1:
        return values
    field, axes = values.reshape(len(values), *shape), tuple(range(2, len(shape) + 1))
    if basis == "cosines":
        return np.asarray((idctn if inverse else dctn)(field, axes=axes, norm="ortho")).reshape(values.shape)
    for axis in axes:
        matrix = polynomials(field.shape[axis])
        field = np.moveaxis(np.moveaxis(field, axis, -1) @ (matrix.T if inverse else matrix), -1, axis)
    return field.reshape(values.shape)


@lru_cache(maxsize=8)
def polynomials(points: int) -> Floats:
    """Return the values (node, degree) of the polynomials that are orthonormal on equidistant nodes.

    They are the eigenvectors, with eigenvalues j(j + 1), of −(w u′)′ in differences, w = i·(points − i) between two nodes. The
    three-term recurrence is unstable beyond degree 2√points.
    """
    i = np.arange(1, points)
    weight = i * (points - i)
    return np.asarray(eigh_tridiagonal(np.append(weight, 0.0) + np.append(0.0, weight), -1.0 * weight)[1])


def bands(shape: tuple[int, ...], basis: str) -> NDArray[np.intp]:
    """Return the number of the band of each coefficient of a field (channel, *grid), flat; channels have separate bands.

    >>> bands((2, 6), "cosines")
    array([0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9])
    """
    channel, *index = np.indices(shape)
    digits = np.frexp(sum(np.square(k) for k in index))[1] if basis != "nodes" else 0  # frexp counts binary digits
    return np.unique((64 * channel + digits).ravel(), return_inverse=True)[1]


def _sizes(centred: Floats, channels: int) -> Floats:
    """Return the variance of each channel, summed over its values; one where it is zero."""
    size = np.square(centred).reshape(len(centred), channels, -1).sum(axis=2).mean(axis=0)
    return np.where(size > 0, size, 1.0)


def _folds(phi: Floats, flat: Floats, labels: Ints) -> list[Fold]:
    """Return the regressions without each fold of whole groups, of at most MOST_CROSSED pairs."""
    some = np.sort(generator(0, "ridge", 0).permutation(len(phi))[:MOST_CROSSED])
    parts: list[Fold] = []
    if len(np.unique(labels[some])) < 2:
        return parts
    for kept, left in folds(len(some), FOLDS, labels[some]):
        x, u = phi[some[kept]], flat[some[kept]]
        centre, mean = x.mean(axis=0), u.mean(axis=0)
        w, values, v = decomposed(x - centre)
        rows = np.concatenate([np.ones((len(left), 1)), (phi[some[left]] - centre) @ (v / values)], axis=1)
        parts.append(Fold(values, rows, np.concatenate([mean[None], w.T @ (u - mean)]), flat[some[left]], len(kept)))
    return parts


def _in_basis(fold: Fold, shape: tuple[int, ...], basis: str) -> Fold:
    coefficients, outputs = (transform(values, shape, basis) for values in (fold.coefficients, fold.outputs))
    return fold._replace(coefficients=coefficients, outputs=outputs)


def _lost(values: Floats, penalty: Floats, n: int) -> Floats:
    """Return 1 − f = nλ / (s² + nλ): (k, penalty)."""
    finite = np.where(np.isinf(penalty), 1.0, n * penalty)
    return np.where(np.isinf(penalty), 1.0, finite / (np.square(values)[:, None] + finite))


def _penalties(
    n: int,
    s: Floats,
    mean: Floats,
    coefficients: Floats,
    rest: Floats,
    band: NDArray[np.intp],
    nodes: bool,
    given: float | None,
    parts: list[Fold],
) -> tuple[Floats, Floats, Floats]:
    """Return λ and f₀ of each band, and the GCV with them, or the error on folds, summed over the modes of a band."""
    penalties = PENALTIES if given is None else np.array([given])
    means = MEANS if given is None and not nodes and n > 1 else np.ones(1)
    member = band[:, None] == np.arange(band.max() + 1)
    squares, outside = np.square(coefficients) @ member, np.square(rest).sum(axis=0) @ member
    lost = _lost(s, penalties, n)
    error = outside + np.square(lost).T @ squares + np.square(1 - means)[:, None, None] * (n * np.square(mean[0]) @ member)
    free = np.broadcast_to(n - 1 - len(s) + lost.sum(axis=0) + (1 - means)[:, None], error.shape[:2])[..., None]
    score = np.divide(n * error, np.square(free), out=np.full(error.shape, np.inf), where=free > 0)  # (f₀, λ, band)
    if parts:
        crossed, size = fold_errors(parts, lambda values, rows: _lost(values, penalties, rows), means, band)
        score = np.where(crossed.min(axis=(0, 1)) > CANCELLED * size, crossed, score)
    with np.errstate(divide="ignore", invalid="ignore"):
        unlikely = max(n - 1, 1) * np.log(outside + lost.T @ squares) - np.log(lost).sum(axis=0)[:, None]
    unlikely[~(lost > 0).all(axis=0)] = np.inf
    best = np.maximum(score.min(axis=0).argmin(axis=0), unlikely.argmin(axis=0) - 1)
    score = score[:, best, np.arange(len(best))]
    return penalties[best], means[score.argmin(axis=0)], score.min(axis=0)
