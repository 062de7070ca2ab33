"""Scores of forecasts, each with its Monte-Carlo error.

    MRLE  = N⁻¹ Σ_n ‖v_n − u_n‖ / ‖u_n‖,        RMSE = (N⁻¹ Σ_n ‖v_n − u_n‖²)^½,        MSTD = N⁻¹ Σ_n ‖s_n‖₂ / M,
    CRPS  = E|X − y| − ½ E|X − X'|              at a point, averaged over points,
    ES    = E‖X − y‖ − ½ E‖X − X'‖              of whole fields,
    NLL   = ½ ln 2πs² + (y − m)² / 2s²          at a point, averaged over points, in nats,

of predictions v (a mean m or one member), standard deviations s, members X and observations u or y. Smaller is better, and
CRPS, ES and NLL are smallest on average for the law that observations come from. CRPS and ES are *fair*: E over pairs X, X'
is a mean over distinct members, so that their expected values do not depend on the number of members M.

Fields are (sample, channel, *grid), members (member, sample, channel, *grid). The norm is ‖v‖ = (Σ_i w_i v_i² / Σ_i w_i)^½
over the points i where `mask` is True (u is known; values elsewhere, NaN included, never matter), with `weights` w of a
quadrature, all one by default. So ‖v‖ has the units of v and does not grow with the number of points.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dctn

from ..errors import UserError

__all__ = [
    "RunningCRPS",
    "RunningEnergy",
    "Score",
    "crps",
    "energy_score",
    "mean_std",
    "mrle",
    "mstd",
    "nll",
    "per_sample",
    "relative_residual",
    "rmse",
    "spectral_distance",
    "spectrum",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Sums = tuple[Array | float, Array | float]
Maybe = ArrayLike | None

BATCH = 100  # members among which running scores form pairs
BLOCK = 2**21  # numbers that are worked on at a time (16 MB)


@dataclass(frozen=True, eq=False)
class Score:
    """A score, its standard error from the spread over samples (NaN with one sample), and its parts, one a sample.

    >>> score = Score.mean([1, 2, 3, 6])
    >>> float(score), round(score.error, 3)
    (3.0, 1.08)
    """

    value: float
    error: float
    each: Array = field(repr=False)

    @classmethod
    def mean(cls, each: ArrayLike) -> Self:
        """Mean, and standard deviation / √N. A sample of score ∞ makes the mean ∞, whatever the others are."""
        x = np.asarray(each, dtype=np.float64)
        if x.ndim != 1 or not len(x):
            raise UserError(f"scores of samples have shape {x.shape}, expected one number a sample; give at least one sample")
        value = np.inf if (x == np.inf).any() else float(x.mean())
        error = float(x.std(ddof=1)) / math.sqrt(len(x)) if len(x) > 1 and np.isfinite(value) else np.nan
        return cls(value, error, x)

    @classmethod
    def root_of_ratio(cls, top: Array, bottom: Array) -> Self:
        """r = √(mean top / mean bottom), by the delta method: the error of r² is that of mean (top − r²·bottom) / mean bottom.

        It is 0 where the mean of `top`, which may be an estimate, is not positive.
        """
        above, below = top.mean(), bottom.mean()
        if above <= 0 or below == 0:
            return cls(float(np.inf if above > 0 else 0.0), float(np.nan if above else 0.0), np.empty(0))
        root = float(np.sqrt(above / below))
        return cls(root, float(cls.mean(top - root**2 * bottom).error / below / (2 * root)), np.empty(0))

    def __float__(self) -> float:
        return self.value


def per_sample(values: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Array:
    """Weighted mean over all but the first axis, over known points: (sample, …) → (sample). One value ∞ makes the mean ∞.

    >>> per_sample([[1, 3, np.nan], [2, 2, 8]], mask=[[True, True, False], [True, True, True]])
    array([2., 4.])
    """
    x = np.asarray(values, dtype=np.float64)
    shares = _shares(x.shape, mask, weights)
    x = np.where(shares > 0, x.reshape(shares.shape), 0.0)
    if np.isnan(x).any():
        raise UserError("values to be averaged are NaN at known points, expected numbers; leave such points out by a mask")
    with np.errstate(invalid="ignore"):
        means = (shares * x).sum(axis=1)
    return np.where((x == np.inf).any(axis=1), np.inf, means)


def mrle(v: ArrayLike, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Mean relative L² error, N⁻¹ Σ_n ‖v_n − u_n‖ / ‖u_n‖, of a mean or of one member, v = members[0].

    >>> float(mrle([[3.0, 0.0]], [[3.0, 4.0]]))
    0.8
    """
    v, u = _fields(mask, v=v, u=u)
    return relative_residual(v - u, u, mask=mask, weights=weights)


