"""Inputs that come from another law than those a model learned from: a flag with a bounded rate of false alarms.

    d(a)² = Σ_c m⁻¹ Σ_j w_j z_j(f_cj(a))² + Σ_p z_p(s_p)²,        z = Φ⁻¹ ∘ F̂,        a is flagged ⇔ d(a) > d_(k),

of m features f of each channel c, and of the scalars s. F̂ is the distribution function of a feature over the training inputs,
Φ that of N(0, 1): so z ~ N(0, 1) for inputs of the training law, however skewed the feature. Between quantiles z is linear,
beyond the outermost training values it grows by one per standard deviation, and nowhere by more than 1000 per unit. No
covariance is inverted: two training inputs, or constant ones, do no harm.

**Features** of a channel, whose unit is its standard deviation over the training inputs, about their mean:

    mean, smallest and largest value, and the 2^dim − 1 lowest cosine modes,
    ½ log(10⁻¹⁰ + mean square) of: a about its mean, 8 bands of modes, second differences over 1, 4, 16, 64 cells of each axis.

The latter, the powers, have the weight w = 2, the others 1. An input that lacks power is nearer to the average than those
learned from, one that has more is beyond them: a negative z of a power counts as 0.4 z.

Modes are those of the DCT-II. Bands are rings of mode indices |k| ≥ 1, log-spaced up to half the points, the last one open;
cells are those of the training grid. So an input on a finer mesh has nearly the same features, while on a coarser one rough
inputs lack modes and are flagged.

**Guarantee.** d_(k) is the k-th smallest distance of n held-out inputs, k = ⌈(n + 1)(1 − alarm)⌉. If these and a new input are
exchangeable (independent draws of one law are), the rank of the new one among all n + 1 is uniform, hence

    P(a new input of the same law is flagged) ≤ 1 − k/(n + 1) ≤ alarm,

for finite n and any features, on average over held-out sets. If n < 1/alarm − 1, then d_(n) is taken, and `alarm` is 1/(n + 1).
Misses have no such bound: a law whose draws look like those of the training law is not seen in one input, though perhaps in
ten (`Novelty.p_value`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dctn
from scipy.special import ndtr, ndtri
from scipy.stats import mannwhitneyu

from ..draw import generator
from ..errors import UserError

__all__ = ["Novelty"]

Array = NDArray[np.float64]

MOST = 4096  # training inputs that are used
ALARM = 0.07
BANDS = 8
WEIGHT, LACK = 2.0, 0.4  # of powers, and of z where they are less than usual
STEPS = (1, 4, 16, 64)  # cells of second differences
KNOTS = 65  # of z, odd: the middle one is the median
POWER = 1e-10  # added to powers
FLOOR = 1e-3  # smallest change of a feature per unit of z
ROUNDING = 1e-9  # of distances: equal inputs must not be flagged for the last digit
NEAREST = 0.1  # smallest threshold, for inputs that are all the same
BOUND, LARGEST = 1e150, 1e100  # of inputs, and of scaled ones: squares stay finite
BLOCK = 2**21  # numbers that are worked on at a time (16 MB)


@dataclass(frozen=True, eq=False)
class Novelty:
    """Distance of inputs from the training law in units of the threshold, made by `Novelty.of`.

    >>> rng = np.random.default_rng(0)
    >>> novelty = Novelty.of(rng.normal(size=(500, 1, 32)), rng.normal(size=(99, 1, 32)))
    >>> novelty.alarm, novelty.flag(rng.normal(size=(1, 1, 32))), novelty.flag(3 * rng.normal(size=(2, 1, 32)))
    (0.07, array([False]), array([ True,  True]))
    """

    grid: Array  # points of the training grid
    counts: Array  # of channels and of scalars
    centre: Array  # of each channel, then of each scalar
    scale: Array
    scores: Array  # z of each knot
    knots: Array  # (knot, feature)
    spread: Array  # of each feature beyond the knots
    asked: Array  # rate of false alarms
    held: Array  # distances of the held-out inputs, ascending

    @classmethod
    def of(
        cls,
        a: ArrayLike,
        held: ArrayLike,
        scalars: ArrayLike | None = None,
        held_scalars: ArrayLike | None = None,
        alarm: float = ALARM,
    ) -> "Novelty":
        """From training inputs a (sample, channel, *grid) with scalars (sample, p), and held-out ones that set the threshold.

        At most 4096 training inputs are used. The held-out ones may have chosen the model, but must not have trained it.
        """
        if not 0 < alarm < 1:
            raise UserError(f"alarm = {alarm}: expected a rate of false alarms above 0 and below 1, say 0.05")
        field, s = _arrays(a, scalars)
        if not field.shape[1] + s.shape[1]:
            raise UserError("inputs have neither channels nor scalars; give at least one of them")
        rows = np.sort(generator(0, "novelty", 0).permutation(len(field))[:MOST])
        grid, counts = np.array(field.shape[2:], dtype=np.float64), np.array([field.shape[1], s.shape[1]], dtype=np.float64)
        centre, scale = _units(field, s, rows)
        knots = _knots(_features(field, s, rows, grid, centre, scale))
        new = cls(grid, counts, centre, scale, *knots, np.array([alarm]), np.zeros(0))
        return replace(new, held=np.sort(new._distance(held, held_scalars)))

    @classmethod
    def halves(
        cls,
        a: NDArray[np.floating],
        scalars: Array | None = None,
        group: NDArray[np.integer] | None = None,
        alarm: float = ALARM,
    ) -> "Novelty | None":
        """From one set of inputs: a random half of them describes the law, the other one sets the threshold.

        Of inputs with the same label in `group`, such as repeated ones, the first is taken. None for fewer than two inputs. No
        output is looked at, so it does not matter that a model learns from all of them.
        """
        one = np.arange(len(a)) if group is None else np.sort(np.unique(group, return_index=True)[1])
        rows = generator(0, "novelty/halves", 0).permutation(one)[: 2 * MOST]
        first, second = np.sort(rows[: len(rows) // 2]), np.sort(rows[len(rows) // 2 :])
        if not len(first):
            return None
        s, held = (None, None) if scalars is None else (scalars[first], scalars[second])
        return cls.of(a[first], a[second], s, held, alarm)

    def distance(self, a: ArrayLike, scalars: ArrayLike | None = None) -> Array:
        """d(a) / d_(k), (sample,): above 1 where the input is flagged."""
        return self._distance(a, scalars) / self.threshold

    def flag(self, a: ArrayLike, scalars: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether each input is unlike those of the training law, (sample,)."""
        return self.distance(a, scalars) > 1

    def p_value(self, a: ArrayLike, scalars: ArrayLike | None = None) -> float:
        """Of the hypothesis that these inputs, independent of each other, are all of the training law.

        The two-sided test of Mann and Whitney of their distances against the held-out ones: ten together tell what one cannot.
        """
        return float(mannwhitneyu(self._distance(a, scalars), self.held, alternative="two-sided").pvalue)

    @property
    def alarm(self) -> float:
        """Bound of the rate of false alarms: the one asked for, or 1/(n + 1) if that is larger."""
        return max(float(self.asked[0]), 1 / (len(self.held) + 1))

    @property
    def threshold(self) -> float:
        """d_(k); at least 0.1, which matters if held-out inputs are all the same."""
        k = int(np.ceil((len(self.held) + 1) * (1 - self.alarm) - ROUNDING))
        return max(NEAREST, float(self.held[max(k, 1) - 1]) * (1 + ROUNDING))

    def arrays(self) -> dict[str, Array]:
        """All there is to save."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Novelty":
        """What `arrays` gave."""
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names if name not in arrays]:
            raise UserError(f"arrays {missing} of the novelty of inputs are missing, expected {names}; save the model again")
        return cls(**{name: np.array(arrays[name], dtype=np.float64) for name in names})

    def _distance(self, a: ArrayLike, scalars: ArrayLike | None) -> Array:
        field, s = _arrays(a, scalars)
        channels, p = map(int, self.counts)
        if (field.shape[1], s.shape[1], field.ndim - 2) != (channels, p, len(self.grid)):
            expected = ", ".join(["sample", str(channels), *(f"{n:.0f}" for n in self.grid)])
            raise UserError(
                f"inputs have shape {field.shape} and {s.shape[1]} scalars; those of training had shape ({expected}) and {p} "
                "scalars; give the same channels and scalars, on any grid of this dimension"
            )
        f = _features(field, s, np.arange(len(field)), self.grid, self.centre, self.scale)
        z = (np.maximum(f - self.knots[-1], 0) + np.minimum(f - self.knots[0], 0)) / self.spread
        for j, knots in enumerate(self.knots.T):
            z[:, j] += np.interp(f[:, j], knots, self.scores)
        ours, theirs = np.split(z, [f.shape[1] - p], axis=1)
        m, plain = ours.shape[1] // max(1, channels), 2 + 2 ** len(self.grid)  # features of a channel, and those before powers
        ours = ours.reshape(len(z), channels, m)
        power = ours[:, :, plain:]
        squares = [np.square(ours[:, :, :plain]), WEIGHT * np.square(np.where(power < 0, LACK * power, power))]
        return np.asarray(np.sqrt(sum(s.sum(axis=(1, 2)) for s in squares) / max(1, m) + np.square(theirs).sum(axis=1)))


def _features(
    a: NDArray[np.floating], scalars: Array, rows: NDArray[np.intp], grid: Array, centre: Array, scale: Array
) -> Array:
    """(row, feature): those of the first channel, of the second, …, then the scalars; grid is that of training."""
    channels, found = a.shape[1], []
    shape = (channels, *[1] * (a.ndim - 2))
    for x, s in _blocks(a, scalars, rows):
        with np.errstate(over="ignore"):  # infinite ones are clipped
            x = (x - centre[:channels].reshape(shape)) / scale[:channels].reshape(shape)
            s = (s - centre[channels:]) / scale[channels:]
        x, s = np.clip(x, -LARGEST, LARGEST), np.clip(s, -LARGEST, LARGEST)
        found.append(np.concatenate([*(_of_channel(x[:, c], grid) for c in range(channels)), s], axis=1))
    return np.concatenate(found)


def _of_channel(x: Array, grid: Array) -> Array:
    """Features (sample, m) of one channel (sample, *grid) in units of the training inputs, whose grid is given."""
    if x.ndim == 1:
        return x[:, None]
    axes, n = tuple(range(1, x.ndim)), len(x)
    mean = x.mean(axis=axes, keepdims=True)
    modes = dctn(x - mean, axes=axes, norm="ortho") / np.sqrt(np.prod(x.shape[1:]))
    low = modes[(slice(None), *[slice(2)] * len(grid))]
    low = np.pad(low, [(0, 0), *((0, 2 - points) for points in low.shape[1:])]).reshape(n, -1)[:, 1:]
    square, band = np.square(modes).reshape(n, -1), _bands(x.shape[1:], max(1.0, float(grid.max()) / 2))
    powers = [square[:, chosen].sum(axis=1) for chosen in (band > 0, *(band == i for i in range(1, BANDS + 1)))]
    for axis, points in zip(axes, grid, strict=True):
        powers += [_second(x, axis, step / points) for step in STEPS if 2 * step < points]
    plain = [values.reshape(n, 1) for values in (mean, x.min(axis=axes), x.max(axis=axes))]
    return np.concatenate([*plain, low, 0.5 * np.log(np.stack(powers, axis=1) + POWER)], axis=1)


def _second(x: Array, axis: int, fraction: float) -> Array:
    """Mean square of second differences over a fraction of the axis, or over one cell if that is more."""
    h = max(1, round(fraction * x.shape[axis]))
    x = np.moveaxis(x, axis, -1)
    if x.shape[-1] <= 2 * h:
        return np.zeros(len(x))
    difference = x[..., 2 * h :] - 2 * x[..., h:-h] + x[..., : -2 * h]
    return np.asarray(np.square(difference).mean(axis=tuple(range(1, x.ndim))))


@lru_cache(maxsize=8)
def _bands(shape: tuple[int, ...], top: float) -> NDArray[np.intp]:
    """Number of the band of each mode, from 1; 0 for the constant."""
    squares = np.zeros(shape)
    for index in np.indices(shape):
        squares += index**2
    return np.asarray(np.digitize(np.sqrt(squares).ravel(), np.geomspace(1, top, BANDS)))


def _knots(f: Array) -> tuple[Array, Array, Array]:
    """z at the knots, the knots themselves and the spread beyond them, for features (sample, feature)."""
    half = KNOTS // 2
    z = np.arange(-half, half + 1) / half * -ndtri(0.5 / max(2, len(f)))
    x = np.quantile(f, ndtr(z), axis=0, method="hazen")
    steps = np.maximum(np.diff(x, axis=0), FLOOR * z[half + 1])  # outwards from the median: strictly increasing
    low, high = x[half] - np.cumsum(steps[half - 1 :: -1], axis=0)[::-1], x[half] + np.cumsum(steps[half:], axis=0)
    return z, np.concatenate([low, x[half : half + 1], high]), np.maximum(f.std(axis=0), FLOOR)


def _units(a: NDArray[np.floating], scalars: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and standard deviation of each channel and scalar; where that is but rounding, the size of the mean, or one."""
    means, squares = [], []
    for x, s in _blocks(a, scalars, rows):
        flat = x.reshape(*x.shape[:2], int(np.prod(x.shape[2:])))
        means.append(np.concatenate([flat.mean(axis=2), s], axis=1))
        squares.append(np.concatenate([flat.var(axis=2), 0 * s], axis=1))
    centre = np.concatenate(means).mean(axis=0)
    std, size = np.sqrt(np.concatenate(squares).mean(axis=0) + np.concatenate(means).var(axis=0)), np.abs(centre)
    return centre, np.where(std > 1e-6 * size, std, np.where(size > 0, size, 1.0))


def _blocks(a: NDArray[np.floating], scalars: Array, rows: NDArray[np.intp]) -> Iterator[tuple[Array, Array]]:
    count = max(1, BLOCK // max(1, int(np.prod(a.shape[1:]))))
    for first in range(0, len(rows), count):
        some = rows[first : first + count]
        x, s = np.asarray(a[some], dtype=np.float64), scalars[some]
        if not all((np.abs(values) <= BOUND).all() for values in (x, s)):
            raise UserError(f"inputs have values that are NaN, infinite or above {BOUND:g}, expected numbers; leave these out")
        yield x, s


def _arrays(a: ArrayLike, scalars: ArrayLike | None) -> tuple[NDArray[np.floating], Array]:
    field = np.asarray(a)
    s = np.zeros((len(field), 0)) if scalars is None else np.asarray(scalars, dtype=np.float64)
    if field.ndim < 2 or s.ndim != 2 or len(field) != len(s) or not len(s) or 0 in field.shape[2:]:
        raise UserError(
            f"inputs have shape {field.shape} and scalars {s.shape}; give (sample, channel, *grid) and (sample, parameter), "
            "at least one sample"
        )
    return field, s
