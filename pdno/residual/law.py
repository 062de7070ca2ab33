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
from ..learning.budget import Terms
from ..learning.network import NetworkOnPairs
from ..mean.base import Components
from ..symmetry import Symmetry
from ..work.state import State
from .score import Units, scores

__all__ = [
    "AnyGridLaw",
    "Density",
    "Expectation",
    "Inputs",
    "MeanResiduals",
    "ResidualLaw",
    "Residuals",
    "Rows",
    "Tunable",
    "ignored_settings",
    "named_state",
    "normals",
]

T = TypeVar("T")
SCORE_MEMBERS = 50  # drawn for each pair
SCORED_VALUES = 2**23  # of members that are in memory for a score


@dataclass(frozen=True)
class Inputs:
    """Inputs of a prediction with m(a), and a cache of values that a law computes from them.

    Args:
        a: (sample, channel, *grid).
        mean: m(a), (sample, channel, *grid).
        scalars: (sample, parameter).
        components: posterior of the mean, if it has one and the law uses it.
    """

    a: Array
    mean: Array
    scalars: Array | None = None
    components: Components | None = None
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
        periodic: whether each axis of the grid is periodic, None for nodes of a mesh.
        prediction: m(a), (sample, channel, *grid); default: u − values, and 0 where u is missing.
        components: posterior of the mean, out of fold for training pairs; None if it has none.
    """

    pairs: Pairs
    values: Array
    elements: Sequence[Symmetry] = ()
    periodic: tuple[bool | None, ...] = ()
    prediction: Array | None = None
    components: Components | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | Ints) -> "Residuals":
        prediction = None if self.prediction is None else self.prediction[rows]
        components = None if self.components is None else self.components[rows]
        return replace(self, pairs=self.pairs[rows], values=self.values[rows], prediction=prediction, components=components)

    @property
    def mask(self) -> Array | None:
        """True where u is observed; None if it is everywhere."""
        mask = self.pairs.mask
        return None if mask is None or mask.all() else mask

    @property
    def spaces(self) -> Spaces:
        """The grids of a and u."""
        kinds: list[Kind] = ["node" if p is None else "periodic" if p else "cell" for p in self.periodic]
        return Spaces.of(self.pairs, kind=kinds or "cell")

    @property
    def inputs(self) -> Inputs:
        """The inputs with m(a)."""
        mean, mask = self.prediction, self.mask
        if mean is None:
            mean = self.pairs.u - self.values
            mean = mean if mask is None else np.where(mask, mean, 0.0)
        return Inputs(self.pairs.a, mean, self.pairs.scalars, self.components)

    def groups(self) -> Ints | None:
        """Return labels of pairs that are not independent: groups, or equal inputs; None if all are independent."""
        return self.pairs.shared_labels()


@dataclass(frozen=True)
class MeanResiduals:
    """Residuals of a mean on training and on held-out pairs.

    Args:
        train: residuals to train on, out of fold where the mean has them.
        held_out: residuals of held-out pairs.
        measured: one of these two, or training residuals with the size of held-out ones: those from which the scale is
            estimated.
        exact: whether predictions of the mean are exact up to rounding.
        representative: whether `train` is representative of new pairs.
        out_of_fold: whether `train` are residuals of copies of the mean that were trained without the pair.
    """

    train: Residuals
    held_out: Residuals | None
    measured: Residuals
    exact: bool = False
    representative: bool = True
    out_of_fold: bool = True

    @property
    def enlarged(self) -> Residuals:
        """Training residuals with the size of held-out ones, where that is known."""
        return self.train if self.measured is self.held_out else self.measured

    @property
    def nodes(self) -> int:
        """Number of nodes of a field."""
        return int(np.prod(self.train.values.shape[2:]))


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
        evidence: log-likelihood of these numbers less that of a Gaussian, for each held-out pair; None for other laws.
        trains_network: whether `learn` trains a network, for which the pairs of the validation set are too few.
        has_own_size: whether `learn` compares training residuals, which may be in-sample, with held-out ones itself.
        uses_components: whether draws need the posterior of the mean, `Inputs.components`.
        call_values, call_rows: largest number of values, and of rows, of one call of `draw`.
    """

    name: ClassVar[str]
    deterministic: ClassVar[bool] = False
    centred: ClassVar[bool] = False
    trains_network: ClassVar[bool] = False
    has_own_size: ClassVar[bool] = False
    uses_components: ClassVar[bool] = False
    call_values: int = 2**17
    call_rows: ClassVar[int] = 512
    std: Array | None = None
    networks: tuple[NetworkOnPairs, ...] = ()
    explained: float = 0.0
    shared: float = 0.0
    evidence: Array | None = None

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
        units: Units | None = None,
        **sampling: Any,
    ) -> Array:
        """Return the score of draws for each held-out pair (`pdno.residual.score`); laws are compared by it.

        Args:
            held_out: residuals of held-out pairs.
            members: number of draws for each pair.
            seed: of the draws.
            first: number of the first pair, of which its draws are a function.
            units: of values and increments; default: those of these residuals.
            sampling: settings such as steps=20, as the law defines them.

        Returns:
            (sample,).
        """
        units = Units.of(held_out.values, held_out.mask) if units is None else units
        inputs, mask = held_out.inputs, held_out.mask
        count = max(1, SCORED_VALUES // (members * held_out.values[0].size))
        out = [
            scores(
                self.members(inputs, places, members, seed, first, **sampling),
                held_out.values[places],
                None if mask is None else mask[places],
                units,
            )
            for places in (np.arange(low, min(low + count, len(held_out))) for low in range(0, len(held_out), count))
        ]
        return np.concatenate(out)

    @final
    def members(self, inputs: Inputs, places: Ints, members: int, seed: int, first: int, **sampling: Any) -> Array:
        """Draw members of some inputs.

        Args:
            inputs: of which some have members.
            places: rows of these inputs, (sample,).
            members: number of draws for each.
            seed: of the draws.
            first: number of the input in the first row, of which its draws are a function.
            sampling: settings such as steps=20, as the law defines them.

        Returns:
            (member, sample, channel, *grid).
        """
        shape, total = inputs.mean.shape[1:], len(places) * members
        out, size = np.empty((members, len(places), *shape)), self.rows_of_call(shape)
        for low in range(0, total, size):
            rows, numbers = np.divmod(np.arange(low, min(low + size, total)), members)
            out[numbers, rows] = self.draw(inputs, Rows(seed, first + places[rows], numbers, places[rows]), **sampling)
        return out

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


class AnyGridLaw(ABC):
    """A law whose members may be functions: with inputs and m(a) on a finer grid, `draw` returns the same functions there."""

    @property
    @abstractmethod
    def any_grid(self) -> bool:
        """Whether members are functions."""


class Tunable(ABC):
    """A law with settings of its draws that are selected on held-out pairs, after it has been selected itself."""

    @abstractmethod
    def tune(self, held_out: Residuals, terms: Terms) -> str:
        """Select the settings; return a sentence about them, empty if there is nothing to say."""


def named_state(law: ResidualLaw) -> State:
    """Return the state of a law with its name, from which `pdno.residual.law_from_state` restores it."""
    state = law.state()
    return State({"name": law.name, **state.settings}, state.arrays, state.parts)


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
