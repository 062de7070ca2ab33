r"""Residuals from a conditional diffusion: the paper's Algorithm `alg:PDNO`.

    u − m(a) = t(a) S L C^½ r,        r ~ q_θ(· | a)

training:    minimise L_DDSM over pairs (a, r) (`eqn:DSM`); measure the denoising error e_n on held-out pairs
sampling:    V_N ~ N(0, 𝒞), then V_{n−1} ~ N(m_θ(n, V_n, a), σ_n 𝒞) down to V_0 = r

With the target "v" and r of unit variance, a network that predicts 0 is exact for Gaussian residuals: the network learns only
what is not Gaussian. With a constant mean, and the normalisation of u as S, this is the paper's model.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from .._typing import Array
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..diffusion.base import FieldBase
from ..diffusion.chain import Denoiser, Diffusion
from ..diffusion.error import DenoisingError, OwnError
from ..diffusion.error import measure as measure_error
from ..diffusion.reverse import AUTO_STEPS, Reverse, nvlb
from ..draw import generator
from ..errors import UserError
from ..learning.budget import Terms
from ..learning.loop import Objective
from ..learning.network import NetworkOnPairs, normalise_of
from ..learning.normalisation import Normalise
from ..learning.settings import Rows as BatchRows
from ..learning.settings import Training
from ..mean.base import pairs_of
from ..nn.base import GridNetwork
from ..work.progress import progress_bar
from ..work.state import State
from .condition import network_inputs
from .gaussian import Gaussian
from .law import AnyGridLaw, Density, Expectation, Inputs, ResidualLaw, Residuals, Rows, Tunable, normals
from .logged import members_to_log
from .spread import Spread
from .steps import STEP_PAIRS, fewest_steps

__all__ = ["RECIPE", "Diffused"]

ERROR_PAIRS = 32  # smallest number of held-out pairs from which each e_n is measured
ERROR_VALUES = 2**15  # smallest number of their values: more pairs if fields are small
FEWEST_PAIRS = 8  # ERROR_PAIRS if time is short
FEWEST_VALUES = 2**11  # ERROR_VALUES if time is short
BLOCK = 32  # pairs that are denoised at once
GAUSSIAN_EXACT = "gaussian-exact"  # sampler that uses errors by place and by field, and the mean of V_N
RECIPE = Training(batch=128, rate=2e-3, weight_decay=1e-3, ema=0.995)  # many cheap updates, for the small network of "auto"
ENTROPY = 0.5 * math.log(2 * math.pi * math.e)  # of N(0, 1)
MEASURING = 0.3  # share of the remaining time for e_n


class Diffused(ResidualLaw, AnyGridLaw, Density, Expectation, Tunable):
    """A conditional diffusion of residuals.

    Args:
        network: "auto", a name, a mapping of settings, or any module (n, v, a) ↦ prediction of the target.
        diffusion: schedule, base distribution and target; default: cosine, white, "v".
        reverse: settings of the reverse chain.
        spread: S and t; default: estimated as for a Gaussian law.
        normalise: of the network's input a.
        training: settings of the loop.
        search_steps: whether steps="auto" stands for the fewest steps that held-out pairs allow, or for AUTO_STEPS.
        given_mean: whether the network takes m(a) beside a.
    """

    name: ClassVar[str] = "diffusion"
    trains_network: ClassVar[bool] = True
    has_own_size: ClassVar[bool] = True
    call_rows: ClassVar[int] = 64

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "auto",
        diffusion: Diffusion | None = None,
        reverse: Reverse | None = None,
        *,
        spread: Spread | None = None,
        normalise: Normalise = "scalar",
        training: Training | None = None,
        search_steps: bool = True,
        given_mean: bool = False,
    ) -> None:
        self.network, self.normalise, self.search_steps, self.given_mean = network, normalise, search_steps, given_mean
        self.diffusion = Diffusion(target="v") if diffusion is None else diffusion
        self.reverse = Reverse() if reverse is None else reverse
        self.training = training or (RECIPE if network == "auto" else Training())
        self.reverse.check(self.diffusion.schedule)
        self.error: Array | None = None  # e_n, if it is needed
        self.place: Array | None = None  # e_n by place, (N + 1, channel, *grid), if places are not alike
        self.own: OwnError | None = None  # e_n by field, if fields are not alike
        self.auto_steps = AUTO_STEPS
        self.tuned_later = False
        self.notes: list[str] = []
        self.log_by: Residuals | None = None  # on which the error is logged in place of held-out residuals
        self._spread = spread

    @property
    def net(self) -> NetworkOnPairs:
        """The trained network.

        Raises:
            UserError: before training.
        """
        if not self.networks:
            raise UserError("this diffusion has not been trained; call learn(residuals, held_out, terms) first")
        return self.networks[0]

    @property
    def spread(self) -> Spread:
        """S and t.

        Raises:
            UserError: before training, if they were not given.
        """
        if self._spread is None:
            raise UserError("this diffusion has not been trained; call learn(residuals, held_out, terms) first")
        return self._spread

    # Training

    def with_spread(self, spread: Spread) -> Self:
        """Use S and t of another law; return the law itself."""
        self._spread = spread
        return self

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        return self.train(residuals, held_out, terms).measure(held_out, terms)

    def train(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        """Train the network on normalised residuals."""
        if self._spread is None:
            self._spread = Gaussian().learn(residuals, held_out, terms).spread
        self.std = self.spread.std if self.spread.is_homoscedastic else None
        pairs = self.normalised(residuals, terms.seed, "train")
        validation = None if held_out is None else self.normalised(held_out, terms.seed, "validation")
        elements = () if self.given_mean else tuple(g.linear for g in residuals.elements)
        spaces, normalise = Spaces.of(pairs, kind=residuals.spaces.kind), normalise_of((self.normalise, "none"))
        settings: dict[str, Any] = {"normalise": normalise, "elements": elements, "time": True}
        net = NetworkOnPairs.build(self.network, pairs, spaces, terms, **settings)
        self.networks = (net,)
        self.call_values = getattr(self.net.module, "call_values", GridNetwork.call_values)

        def objective(some: Pairs, purpose: str) -> Objective:
            drawn = self._draws(net, some, terms.seed, purpose)
            return lambda network, rows, first, step: self.diffusion.loss(network, *drawn(rows, first, step))

        logged, own = members_to_log(self, held_out, terms.seed), {"diffusion": self.diffusion.to_json()}
        net.train(objective, pairs, validation, self.training, terms, own, logged)
        return self

    def measure(self, held_out: Residuals | None, terms: Terms) -> Self:
        """Measure e_n on held-out residuals if the reverse variance needs it, and select the number of sampling steps."""
        if self.reverse.variance != "analytic" or held_out is None:
            return self
        pairs = self.normalised(held_out, terms.seed, "validation")
        with progress_bar("measuring the denoising error", "steps") if terms.progress else nullcontext() as bar:
            measured = self.denoising_error(pairs, terms.seed, bar, terms.left_here(MEASURING))
        self.error, self.place, self.own = measured.mean, measured.place, measured.own
        if not self.tuned_later:
            self.tune(held_out, terms)
        return self

    def tune(self, held_out: Residuals, terms: Terms) -> str:
        """Select the number of sampling steps."""
        if self.search_steps and self.reverse.steps == "auto" and self.reverse.variance == "analytic":
            pairs = self.normalised(held_out, terms.seed, "validation")
            self.auto_steps = self._fewest_steps(held_out, pairs, terms)
        return " ".join(self.notes)

    def before_tuning(self) -> Self:
        """Leave the selection of sampling steps to a later call of `tune`; return the law itself."""
        self.tuned_later = True
        return self

    def normalised(self, residuals: Residuals, seed: int, purpose: str) -> Pairs:
        """Return pairs (a, r)."""
        r, complete = self.spread.normalised(residuals, seed, purpose), not self.spread.scale.independent
        if not self.given_mean:
            return residuals.pairs.with_outputs(r, complete)
        mask = None if complete else residuals.mask
        fields, scalars = network_inputs(residuals.inputs, residuals.spaces)
        return pairs_of(fields, r, scalars, mask)

    def _condition(self, inputs: Inputs) -> Tensor:
        """Return what the network is conditioned on: (sample, channel, *grid)."""
        net = self.net
        if not self.given_mean:
            return net.condition(inputs.a, inputs.scalars)
        a = pairs_of(inputs.a, inputs.mean)
        return net.condition(*network_inputs(inputs, Spaces.of(a, kind=net.spaces.kind)))

    def _draws(self, net: NetworkOnPairs, pairs: Pairs, seed: int, purpose: str) -> Callable[..., tuple[Any, ...]]:
        """Return the function (rows, first, step) ↦ n, U_0, ε, a and mask.

        n ~ Unif{t_start + 1 … N}, as the reverse chain takes no other steps, and ε ~ N(0, 𝒞) are functions of (seed, purpose,
        step, place in the batch).
        """
        get = net.rows(pairs, seed if purpose == "train" else None)
        shape, law, first_n = net.spaces.u_shape, self.diffusion.law, 1 + self.reverse.t_start
        count = self.diffusion.schedule.n_steps - self.reverse.t_start

        def drawn(rows: BatchRows, first: int, step: int) -> tuple[Any, ...]:
            a, u, mask = get(rows, first, step)
            uniform = generator(seed, f"{purpose}/n", step).random(first + len(rows))[first:]
            n = first_n + torch.as_tensor(np.floor(uniform * count), dtype=torch.long).to(u.device)
            return n, u, net.tensor(law.sample(shape, len(rows), seed, first, f"{purpose}/eps", step)), a, mask

        return drawn

    def denoising_error(
        self,
        pairs: Pairs,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        seconds: float | None = None,
    ) -> DenoisingError:
        """Return the denoising error e_n, n = 0 … N, on average, by place and by field.

        Args:
            pairs: held-out pairs (a, r); fewer of them are used if time is short.
            seed: of the noise.
            progress: called with (n, N).
            seconds: that it may take.
        """
        net, denoise = self.net, self._denoiser()
        shape, steps = net.spaces.u_shape, self.diffusion.schedule.n_steps
        size = int(np.prod(shape))
        count = min(len(pairs), max(ERROR_PAIRS, ERROR_VALUES // size))
        if seconds is not None:
            a, u, _ = net.rows(pairs[:BLOCK])(np.arange(min(BLOCK, len(pairs))))
            denoise(1, u, a)  # the first one includes set-up
            begin = time.monotonic()
            denoise(1, u, a)
            each = (time.monotonic() - begin) * steps / len(u)
            count = min(count, max(FEWEST_PAIRS, FEWEST_VALUES // size, int(seconds / each)))
        a, u, mask = net.rows(pairs[:count])(np.arange(count))

        def in_blocks(n: int, v: Tensor, a: Tensor) -> Tensor:
            return torch.cat([denoise(n, *part) for part in zip(torch.split(v, BLOCK), torch.split(a, BLOCK), strict=True)])

        def eps(n: int) -> Tensor:
            if progress is not None:
                progress(n, steps)
            return net.tensor(self.diffusion.law.sample(shape, count, seed, 0, "error", n))

        return measure_error(in_blocks, self.diffusion, u, a, eps, mask)

    def _fewest_steps(self, held_out: Residuals, pairs: Pairs, terms: Terms) -> int:
        """Return the fewest sampling steps that suffice on held-out pairs."""
        count, inputs = min(len(pairs), STEP_PAIRS), held_out.inputs
        numbers, mask = np.arange(count), None if pairs.mask is None else pairs.mask[:count]

        def drawn(member: int, steps: int) -> Array:
            rows = Rows(terms.seed, numbers, np.full(count, member), numbers)
            return self._draw_normalised(inputs, rows, steps=steps)

        longest = self.diffusion.schedule.n_steps - self.reverse.t_start
        steps, note = fewest_steps(drawn, pairs.u[:count], mask, longest, terms)
        self.notes.append(note)
        return steps

    # Sampling

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        return self.spread.restored(self._draw_normalised(inputs, rows, **sampling), inputs, rows.places)

    @torch.no_grad()
    def _draw_normalised(self, inputs: Inputs, rows: Rows, **sampling: Any) -> Array:
        """Draw r by the inference stage of Algorithm `alg:PDNO`: (row, channel, *grid).

        `sampling` may override steps, sampler and variance, and name a callback (n, V_n).
        """
        callback, net = sampling.pop("callback", None), self.net
        net.module.eval()
        reverse = self.reverse.override(**sampling)
        chain, var = reverse.chain(self.diffusion.schedule, self._error_for(reverse), self.auto_steps)
        shape, base = inputs.mean.shape[1:], self.diffusion.law.nested(net.spaces.u_shape[1:])

        def noise(n: int) -> Tensor:
            return net.tensor(normals(base, shape, rows, n))

        places = torch.as_tensor(rows.places)
        condition = inputs.once("condition", lambda: self._condition(inputs))[places]
        start = noise(0)
        if reverse.sampler == GAUSSIAN_EXACT:
            start = start + inputs.once("start", lambda: self._start(inputs))[places]
        if callback is not None:
            callback(int(chain.n[-1]), start)
        v = reverse.sample(self._denoiser(), start, condition, chain, var, noise, callback, self.own)
        return (v / float(np.sqrt(chain.gamma[0]))).double().cpu().numpy()

    def _error_for(self, reverse: Reverse) -> Array | None:
        """Return e_n, by place for the sampler that uses it."""
        return self.error if self.place is None or reverse.sampler != GAUSSIAN_EXACT else self.place

    def _start(self, inputs: Inputs) -> Tensor:
        """Return the mean √γ_N E[r | a] of V_N for each input, from one evaluation: (sample, channel, *grid)."""
        n, shape = self.diffusion.schedule.n_steps, inputs.mean.shape[1:]
        condition, denoise = inputs.once("condition", lambda: self._condition(inputs)), self._denoiser()
        parts = [denoise(n, part.new_zeros(len(part), *shape), part) for part in torch.split(condition, BLOCK)]
        return float(np.sqrt(self.diffusion.schedule.gamma[n])) * torch.cat(parts)

    def expectation(self, inputs: Inputs, seed: int = 0) -> Array:
        """Return the mean by one evaluation, as U_N is independent of U_0: not good if the target is divided by √γ_N."""
        self.reverse.require_whole_chain("mean")
        count, size = len(inputs), self.rows_of_call(inputs.mean.shape[1:])
        calls = [np.minimum(np.arange(first, first + size), count - 1) for first in range(0, count, size)]
        rows = [Rows(seed, some, np.zeros(size, int), some) for some in calls]
        return np.concatenate([self.draw(inputs, each, steps=1, sampler="ddim") for each in rows])[:count]

    def evaluations(self, **sampling: Any) -> int:
        sampling.pop("callback", None)
        return self.reverse.override(**sampling).evaluations(self.diffusion.schedule, self.auto_steps)

    def _denoiser(self) -> Denoiser:
        return self.diffusion.denoiser(self.net.module)

    def negative_log_density(self, residuals: Residuals, seed: int = 0) -> float:
        """Return the negative variational lower bound (appendix `app:NVLB`), in nats per pair, without the null space of S."""
        self.reverse.require_whole_chain("nvlb")
        net = self.net
        chain, var = self.reverse.chain(self.diffusion.schedule, self.error, self.auto_steps)
        r = net.tensor(self.spread.normalised(residuals, seed, "nvlb"))  # with noise in the null space, as in training

        def eps(n: int) -> Tensor:
            return net.tensor(self.diffusion.law.sample(net.spaces.u_shape, len(r), seed, 0, "nvlb", n))

        bound = nvlb(self._denoiser(), self.diffusion, chain, var, r, self._condition(residuals.inputs), eps)
        return bound + self.spread.log_volume(residuals) - (r[0].numel() - self.spread.scale.rank(r.shape[1:])) * ENTROPY

    @property
    def any_grid(self) -> bool:
        """Whether members are functions: with a trace-class base distribution, one scale, and a network that is an operator."""
        functions = isinstance(self.diffusion.law, FieldBase) and self.reverse.sampler != GAUSSIAN_EXACT
        return functions and self.net.any_grid and self.spread.any_grid

    # Saving

    def describe(self) -> str:
        """Describe the network and its training in a sentence."""
        net = self.net
        settings = net.settings
        kind = settings["kind"] if isinstance(settings, Mapping) else "own"
        return (
            f"A diffusion with a network of kind {kind!r}, {net.parameters:,} parameters, trained for {net.updates} steps; "
            f"residual scale: {self.spread.describe()}."
        )

    def state(self) -> State:
        settings = {"diffusion": self.diffusion.to_json(), "reverse": self.reverse.to_json(), "auto_steps": self.auto_steps}
        settings |= {"normalise": self.normalise, "training": asdict(self.training), "search_steps": self.search_steps}
        settings |= {"given_mean": self.given_mean}
        measured = {"error": self.error, "place": self.place, "own": None if self.own is None else self.own.array}
        arrays = {name: values for name, values in measured.items() if values is not None}
        return State(settings, arrays, {"spread": self.spread.state(), "network": self.net.state()})

    @classmethod
    def from_state(cls, state: State, network: nn.Module | None = None, sampler: Any = None) -> Self:
        """Restore what `state` returned.

        Args:
            state: settings, weights, S and t.
            network: the module for the weights of a network of your own.
            sampler: the function, if the sampler is one of your own.
        """
        settings, saved = state.settings, state.parts["network"]
        new = cls(
            saved.settings["network"] if network is None else network,
            Diffusion.from_json(settings["diffusion"]),
            Reverse.from_json(settings["reverse"], sampler),
            spread=Spread.from_state(state.parts["spread"]),
            normalise=settings["normalise"],
            training=Training(**settings["training"]),
            search_steps=settings["search_steps"],
            given_mean=settings["given_mean"],
        )
        new.auto_steps, new.error = int(settings["auto_steps"]), state.arrays.get("error")
        new.place, own = state.arrays.get("place"), state.arrays.get("own")
        new.own = None if own is None else OwnError(*own)
        if new.reverse.variance == "analytic" and new.error is None:
            raise UserError("the denoising error of the diffusion is missing; save the model again")
        new.networks = (NetworkOnPairs.from_state(saved, True, network),)
        new.call_values = getattr(new.net.module, "call_values", GridNetwork.call_values)
        new.std = new.spread.std if new.spread.is_homoscedastic else None
        return new
