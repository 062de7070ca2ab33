"""Six small synthetic data sets of 70 to 300 pairs with errors that are correlated in space, and fresh test pairs.

| set | pairs | difficulty |
|---|---|---|
| network-mean | 300 | a local quadratic operator of rough inputs, which needs a network; correlated errors |
| varying-places | 200 | outputs are observed at different places in different samples |
| land-masked | 150 | outputs on a plane, never observed on land |
| time-series | 300 | u_t ↦ u_{t+1} of one long series, in blocks of consecutive pairs |
| rain | 200 | positive, skewed, zero at most places |
| nearly-noise | 70 | nearly independent of the input |
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdno._typing import Floats, Ints, Mask
from pdno.basis import Kind

__all__ = ["SETS", "Small"]

POINTS = 64
X = (np.arange(POINTS) + 0.5) / POINTS
TEST = 100  # test pairs
SIDE = 24  # nodes along each axis of the sea
RAIN_SIDE = 16  # nodes along each axis of the rain
BLOCK = 20  # consecutive pairs of a time series that are kept together


@dataclass(frozen=True)
class Small:
    """Training and test pairs, (sample, 1, *grid).

    Args:
        a, u: training pairs; u is NaN where it is missing.
        new, truth: test pairs; truth is complete, but for places where outputs are never observed.
        dims: names of the axes.
        kind: of the grid's axes.
        group: of training pairs that are not independent.
        places: True where test outputs are compared, (*grid).
    """

    a: Floats
    u: Floats
    new: Floats
    truth: Floats
    dims: str = "sample,channel,x"
    kind: Kind = "periodic"
    group: Ints | None = None
    places: Mask | None = None

    @property
    def mask(self) -> Mask | None:
        """True where training outputs are observed; None if all are."""
        observed = np.isfinite(self.u)
        return None if observed.all() else observed


def waves(count: int, rng: np.random.Generator, modes: int, decay: float) -> Floats:
    """Return random periodic fields of unit variance, (count, 1, POINTS): a constant and waves with amplitudes k^−decay."""
    k = np.arange(1, modes + 1)
    size, phase = rng.normal(size=(count, modes)) * k**-decay, rng.uniform(0, 2 * np.pi, (count, modes))
    field = (size[:, :, None] * np.sin(2 * np.pi * k[:, None] * X + phase[:, :, None])).sum(axis=1)
    field += rng.normal(size=(count, 1)) / np.sqrt(2)
    return np.asarray(field[:, None] / np.sqrt(((k ** (-2 * decay)).sum() + 1) / 2))


def plane(count: int, rng: np.random.Generator, side: int, length: float) -> Floats:
    """Return Gaussian fields on the unit square of unit variance, (count, 1, side, side)."""
    y = (np.arange(side) + 0.5) / side
    root = np.linalg.cholesky(np.exp(-0.5 * ((y[:, None] - y) / length) ** 2) + 1e-6 * np.eye(side))
    return np.asarray(np.einsum("ij,njk,lk->nil", root, rng.normal(size=(count, side, side)), root)[:, None])


def divided(a: Floats, u: Floats, **options: object) -> Small:
    """Return the set whose last TEST pairs are test pairs."""
    return Small(a[:-TEST], u[:-TEST], a[-TEST:], u[-TEST:], **options)  # type: ignore[arg-type]


def network_mean(rng: np.random.Generator) -> Small:
    a = waves(300 + TEST, rng, 20, 0.3)
    smooth = sum(np.roll(a**2 + a, shift, axis=-1) for shift in range(-2, 3)) / 5
    return divided(a, smooth + 0.3 * waves(len(a), rng, 6, 1.0))


def varying_places(rng: np.random.Generator) -> Small:
    a = waves(200 + TEST, rng, 5, 1.0)
    u = np.tanh(a) + 0.5 * np.roll(a, 7, axis=-1) + 0.4 * waves(len(a), rng, 6, 1.0)
    start = rng.integers(0, POINTS, (len(a), 1, 1))
    seen = ((np.arange(POINTS) - start) % POINTS < 45) & (rng.random(u.shape) < 0.9)
    return divided(a, np.where(seen | (np.arange(len(a)) >= 200)[:, None, None], u, np.nan))


def land_masked(rng: np.random.Generator) -> Small:
    a, noise = (plane(150 + TEST, rng, SIDE, length) for length in (0.25, 0.2))
    u = a + 0.3 * np.roll(a, 3, axis=-1) ** 2 + 0.5 * noise
    x, y = np.meshgrid(*(np.linspace(0, 1, SIDE),) * 2, indexing="ij")
    sea = ((x - 0.35) ** 2 + (y - 0.4) ** 2 > 0.05) & (x + y < 1.65)
    return divided(a, np.where(sea, u, np.nan), dims="sample,channel,x,y", kind="cell", places=sea)


def time_series(rng: np.random.Generator) -> Small:
    steps, v = [], waves(1, rng, 4, 0.5)[0]
    for _ in range(60 + 300 + BLOCK + TEST + 1):
        steps.append(v)
        v = 1.1 * np.tanh(np.roll(v, 2, axis=-1)) + 0.2 * np.roll(v, 9, axis=-1) + 0.4 * waves(1, rng, 6, 1.0)[0]
    series = np.stack(steps[60:])
    train, test = slice(0, 300), slice(300 + BLOCK, 300 + BLOCK + TEST)
    a, u = series[:-1], series[1:]
    return Small(a[train], u[train], a[test], u[test], group=np.arange(300) // BLOCK)


def rain(rng: np.random.Generator) -> Small:
    a, noise = (plane(200 + TEST, rng, RAIN_SIDE, length) for length in (0.3, 0.25))
    u = np.maximum(a + 0.8 * noise - 0.5, 0.0) ** 2
    return divided(a, u, dims="sample,channel,x,y", kind="cell")


def nearly_noise(rng: np.random.Generator) -> Small:
    a = waves(70 + TEST, rng, 5, 1.0)
    return divided(a, 0.1 * a + waves(len(a), rng, 6, 1.0))


SETS: dict[str, Callable[[np.random.Generator], Small]] = {
    "network-mean": network_mean,
    "varying-places": varying_places,
    "land-masked": land_masked,
    "time-series": time_series,
    "rain": rain,
    "nearly-noise": nearly_noise,
}
