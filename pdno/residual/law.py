r"""The protocol of residual laws: the conditional distribution of u − m(a) given a.

A law is trained on out-of-fold residuals of the mean, and draws residual fields for new inputs. A member is a function of
(seed, input, member): not of the batch in which it is drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar, final

import numpy as np

from .._typing import Array, Ints
from ..basis import Kind
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..diffusion.base import Base
from ..diffusion.reverse import Reverse
from ..errors import UserError
from ..evaluation.metrics import crps, energy_score
from ..learning.budget import Terms
from ..learning.network import NetworkOnPairs
from ..symmetry import Symmetry
from ..work.state import State

__all__ = [
    "Density",
    "Expectation",
    "Inputs",
    "ResidualLaw",
    "Residuals",
    "Rows",
    "Tunable",
    "enlargement",
    "ignored_settings",
    "named_state",
    "normals",
    "root_mean_square",
]

T = TypeVar("T")
SCORE_MEMBERS = 50  # drawn for each pair
TINY = 1e-300


@dataclass(frozen=True)
class Inputs:
    """Inputs of a prediction with m(a), and a cache of values that a law computes from them.

    Args:
        a: (sample, channel, *grid).
        mean: m(a), (sample, channel, *grid).
        scalars: (sample, parameter).
    """

    a: Array
    mean: Array
    scalars: Array | None = None
    _computed: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.a)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return the value of this name from the cache; `compute` is called only for the first request."""
        if name not in self._computed:
            self._computed[name] = compute()
        value: T = self._computed[name]
        return value


@dataclass(frozen=True)
class Rows:
    """The members that a call draws: row k is member `members[k]` of the input in row `places[k]` of `Inputs`.

    Args:
        seed: of the draws.
        inputs: number of the input, of which its draws are a function, for each row.
        members: number of the member.
        places: row of `Inputs`.
    """

    seed: int
    inputs: Ints
    members: Ints
    places: Ints


@dataclass(frozen=True)
class Residuals:
    """Out-of-fold residuals: each is of a mean that was trained without the pair.

    Args:
        pairs: inputs, outputs, mask and groups.
        values: u − m(a), zero where u is missing, (sample, channel, *grid).
        elements: of the group of symmetries, which act on residuals linearly; empty for none.
        periodic: whether each axis of the grid is periodic.
        prediction: m(a), (sample, channel, *grid); default: u − values, and 0 where u is missing.
    """

    pairs: Pairs
    values: Array
    elements: Sequence[Symmetry] = ()
    periodic: tuple[bool, ...] = ()
    prediction: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | Ints) -> "Residuals":
        prediction = None if self.prediction is None else self.prediction[rows]
        return replace(self, pairs=self.pairs[rows], values=self.values[rows], prediction=prediction)

    @property
    def mask(self) -> Array | None:
        """True where u is observed; None if it is everywhere."""
        mask = self.pairs.mask
        return None if mask is None or mask.all() else mask

    @property
    def spaces(self) -> Spaces:
        """The grids of a and u."""
        kinds: list[Kind] = ["periodic" if p else "cell" for p in self.periodic]
        return Spaces.of(self.pairs, kind=kinds or "cell")

    @property
    def inputs(self) -> Inputs:
        """The inputs with m(a)."""
        mean, mask = self.prediction, self.mask
        if mean is None:
            mean = self.pairs.u - self.values
            mean = mean if mask is None else np.where(mask, mean, 0.0)
        return Inputs(self.pairs.a, mean, self.pairs.scalars)

    def groups(self) -> Ints | None:
        """Return labels of pairs that are not independent: groups, or equal inputs; None if all are independent."""
        return self.pairs.shared_labels()


