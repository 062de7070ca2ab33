r"""Gaussian fields of which some nodes are observed, and at others a bound only: draws of the values there.

    e = Bᵀ f + w,        f ~ N(0, I),        w_j ~ N(0, δ_j²),        e_j ≤ t_j (or e_j ≥ t_j) at nodes with a bound

Given the observed nodes o, f is Gaussian with the precision I + B_o diag(δ_o⁻²) B_oᵀ, and so are the other nodes. They are
drawn within the bounds by slice sampling on ellipses (Murray, Adams and MacKay 2010). With y the deviation of the present state
from its mean, and ν a further draw of the same Gaussian without bounds, y cos θ + ν sin θ has the right distribution for every
θ, and θ is uniform on the arc around 0 where all bounds hold. A step moves all nodes of a field together, so that smooth fields
are sampled as well as white ones.
"""

from dataclasses import dataclass

import numpy as np

from .._typing import Array
from ..evaluation.principal import principal, reconstruction

__all__ = ["Factors"]

MOST_FACTORS = 48
FIELDS_PER_FACTOR = 4  # at least, on which a factor is estimated
LEAST_OWN = 1e-3  # δ², as a fraction of the variance of a node
BLOCK_VALUES = 2**22  # of products of fields with all factors, in memory at a time
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Factors:
    """The distribution of fields e, without bounds.

    Args:
        loadings: B, (factor, node).
        own: δ², (node,).
    """

    loadings: Array
    own: Array

    @classmethod
    def of(cls, fields: Array) -> "Factors":
        """Estimate the distribution from complete fields, (sample, node), by their leading principal components."""
        count = int(np.clip(len(fields) // FIELDS_PER_FACTOR, 1, min(MOST_FACTORS, fields.shape[1])))
        components = reconstruction(principal(fields, count)[0])
        powers, variance = np.square(components).sum(axis=1), np.mean(fields**2, axis=0)
        rest = max(float(variance.sum() - powers.sum()), 0.0) / max(fields.shape[1] - count, 1)
        loadings = components * np.sqrt(np.maximum(1 - rest / np.maximum(powers, TINY), 0.0))[:, None]
        own = np.maximum(variance - np.square(loadings).sum(axis=0), LEAST_OWN * variance)
        return cls(loadings, np.maximum(own, TINY))

    def completed(self, e: Array, bounded: Array, bounds: Array, steps: int, rng: np.random.Generator) -> Array:
        """Return fields with new draws at nodes where bounds only are known.

        Args:
            e: fields, (sample, node), within the bounds.
            bounded: +1 at nodes with an upper bound, −1 with a lower one, 0 where e is observed, (sample, node).
            bounds: t, (sample, node).
            steps: of the slice sampler.
            rng: generator of the draws.
        """
        size = max(1, BLOCK_VALUES // self.loadings.size)
        blocks = [slice(low, low + size) for low in range(0, len(e), size)]
        return np.concatenate([self._completed(e[some], bounded[some], bounds[some], steps, rng) for some in blocks])

    def _completed(self, e: Array, bounded: Array, bounds: Array, steps: int, rng: np.random.Generator) -> Array:
        observed, b = bounded == 0, self.loadings
        weights = observed / self.own
        precision = np.eye(len(b)) + (weights[:, None] * b) @ b.T
        root = np.linalg.inv(np.linalg.cholesky(precision))  # its transpose times ξ has the covariance of f
        mean = _products(root.swapaxes(1, 2), _products(root, (weights * e) @ b.T)) @ b
        limit = np.where(observed, np.inf, bounded * (bounds - mean))
        y = np.where(observed, 0.0, np.minimum(bounded * (e - mean), limit))
        for _ in range(steps):
            f = _products(root.swapaxes(1, 2), rng.standard_normal((len(e), len(b))))
            nu = bounded * (f @ b + np.sqrt(self.own) * rng.standard_normal(e.shape))
            low, high = _arc(y, nu, limit)
            theta = (low + (high - low) * rng.random(len(e)))[:, None]
            y = np.minimum(y * np.cos(theta) + nu * np.sin(theta), limit)
        return np.where(observed, e, mean + bounded * y)


def _products(matrices: Array, vectors: Array) -> Array:
    """Return the product of each matrix (row, k, l) with its vector (row, l)."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def _arc(y: Array, nu: Array, limit: Array) -> tuple[Array, Array]:
    """Return the ends of the arc around θ = 0 on which y cos θ + ν sin θ ≤ limit at all nodes, (sample,) each.

    At a node y cos θ + ν sin θ = R cos(θ − φ), which exceeds the limit within arccos(limit/R) of φ. Without any limit the arc
    has two turns, on which θ is uniform just as well.

    >>> low, high = _arc(np.array([[0.0]]), np.array([[1.0]]), np.array([[0.5]]))  # sin θ ≤ ½
    >>> round(float(np.sin(low[0])), 3), round(float(np.sin(high[0])), 3), round(float((high - low)[0] / np.pi), 3)
    (0.5, 0.5, 1.333)
    """
    turn = 2 * np.pi
    square = y**2 + nu**2
    exceeds = square > np.sign(limit) * limit**2
    radius = np.sqrt(square[exceeds])
    phase, half = np.arctan2(nu[exceeds], y[exceeds]), np.arccos(np.clip(limit[exceeds] / radius, -1.0, 1.0))
    low, high = np.full(y.shape, -turn), np.full(y.shape, turn)
    low[exceeds], high[exceeds] = np.mod(phase + half, turn) - turn, np.mod(phase - half, turn)
    return low.max(axis=1), high.min(axis=1)
