r"""Gaussian processes of many numbers on the same inputs x, each with a length for each coordinate:

    y_i = β + f(x_i) + ε_i,    f ~ GP(0, s²κ),    ε ~ N(0, s²ν),    κ = κ(q),    q(x, x') = Σ_p (x_p − x'_p)²/ℓ_p²,

where κ is exp(−q/2) ("gaussian"), (1 + r + r²/3) exp(−r) with r² = 5q ("matern52") or, for outputs that jump, exp(−√q)
("exponential"), and β and log s² have flat priors. With K = κ(x, x) + ν and P = K⁻¹ − K⁻¹1 (1ᵀK⁻¹1)⁻¹ 1ᵀK⁻¹,

    s² = yᵀPy/(n − 1),        −log p(y | ℓ, ν) = ½ ((n − 1) log s² + log|K| + log 1ᵀK⁻¹1) + const.,

and y at a new x has a t distribution with n − 1 degrees of freedom, centre β̂ + k(x)ᵀK⁻¹(y − β̂) and scale s √(v(x) + ν),

    v(x) = 1 − k(x)ᵀK⁻¹k(x) + (1 − 1ᵀK⁻¹k(x))²/1ᵀK⁻¹1.

log ℓ and log ν have Gaussian priors, so that a few runs do not overfit; the largest posterior density selects them. Without the
rows I, residuals are P_II⁻¹ (Py)_I and their covariance is s² P_II⁻¹ (Dubrule 1983).
"""

from typing import NamedTuple

import numpy as np
import torch

from ..._typing import Floats, Ints
from .minimise import Objective, minimise

__all__ = ["KERNELS", "Hyper", "Regression", "gaps_of", "objective_of", "select"]

BLOCK = 2**22  # numbers of matrices that a prediction works on at a time
LENGTH = 2.0  # median of the prior of lengths, times the root of the number of coordinates, which have unit variance
LENGTH_SPREAD = 1.2  # standard deviation of the logarithm of lengths
NUGGET = 1e-4  # median of the prior of ν
NUGGET_SPREAD = 4.0  # standard deviation of log ν
LEAST_NUGGET = 1e-9
ROUGH = 2.0  # −log of the prior probability of the exponential kernel, which can take noise for a process
STARTS = ((0.5, 1e-2), (2.0, 1e-4))  # lengths, times the root of the number of coordinates, and ν, where searches start
TINY = 1e-300
SHORT = 1e-6  # distance below which the slope of the exponential kernel is bounded


def gaussian(q: Floats) -> tuple[Floats, Floats]:
    """Return κ and −2 dκ/dq."""
    k = np.exp(-q / 2)
    return k, k


def matern52(q: Floats) -> tuple[Floats, Floats]:
    """Return κ and −2 dκ/dq."""
    r = np.sqrt(5 * q)
    decay = np.exp(-r)
    return (1 + r + r**2 / 3) * decay, 5 / 3 * (1 + r) * decay


def exponential(q: Floats) -> tuple[Floats, Floats]:
    """Return κ and −2 dκ/dq."""
    r = np.sqrt(q)
    k = np.exp(-r)
    return k, k / np.maximum(r, SHORT)


KERNELS = {"gaussian": gaussian, "matern52": matern52, "exponential": exponential}  # from smooth to rough


