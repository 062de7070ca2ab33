r"""Maps of few coefficients: least squares, then on those inputs alone that it finds significant.

    b_j = (ΦᵀΦ)⁻¹ Φᵀu_j,        S_j = {i: b_ij² > 2 log(pq) · σ_j² (ΦᵀΦ)⁻¹_ii},        b_j ← (Φ_SᵀΦ_S)⁻¹ Φ_Sᵀu_j, S = S_j,

for each of q outputs u_j with noise of variance σ_j², and p numbers, the constant being one of them. √(2 log pq) is what the
largest of pq standard normals hardly exceeds, so that next to nothing is kept by chance. A number dropped in error costs some
2 log(pq) σ²/n, while least squares on all cost pσ²/n. A shift by whole cells is the case in point: one of 256 matters.
"""

import numpy as np

from ..base import Array
from .ridge import Affine

__all__ = ["sparse_map"]

SHARE = 8  # an output that needs more than p/8 of the inputs is not sparse
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 1e-10  # added to the diagonal of correlations: inputs that repeat others are insignificant, not infinite


def sparse_map(x: Array, u: Array) -> Affine | None:
    """The sparse map from x (sample, number) to u (sample, output), its constant included; None if outputs are not sparse."""
    n, p = x.shape
    if n < 2 * (p + 1) or p < SHARE:
        return None
    phi = np.concatenate([np.ones((n, 1)), x], axis=1)
    norm = np.linalg.norm(phi, axis=0)
    phi /= np.where(norm > 0, norm, 1.0)
    gram, moments, energy = phi.T @ phi, phi.T @ u, np.square(u).sum(axis=0)
    inverse = np.linalg.inv(gram + ROUNDING * np.eye(p + 1))
    fit = inverse @ moments
    noise = np.maximum(np.square(u - phi @ fit).sum(axis=0), EPS * energy) / (n - p - 1)
    threshold = 2 * np.log((p + 1) * u.shape[1])
    significant = np.square(fit) > threshold * noise * inverse.diagonal()[:, None]
    if significant.sum() > u.shape[1] * p / SHARE:
        return None
    found = np.zeros((p + 1, u.shape[1]))
    for j, rows in enumerate(map(np.flatnonzero, significant.T)):
        found[rows, j] = np.linalg.solve(gram[np.ix_(rows, rows)] + ROUNDING * np.eye(len(rows)), moments[rows, j])
    found /= np.where(norm > 0, norm, 1.0)[:, None]
    used = np.flatnonzero(found[1:].any(axis=1))
    return Affine(np.zeros(p), np.eye(p)[:, used], found[1:][used], found[0])
