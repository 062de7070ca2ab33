r"""The constant mean m(a) = m: the average of the training outputs, which ignores the input.

With it, u | a = m + S r is the paper's model: one network learns the whole conditional distribution, and m and S are the
normalisation of the data. Under symmetries G, m and S are averaged over the group, so that transformed residuals are residuals
of transformed outputs.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from .._typing import Array, Ints
from ..basis import Kind
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..learning.budget import Terms
from ..learning.network import elements_of
from ..learning.normalisation import Normalisation, Normalise
from ..symmetry import Own, Symmetry
from ..work.state import State
from .base import Mean, refitted

__all__ = ["Constant"]


class Constant(Mean):
    """The average of the training outputs.

    Args:
        normalise: "pointwise" averages at each node, "scalar" over all nodes of a channel, "none" is zero.
        symmetries: exact symmetries of the operator, over which the average is taken.
        kind: of the grid's axes.

    After training, `normalisation` has the mean and the standard deviation of the outputs.

    >>> mean = Constant().fit(np.zeros((2, 1, 3)), np.array([[[0.0, 1.0, 2.0]], [[2.0, 3.0, 4.0]]]))
    >>> mean(np.ones((1, 1, 3))).tolist()
    [[[1.0, 2.0, 3.0]]]
    """

    name: ClassVar[str] = "constant"
    accepts_missing: ClassVar[bool] = True

    def __init__(
        self,
        normalise: Normalise = "pointwise",
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.normalise, self.kind = normalise, kind
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self._shape: tuple[int, ...] = ()
        self.normalisation = Normalisation(np.zeros(()), np.ones(()))

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        normalisation = Normalisation.of(pairs.u, self.normalise, pairs.mask)
        elements = elements_of(self.symmetries, Spaces.of(pairs, kind=self.kind), pairs) if self.symmetries else ()
        self._shape = pairs.u.shape[1:]
        self.normalisation = _averaged(normalisation, elements, self._shape) if elements else normalisation
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        if not self._shape:
            raise UserError("this constant mean has not been trained; call fit(a, u) first")
        return np.broadcast_to(self.normalisation.mean, (len(a), *self._shape))

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        return refitted(self, a, u, scalars, group, count, seed)

    def describe(self) -> str:
        """Describe the mean in a sentence."""
        return "The average of the training outputs, which ignores the input."

    def state(self) -> State:
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        symmetries = [name if isinstance(name, str) else "own" for name in self.symmetries]
        settings = {"normalise": self.normalise, "symmetries": symmetries, "kind": kind}
        return State({**settings, "shape": list(self._shape)}, {}, {"normalisation": self.normalisation.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        new = cls(state.settings["normalise"], state.settings["symmetries"], state.settings["kind"])
        new._shape = tuple(state.settings["shape"])
        new.normalisation = Normalisation.from_state(state.parts["normalisation"])
        return new


def _averaged(normalisation: Normalisation, elements: Sequence[Symmetry], shape: tuple[int, ...]) -> Normalisation:
    """Return mean and root mean square over a group of the mean and of the standard deviation, on the whole grid."""
    mean, std = (np.broadcast_to(x, shape)[None] for x in (normalisation.mean, normalisation.std))
    variance = np.mean([g.linear.on_u(std) ** 2 for g in elements], axis=0)[0]
    return Normalisation(np.mean([g.on_u(mean) for g in elements], axis=0)[0], np.sqrt(variance))
