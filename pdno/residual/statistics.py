r"""Statistics first: the few numbers that a whole residual field shares, then the field given them.

    (z, s) ~ p(z, s | a),        u − m(a) = D(a, m(a), z) + Σ_b exp(s_b) e_b

z = E(u − m(a), a, m(a)) are the K numbers from which D reconstructs residuals best (`pdno.residual.autoencoder`): the branch of
the solution, the place of a front, a parameter of the equation that is not in a, an offset of the whole field. s are the log
sizes of the rest in bands of wavelengths (`pdno.evaluation.bands`), and e the rest at unit sizes, drawn from another residual
law given a, m(a) + D, z and s. The joint distribution of z and s is a conditional mixture (`pdno.residual.mixture`).
This is the paper's cascade, coarse to fine, with a coarse part of a few numbers; a member takes one evaluation of D.

If outputs saturate, as on both sides of a front, all of this is about their normal scores (`pdno.residual.normalscores`).
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from .._typing import Array
from ..basis import waves_of
from ..data.spaces import Spaces
from ..draw import generator, streams
from ..errors import UserError
from ..evaluation.bands import COARSE, Bands, matched
from ..evaluation.principal import principal
from ..learning.budget import Terms
from ..learning.settings import Training
from ..mean.base import pairs_of
from ..work.state import State
from .alignment import Alignment
from .autoencoder import LINEAR, MOST_LATENTS, Autoencoder
from .compare import Difference
from .condition import Features
from .copula import Copula
from .gaussian import Gaussian
from .law import Expectation, Inputs, ResidualLaw, Residuals, Rows, ignored_settings, named_state
from .mixture import ConditionalMixture
from .normalscores import NormalScores
from .scaled import Scaled
from .sizes import root_mean_square

__all__ = ["Statistics"]

MIXTURE_SHARE = 0.25  # of the time after the training of D, for the mixture
MIXTURE_UPDATES = 3  # per update of the network, if their number is given
MIXTURE_SECONDS = 15.0  # at most for the mixture
MEAN_DRAWS = 512  # of z, for the mean
FEWEST_MEAN_DRAWS = 64  # for large fields
MEAN_VALUES = 2**20  # of fields that are averaged for the mean, unless there are fewer than that of the fewest draws
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
    has_own_size: ClassVar[bool] = True

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
        self._autoencoder: Autoencoder | None = None
        self.unit = np.ones(1)  # size of the rest for each channel, (channel, 1, …)
        self.live = np.ones(1, bool)  # where residuals are not always 0, or missing, (channel, *grid)
        self._features = Features((), ())
        self.mixture = ConditionalMixture()
        self.alignment: Alignment | None = None  # of the rest with m(a) + D
        self.normal: NormalScores | None = None  # in place of u, if outputs saturate

    # Training

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        self._check(residuals)
        if self.network != LINEAR:
            self.normal = NormalScores.if_saturated(residuals.pairs.filled, residuals.mask)
        if self.normal is not None:
            residuals = self.normal.residuals(residuals)
            held_out = None if held_out is None else self.normal.residuals(held_out)
        self._spaces = residuals.spaces
        latents = None if self.count_latents else self.latents
        self.live = np.asarray((residuals.values != 0).any(axis=0))
        auto = self._autoencoder = Autoencoder.learn(residuals, held_out, terms, latents, self.network, self.training)
        self.latents, self.networks = auto.latents, (auto.net,)
        z, raw = self._encoded(residuals)
        z_new, rest_new = (z, raw) if held_out is None else self._encoded(held_out)
        rest = np.where(
            self.live, matched(raw, rest_new, z, z_new, self.periodic), 0.0
        )  # rests of training pairs are in-sample
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
        self.evidence = None if new is None else self.mixture.over_gaussian(*new, self.latents)
        later = None if held_out is None else self._normalised(held_out, z_new, rest_new, rest_new, size_new)
        self._learn_rest(self._normalised(residuals, z, raw, rest, size), later, terms.below("rest"))
        if later is not None:
            self.alignment = Alignment.of(rest_new, later.inputs.mean, self.periodic)
        if held_out is not None:
            few = int(np.clip(SHARED_VALUES // (SHARED_DRAWS * rest[0].size), FEWEST_SHARED_PAIRS, SHARED_PAIRS))
            self._measure_shares(held_out[:few], rest_new[:few])
        return self

    def _measure_shares(self, held_out: Residuals, rest: Array) -> None:
        """Measure the share of the variance of u about its mean that z explains, and what as many components would.

        Args:
            held_out: residuals of u, or of its normal scores.
            rest: what D leaves of them.
        """
        output = (lambda y: y) if self.normal is None else self.normal.restored
        y = held_out.inputs.mean + held_out.values
        u, known = output(y), output(y - rest)
        about = np.where(self.live, u - self._average(held_out.inputs, 0, SHARED_DRAWS, output), 0.0)
        unit = np.maximum(root_mean_square(about, held_out.mask), TINY)
        total = max(float(np.mean((about / unit) ** 2)), TINY)
        self.explained = float(1 - np.mean((np.where(self.live, u - known, 0.0) / unit) ** 2) / total)
        linear = float(principal(about / unit, MOST_LATENTS)[1][: self.latents].sum())
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
        if residuals.pairs.mask_varies:
            raise UserError("statistics of fields need outputs at the same nodes in all samples; use law='gaussian'")

    @property
    def autoencoder(self) -> Autoencoder:
        """E and D.

        Raises:
            UserError: before training.
        """
        if self._autoencoder is None:
            raise UserError("this law has not been trained; call learn(residuals, held_out, terms) first")
        return self._autoencoder

    def _encoded(self, residuals: Residuals) -> tuple[Array, Array]:
        """Return z and the rest of each pair, which is 0 where residuals are."""
        z, rest = self.autoencoder.encoded(residuals)
        return z, np.where(self.live, rest, 0.0)

    @property
    def periodic(self) -> tuple[bool | None, ...]:
        """Whether each axis is periodic."""
        return waves_of(self._spaces.kind)

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

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        ignored_settings(sampling)
        if self.normal is None:
            return self._draw(inputs, rows)
        inner = self.normal.inputs(inputs)
        u = self.normal.restored(inner.mean[rows.places] + self._draw(inner, rows))
        return np.where(self.live, u - inputs.mean[rows.places], 0.0)

    def _draw(self, inputs: Inputs, rows: Rows) -> Array:
        """Draw residuals of u, or of its normal scores."""
        condition, mixture = inputs.once("statistics", lambda: self._prepared(inputs))
        numbers = mixture(rows.places, *_draws(rows, self.latents + self.bands.count))
        z, size = numbers[:, : self.latents], np.exp(numbers[:, self.latents :])
        some = Inputs(inputs.a[rows.places], inputs.mean[rows.places], _taken(inputs.scalars, rows.places))
        field = self._decoded(condition[torch.as_tensor(rows.places)], z)
        inner = self._inner(some, some.mean + field, z, size)
        e = np.where(self.live, self.rest.draw(inner, replace(rows, places=np.arange(len(rows.places)))), 0.0)
        e = self.bands.multiplied(e, (size / self._sizes(e))[:, None])
        return np.where(self.live, field + (e if self.alignment is None else self.alignment(e, inner.mean)), 0.0)

    def expectation(self, inputs: Inputs, seed: int = 0) -> Array:
        """Return the mean of D over z, without the rest."""
        if self.normal is None:
            return self._average(inputs, seed, MEAN_DRAWS) - inputs.mean
        mean = self._average(self.normal.inputs(inputs), seed, MEAN_DRAWS, self.normal.restored)
        return np.where(self.live, mean - inputs.mean, 0.0)

    def _average(
        self, inputs: Inputs, seed: int, draws: int, output: Callable[[Array], Array] = lambda values: values
    ) -> Array:
        """Return the mean of output(m(a) + D) over z: stratified draws of the component and antithetic draws within it."""
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
            mean = inputs.mean[place]
            fields = (output(mean + self._decoded(condition[[place] * len(part)], part)).sum(axis=0) for part in parts)
            out[place] = sum(fields) / len(z)
        return out

    def _prepared(self, inputs: Inputs) -> tuple[Tensor, Callable[[Array, Array, Array], Array]]:
        """Return the condition of D, and the mixture, for each input."""
        return self.autoencoder.condition(inputs), self.mixture.prepare(self._features(inputs))

    def _decoded(self, condition: Tensor, z: Array) -> Array:
        return self.autoencoder.decoded(condition, self.autoencoder.net.tensor(z))

    def evaluations(self, **sampling: Any) -> int:
        ignored_settings(sampling)
        return int(self.network != LINEAR) + max(self.rest.evaluations(**sampling), len(self.rest.networks))

    def describe(self) -> str:
        """Describe the law in a sentence."""
        numbers = f"{self.latents} number{'s' if self.latents > 1 else ''} that a whole field shares and the sizes of the rest"
        return (
            f"Statistics first: {numbers} from {self.mixture.describe()}, then the field from {self.autoencoder.describe()}. "
            f"The rest: {self.rest.describe()}"
        )

    # Saving

    def state(self) -> State:
        settings = {"latents": self.latents, "network": self.autoencoder.network}
        parts = {"autoencoder": self.autoencoder.state(), "spaces": self._spaces.state(), "features": self._features.state()}
        parts |= {"mixture": self.mixture.state(), "rest": named_state(self.rest)}
        parts |= {} if self.alignment is None else {"alignment": self.alignment.state()}
        parts |= {} if self.normal is None else {"normal": self.normal.state()}
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
        new._autoencoder = Autoencoder.from_state(state.parts["autoencoder"])
        new.networks = (new.autoencoder.net,)
        new._features = Features.from_state(state.parts["features"])
        new.mixture = ConditionalMixture.from_state(state.parts["mixture"])
        new.alignment = Alignment.from_state(state.parts["alignment"]) if "alignment" in state.parts else None
        new.normal = NormalScores.from_state(state.parts["normal"]) if "normal" in state.parts else None
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
    for row, stream in enumerate(streams(rows.seed, "statistics", rows.inputs, rows.members)):
        uniform[row] = stream.random()
        stream.standard_normal(out=normal[row])
    return uniform, normal


def _taken(scalars: Array | None, places: Array) -> Array | None:
    return None if scalars is None else scalars[places]
