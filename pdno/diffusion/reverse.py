r"""The reverse chain V_N → V_0: its variances σ_n, its settings `Reverse`, and its variational bound.

    V_{n−1} = m_θ(n, V_n, a) + √σ_n ε_n                                                       (`eqn:reverse-transition`)

The samplers that run it are functions, see `pdno.diffusion.samplers`. The rules for σ_n, with β̃_n = β_n (1−γ_{n−1})/(1−γ_n):

    "noise-free"   β̃_n                              exact for a Dirac distribution (`thm:optimal-sigma`)
    "gaussian"     β_n                               exact for N(m, 𝒞)              (`thm:optimal-sigma`)
    "mixed"        (1−mix) β̃_n + mix β_n            the paper's linear combination
    "analytic"     β̃_n + (√((1−γ_n)/(1−β_n)) − √(1−γ_{n−1}−β̃_n))² e_n

Here e_n = E‖𝒞^(−1/2)(ε − ε_θ)‖²/d is the denoising error on held-out pairs. The analytic rule is exact in both cases above, and
for N(m, s²𝒞) with every s, on every sub-chain. It is that of Bao et al. (Analytic-DPM, 2022), who use 1 − E‖ε_θ‖²/d in place of
e_n: the two are equal for the exact ε, but 1 − E‖ε_θ‖²/d loses all digits for small s. With e_n, errors of the network widen
the spread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from .._typing import Floats
from ..errors import UserError, nearest
from .base import Base
from .chain import Denoiser, Diffusion
from .error import OwnError, denoising_error
from .samplers import (
    SAMPLERS,
    Callback,
    Noise,
    Sampler,
    ancestral,
    ddim,
    dpm,
    evaluations,
    evaluations_of,
    gamma_before,
    gaussian_exact,
    heun,
)
from .schedule import Schedule, Spacing

__all__ = [
    "AUTO_STEPS",
    "SAMPLERS",
    "Reverse",
    "Rule",
    "Sampler",
    "ancestral",
    "ddim",
    "denoising_error",
    "dpm",
    "evaluations",
    "gaussian_exact",
    "heun",
    "nvlb",
    "variance",
]

Rule = Literal["noise-free", "gaussian", "mixed", "analytic"]
OWN = "own"  # stands in files for a function of the user
AUTO_STEPS = 20  # steps="auto" with the analytic variance: docs/models.md has the loss of accuracy
PER_CALL = ("steps", "sampler", "variance")  # settings that one call of `sample` or `predict` may change


def variance(rule: Rule, chain: Schedule, error: Floats | None = None, mix: float = 0.5) -> Floats:
    """Return σ_n of each step of a chain, (steps + 1,) or, with e_n by place, (steps + 1, channel, *grid); entry 0 is 0.

    Args:
        rule: see the table of the module.
        chain: the full chain or a sub-chain.
        error: e_n by the number n of the full chain for "analytic", (N + 1,), or (N + 1, channel, *grid) by place; see
            `pdno.diffusion.error`.
        mix: weight of "gaussian" in "mixed", from 0 to 1.

    Raises:
        UserError: if the rule is unknown, or lacks e_n or a valid weight.
    """
    if rule not in get_args(Rule):
        raise UserError(f"variance {rule!r} is unknown; {nearest(str(rule), get_args(Rule))}")
    beta, gamma, before = chain.beta, chain.gamma, gamma_before(chain)
    noise_free = np.divide(beta * (1 - before), 1 - gamma, out=np.zeros_like(gamma), where=gamma < 1)
    if rule == "noise-free":
        return noise_free
    if rule == "gaussian":
        return beta
    if rule == "mixed":
        _check_mix(mix)
        return (1 - mix) * noise_free + mix * beta
    if error is None:
        raise UserError('the variance "analytic" needs the denoising error e_n; fit a model with variance="analytic"')
    gain = np.sqrt((1 - gamma) * before / gamma) - np.sqrt(np.maximum(1 - before - noise_free, 0))  # 1 − β_n may round to 0
    gain[0] = 0.0
    measured = np.asarray(error)[chain.n]
    shape = (-1,) + (1,) * (measured.ndim - 1)
    return np.asarray(noise_free.reshape(shape) + gain.reshape(shape) ** 2 * measured)


def _check_mix(mix: Any) -> None:
    if isinstance(mix, bool) or not isinstance(mix, int | float | np.integer | np.floating) or not 0 <= mix <= 1:
        raise UserError(f"mix = {mix!r}: expected a weight from 0 (noise-free) to 1 (gaussian)")


@dataclass(frozen=True)
class Reverse:
    """The settings of the reverse chain.

    Args:
        variance: rule for σ_n, see the table of the module.
        mix: weight of "gaussian" in the rule "mixed", from 0 to 1.
        steps: number of sampling steps; None for all steps of the schedule. "auto" takes `AUTO_STEPS`, or the number that a
            model has selected, with the rule "analytic", and all steps with the other rules.
        spacing: of these steps, "even", "quadratic" or "error", see `Schedule.subchain`.
        sampler: "ancestral", "ddim", "dpm", "gaussian-exact", "heun", or a function with the arguments of `Sampler`.
        last_noise: whether the last step of the ancestral chain adds noise.
        t_start: step at which the reverse chain ends, for noise-free data (`remark:noise-free-OL`).

    Raises:
        UserError: if a setting is wrong for every schedule; `check` compares the settings with one schedule.

    >>> reverse, schedule = Reverse(sampler="heun"), Schedule.cosine(100)
    >>> reverse.n_steps(schedule), reverse.evaluations(schedule)
    (20, 39)
    >>> reverse.override(steps=5, sampler="dpm").evaluations(schedule)
    5
    """

    variance: Rule = "analytic"
    mix: float = 0.5
    steps: int | Literal["auto"] | None = "auto"
    spacing: Spacing = "even"
    sampler: str | Sampler = "ancestral"
    last_noise: bool = True
    t_start: int = 0

    def __post_init__(self) -> None:
        names = [name for name, sampler in SAMPLERS.items() if sampler is self.sampler]
        self._set("sampler", names[0] if names else self.sampler)
        if not callable(self.sampler):
            self._check_choice("sampler", SAMPLERS)
        self._check_choice("variance", get_args(Rule))
        self._check_choice("spacing", get_args(Spacing))
        _check_mix(self.mix)
        self._set("mix", float(self.mix))
        if self.steps is not None and self.steps != "auto":
            self._set("steps", _whole("steps", self.steps))
        self._set("t_start", _whole("t_start", self.t_start))
        if not isinstance(self.last_noise, bool | np.bool_):
            raise UserError(f"last_noise = {self.last_noise!r}: expected True or False")
        self._set("last_noise", bool(self.last_noise))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_choice(self, name: str, choices: Any) -> None:
        value = getattr(self, name)
        if not isinstance(value, str) or value not in choices:
            raise UserError(f"{name} {value!r} is unknown; {nearest(str(value), choices)}")

    def override(self, **settings: Any) -> "Reverse":
        """Return the settings for one call of `sample` or `predict`, with other steps, sampler or variance.

        Raises:
            UserError: if a setting is wrong, or cannot be changed in a call.
        """
        unknown = sorted(set(settings) - set(PER_CALL))
        if unknown:
            raise UserError(f"sampling has no setting {unknown[0]!r}; {nearest(unknown[0], PER_CALL)}")
        return replace(self, **settings)

    def check(self, schedule: Schedule) -> None:
        """Raise UserError unless steps and t_start fit this schedule."""
        self._subchain(schedule, AUTO_STEPS)

    def chain(self, schedule: Schedule, error: Floats | None = None, auto_steps: int = AUTO_STEPS) -> tuple[Schedule, Floats]:
        """Return the sampling steps and their variances.

        Args:
            schedule: the full chain.
            error: e_n, (N + 1,) or by place, for the rule "analytic" and the spacing "error"; see `denoising_error`.
            auto_steps: number of steps that "auto" stands for with the rule "analytic", at most that of the schedule.

        Returns:
            The sub-chain and σ_n, (steps + 1,).

        Raises:
            UserError: if the settings do not fit the schedule, or if the rule "analytic" lacks e_n.
        """
        chain = self._subchain(schedule, auto_steps, error)
        return chain, variance(self.variance, chain, error, self.mix)

    def n_steps(self, schedule: Schedule, auto_steps: int = AUTO_STEPS) -> int:
        """Return the number of sampling steps."""
        return self._subchain(schedule, auto_steps).n_steps

    def require_whole_chain(self, method: str) -> None:
        """Check that the chain ends at step 0.

        Args:
            method: name of the method that needs it, for the message.

        Raises:
            UserError: if it ends at t_start > 0.
        """
        if self.t_start:
            raise UserError(
                f"{method} needs a chain down to step 0, but this model ends at t_start = {self.t_start}; use t_start=0"
            )

    def evaluations(self, schedule: Schedule, auto_steps: int = AUTO_STEPS) -> int:
        """Return the number of network evaluations per ensemble member."""
        return evaluations_of(self._sampler, self.n_steps(schedule, auto_steps))

    def sample(
        self,
        denoise: Denoiser,
        start: Tensor,
        a: Any,
        chain: Schedule,
        var: Floats,
        noise: Noise,
        callback: Callback | None = None,
        own: OwnError | None = None,
    ) -> Tensor:
        """Run the sampler from V_N = start; other arguments as in `Sampler`, chain and var as returned by `chain`.

        The callback is not called with V_N itself. `own`, errors by field, is used by "gaussian-exact" alone.
        """
        settings: dict[str, Any] = {"var": var, "noise": noise, "last_noise": self.last_noise, "callback": callback}
        if self.sampler == "gaussian-exact" and self.variance == "analytic":
            settings["own"] = own
        return self._sampler(denoise, start, a, chain, **settings)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain types; a function of the user as sampler is called "own"."""
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        return settings if isinstance(self.sampler, str) else {**settings, "sampler": OWN}

    @classmethod
    def from_json(cls, settings: Mapping[str, Any], sampler: Sampler | None = None) -> "Reverse":
        """Return the settings that `to_json` describes; those left out have their default.

        Args:
            settings: plain types.
            sampler: the function, if the sampler is one of the user.

        Raises:
            UserError: if a setting is unknown or wrong, or the function is missing.
        """
        if settings.get("sampler") == OWN:
            if sampler is None:
                raise UserError("the sampler is a function of your own, which is not saved; pass it: pdno.load(…, sampler=…)")
            settings = {**settings, "sampler": sampler}
        names = [field.name for field in fields(cls)]
        unknown = sorted(set(settings) - set(names))
        if unknown:
            raise UserError(f"the reverse chain has no setting {unknown[0]!r}; {nearest(unknown[0], names)}")
        return cls(**settings)

    @property
    def _sampler(self) -> Sampler:
        return SAMPLERS[self.sampler] if isinstance(self.sampler, str) else self.sampler

    def _subchain(self, schedule: Schedule, auto_steps: int, error: Floats | None = None) -> Schedule:
        """Return the sub-chain; without e_n, that of the spacing "error" has the right number of steps alone."""
        steps, spacing = self.steps, "even" if self.spacing == "error" and error is None else self.spacing
        if steps == "auto":
            steps = min(auto_steps, schedule.n_steps - self.t_start) if self.variance == "analytic" else None
        return schedule.subchain(steps, self.t_start, spacing, error)


