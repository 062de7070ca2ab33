r"""Leading principal components of fields: r ≈ Σ_k z_k v_k with uncorrelated numbers z_k of unit variance."""

from collections.abc import Callable

import numpy as np

from .._typing import Array

__all__ = ["leading", "principal", "reconstruction", "stride", "without_leading"]

LEAST_SHARE = 1e-4  # of the variance, below which a component is rounding or noise
FIELDS = 1000  # from which components are computed, at most
VALUES = 2**25  # of these fields, at most
TINY = 1e-300


def principal(values: Array, count: int) -> tuple[Array, Array]:
    """Return the leading principal directions of fields, and their shares of the variance.

    Directions are divided by the standard deviation along them: (count, value).
    """
    flat = values[:: stride(values)].reshape(-1, values[0].size)
    flat = flat - flat.mean(axis=0)
    squares, left = np.linalg.eigh(flat @ flat.T)
    shares = squares[::-1][:count] / max(squares.sum(), TINY)
    squares, left = squares[::-1][:count], left[:, ::-1][:, :count]
    inverse = np.where(shares > LEAST_SHARE, 1 / np.maximum(squares, TINY), 0.0)
    directions = (left * inverse).T @ flat * np.sqrt(len(flat))
    missing = count - len(directions)
    return np.pad(directions, ((0, missing), (0, 0))), np.pad(shares, (0, missing))


def stride(values: Array) -> int:
    """Return the step between fields from which components are computed."""
    count = min(FIELDS, max(1, VALUES // values[0].size))
    return int(max(1, -(-len(values) // count)))


def reconstruction(directions: Array) -> Array:
    """Return the fields v_k, (component, value), of the directions of `principal`, which are orthogonal."""
    return np.asarray(directions / np.maximum(np.square(directions).sum(axis=1, keepdims=True), TINY))


def without_leading(values: Array, least: float, most: int = 4) -> Array:
    """Return fields without their leading components: those that have more than this share of the variance.

    >>> rng = np.random.default_rng(0)
    >>> fields = rng.normal(size=(200, 1, 1)) * np.ones(16) + 0.1 * rng.normal(size=(200, 1, 16))
    >>> bool(without_leading(fields, 0.2).std() < 0.11)
    True
    """
    return np.asarray(values - leading(values, least, most)(values))


def leading(values: Array, least: float, most: int = 4, together: float = 0.0) -> Callable[[Array], Array]:
    """Return the projection of fields on the leading components of some fields.

    Args:
        values: fields that have the components, (sample, channel, *grid).
        least: share of the variance that a component must have.
        most: number of components, at most.
        together: share of the variance that all of them must have; otherwise the projection is 0.
    """
    directions, shares = principal(values, most)
    kept = directions[shares > least] if shares[shares > least].sum() >= together else directions[:0]

    def project(fields: Array) -> Array:
        flat = fields.reshape(len(fields), -1)
        return np.asarray((flat @ kept.T) @ reconstruction(kept)).reshape(fields.shape)

    return project
