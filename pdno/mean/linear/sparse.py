r"""Sparse maps: least squares on all inputs, then on those inputs alone that are significant.

    b_j = (ΦᵀΦ)⁻¹ Φᵀu_j,        S_j = {i: b_ij² > 2 log(pq) · σ_j² (ΦᵀΦ)⁻¹_ii},        b_j ← (Φ_SᵀΦ_S)⁻¹ Φ_Sᵀu_j, S = S_j,

for each of q outputs u_j with noise of variance σ_j², and p inputs, one of which is the constant. The largest of pq standard
normal variables rarely exceeds √(2 log pq), so that hardly any input is kept by chance. An input that is dropped in error costs
about 2 log(pq) σ²/n, whereas least squares on all inputs costs pσ²/n. An example is a shift by whole cells: one input of 256
matters to an output.
"""

import numpy as np

from ..._typing import Floats
from .ridge import Affine

__all__ = ["sparse_map"]

SHARE = 8  # an output that needs more than p/SHARE of the inputs is not sparse
EPS = float(np.finfo(np.float64).eps)
ROUNDING = 1e-10  # added to the diagonal of correlations, so that inputs that repeat others are insignificant, not infinite


def sparse_map(x: Floats, u: Floats) -> Affine | None:
    """Return the sparse map from x (sample, input) to u (sample, output) with its constant; None if outputs are not sparse."""
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
    b = np.zeros((p + 1, u.shape[1]))
    for j, rows in enumerate(map(np.flatnonzero, significant.T)):
        b[rows, j] = np.linalg.solve(gram[np.ix_(rows, rows)] + ROUNDING * np.eye(len(rows)), moments[rows, j])
    b /= np.where(norm > 0, norm, 1.0)[:, None]
    used = np.flatnonzero(b[1:].any(axis=1))
    return Affine(np.zeros(p), np.eye(p)[:, used], b[1:][used], b[0])