def _whole(name: str, value: Any) -> int:
    """Return a whole number, Python's or NumPy's, as int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        alternative = ', or "auto"' if name == "steps" else ""
        raise UserError(f"{name} = {value!r}: expected a whole number{alternative}")
    return int(value)


@torch.no_grad()
def nvlb(
    denoise: Denoiser, diffusion: Diffusion, chain: Schedule, var: Floats, u0: Tensor, a: Any, eps: Callable[[int], Tensor]
) -> float:
    """Return the negative variational lower bound (appendix `app:NVLB`) in nats per sample.

    It is an upper bound of −log q_θ(u₀ | a): L_N + Σ_n L_{n−1} + L_0 with the σ_n of the chain. It is infinite where a σ_n is
    zero, as in the noise-free rule at n = 1.

    Args:
        denoise: (n, v, a) ↦ E[U_0 | U_n = v].
        diffusion: forward chain, of which the base distribution is used.
        chain: the chain or a sub-chain.
        var: σ_n of this chain, (steps + 1,).
        u0: clean fields, (batch, channel, *grid).
        a: their condition, passed to `denoise`.
        eps: n ↦ a draw of ε in the shape of u0.
    """
    d = u0[0].numel()
    gamma, before, base = chain.gamma, gamma_before(chain), diffusion.law
    if not (var[1:] > 0).all():
        return float("inf")
    squares = np.mean(_squared_norms(base, u0))
    total = 0.5 * (gamma[-1] * squares + d * (-gamma[-1] - np.log1p(-gamma[-1])))  # L_N
    target = variance("noise-free", chain)
    for k in range(1, chain.n_steps + 1):
        n = int(chain.n[k])
        v = float(np.sqrt(gamma[k])) * u0 + float(np.sqrt(1 - gamma[k])) * eps(n)
        difference = float(np.sqrt(before[k]) * chain.beta[k] / (1 - gamma[k])) * (u0 - denoise(n, v, a))
        total += 0.5 * np.mean(_squared_norms(base, difference)) / var[k]
        if k > 1:  # L_{n−1}: a Kullback–Leibler divergence of two Gaussians
            total += 0.5 * d * (target[k] / var[k] - 1 - np.log(target[k] / var[k]))
        else:  # L_0: −log of a Gaussian density
            total += 0.5 * (d * np.log(2 * np.pi * var[1]) + base.log_det(tuple(u0.shape[1:])))
    return float(total)


def _squared_norms(base: Base, u: Tensor) -> Floats:
    """Return ‖𝒞^(−1/2) u‖² of each sample, (batch,)."""
    white = base.inverse_sqrt(u.double().cpu().numpy(), u.ndim - 2)
    return np.asarray((white**2).reshape(len(u), -1).sum(axis=1))
