r"""A sum of means, each of which is trained on the residuals of those before it:

    m = m₁ + m₂ + …,        m₁ is fitted to u,        m_j to r_{j−1},

r_j being the *out-of-fold* residuals of the first j parts: r_0 = u, r_j = r_{j−1} − m_{j,−i}(a_i). In-sample residuals would be
too small, and those of a mean that interpolates would be zero. In the sum itself every part is the one fitted to all pairs.
"""

from collections.abc import Callable
from typing import ClassVar, Self

from .._typing import Array, Ints
from ..data.pairs import Pairs
from ..errors import UserError
from ..learning.budget import Terms
from ..work.state import State
from .base import Mean, named_state, out_of_fold, refitted

__all__ = ["Sum", "described"]


class Sum(Mean):
    """The sum of two means or more, in the order in which they are trained.

    Pairs of a group, or of equal inputs, are left out together, so that what they share is not taken for a dependence on a.
    Out-of-fold residuals of all parts but the last are needed: put those first that have them in closed form. `residuals`
    refits the whole sum for each fold, which takes five times as long as `fit`.

    >>> import numpy as np
    >>> from pdno.mean.linear import Linear
    >>> a = np.random.default_rng(0).normal(size=(50, 1, 8))
    >>> mean = Sum(Linear(degree=1), Linear(degree=2)).fit(a, a + 1)
    >>> bool(np.allclose(mean(2 * a), 2 * a + 1))
    True
    """

    name: ClassVar[str] = "sum"

    def __init__(self, *parts: Mean) -> None:
        if len(parts) < 2 or not all(isinstance(part, Mean) for part in parts):
            got = ", ".join(_name(part) for part in parts) or "nothing"
            raise UserError(f"got a sum of {got}, expected two means or more, for instance Sum(Linear(), Kernel())")
        if len({id(part) for part in parts}) < len(parts):
            raise UserError("the same mean is in the sum twice, expected a separate one for each part; construct two")
        self.parts, self._trained = parts, False
        self.cheap_folds = all(part.cheap_folds for part in parts)

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        self._trained = False
        labels, left = pairs.shared_labels(), pairs
        for i, part in enumerate(self.parts):
            share = terms.left(1 / (len(self.parts) - i))
            part.learn(left, None, terms.below(f"part-{i}").within(share))
            if part is not self.parts[-1]:
                left = left.with_outputs(out_of_fold(part, left, labels, terms.seed))
        self._trained = True
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        self._check()
        total = self.parts[0](a, scalars)
        for part in self.parts[1:]:
            total = total + part(a, scalars)
        return total

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
        """Describe all parts in a sentence."""
        if not self._trained:
            return f"A sum of means ({', '.join(part.name for part in self.parts)}) that has not been trained."
        return " plus ".join(map(described, self.parts)) + "."

    def state(self) -> State:
        self._check()
        return State({"count": len(self.parts)}, {}, {str(i): named_state(part) for i, part in enumerate(self.parts)})

    @classmethod
    def from_state(cls, state: State, restore: Callable[[State], Mean] | None = None) -> Self:
        """Restore what `state` returned; `restore` restores each part, as `pdno.mean.mean_from_state` does.

        Raises:
            UserError: if `restore` or the states of parts are missing.
        """
        if restore is None:
            raise UserError("a sum of means is restored from the states of its parts; use pdno.mean.mean_from_state")
        names = [str(i) for i in range(int(state.settings["count"]))]
        if sorted(names) != sorted(state.parts):
            raise UserError(f"a sum of means has the parts {sorted(state.parts)}, expected {names}; save it again")
        new = cls(*(restore(state.parts[name]) for name in names))
        new._trained = True
        return new

    def _check(self) -> None:
        if not self._trained:
            raise UserError("this sum of means has not been trained; call fit(a, u) first")


def described(mean: Mean) -> str:
    """Return the description of a mean without the full stop."""
    return mean.describe().rstrip(".")


def _name(part: object) -> str:
    return part.name if isinstance(part, Mean) else repr(part)
