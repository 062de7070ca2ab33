"""Regression with a given kernel matrix: coefficients, leave-one-out residuals, and the selection of nuggets by them.

See `pdno.mean.kernel.kernel` for the formulas.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, lapack

from ..._typing import Floats, Ints
from ...draw import generator
from ...errors import UserError

__all__ = [
    "MOST_NUGGETS",
    "NUGGETS",
    "Labels",
    "cholesky_of",
    "log_likelihood",
    "project",
    "regress",
    "select_nuggets",
    "together",
    "total_error",
    "without_label",
]

NUGGETS = 10.0 ** np.arange(3, -9.5, -0.5)  # candidates for ν, descending
DIRECTIONS = 32  # random combinations of the modes of a band that stand for all of them
MOST_NUGGETS = 3  # different ν of one model
GAIN = 1e-3  # relative decrease of the error that justifies one more nugget
EQUAL = 1e-6  # relative difference of errors below which the largest nugget is selected
ATTEMPTS = 8  # Cholesky decompositions with a nugget that is multiplied by ten each time

Labels = NDArray[np.intp]


def log_likelihood(k: Floats, y: Floats, nugget: float) -> float:
    """Return the restricted log-likelihood of the columns of y ~ N(c, K + ν) with a flat prior of c: that of row contrasts."""
    factor = cholesky_of(k, nugget)
    ones, solved = cho_solve((factor, True), np.ones(len(k))), cho_solve((factor, True), y)
    quadratic = (y * solved).sum() - np.square(ones @ y).sum() / ones.sum()
    determinant = 2 * np.log(np.diag(factor)).sum() + np.log(ones.sum() / len(k))
    return float(-0.5 * (quadratic + y.shape[1] * (determinant + (len(k) - 1) * np.log(2 * np.pi))))


def total_error(errors: Floats) -> float:
    """Return Σ r² with the best nugget in each band, relative to that of a constant m.

    Args:
        errors: Σ r² in each band, (1 + nugget, band); the first row is that of a constant m.
    """
    return float(errors.min(axis=0).sum() / (errors[0].sum() or 1.0))


def select_nuggets(errors: Floats) -> tuple[Labels, Floats]:
    """Return the index of the nugget of each band, −1 for a constant m, and the nuggets.

    Nuggets are added one by one as long as each decreases the error by GAIN, at most MOST_NUGGETS.

    Args:
        errors: Σ r² in each band, (1 + nugget, band), for all of NUGGETS; the first row is that of a constant m.
    """
    rows, total = [0], np.inf
    while len(rows) <= MOST_NUGGETS:
        sums = [errors[[*rows, i]].min(axis=0).sum() for i in range(1, len(errors))]
        if not min(sums) < total * (1 - GAIN):
            break
        total = min(sums)
        rows.append(1 + int(np.argmax(np.array(sums) <= total * (1 + EQUAL))))  # the largest of equally good nuggets
    return errors[rows].argmin(axis=0) - 1, NUGGETS[np.array(rows[1:], dtype=int) - 1]


def project(y: Floats, bands: Labels) -> tuple[Floats, Labels]:
    """Reduce modes to a few directions per band: all modes of small bands, random combinations of the others.

    Args:
        y: (sample, mode).
        bands: of each mode, (mode,).

    Returns:
        (sample, direction), and the band of each direction.
    """
    columns, labels = [], []
    for band in np.unique(bands):
        part = y[:, bands == band]
        if part.shape[1] > DIRECTIONS:
            draw = generator(0, "kernel/directions", int(band)).standard_normal((part.shape[1], DIRECTIONS))
            part = part @ draw / np.sqrt(DIRECTIONS)
        columns.append(part)
        labels.append(np.full(part.shape[1], band))
    return np.concatenate(columns, axis=1), np.concatenate(labels)


def regress(k: Floats, y: Floats, nugget: float, constant: bool, labels: Labels) -> tuple[Floats, Floats, Floats]:
    """Solve one system, and leave out all rows of a label in turn.

    Args:
        k: K, (row, row).
        y: targets, (row, column).
        nugget: ν.
        constant: whether an unknown constant is added to f.
        labels: of each row, (row,).

    Returns:
        P y (row, column), ĉ (column,), and the residuals of each row by the regression without its label, (row, column).
    """
    factor = cholesky_of(k, nugget)
    coefficients, precision = cho_solve((factor, True), y, check_finite=False), lapack.dpotri(factor, lower=1)[0]
    mean = np.zeros(y.shape[1])
    if constant:
        ones = cho_solve((factor, True), np.ones(len(k)))
        mean = ones @ y / ones.sum()
        coefficients -= np.outer(ones, mean)
        precision -= np.outer(ones, ones / ones.sum())
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    left = np.empty(y.shape)
    for size in np.unique(sizes[sizes > 0]):  # all blocks of a size at once
        at = order[np.isin(labels[order], np.flatnonzero(sizes == size))].reshape(-1, size)
        lower = np.tril(precision[at[:, :, None], at[:, None, :]])
        block = lower + np.tril(lower, -1).swapaxes(1, 2)
        left[at] = coefficients[at] / block if size == 1 else np.linalg.solve(block, coefficients[at])
    return coefficients, mean, left


def together(labels: Ints) -> Labels:
    """Return labels as numbers from 0; all different if they are all equal, as no pair would be left."""
    numbers = np.unique(labels, return_inverse=True)[1].reshape(-1)
    return numbers if numbers.max() > 0 else np.arange(len(labels))


def without_label(x: Floats, labels: Labels) -> Floats:
    """Return the difference of centred values, (row, …), from the mean of all rows with another label."""
    flat, size = x.reshape(len(x), -1), np.bincount(labels)
    sums = np.zeros((len(size), flat.shape[1]))
    np.add.at(sums, labels, flat)
    return np.asarray((flat + sums[labels] / (len(x) - size[labels])[:, None]).reshape(x.shape))


def cholesky_of(k: Floats, nugget: float) -> Floats:
    """Return the lower Cholesky factor of K + ν; ν is increased if rounding requires it.

    Raises:
        UserError: if the matrix is not positive definite even so.
    """
    for _ in range(ATTEMPTS):
        shifted = k.copy()
        shifted[np.diag_indices(len(k))] += nugget
        try:
            return np.asarray(cholesky(shifted, lower=True, overwrite_a=True, check_finite=False))
        except LinAlgError:
            nugget *= 10
    raise UserError(
        "the kernel matrix is not positive definite; check the inputs for values that are orders of magnitude too large"
    )
