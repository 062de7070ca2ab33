r"""An autoencoder of residual fields: z = E(u − m(a), a, m(a)), and the field D(a, m(a), z) that it stands for.

E and D are trained together so that D reconstructs residuals from K numbers (`pdno.nn.bottleneck`). Then residuals of held-out
pairs are regressed on D in bands of wavenumbers (`pdno.evaluation.bands`): what is left of them is uncorrelated with D.
"""

import time
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._typing import Array
from ..basis import waves_of
from ..data.spaces import Spaces
from ..draw import generator
from ..errors import UserError
from ..evaluation.bands import Regression
from ..evaluation.principal import principal, stride
from ..learning.budget import Terms
from ..learning.loop import Objective
from ..learning.network import NEEDS_GRID, NetworkOnPairs
from ..learning.normalisation import Normalisation
from ..learning.settings import Rows, Training
from ..nn.bottleneck import COMPONENTS, Bottleneck, LinearBottleneck
from ..work.state import State
from .condition import network_inputs, network_pairs
from .law import Inputs, Residuals

__all__ = ["LINEAR", "MOST_LATENTS", "Autoencoder"]

LINEAR = "linear"  # E and D are the projection on principal components
MOST_LATENTS = 4  # K, at most, if it is counted
LEAST_VARIANCE = 0.05  # share of the variance of a component that counts
NETWORK_SHARE = 0.65  # of the time, for the network, and for encoding all pairs with it
LEAST_NETWORK_SHARE = 0.3  # of the time, for the network alone
PATIENCE = 5  # validations without a lower loss, of twenty, after which training is shortened
TIMED_PAIRS = 32  # that are encoded to learn how long it takes
BLOCK_VALUES = 2**20  # values of fields that are encoded at a time


