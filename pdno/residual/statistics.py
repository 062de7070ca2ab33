r"""Statistics first: the few numbers that a whole residual field shares, then the field given them.

    (z, s) ~ p(z, s | a),        u − m(a) = D(a, m(a), z) + Σ_b exp(s_b) e_b

z = E(u − m(a), a, m(a)) are the K numbers from which a network D reconstructs residuals best (`pdno.nn.bottleneck`): the branch
of the solution, the place of a front, a parameter of the equation that is not in a, an offset of the whole field. s are the log
sizes of the smooth and of the rough part of the rest (`pdno.residual.bands`), and e the rest at unit sizes, drawn from another
residual law given a, m(a) + D, z and s. The joint distribution of z and s is a conditional mixture (`pdno.residual.mixture`).
This is the paper's cascade, coarse to fine, with a coarse part of a few numbers; a member takes one evaluation of D.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from .._typing import Array
from ..data.spaces import Spaces
from ..draw import generator
from ..errors import UserError
from ..evaluation.principal import principal, stride
from ..learning.budget import Terms
from ..learning.loop import Objective
from ..learning.network import NetworkOnPairs
from ..learning.normalisation import Normalisation
from ..learning.settings import Rows as BatchRows
from ..learning.settings import Training
from ..mean.base import pairs_of
from ..nn.bottleneck import COMPONENTS, Bottleneck, LinearBottleneck
from ..work.state import State
from .bands import COARSE, Bands, enlarged
from .compare import Difference
from .condition import Features, network_fields, network_pairs
from .copula import Copula
from .gaussian import Gaussian
from .law import Expectation, Inputs, ResidualLaw, Residuals, Rows, ignored_settings, named_state
from .mixture import ConditionalMixture
from .scaled import Scaled
from .sizes import root_mean_square

__all__ = ["Statistics"]

NETWORK_SHARE = 0.65  # of the time, for the network, and for encoding all pairs with it
LEAST_NETWORK_SHARE = 0.3  # of the time, for the network alone
PATIENCE = 5  # validations without a lower loss, of twenty, after which training is shortened
TIMED_PAIRS = 32  # that are encoded to learn how long it takes
MIXTURE_SHARE = 0.25  # of the time after that, for the mixture
MIXTURE_UPDATES = 3  # per update of the network, if their number is given
MIXTURE_SECONDS = 15.0  # at most for the mixture
BLOCK_VALUES = 2**20  # values of fields that are encoded at a time
MEAN_DRAWS = 512  # of z, for the mean
FEWEST_MEAN_DRAWS = 64  # for large fields
MEAN_VALUES = 2**20  # of fields that are averaged for the mean, unless there are fewer than that of the fewest draws
MOST_LATENTS = 4  # K, at most, if it is counted
LEAST_VARIANCE = 0.05  # share of the variance of a component that counts
LEAST_BEYOND = 0.02  # of the variance, that z explains beyond principal components; less is chance
SHARED_PAIRS = 100  # held-out pairs on which the share of z is measured
FEWEST_SHARED_PAIRS = 16  # of large fields
SHARED_DRAWS = 32  # of z for each of them
SHARED_VALUES = 2**20  # of all these draws, if there are more than the fewest pairs
REST_SECONDS = 3.0  # of the remaining time, below which no network is trained for the rest
REST_PAIRS = 100  # held-out pairs on which laws of the rest are compared
REST_MEMBERS = 20  # members of each
SMALLEST = 1e-9  # size of a band of a rest, in units of the root mean square of all
TINY = 1e-300


class Statistics(ResidualLaw, Expectation):
    """A few numbers that a whole field shares, and the field given them.

    Args:
        latents: K, number of shared numbers beside the sizes of the rest; "auto" takes the principal components that have more
            than a twentieth of the variance, one to four.
        rest: untrained law of the rest, which is copied; default: the best one of `Gaussian()`, `Copula()` and `Scaled()` on
            held-out pairs.
        network: kind of encoder and decoder; "auto": an FNO in one and three dimensions, a small UNet in two; "linear": the
            projection on principal components, which needs no training.
        training: settings of the loop; default: as many updates as the time allows.
    """

    name: ClassVar[str] = "statistics"
    trains_network: ClassVar[bool] = True
    call_values: ClassVar[int] = 2**17

    def __init__(
        self,
        latents: int | Literal["auto"] = 1,
        rest: ResidualLaw | None = None,
        network: str = "auto",
        training: Training | None = None,
    ) -> None:
        self.latents = 1 if latents == "auto" else latents
        self.count_latents, self.network, self.training = latents == "auto", network, training
        self.rest_candidates = (Gaussian(), Copula(), Scaled(training=training)) if rest is None else (deepcopy(rest),)
        self.rest: ResidualLaw = self.rest_candidates[0]
        self._spaces = Spaces((), (0,))
        self.unit = np.ones(1)  # size of the rest for each channel, (channel, 1, …)
        self.live = np.ones(1, bool)  # where residuals are not always 0, or missing, (channel, *grid)
        self._features = Features((), ())
        self.mixture = ConditionalMixture()

    # Training

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        self._check(residuals)
        self._spaces = residuals.spaces
        self._train(residuals, held_out, terms)
        self.live = np.asarray((residuals.values != 0).any(axis=0))
        z, raw = self._encoded(residuals)
        z_new, rest_new = (z, raw) if held_out is None else self._encoded(held_out)
        rest = np.where(self.live, enlarged(raw, rest_new, self.periodic), 0.0)  # rests of training pairs are in-sample
        self.unit = np.maximum(root_mean_square(rest)[0], TINY)
        size, size_new = self._sizes(rest), self._sizes(rest_new)
        self._features = Features.of(residuals.inputs)
        numbers = np.column_stack([z, np.log(size)])
        new = None if held_out is None else (self._features(held_out.inputs), np.column_stack([z_new, np.log(size_new)]))
        if self.training is not None and self.training.updates is not None:
            self.mixture = ConditionalMixture(MIXTURE_UPDATES * self.training.updates)
        seconds = terms.left_here(MIXTURE_SHARE)
        seconds = None if seconds is None else min(seconds, MIXTURE_SECONDS)
        self.mixture.learn(self._features(residuals.inputs), numbers, new, terms.seed, seconds)
        later = None if held_out is None else self._normalised(held_out, z_new, rest_new, rest_new, size_new)
        self._learn_rest(self._normalised(residuals, z, raw, rest, size), later, terms.below("rest"))
        if held_out is not None:
            few = int(np.clip(SHARED_VALUES // (SHARED_DRAWS * rest[0].size), FEWEST_SHARED_PAIRS, SHARED_PAIRS))
            self._measure_shares(held_out[:few], rest_new[:few])
        return self

    def _measure_shares(self, held_out: Residuals, rest: Array) -> None:
        """Measure the share of the variance about the mean of D that z explains, and what as many components would."""
        unit = np.maximum(root_mean_square(held_out.values, held_out.mask), TINY)
        about = np.where(self.live, held_out.values - self.expectation(held_out.inputs, draws=SHARED_DRAWS), 0.0) / unit
        total = max(float(np.mean(about**2)), TINY)
        self.explained = float(1 - np.mean((rest / unit) ** 2) / total)
        linear = float(principal(about, MOST_LATENTS)[1][: self.latents].sum())
        beyond = self.explained - linear
        self.shared = beyond / (1 - linear) if beyond > LEAST_BEYOND else 0.0

    def _learn_rest(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> None:
        """Train the candidates for the law of the rest; keep the best one."""
        self.rest = self.rest_candidates[0].learn(residuals, held_out, terms)
        if held_out is None:
            return
        for law in self.rest_candidates[1:]:
            if law.trains_network and (left := terms.left_here()) is not None and left < REST_SECONDS:
                continue
            law.learn(residuals, held_out, terms.below(law.name))
            scores = [each.score(held_out[:REST_PAIRS], REST_MEMBERS) for each in (self.rest, law)]
            if Difference.of(scores[0], scores[1], held_out.pairs.labels()).is_decisive:
                self.rest = law

    def _check(self, residuals: Residuals) -> None:
        mask = residuals.mask
        if mask is not None and (mask != mask[:1]).any():
            raise UserError("statistics of fields need outputs at the same nodes in all samples; use law='gaussian'")

    def _train(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> None:
        pairs = network_pairs(residuals, self._spaces, residuals.values)
        validation = None if held_out is None else network_pairs(held_out, self._spaces, held_out.values)
        spaces = Spaces.of(pairs, kind=self._spaces.kind)
        values = Normalisation.of(pairs.u, "scalar").normalise(pairs.u)
        of_r, variances = principal(values, COMPONENTS)
        if self.count_latents:
            self.latents = int(np.clip((variances > LEAST_VARIANCE).sum(), 1, MOST_LATENTS))
        net = NetworkOnPairs.build(self._module(spaces, terms.seed), pairs, spaces, terms)
        self.networks = (net,)
        some = np.arange(0, len(pairs), stride(pairs.a))
        conditions = net.rows(pairs)(some)[0][:, self.bottleneck.observed :].double().cpu().numpy()
        self.bottleneck.start(*(net.tensor(directions) for directions in (of_r, principal(conditions, COMPONENTS)[0])))
        if self.network == "linear":
            return
        training = self.training
        if training is None:
            cheap = self._kind(spaces) == "fno"  # a step of the UNet takes as long as its batch is large
            rate, batch = (4e-3, 32) if cheap else (2e-3, 16)
            training = Training(rate=rate, batch=batch, ema=0.998, validations=20, patience=PATIENCE)
        share = terms if (left := terms.left()) is None else terms.within(self._training_seconds(residuals, held_out, left))

        def objective(some: Any, purpose: str) -> Objective:
            get = net.rows(some)

            def loss(network: Any, rows: BatchRows, first: int, step: int) -> Tensor:
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

        settings = {"latents": self.latents, "kind": self._kind(spaces)}
        net.train(objective, pairs, validation, training, share, settings)

    def _training_seconds(self, residuals: Residuals, held_out: Residuals | None, left: float) -> float:
        """Return the time for training D: a share of what is left after all pairs will have been encoded once."""
        some, begin = residuals[:TIMED_PAIRS], time.monotonic()
        self._encoded(some)
        pace = (time.monotonic() - begin) / len(some)
        count = len(residuals) + (0 if held_out is None else len(held_out))
        return max(NETWORK_SHARE * left - count * pace, LEAST_NETWORK_SHARE * left)

    @property
    def net(self) -> NetworkOnPairs:
        """The trained network.

        Raises:
            UserError: before training.
        """
        if not self.networks:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self.networks[0]

    @property
    def bottleneck(self) -> Bottleneck | LinearBottleneck:
        """Encoder and decoder."""
        module: Bottleneck | LinearBottleneck = self.net.module  # type: ignore[assignment]
        return module

    def _kind(self, spaces: Spaces) -> str:
        return ("small" if len(spaces.u_shape) == 3 else "fno") if self.network == "auto" else self.network

    def _module(self, spaces: Spaces, seed: int) -> Bottleneck | LinearBottleneck:
        if self.network == "linear":
            return LinearBottleneck(spaces.u_shape[1:], spaces.channels, spaces.u_shape[0], self.latents)
        sizes = {"in_channels": spaces.channels + self.latents, "out_channels": spaces.u_shape[0], "latents": self.latents}
        return Bottleneck(spaces.u_shape[1:], **sizes, kind=self._kind(spaces), seed=seed, periodic=self.periodic)

    @torch.no_grad()
    def _encoded(self, residuals: Residuals) -> tuple[Array, Array]:
        """Return z and the rest of each pair, (sample, K) and (sample, channel, *grid)."""
        module, net = self.bottleneck, self.net
        module.eval()
        pairs = network_pairs(residuals, self._spaces, residuals.values)
        get, size = net.rows(pairs), max(1, BLOCK_VALUES // pairs.a[0].size)
        found, rests = [], []
        for first in range(0, len(pairs), size):
            rows = np.arange(first, min(first + size, len(pairs)))
            x = get(rows)[0]
            z = module.encode(x)
            found.append(z.double().cpu().numpy())
            rests.append(residuals.values[rows] - self._decoded(x[:, module.observed :], z))
        rest = np.concatenate(rests)
        return np.concatenate(found), np.where(self.live, rest, 0.0)

    def _decoded(self, condition: Tensor, z: Tensor) -> Array:
        """Return D in units of u."""
        values = self.bottleneck.decode(condition, z).double().cpu().numpy()
        if self.network != "linear":
            return np.asarray(self.net.normalisations["u"].restore(values))
        own, count = self.net.normalisations["a"], self.bottleneck.observed  # of r, as the encoder sees it
        return np.asarray(values * own.std[:count] + own.mean[:count])

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis is periodic."""
        return tuple(kind == "periodic" for kind in self._spaces.kind)

    @property
    def bands(self) -> Bands:
        """The smooth and the rough part of the rest."""
        return Bands(self._spaces.u_shape[1:], self.periodic, COARSE)

    def _sizes(self, rest: Array) -> Array:
        """Return the root mean square of each band of each field, with channels in units of `unit`: (sample, band)."""
        return np.maximum(self.bands.sizes(rest, self.unit), SMALLEST)

    def _normalised(self, residuals: Residuals, z: Array, raw: Array, rest: Array, size: Array) -> Residuals:
        """Return the rests at unit sizes, whose mean is m(a) + D and whose scalars include z and s.

        Args:
            residuals: u − m(a).
            z: shared numbers.
            raw: u − m(a) − D.
            rest: the same, enlarged.
            size: of the bands of `rest`.
        """
        e = np.where(self.live, self.bands.multiplied(rest, 1 / size[:, None]), 0.0)
        inputs = self._inner(residuals.inputs, residuals.inputs.mean + residuals.values - raw, z, size)
        pairs = pairs_of(inputs.a, inputs.mean + e, inputs.scalars, residuals.mask)
        return Residuals(pairs, e, (), residuals.periodic, inputs.mean)

    @staticmethod
    def _inner(inputs: Inputs, mean: Array, z: Array, size: Array) -> Inputs:
        numbers = [z, np.log(size)]
        return Inputs(inputs.a, mean, np.concatenate(numbers if inputs.scalars is None else [inputs.scalars, *numbers], axis=1))

    # Sampling

    @torch.no_grad()
    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        condition, mixture = inputs.once("statistics", lambda: self._prepared(inputs))
        numbers = mixture(rows.places, *_draws(rows, self.latents + self.bands.count))
        z, size = numbers[:, : self.latents], np.exp(numbers[:, self.latents :])
        places = torch.as_tensor(rows.places)
        field = self._decoded(condition[places], self.net.tensor(z))
        some = Inputs(inputs.a[rows.places], inputs.mean[rows.places], _taken(inputs.scalars, rows.places))
        inner = self._inner(some, some.mean + field, z, size)
        e = np.where(self.live, self.rest.draw(inner, replace(rows, places=np.arange(len(rows.places)))), 0.0)
        return np.where(self.live, field + self.bands.multiplied(e, (size / self._sizes(e))[:, None]), 0.0)

    @torch.no_grad()
    def expectation(self, inputs: Inputs, seed: int = 0, draws: int = MEAN_DRAWS) -> Array:
        """Return the mean of D over z: stratified draws of the component and antithetic draws within it."""
        condition, mixture = inputs.once("statistics", lambda: self._prepared(inputs))
        count = int(np.clip(MEAN_VALUES // inputs.mean[0].size, min(draws, FEWEST_MEAN_DRAWS), draws))
        stream, half = generator(seed, "statistics/mean", 0), count // 2
        uniform = (stream.permutation(half) + stream.random(half)) / half
        normal = stream.standard_normal((half, self.latents + self.bands.count))
        uniform, normal = np.tile(uniform, 2), np.concatenate([normal, -normal])
        out = np.empty(inputs.mean.shape)
        size = self.rows_of_call(inputs.mean.shape[1:])
        for place in range(len(inputs)):
            z = mixture(np.full(len(uniform), place), uniform, normal)[:, : self.latents]
            parts = [z[low : low + size] for low in range(0, len(z), size)]
            fields = (self._decoded(condition[[place] * len(part)], self.net.tensor(part)).sum(axis=0) for part in parts)
            out[place] = sum(fields) / len(z)
        return out

    def _prepared(self, inputs: Inputs) -> tuple[Tensor, Callable[[Array, Array, Array], Array]]:
        """Return the condition of D, and the mixture, for each input."""
        fields, net = network_fields(inputs, self._spaces), self.net
        zeros = np.zeros((len(inputs), self._spaces.u_shape[0], *fields.shape[2:]))
        condition = net.condition(np.concatenate([zeros, fields], axis=1), inputs.scalars)[:, self.bottleneck.observed :]
        return condition, self.mixture.prepare(self._features(inputs))

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return int(self.network != "linear") + max(self.rest.evaluations(**sampling), len(self.rest.networks))

    def describe(self) -> str:
        """Describe the law in a sentence."""
        numbers = f"{self.latents} number{'s' if self.latents > 1 else ''} that a whole field shares and the sizes of the rest"
        return (
            f"Statistics first: {numbers} from {self.mixture.describe()}, then the field from {self._decoder_in_words()}. "
            f"The rest: {self.rest.describe()}"
        )

    def _decoder_in_words(self) -> str:
        if self.network == "linear":
            return "principal components"
        return f"a network with {self.net.parameters:,} parameters, trained for {self.net.updates} steps"

    # Saving

    def state(self) -> State:
        settings = {"latents": self.latents, "network": self._kind(self.net.spaces)}
        parts = {"net": self.net.state(), "spaces": self._spaces.state(), "features": self._features.state()}
        parts |= {"mixture": self.mixture.state(), "rest": named_state(self.rest)}
        return State(settings, {"unit": self.unit, "live": self.live.astype(np.uint8)}, parts)

    @classmethod
    def from_state(cls, state: State, law: Callable[[State], ResidualLaw] | None = None) -> Self:
        """Restore what `state` returned.

        Args:
            state: settings, weights and mixture.
            law: restores the law of the rest, such as `pdno.residual.law_from_state`; default: for the laws that "auto" tries.
        """
        new = cls(**state.settings)
        new._spaces, new.unit = Spaces.from_state(state.parts["spaces"]), np.asarray(state.arrays["unit"])
        new.live = np.asarray(state.arrays["live"]) > 0
        saved = state.parts["net"]
        module = new._module(Spaces.from_state(saved.parts["spaces"]), 0)
        new.networks = (NetworkOnPairs.from_state(saved, False, module),)
        new._features = Features.from_state(state.parts["features"])
        new.mixture = ConditionalMixture.from_state(state.parts["mixture"])
        new.rest_candidates = (new.rest,) = ((law or _rest_from_state)(state.parts["rest"]),)
        return new


def _rest_from_state(state: State) -> ResidualLaw:
    settings = dict(state.settings)
    laws: tuple[type[ResidualLaw], ...] = (Gaussian, Copula, Scaled)
    law = {each.name: each for each in laws}[settings.pop("name")]
    return law.from_state(State(settings, state.arrays, state.parts))


def _draws(rows: Rows, size: int) -> tuple[Array, Array]:
    """Return a uniform number, (row,), and standard normal numbers, (row, size), as functions of (seed, input, member)."""
    uniform, normal = np.empty(len(rows.inputs)), np.empty((len(rows.inputs), size))
    for row, (i, m) in enumerate(zip(rows.inputs, rows.members, strict=True)):
        stream = generator(rows.seed, "statistics", int(i), int(m))
        uniform[row] = stream.random()
        stream.standard_normal(out=normal[row])
    return uniform, normal


def _taken(scalars: Array | None, places: Array) -> Array | None:
    return None if scalars is None else scalars[places]
