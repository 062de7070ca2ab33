"""Number of Gaussian components of a scalar's distribution, by held-out likelihood, with bootstrap errors of their parameters.

    L_k = n⁻¹ Σ_i log p_k^(−i)(x_i),        k̂ = min {k : L_best − L_k ≤ standard error of L_best − L_k},

where p_k^(−i) is the mixture of k Gaussians fitted without the fold of x_i. This is the one-standard-error rule: of mixtures
that predict equally well within one standard error, the smallest is chosen. Fits to all folds, starts and resamples are made
at once: weights (fit, draw) say how often each draw counts in each fit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats, Ints
from ..draw import generator
from .density import MIN_STD, Mixture

__all__ = ["Components", "components", "count_modes"]

FOLDS = 5  # of the cross-validation
STARTS = 3  # of each fit: one by quantiles, the others random
SHORT_STEPS = 25  # of expectation–maximisation, after which starts are compared
LONG_STEPS = 30  # further steps
RESAMPLES = 50  # of the bootstrap
WARM_STEPS = 20  # of expectation–maximisation for a resample, from the fit to all draws
DRAWS_PER_COMPONENT = 10  # fewest
GRID_POINTS = 2000  # at which maxima of the density are counted

Parameters = tuple[Floats, Floats, Floats]  # weights, means and standard deviations, (fit, component)


@dataclass(frozen=True, eq=False)
class Components:
    """A Gaussian mixture, the standard errors of its parameters, and the held-out log-likelihood of each k = 1, 2, …"""

    mixture: Mixture
    weight_errors: Floats
    mean_errors: Floats
    std_errors: Floats
    held_out: Floats

    def __len__(self) -> int:
        return len(self.mixture.weights)

    @property
    def modes(self) -> int:
        """Number of local maxima of the density; components with nearly equal means have one."""
        return count_modes(self.mixture)


def count_modes(m: Mixture) -> int:
    """Return the number of local maxima of the density of a mixture."""
    spacing = np.linspace(-3, 3, GRID_POINTS // len(m.weights))
    rise = np.sign(np.diff(m.pdf(np.unique(m.means + spacing[:, None] * m.stds))))
    return int((np.diff(rise[rise != 0]) < 0).sum())


def components(values: ArrayLike, most: int = 5, *, labels: Ints | None = None, seed: int = 0) -> Components | None:
    """Fit a mixture whose number of components is chosen by held-out likelihood.

    Args:
        values: draws, (draw,).
        most: largest number of components; it is limited to one for every ten draws.
        labels: of dependent draws, which are held out and resampled together.
        seed: of folds, starts and resamples.

    Returns:
        None if fewer than two draws differ.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or not np.isfinite(x).all() or np.ptp(x) <= 1e-12 * np.abs(x).max():
        return None
    group = np.arange(len(x)) if labels is None else np.unique(labels, return_inverse=True)[1].reshape(-1)
    centre, unit = x.mean(), x.std()
    z = (x - centre) / unit
    held_out = _held_out(z, group, max(1, min(most, group.max() // DRAWS_PER_COMPONENT)), seed)
    k = _smallest(held_out, group)
    fit = Mixture(np.ones(1), np.zeros(1), np.ones(1)) if k == 1 else Mixture.fit(z, k, seed, starts=4)
    errors = _bootstrap(z, group, fit, seed)
    mixture = Mixture(fit.weights, centre + unit * fit.means, unit * fit.stds)
    return Components(mixture, errors[0], unit * errors[1], unit * errors[2], held_out.mean(axis=1) - np.log(unit))


def _held_out(z: Floats, group: Ints, most: int, seed: int) -> Floats:
    """Return the held-out log-likelihood of each draw, (k, draw); stop when two further components bring nothing."""
    count = group.max() + 1
    fold = (generator(seed, "mixture folds", 0).permutation(count) % min(FOLDS, count))[group]
    used = (fold != np.arange(fold.max() + 1)[:, None]).astype(np.float64)
    if not used.any(axis=1).all():
        return np.zeros((1, len(z)))
    likelihood: list[Floats] = []
    for k in range(1, most + 1):
        log_p = _log_densities(_fits(z, used, k, seed), z)[1]
        likelihood.append(log_p[fold, np.arange(len(z))])
        if k > 2 and np.argmax([each.mean() for each in likelihood]) < k - 2:
            break
    return np.stack(likelihood)


def _smallest(held_out: Floats, group: Ints) -> int:
    """Return the smallest number of components within one standard error of the best."""
    best = int(held_out.mean(axis=1).argmax())
    for k in range(best):
        gain = np.bincount(group, held_out[best] - held_out[k])
        if gain.mean() <= gain.std(ddof=1) / np.sqrt(len(gain)):
            return k + 1
    return best + 1


def _fits(z: Floats, weights: Floats, k: int, seed: int) -> Parameters:
    """Fit k components to weighted draws, (fit, draw); the best of several starts."""
    if k == 1:
        return _steps(z, weights, (np.ones((len(weights), 1)),) * 3, 1)
    parts = np.array_split(np.sort(z), k)
    rng = generator(seed, "mixture starts", k)
    means = [np.array([part.mean() for part in parts])] + [rng.choice(z, k, replace=False) for _ in range(STARTS - 1)]
    stds = [np.array([part.std() + MIN_STD for part in parts])] + [np.full(k, 1 / k)] * (STARTS - 1)
    start = np.full((STARTS, k), 1 / k), np.stack(means), np.stack(stds)
    repeated = [np.repeat(part, len(weights), axis=0) for part in start]
    fit = _steps(z, np.tile(weights, (STARTS, 1)), (repeated[0], repeated[1], repeated[2]), SHORT_STEPS)
    log_p = np.where(np.tile(weights, (STARTS, 1)) > 0, _log_densities(fit, z)[1], 0.0).sum(axis=1)
    rows = log_p.reshape(STARTS, -1).argmax(axis=0) * len(weights) + np.arange(len(weights))
    return _steps(z, weights, (fit[0][rows], fit[1][rows], fit[2][rows]), LONG_STEPS)


def _steps(z: Floats, weights: Floats, fit: Parameters, count: int) -> Parameters:
    """Return the parameters after steps of expectation–maximisation."""
    total = weights.sum(axis=1, keepdims=True)
    for _ in range(count):
        shares = _log_densities(fit, z)[0] * weights[:, None]
        sums = np.maximum(shares.sum(axis=2), 1e-300)
        means = (shares @ z) / sums
        variances = np.maximum((shares @ z**2) / sums - means**2, MIN_STD**2)  # z has mean 0 and variance 1
        fit = np.maximum(sums / total, 1e-300), means, np.sqrt(variances)
    return fit


def _log_densities(fit: Parameters, z: Floats) -> tuple[Floats, Floats]:
    """Return the probability of each component given z, (fit, component, draw), and log p(z), (fit, draw)."""
    w, m, s = (part[:, :, None] for part in fit)
    shares = -0.5 * ((z - m) / s) ** 2 + (np.log(w / s) - 0.5 * np.log(2 * np.pi))
    top = shares.max(axis=1, keepdims=True)
    np.exp(shares - top, out=shares)
    total = shares.sum(axis=1, keepdims=True)
    return shares / total, (top + np.log(total))[:, 0]


def _bootstrap(z: Floats, group: Ints, fit: Mixture, seed: int) -> Floats:
    """Return the standard errors of weights, means and standard deviations, (3, component)."""
    count = group.max() + 1
    if count < 2:
        return np.full((3, len(fit.weights)), np.nan)
    weights = generator(seed, "mixture bootstrap", 0).multinomial(count, np.full(count, 1 / count), RESAMPLES)[:, group]
    start = [np.tile(part, (RESAMPLES, 1)) for part in (fit.weights, fit.means, fit.stds)]
    steps = 1 if len(fit.weights) == 1 else WARM_STEPS
    resampled = _steps(z, weights.astype(np.float64), (start[0], start[1], start[2]), steps)
    return np.stack([part.std(axis=0) * np.sqrt(count / (count - 1)) for part in resampled])
