r"""A mean of several, each of which learns what those before it leave:

    m = m₁ + m₂ + …,        m₁ learns u,        m_j learns r_{j−1},

r_j being the *out-of-fold* residuals of the first j of them: r_0 = u, r_j = r_{j−1} − m_{j,−i}(a_i). In-sample residuals would
be too small, and those of a mean that interpolates would be zero. For the sum itself every part is the one fitted to all pairs.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .base import Array, Mean, inputs

__all__ = ["Sum", "described", "restored"]


class Sum(Mean):
    """The sum of two means or more, in the order in which they learn.

    Pairs of equal inputs are left out together, so that what an input's repeats tell is not taken for what its neighbours do;
    `fit` knows of no other groups. It needs residuals of all parts but the last: put those first that have them in closed form.
    `residuals` refits the whole sum for each fold, which is honest and takes five times the time of `fit`.

    >>> from pdno.mean.linear.linear import Linear
    >>> a = np.random.default_rng(0).normal(size=(50, 1, 8))
    >>> mean = Sum(Linear(degree=1), Linear(degree=2)).fit(a, a + 1)
    >>> bool(np.allclose(mean(2 * a), 2 * a + 1))
    True
    """

    name: ClassVar[str] = "sum"

    def __init__(self, *parts: Mean) -> None:
        if len(parts) < 2 or not all(isinstance(part, Mean) for part in parts):
            got = ", ".join(_name(part) for part in parts) or "nothing"
            raise UserError(f"got a sum of {got}, expected two means or more; give for instance Sum(Linear(), Kernel())")
        if len({id(part) for part in parts}) < len(parts):
            raise UserError("got a mean that is in the sum twice, expected one for each part; make a new one for each")
        self.parts, self._learned = parts, False

    @property
    def inner(self) -> tuple[Mean, ...]:
        return self.parts

    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        self._learned = False
        same, left = _repeats(a, scalars), u
        for part in self.parts:
            part.fit(a, left, scalars, seed)  # first, since some choose once for all that is left out later
            if part is not self.parts[-1]:
                left = part.residuals(a, left, scalars, same, seed=seed)
        self._learned = True
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        self._check()
        total = self.parts[0](a, scalars)
        for part in self.parts[1:]:
            total = total + part(a, scalars)
        return total

    def describe(self) -> str:
        """What the parts say of themselves."""
        if not self._learned:
            return f"A sum of means ({', '.join(part.name for part in self.parts)}) that has not learned yet."
        return " plus ".join(map(described, self.parts)) + "."

    def settings(self) -> dict[str, Any]:
        return {"parts": [{"name": part.name, **part.settings()} for part in self.parts]}

    def arrays(self) -> dict[str, Array]:
        self._check()
        return {f"{i}.{name}": values for i, part in enumerate(self.parts) for name, values in part.arrays().items()}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        numbers = [str(i) for i in range(len(self.parts))]
        if others := [name for name in arrays if name.partition(".")[0] not in numbers]:
            raise UserError(
                f"arrays {others} belong to none of {len(numbers)} parts, expected names from '0.' to '{numbers[-1]}.'; "
                "restore a sum of the same parts as was saved"
            )
        for number, part in zip(numbers, self.parts, strict=True):
            restored(part, arrays, f"{number}.")
        self._learned = True
        return self

    def _check(self) -> None:
        if not self._learned:
            raise UserError("this sum of means has not learned yet; call fit(a, u) or restore(arrays) first")


def described(mean: Mean) -> str:
    """What a mean says of itself, without a full stop."""
    return mean.describe().rstrip(".")


def restored(mean: Mean, arrays: Mapping[str, Array], prefix: str) -> None:
    """Give a mean its arrays from those of a larger one."""
    try:
        mean.restore({name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)})
    except KeyError as error:
        raise UserError(
            f"array {error} of a {mean.name} mean is missing among those that begin with {prefix!r}; save it again"
        ) from None


def _name(part: object) -> str:
    return part.name if isinstance(part, Mean) else repr(part)


def _repeats(a: Array, scalars: Array | None) -> NDArray[np.intp] | None:
    """A number for each input, the same for equal ones; None if all differ."""
    numbers: dict[bytes, int] = {}
    labels = [numbers.setdefault(blake2b(row.tobytes()).digest(), len(numbers)) for row in inputs(a, scalars)]
    return None if len(numbers) == len(labels) else np.array(labels)
