r"""Principal components of the outputs, and a Gaussian process for the number of each: for a few runs with a few parameters.

    m(a) = ū + Σ_k m_k(x(a)) φ_k,        model_std² = Σ_k s_k² v_k(x) φ_k²,        noise_std² = Σ_k s_k² ν_k φ_k² + rest²,

where φ_k are the leading components of the outputs by their own covariance, each channel in its own units, and each node of a
mesh with its weight (`pdno.mean.process.components`), the coordinates x are the scalars and the leading components of the input
field, each mapped by a monotone function (`pdno.mean.process.warp`), and each process has a length for each coordinate, a
nugget and a kernel of its own (`pdno.mean.process.regression`). The rest is what the components leave of the outputs.

**Residuals.** Hyper-parameters and components that were selected on all runs have seen the run that is left out. Residuals of
up to NESTED runs are therefore those of folds in which all are selected again; those of more runs are in closed form. The
spread of the copies of these folds shows where errors are larger than the posterior says (`pdno.mean.process.jackknife`).
"""

from dataclasses import replace
from typing import Self

import numpy as np

from ..._typing import Array, Floats, Ints
from ...data.pairs import Pairs
from ...data.split import folds
from ...draw import generator
from ...errors import UserError
from ...learning.budget import Terms
from ...work.state import State
from ..base import Components, Componentwise, Mean, Posterior, checked, powers
from .components import Coordinates
from .fitted import Fitted
from .forecast import posterior_sizes
from .jackknife import Jackknife
from .promise import new_rows
from .regression import KERNELS, Hyper, Regression

__all__ = ["Process"]

MOST = 2000  # runs that are trained on
FEWEST = 3  # runs
MOST_COORDINATES = 12  # of inputs for which `suits` recommends it
FEWEST_SIZED = 8  # runs, whose copies tell where errors are larger
NESTED = 300  # runs up to which residuals are those of folds
FOLDS = 20
FEWER_FOLDS = 10  # of MANY runs and more
MANY = 60