class ResidualLaw(ABC):
    """The distribution of u − m(a) given a.

    A law of your own needs the six abstract methods; `pdno.testing.check_law` checks them. Attributes:

        name: of the law, in results and files.
        deterministic: whether all members are the same.
        centred: whether the mean of the law is zero for every input, so that m(a) is the mean of u.
        std: standard deviation of the law, (channel, *grid), if it is the same for all inputs; None if it is not.
        networks: trained networks that it uses.
        explained: share of the variance of held-out residuals that a few numbers per field explain; 0 for other laws.
        shared: share of what as many principal components of the residuals leave unexplained, that these numbers explain: what
            further training of a law with such numbers may gain.
        trains_network: whether `learn` trains a network, for which the pairs of the validation set are too few.
        call_values, call_rows: largest number of values, and of rows, of one call of `draw`.
    """

    name: ClassVar[str]
    deterministic: ClassVar[bool] = False
    centred: ClassVar[bool] = False
    trains_network: ClassVar[bool] = False
    call_values: ClassVar[int] = 2**17
    call_rows: ClassVar[int] = 512
    std: Array | None = None
    networks: tuple[NetworkOnPairs, ...] = ()
    explained: float = 0.0
    shared: float = 0.0

    @abstractmethod
    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        """Train on residuals.

        Args:
            residuals: of the training pairs, out of fold.
            held_out: of validation pairs, not to be trained on.
            terms: seed, folder and devices; `terms.left()` is the number of seconds that training may take.
        """

    @abstractmethod
    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        """Draw residuals: (row, channel, *grid).

        Args:
            inputs: of which some have members in this call.
            rows: the members to draw.
            sampling: settings such as steps=20, as the law defines them.

        Raises:
            UserError: if a setting is unknown.
        """

    @abstractmethod
    def evaluations(self, **sampling: Any) -> int:
        """Return the number of network evaluations for one member."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the trained law, one sentence."""

    @abstractmethod
    def state(self) -> State:
        """Return settings, as plain JSON types, and trained arrays, to be saved."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""

    @final
    def score(
        self,
        held_out: Residuals,
        members: int = SCORE_MEMBERS,
        seed: int = 0,
        first: int = 0,
        unit: Array | None = None,
        **sampling: Any,
    ) -> Array:
        """Return ⅓ (CRPS + energy score + energy score of increments) of draws for each held-out pair; laws are compared by it.

        All are fair scores. Increments are differences of neighbouring nodes: the energy score of fields alone hardly sees how
        rough they are if they have a random shift.

        Args:
            held_out: residuals of held-out pairs.
            members: number of draws for each pair.
            seed: of the draws.
            first: number of the first pair, of which its draws are a function.
            unit: of the values, (1, channel, 1, …); default: the root mean square residual of each channel.
            sampling: settings such as steps=20, as the law defines them.

        Returns:
            (sample,).
        """
        inputs, total = held_out.inputs, len(held_out) * members
        drawn = np.empty((members, *held_out.values.shape))
        size = self.rows_of_call(held_out.values.shape[1:])
        for low in range(0, total, size):
            places, numbers = np.divmod(np.arange(low, min(low + size, total)), members)
            drawn[numbers, places] = self.draw(inputs, Rows(seed, first + places, numbers, places), **sampling)
        values, mask = held_out.values, held_out.mask
        unit = root_mean_square(values, mask) if unit is None else unit
        unit = np.where(unit > 0, unit, 1.0)
        drawn, values = drawn / unit, values / unit
        scores = [crps(drawn, values, mask=mask).each, energy_score(drawn, values, mask=mask).each]
        grid = values.ndim - 2
        steps = _neighbours(values, np.subtract, grid)
        seen = None if mask is None else _neighbours(mask, np.logical_and, grid)
        if steps.size and (seen is None or seen.any(axis=(1, 2)).all()):
            of_steps = np.maximum(root_mean_square(steps, seen), TINY)
            scores.append(energy_score(_neighbours(drawn, np.subtract, grid) / of_steps, steps / of_steps, mask=seen).each)
        return np.asarray(np.mean(scores, axis=0))

    @final
    def rows_of_call(self, shape: tuple[int, ...]) -> int:
        """Return the number of rows of one call of `draw` for fields of this shape."""
        return int(np.clip(self.call_values // int(np.prod(shape)), 4, self.call_rows))


class Density(ABC):
    """A law with a density, or a bound of it."""

    @abstractmethod
    def negative_log_density(self, residuals: Residuals, seed: int = 0) -> float:
        """Return −log of the density of residuals, or an upper bound, in nats per pair and in units of u."""


class Expectation(ABC):
    """A law that is not centred, but has its mean without the Monte-Carlo error of a mean over members."""

    @abstractmethod
    def expectation(self, inputs: Inputs, seed: int = 0) -> Array:
        """Return E[u − m(a) | a]: (sample, channel, *grid)."""


class Tunable(ABC):
    """A law with settings of its draws that are selected on held-out pairs, after it has been selected itself."""

    @abstractmethod
    def tune(self, held_out: Residuals, terms: Terms) -> str:
        """Select the settings; return a sentence about them, empty if there is nothing to say."""


def named_state(law: ResidualLaw) -> State:
    """Return the state of a law with its name, from which `pdno.residual.law_from_state` restores it."""
    state = law.state()
    return State({"name": law.name, **state.settings}, state.arrays, state.parts)


def root_mean_square(values: Array, mask: Array | None = None) -> Array:
    """Return the root mean square of observed values per channel: (1, channel, 1, …)."""
    axes = (0, *range(2, values.ndim))
    if mask is None:
        return np.asarray(np.sqrt(np.mean(values**2, axis=axes, keepdims=True)))
    count = np.maximum(mask.sum(axis=axes, keepdims=True), 1)
    return np.asarray(np.sqrt(np.where(mask, values**2, 0.0).sum(axis=axes, keepdims=True) / count))


def _neighbours(fields: Array, join: Callable[[Array, Array], Array], grid: int) -> Array:
    """Return join(next, this) for neighbouring nodes along each of the last `grid` axes: (…, channel, pair)."""
    parts = [join(*(np.take(fields, range(1 - k, fields.shape[axis] - k), axis) for k in (0, 1))) for axis in range(-grid, 0)]
    return np.concatenate([part.reshape(*fields.shape[:-grid], -1) for part in parts], axis=-1)


def enlargement(train: Array, train_mask: Array | None, new: Array, new_mask: Array | None) -> Array:
    """Return the factor, at least 1, that gives in-sample values the size of held-out ones: (1, channel, 1, …)."""
    sizes = root_mean_square(new, new_mask), root_mean_square(train, train_mask)
    return np.maximum(sizes[0] / np.maximum(sizes[1], TINY), 1.0)


def ignored_settings(sampling: dict[str, Any], max_steps: int | None = None) -> None:
    """Check settings of the reverse chain that have no effect, because a law without a diffusion was selected in its place.

    Args:
        sampling: settings of one call.
        max_steps: largest number of steps that the diffusion would accept; None for any.

    Raises:
        UserError: if a diffusion would refuse them.
    """
    reverse = Reverse().override(**{name: value for name, value in sampling.items() if name != "callback"})
    if max_steps is not None and isinstance(reverse.steps, int) and not 1 <= reverse.steps <= max_steps:
        raise UserError(f"steps = {reverse.steps}: expected a number from 1 to {max_steps}")


def normals(base: Base, shape: tuple[int, ...], rows: Rows, step: int = 0) -> Array:
    """Draw from a base distribution for each row, as a function of (seed, input, member, step): (row, *shape)."""
    cuts = np.flatnonzero(np.diff(rows.inputs) | (np.diff(rows.members) != 1)) + 1
    runs = np.split(np.stack([rows.inputs, rows.members]), cuts, axis=1)  # consecutive members of one input
    draws = [
        base.sample(shape, run.shape[1], rows.seed, (int(run[0, 0]) << 32) + int(run[1, 0]), "reverse", step) for run in runs
    ]
    return np.concatenate(draws)
