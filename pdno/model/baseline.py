"""Rivals behind the protocol of the model: deterministic operators, whose members are all the same."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..basis import Kind
from ..data.pairs import Pairs
from ..errors import UserError, nearest
from ..mean import Kernel, Mean, mean_of
from ..mean.regression import Regression
from ..symmetry import Own
from .paper import FNO_TESTS
from .surrogate import Surrogate, Terms, chosen

__all__ = ["FNO", "Plain", "UNet"]

Array = NDArray[Any]


class FNO(Regression):
    """The Fourier neural operator as a regression.

    Args:
        network: "fno", a mapping {"kind": "fno", "modes": 16, "width": 64}, or any module a ↦ u.
        more: see `pdno.model.surrogate.Surrogate`: normalise, training, budget, symmetries, kind.
    """

    name = "fno"

    def __init__(self, network: str | Mapping[str, Any] | nn.Module = "fno", *args: Any, **more: Any) -> None:
        super().__init__(network, *args, **more)

    @classmethod
    def paper(cls, test: str) -> "FNO":
        """The baseline of the paper for "darcy", "burgers" or "advection"."""
        if test not in FNO_TESTS:
            raise UserError(f"the paper compares FNO on other tests than {test!r}; {nearest(test, FNO_TESTS)}")
        return cls(**FNO_TESTS[test])


class UNet(Regression):
    """A slim UNet as a regression; arguments as in `FNO`."""

    name = "unet"

    def __init__(self, network: str | Mapping[str, Any] | nn.Module = "slim", *args: Any, **more: Any) -> None:
        super().__init__(network, *args, **more)


class Plain(Surrogate):
    """A mean operator alone, without any spread: linear or kernel regression as a rival.

    Args:
        mean: "linear", "kernel", settings of one, or a `pdno.mean.Mean`.
        budget, symmetries, kind: see `pdno.model.surrogate.Surrogate`.
    """

    name = "plain"
    timed = False
    deterministic = True

    def __init__(
        self,
        mean: str | Mapping[str, Any] | Mean = "linear",
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        super().__init__("zero", "none", budget=budget, symmetries=symmetries, kind=kind)
        self.asked_mean = mean
        self.mean_operator: Mean | None = None

    @property
    def label(self) -> str:
        return self.name if self.mean_operator is None else self.mean_operator.name

    def _describe(self, pairs: Pairs, channel: bool) -> None:
        self.mean_operator = None  # of an earlier fit
        super()._describe(pairs, channel)

    def prepare(self, pairs: Pairs, validation: Pairs | None, terms: Terms) -> tuple[Pairs, Pairs | None]:
        if pairs.mask is not None and not pairs.mask.all():
            raise UserError(f"{self.asked_mean!r} regression needs outputs without holes; learn with a network instead")
        self.mean_operator = mean_of(self.asked_mean, symmetries=self.symmetries, kind=self.kind)
        if isinstance(self.mean_operator, Kernel) and not isinstance(self.asked_mean, Mean):
            self.mean_operator.budget = terms.left()
        self.mean_operator.fit(pairs.a, pairs.u, pairs.scalars, terms.seed)
        return pairs, validation

    def centre(self, a: Array, scalars: Array | None) -> tuple[Array, Array]:
        assert self.mean_operator is not None
        return self.mean_operator(a, scalars), np.zeros(len(a))

    def draw(self, a: Array, scalars: Array | None, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Array:
        if how:
            raise UserError(f"a deterministic operator has no setting {min(how)!r}; leave it out")
        return np.zeros((len(a), *self.fitted().u_shape))

    def evaluations(self, **how: Any) -> int:
        return 0

    def to(self, device: str) -> Self:
        if self.mean_operator is not None:
            self.mean_operator.to(device)
        return super().to(device)

    @property
    def parameters(self) -> int:
        assert self.mean_operator is not None
        return self.mean_operator.parameters

    def settings(self) -> dict[str, Any]:
        mean = "unknown" if self.mean_operator is None else {"name": self.mean_operator.name, **self.mean_operator.settings()}
        return {**super().settings(), "mean": mean}

    def arrays(self) -> dict[str, Array]:
        assert self.mean_operator is not None
        return {f"mean.{name}": values for name, values in self.mean_operator.arrays().items()}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        found = {name[5:]: values for name, values in arrays.items() if name.startswith("mean.")}
        self.mean_operator = mean_of(self.asked_mean).restore(found)
        return self

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Plain":
        """The model that `settings` describes, without what it learned."""
        return cls(settings["mean"], **{k: v for k, v in chosen(settings).items() if k != "normalise"})