def relative_residual(residual: ArrayLike, reference: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """N⁻¹ Σ_n ‖r_n‖ / ‖r⁰_n‖, of the residual 𝒢(v; a) of a prediction v against the reference 𝒢(0; a).

    Samples whose reference is zero have no relative error: they are NaN in `each`, and do not count.
    """
    both = _fields(mask, residual=residual, reference=reference)
    above, below = (np.sqrt(per_sample(v**2, mask=mask, weights=weights)) for v in both)
    if not below.any():
        raise UserError("all samples are zero, so that no error is relative to them; look at the root mean square error")
    each = above / np.where(below > 0, below, np.nan)
    score = Score.mean(each[below > 0])
    return Score(score.value, score.error, each)


def rmse(v: ArrayLike, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Root mean square error; `each` is that of every sample, of which it is the root mean square.

    Its error is by the delta method: √x has the slope 1 / 2√x, so that of the mean square over 2·RMSE (0 if RMSE is 0).
    """
    v, u = _fields(mask, v=v, u=u)
    squares = Score.mean(per_sample((v - u) ** 2, mask=mask, weights=weights))
    value = math.sqrt(squares.value)
    return Score(value, squares.error / (2 * value) if value else squares.error, np.sqrt(squares.each))


def mstd(std: ArrayLike, members: int, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """The paper's MSTD as printed: N⁻¹ Σ_n ‖s_n‖₂ / M, with the plain Euclidean norm, for M = `members`.

    It falls as 1/M and grows as √d with d points, so compare it only at the same M and d; `mean_std` depends on neither.
    Of weights only ratios count: ‖s‖₂ = √d·‖s‖, where d is the number of points that are known and of positive weight.

    >>> float(mstd([[3.0, 4.0]], 10))
    0.5
    """
    if members < 2:
        raise UserError(f"a standard deviation was given for members = {members}, expected 2 or more; draw more members")
    (s,) = _fields(mask, std=std)
    d = np.count_nonzero(_shares(s.shape, mask, weights), axis=1)
    return Score.mean(np.sqrt(d * per_sample(s**2, mask=mask, weights=weights)) / members)


def mean_std(std: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """N⁻¹ Σ_n ‖s_n‖₂ / √d = N⁻¹ Σ_n ‖s_n‖: the size of standard deviations, in the units of u."""
    return Score.mean(np.sqrt(per_sample(_fields(mask, std=std)[0] ** 2, mask=mask, weights=weights)))


def nll(mean: ArrayLike, std: ArrayLike, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Negative log-likelihood of a Gaussian at every point, in nats a point.

    Where s = 0 it is −∞ if u = m, which was certain, and +∞ if not, which was impossible. One +∞ makes the score +∞.
    """
    m, s, u = _fields(mask, mean=mean, std=std, u=u)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(u == m, 0.0, (u - m) / s)
        values = np.where(np.isinf(z), np.inf, 0.5 * math.log(2 * math.pi) + np.log(s) + z**2 / 2)
    return Score.mean(per_sample(values, mask=mask, weights=weights))


def crps(members: ArrayLike, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Fair continuous ranked probability score over all pairs of members, averaged over points; of one member |X − y|.

    >>> float(crps([[[0.0]], [[4.0]]], [[1.0]]))  # ½(1 + 3) − ½·4
    0.0
    """
    x, u = _ensemble(members, u, mask)
    points = np.flatnonzero(_known(u.shape, mask))
    values = np.full(u.size, np.nan)
    values[points] = _fair(*_point_sums(x.reshape(len(x), -1), u.ravel(), points), len(x), math.comb(len(x), 2))
    return Score.mean(per_sample(values.reshape(u.shape), mask=mask, weights=weights))


def energy_score(members: ArrayLike, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> Score:
    """Fair energy score of whole fields over all pairs of members; of one member ‖X − y‖.

    With the root-mean-square norm of this module: the usual one, of the Euclidean norm, over √d.
    """
    x, u = _ensemble(members, u, mask)
    shares = _shares(u.shape, mask, weights)
    sums = (_field_sums(x[:, n].reshape(len(x), -1), u[n].ravel(), w) for n, w in enumerate(shares))
    return Score.mean([float(_fair(*both, len(x), math.comb(len(x), 2))) for both in sums])


def spectrum(fields: ArrayLike) -> Array:
    """Power of fields (sample, channel, *grid) in bands of wavenumbers, all channels together: (sample, band).

    Band b sums the squares of the coefficients k of the orthonormal DCT-II, of modes cos πk(i + ½)/n along each axis, whose
    radius |k| rounds to b; in one dimension it is mode b. Bands add up to the sum of squares of the field (Parseval).

    >>> spectrum([[[1.0, 1.0]], [[1.0, -1.0]]]).round(12)
    array([[2., 0.], [0., 2.]])
    """
    (v,) = _fields(None, field=fields)
    if v.ndim < 3:
        raise UserError(f"fields have shape {v.shape}, expected (sample, channel, *grid); add the axes that are missing")
    power = np.square(dctn(v, axes=range(2, v.ndim), norm="ortho")).sum(axis=1).reshape(len(v), -1)
    modes = np.meshgrid(*map(np.arange, v.shape[2:]), indexing="ij")
    bands = np.rint(np.sqrt(sum(np.square(k) for k in modes))).astype(int).ravel()
    return np.stack([np.bincount(bands, weights=row) for row in power])


def spectral_distance(p: ArrayLike, q: ArrayLike) -> Score:
    """Root mean square over bands of log₁₀ (P + δ)/(Q + δ), P and Q being means of spectra (sample, band) over samples.

    `p` is of predictions, `q` of observations of the same samples; δ = 10⁻⁸ of the mean of Q over bands keeps empty bands
    quiet. A distance of 1 is a factor of ten. The error is by the jackknife over samples, and `each` are its pseudo-values
    N·T − (N − 1)·T₋ₙ, with T₋ₙ the distance T without sample n. With few samples T > 0 also for perfect predictions.
    """
    p, q = _fields(None, p=p, q=q)
    if p.ndim != 2 or min(p.min(), q.min()) < 0:
        raise UserError(f"p and q of shape {p.shape} are not spectra (sample, band) of power; give what `spectrum` returns")
    if not q.any():
        raise UserError("spectra q of observations are zero, so that nothing is relative to them; give other observations")
    n, delta = len(p), 1e-8 * q.mean()
    # The first row is of all samples, the others are of all but one.
    means = (np.vstack([x.mean(axis=0), np.maximum(x.sum(axis=0) - x, 0) / max(1, n - 1)]) + delta for x in (p, q))
    distances = np.sqrt(np.square(np.log10(np.divide(*means))).mean(axis=1))
    each = n * distances[0] - (n - 1) * distances[1:]
    return Score(float(distances[0]), Score.mean(each).error, each)


class _Running:
    """Sums over members of one input that come in batches, taken over `BATCH` members at a time."""

    def __init__(self, u: Array, known: Mask, sums: Callable[[Array], Sums]) -> None:
        self.count = 0
        self._shape, self._known, self._sums = u.shape, known, sums
        self._buffer = np.empty((BATCH, u.size))
        self._errors: Array | float = 0.0  # Σ |X − y| and Σ |X − X'| of the buffers that were full
        self._pairs: Array | float = 0.0

    def add(self, batch: ArrayLike) -> None:
        """Take in a batch (k, *u.shape)."""
        x = _members(batch, self._shape, self._known)
        for member in x.reshape(len(x), self._buffer.shape[1]):
            self._buffer[self.count % BATCH] = member
            self.count += 1
            if self.count % BATCH == 0:
                errors, pairs = self._sums(self._buffer)
                self._errors, self._pairs = self._errors + errors, self._pairs + pairs

    def _score(self) -> Array:
        if not self.count:
            return np.asarray(np.nan)
        full, rest = divmod(self.count, BATCH)
        errors, pairs = self._sums(self._buffer[:rest])
        number = full * math.comb(BATCH, 2) + math.comb(rest, 2)
        return _fair(self._errors + errors, self._pairs + pairs, self.count, number)


class RunningCRPS(_Running):
    """Fair CRPS at every point of one observation u (channel, *grid), of members that come batch by batch.

    E|X − y| is over all members, E|X − X'| over the pairs within each hundred of them, in the order in which they come. The
    mean over these pairs is unbiased as the one over all pairs is. With M members in full hundreds its variance is
    4ζ₁/M + 2(ζ₂ − 2ζ₁)/(99 M), where ζ₁ = Var E(|X − X'| | X) and ζ₂ = Var|X − X'|; that of all pairs has M − 1 for 99. For
    Gaussian members this is 1.2 % more at most. Up to 100 members give `crps`; how they are cut into batches never matters.

    >>> running = RunningCRPS([1.0, np.nan])
    >>> running.add([[0.0, 5.0]])
    >>> running.value
    array([ 1., nan])
    """

    def __init__(self, u: ArrayLike) -> None:
        known = ~np.isnan(np.asarray(u, dtype=np.float64))
        (y,) = _fields(known, u=u)
        self._points = np.flatnonzero(known)
        super().__init__(y, known, partial(_point_sums, y=y.flatten(), points=self._points))

    @property
    def value(self) -> Array:
        """Of the shape of u; NaN where u is NaN, and without members."""
        values = np.full(self._shape, np.nan)
        values.flat[self._points] = self._score()
        return values


class RunningEnergy(_Running):
    """Fair energy score of one observation u (channel, *grid), of members that come batch by batch; pairs as `RunningCRPS`."""

    def __init__(self, u: ArrayLike, *, mask: Maybe = None, weights: Maybe = None) -> None:
        (y,) = _fields(mask, u=u)
        (w,) = _shares((1, *y.shape), mask, weights)
        super().__init__(y, _known(y.shape, mask), partial(_field_sums, y=y.flatten(), weights=w))

    @property
    def value(self) -> float:
        """NaN without members."""
        return float(self._score())


def _fair(errors: Array | float, pairs: Array | float, members: int, number: int) -> Array:
    """E|X − y| − ½ E|X − X'| from sums over members and over `number` pairs."""
    return np.asarray(errors / members - 0.5 * pairs / max(1, number))


def _point_sums(x: NDArray[np.floating], y: Array, points: NDArray[np.intp]) -> tuple[Array, Array]:
    """Σ_i |x_i − y| and Σ_{i<j} |x_i − x_j| at the points asked for, of members (member, point).

    The gap between the k-th and the next of the M ordered members lies in k(M − k) of the distances. All terms are positive,
    so that a small spread far from zero is not lost.
    """
    k = np.arange(1.0, len(x))
    errors, pairs = np.zeros((2, len(points)))
    for block in _blocks(len(points), max(1, BLOCK // max(1, len(x)))):
        some = np.array(x[:, points[block]].T, dtype=np.float64, order="C")
        errors[block] = np.abs(some - y[points[block], None]).sum(axis=1)
        some.sort(axis=1)
        pairs[block] = np.diff(some, axis=1) @ (k * (len(x) - k))
    return errors, pairs


def _field_sums(x: NDArray[np.floating], y: Array, weights: Array) -> tuple[float, float]:
    """Σ_i ‖x_i − y‖ and Σ_{i<j} ‖x_i − x_j‖ of members (member, point), for weights that add up to one.

    Distances come from the Gram matrix, ‖a − b‖² = ‖a‖² + ‖b‖² − 2⟨a, b⟩, of members less their mean, so that a small
    spread far from zero is not lost.
    """
    used = np.flatnonzero(weights)
    root = np.sqrt(weights[used])
    blocks = _blocks(len(x), max(16, BLOCK // len(used)))
    centre = sum(x[rows][:, used].sum(axis=0, dtype=np.float64) for rows in blocks) / max(1, len(x))
    errors = pairs = 0.0
    for i, rows in enumerate(blocks):
        errors += np.linalg.norm((x[rows][:, used] - y[used]) * root, axis=1).sum()
        a = (x[rows][:, used] - centre) * root
        for others in blocks[i:]:
            b = a if others == rows else (x[others][:, used] - centre) * root
            squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * (a @ b.T)
            distances = np.sqrt(np.maximum(squares, 0))
            pairs += (np.triu(distances, 1) if b is a else distances).sum()
    return errors, pairs


def _blocks(size: int, width: int) -> list[slice]:
    return [slice(first, first + width) for first in range(0, size, width)]


def _fields(mask: Maybe, **named: ArrayLike) -> list[Array]:
    """The fields as floats, after a look at their shapes and at their values where they are known."""
    fields = {name: np.asarray(x, dtype=np.float64) for name, x in named.items()}
    *_, (last, reference) = fields.items()
    if not reference.size:
        raise UserError(f"{last} has shape {reference.shape}, so no values; give at least one sample and one point")
    known = _known(reference.shape, mask)
    for name, x in fields.items():
        if x.shape != reference.shape:
            raise UserError(f"{name} has shape {x.shape}, {last} has {reference.shape}; give both on the same samples and grid")
        if not np.isfinite(x).all(where=known):
            raise UserError(
                f"{name} has NaN or infinite values, expected numbers; leave such samples out, or such points by a mask"
            )
        if name == "std" and (x < 0).any(where=known):
            raise UserError("std has negative values, expected standard deviations; check what was passed as std")
    return list(fields.values())


def _ensemble(members: ArrayLike, u: ArrayLike, mask: Maybe) -> tuple[NDArray[np.floating], Array]:
    (y,) = _fields(mask, u=u)
    x = _members(members, y.shape, _known(y.shape, mask))
    if not len(x):
        raise UserError("an ensemble without members was given, expected at least one; draw more members")
    return x, y


def _members(members: ArrayLike, shape: tuple[int, ...], known: Mask) -> NDArray[np.floating]:
    """Members, which are not copied, after the same look."""
    x = np.asarray(members)
    if x.ndim == 0 or x.shape[1:] != shape:
        expected = ", ".join(["member", *map(str, shape)])
        raise UserError(f"members have shape {x.shape}, expected ({expected}); put members on the first axis")
    if not all(np.isfinite(member).all(where=known) for member in x):
        raise UserError("members are NaN or infinite at known points, expected numbers; leave such members out")
    return x


def _known(shape: tuple[int, ...], mask: Maybe) -> Mask:
    known = np.asarray(True if mask is None else mask)
    if known.dtype != np.bool_ or not _fits(known, shape):
        got = f"{known.dtype} of shape {known.shape}"
        raise UserError(f"a mask is {got}, expected True or False for fields of shape {shape}; give True where u is known")
    return np.broadcast_to(known, shape)


def _shares(shape: tuple[int, ...], mask: Maybe, weights: Maybe) -> Array:
    """Weights of the known points of each sample, which add up to one: (sample, point)."""
    if not shape:
        raise UserError("a single number was given, expected fields (sample, channel, *grid); add the axes that are missing")
    w = np.asarray(1.0 if weights is None else weights, dtype=np.float64)
    if not _fits(w, shape[1:]) or not np.isfinite(w).all() or (w < 0).any():
        got = f"weights of shape {w.shape}, the least {w.min(initial=np.inf)}"
        raise UserError(f"{got}, expected finite numbers ≥ 0 for samples of shape {shape[1:]}; give those of a quadrature")
    w = np.where(_known(shape, mask), w, 0.0).reshape(shape[0], math.prod(shape[1:]))
    totals = w.sum(axis=1, keepdims=True)
    if not totals.all():
        raise UserError(f"sample {totals.argmin()} has no known point of positive weight; leave this sample out")
    return np.asarray(w / totals)


def _fits(x: NDArray[Any], shape: tuple[int, ...]) -> bool:
    return x.ndim <= len(shape) and all(n in (1, m) for n, m in zip(x.shape[::-1], shape[::-1], strict=False))
