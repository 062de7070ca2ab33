"""Textbook emulators of fields with a few scalar parameters, in a few lines each, for `benchmarks.runs`.

Each is trained on parameters (run, parameter) and flat fields (run, value), and draws members (member, sample, value). The two
with Gaussian processes do what 25 lines with scikit-learn do: principal components, and for each a Gaussian process with a
constant times an RBF or Matérn 5/2 kernel with a length for each parameter, plus white noise, by marginal likelihood.
"""

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np
from scipy.optimize import minimize

from pdno._typing import Floats
from pdno.data.split import folds

__all__ = ["EMULATORS"]

SHARE = 0.99999  # of the variance of outputs, that their principal components explain
MOST = 15  # components
RESTARTS = 1  # of the search for lengths, from a random point, beside one from lengths of one
BOUNDS = (np.log(1e-2), np.log(1e3))  # of lengths
NOISE_BOUNDS = (np.log(1e-8), np.log(1.0))  # of the variance of the noise
PENALTIES = np.logspace(-10, 2, 25)
DEGREE = 3  # of polynomials, and less if there are more terms than half the runs

Draw = Callable[[Floats, int, np.random.Generator], Floats]


def _standardised(x: Floats) -> Callable[[Floats], Floats]:
    centre, scale = x.mean(axis=0), x.std(axis=0)
    return lambda new: np.asarray((new - centre) / np.where(scale > 0, scale, 1.0))


def _gram(x: Floats, z: Floats, lengths: Floats, matern: bool) -> tuple[Floats, Floats, Floats]:
    """Return the kernel, its slope by −½ q, and squared differences divided by squared lengths, (parameter, n, m)."""
    gaps = np.square((x[:, None] - z) / lengths).transpose(2, 0, 1)
    q = gaps.sum(axis=0)
    if not matern:
        k = np.exp(-q / 2)
        return k, k, gaps
    r = np.sqrt(5 * q)
    return (1 + r + r**2 / 3) * np.exp(-r), 5 / 3 * (1 + r) * np.exp(-r), gaps


def _fitted(x: Floats, y: Floats, matern: bool, rng: np.random.Generator) -> Floats:
    """Return log (lengths, amplitude², noise²) of largest marginal likelihood."""
    n, d = x.shape

    def loss(log: Floats) -> tuple[float, Floats]:
        k, slope, gaps = _gram(x, x, np.exp(log[:d]), matern)
        amplitude, noise = np.exp(log[d:])
        full = amplitude * k + (noise + 1e-10) * np.eye(n)
        try:
            factor = np.linalg.cholesky(full)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros(d + 2)
        inverse = np.linalg.inv(full)
        alpha = inverse @ y
        w = inverse - np.outer(alpha, alpha)
        slopes = [*(amplitude * (w * slope * gaps).sum(axis=(1, 2))), amplitude * (w * k).sum(), noise * np.trace(w)]
        return float(y @ alpha / 2 + np.log(np.diagonal(factor)).sum()), np.array(slopes) / 2

    bounds = [BOUNDS] * d + [(np.log(1e-5), np.log(1e5)), NOISE_BOUNDS]
    starts = [np.array([*np.zeros(d + 1), np.log(1e-4)])]
    starts += [np.array([rng.uniform(-1, 3) for _ in range(d)] + [0.0, rng.uniform(*NOISE_BOUNDS)]) for _ in range(RESTARTS)]
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
    return np.asarray(min(found, key=lambda each: each.fun).x)


def components(x: Floats, u: Floats, matern: bool) -> Draw:
    """Return the draws of principal components with Gaussian processes."""
    unit, mean, d, rng = _standardised(x), u.mean(axis=0), x.shape[1], np.random.default_rng(0)
    z = unit(x)
    _, s, right = np.linalg.svd(u - mean, full_matrices=False)
    count = min(MOST, len(u) - 1, int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), SHARE)) + 1)
    basis, y = right[:count], (u - mean) @ right[:count].T
    scales, rest = y.std(axis=0), u - mean - y @ right[:count]
    y = y / scales
    logs = [_fitted(z, each, matern, rng) for each in y.T]

    def draw(new: Floats, members: int, rng: np.random.Generator) -> Floats:
        centre, std = np.empty((2, len(new), count))
        for k, log in enumerate(logs):
            amplitude, noise = np.exp(log[d:])
            full = amplitude * _gram(z, z, np.exp(log[:d]), matern)[0] + (noise + 1e-10) * np.eye(len(z))
            near = amplitude * _gram(unit(new), z, np.exp(log[:d]), matern)[0]
            solved = np.linalg.solve(full, near.T).T
            centre[:, k] = solved @ y[:, k] * scales[k]
            std[:, k] = np.sqrt(np.maximum(amplitude + noise - (solved * near).sum(axis=1), 1e-12)) * scales[k]
        drawn = (centre + std * rng.normal(size=(members, *centre.shape))) @ basis
        return np.asarray(mean + drawn + rest[rng.integers(0, len(rest), drawn.shape[:2])])

    return draw


def polynomial(x: Floats, u: Floats) -> Draw:
    """Return the draws of ridge regression on polynomials plus whole residual fields of ten folds, which select the penalty."""
    unit = _standardised(x)
    degrees = [k for k in range(1, DEGREE + 1) if _terms(x[:1], k).shape[1] <= max(len(x) / 2, 1 + x.shape[1])]
    tried = []
    for degree in degrees:
        phi = _terms(unit(x), degree)
        for penalty in PENALTIES:
            left = np.empty(u.shape)
            for kept, out in folds(len(x), 10):
                left[out] = u[out] - _ridge(phi[kept], u[kept], penalty, phi[out])
            tried.append((float((left**2).mean()), degree, penalty, left))
    _, degree, penalty, left = min(tried, key=lambda each: each[0])
    phi = _terms(unit(x), degree)
    return lambda new, members, rng: (
        _ridge(phi, u, penalty, _terms(unit(new), degree)) + left[rng.integers(0, len(left), (members, len(new)))]
    )


def _terms(x: Floats, degree: int) -> Floats:
    """Return all products of up to `degree` parameters, a constant first."""
    terms = [c for k in range(1, degree + 1) for c in combinations_with_replacement(range(x.shape[1]), k)]
    return np.stack([np.ones(len(x)), *(x[:, list(c)].prod(axis=1) for c in terms)], axis=1)


def _ridge(phi: Floats, u: Floats, penalty: float, new: Floats) -> Floats:
    gram = phi.T @ phi
    return np.asarray(new @ np.linalg.solve(gram + penalty * len(phi) * np.eye(len(gram)), phi.T @ u))


def nearest(x: Floats, u: Floats) -> Draw:
    """Return the run with the nearest parameters plus whole residual fields of the same rule for the training runs."""
    unit = _standardised(x)
    z = unit(x)
    gaps = np.square(z[:, None] - z).sum(axis=2) + np.diag(np.full(len(z), np.inf))
    left = u - u[gaps.argmin(axis=1)]

    def draw(new: Floats, members: int, rng: np.random.Generator) -> Floats:
        near = np.square(unit(new)[:, None] - z).sum(axis=2).argmin(axis=1)
        return np.asarray(u[near] + left[rng.integers(0, len(left), (members, len(new)))])

    return draw


EMULATORS: dict[str, Callable[[Floats, Floats], Draw]] = {
    "components-rbf": lambda x, u: components(x, u, matern=False),
    "components-matern": lambda x, u: components(x, u, matern=True),
    "polynomial": polynomial,
    "nearest": nearest,
}