class Process(Mean, Posterior, Componentwise):
    """Principal components and Gaussian processes with automatic relevance.

    Args:
        most: maximum number of training runs, drawn at random.

    After training, `lengths` are those of each component and coordinate, (component, coordinate), in standard deviations of the
    coordinate: a parameter without effect has long ones.

    Good values: the default, for 5 to 2000 runs with up to some ten parameters.

    >>> x = np.random.default_rng(0).uniform(size=(20, 2))
    >>> u = np.sin(np.linspace(0, 3, 16) * (1 + x[:, :1]))[:, None]
    >>> process = Process().fit(np.zeros((20, 1, 16)), u, x)
    >>> noise, std = process.uncertainty(np.zeros((2, 1, 16)), np.array([[0.5, 0.5], [5.0, 0.5]]))
    >>> std.shape, bool(std[1].mean() > 10 * std[0].mean())
    ((2, 1, 16), True)
    """

    name = "process"
    nested = True  # up to NESTED runs

    def __init__(self, most: int = MOST) -> None:
        if most < FEWEST:
            raise UserError(f"most = {most}: expected at least {FEWEST} training runs")
        self.most = most
        self._fitted: Fitted | None = None
        self._left_out: Floats | None = None  # standard deviations of out-of-fold residuals, (sample, component)
        self._jackknife: Jackknife | None = None  # local sizes of errors, after `residuals` of a few runs

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        a, u, s = checked(pairs.a, pairs.filled, pairs.scalars)
        if len(a) < FEWEST:
            raise UserError(f"got {len(a)} pairs, expected at least {FEWEST} for a Gaussian process; provide more")
        rows = generator(terms.seed, "process", 0).permutation(len(a))[: self.most]
        roots = None if pairs.nodes is None or pairs.weights is None else pairs.nodes.roots
        self._fitted, self._left_out, self._jackknife = Fitted.of(a[rows], u[rows], s[rows], roots=roots), None, None
        return self

    @staticmethod
    def suits(pairs: Pairs) -> bool:
        """Return whether inputs are a few scalars, with or without a field of few components, and the mask is constant."""
        if pairs.scalars is None or pairs.mask_varies or not FEWEST <= len(pairs) <= MOST:
            return False
        a, _, s = checked(pairs.a, pairs.a, pairs.scalars)
        return 0 < Coordinates.number(a, s) <= MOST_COORDINATES

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 0,
        seed: int = 0,
    ) -> Array:
        """Return residuals of at least FOLDS or FEWER_FOLDS folds, or in closed form for more than NESTED runs."""
        if self._fitted is None:
            return self.fit(a, u, scalars, seed).residuals(a, u, scalars, group, count, seed)
        a, u, s = checked(a, u, scalars)
        labels = np.arange(len(a)) if group is None else np.unique(group, return_inverse=True)[1].reshape(-1)
        if labels.max() == 0:
            raise UserError("all pairs are of one group, so that none would be left for training; provide at least two groups")
        if len(a) > min(NESTED, self.most):
            return self._closed_form(self._fitted, a, u, s, labels)
        values, self._left_out, copies = np.empty(u.shape), np.zeros((len(a), self._fitted.y.shape[1])), []
        for kept, left in folds(len(a), max(count, FOLDS if len(a) < MANY else FEWER_FOLDS), labels, seed):
            copy = Fitted.of(a[kept], u[kept], s[kept], self._fitted)
            values[left] = u[left] - copy(a[left], s[left])
            std = np.sqrt(sum(copy.variances(a[left], s[left])))
            self._left_out[left, : std.shape[1]] = std
            copies.append(copy)
        if len(a) >= FEWEST_SIZED:
            self._jackknife = Jackknife.of(self._fitted, copies, new_rows(self._fitted.coordinates(a, s), seed))
        return values

    def _closed_form(self, fitted: Fitted, a: Floats, u: Floats, s: Floats, labels: Ints) -> Floats:
        """Return residuals without the pairs of the same label; pairs beyond `most` are predicted by the others."""
        x, y = fitted.inputs(a, s), fitted.basis.numbers(u)
        order = generator(0, "process", 1).permutation(int(labels.max()) + 1)
        some = order[: max(2, int((np.cumsum(np.bincount(labels)[order]) <= self.most).sum()))]
        kept = np.isin(labels, some)
        regression = Regression(x[kept], y[kept], fitted.hyper)
        numbers, self._left_out = np.empty(y.shape), np.empty(y.shape)
        numbers[kept], self._left_out[kept] = regression.left_out(labels[kept])
        if not kept.all():
            centre, variance = regression(x[~kept])
            numbers[~kept] = y[~kept] - centre
            self._left_out[~kept] = np.sqrt((variance + fitted.hyper.nugget) * regression.variance)
        rest = (u - fitted.basis.restored(y)) * len(u) / (len(u) - 1 - y.shape[1])  # which has seen the run
        return np.asarray(np.tensordot(numbers, fitted.basis.fields, axes=1) + rest)

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        fitted, fields, s = self._inputs(a, scalars)
        return fitted(fields, s)

    def uncertainty(self, a: Array, scalars: Array | None = None) -> tuple[Array, Array]:
        fitted, fields, s = self._inputs(a, scalars)
        noise, model = fitted.variances(fields, s)
        squares = np.square(fitted.basis.fields)
        constant = np.sqrt(np.tensordot(noise, squares, axes=1) + fitted.rest**2)
        std = np.sqrt(np.tensordot(model, squares, axes=1))
        return np.broadcast_to(constant, std.shape), std

    def joint(self, a: Array, scalars: Array | None, most: int) -> tuple[Floats, Floats]:
        fitted, fields, s = self._inputs(a, scalars)
        squares = powers(fitted.basis.fields)
        rows = np.argsort(-fitted.variances(fields, s)[1].mean(axis=0) * squares, kind="stable")[:most]
        some = Regression(fitted.x, fitted.y[:, rows], Hyper(fitted.hyper.kernel[rows], fitted.hyper.log[rows]))
        sizes = some.variance * squares[rows]
        covariance = some.joint(fitted.inputs(fields, s)) * sizes[:, None, None]
        if self._jackknife is not None:
            local = self._jackknife(fitted.coordinates(fields, s))
            covariance *= np.outer(local, local)
        return covariance, some.hyper.nugget * sizes

    def components(self, a: Array, scalars: Array | None = None) -> Components:
        fitted, fields, s = self._inputs(a, scalars)
        size = None if self._jackknife is None else self._jackknife(fitted.coordinates(fields, s))
        return Components(fitted.basis.fields, fitted.basis.directions, np.sqrt(sum(fitted.variances(fields, s))), size)

    def left_out_components(self) -> Components:
        fitted = self._trained()
        if self._left_out is None:
            raise UserError("this process has no out-of-fold residuals yet; call residuals first")
        plain, jackknife = Components(fitted.basis.fields, fitted.basis.directions, self._left_out), self._jackknife
        if jackknife is None:
            return plain
        return replace(plain, size_variance=jackknife.variance, weights=jackknife.weights(self._left_out))

    def sizes_with(self, counts: tuple[int, ...], seed: int = 0) -> tuple[Floats, float]:
        return posterior_sizes(self._trained(), counts, seed)

    @property
    def lengths(self) -> Floats:
        """Lengths of each component, (component, coordinate), in standard deviations of the coordinates."""
        return np.asarray(np.exp(self._trained().hyper.log[:, :-1]))

    def describe(self) -> str:
        """Describe components and kernels in a sentence."""
        if self._fitted is None:
            return "Gaussian processes that have not been trained."
        fitted = self._fitted
        counts = [(int((fitted.hyper.kernel == k).sum()), name) for k, name in enumerate(KERNELS)]
        kinds = ", ".join(f"{count} {name}" for count, name in counts if count)
        return (
            f"Gaussian processes of {fitted.y.shape[1]} principal components of the outputs ({kinds} kernels), "
            f"on {len(fitted.x)} runs with {fitted.x.shape[1]} coordinates, each with a length of its own."
        )

    def state(self) -> State:
        parts = {} if self._jackknife is None else {"jackknife": self._jackknife.state()}
        return State({"most": self.most}, {}, {"fitted": self._trained().state(), **parts})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls(**state.settings)
        new._fitted = Fitted.from_state(state.parts["fitted"])
        if "jackknife" in state.parts:
            new._jackknife = Jackknife.from_state(state.parts["jackknife"], new._fitted)
        return new

    def _trained(self) -> Fitted:
        if self._fitted is None:
            raise UserError("this process has not been trained; call fit(a, u) first")
        return self._fitted

    def _inputs(self, a: Array, scalars: Array | None) -> tuple[Fitted, Floats, Floats]:
        """Return the trained parts and checked inputs."""
        fitted = self._trained()
        a, _, s = checked(a, a, scalars, least=0)
        expected = fitted.coordinates.basis.centre.shape, fitted.coordinates.centre.shape
        if (a.shape[1:], s.shape[1:]) != expected:
            raise UserError(
                f"an input has shape {a.shape[1:]} and scalars {s.shape[1:]}, expected {expected[0]} and {expected[1]} as in "
                "training; give the same channels and scalars on the same grid"
            )
        return fitted, a, s
