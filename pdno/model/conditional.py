r"""Conditional diffusion, the paper's Algorithm `alg:PDNO`, behind the protocol of models.

learning:    minimise L_DDSM over pairs (`eqn:DSM`); measure the denoising error e_n on pairs that were held out
sampling:    V_N ~ N(0, 𝒞), then V_{n−1} ~ N(m_θ(n, V_n, a), σ_n 𝒞) down to V_0, a draw of q_θ(· | a)
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.pairs import Pairs
from ..diffusion.base import White
from ..diffusion.chain import Diffusion
from ..diffusion.reverse import SAMPLERS, Rule, denoising_error, variance
from ..diffusion.schedule import Schedule, Spacing
from ..draw import generator
from ..errors import UserError, nearest
from ..learning.loop import Objective
from .surrogate import Surrogate

__all__ = ["AUTO_STEPS", "PART", "Conditional"]

Array = NDArray[Any]
AUTO_STEPS = 20  # with the analytic variance; see docs/models.md for what is lost
ERROR_VALUES = 32, 2**15  # pairs, or numbers, from which each e_n is measured
FEWEST_VALUES = 8, 2**11  # the same without time
PART = 32  # pairs that are denoised at once


class Conditional(Surrogate):
    """The law of what a network denoises given a: its loss, e_n, and its reverse chain.

    Args:
        network: as in `Surrogate`.
        diffusion: schedule, base law and target.
        variance, mix, steps, spacing, sampler, last_noise, t_start: of the reverse chain, see `pdno.PDNO`.
        more: see `pdno.model.surrogate.Surrogate`: normalise, training, budget, symmetries, kind.
    """

    timed = True

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module,
        diffusion: Diffusion,
        *,
        variance: Rule,
        mix: float,
        steps: int | Literal["auto"],
        spacing: Spacing,
        sampler: str,
        last_noise: bool,
        t_start: int,
        **more: Any,
    ) -> None:
        super().__init__(network, **more)
        self.diffusion = diffusion
        self.variance, self.mix, self.sampler, self.spacing = variance, mix, sampler, spacing
        self.steps = int(steps) if isinstance(steps, np.integer) else steps
        self.last_noise, self.t_start = last_noise, t_start
        self.error: Array | None = None  # e_n
        self.auto_steps: int | None = None  # what "auto" stands for, once that is known
        choices = (
            ("variance", variance, get_args(Rule)),
            ("sampler", sampler, SAMPLERS),
            ("spacing", spacing, get_args(Spacing)),
        )
        for what, value, known in choices:
            if value not in known:
                raise UserError(f"{what} {value!r} is unknown; {nearest(str(value), known)}")
        self._chain({})

    @property
    def gaussian(self) -> bool:
        """Whether draws of the base law are taken as they are, without a network."""
        return False

    def settings(self) -> dict[str, Any]:
        d = self.diffusion
        chain = {"gamma": d.schedule.gamma.tolist(), "base": d.law.to_json(), "target": d.target, "weight": d.weight}
        names = ("variance", "mix", "steps", "spacing", "sampler", "last_noise", "t_start")
        reverse = {name: getattr(self, name) for name in names}
        return {**super().settings(), "diffusion": chain, "reverse": reverse, "auto_steps": self.auto_steps}

    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        """L_DDSM with n ~ Unif{1 … N} and ε ~ N(0, 𝒞)."""
        drawn = self._draws(pairs, seed, purpose)
        return lambda network, rows, first, step: self.diffusion.loss(network, *drawn(rows, first, step))

    def _draws(self, pairs: Pairs, seed: int, purpose: str) -> Callable[..., tuple[Any, ...]]:
        """(rows, first, step) ↦ n, U_0, ε, a and mask; n and ε are functions of (seed, purpose, step, place in the batch)."""
        get, shape, law = self.rows(pairs, seed if purpose == "train" else None), self.fitted().u_shape, self.diffusion.law

        def drawn(rows: NDArray[np.int64], first: int, step: int) -> tuple[Any, ...]:
            a, u, mask = get(rows, first, step)
            draws = generator(seed, f"{purpose}/n", step).random(first + len(rows))[first:]
            n = 1 + torch.as_tensor(np.floor(draws * self.diffusion.schedule.n_steps), dtype=torch.long).to(u.device)
            return n, u, self.tensor(law.sample(shape, len(rows), seed, first, f"{purpose}/eps", step)), a, mask

        return drawn

    def measure(
        self,
        pairs: Pairs,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
        seconds: float | None = None,
    ) -> Array:
        """The denoising error e_n, n = 0 … N, on pairs that were not learned from; fewer of them if time is short."""
        shape, denoise = self.fitted().u_shape, self._denoiser()
        least, usual = (max(some, values // int(np.prod(shape))) for some, values in (FEWEST_VALUES, ERROR_VALUES))
        count = min(len(pairs), usual)
        if seconds is not None:
            a, u, _ = self.rows(pairs[:PART])(np.arange(min(PART, len(pairs))))
            denoise(1, u, a)  # the first one also sets things up
            begin = time.monotonic()
            denoise(1, u, a)
            each = (time.monotonic() - begin) * self.diffusion.schedule.n_steps / len(u)
            count = min(count, max(least, int(seconds / each)))
        a, u, mask = self.rows(pairs[:count])(np.arange(count))

        def in_parts(n: int, v: Tensor, a: Tensor) -> Tensor:
            return torch.cat([denoise(n, *part) for part in zip(torch.split(v, PART), torch.split(a, PART), strict=True)])

        def eps(n: int) -> Tensor:
            if progress is not None:
                progress(n, self.diffusion.schedule.n_steps)
            return self.tensor(self.diffusion.law.sample(shape, count, seed, 0, "error", n))

        return denoising_error(in_parts, self.diffusion, u, a, eps, mask)

    @torch.no_grad()
    def residuals(
        self, a: Array, scalars: Array | None, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]
    ) -> Array:
        """The inference stage of Algorithm `alg:PDNO`. `how` may name steps, sampler, variance and a callback (n, V_n)."""
        shape, law = self.fitted().u_shape, White() if self.gaussian else self.diffusion.law
        chain, var = self._chain(how)

        def noise(n: int) -> Tensor:
            """A draw of the base law for each row, a function of (seed, input, member, n)."""
            cuts = np.flatnonzero(np.diff(inputs) | (np.diff(members) != 1)) + 1
            runs = np.split(np.stack([inputs, members]), cuts, axis=1)
            draws = [law.sample(shape, r.shape[1], seed, (int(r[0, 0]) << 32) + int(r[1, 0]), "reverse", n) for r in runs]
            return self.tensor(np.concatenate(draws))

        sampler, start, callback = SAMPLERS[how.get("sampler", self.sampler)], noise(0), how.get("callback")
        if self.gaussian:
            return start.double().cpu().numpy()
        if callback is not None:
            callback(int(chain.n[-1]), start)
        v = sampler(
            self._denoiser(),
            start,
            self.condition(a, scalars),
            chain,
            var=var,
            noise=noise,
            last_noise=self.last_noise,
            callback=callback,
        )
        return (v / float(np.sqrt(chain.gamma[0]))).double().cpu().numpy()

    def evaluations(self, **how: Any) -> int:
        chain, _ = self._chain(how)
        if self.gaussian:
            return 0
        return 2 * chain.n_steps - 1 if how.get("sampler", self.sampler) == "heun" else chain.n_steps

    def _denoiser(self) -> Callable[[int, Tensor, Any], Tensor]:
        assert isinstance(self.network, nn.Module)
        return self.diffusion.denoiser(self.network)

    def _chain(self, how: Mapping[str, Any]) -> tuple[Schedule, Array]:
        """The steps of the reverse chain, and their σ_n."""
        unknown = set(how) - {"steps", "sampler", "variance", "callback"}
        if unknown:
            hint = nearest(min(unknown), ["steps", "sampler", "variance"])
            raise UserError(f"sampling has no setting {min(unknown)!r}; {hint}")
        if how.get("sampler", self.sampler) not in SAMPLERS:
            raise UserError(f"sampler {how['sampler']!r} is unknown; {nearest(str(how['sampler']), SAMPLERS)}")
        steps, rule = how.get("steps", self.steps), how.get("variance", self.variance)
        for what, number in (("steps", steps), ("t_start", self.t_start)):
            if number not in ("auto", None) and (isinstance(number, bool) or not isinstance(number, int | np.integer)):
                raise UserError(f"{what} = {number!r}: expected a whole number")
        if steps == "auto":
            longest = self.diffusion.schedule.n_steps - self.t_start
            steps = min(self.auto_steps or AUTO_STEPS, longest) if rule == "analytic" else None
        chain = self.diffusion.schedule.subchain(None if steps is None else int(steps), self.t_start, self.spacing)
        untrained = (self.frame is None or self.gaussian) and rule == "analytic"
        return chain, np.zeros(chain.n_steps + 1) if untrained else variance(rule, chain, self.error, self.mix)

    def _whole_chain(self, what: str) -> None:
        if self.t_start:
            raise UserError(f"{what} needs a chain down to step 0, but this model stops at t_start = {self.t_start}")
