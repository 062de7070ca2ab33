r"""Ridge regression of fields on numbers φ, whose penalty follows the scales of the outputs.

    Û = (f₀/n) 1 1ᵀU + Σ_k f_k w_k w_kᵀU,        f_k = s_k² / (s_k² + nλ),        Φ = W S Vᵀ,

for n centred rows Φ of inputs and coefficients U (n, mode) of the outputs, minimises n⁻¹‖U − 1bᵀ − ΦB‖² + λ‖B‖² if f₀ = 1. One
decomposition gives generalised cross-validation (Golub, Heath and Wahba 1979) and the residuals of pairs left out,

    GCV(λ, f₀) = n ‖U − Û‖² / (n − f₀ − Σ_k f_k)²,        u_i − m_{−i}(a_i) = (u_i − û_i) / (1 − f₀/n − Σ_k f_k w_ik²),

exact for the penalties that all pairs have chosen (and, if f₀ < 1, about the mean of all inputs).

**Bands.** Noise sits in all values of a field, while the field is smooth. Hence coefficients are taken in an orthonormal basis,

    nodes         the values themselves, one penalty for all of a channel, f₀ = 1,
    cosines       of the DCT-II,
    polynomials   orthogonal on equidistant nodes (Gram's), for fields that no boundary condition suits,

and modes whose |k|², k being the index, has as many binary digits share λ and f₀. These half octaves are wide enough that
hardly anything is chosen by chance, and λ = ∞ leaves a band out. The basis is the one of least GCV: the data decide.

**Few pairs.** GCV of a single mode may have its least value at λ → 0 for no reason. The likelihood of B ~ N(0, σ²/(nλ)), whose
logarithm is −½(n − 1) log Σ_k (1 − f_k)(w_kᵀu)² + ½ Σ_k log(1 − f_k) for n − 1 numbers w_kᵀu, never has: no λ is taken that is
more than a step of the grid below the one most likely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn
from scipy.linalg import eigh_tridiagonal

from ..base import Array

__all__ = ["BASES", "EXACT", "FINEST", "Affine", "Ridge", "variance_left"]

BASES = ("nodes", "cosines", "polynomials")
PENALTIES = np.concatenate([[0.0], np.geomspace(1e-14, 1e3, 52), [np.inf]])
MEANS = np.linspace(1, 0, 11)  # f₀
RANK = 1e-13  # of s², relative to the largest: below it is rounding
EXACT = 1e-24  # share of the variance below which nothing is left to improve
SMALLEST = 1e-10  # of what a pair left out is divided by
FINEST = 2048  # points along an axis for which polynomials are made


@dataclass(frozen=True, eq=False)
class Affine:
    """φ ↦ intercept + ((φ − centre) directions) modes, flat."""

    centre: Array
    directions: Array
    modes: Array
    intercept: Array

    def __call__(self, phi: Array) -> Array:
        return np.asarray(self.intercept + ((phi - self.centre) @ self.directions) @ self.modes)


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fit, made by `Ridge.of`, with all that its residuals need."""

    shape: tuple[int, ...]  # of an output
    basis: str
    centre: Array
    left: Array  # W
    values: Array  # s
    right: Array  # V
    mean: Array  # (1, mode)
    coefficients: Array  # WᵀU
    rest: Array  # (1 − WWᵀ)(U − mean), or one row of zeros if that is nothing
    band: NDArray[np.intp]  # of each mode
    penalty: Array  # λ of each band
    kept: Array  # f₀ of each band
    score: float  # GCV of a channel over its variance, the mean over channels

    @classmethod
    def of(cls, phi: Array, u: Array, bases: Sequence[str] = BASES, penalty: float | None = None) -> "Ridge":
        """Of least GCV over the bases, for outputs (sample, channel, *grid); a penalty that is given holds for all modes."""
        centre, shape, flat = phi.mean(axis=0), u.shape[1:], u.reshape(len(u), -1)
        left, values, right = decomposed(phi - centre)
        mean = flat.mean(axis=0, keepdims=True)
        coefficients = left.T @ (flat - mean)
        rest = flat - mean - left @ coefficients if len(values) < len(u) - 1 else np.zeros_like(mean)
        size = _sizes(flat - mean, shape[0])
        found: list[Ridge] = []
        for basis in bases:
            m, c, r = (transform(part, shape, basis) for part in (mean, coefficients, rest))
            band = bands(shape, basis)
            chosen, kept, errors = _penalties(len(u), values, m, c, r, band, basis == "nodes", penalty)
            score = float((errors.reshape(shape[0], -1).sum(axis=1) / size).mean())
            found.append(cls(shape, basis, centre, left, values, right, m, c, r, band, chosen, kept, score))
            if score < EXACT:
                break
        return min(found, key=lambda fit: fit.score)  # the first of equals

    @property
    def lost(self) -> Array:
        """1 − f_k: (k, mode)."""
        return _lost(self.values, self.penalty, len(self.left))[:, self.band]

    def affine(self) -> Affine:
        """The map that was learned."""
        modes = transform((1 - self.lost) * self.coefficients, self.shape, self.basis, inverse=True)
        intercept = transform(self.kept[self.band] * self.mean, self.shape, self.basis, inverse=True)
        return Affine(self.centre, self.right / self.values, modes, intercept[0])

    def left_out(self) -> Array | None:
        """Residuals of each pair by the fit to all others; None if one of them alone decides on a direction."""
        n, k = self.left.shape
        squares, lost, dropped = np.square(self.left), self.lost, 1 - self.kept[self.band]
        outside = np.maximum(1 - 1 / n - squares.sum(axis=1, keepdims=True), 0) if k < n - 1 else np.zeros((n, 1))
        free = outside + dropped / n + squares @ lost
        if free.min() < SMALLEST:
            return None
        residual = self.rest + dropped * self.mean + self.left @ (lost * self.coefficients)
        return transform(residual / free, self.shape, self.basis, inverse=True).reshape(n, *self.shape)


