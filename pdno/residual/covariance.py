r"""The covariance of normalised residuals, regularised: correlations that are not the same everywhere.

    C = V diag(ℓ) Vᵀ + μ (I − V Vᵀ),        ℓ = (1 − λ) ℓ̂ + λ,        Ĉ = Σ_i r_i r_iᵀ / n

One spectrum for the whole grid (`pdno.residual.scale`) is wrong where errors are smooth in one region and white in another, as
next to a noisy sensor, or where noise is small. Ĉ is free of that assumption, but needs many fields. V has the eigenvectors of
Ĉ whose ℓ differ from their median by more than a factor e^τ, μ is the mean of the other ℓ. λ and τ have the largest likelihood
on held-out fields, and C is used only if it is better than I there by more than chance allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.stats import t as student

from .._typing import Array, Ints
from ..data.split import folds
from ..evaluation.dependence import stderr_of_mean
from ..work.state import State

__all__ = ["Covariance", "Likelihoods", "held_out_likelihoods", "is_better"]

SHRINKAGE = (0.001, 0.01, 0.06, 0.25, 0.6)  # values of λ that are compared
THRESHOLDS = (0.0, 0.2, 0.4, 0.8, 1.6)  # values of τ that are compared
FEWEST_GROUPS = 20  # independent fields
HALVES = 500  # independent fields from which two folds suffice
FOLDS = 5
MOST_COMPONENTS = 1024  # columns of V
MOST_VALUES = 2**20  # of V, if there are more than FEW_COMPONENTS
FEW_COMPONENTS = 64  # that fields of any size may have
MOST_FIELDS = 2048  # from which Ĉ is estimated, if a field has more values than that, or than there are fields
CONFIDENCE = 0.975  # quantile of the error of a difference of likelihoods
TINY = 1e-300


@dataclass(frozen=True)
class Likelihoods:
    """Log-likelihoods of groups of held-out fields, each with a size of its own.

    Args:
        before, after: with I and with C, (group,).
        fields: number of fields of each group.
        settings: λ and τ.
    """

    before: Array
    after: Array
    fields: Array
    settings: tuple[float, float]


def is_better(new: Array, old: Array) -> bool:
    """Return whether log-likelihoods of groups, (group,), are larger than others by more than chance allows."""
    gain = new - old
    threshold = float(student.ppf(CONFIDENCE, max(len(gain) - 1, 1)))
    return bool(gain.mean() > max(threshold * stderr_of_mean(gain, None), 1e-6))


@dataclass(frozen=True, eq=False)
class Covariance:
    """C = V diag(ℓ) Vᵀ + μ (I − V Vᵀ), for fields (…, channel, *grid).

    Args:
        vectors: V, orthonormal, (component, channel, *grid).
        variances: ℓ, (component,).
        rest: μ.

    >>> rng = np.random.default_rng(0)
    >>> fields = rng.normal(size=(2000, 1, 8))
    >>> fields[:, :, 4:] = fields[:, :, 4:5]
    >>> drawn = Covariance.of(fields, 0.001, 0.5).sqrt(rng.normal(size=(1000, 1, 8)))[:, 0]
    >>> bool(np.corrcoef(drawn[:, 4], drawn[:, 7])[0, 1] > 0.98), bool(abs(np.corrcoef(drawn[:, 0], drawn[:, 3])[0, 1]) < 0.1)
    (True, True)
    """

    vectors: Array
    variances: Array
    rest: float

    @classmethod
    def of(cls, r: Array, shrinkage: float, threshold: float) -> "Covariance":
        """Estimate C from normalised residuals, (sample, channel, *grid), with these λ and τ."""
        flat, live = _live(r)
        vectors, variances = _eigen(flat)
        kept, variances, rest = _regularised(variances, flat.shape[1], shrinkage, threshold)
        whole = np.zeros((len(kept), r[0].size))
        whole[:, live] = vectors[:, kept].T
        return cls(whole.reshape(-1, *r.shape[1:]), variances, rest)

    def sqrt(self, r: Array) -> Array:
        """Return C^½ r."""
        return self._mapped(r, np.sqrt(self.variances), np.sqrt(self.rest))

    def inverse_sqrt(self, r: Array) -> Array:
        """Return C^−½ r."""
        return self._mapped(r, 1 / np.sqrt(self.variances), 1 / np.sqrt(self.rest))

    def _mapped(self, r: Array, along: Array, across: Array) -> Array:
        flat, v = r.reshape(-1, self.vectors[0].size), self.vectors.reshape(len(self.vectors), -1)
        return np.asarray(across * flat + ((flat @ v.T) * (along - across)) @ v).reshape(r.shape)

    def log_volume(self, size: int) -> float:
        """Return log det C^½ of fields with this number of values that are not always 0."""
        return 0.5 * float(np.log(self.variances).sum() + (size - len(self.variances)) * np.log(self.rest))

    def state(self) -> State:
        """Return V, ℓ and μ, to be saved."""
        return State({"rest": self.rest}, {"vectors": self.vectors, "variances": self.variances})

    @classmethod
    def from_state(cls, state: State) -> "Covariance":
        """Restore what `state` returned."""
        vectors, variances = (np.asarray(state.arrays[name]) for name in ("vectors", "variances"))
        return cls(vectors, variances, float(state.settings["rest"]))


def held_out_likelihoods(r: Array, groups: Ints | None) -> Likelihoods | None:
    """Return the log-likelihood of held-out fields, with the best λ and τ; None if there are too few fields, or all are 0.

    A field has its own size, −D/2 log rᵀC⁻¹r − ½ log det C with D values: otherwise the largest fields would decide alone.

    Args:
        r: normalised residuals, (sample, channel, *grid).
        groups: equal for fields that are not independent, (sample,); None if all are.
    """
    labels = np.arange(len(r)) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    flat, _ = _live(r)
    if count < FEWEST_GROUPS or not flat.size:
        return None
    settings = list(product(SHRINKAGE, THRESHOLDS))
    scores = np.zeros((1 + len(settings), count))
    for train, held_out in folds(len(r), 2 if count >= HALVES else FOLDS, labels):
        vectors, variances = _eigen(flat[train])
        for row, each in zip(scores, _log_likelihoods(flat[held_out], vectors, variances, settings), strict=True):
            row += np.bincount(labels[held_out], each, count)
    best = int(np.argmax(scores[1:].mean(axis=1)))
    return Likelihoods(scores[0], scores[1 + best], np.bincount(labels), settings[best])


def _log_likelihoods(flat: Array, vectors: Array, variances: Array, settings: Sequence[tuple[float, float]]) -> list[Array]:
    """Return the log-likelihood of each field with I, and with each (λ, τ)."""
    size, squares = flat.shape[1], np.square(flat).sum(axis=1)
    along = np.square(flat @ vectors)
    out = [-0.5 * size * np.log(np.maximum(squares, TINY))]
    for each in settings:
        kept, some, rest = _regularised(variances, size, *each)
        inside = along[:, kept]
        distance = np.maximum(squares - inside.sum(axis=1), 0.0) / rest + inside @ (1 / some)
        volume = 0.5 * (np.log(some).sum() + (size - len(some)) * np.log(rest))
        out.append(-0.5 * size * np.log(np.maximum(distance, TINY)) - volume)
    return out


def _regularised(variances: Array, size: int, shrinkage: float, threshold: float) -> tuple[Array, Array, float]:
    """Return the components of V, their ℓ, and μ.

    Args:
        variances: eigenvalues of Ĉ that are not 0, descending.
        size: number of all eigenvalues.
        shrinkage, threshold: λ and τ.
    """
    every = np.full(size, shrinkage)
    every[: len(variances)] += (1 - shrinkage) * variances
    away = np.abs(np.log(every[: len(variances)] / np.median(every)))
    most = min(MOST_COMPONENTS, max(FEW_COMPONENTS, MOST_VALUES // size))
    kept = np.sort(np.argsort(-away, kind="stable")[: min(most, int((away > threshold).sum()))])
    others = size - len(kept)
    rest = (every.sum() - every[kept].sum()) / others if others else 1.0
    return kept, every[kept], float(max(rest, shrinkage))


def _live(r: Array) -> tuple[Array, Array]:
    """Return the values of fields that are not always 0, (sample, value), and which ones these are."""
    flat = r.reshape(len(r), -1)
    live = np.asarray(flat.any(axis=0))
    return (flat if live.all() else flat[:, live]), live


def _eigen(flat: Array) -> tuple[Array, Array]:
    """Return eigenvectors, (value, component), and eigenvalues of Ĉ, descending, for as many as there are fields."""
    count, size = flat.shape
    if size <= min(count, MOST_FIELDS):
        squares, vectors = np.linalg.eigh(flat.T @ flat / count)
        return vectors[:, ::-1], np.maximum(squares[::-1], 0.0)
    some = flat[:: -(-count // MOST_FIELDS)]
    squares, left = np.linalg.eigh(some @ some.T / len(some))
    kept = squares > 1e-12 * max(squares[-1], TINY)
    squares, left = squares[kept][::-1], left[:, kept][:, ::-1]
    return some.T @ (left / np.sqrt(squares * len(some))), squares
