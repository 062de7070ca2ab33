"""Out-of-distribution inputs: a novelty score with a bounded false-positive rate.

    d(a)² = Σ_c m⁻¹ Σ_j w_j z_j(f_cj(a))² + Σ_p z_p(s_p)²,        z = Φ⁻¹ ∘ F̂,        a is flagged ⇔ d(a) > d_(k),

for m features f of each channel c, and the scalars s. F̂ is the empirical distribution function of a feature over training
inputs and Φ that of N(0, 1): z ~ N(0, 1) for inputs from the training distribution, however skewed the feature. z is linear
between quantiles, grows by one per standard deviation beyond the outermost training values, and by at most 1000 per unit. No
covariance matrix is inverted, so two training inputs, or constant ones, are enough.

**Features** of a channel, centred by its mean and scaled by its standard deviation over training inputs:

    mean, minimum and maximum, and the 2^dim − 1 lowest cosine modes,
    ½ log(10⁻¹⁰ + mean square) of: a minus its mean, 8 bands of modes, second differences over 1, 4, 16, 64 cells of each axis.

The latter (powers) have weight w = 2, the others w = 1. Excess power weighs more than missing power, because inputs with less
power are closer to the average input: a negative z of a power is multiplied by 0.4.

Modes are those of the DCT-II. Bands are rings of mode indices |k| ≥ 1, log-spaced up to half the points; the last one is open.
Cells are those of the training grid. An input on a finer mesh therefore has nearly the same features; on a coarser mesh, rough
inputs lack modes and are flagged.

**Guarantee.** d_(k) is the k-th smallest score of n held-out inputs, k = ⌈(n + 1)(1 − alpha)⌉. If these and a new input are
exchangeable (for instance independent draws of one distribution), the rank of the new one among all n + 1 is uniform, hence

    P(a new input from the same distribution is flagged) ≤ 1 − k/(n + 1) ≤ alpha,

for finite n and any features, on average over held-out sets. If n < 1/alpha − 1, the threshold is d_(n), with rate 1/(n + 1).
There is no bound on missed detections: a shift that a single input does not reveal may be detected from ten
(`Novelty.p_value`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dctn
from scipy.special import ndtr, ndtri
from scipy.stats import betabinom, mannwhitneyu

from .._typing import Floats, Ints, Mask
from ..data.split import one_of_each
from ..draw import generator
from ..errors import UserError
from ..work.state import State

__all__ = ["Novelty"]

MAX_INPUTS = 4096  # training inputs used; more change the quantiles little
ALPHA = 0.07  # default false-positive rate
BANDS = 8  # of mode indices
POWER_WEIGHT = 2.0  # w of powers
MISSING_POWER = 0.4  # factor of z where a power is below its median
STEPS = (1, 4, 16, 64)  # cells between the points of second differences
KNOTS = 65  # of the piecewise linear z; odd, so that the median is one
POWER_FLOOR = 1e-10  # added to powers before the logarithm
MIN_SPREAD = 1e-3  # smallest change of a feature per unit of z
ROUNDING = 1e-9  # relative tolerance of scores: equal inputs must not be flagged because of rounding
MIN_THRESHOLD = 0.1  # for held-out inputs that are all equal
MAX_INPUT = 1e150  # larger inputs are refused
MAX_SCALED = 1e100  # scaled inputs are clipped, so that squares stay finite
BLOCK_VALUES = 2**21  # numbers processed at a time: 16 MB of floats


@dataclass(frozen=True, eq=False)
class Novelty:
    """Novelty score of inputs in units of the threshold; constructed by `Novelty.of`.

    >>> rng = np.random.default_rng(0)
    >>> novelty = Novelty.of(rng.normal(size=(500, 1, 32)), rng.normal(size=(99, 1, 32)))
    >>> novelty.alpha, novelty.flag(rng.normal(size=(1, 1, 32))), novelty.flag(3 * rng.normal(size=(2, 1, 32)))
    (0.07, array([False]), array([ True,  True]))
    """

    grid: Floats  # points of each axis of the training grid
    counts: Floats  # numbers of channels and of scalars
    centre: Floats  # mean of each channel, then of each scalar
    scale: Floats  # standard deviation of each channel, then of each scalar
    scores: Floats  # z at each knot
    knots: Floats  # values of the features, (knot, feature)
    spread: Floats  # standard deviation of each feature, (feature,)
    nominal_alpha: Floats  # requested false-positive rate, (1,)
    held_out: Floats  # d of the held-out inputs, ascending

    @classmethod
    def of(
        cls,
        a: ArrayLike,
        held_out: ArrayLike,
        scalars: ArrayLike | None = None,
        held_out_scalars: ArrayLike | None = None,
        alpha: float = ALPHA,
    ) -> "Novelty":
        """Estimate the distribution of features from training inputs, and the threshold from held-out inputs.

        Args:
            a: training inputs, (sample, channel, *grid); at most 4096 are used.
            held_out: held-out inputs, likewise. They may have served for model selection, but not for training.
            scalars: of the training inputs, (sample, parameter).
            held_out_scalars: of the held-out inputs.
            alpha: false-positive rate.

        Raises:
            UserError: if shapes do not fit, values are not finite, or alpha is not between 0 and 1.
        """
        if not 0 < alpha < 1:
            raise UserError(f"alpha = {alpha}: expected a false-positive rate above 0 and below 1, for instance 0.05")
        field, s = _arrays(a, scalars)
        if not field.shape[1] + s.shape[1]:
            raise UserError("inputs have neither channels nor scalars; pass at least one of them")
        rows = np.sort(generator(0, "novelty", 0).permutation(len(field))[:MAX_INPUTS])
        grid, counts = np.array(field.shape[2:], dtype=np.float64), np.array([field.shape[1], s.shape[1]], dtype=np.float64)
        centre, scale = _units(field, s, rows)
        knots = _knots(_features(field, s, rows, grid, centre, scale))
        new = cls(grid, counts, centre, scale, *knots, np.array([alpha]), np.zeros(0))
        return replace(new, held_out=np.sort(new._distance(held_out, held_out_scalars)))

    @classmethod
    def halves(
        cls,
        a: NDArray[np.floating],
        scalars: Floats | None = None,
        group: Ints | None = None,
        alpha: float = ALPHA,
    ) -> "Novelty | None":
        """Split one set of inputs at random: one half gives the distribution of features, the other half the threshold.

        Outputs are not used, so a model may be trained on all of the pairs.

        Args:
            a: inputs, (sample, channel, *grid).
            scalars: (sample, parameter).
            group: labels of dependent inputs, (sample,); one input of each group, drawn at random, is used.
            alpha: false-positive rate.

        Returns:
            None for fewer than two inputs.
        """
        rows = one_of_each(group, len(a))
        rows = generator(0, "novelty/halves", 0).permutation(rows)[: 2 * MAX_INPUTS]
        first, second = np.sort(rows[: len(rows) // 2]), np.sort(rows[len(rows) // 2 :])
        if not len(first):
            return None
        s, held_out_s = (None, None) if scalars is None else (scalars[first], scalars[second])
        return cls.of(a[first], a[second], s, held_out_s, alpha)

    def distance(self, a: ArrayLike, scalars: ArrayLike | None = None) -> Floats:
        """Return the novelty score d(a) / d_(k), (sample,): above 1 where the input is flagged.

        Args:
            a: inputs, (sample, channel, *grid), on a grid of the same dimension as in training.
            scalars: (sample, parameter).

        Raises:
            UserError: if channels, scalars or dimensions differ from those of training, or values are not finite.
        """
        return self._distance(a, scalars) / self.threshold

    def flag(self, a: ArrayLike, scalars: ArrayLike | None = None) -> Mask:
        """Return whether each input is out of distribution, (sample,). Arguments and exceptions as in `distance`."""
        return self.distance(a, scalars) > 1

    def p_value(self, a: ArrayLike, scalars: ArrayLike | None = None) -> float:
        """Test whether independent inputs are all from the training distribution; return the p-value.

        The two-sided test of Mann and Whitney compares their scores with those of the held-out inputs. Several inputs together
        can reveal a shift that a single one does not. Arguments and exceptions as in `distance`.
        """
        return float(mannwhitneyu(self._distance(a, scalars), self.held_out, alternative="two-sided").pvalue)

    def excess(self, flagged: int, inputs: int) -> float:
        """Return the probability that at least so many of independent inputs from the training distribution are flagged.

        The rate at which a threshold flags inputs varies between held-out sets: k-th of n scores, it is Beta(n + 1 − k, k).
        """
        n = len(self.held_out)
        k = self._rank
        return float(betabinom.sf(flagged - 1, inputs, n + 1 - k, k)) if inputs else 1.0

    @property
    def alpha(self) -> float:
        """Bound on the false-positive rate: the requested one, or 1/(n + 1) if that is larger."""
        return max(float(self.nominal_alpha[0]), 1 / (len(self.held_out) + 1))

    @property
    def threshold(self) -> float:
        """d_(k); at least 0.1, for held-out inputs that are all equal."""
        return max(MIN_THRESHOLD, float(self.held_out[self._rank - 1]) * (1 + ROUNDING))

    @property
    def _rank(self) -> int:
        """The number k of the held-out score that is the threshold, from 1."""
        return max(1, int(np.ceil((len(self.held_out) + 1) * (1 - self.alpha) - ROUNDING)))

    def state(self) -> State:
        """Return all arrays, to be saved."""
        return State({}, {field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def from_state(cls, state: State) -> "Novelty":
        """Restore what `state` returned.

        Raises:
            UserError: if arrays are missing.
        """
        names, arrays = [field.name for field in fields(cls)], state.arrays
        if missing := [name for name in names if name not in arrays]:
            raise UserError(f"arrays {missing} of the novelty score are missing, expected {names}; save the model again")
        return cls(**{name: np.array(arrays[name], dtype=np.float64) for name in names})

    def _distance(self, a: ArrayLike, scalars: ArrayLike | None) -> Floats:
        """Return d(a), (sample,)."""
        field, s = _arrays(a, scalars)
        channels, p = map(int, self.counts)
        if (field.shape[1], s.shape[1], field.ndim - 2) != (channels, p, len(self.grid)):
            expected = ", ".join(["sample", str(channels), *(f"{n:.0f}" for n in self.grid)])
            raise UserError(
                f"inputs have shape {field.shape} and {s.shape[1]} scalars; training inputs had ({expected}) and {p} scalars; "
                "pass the same channels and scalars, on any grid of this dimension"
            )
        f = _features(field, s, np.arange(len(field)), self.grid, self.centre, self.scale)
        z = (np.maximum(f - self.knots[-1], 0) + np.minimum(f - self.knots[0], 0)) / self.spread
        for j, knots in enumerate(self.knots.T):
            z[:, j] += np.interp(f[:, j], knots, self.scores)
        z_fields, z_scalars = np.split(z, [f.shape[1] - p], axis=1)
        m = z_fields.shape[1] // max(1, channels)  # features of a channel
        others = 2 + 2 ** len(self.grid)  # features of a channel that are not powers
        z_fields = z_fields.reshape(len(z), channels, m)
        power = z_fields[:, :, others:]
        squares = [
            np.square(z_fields[:, :, :others]),
            POWER_WEIGHT * np.square(np.where(power < 0, MISSING_POWER * power, power)),
        ]
        return np.asarray(np.sqrt(sum(s.sum(axis=(1, 2)) for s in squares) / max(1, m) + np.square(z_scalars).sum(axis=1)))


def _features(
    a: NDArray[np.floating], scalars: Floats, rows: NDArray[np.intp], grid: Floats, centre: Floats, scale: Floats
) -> Floats:
    """Return features (row, feature): of the first channel, of the second, …, then scalars; `grid` is the training grid."""
    channels, blocks = a.shape[1], []
    shape = (channels, *[1] * (a.ndim - 2))
    for x, s in _blocks(a, scalars, rows):
        with np.errstate(over="ignore"):  # infinite values are clipped
            x = (x - centre[:channels].reshape(shape)) / scale[:channels].reshape(shape)
            s = (s - centre[channels:]) / scale[channels:]
        x, s = np.clip(x, -MAX_SCALED, MAX_SCALED), np.clip(s, -MAX_SCALED, MAX_SCALED)
        blocks.append(np.concatenate([*(_channel_features(x[:, c], grid) for c in range(channels)), s], axis=1))
    return np.concatenate(blocks)


def _channel_features(x: Floats, grid: Floats) -> Floats:
    """Return the features (sample, m) of one scaled channel (sample, *grid); `grid` is the training grid."""
    if x.ndim == 1:
        return x[:, None]
    axes, n = tuple(range(1, x.ndim)), len(x)
    mean = x.mean(axis=axes, keepdims=True)
    modes = dctn(x - mean, axes=axes, norm="ortho") / np.sqrt(np.prod(x.shape[1:]))
    low = modes[(slice(None), *[slice(2)] * len(grid))]
    low = np.pad(low, [(0, 0), *((0, 2 - points) for points in low.shape[1:])]).reshape(n, -1)[:, 1:]
    square, band = np.square(modes).reshape(n, -1), _bands(x.shape[1:], max(1.0, float(grid.max()) / 2))
    powers = [square[:, rows].sum(axis=1) for rows in (band > 0, *(band == i for i in range(1, BANDS + 1)))]
    for axis, points in zip(axes, grid, strict=True):
        powers += [_second_differences(x, axis, step / points) for step in STEPS if 2 * step < points]
    values = [v.reshape(n, 1) for v in (mean, x.min(axis=axes), x.max(axis=axes))]
    return np.concatenate([*values, low, 0.5 * np.log(np.stack(powers, axis=1) + POWER_FLOOR)], axis=1)


def _second_differences(x: Floats, axis: int, fraction: float) -> Floats:
    """Return the mean square of second differences over a fraction of the axis, at least over one cell: (sample,)."""
    h = max(1, round(fraction * x.shape[axis]))
    x = np.moveaxis(x, axis, -1)
    if x.shape[-1] <= 2 * h:
        return np.zeros(len(x))
    difference = x[..., 2 * h :] - 2 * x[..., h:-h] + x[..., : -2 * h]
    return np.asarray(np.square(difference).mean(axis=tuple(range(1, x.ndim))))


@lru_cache(maxsize=8)
def _bands(shape: tuple[int, ...], top: float) -> NDArray[np.intp]:
    """Return the number of the band of each mode, from 1; 0 for the constant mode."""
    squares = np.zeros(shape)
    for index in np.indices(shape):
        squares += index**2
    return np.asarray(np.digitize(np.sqrt(squares).ravel(), np.geomspace(1, top, BANDS)))


def _knots(f: Floats) -> tuple[Floats, Floats, Floats]:
    """Return z at the knots, the knots, and the standard deviation, of features (sample, feature)."""
    half = KNOTS // 2
    z = np.arange(-half, half + 1) / half * -ndtri(0.5 / max(2, len(f)))
    x = np.quantile(f, ndtr(z), axis=0, method="hazen")
    steps = np.maximum(np.diff(x, axis=0), MIN_SPREAD * z[half + 1])  # outwards from the median: strictly increasing
    low, high = x[half] - np.cumsum(steps[half - 1 :: -1], axis=0)[::-1], x[half] + np.cumsum(steps[half:], axis=0)
    return z, np.concatenate([low, x[half : half + 1], high]), np.maximum(f.std(axis=0), MIN_SPREAD)


def _units(a: NDArray[np.floating], scalars: Floats, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each channel and scalar.

    A standard deviation at the level of rounding is replaced by the absolute mean, or by 1 if that is 0.
    """
    means, squares = [], []
    for x, s in _blocks(a, scalars, rows):
        flat = x.reshape(*x.shape[:2], int(np.prod(x.shape[2:])))
        means.append(np.concatenate([flat.mean(axis=2), s], axis=1))
        squares.append(np.concatenate([flat.var(axis=2), 0 * s], axis=1))
    centre = np.concatenate(means).mean(axis=0)
    std, size = np.sqrt(np.concatenate(squares).mean(axis=0) + np.concatenate(means).var(axis=0)), np.abs(centre)
    return centre, np.where(std > 1e-6 * size, std, np.where(size > 0, size, 1.0))


