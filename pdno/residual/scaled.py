r"""Residuals with a scale field: u − m(a) = s σ(x; a) q(g(x)), with g a correlated Gaussian field of unit variance.

σ is a network of a and m(a) that minimises the negative log-likelihood log σ + (u − m)²/(2σ²) at each node: errors may be
larger at some places, for some inputs, where u is large, or next to a jump of the input. q, g and s are those of a Gaussian
copula (`pdno.residual.copula`).
"""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._typing import Array
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..learning.budget import Terms
from ..learning.loop import Objective
from ..learning.network import NetworkOnPairs
from ..learning.settings import Rows as BatchRows
from ..learning.settings import Training
from ..work.state import State
from .condition import network_inputs, network_pairs
from .copula import Values
from .law import Inputs, ResidualLaw, Residuals, Rows, ignored_settings

__all__ = ["Scaled"]

LOWEST = 1e-3  # σ, in units of the root mean square of the residuals
HIGHEST = 30.0  # likewise
PATIENCE = 5  # validations without a lower loss, of twenty, after which training is shortened
UPDATES = 1000  # without a time limit
BLOCK_VALUES = 2**20  # values of fields that are evaluated at a time


class Scaled(ResidualLaw):
    """Residuals with a scale field σ(x; a), correlated, with any distribution of single values.

    Args:
        network: kind of the network, see `pdno.nn.build`; "auto": "small" in two dimensions, otherwise an FNO.
        training: settings of the loop; default: as many updates as the time allows.
    """

    name: ClassVar[str] = "scaled"
    trains_network: ClassVar[bool] = True

    def __init__(self, network: str = "auto", training: Training | None = None) -> None:
        self.network, self.training = network, training
        self._trained: tuple[Spaces, Values] | None = None

    @property
    def trained(self) -> tuple[Spaces, Values]:
        """Grids of a and u, and the distribution of (u − m)/σ.

        Raises:
            UserError: before training.
        """
        if self._trained is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._trained

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        spaces = residuals.spaces
        pairs = network_pairs(residuals, spaces)
        validation = None if held_out is None else network_pairs(held_out, spaces)
        inner = Spaces.of(pairs, kind=spaces.kind)
        kind = ("small" if len(inner.u_shape) == 3 else "fno") if self.network == "auto" else self.network
        net = NetworkOnPairs.build(kind, pairs, inner, terms)
        self.networks = (net,)
        net.train(_likelihood(net), pairs, validation, self._loop(terms, kind), terms, {"law": self.name})
        new = None if held_out is None else (held_out, self._sigma(held_out.inputs, spaces))
        self._trained = spaces, Values.of(residuals, self._sigma(residuals.inputs, spaces), new, terms.seed)
        return self

    def _loop(self, terms: Terms, kind: str) -> Training:
        if self.training is not None:
            return self.training
        rate, updates = 4e-3 if kind == "fno" else 2e-3, UPDATES if terms.left() is None else None
        return Training(None, updates, 16, "adamw", rate, weight_decay=1e-3, ema=0.998, validations=20, patience=PATIENCE)

    @torch.no_grad()
    def _sigma(self, inputs: Inputs, spaces: Spaces) -> Array:
        """Return σ: (sample, channel, *grid)."""
        (net,) = self.networks
        net.module.eval()
        fields, numbers = network_inputs(inputs, spaces)
        size, out = max(1, BLOCK_VALUES // fields[0].size), []
        for first in range(0, len(fields), size):
            scalars = None if numbers is None else numbers[first : first + size]
            log_sigma = _bounded(net.module(net.condition(fields[first : first + size], scalars)))
            out.append(log_sigma.double().cpu().numpy())
        return np.asarray(np.exp(np.concatenate(out)) * net.normalisations["u"].std)

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        spaces, values = self.trained
        sigma = inputs.once("scaled", lambda: self._sigma(inputs, spaces))
        return values.draw(sigma[rows.places], inputs, rows)

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return 0

    def describe(self) -> str:
        """Describe the law in a sentence."""
        values = self.trained[1].describe()
        (net,) = self.networks
        return (
            f"Residuals with a scale field from a network with {net.parameters:,} parameters, trained for {net.updates} steps; "
            f"{values}."
        )

    def state(self) -> State:
        spaces, values = self.trained
        return State(
            {"network": self.network}, {}, {"net": self.networks[0].state(), "spaces": spaces.state(), "values": values.state()}
        )

    @classmethod
    def from_state(cls, state: State) -> Self:
        new, parts = cls(**state.settings), state.parts
        new.networks = (NetworkOnPairs.from_state(parts["net"]),)
        new._trained = Spaces.from_state(parts["spaces"]), Values.from_state(parts["values"])
        return new


def _likelihood(net: NetworkOnPairs) -> Callable[[Pairs, str], Objective]:
    """Return the objective log σ + r²/(2σ²), averaged over observed nodes."""

    def objective(pairs: Pairs, purpose: str) -> Objective:
        get = net.rows(pairs)

        def loss(network: Any, rows: BatchRows, first: int, step: int) -> Tensor:
            a, r, mask = get(rows, first, step)
            log_sigma = _bounded(network(a))
            value = log_sigma + 0.5 * r.square() * torch.exp(-2 * log_sigma)
            return value.mean() if mask is None else (value * mask).sum() / mask.sum()

        return loss

    return objective


def _bounded(log_sigma: Tensor) -> Tensor:
    """Return log σ between the bounds."""
    return log_sigma.clamp(float(np.log(LOWEST)), float(np.log(HIGHEST)))
