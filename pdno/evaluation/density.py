"""Density of a scalar from draws: a kernel density estimate that resolves narrow modes, and a Gaussian mixture.

    p̂(x) = n⁻¹ Σ_i φ_h(x − x_i),        p(x) = Σ_j w_j φ_{s_j}(x − m_j),        φ_h the density of N(0, h²).

**Bandwidth h**: the improved Sheather–Jones plug-in of Botev, Grotowski and Kroese (Annals of Statistics 38, 2010). On an
interval of length one, the optimal t = h² is (2n√π ‖p''‖²)^(−2/5), and ‖p^(s)‖² is estimated from the cosine modes c_k of the
draws, smoothed for a time t_s that depends on ‖p^(s+1)‖² in the same way:

    ‖p^(s)‖² ≈ 2π^(2s) Σ_k k^(2s) (c_k/2)² exp(−k²π²t_s),
    t_s = [(1 + 2^(−s−½))/3 · 2·(1·3⋯(2s−1))/√(2π) / (n ‖p^(s+1)‖²)]^(2/(3+2s)),        s = 6, …, 2.

Starting from s = 7 with t_7 = t, this is a fixed-point equation for t. Unlike Silverman's rule it does not assume a normal
distribution, so the distance between narrow modes does not affect h. Silverman's rule is used if the equation has no root.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct, idct
from scipy.optimize import brentq

from .._typing import Floats
from ..draw import generator
from ..errors import UserError
from .score import Score, per_sample

__all__ = ["Density", "Mixture", "density", "recovered"]

SHORT_STEPS = 30  # steps of expectation–maximisation after which starts are compared
CELLS = 2**14  # cells of the histogram of draws, whose cosine modes are used
STAGES = 7  # highest derivative s of the fixed-point equation
MARGIN = 5.0  # bandwidths between the outermost draw and the end of the interval
MIN_STD = 1e-3  # smallest standard deviation of a component, as a fraction of that of all draws: bounds the likelihood


@dataclass(frozen=True, eq=False)
class Density:
    """Values of a density at points x, and the bandwidth of its kernels."""

    x: Floats
    density: Floats
    bandwidth: float


def density(values: ArrayLike, points: int = 512, bandwidth: float | None = None) -> Density:
    """Return a Gaussian kernel density estimate at equidistant points, up to five bandwidths beyond the draws.

    Args:
        values: draws, of any shape.
        points: number of points; a spacing of at most two bandwidths resolves all modes.
        bandwidth: h; default: by the improved Sheather–Jones rule.

    Raises:
        UserError: if fewer than two draws differ, or bandwidth or points is out of range.

    >>> estimate = density(np.random.default_rng(0).normal(size=10_000))
    >>> round(estimate.bandwidth, 2), round(float(estimate.density.max()), 2)
    (0.17, 0.39)
    """
    draws = _draws(values)
    h = _bandwidth(draws) if bandwidth is None else float(bandwidth)
    if not (np.isfinite(h) and h > 0) or points < 2:
        raise UserError(f"bandwidth = {bandwidth}, points = {points}: expected a bandwidth above 0 and at least 2 points")
    low, length = draws.min() - MARGIN * h, np.ptp(draws) + 2 * MARGIN * h
    modes = _modes(draws, low, length) * np.exp(-0.5 * (np.arange(CELLS) * np.pi * h / length) ** 2)
    fine = np.maximum(idct(modes) * CELLS / length, 0)
    x = np.linspace(low, low + length, points)
    return Density(x, np.interp(x, low + (np.arange(CELLS) + 0.5) * length / CELLS, fine), h)


def _bandwidth(draws: Floats) -> float:
    """Return the improved Sheather–Jones bandwidth."""
    low, length = draws.min() - 0.1 * np.ptp(draws), 1.2 * np.ptp(draws)
    squares, n = (_modes(draws, low, length)[1:] / 2) ** 2, len(np.unique(draws))
    k2 = np.arange(1, CELLS, dtype=np.float64) ** 2

    def excess(t: float) -> float:
        norm = _norm(squares, k2, STAGES, t)
        for s in range(STAGES - 1, 1, -1):
            factor = (1 + 0.5 ** (s + 0.5)) / 3 * 2 * np.prod(np.arange(1.0, 2 * s, 2)) / np.sqrt(2 * np.pi)
            norm = _norm(squares, k2, s, (factor / (n * norm)) ** (2 / (3 + 2 * s)))
        return float(t - (2 * n * np.sqrt(np.pi) * norm) ** -0.4)

    times = np.geomspace(CELLS**-2.0, 0.1, 40)
    with np.errstate(divide="ignore", over="ignore"):
        sign = np.array([excess(t) for t in times]) > 0
        roots = np.flatnonzero(~sign[:-1] & sign[1:])
        if len(roots):
            return float(np.sqrt(brentq(excess, times[roots[0]], times[roots[0] + 1], rtol=1e-6)) * length)
    quarter, three = np.quantile(draws, [0.25, 0.75])
    spread = min(draws.std(), (three - quarter) / 1.34) or draws.std()
    return float(0.9 * spread * len(draws) ** -0.2)


def _norm(squares: Floats, k2: Floats, s: int, t: float) -> float:
    """Return ‖p^(s)‖² at time t."""
    return float(2 * np.pi ** (2 * s) * (k2**s * squares * np.exp(-k2 * np.pi**2 * t)).sum())


def _modes(draws: Floats, low: float, length: float) -> Floats:
    """Return the cosine modes of the histogram of the draws on an interval."""
    counts = np.histogram(draws, bins=CELLS, range=(low, low + length))[0]
    return np.asarray(dct(counts / len(draws)))


@dataclass(frozen=True, eq=False)
class Mixture:
    """Σ_j weights_j N(means_j, stds_j²) in one dimension, means ascending.

    >>> draws = np.random.default_rng(0).normal([-3.0, 3.0], [0.1, 1.0], size=(500, 2)).ravel()
    >>> mixture = Mixture.choose(draws)
    >>> mixture.weights.round(2), mixture.means.round(1), mixture.stds.round(1)
    (array([0.5, 0.5]), array([-3.,  3.]), array([0.1, 1. ]))
    """

    weights: Floats
    means: Floats
    stds: Floats

    @classmethod
    def fit(
        cls, values: ArrayLike, components: int, seed: int = 0, starts: int = 8, iterations: int = 500, rtol: float = 1e-7
    ) -> "Mixture":
        """Fit by expectation–maximisation: the best of several starts after 30 steps, continued until convergence.

        Standard deviations are bounded below by a thousandth of that of all draws, because the likelihood is unbounded
        otherwise. In the first start, components have equal numbers of draws; in the others, means are drawn from the values.

        Args:
            values: draws, of any shape.
            components: their number.
            seed: of the starts.
            starts: number of starts.
            iterations: maximum number of further steps.
            rtol: relative gain of the log-likelihood per draw at which to stop.

        Raises:
            UserError: if fewer than two draws differ, or components or starts is out of range.
        """
        draws = _draws(values)
        if not 1 <= components <= len(draws) or starts < 1:
            raise UserError(
                f"components = {components}, starts = {starts}: expected 1 to {len(draws)} components for {len(draws)} draws, "
                "and at least one start"
            )
        candidates = []
        for mixture in cls._starts(draws, components, seed, starts if components > 1 else 1):
            for _ in range(SHORT_STEPS):
                mixture, likelihood = mixture._step(draws)
            candidates.append((likelihood, mixture))
        likelihood, best = max(candidates, key=lambda pair: pair[0])
        for _ in range(iterations):
            last = likelihood
            best, likelihood = best._step(draws)
            if likelihood - last < rtol * len(draws):
                break
        order = np.argsort(best.means)
        return cls(best.weights[order], best.means[order], best.stds[order])

    @classmethod
    def choose(cls, values: ArrayLike, most: int = 6, seed: int = 0) -> "Mixture":
        """Fit with the number k ≤ `most` of components that minimises BIC = (3k − 1) log n − 2 log L."""
        draws = _draws(values)
        fits = [cls.fit(draws, k, seed) for k in range(1, min(most, len(draws)) + 1)]
        if not fits:
            raise UserError(f"most = {most} components: expected at least 1")
        return min(fits, key=lambda m: (3 * len(m.weights) - 1) * np.log(len(draws)) - 2 * m.log_likelihood(draws))

    def pdf(self, x: ArrayLike) -> Floats:
        """Return the density at points x, in their shape."""
        return np.asarray(np.exp(self._responsibilities(np.asarray(x, dtype=np.float64))[1]))

    def log_likelihood(self, values: ArrayLike) -> float:
        """Return Σ_i log p(x_i)."""
        return float(self._responsibilities(np.asarray(values, dtype=np.float64))[1].sum())

    def _responsibilities(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the probability of each component given x, (component, *x.shape), and log p(x)."""
        w, m, s = (each.reshape(-1, *[1] * x.ndim) for each in (self.weights, self.means, self.stds))
        shares = -0.5 * ((x - m) / s) ** 2 + (np.log(np.maximum(w, 1e-300) / s) - 0.5 * np.log(2 * np.pi))
        top = shares.max(axis=0)
        np.exp(shares - top, out=shares)
        total = shares.sum(axis=0)
        return shares / total, np.asarray(top + np.log(total))

    def _step(self, draws: Floats) -> tuple["Mixture", float]:
        """Return the mixture after one step of expectation–maximisation, and the log-likelihood before it.

        The log-likelihood never decreases. The lower bound of standard deviations does not change that, as the expected
        log-likelihood has one maximum in each of them.
        """
        shares, log_p = self._responsibilities(draws)
        totals = np.maximum(shares.sum(axis=1), 1e-300)
        means = shares @ draws / totals
        variances = (shares * (draws - means[:, None]) ** 2).sum(axis=1) / totals
        stds = np.sqrt(np.maximum(variances, (MIN_STD * draws.std()) ** 2))
        return Mixture(totals / totals.sum(), means, stds), float(log_p.sum())

    @classmethod
    def _starts(cls, draws: Floats, k: int, seed: int, starts: int) -> Iterator["Mixture"]:
        """Yield the mixtures that expectation–maximisation starts from."""
        parts = np.array_split(np.sort(draws), k)
        least = MIN_STD * draws.std()
        yield cls(
            np.full(k, 1 / k), np.array([part.mean() for part in parts]), np.array([part.std() + least for part in parts])
        )
        for index in range(1, starts):
            means = generator(seed, "mixture", index).choice(draws, k, replace=False)
            yield cls(np.full(k, 1 / k), means, np.full(k, draws.std() / k))