def _blocks(a: NDArray[np.floating], scalars: Floats, rows: NDArray[np.intp]) -> Iterator[tuple[Floats, Floats]]:
    """Yield blocks of the given rows of a and scalars, as floats."""
    count = max(1, BLOCK_VALUES // max(1, int(np.prod(a.shape[1:]))))
    for first in range(0, len(rows), count):
        block = rows[first : first + count]
        x, s = np.asarray(a[block], dtype=np.float64), scalars[block]
        if not all((np.abs(values) <= MAX_INPUT).all() for values in (x, s)):
            raise UserError(f"inputs have values that are NaN, infinite or above {MAX_INPUT:g}, expected numbers; remove these")
        yield x, s


def _arrays(a: ArrayLike, scalars: ArrayLike | None) -> tuple[NDArray[np.floating], Floats]:
    """Return inputs and scalars as arrays; scalars (sample, 0) for None."""
    field = np.asarray(a)
    s = np.zeros((len(field), 0)) if scalars is None else np.asarray(scalars, dtype=np.float64)
    if field.ndim < 2 or s.ndim != 2 or len(field) != len(s) or not len(s) or 0 in field.shape[2:]:
        raise UserError(
            f"inputs have shape {field.shape} and scalars {s.shape}; pass (sample, channel, *grid) and (sample, parameter), "
            "at least one sample"
        )
    return field, s