class Autoencoder:
    """E and D, trained on residuals.

    Args:
        net: the network with its normalisation.
        spaces: of the pairs.
        latents: K.
        network: kind of D.
        regression: of residuals on D; None for none.
    """

    def __init__(
        self, net: NetworkOnPairs, spaces: Spaces, latents: int, network: str, regression: Regression | None = None
    ) -> None:
        self.net, self.spaces, self.latents, self.network, self.regression = net, spaces, latents, network, regression

    @classmethod
    def learn(
        cls,
        residuals: Residuals,
        held_out: Residuals | None,
        terms: Terms,
        latents: int | None,
        network: str,
        training: Training | None,
    ) -> Self:
        """Train E and D.

        Args:
            residuals: u − m(a).
            held_out: those of held-out pairs.
            terms: seed, folder, devices and deadline.
            latents: K; None counts the principal components that have more than a twentieth of the variance, one to four.
            network: kind of D, "auto", or "linear", which is not trained.
            training: settings of the loop; None for the default ones.
        """
        spaces = residuals.spaces
        pairs = network_pairs(residuals, spaces, residuals.values)
        of_r, variances = principal(Normalisation.of(pairs.u, "scalar").normalise(pairs.u), COMPONENTS)
        if latents is None:
            latents = int(np.clip((variances > LEAST_VARIANCE).sum(), 1, MOST_LATENTS))
        inner = Spaces.of(pairs, kind=spaces.kind)
        kind = ("small" if len(inner.u_shape) == 3 else "fno") if network == "auto" else network
        net = NetworkOnPairs.build(_module(inner, latents, kind, terms.seed), pairs, inner, terms)
        new = cls(net, spaces, latents, kind)
        some = np.arange(0, len(pairs), stride(pairs.a))
        conditions = net.rows(pairs)(some)[0][:, new.bottleneck.observed :].double().cpu().numpy()
        new.bottleneck.start(*(net.tensor(directions) for directions in (of_r, principal(conditions, COMPONENTS)[0])))
        if kind != LINEAR:
            new._train(residuals, held_out, terms, training)
        if held_out is not None and held_out.mask is None:
            rest = new.encoded(held_out)[1]
            new.regression = Regression.of(held_out.values, held_out.values - rest, waves_of(inner.kind))
        return new

    def _train(self, residuals: Residuals, held_out: Residuals | None, terms: Terms, training: Training | None) -> None:
        net, cheap = self.net, self.network == "fno"  # a step of a UNet takes as long as its batch is large
        if training is None:
            rate, batch = (4e-3, 32) if cheap else (2e-3, 16)
            training = Training(rate=rate, batch=batch, ema=0.998, validations=20, patience=PATIENCE)
        pairs = network_pairs(residuals, self.spaces, residuals.values)
        validation = None if held_out is None else network_pairs(held_out, self.spaces, held_out.values)
        share = terms if (left := terms.left()) is None else terms.within(self._seconds(residuals, held_out, left))

        def objective(some: Any, purpose: str) -> Objective:
            get = net.rows(some)

            def loss(network: Any, rows: Rows, first: int, step: int) -> Tensor:
                a, r, mask = get(rows, first, step)
                eta = net.tensor(
                    generator(terms.seed, f"{purpose}/jitter", first, step).standard_normal((len(rows), self.latents))
                )
                constant = eta.reshape(*eta.shape, *(1,) * (a.ndim - 2)).expand(*eta.shape, *a.shape[2:])
                error = network(torch.cat([a, constant], 1)) - r
                error = error if mask is None else error * mask
                sizes: Tensor = error.flatten(1).square().mean(1).add(1e-8).sqrt()
                return sizes.mean()

            return loss

        net.train(objective, pairs, validation, training, share, {"latents": self.latents, "kind": self.network})

    def _seconds(self, residuals: Residuals, held_out: Residuals | None, left: float) -> float:
        """Return the time for training: a share of what is left after all pairs will have been encoded once."""
        some, begin = residuals[:TIMED_PAIRS], time.monotonic()
        self.encoded(some)
        pace = (time.monotonic() - begin) / len(some)
        count = len(residuals) + (0 if held_out is None else 2 * len(held_out))
        return max(NETWORK_SHARE * left - count * pace, LEAST_NETWORK_SHARE * left)

    @property
    def bottleneck(self) -> Bottleneck | LinearBottleneck:
        """The module."""
        module: Bottleneck | LinearBottleneck = self.net.module  # type: ignore[assignment]
        return module

    @torch.no_grad()
    def encoded(self, residuals: Residuals) -> tuple[Array, Array]:
        """Return z and what D leaves of each residual, (sample, K) and (sample, channel, *grid)."""
        module, net = self.bottleneck, self.net
        module.eval()
        pairs = network_pairs(residuals, self.spaces, residuals.values)
        get, size = net.rows(pairs), max(1, BLOCK_VALUES // pairs.a[0].size)
        found, rests = [], []
        for first in range(0, len(pairs), size):
            rows = np.arange(first, min(first + size, len(pairs)))
            x = get(rows)[0]
            z = module.encode(x)
            found.append(z.double().cpu().numpy())
            rests.append(residuals.values[rows] - self.decoded(x[:, module.observed :], z))
        return np.concatenate(found), np.concatenate(rests)

    def condition(self, inputs: Inputs) -> Tensor:
        """Return the condition of D for each input."""
        fields, scalars = network_inputs(inputs, self.spaces)
        zeros = np.zeros((len(inputs), self.spaces.u_shape[0], *fields.shape[2:]))
        return self.net.condition(np.concatenate([zeros, fields], axis=1), scalars)[:, self.bottleneck.observed :]

    @torch.no_grad()
    def decoded(self, condition: Tensor, z: Tensor) -> Array:
        """Return D in units of u, given the conditions of the rows of z, (row, K)."""
        values = self.bottleneck.decode(condition, z).double().cpu().numpy()
        if self.network == LINEAR:
            own, count = self.net.normalisations["a"], self.bottleneck.observed  # of r, as the encoder sees it
            values = values * own.std[:count] + own.mean[:count]
        else:
            values = self.net.normalisations["u"].restore(values)
        return np.asarray(values if self.regression is None else self.regression(values))

    def describe(self) -> str:
        """Describe D in a few words."""
        if self.network == LINEAR:
            return "principal components"
        return f"a network with {self.net.parameters:,} parameters, trained for {self.net.updates} steps"

    def state(self) -> State:
        """Return weights and regression, to be saved."""
        parts = {"net": self.net.state(), "spaces": self.spaces.state()}
        if self.regression is not None:
            parts["regression"] = self.regression.state()
        return State({"latents": self.latents, "network": self.network}, {}, parts)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        saved, latents, kind = state.parts["net"], state.settings["latents"], state.settings["network"]
        module = _module(Spaces.from_state(saved.parts["spaces"]), latents, kind, 0)
        net = NetworkOnPairs.from_state(saved, False, module)
        regression = Regression.from_state(state.parts["regression"]) if "regression" in state.parts else None
        return cls(net, Spaces.from_state(state.parts["spaces"]), latents, kind, regression)


def _module(spaces: Spaces, latents: int, kind: str, seed: int) -> Bottleneck | LinearBottleneck:
    if kind == LINEAR:
        return LinearBottleneck(spaces.u_shape[1:], spaces.channels, spaces.u_shape[0], latents)
    if "node" in spaces.kind:
        raise UserError(NEEDS_GRID)
    sizes = {"in_channels": spaces.channels + latents, "out_channels": spaces.u_shape[0], "latents": latents}
    return Bottleneck(spaces.u_shape[1:], **sizes, kind=kind, seed=seed, periodic=tuple(map(bool, waves_of(spaces.kind))))