def variance_left(guess: Array, u: Array) -> float:
    """Mean square error of a channel over its variance, the mean over channels."""
    errors = np.square(guess - u).reshape(*u.shape[:2], -1).sum(axis=2).mean(axis=0)
    return float((errors / _sizes(u - u.mean(axis=0), u.shape[1])).mean())


def decomposed(phi: Array) -> tuple[Array, Array, Array]:
    """W, s, V of centred rows, by the smaller one of ΦᵀΦ and ΦΦᵀ."""
    n, p = phi.shape
    squares, vectors = np.linalg.eigh(phi.T @ phi if p < n else phi @ phi.T)
    count = min(n - 1, int((squares > RANK * squares.max(initial=0)).sum()))
    vectors = vectors[:, ::-1][:, :count]
    other = (phi if p < n else phi.T) @ vectors
    values = np.linalg.norm(other, axis=0)
    other /= values
    return (other, values, vectors) if p < n else (vectors, values, other)


def transform(values: Array, shape: tuple[int, ...], basis: str, inverse: bool = False) -> Array:
    """Coefficients in an orthonormal basis of each row of values (row, channel·grid), or back: of the same shape."""
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
def polynomials(points: int) -> Array:
    """Values (node, degree) of the polynomials that are orthonormal on equidistant nodes.

    They are the eigenvectors, with eigenvalues j(j + 1), of −(w u′)′ in differences, w = i·(points − i) between two nodes: the
    recurrence loses its digits beyond degree 2√points.
    """
    i = np.arange(1, points)
    weight = i * (points - i)
    return np.asarray(eigh_tridiagonal(np.append(weight, 0.0) + np.append(0.0, weight), -1.0 * weight)[1])


def bands(shape: tuple[int, ...], basis: str) -> NDArray[np.intp]:
    """Number of the band of each coefficient of (channel, *grid), flat; no two channels share one.

    >>> bands((2, 6), "cosines")
    array([0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9])
    """
    channel, *index = np.indices(shape)
    digits = np.frexp(sum(np.square(k) for k in index))[1] if basis != "nodes" else 0  # frexp counts binary digits
    return np.unique((64 * channel + digits).ravel(), return_inverse=True)[1]


def _sizes(centred: Array, channels: int) -> Array:
    """Variance of each channel, summed over its values; one where there is none."""
    size = np.square(centred).reshape(len(centred), channels, -1).sum(axis=2).mean(axis=0)
    return np.where(size > 0, size, 1.0)


def _lost(values: Array, penalty: Array, n: int) -> Array:
    """1 − f = nλ / (s² + nλ): (k, penalty)."""
    finite = np.where(np.isinf(penalty), 1.0, n * penalty)
    return np.where(np.isinf(penalty), 1.0, finite / (np.square(values)[:, None] + finite))


def _penalties(
    n: int, s: Array, mean: Array, coefficients: Array, rest: Array, band: NDArray[np.intp], plain: bool, given: float | None
) -> tuple[Array, Array, Array]:
    """λ and f₀ of each band, and the GCV, summed over its modes, that they give."""
    penalties = PENALTIES if given is None else np.array([given])
    means = MEANS if given is None and not plain and n > 1 else np.ones(1)
    member = band[:, None] == np.arange(band.max() + 1)
    squares, outside = np.square(coefficients) @ member, np.square(rest).sum(axis=0) @ member
    lost = _lost(s, penalties, n)
    error = outside + np.square(lost).T @ squares + np.square(1 - means)[:, None, None] * (n * np.square(mean[0]) @ member)
    free = np.broadcast_to(n - 1 - len(s) + lost.sum(axis=0) + (1 - means)[:, None], error.shape[:2])[..., None]
    score = np.divide(n * error, np.square(free), out=np.full(error.shape, np.inf), where=free > 0)  # (f₀, λ, band)
    with np.errstate(divide="ignore", invalid="ignore"):
        unlikely = max(n - 1, 1) * np.log(outside + lost.T @ squares) - np.log(lost).sum(axis=0)[:, None]
    unlikely[~(lost > 0).all(axis=0)] = np.inf
    chosen = np.maximum(score.min(axis=0).argmin(axis=0), unlikely.argmin(axis=0) - 1)
    score = score[:, chosen, np.arange(len(chosen))]
    return penalties[chosen], means[score.argmin(axis=0)], score.min(axis=0)
