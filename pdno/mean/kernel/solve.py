"""Regression with a given kernel matrix: its solution, what is left out, and the choice of kernel and nuggets by that.

See `pdno.mean.kernel.kernel` for the formulas.
"""

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, lapack

from ...draw import generator
from ...errors import UserError
from ..base import Array
from .covariance import Hyper

__all__ = [
    "LEVELS",
    "NUGGETS",
    "Errors",
    "Labels",
    "cholesky_of",
    "descend",
    "levels",
    "log_likelihood",
    "project",
    "regress",
    "score",
]

NUGGETS = 10.0 ** np.arange(3, -9.5, -0.5)
SKETCH, LEVELS = 32, 3  # random directions of a band that choose, different nuggets

Labels = NDArray[np.intp]
Errors = Callable[..., Array]


def log_likelihood(k: Array, y: Array, nugget: float) -> float:
    """Restricted log-likelihood of the columns of y ~ N(c, K + ν) with a flat prior of c: that of contrasts of rows."""
    factor = cholesky_of(k, nugget)
    ones, solved = cho_solve((factor, True), np.ones(len(k))), cho_solve((factor, True), y)
    quadratic = (y * solved).sum() - np.square(ones @ y).sum() / ones.sum()
    determinant = 2 * np.log(np.diag(factor)).sum() + np.log(ones.sum() / len(k))
    return float(-0.5 * (quadratic + y.shape[1] * (determinant + (len(k) - 1) * np.log(2 * np.pi))))


def score(curve: Array) -> float:
    """Σ r² with the best nugget in each band, as a fraction of Σ u²."""
    return float(curve.min(axis=0).sum() / (curve[0].sum() or 1.0))


def descend(h: Hyper, errors: Errors, steps: Sequence[float], scalars: bool, end: float = math.inf) -> Hyper:
    """Go to the best neighbour as long as that is better by a thousandth, with shorter and shorter steps, until time ends."""
    for step in steps:
        while time.monotonic() < end:
            near = [(score(errors(other)), other) for other in h.near(step, scalars) if time.monotonic() < end]
            least, best = min(near, key=lambda pair: pair[0], default=(math.inf, h))
            if not least < score(errors(h)) * (1 - 1e-3):
                break
            h = best
    return h


def levels(curve: Array) -> tuple[Labels, Array]:
    """The level of each band, −1 for nothing but noise, and the nuggets of the levels."""
    chosen, total = [0], np.inf
    while len(chosen) <= LEVELS:
        sums = [curve[[*chosen, i]].min(axis=0).sum() for i in range(1, len(curve))]
        if not min(sums) < total * (1 - 1e-3):
            break
        total = min(sums)
        chosen.append(1 + int(np.argmax(np.array(sums) <= total * (1 + 1e-6))))  # the largest nugget that is as good
    return curve[chosen].argmin(axis=0) - 1, NUGGETS[np.array(chosen[1:], dtype=int) - 1]


def project(y: Array, bands: Labels) -> tuple[Array, Labels]:
    """(sample, direction) and the band of each direction: all modes of small bands, random combinations of others."""
    columns, of = [], []
    for band in np.unique(bands):
        part = y[:, bands == band]
        if part.shape[1] > SKETCH:
            draw = generator(0, "kernel/directions", int(band)).standard_normal((part.shape[1], SKETCH))
            part = part @ draw / np.sqrt(SKETCH)
        columns.append(part)
        of.append(np.full(part.shape[1], band))
    return np.concatenate(columns, axis=1), np.concatenate(of)


def regress(k: Array, y: Array, nugget: float, constant: bool, labels: Labels) -> tuple[Array, Array, Array]:
    """P y, ĉ, and the residuals of y that leave out all rows of a label."""
    factor = cholesky_of(k, nugget)
    found, inverse = cho_solve((factor, True), y, check_finite=False), lapack.dpotri(factor, lower=1)[0]
    mean = np.zeros(y.shape[1])
    if constant:
        ones = cho_solve((factor, True), np.ones(len(k)))
        mean = ones @ y / ones.sum()
        found -= np.outer(ones, mean)
        inverse -= np.outer(ones, ones / ones.sum())
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    left = np.empty(y.shape)
    for size in np.unique(sizes[sizes > 0]):  # all blocks of a size at once
        at = order[np.isin(labels[order], np.flatnonzero(sizes == size))].reshape(-1, size)
        lower = np.tril(inverse[at[:, :, None], at[:, None, :]])
        block = lower + np.tril(lower, -1).swapaxes(1, 2)
        left[at] = found[at] / block if size == 1 else np.linalg.solve(block, found[at])
    return found, mean, left


def cholesky_of(k: Array, nugget: float) -> Array:
    """Lower factor of K + ν, with more than that on the diagonal if rounding requires it."""
    for _ in range(8):
        shifted = k.copy()
        shifted[np.diag_indices(len(k))] += nugget
        try:
            return np.asarray(cholesky(shifted, lower=True, overwrite_a=True, check_finite=False))
        except LinAlgError:
            nugget *= 10
    raise UserError("the kernel matrix is not positive definite; look for inputs that are far out of scale")