def recovered(std: ArrayLike, noise_std: ArrayLike, *, mask: ArrayLike | None = None) -> Score:
    """Return (Σ s² / Σ σ²)^½ for predicted standard deviations s and those of the noise, σ. The correct value is 1.

    Args:
        std: s, (sample, channel, *grid).
        noise_std: σ, a number or fields.
        mask: True where u is observed.

    Returns:
        The ratio with the standard error of a ratio of means over samples; `each` has the ratio of every sample.

    Raises:
        UserError: if shapes do not fit, values are not finite, or a sample has no noise.

    >>> recovered(np.full((3, 1, 4), 0.1), 0.2)
    Score(value=0.5, error=0.0)
    """
    s = np.asarray(std, dtype=np.float64)
    try:
        sigma = np.broadcast_to(np.asarray(noise_std, dtype=np.float64), s.shape)
    except ValueError:
        raise UserError(
            f"std has shape {s.shape}, noise_std {np.shape(noise_std)}; pass a number, or fields of this shape"
        ) from None
    predicted, true = (per_sample(np.square(x), mask=mask) for x in (s, sigma))
    if not (np.isfinite(predicted).all() and np.isfinite(true).all() and (true > 0).all()):
        raise UserError("std or noise_std has NaN, or a sample has no noise; expected numbers, and noise in every sample")
    score = Score.root_of_ratio(predicted, true)
    return Score(score.value, score.error, np.sqrt(predicted / true))


def _draws(values: ArrayLike) -> Floats:
    """Return the draws as a vector; raise UserError unless at least two differ."""
    draws = np.asarray(values, dtype=np.float64).ravel()
    if len(draws) < 2 or not np.isfinite(draws).all() or np.ptp(draws) <= 1e-12 * np.abs(draws).max():
        raise UserError(f"{len(draws)} draws are too few, all the same, or not finite: expected at least two that differ")
    return draws
