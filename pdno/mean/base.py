r"""The protocol of mean models.

    m(a) ≈ E[u | a],        r_i = u_i − m_{−i}(a_i),

where m_{−i} was trained without pair i and without the pairs of its group: these *out-of-fold* residuals are as large as those
of new inputs, whereas in-sample residuals are too small.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import xarray as xr

from .._typing import Array, Floats, Ints, Mask
from ..data.pairs import Pairs
from ..data.selection import SAMPLE
from ..data.split import folds
from ..errors import UserError
from ..learning.budget import Terms
from ..learning.network import NetworkOnPairs
from ..work.state import State

__all__ = [
    "AnyGrid",
    "Components",
    "Componentwise",
    "Mean",
    "Posterior",
    "checked",
    "inputs",
    "named_state",
    "out_of_fold",
    "pairs_of",
    "powers",
    "refitted",
    "steady",
]

STEADY = 1e-12  # range of outputs, relative to the largest of their channel, below which they are constant
AXES = ("x", "y", "z", "t")  # names where none are given


class Mean(ABC):
    """A regression of u on a. Arrays are (sample, channel, *grid); scalars are (sample, parameter).

    A mean of your own needs the six abstract methods; `pdno.testing.check_mean` checks them. Attributes:

        name: of the model, in results and files.
        accepts_missing: whether it can be trained on outputs that are observed at different nodes in different samples.
        cheap_folds: whether out-of-fold residuals cost little more than training.
        nested: whether `residuals` selects all settings again without the pairs that are left out.
        parts: means that it is composed of.
        networks: trained networks that it uses.
    """

    name: ClassVar[str]
    accepts_missing: ClassVar[bool] = False
    cheap_folds: bool = True
    nested: ClassVar[bool] = False
    parts: "tuple[Mean, ...]" = ()
    networks: tuple[NetworkOnPairs, ...] = ()

    @abstractmethod
    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        """Train on pairs.

        Args:
            pairs: training pairs; `pairs.filled` has zeros where outputs are missing.
            held_out: validation pairs, not to be trained on.
            terms: seed, folder and devices; `terms.left()` is the number of seconds that training may take.
        """

    @abstractmethod
    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        """Return m(a) in the shape of u."""

    @abstractmethod
    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Return out-of-fold residuals in the shape of u; `refitted` computes them for any mean.

        Args:
            a, u, scalars: the training pairs.
            group: labels; pairs with the same label are left out together.
            count: number of folds.
            seed: of the folds.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the trained model, one sentence."""

    @abstractmethod
    def state(self) -> State:
        """Return constructor arguments, as plain JSON types, and trained arrays, to be saved."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""

    @final
    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        """Train on arrays, without a time limit.

        Args:
            a, u: inputs and outputs, (sample, channel, *grid).
            scalars: (sample, parameter).
            seed: of everything that is drawn.

        Returns:
            The mean itself.
        """
        checked(a, u, scalars)
        return self.learn(pairs_of(a, u, scalars), None, Terms(seed, progress=False))

    @final
    def leaves(self) -> "list[Mean]":
        """Return the means that it is composed of, down to those that are composed of no others."""
        return [leaf for part in self.parts for leaf in part.leaves()] or [self]

    @final
    def to(self, device: str) -> None:
        """Move all networks to a device."""
        for leaf in self.leaves():
            for network in leaf.networks:
                network.to(device)

    @final
    @property
    def parameters(self) -> int:
        """Number of values that the model keeps: weights of networks, or all saved arrays."""
        of_networks = sum(network.parameters for network in self.networks)
        return of_networks or _size(self.state().arrays) + sum(part.parameters for part in self.parts)


class Posterior(ABC):
    """A mean that estimates its own uncertainty."""

    @abstractmethod
    def uncertainty(self, a: Array, scalars: Array | None = None) -> tuple[Array, Array]:
        """Return the standard deviations of the noise and of m(a), both in the shape of u."""


@dataclass(frozen=True, eq=False)
class Components:
    """Errors of predictions along some fields: Σ_k std_k ξ_k φ_k with uncorrelated ξ of unit variance, and a rest.

    Args:
        fields: φ, (component, channel, *grid).
        directions: from which a field has its numbers, (component, channel, *grid).
        std: of the numbers for each input, (sample, component).
        size: typical size of errors at each input, relative to std, (sample,); None if it is not known to differ.
        size_variance: variance of the logarithm of `size` over new inputs.
        weights: of left-out pairs, (sample,): less than 1 for those with a larger std than new inputs have; None for 1.
    """

    fields: Array
    directions: Array
    std: Array
    size: Array | None = None
    size_variance: float = 0.0
    weights: Array | None = None

    def __getitem__(self, rows: slice | Ints) -> "Components":
        size, weights = (None if each is None else each[rows] for each in (self.size, self.weights))
        return replace(self, std=self.std[rows], size=size, weights=weights)

    def numbers(self, values: Array) -> Array:
        """Return the numbers of fields (sample, channel, *grid): (sample, component)."""
        axes = range(1, values.ndim)
        return np.asarray(np.tensordot(values, self.directions, (axes, axes)))

    def restored(self, numbers: Array) -> Array:
        """Return Σ_k numbers_k φ_k."""
        return np.tensordot(numbers, self.fields, 1)


def powers(fields: Array) -> Floats:
    """Return mean squares of fields (component, channel, *grid) over their nodes: (component,), also of none."""
    return np.asarray(np.square(fields).mean(axis=tuple(range(1, fields.ndim))))


class Componentwise(ABC):
    """A mean whose posterior distribution is that of the numbers of some fields."""

    @abstractmethod
    def components(self, a: Array, scalars: Array | None = None) -> Components:
        """Return the posterior of new outputs, noise included."""

    @abstractmethod
    def left_out_components(self) -> Components:
        """Return the posterior of the pairs of the latest call of `residuals`, each without itself."""

    @abstractmethod
    def sizes_with(self, counts: tuple[int, ...], seed: int = 0) -> tuple[Floats, float]:
        """Return root mean square errors with other numbers of runs, by the posterior: without noise, (count,); and noise."""

    @abstractmethod
    def joint(self, a: Array, scalars: Array | None, most: int) -> tuple[Floats, Floats]:
        """Return covariances of the errors of m between inputs, averaged over the field, for the most uncertain components.

        Args:
            a, scalars: inputs, (sample, channel, *grid) and (sample, parameter).
            most: number of components.

        Returns:
            Covariances (component, sample, sample), and variances of observation noise (component,).
        """


class AnyGrid(ABC):
    """A mean that may be an operator: a map between functions, which can be evaluated on another grid than that of training."""

    @property
    @abstractmethod
    def any_grid(self) -> bool:
        """Whether `on_grid` can be called."""

    @abstractmethod
    def on_grid(self, a: Array, scalars: Array | None = None) -> Array:
        """Return m(a) on the grid of a.

        Raises:
            UserError: if this grid has too few points.
        """


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(int(np.size(values)) for values in arrays.values())


def refitted(
    mean: Mean,
    a: Array,
    u: Array,
    scalars: Array | None = None,
    group: Ints | None = None,
    count: int = 5,
    seed: int = 0,
    mask: Mask | None = None,
) -> Array:
    """Return out-of-fold residuals of any mean, from `count` copies of it, each trained on all folds but one.

    Args:
        mean: to copy; it is not changed.
        a, u, scalars, group, count, seed: as in `Mean.residuals`.
        mask: True where u is observed, in the shape of u; the copies are trained on these values alone.

    Returns:
        Residuals in the shape of u.
    """
    checked(a, u, scalars)
    out = np.empty(u.shape)
    for kept, left in folds(len(u), count, group, seed):
        s, s_left = (None, None) if scalars is None else (scalars[kept], scalars[left])
        some = None if group is None else group[kept]
        pairs = pairs_of(a[kept], u[kept], s, None if mask is None else mask[kept], some)
        copy = deepcopy(mean).learn(pairs, None, Terms(seed, progress=False))
        out[left] = u[left] - copy(a[left], s_left)
    return out


def out_of_fold(mean: Mean, pairs: Pairs, group: Ints | None = None, seed: int = 0) -> Array:
    """Return the out-of-fold residuals of training pairs, in the shape of u; values at missing nodes are undefined.

    If outputs are missing and the mean accepts that, copies of it are trained on the observed outputs of each fold. Otherwise
    `Mean.residuals` is called, with zeros in place of missing outputs.
    """
    if pairs.mask is not None and mean.accepts_missing:
        return refitted(mean, pairs.a, pairs.filled, pairs.scalars, group, seed=seed, mask=pairs.mask)
    return mean.residuals(pairs.a, pairs.filled, pairs.scalars, group, seed=seed)


def named_state(mean: Mean) -> State:
    """Return the state of a mean with its name, from which `pdno.mean.mean_from_state` restores it."""
    state = mean.state()
    return State({"name": mean.name, **state.settings}, state.arrays, state.parts)


def checked(a: Any, u: Any, scalars: Any = None, least: int = 1) -> tuple[Floats, Floats, Floats]:
    """Check the arrays of training pairs.

    Returns:
        Inputs, outputs and scalars as finite numbers; scalars are (sample, 0) if there are none.

    Raises:
        UserError: if shapes or numbers of samples do not fit, or there are fewer than `least` samples.
    """
    a, u = (np.asarray(values, dtype=np.float64) for values in (a, u))
    s = np.zeros((len(a), 0)) if scalars is None else np.asarray(scalars, dtype=np.float64)
    if min(a.ndim, u.ndim) < 2 or s.ndim != 2 or not least <= len(a) == len(u) == len(s) or 0 in u.shape[1:]:
        raise UserError(
            f"a, u and scalars have shapes {a.shape}, {u.shape} and {s.shape}; expected (sample, channel, *grid) twice and "
            "(sample, parameter), with the same number of samples, at least one"
        )
    for name, values in (("inputs", a), ("outputs", u), ("scalars", s)):
        if not np.isfinite(values).all():
            raise UserError(f"{name} contain NaN or infinite values, expected finite numbers; remove such pairs")
    return a, u, s


def inputs(a: Array, scalars: Array | None = None) -> Floats:
    """Return the values and scalars of each input in one row, (sample, value)."""
    flat = np.asarray(a, dtype=np.float64).reshape(len(a), -1)
    return flat if scalars is None else np.concatenate([flat, np.asarray(scalars, dtype=np.float64)], axis=1)


def steady(u: Array) -> Mask:
    """Return the nodes where outputs, (sample, channel, *grid), are constant up to rounding: (channel, *grid)."""
    size = np.abs(u).max(axis=(0, *range(2, u.ndim))).reshape(-1, *(1,) * (u.ndim - 2))
    return np.asarray(np.ptp(u, axis=0) <= STEADY * size)


def pairs_of(a: Array, u: Array, scalars: Array | None = None, mask: Mask | None = None, group: Ints | None = None) -> Pairs:
    """Return arrays (sample, channel, *grid) as pairs; the mask is True where u is observed."""
    axes = [AXES[: x.ndim - 2] for x in (a, u)]
    axes[0] = tuple(f"a_{x}" for x in axes[0]) if a.shape[2:] != u.shape[2:] else axes[0]
    variables = {"a": ((SAMPLE, "a_channel", *axes[0]), a), "u": ((SAMPLE, "u_channel", *axes[1]), u)}
    if scalars is not None:
        variables["scalars"] = ((SAMPLE, "parameter"), scalars)
    if mask is not None:
        variables["mask"] = (variables["u"][0], mask)
    if group is not None:
        variables["group"] = ((SAMPLE,), group)
    return Pairs(xr.Dataset(variables))
