"""Six conditional distributions with a known truth on 32 × 32 points of a periodic square, as in `benchmarks.gallery`."""

import numpy as np

from benchmarks.gallery import Gallery, Law
from pdno._typing import Floats

__all__ = ["PLANE"]

SIDE = 32  # points of each axis
MODES = 5  # highest wavenumber of the inputs along each axis
VARIANCE = 0.73  # of the inputs, as in one dimension
LENGTH = 0.1  # of the field noise
FRONT = 0.06  # width of the front: two cells
NODES = (np.arange(SIDE) + 0.5) / SIDE
X = NODES[:, None]  # along the first axis


def inputs(count: int, seed: int) -> Floats:
    """Return smooth random periodic fields without a mean, (count, 1, SIDE, SIDE)."""
    rng, k = np.random.default_rng(seed), np.arange(-MODES, MODES + 1)
    square = k[:, None] ** 2 + k**2
    size = np.divide(1.0, square, out=np.zeros(square.shape), where=square > 0)
    size *= np.sqrt(VARIANCE / np.square(size).sum())
    real, imaginary = rng.normal(size=(2, count, *square.shape))
    waves = np.exp(2j * np.pi * k[:, None] * NODES)
    fields = np.einsum("nkl,kx,ly->nxy", size * (real + 1j * imaginary), waves, waves, optimize=True).real
    return np.asarray(fields[:, None])


def mean(a: Floats) -> Floats:
    """Return a smooth operator that is neither local nor linear."""
    return np.asarray(np.tanh(a) + 0.5 * np.roll(a, (3, 5), axis=(-2, -1)))


def _per_field(a: Floats, rng: np.random.Generator) -> Floats:
    return rng.normal(size=(len(a), 1, 1, 1))


def _mixture(a: Floats, rng: np.random.Generator, shifts: list[float], stds: list[float]) -> Floats:
    """One component for each field: a shift of all points, and white noise."""
    k = rng.integers(0, len(shifts), (len(a), 1, 1, 1))
    return np.asarray(mean(a) + np.array(shifts)[k] + np.array(stds)[k] * rng.normal(size=a.shape))


def _front(a: Floats, rng: np.random.Generator) -> Floats:
    """A front whose form depends on the input, at a random place."""
    place = 0.5 + 0.15 * np.tanh(a[..., :1, :]) + 0.08 * _per_field(a, rng)
    return np.asarray(np.tanh((X - place) / FRONT))


def _field_noise(a: Floats, rng: np.random.Generator) -> Floats:
    """Gaussian noise whose covariance is the product of those along the axes."""
    covariance = np.exp(-0.5 * ((NODES[:, None] - NODES) / LENGTH) ** 2) + 1e-8 * np.eye(SIDE)
    factor = np.linalg.cholesky(covariance)
    return np.asarray(factor @ rng.normal(size=a.shape) @ factor.T)


def _std(a: Floats) -> Floats:
    """Standard deviation by place and input: larger at one side, with a factor of ten between inputs."""
    return np.asarray((0.02 + 0.3 * X**2) * np.exp(1.15 * np.tanh(2 * a[..., :1, :1])))


LAWS: dict[str, Law] = {
    "shared-mixture-1": lambda a, rng: _mixture(a, rng, [-0.5, 0.0, 0.5], [0.01] * 3),
    "shared-mixture-2": lambda a, rng: _mixture(a, rng, [-1.0, -0.5, 0.5, 1.0], [0.01, 0.1, 0.2, 0.05]),
    "random-branch": lambda a, rng: np.where(rng.random((len(a), 1, 1, 1)) < 0.5, 1.0, -1.0) * (1 + 0.5 * np.tanh(a)),
    "random-front": _front,
    "std-by-place-and-input": lambda a, rng: mean(a) + _std(a) * rng.normal(size=a.shape),
    "field-noise": lambda a, rng: mean(a) + 0.3 * _field_noise(a, rng),
}
PLANE = Gallery((SIDE, SIDE), inputs, LAWS, 300.0, "make bench-laws-2d")
