"""Conditional distributions with a known truth, on 64 points of a periodic line: what users meet beside white Gaussian noise.

Each law draws u given inputs a; scores of a model are divided by those of draws of the law itself.
"""

from collections.abc import Callable

import numpy as np

from pdno._typing import Array, Floats
from pdno.evaluation import metrics

__all__ = ["LAWS", "POINTS", "inputs", "scores"]

POINTS = 64
X = (np.arange(POINTS) + 0.5) / POINTS
LENGTH = 0.1  # of the field noise
LEVEL = 0.9  # of the intervals whose coverage is measured
SPREAD_TENTH = 0.9  # quantile of the true spread above which places count as those of largest spread

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


def scores(members: Array, truth: Array, observed: Array) -> dict[str, float]:
    """Return scores of members and coverage of functionals, with draws of the truth for comparison.

    Args:
        members: of the model, (member, sample, channel, point).
        truth: draws of the law itself, likewise.
        observed: one further draw of the law, (sample, channel, point).

    Returns:
        Ratios of CRPS and energy score to those of the truth, the ratio of standard deviations, and coverage of 90 % intervals
        of values, of values where the true spread is largest, and of mean, maximum and roughness of the field. Channels count
        in units of their standard deviation.
    """
    unit = observed.std(axis=(0, 2), keepdims=True)
    members, truth, observed = members / unit, truth / unit, observed / unit
    std, wide = members.std(axis=0, ddof=1), truth.std(axis=0, ddof=1)
    largest = wide >= np.quantile(wide, SPREAD_TENTH)
    inside = _inside(members, observed)
    return {
        "crps_ratio": metrics.crps(members, observed).value / metrics.crps(truth, observed).value,
        "energy_ratio": metrics.energy_score(members, observed).value / metrics.energy_score(truth, observed).value,
        "std_ratio": float(np.sqrt((std**2).mean() / (wide**2).mean())),
        "coverage_90": float(inside.mean()),
        "coverage_90_largest_spread": float(inside[largest].mean()),
        **{
            f"coverage_90_{name}": float(_inside(of(members), of(observed)).mean())
            for name, of in {"mean": _mean, "maximum": _maximum, "roughness": _roughness}.items()
        },
    }


def _inside(members: Array, observed: Array) -> Array:
    low, high = np.quantile(members, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    rounding = 1e-9 * np.abs(observed).max()
    return np.asarray((observed >= low - rounding) & (observed <= high + rounding))


def _mean(u: Array) -> Array:
    return np.asarray(u.mean(axis=-1))


def _maximum(u: Array) -> Array:
    return np.asarray(u.max(axis=-1))


def _roughness(u: Array) -> Array:
    return np.asarray(np.sqrt(np.square(np.diff(u, axis=-1)).mean(axis=-1)))
