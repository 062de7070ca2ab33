"""Baselines: deterministic operators behind the protocol of models. They are the same law with S = 0."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from torch import nn

from ..basis import Kind
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError, nearest
from ..learning.budget import Terms
from ..learning.network import OWN, normalise_of, plain
from ..learning.normalisation import Normalise
from ..learning.settings import Training
from ..mean.base import Mean
from ..mean.build import mean_of
from ..mean.network import Network
from ..residual.exact import Exact
from ..symmetry import Own
from .law import Law
from .missing import learn_observed
from .paper import FNO_TESTS
from .surrogate import Surrogate

__all__ = ["FNO", "Deterministic", "UNet"]


class NetworkRegression(Surrogate):
    """A network as a deterministic operator.

    Args:
        network: a name, a mapping of settings, or any module a ↦ u.
        normalise: of a and u, see `pdno.learning.normalisation`.
        training: settings of the loop.
        budget, symmetries, kind: see `pdno.model.surrogate.Surrogate`.
    """

    default: str  # network

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module | None = None,
        normalise: Normalise | Sequence[Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.network = self.default if network is None else network
        self.normalise, self.training = normalise_of(normalise), Training() if training is None else training
        super().__init__(budget, symmetries, kind)

    def learn_law(self, pairs: Pairs, held_out: Pairs | None, spaces: Spaces, terms: Terms) -> Law:
        mean = Network(self.network, self.symmetries, self.kind, self.normalise, self.training)
        mean.log_pairs = terms.log_pairs
        mean.learn(pairs, held_out, terms)
        net = mean.trained
        return Law(spaces, mean, Exact(), provenance={"updates": net.updates}, history=tuple(net.history))

    def settings(self) -> dict[str, Any]:
        return {
            "network": plain(self.network),
            "normalise": list(self.normalise),
            "training": asdict(self.training),
            "budget": self.budget,
            "symmetries": [each if isinstance(each, str) else OWN for each in self.symmetries],
            "kind": self.kind if isinstance(self.kind, str) else list(self.kind),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], law: Law) -> Self:
        (leaf,) = law.mean.leaves()
        network = leaf.networks[0].module if settings["network"] == OWN else settings["network"]
        new = cls(**{**settings, "network": network, "training": Training(**settings["training"])})
        new.law = law
        return new


class FNO(NetworkRegression):
    """The Fourier neural operator as a deterministic operator; arguments as in `NetworkRegression`.

    `network` may be a mapping {"kind": "fno", "modes": 16, "width": 64}.
    """

    name = "fno"
    default = "fno"

    @classmethod
    def paper(cls, test: str) -> "FNO":
        """Return the baseline of the paper for "darcy", "burgers" or "advection".

        Raises:
            UserError: if the paper has no FNO for this test.
        """
        if test not in FNO_TESTS:
            raise UserError(f"the paper has no FNO for the test {test!r}; {nearest(test, FNO_TESTS)}")
        return cls(**FNO_TESTS[test])


class UNet(NetworkRegression):
    """A slim UNet as a deterministic operator; arguments as in `NetworkRegression`."""

    name = "unet"
    default = "slim"


class Deterministic(Surrogate):
    """A mean alone, without any spread: for instance linear or kernel regression as a baseline.

    Args:
        mean: "linear", "kernel", settings of one, or a `pdno.mean.Mean`.
        budget, symmetries, kind: see `pdno.model.surrogate.Surrogate`.
    """

    name = "deterministic"
    named_after_mean = True

    def __init__(
        self,
        mean: str | Mapping[str, Any] | Mean = "linear",
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.mean_model = mean
        super().__init__(budget, symmetries, kind)

    def learn_law(self, pairs: Pairs, held_out: Pairs | None, spaces: Spaces, terms: Terms) -> Law:
        mean = mean_of(self.mean_model, symmetries=self.symmetries, kind=self.kind)
        if pairs.mask_varies and not mean.accepts_missing:
            learn_observed(mean, pairs, terms, tuple(kind == "periodic" for kind in spaces.kind))
        else:
            mean.learn(pairs, held_out, terms)
        return Law(spaces, mean, Exact())

    def settings(self) -> dict[str, Any]:
        return {
            "mean": plain(self.mean_model),
            "budget": self.budget,
            "symmetries": [each if isinstance(each, str) else OWN for each in self.symmetries],
            "kind": self.kind if isinstance(self.kind, str) else list(self.kind),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], law: Law) -> Self:
        new = cls(**{**settings, "mean": law.mean if settings["mean"] == OWN else settings["mean"]})
        new.law = law
        return new