class Hyper(NamedTuple):
    """Hyper-parameters of some processes.

    Args:
        kernel: number of κ in KERNELS, (process,).
        log: log ℓ of all coordinates and log ν, (process, coordinate + 1).
    """

    kernel: Ints
    log: Floats

    def first(self, count: int) -> "Hyper":
        """Return those of the first processes."""
        return Hyper(self.kernel[:count], self.log[:count])

    @property
    def nugget(self) -> Floats:
        """ν, (process,)."""
        return np.asarray(np.exp(self.log[:, -1]) + LEAST_NUGGET)

    def covariance(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Return κ and −2 dκ/dq for squared differences (coordinate, row, row): (process, row, row)."""
        q = np.tensordot(np.exp(-2 * self.log[:, :-1]), gaps, axes=1)
        k, slope = np.empty(q.shape), np.empty(q.shape)
        for number, kernel in enumerate(KERNELS.values()):
            some = self.kernel == number
            k[some], slope[some] = kernel(q[some])
        return k, slope


def gaps_of(x: Floats, z: Floats) -> Floats:
    """Return squared differences of all rows of x (row, coordinate) and z: (coordinate, row of x, row of z)."""
    return np.asarray(np.square(x.T[:, :, None] - z.T[:, None, :]))


class Regression:
    """Processes with given hyper-parameters, conditioned on data.

    Args:
        x: inputs, (n, coordinate).
        y: numbers, (n, process).
        hyper: of the processes.
        k: κ(x, x), (process, n, n), which is overwritten; default: it is computed.

    Attributes:
        variance: s², (process,).
        level: β̂, (process,).
        cost: −log p(y | ℓ, ν) up to a constant, (process,).
    """

    def __init__(self, x: Floats, y: Floats, hyper: Hyper, k: Floats | None = None) -> None:
        self.x, self.hyper, n = x, hyper, len(x)
        k = hyper.covariance(gaps_of(x, x))[0] if k is None else k
        k[:, np.arange(n), np.arange(n)] += hyper.nugget[:, None]
        self.factor = torch.linalg.cholesky(torch.from_numpy(k))
        self.inverse = torch.cholesky_inverse(self.factor).numpy()
        self.ones = self.inverse.sum(axis=2)
        self.total = self.ones.sum(axis=1)
        self.level = (self.ones * y.T).sum(axis=1) / self.total
        self.weights = (self.inverse @ y.T[:, :, None])[..., 0] - self.level[:, None] * self.ones  # P y
        self.variance = np.maximum((self.weights * y.T).sum(axis=1), TINY) / (n - 1)
        log_det = 2 * torch.diagonal(self.factor, dim1=1, dim2=2).log().sum(dim=1).numpy()
        self.cost = ((n - 1) * np.log(self.variance) + log_det + np.log(self.total)) / 2

    def sensitivity(self) -> Floats:
        """Return W, (process, n, n): a change dK changes the cost by ½ tr(W dK)."""
        lost = self.ones[:, :, None] * (self.ones / self.total[:, None])[:, None, :]
        return np.asarray(self.inverse - lost - self.weights[:, :, None] * (self.weights / self.variance[:, None])[:, None, :])

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the centre and v(x) for new inputs (row, coordinate): (row, process) twice."""
        centre, variance = np.empty((2, len(x), len(self.level)))
        size = max(1, BLOCK // max(1, self.ones.size))
        for rows in (slice(first, first + size) for first in range(0, len(x), size)):
            k, _ = self.hyper.covariance(gaps_of(x[rows], self.x))
            half = self._halved(k)
            level = (1 - (k * self.ones[:, None]).sum(axis=2)) ** 2 / self.total[:, None]
            centre[rows] = (self.level[:, None] + (k @ self.weights[:, :, None])[..., 0]).T
            variance[rows] = np.maximum(1 - np.square(half).sum(axis=1) + level, 0).T
        return centre, variance

    def joint(self, x: Floats) -> Floats:
        """Return the covariances of f at new inputs (row, coordinate), relative to s²: (process, row, row)."""
        k, _ = self.hyper.covariance(gaps_of(x, self.x))
        half, lost = self._halved(k), 1 - (k * self.ones[:, None]).sum(axis=2)
        own, _ = self.hyper.covariance(gaps_of(x, x))
        return np.asarray(own - half.swapaxes(1, 2) @ half + lost[:, :, None] * (lost / self.total[:, None])[:, None, :])

    def _halved(self, k: Floats) -> Floats:
        """Return L⁻¹kᵀ with K = LLᵀ, (process, n, row): its squares are exact where 1 − kᵀK⁻¹k is nearly 0."""
        return np.asarray(torch.linalg.solve_triangular(self.factor, torch.from_numpy(k).mT, upper=False).numpy())

    def left_out(self, labels: Ints) -> tuple[Floats, Floats]:
        """Return residuals without the rows of the same label, and their standard deviations: (n, process) twice."""
        residual, variance = np.empty((2, len(self.x), len(self.level)))
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            ones = self.ones[:, rows]
            part = self.inverse[:, rows[:, None], rows] - ones[:, :, None] * (ones / self.total[:, None])[:, None, :]
            block = np.linalg.inv(part)
            residual[rows] = (block @ self.weights[:, rows, None])[..., 0].T
            variance[rows] = np.diagonal(block, axis1=1, axis2=2).T * self.variance
        return residual, np.sqrt(variance)


def objective_of(x: Floats, y: Floats, kernel: Ints, changes: Floats | None = None) -> Objective:
    """Return the function of log ℓ and log ν that is minimised: −log of the posterior density.

    Args:
        x: inputs, (n, coordinate).
        y: numbers, (n, process).
        kernel: number of κ of each function, (function,); function i is one of process i modulo the number of processes.
        changes: derivatives of squared differences of coordinates, (coordinate, n, n); slopes then have further columns, one
            for each.
    """
    d, gaps = x.shape[1], gaps_of(x, x)
    centre = np.array([*np.full(d, np.log(LENGTH * np.sqrt(d))), np.log(NUGGET)])
    spread = np.array([*np.full(d, LENGTH_SPREAD), NUGGET_SPREAD])

    def objective(log: Floats, rows: Ints) -> tuple[Floats, Floats]:
        hyper, z = Hyper(kernel[rows], log), (log - centre) / spread
        k, change = hyper.covariance(gaps)
        regression = Regression(x, y[:, rows % y.shape[1]], hyper, k)
        w = regression.sensitivity()
        scaled, inverse = w * change, np.exp(-2 * log[:, :-1])
        lengths = np.tensordot(scaled, gaps, axes=((1, 2), (1, 2))) * inverse
        nuggets = np.trace(w, axis1=1, axis2=2) * np.exp(log[:, -1])
        slope = np.concatenate([lengths, nuggets[:, None]], axis=1) / 2 + z / spread
        if changes is not None:
            slope = np.append(slope, np.tensordot(scaled, changes, axes=((1, 2), (1, 2))) * inverse / -4, axis=1)
        return regression.cost + (z**2).sum(axis=1) / 2, slope

    return objective


def select(x: Floats, y: Floats, start: Hyper | None = None, steps: int = 60) -> Hyper:
    """Return the hyper-parameters of largest posterior density.

    Args:
        x: inputs, (n, coordinate), of unit variance.
        y: numbers, (n, process).
        start: where to start; default: each kernel from all STARTS.
        steps: of the search, at most.
    """
    count, d = y.shape[1], x.shape[1]
    if not count:
        return Hyper(np.zeros(0, np.int64), np.zeros((0, d + 1)))
    if start is None:
        logs = [[*np.full(d, np.log(length * np.sqrt(d))), np.log(nugget)] for length, nugget in STARTS]
        kernels = np.repeat(np.arange(len(KERNELS)), len(STARTS))
        start = Hyper(np.repeat(kernels, count), np.repeat(logs * len(KERNELS), count, axis=0))
    log, value = minimise(objective_of(x, y, start.kernel), start.log, steps)
    value = value + np.where(start.kernel == list(KERNELS).index("exponential"), ROUGH, 0.0)
    best = value.reshape(-1, count).argmin(axis=0) * count + np.arange(count)
    return Hyper(start.kernel[best], log[best])
