"""Scores of predictions, each with its Monte-Carlo error.

    MRLE  = N⁻¹ Σ_n ‖v_n − u_n‖ / ‖u_n‖,        RMSE = (N⁻¹ Σ_n ‖v_n − u_n‖²)^½,        MSTD = N⁻¹ Σ_n ‖s_n‖₂ / M,
    CRPS  = E|X − y| − ½ E|X − X'|              at a point, averaged over points,
    ES    = E‖X − y‖ − ½ E‖X − X'‖              of whole fields,
    NLL   = ½ ln 2πs² + (y − m)² / 2s²          at a point, averaged over points, in nats,

of predictions v (a mean m or one member), standard deviations s, ensemble members X and observations u or y. Smaller is better.
CRPS, ES and NLL are proper: their expectation is minimal for the distribution of the observations. CRPS and ES are *fair*:
E|X − X'| is a mean over pairs of distinct members, so their expected values do not depend on the number of members M.

Fields are (sample, channel, *grid), members (member, sample, channel, *grid). The norm is ‖v‖ = (Σ_i w_i v_i² / Σ_i w_i)^½
over the points i where `mask` is True (u is observed; values elsewhere, NaN included, have no effect), with quadrature
`weights` w, all one by default. It has the units of v and does not grow with the number of points.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import dctn

from .._typing import Floats
from ..errors import UserError
from .running import fair_score, field_sums, point_sums
from .score import Score, broadcast_mask, check_fields, check_members, per_sample, point_weights

__all__ = [
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

EMPTY_BAND = 1e-8  # power added to every band, as a fraction of the mean power of the observations: keeps empty bands finite


def mrle(v: ArrayLike, u: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the mean relative L² error N⁻¹ Σ_n ‖v_n − u_n‖ / ‖u_n‖ of a mean or of one member.

    Args:
        v: predictions, (sample, channel, *grid).
        u: observations, in the shape of v.
        mask: True where u is observed; broadcasts against the last axes of u.
        weights: quadrature weights of the points, likewise; default: all one.

    Returns:
        The mean with its standard error over samples; `each` has the relative error of every sample, (sample,).

    Raises:
        UserError: if shapes do not fit, observed values are not finite, or u = 0 in all samples.

    >>> float(mrle([[3.0, 0.0]], [[3.0, 4.0]]))
    0.8
    """
    v, u = check_fields(mask, v=v, u=u)
    return relative_residual(v - u, u, mask=mask, weights=weights)


