r"""What a model believes about its errors at several inputs at once, and how runs would change it.

The errors of m are independent Gaussian processes, numbered by k, with covariances C_k at the inputs and observation noise ν_k.
The expected squared error at input j, averaged over the nodes of the field, is Σ_k C_k(j, j). A run at input i changes

    C_k(j, j')  →  C_k(j, j') − C_k(j, i) C_k(i, j')/(C_k(i, i) + ν_k),

whatever its output will be, and so reduces the expected squared error, summed over all inputs, by

    g(i) = Σ_k Σ_j C_k(j, i)²/(C_k(i, i) + ν_k)                                          (Cohn 1996).

For a mean with a posterior of components, such as `pdno.mean.process.Process`, C_k are posterior covariances of these. For any
other model there is one k: a process with a Matérn-5/2 kernel is conditioned on the training inputs, and its covariance scaled
by the predicted spread s,

    C(j, j') = s_j s_j' ρ(j, j'),

so that suggestions are far from training inputs, and where the spread is large.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ..._typing import Array, Floats
from ...mean.base import Componentwise
from ...mean.process.components import Coordinates
from ...mean.process.regression import KERNELS, LENGTH, Hyper, Regression, gaps_of
from ..law import Law

__all__ = ["Belief"]

COMPONENTS = 8  # largest number of processes
NUGGET = 1e-4  # of the process for other models
MEMBERS = 32  # from which a spread is estimated, if the model has no other
TRAINING = 2000  # largest number of training inputs
TINY = 1e-300


@dataclass
class Belief:
    """Covariances of errors, (process, input, input), and variances of observation noise, (process,)."""

    covariance: Floats
    noise: Floats

    @classmethod
    def of(cls, law: Law, a: Array, scalars: Array | None, training: tuple[Array, Array | None] | None = None) -> Self:
        """Return the belief of a trained model about its errors at some inputs.

        Args:
            law: of u given a.
            a, scalars: the inputs, (sample, channel, *grid) and (sample, parameter).
            training: those of the training pairs, if they are known; not needed for a mean with components.
        """
        if isinstance(law.mean, Componentwise):
            return cls(*law.mean.joint(a, scalars, COMPONENTS))
        sets = [(a, scalars)] if training is None else [(a, scalars), (training[0][:TRAINING], _first(training[1]))]
        fields = np.concatenate([x for x, _ in sets])
        numbers = np.concatenate([np.zeros((len(x), 0)) if s is None else s for x, s in sets])
        x = Coordinates.of(fields, numbers)(fields, numbers)
        new, known, spread = x[: len(a)], x[len(a) :], _spread(law, a, scalars)
        lengths = np.full(x.shape[1], LENGTH * np.sqrt(x.shape[1]))
        hyper = Hyper(np.array([list(KERNELS).index("matern52")]), np.log([[*lengths, NUGGET]]))
        prior = hyper.covariance(gaps_of(new, new))[0]
        correlation = Regression(known, np.zeros((len(known), 1)), hyper).joint(new) if len(known) > 1 else prior
        return cls(correlation * np.outer(spread, spread), NUGGET * np.mean(spread**2, keepdims=True))

    @property
    def std(self) -> Floats:
        """Root mean square over the field of the expected error at each input, (input,)."""
        return np.asarray(np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2).sum(axis=0), 0.0)))

    def gains(self) -> Floats:
        """Return g, (input,)."""
        own = np.diagonal(self.covariance, axis1=1, axis2=2) + self.noise[:, None]
        return np.asarray((np.square(self.covariance).sum(axis=1) / np.maximum(own, TINY)).sum(axis=0))

    def observe(self, i: int) -> None:
        """Condition on a run at input i."""
        column = self.covariance[:, :, i].copy()
        scaled = column / np.maximum(column[:, i] + self.noise, TINY)[:, None]
        self.covariance -= column[:, :, None] * scaled[:, None, :]


def _spread(law: Law, a: Array, scalars: Array | None) -> Floats:
    """Return the root mean square over the field of the predicted standard deviation, (sample,); ones if all are zero."""
    given = law.given(a, scalars)
    std = given.uncertainty()[1]
    if std is None:
        squares = np.zeros(len(a))
        for inputs, _, values in given.stream(1 if law.residual.deterministic else MEMBERS):
            distance = np.square(values - given.inputs.mean[inputs]).reshape(len(inputs), -1).mean(axis=1)
            squares += np.bincount(inputs, distance, len(a))
        return _positive(np.sqrt(squares / MEMBERS))
    return _positive(np.sqrt(np.square(std).reshape(len(a), -1).mean(axis=1)))


def _first(scalars: Array | None) -> Array | None:
    return None if scalars is None else scalars[:TRAINING]


def _positive(spread: Floats) -> Floats:
    return spread if spread.any() else np.ones(spread.shape)
