"""Three textbook forecasts of fields, in a few lines each: climatology, ridge regression, principal components with GPs.

Each is trained on flat inputs (sample, value) and outputs (sample, value) without missing values, with labels of dependent
samples, and draws members (member, sample, value) for new inputs.
"""

from abc import ABC, abstractmethod
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from pdno._typing import Floats, Ints
from pdno.data.split import folds

__all__ = ["METHODS", "Climatology", "Components", "Ridge", "Textbook"]

FOLDS = 10
PENALTIES = np.logspace(-6, 3, 19)  # of ridge regression, relative to the mean square of a row
COMPONENTS = 15  # most principal components of inputs and outputs
VARIANCE = 0.99  # of the outputs, that their principal components explain
STARTS = (0.5, 2.0)  # lengths from which those of a GP are optimised


class Textbook(ABC):
    """A forecast of fields."""

    @abstractmethod
    def fit(self, a: Floats, u: Floats, group: Ints) -> Self:
        """Train on inputs and outputs, (sample, value), with a label for each sample."""

    @abstractmethod
    def sample(self, a: Floats, members: int, rng: np.random.Generator) -> Floats:
        """Draw members for new inputs: (member, sample, value)."""


class Climatology(Textbook):
    """Training outputs, whatever the input is."""

    def fit(self, a: Floats, u: Floats, group: Ints) -> Self:
        self.outputs = u
        return self

    def sample(self, a: Floats, members: int, rng: np.random.Generator) -> Floats:
        return np.asarray(self.outputs[rng.integers(0, len(self.outputs), (members, len(a)))])


class Ridge(Textbook):
    """Ridge regression plus whole residual fields of cross-validation, which also selects the penalty."""

    def fit(self, a: Floats, u: Floats, group: Ints) -> Self:
        errors = []
        for penalty in PENALTIES:
            rest = np.empty(u.shape)
            for kept, left in folds(len(a), FOLDS, group):
                rest[left] = u[left] - _ridge(a[kept], u[kept], penalty, a[left])
            errors.append((np.mean(rest**2), penalty, rest))
        _, self.penalty, self.rest = min(errors, key=lambda each: each[0])
        self.a, self.u = a, u
        return self

    def sample(self, a: Floats, members: int, rng: np.random.Generator) -> Floats:
        rows = rng.integers(0, len(self.rest), (members, len(a)))
        return np.asarray(_ridge(self.a, self.u, self.penalty, a) + self.rest[rows])


def _ridge(a: Floats, u: Floats, penalty: float, new: Floats) -> Floats:
    """Return predictions for new inputs."""
    x, centre = a - a.mean(axis=0), u.mean(axis=0)
    gram = x @ x.T
    weights = np.linalg.solve(gram + penalty * np.trace(gram) / len(a) * np.eye(len(a)), u - centre)
    return np.asarray(centre + (new - a.mean(axis=0)) @ x.T @ weights)


class Components(Textbook):
    """Principal components of inputs and outputs, and a Gaussian process for each of the outputs; the rest is resampled."""

    def fit(self, a: Floats, u: Floats, group: Ints) -> Self:
        self.centre, self.mean = a.mean(axis=0), u.mean(axis=0)
        _, s, right = np.linalg.svd(a - self.centre, full_matrices=False)
        kept = min(COMPONENTS, int((s > 1e-8 * s[0]).sum()))
        self.project = right[:kept].T * np.sqrt(len(a)) / s[:kept]
        self.x = (a - self.centre) @ self.project
        _, s, right = np.linalg.svd(u - self.mean, full_matrices=False)
        count = min(COMPONENTS, int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), VARIANCE)) + 1)
        self.basis = right[:count]
        scores = (u - self.mean) @ self.basis.T
        self.rest = u - self.mean - scores @ self.basis
        self.scales = scores.std(axis=0)
        self.processes = [_process(self.x, y) for y in (scores / self.scales).T]
        return self

    def sample(self, a: Floats, members: int, rng: np.random.Generator) -> Floats:
        x = (a - self.centre) @ self.project
        moments = [_posterior(self.x, *process, x) for process in self.processes]
        mean, std = (np.stack(each, axis=1) * self.scales for each in zip(*moments, strict=True))
        scores = mean + std * rng.normal(size=(members, *mean.shape))
        return np.asarray(self.mean + scores @ self.basis + self.rest[rng.integers(0, len(self.rest), scores.shape[:2])])


def _kernel(x: Floats, y: Floats, length: float) -> Floats:
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2 * x @ y.T
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0) / (length**2 * x.shape[1])))


def _process(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return log (length, amplitude, noise) of largest marginal likelihood, and y."""

    def loss(log: Floats) -> float:
        length, amplitude, noise = np.exp(np.clip(log, -7, 7))
        factor = cho_factor(amplitude**2 * _kernel(x, x, length) + (noise**2 + 1e-8) * np.eye(len(x)), lower=True)
        return float(0.5 * y @ cho_solve(factor, y) + np.log(factor[0].diagonal()).sum())

    starts = [np.log([length, 1.0, 0.5]) for length in STARTS]
    found = [minimize(loss, start, method="Nelder-Mead", options={"maxiter": 80}) for start in starts]
    return np.asarray(min(found, key=lambda each: each.fun).x), y


def _posterior(x: Floats, log: Floats, y: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of new observations."""
    length, amplitude, noise = np.exp(np.clip(log, -7, 7))
    factor = cho_factor(amplitude**2 * _kernel(x, x, length) + (noise**2 + 1e-8) * np.eye(len(x)), lower=True)
    near = amplitude**2 * _kernel(new, x, length)
    variance = amplitude**2 + noise**2 - (near * cho_solve(factor, near.T).T).sum(axis=1)
    return np.asarray(near @ cho_solve(factor, y)), np.sqrt(np.maximum(variance, 1e-12))


METHODS: dict[str, type[Textbook]] = {"climatology": Climatology, "ridge": Ridge, "components": Components}