def relative_residual(
    residual: ArrayLike, reference: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Score:
    """Return N⁻¹ Σ_n ‖r_n‖ / ‖r⁰_n‖ for the residual 𝒢(v; a) of a prediction v and the reference 𝒢(0; a).

    A sample with zero reference has no relative error: it is NaN in `each` and excluded from the mean.

    Args:
        residual: r, (sample, channel, *grid).
        reference: r⁰, in the shape of r.
        mask, weights: as in `mrle`.

    Raises:
        UserError: as `mrle`; in particular if all references are zero.
    """
    both = check_fields(mask, residual=residual, reference=reference)
    above, below = (np.sqrt(per_sample(v**2, mask=mask, weights=weights)) for v in both)
    if not below.any():
        raise UserError("all samples are zero, so the relative error is undefined; use the root mean square error")
    each = above / np.where(below > 0, below, np.nan)
    score = Score.mean(each[below > 0])
    return Score(score.value, score.error, each)


def rmse(v: ArrayLike, u: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the root mean square error; `each` is that of every sample. Arguments and exceptions as in `mrle`.

    Its standard error, by the delta method, is that of the mean square error / (2 RMSE), and 0 if RMSE = 0.
    """
    v, u = check_fields(mask, v=v, u=u)
    squares = Score.mean(per_sample((v - u) ** 2, mask=mask, weights=weights))
    value = math.sqrt(squares.value)
    return Score(value, squares.error / (2 * value) if value else squares.error, np.sqrt(squares.each))


def mstd(std: ArrayLike, members: int, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the paper's MSTD as printed: N⁻¹ Σ_n ‖s_n‖₂ / M, with the Euclidean norm and M = `members`.

    It is proportional to 1/M and, for d points, to √d, so values are comparable only at equal M and d; `mean_std` depends on
    neither. With weights, ‖s‖₂ = √d·‖s‖, where d is the number of observed points of positive weight.

    Args:
        std: standard deviations over members, (sample, channel, *grid).
        members: number of members M, at least 2.
        mask, weights: as in `mrle`.

    Raises:
        UserError: if there are fewer than 2 members, or std is negative or not finite at observed points.

    >>> float(mstd([[3.0, 4.0]], 10))
    0.5
    """
    if members < 2:
        raise UserError(f"a standard deviation was passed for members = {members}, expected 2 or more; draw more members")
    (s,) = check_fields(mask, std=std)
    d = np.count_nonzero(point_weights(s.shape, mask, weights), axis=1)
    return Score.mean(np.sqrt(d * per_sample(s**2, mask=mask, weights=weights)) / members)


def mean_std(std: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the mean norm of standard deviations, N⁻¹ Σ_n ‖s_n‖₂ / √d = N⁻¹ Σ_n ‖s_n‖, in the units of u.

    Args:
        std: standard deviations over members, (sample, channel, *grid).
        mask, weights: as in `mrle`.
    """
    return Score.mean(np.sqrt(per_sample(check_fields(mask, std=std)[0] ** 2, mask=mask, weights=weights)))


def nll(
    mean: ArrayLike, std: ArrayLike, u: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Score:
    """Return the negative log-likelihood of u under N(mean, std²) at every point, in nats per point.

    Where s = 0 it is −∞ if u = m, and +∞ otherwise. One value +∞ makes the score +∞.

    Args:
        mean, std: predicted mean and standard deviation, (sample, channel, *grid).
        u: observations, in the same shape.
        mask, weights: as in `mrle`.
    """
    m, s, u = check_fields(mask, mean=mean, std=std, u=u)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = np.where(u == m, 0.0, (u - m) / s)
        values = np.where(np.isinf(z), np.inf, 0.5 * math.log(2 * math.pi) + np.log(s) + z**2 / 2)
    return Score.mean(per_sample(values, mask=mask, weights=weights))


def crps(members: ArrayLike, u: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the fair continuous ranked probability score over all pairs of members, averaged over points.

    For a single member it is the absolute error |X − y|.

    Args:
        members: (member, sample, channel, *grid).
        u: observations, (sample, channel, *grid).
        mask, weights: as in `mrle`.

    Raises:
        UserError: if shapes do not fit, observed values are not finite, or there are no members.

    >>> float(crps([[[0.0]], [[4.0]]], [[1.0]]))  # ½(1 + 3) − ½·4
    0.0
    """
    x, u = _check_ensemble(members, u, mask)
    points = np.flatnonzero(broadcast_mask(u.shape, mask))
    values = np.full(u.size, np.nan)
    values[points] = fair_score(*point_sums(x.reshape(len(x), -1), u.ravel(), points), len(x), math.comb(len(x), 2))
    return Score.mean(per_sample(values.reshape(u.shape), mask=mask, weights=weights))


def energy_score(members: ArrayLike, u: ArrayLike, *, mask: ArrayLike | None = None, weights: ArrayLike | None = None) -> Score:
    """Return the fair energy score of whole fields over all pairs of members; for a single member it is ‖X − y‖.

    The norm is the root mean square of this module: divide the usual score, with the Euclidean norm, by √d. Arguments and
    exceptions as in `crps`.
    """
    x, u = _check_ensemble(members, u, mask)
    w = point_weights(u.shape, mask, weights)
    sums = (field_sums(x[:, n].reshape(len(x), -1), u[n].ravel(), w_n) for n, w_n in enumerate(w))
    return Score.mean([float(fair_score(*both, len(x), math.comb(len(x), 2))) for both in sums])


def spectrum(fields: ArrayLike) -> Floats:
    """Return the power of fields (sample, channel, *grid) in bands of wavenumbers, summed over channels: (sample, band).

    Band b sums the squared coefficients k of the orthonormal DCT-II, with modes cos πk(i + ½)/n along each axis, whose radius
    |k| rounds to b; in one dimension it is mode b. The sum over bands is the sum of squares of the field (Parseval).

    Raises:
        UserError: if fields have no axes of channels and grid, or are not finite.

    >>> spectrum([[[1.0, 1.0]], [[1.0, -1.0]]]).round(12)
    array([[2., 0.], [0., 2.]])
    """
    (v,) = check_fields(None, field=fields)
    if v.ndim < 3:
        raise UserError(f"fields have shape {v.shape}, expected (sample, channel, *grid); add the missing axes")
    power = np.square(dctn(v, axes=range(2, v.ndim), norm="ortho")).sum(axis=1).reshape(len(v), -1)
    modes = np.meshgrid(*map(np.arange, v.shape[2:]), indexing="ij")
    bands = np.rint(np.sqrt(sum(np.square(k) for k in modes))).astype(int).ravel()
    return np.stack([np.bincount(bands, weights=row) for row in power])


def spectral_distance(p: ArrayLike, q: ArrayLike) -> Score:
    """Return the root mean square over bands of log₁₀ (P + δ)/(Q + δ), where P and Q are means over samples.

    δ = 10⁻⁸ of the mean of Q over bands avoids the logarithm of empty bands. A distance of 1 is a factor of ten. The error is
    by the jackknife over samples, and `each` has the pseudo-values N·T − (N − 1)·T₋ₙ, with T₋ₙ the distance T without sample n.
    For few samples T > 0 even for perfect predictions.

    Args:
        p: spectra of predictions, (sample, band), as returned by `spectrum`.
        q: spectra of observations of the same samples, in the shape of p.

    Raises:
        UserError: if shapes differ, values are negative or not finite, or q = 0.
    """
    p, q = check_fields(None, p=p, q=q)
    if p.ndim != 2 or min(p.min(), q.min()) < 0:
        raise UserError(f"p and q of shape {p.shape} are not power spectra (sample, band); pass the output of `spectrum`")
    if not q.any():
        raise UserError("spectra q of observations are zero, so the distance is undefined; pass other observations")
    n, delta = len(p), EMPTY_BAND * q.mean()
    # First row: all samples; other rows: all samples but one.
    means = (np.vstack([x.mean(axis=0), np.maximum(x.sum(axis=0) - x, 0) / max(1, n - 1)]) + delta for x in (p, q))
    distances = np.sqrt(np.square(np.log10(np.divide(*means))).mean(axis=1))
    each = n * distances[0] - (n - 1) * distances[1:]
    return Score(float(distances[0]), Score.mean(each).error, each)


def _check_ensemble(members: ArrayLike, u: ArrayLike, mask: ArrayLike | None) -> tuple[NDArray[np.floating], Floats]:
    """Return members (member, sample, …) and u (sample, …), checked."""
    (y,) = check_fields(mask, u=u)
    x = check_members(members, y.shape, broadcast_mask(y.shape, mask))
    if not len(x):
        raise UserError("an ensemble without members was passed, expected at least one; draw more members")
    return x, y
