"""Statistics of noise fields r (field, channel, *grid), each with a bootstrap error over fields.

    σ(x)² = E r_x²                                           standard deviation at a node
    A     = d⁻¹ Σ_x r_x                                      average of a field over its d nodes
    ρ(k)  = E r_x r_{x+k} / ½ E(r_x² + r_{x+k}²)             correlation of nodes at a distance of k along an axis
    f     = (E A² − E v/d) / (E v − E v/d),  v = d⁻¹ Σ r_x²  shared fraction: mean correlation of distinct nodes, white noise: 0
    ℓ     : ρ(ℓ) = 1/e                                       correlation length, as a fraction of the axis
    b     : σ ∝ |m|^b                                        growth with the mean m, at a fixed node
    R²                                                       share of Var log v that the input explains

Every channel is divided by a scale, its root mean square, so that channels may have different units. All numbers except R² are
functions of averages over fields; the bootstrap draws fields, or groups of dependent fields, with replacement.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from .._typing import Array, Floats, Ints, Mask
from ..draw import generator
from .score import Score

__all__ = ["NoiseStatistics", "bootstrap", "growth", "input_dependence", "noise_statistics", "rms_field", "scale_of", "within"]

RESAMPLES = 200  # of the bootstrap: errors are accurate to 5 %
LAGS = 16  # most distances along an axis
BLOCK_VALUES = 2**20  # numbers processed at a time: 8 MB of floats
MIN_CORRELATION = 1e-3  # smaller values are replaced by it, to interpolate logarithms
SIGNIFICANT = 3.0  # standard errors of a correlation that is called different from 0
WHITE = 0.05  # correlation below which noise is called white, however significant
SHARED = 0.5  # correlation of the most distant nodes from which noise is called shared
FLAT = 0.7  # ratio of the correlations of distant and neighbouring nodes from which the correlation is called constant
MIN_VARIATION = 1.1  # ratio of |m| in the upper and lower half of fields below which growth is not estimated
MAX_ERROR = 1.0  # of the exponent of growth; less accurate estimates are not returned
MIN_FIELDS = 15  # for a regression on inputs
FREEDOM = 5.0  # most effective degrees of freedom of the regression on inputs
PERMUTATIONS = 199  # of the test of the regression
MIN_EXPLAINED = 0.1  # explained share below which dependence on the input is not reported


@dataclass(frozen=True, eq=False)
class NoiseStatistics:
    """Statistics of noise fields.

    Args:
        std: σ(x), (channel, *grid); NaN at nodes that are never observed.
        std_error: its standard error.
        scores: by name: std, average_std (of A in units of `scale`), neighbour_correlation,
            shared_fraction, and correlation_length if ρ decays; without neighbours only std, average_std, shared_fraction.
        lags: distances along the first axis, as fractions of it.
        correlation: ρ at these distances.
        correlation_error: its standard error.
        far: ρ at half of the axes' lengths.
    """

    std: Floats
    std_error: Floats
    scores: dict[str, Score]
    lags: Floats
    correlation: Floats
    correlation_error: Floats
    far: Score | None

    @property
    def word(self) -> str:
        """The correlation in words; empty without neighbours."""
        near, far = self.scores.get("neighbour_correlation"), self.far
        if near is None or far is None:
            return ""
        shared = self.scores["shared_fraction"]
        if far.value > SHARED:
            return f"shared by the whole field ({within(shared)} of the variance)"
        if _present(far) and (far.value > FLAT * near.value or "correlation_length" not in self.scores):
            return f"partly shared by the whole field ({within(shared)} of the variance)"
        if _present(near) and "correlation_length" in self.scores:
            return f"correlated over a length of {within(self.scores['correlation_length'])} of the domain"
        return "anticorrelated between neighbouring nodes" if _present(near, -1) else "white"


def within(score: Score) -> str:
    """Return a number and its error as text, to the first digit of the error.

    >>> within(Score(0.27413, 0.0321, np.empty(0))), within(Score(-0.0001, 0.0012, np.empty(0)))
    ('0.27 ± 0.03', '0.000 ± 0.001')
    """
    if not np.isfinite(score.error) or score.error <= 0:
        return f"{score.value:.2f}"
    digits = -int(np.floor(np.log10(score.error)))
    if not 0 <= digits <= 6:
        return f"{score.value:.3g} ± {score.error:.1g}"
    return f"{round(score.value, digits) + 0.0:.{digits}f} ± {score.error:.{digits}f}"  # + 0.0 avoids "-0.00"


def _present(correlation: Score, sign: int = 1) -> bool:
    """Return whether a correlation differs from 0 significantly and relevantly."""
    error = correlation.error if np.isfinite(correlation.error) else np.inf
    return sign * correlation.value > max(WHITE, SIGNIFICANT * error)


def noise_statistics(
    fields: Array, *, mask: Mask | None = None, labels: Ints | None = None, scale: Floats | None = None, seed: int = 0
) -> NoiseStatistics | None:
    """Return the statistics of noise fields; None if all are zero, or there are none.

    Args:
        fields: noise, (field, channel, *grid); values where the mask is False have no effect.
        mask: True where fields are observed, in their shape.
        labels: of dependent fields, (field,); default: all fields are independent.
        scale: unit of each channel, (channel,); default: the root mean square of these fields.
        seed: of the bootstrap.
    """
    std, std_error = rms_field(fields, mask)
    unit = scale_of(fields, mask) if scale is None else scale
    if not len(fields) or not (np.isfinite(unit) & (unit > 0)).any():
        return None
    lags = [_lags(n) for n in fields.shape[2:]]
    sums = np.concatenate([_sums(r, observed, unit, lags) for r, observed in _blocks(fields, mask)])
    values, resamples = bootstrap(sums, lambda s: _derived(s, lags, fields.shape[2:]), labels, seed)
    errors = _spread(resamples, len(sums) if labels is None else len(np.unique(labels)))
    names = ["average_std", "shared_fraction"]
    names += ["neighbour_correlation", "correlation_length", "far"] if any(map(len, lags)) else []
    scores = {name: Score(float(v), float(e), np.empty(0)) for name, v, e in zip(names, values, errors, strict=False)}
    total = Score.root_of_ratio(_squares(fields, mask), np.ones(len(fields)))
    far, first = scores.pop("far", None), len(lags[0]) if lags else 0
    if far is not None and far.value > np.exp(-1):  # the correlation does not decay
        del scores["correlation_length"]
    return NoiseStatistics(
        std,
        std_error,
        {"std": Score(total.value, total.error, np.empty(0)), **scores},
        np.array(lags[0]) / fields.shape[2] if first else np.empty(0),
        values[5 : 5 + first],
        errors[5 : 5 + first],
        far,
    )


def rms_field(fields: Array, mask: Mask | None = None) -> tuple[Floats, Floats]:
    """Return the root mean square of fields (field, …) at each node, and its standard error; NaN without observations."""
    count = np.full(fields.shape[1:], float(len(fields))) if mask is None else mask.sum(axis=0).astype(np.float64)
    second, fourth = np.zeros(fields.shape[1:]), np.zeros(fields.shape[1:])
    for r, observed in _blocks(fields, mask):
        square = np.where(observed, r, 0.0) ** 2
        second += square.sum(axis=0)
        fourth += (square**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = second / count
        rms = np.sqrt(variance)
        error = np.sqrt(np.maximum(fourth / count - variance**2, 0) / (count - 1)) / (2 * rms)
    return np.where(count > 0, rms, np.nan), np.where((count > 1) & (rms > 0), error, np.nan)


def bootstrap(
    sums: Floats, statistic: Callable[[Floats], Floats], labels: Ints | None = None, seed: int = 0
) -> tuple[Floats, Floats]:
    """Return a statistic of averages over fields, and its values for resampled fields.

    Args:
        sums: numbers of each field, (field, k).
        statistic: function (…, k) → (…, j) of their averages.
        labels: of dependent fields, which are drawn together, (field,).
        seed: of the resampling.

    Returns:
        (j,) and (RESAMPLES, j).
    """
    group = np.arange(len(sums)) if labels is None else np.unique(labels, return_inverse=True)[1].reshape(-1)
    count = np.bincount(group).astype(np.float64)
    totals = np.zeros((len(count), sums.shape[1]))
    np.add.at(totals, group, sums)
    weights = generator(seed, "noise bootstrap", 0).multinomial(len(count), np.full(len(count), 1 / len(count)), RESAMPLES)
    resampled = (weights @ totals) / (weights @ count)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return statistic(sums.mean(axis=0)), statistic(resampled)


def _spread(resamples: Floats, groups: int) -> Floats:
    """Return the standard error from resamples, with the factor √(n/(n − 1)) for n groups; NaN for one group."""
    if groups < 2:
        return np.full(resamples.shape[1], np.nan)
    return np.asarray(resamples.std(axis=0) * np.sqrt(groups / (groups - 1)))


def _blocks(fields: Array, mask: Mask | None) -> Iterator[tuple[Floats, Mask]]:
    """Yield blocks of fields and of their masks."""
    count = max(1, BLOCK_VALUES // max(1, int(np.prod(fields.shape[1:]))))
    for first in range(0, len(fields), count):
        r = np.asarray(fields[first : first + count], dtype=np.float64)
        yield r, np.ones(r.shape, dtype=bool) if mask is None else mask[first : first + count]


def _squares(fields: Array, mask: Mask | None) -> Floats:
    """Return the mean square of each field over its observed nodes, (field,)."""
    axes = tuple(range(1, fields.ndim))
    means = [(np.where(o, r, 0.0) ** 2).sum(axis=axes) / np.maximum(o.sum(axis=axes), 1) for r, o in _blocks(fields, mask)]
    return np.concatenate(means)


def scale_of(fields: Array, mask: Mask | None = None) -> Floats:
    """Return the root mean square of each channel, (channel,)."""
    axes = (0, *range(2, fields.ndim))
    sums = [((np.where(o, r, 0.0) ** 2).sum(axis=axes), o.sum(axis=axes)) for r, o in _blocks(fields, mask)]
    square, count = (sum(part, np.zeros(fields.shape[1])) for part in zip(*sums, strict=True)) if sums else (np.zeros(1),) * 2
    return np.asarray(np.sqrt(square / np.maximum(count, 1)))


def _lags(points: int) -> list[int]:
    """Return distances in nodes, from 1 to half of the axis."""
    return sorted({round(k) for k in np.geomspace(1, max(1, points // 2), LAGS)}) if points > 1 else []


def _sums(r: Floats, observed: Mask, scale: Floats, lags: list[list[int]]) -> Floats:
    """Return the numbers of each field: v, v/d, A², and for every axis and lag the product and the power, (field, k)."""
    shape, axes = (1, -1, *[1] * (r.ndim - 2)), tuple(range(2, r.ndim))
    observed = observed & (scale > 0).reshape(shape)
    z = np.where(observed, r / np.where(scale > 0, scale, 1.0).reshape(shape), 0.0)
    d = observed.sum(axis=axes)
    present, nodes = d > 0, np.maximum(d, 1)
    channels = np.maximum(present.sum(axis=1), 1)
    v, average = np.square(z).sum(axis=axes) / nodes, z.sum(axis=axes) / nodes
    columns = [part.sum(axis=1) / channels for part in (v, v / nodes, average**2)]
    for axis, distances in zip(axes, lags, strict=True):
        x, o = np.moveaxis(z, axis, -1), np.moveaxis(observed, axis, -1)
        inner = tuple(range(1, x.ndim))
        for k in distances:
            both = o[..., k:] & o[..., :-k]
            near, far = np.where(both, x[..., k:], 0.0), np.where(both, x[..., :-k], 0.0)
            pairs = np.maximum(both.sum(axis=inner), 1)
            columns += [(near * far).sum(axis=inner) / pairs, 0.5 * (near**2 + far**2).sum(axis=inner) / pairs]
    return np.stack(columns, axis=1)


def _derived(s: Floats, lags: list[list[int]], points: tuple[int, ...]) -> Floats:
    """Return average_std, f, ρ(1), ℓ, far, and ρ at all lags, from averages (…, k) of the numbers of `_sums`: (…, j)."""
    v, white, square = s[..., 0], s[..., 1], s[..., 2]
    denominator = v - white
    shared = np.where(denominator > 1e-12 * v, (square - white) / np.where(denominator > 0, denominator, 1.0), 1.0)
    basic = [np.sqrt(square), shared]
    curves, first = [], 3
    for distances in lags:
        part = s[..., first : first + 2 * len(distances)]
        curves.append(np.where(part[..., 1::2] > 0, part[..., ::2] / np.where(part[..., 1::2] > 0, part[..., 1::2], 1.0), 0.0))
        first += 2 * len(distances)
    curves = [curve for curve in curves if curve.shape[-1]]
    if not curves:
        return np.stack(basic, axis=-1)
    nearest = np.stack([curve[..., 0] for curve in curves], axis=-1)
    strongest = np.take_along_axis(nearest, np.abs(nearest).argmax(axis=-1)[..., None], axis=-1)[..., 0]
    axes = [(curve, k, n) for curve, k, n in zip(curves, filter(None, lags), (n for n in points if n > 1), strict=True)]
    length = np.mean([_length(curve, np.array(k)) / n for curve, k, n in axes], axis=0)
    far = np.mean([curve[..., -1] for curve in curves], axis=0)
    return np.stack([*basic, strongest, length, far, *(c for curve in curves for c in np.moveaxis(curve, -1, 0))], axis=-1)


def _length(correlation: Floats, lags: Ints) -> Floats:
    """Return the distance at which ρ (…, lag) is 1/e, with log ρ linear between lags; the largest lag if there is none."""
    log = np.log(np.maximum(correlation, MIN_CORRELATION))
    log = np.concatenate([np.zeros((*log.shape[:-1], 1)), log], axis=-1)
    distance = np.concatenate([[0], lags])
    below = log < -1
    k = np.where(below.any(axis=-1), below.argmax(axis=-1), 0)[..., None]
    low, high = np.take_along_axis(log, np.maximum(k - 1, 0), -1)[..., 0], np.take_along_axis(log, k, -1)[..., 0]
    near, far = distance[np.maximum(k - 1, 0)][..., 0], distance[k][..., 0]
    share = (-1 - low) / np.where(high < low, high - low, -1.0)
    return np.where(k[..., 0] > 0, near + share * (far - near), float(lags[-1]))


def growth(fields: Array, mean: Array, *, mask: Mask | None = None, labels: Ints | None = None, seed: int = 0) -> Score | None:
    """Estimate b of σ ∝ |m|^b at fixed nodes: 0 if σ does not depend on m, 1 if it is proportional to m.

    At each node, fields are divided into those with |m| above and below its median; b is the ratio of the logarithms of the
    mean squares of r and of m in the two halves, which is exact for b = 0 and b = 1.

    Args:
        fields: noise, (field, channel, *grid).
        mean: m in the same shape.
        mask: True where fields are observed.
        labels: of dependent fields.
        seed: of the bootstrap.

    Returns:
        None if m varies by less than 10 %, there are fewer than four fields or no noise, or the error of b exceeds 1.
    """
    if len(fields) < 4:
        return None
    size = np.abs(mean) if mask is None else np.where(mask, np.abs(mean), np.nan)
    seen = np.ones(size.shape[1:], dtype=bool) if mask is None else mask.any(axis=0)
    median = np.nanmedian(np.where(seen, size, 0.0), axis=0)
    with np.errstate(invalid="ignore"):
        halves = size > median, size < median
    units = [scale_of(fields, mask), scale_of(mean, mask)]
    shape, axes = (1, -1, *[1] * (fields.ndim - 2)), tuple(range(1, fields.ndim))
    columns = []
    for half in halves:
        for values, unit in zip((fields, mean), units, strict=True):
            z = np.where(half, values, 0.0) / np.where(unit > 0, unit, 1.0).reshape(shape)
            columns.append(np.square(z).sum(axis=axes))
        columns.append(half.sum(axis=axes).astype(np.float64))

    def exponent(s: Floats) -> Floats:
        high, low = s[..., :2] / s[..., 2:3], s[..., 3:5] / s[..., 5:6]
        ratio = np.log(high) - np.log(low)
        return np.stack([ratio[..., 0] / ratio[..., 1], ratio[..., 1]], axis=-1)

    (b, variation), resamples = bootstrap(np.stack(columns, axis=1), exponent, labels, seed)
    if not np.isfinite(b) or variation < 2 * np.log(MIN_VARIATION):
        return None
    error = float(_spread(resamples[np.isfinite(resamples[:, 0]), :1], len(fields))[0])
    return Score(float(b), error, np.empty(0)) if error <= MAX_ERROR else None


def input_dependence(
    size: Floats, features: Floats, *, labels: Ints | None = None, seed: int = 0
) -> tuple[Score, float] | None:
    """Estimate how much of the variance of log sizes of noise fields the input explains.

    The log sizes are regressed on standardised features by ridge regression with at most five effective degrees of freedom. R²
    is that of leave-one-out predictions, at least 0; it is tested by permutations.

    Args:
        size: mean square of each noise field, (field,).
        features: of the input of each field, (field, feature).
        labels: of dependent fields, whose averages are used.
        seed: of the permutations and the bootstrap.

    Returns:
        R² with its bootstrap error, and the p-value; None for fewer than 15 independent fields, or constant features.
    """
    y, x = np.log(np.maximum(size, 1e-30 * max(float(size.max(initial=0.0)), 1e-300))), features
    if labels is not None:
        group = np.unique(labels, return_inverse=True)[1].reshape(-1)
        count = np.bincount(group)
        y = np.bincount(group, y) / count
        x = np.stack([np.bincount(group, column) / count for column in x.T], axis=1) if x.shape[1] else x[: len(count)]
    spread = x.std(axis=0) if x.shape[1] else np.zeros(0)
    varying = spread > 1e-9 * (np.abs(x).max(axis=0) if x.shape[1] else spread)
    n = len(y)
    if n < MIN_FIELDS or not varying.any() or y.std() < 1e-9:
        return None
    x = (x[:, varying] - x[:, varying].mean(axis=0)) / spread[varying]
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    u, square = u[:, s > 1e-9 * s[0]], s[s > 1e-9 * s[0]] ** 2
    target = min(FREEDOM, n / 6)
    penalty = 0.0
    if len(square) > target:
        penalty = float(brentq(lambda p: (square / (square + p)).sum() - target, 0.0, 1e9 * square[0]))
    shrinkage = square / (square + penalty)
    leverage = (u**2 * shrinkage).sum(axis=1) + 1 / n

    def errors(values: Floats) -> Floats:
        """Return leave-one-out errors of centred values (n, …)."""
        fitted = u @ (shrinkage[:, None] * (u.T @ values))
        return np.asarray((values - fitted) / (1 - leverage[:, None]))

    centred = (y - y.mean())[:, None]
    rng = generator(seed, "noise permutation", 0)
    permuted = np.stack([centred[rng.permutation(n), 0] for _ in range(PERMUTATIONS)], axis=1)
    total = float(np.square(centred).sum()) * (n / (n - 1)) ** 2
    left = errors(centred)[:, 0] ** 2
    p_value = (1 + (np.square(errors(permuted)).sum(axis=0) <= left.sum()).sum()) / (PERMUTATIONS + 1)
    parts = np.stack([left, centred[:, 0] ** 2 * (n / (n - 1)) ** 2], axis=1)
    _, resamples = bootstrap(parts, lambda s: 1 - s[..., :1] / s[..., 1:], None, seed)
    explained = max(0.0, 1 - float(left.sum()) / total)
    return Score(explained, float(_spread(resamples, n)[0]), np.empty(0)), float(p_value)
