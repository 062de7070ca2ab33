"""Conditional distributions with a known truth, on 64 points of a periodic line: what users meet beside white Gaussian noise.

Each law draws u given inputs a, (sample, channel, *grid).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pdno._typing import Floats

__all__ = ["LINE", "Gallery", "Law"]

POINTS = 64
X = (np.arange(POINTS) + 0.5) / POINTS
LENGTH = 0.1  # of the field noise

Law = Callable[[Floats, np.random.Generator], Floats]


def inputs(count: int, seed: int) -> Floats:
    """Return smooth random periodic fields, (count, 1, POINTS)."""
    rng, k = np.random.default_rng(seed), np.arange(1, 6)
    size, phase = rng.normal(size=(count, 5)) / k, rng.uniform(0, 2 * np.pi, (count, 5))
    waves = np.sin(2 * np.pi * k[:, None] * X + phase[:, :, None])
    return np.asarray((size[:, :, None] * waves).sum(axis=1)[:, None])


def mean(a: Floats) -> Floats:
    """Return a smooth operator that is neither local nor linear."""
    return np.asarray(np.tanh(a) + 0.5 * np.roll(a, 7, axis=-1))


def _per_field(a: Floats, rng: np.random.Generator) -> Floats:
    return rng.normal(size=(len(a), 1, 1))


def _field_noise(a: Floats, rng: np.random.Generator) -> Floats:
    near = np.abs(X[:, None] - X)
    covariance = np.exp(-0.5 * (near / LENGTH) ** 2) + 1e-8 * np.eye(POINTS)
    return np.asarray(rng.normal(size=a.shape) @ np.linalg.cholesky(covariance).T)


def _mixture(a: Floats, rng: np.random.Generator, shifts: list[float], stds: list[float]) -> Floats:
    """One component for each field: a shift of all points, and white noise."""
    k = rng.integers(0, len(shifts), len(a))
    noise = np.array(stds)[k][:, None, None] * rng.normal(size=a.shape)
    return np.asarray(mean(a) + np.array(shifts)[k][:, None, None] + noise)


def _coin(a: Floats, rng: np.random.Generator) -> Floats:
    sign = np.sign(a)
    jumps = sign != np.roll(sign, 1, axis=-1)
    return np.where(jumps, np.where(rng.random(a.shape) < 0.5, 1.0, -1.0), sign)


def _hidden(a: Floats, rng: np.random.Generator) -> Floats:
    """The heat equation with an unknown, log-uniform time."""
    width = np.exp(rng.uniform(np.log(0.02), np.log(0.15), (len(a), 1, 1)))
    f = np.fft.rfft(a, axis=-1)
    decay = np.exp(-0.5 * (2 * np.pi * np.arange(f.shape[-1]) * width) ** 2)
    return np.asarray(np.fft.irfft(f * decay, n=POINTS, axis=-1))


def _two_channels(a: Floats, rng: np.random.Generator) -> Floats:
    noise = rng.normal(size=a.shape)
    other = 0.8 * noise + 0.6 * rng.normal(size=a.shape)
    return np.concatenate([mean(a) + 0.3 * noise, 1e-6 * (a**2 + 0.3 * other)], axis=1)


LAWS: dict[str, Law] = {
    "white-0.01": lambda a, rng: mean(a) + 0.01 * rng.normal(size=a.shape),
    "white-1": lambda a, rng: mean(a) + rng.normal(size=a.shape),
    "std-by-place": lambda a, rng: mean(a) + (0.02 + 0.6 * X**2) * rng.normal(size=a.shape),
    "std-by-u": lambda a, rng: mean(a) * (1 + 0.3 * rng.normal(size=a.shape)),
    "std-by-input": lambda a, rng: mean(a) + 0.2 * np.exp(1.15 * np.tanh(2 * a[..., :1])) * rng.normal(size=a.shape),
    "shared-mixture-1": lambda a, rng: _mixture(a, rng, [-0.5, 0.0, 0.5], [0.01] * 3),
    "shared-mixture-2": lambda a, rng: _mixture(a, rng, [-1.0, -0.5, 0.5, 1.0], [0.01, 0.1, 0.2, 0.05]),
    "mixture-per-point": lambda a, rng: (
        mean(a) + np.array([-0.5, 0.0, 0.5])[rng.integers(0, 3, a.shape)] + 0.05 * rng.normal(size=a.shape)
    ),
    "laplace-per-point": lambda a, rng: mean(a) + 0.3 * rng.laplace(size=a.shape),
    "field-noise": lambda a, rng: mean(a) + 0.3 * _field_noise(a, rng),
    "random-branch": lambda a, rng: np.where(rng.random((len(a), 1, 1)) < 0.5, 1.0, -1.0) * (1 + 0.5 * np.tanh(a)),
    "random-front": lambda a, rng: np.tanh((X - 0.5 - 0.15 * np.tanh(a[..., :1]) - 0.08 * _per_field(a, rng)) / 0.03),
    "shared-multiplicative": lambda a, rng: mean(a) * (1 + 0.4 * _per_field(a, rng)),
    "coin-at-jumps": _coin,
    "hidden-parameter": _hidden,
    "two-channels": _two_channels,
    "no-noise-at-places": lambda a, rng: mean(a) + np.where((X > 0.3) & (X < 0.6), 0.0, 0.5) * rng.normal(size=a.shape),
}


@dataclass(frozen=True)
class Gallery:
    """Laws on one grid.

    Args:
        points: of each axis.
        inputs: (count, seed) ↦ inputs, (count, 1, *grid).
        laws: by name.
        budget: seconds of training, by default.
        command: that measures them.
    """

    points: tuple[int, ...]
    inputs: Callable[[int, int], Floats]
    laws: Mapping[str, Law]
    budget: float
    command: str

    @property
    def grid(self) -> str:
        """Name of the grid in results."""
        return "x".join(map(str, self.points))

    @property
    def dims(self) -> str:
        """Names of the axes."""
        return ",".join(["sample", "channel", "x", "y"][: 2 + len(self.points)])


LINE = Gallery((POINTS,), inputs, LAWS, 120.0, "make bench-laws")
