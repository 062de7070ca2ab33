r"""PDNO, the probabilistic diffusion neural operator: the law of u given a by conditional diffusion (Algorithm `alg:PDNO`).

fit:      minimise L_DDSM over the pairs (`eqn:DSM`), then measure the denoising error e_n on pairs that were held out
sample:   V_N ~ N(0, 𝒞), then V_{n−1} ~ N(m_θ(n, V_n, a), σ_n 𝒞) down to V_0, a draw of q_θ(· | a)
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .base import White, from_json
from .dataset import Pairs
from .diffusion import Diffusion
from .draw import generator
from .errors import UserError, nearest
from .progress import progress_bar
from .reverse import SAMPLERS, Rule, denoising_error, nvlb, variance
from .scaling import Normalise
from .schedule import Schedule, Spacing
from .surrogate import Surrogate, normalise_of
from .train import Objective, Training

__all__ = ["PDNO"]

Array = NDArray[Any]
AUTO_STEPS = 20  # with the analytic variance; see docs/models.md for what is lost
ERROR_VALUES = 2**15  # numbers from which each e_n is measured
PART = 32  # pairs that are denoised at once


class PDNO(Surrogate):
    """Learns the law of u given a from pairs, noisy or not, and draws from it.

    Args:
        network: "auto" (a slim UNet), "unet", "fno", a mapping {"kind": "unet", "base": 32}, or any module (n, v, a) ↦ answer.
        diffusion: schedule, base law and target; cosine, white and u₀ if left out.
        variance: rule for σ_n, see `pdno.reverse`.
        mix: weight of "gaussian" in the rule "mixed".
        steps: of the reverse chain; "auto" takes 20 with the analytic variance, else all.
        spacing: of these steps, "even" or "quadratic", see `Schedule.subchain`.
        sampler: "ancestral", "ddim", "dpm" or "heun".
        last_noise: whether the last step of the ancestral chain gets noise.
        t_start: step at which the reverse chain ends, for noise-free data (`remark:noise-free-OL`).
        normalise: "none", "scalar" or "pointwise", or one for a and one for u.
        training: settings of the training loop.
        budget: seconds that training may take.

    >>> import pdno
    >>> data = pdno.generate(pdno.equation.Elliptic1D(points=32), train=64, noise=pdno.noise.Gaussian(0.05))
    >>> model = pdno.PDNO(network={"kind": "unet", "base": 8}, training=pdno.Training(updates=3))
    >>> pred = model.fit(data.train.a, data.train.u, seed=0).predict(data.train.a[:2], members=4)
    >>> pred.mean.shape, pred.quantile(0.95).shape
    ((2, 1, 32), (2, 1, 32))
    """

    name = "pdno"
    timed = True

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "auto",
        diffusion: Diffusion | None = None,
        *,
        variance: Rule = "analytic",
        mix: float = 0.5,
        steps: int | Literal["auto"] = "auto",
        spacing: Spacing = "even",
        sampler: str = "ancestral",
        last_noise: bool = True,
        t_start: int = 0,
        normalise: Normalise | tuple[Normalise, Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
    ) -> None:
        super().__init__(network, normalise, training, budget)
        self.diffusion = Diffusion() if diffusion is None else diffusion
        self.variance, self.mix, self.sampler, self.spacing = variance, mix, sampler, spacing
        self.steps = int(steps) if isinstance(steps, np.integer) else steps
        self.last_noise, self.t_start = last_noise, t_start
        self.error: Array | None = None
        choices = (
            ("variance", variance, get_args(Rule)),
            ("sampler", sampler, SAMPLERS),
            ("spacing", spacing, get_args(Spacing)),
        )
        for what, value, known in choices:
            if value not in known:
                raise UserError(f"{what} {value!r} is unknown; {nearest(str(value), known)}")
        self._chain({})

    @classmethod
    def paper(cls, test: str, noisy: bool = False) -> "PDNO":
        """The model of the paper for one of its tests, with the settings of Tables A1–A4 and the theorem's σ_n.

        "elliptic1d" (always noisy in the paper), "darcy", "burgers" (always noise-free), "advection". Training it takes
        hours on a GPU; `PDNO()` is the model for an ordinary machine.
        """
        if test not in PAPER:
            raise UserError(f"the paper has no test {test!r}; {nearest(test, PAPER)}")
        return cls(**PAPER[test](noisy))

    def settings(self) -> dict[str, Any]:
        d = self.diffusion
        chain = {"gamma": d.schedule.gamma.tolist(), "base": d.law.to_json(), "target": d.target, "weight": d.weight}
        names = ("variance", "mix", "steps", "spacing", "sampler", "last_noise", "t_start")
        return {**super().settings(), "diffusion": chain, "reverse": {name: getattr(self, name) for name in names}}

    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        """L_DDSM with n ~ Unif{1 … N} and ε ~ N(0, 𝒞), both functions of (seed, purpose, step, place in the batch)."""
        get, shape, law = self.rows(pairs), self.fitted().u_shape, self.diffusion.law

        def loss(network: Any, rows: NDArray[np.int64], first: int, step: int) -> Tensor:
            a, u, mask = get(rows)
            draws = generator(seed, f"{purpose}/n", step).random(first + len(rows))[first:]
            n = 1 + torch.as_tensor(np.floor(draws * self.diffusion.schedule.n_steps), dtype=torch.long).to(u.device)
            eps = self.tensor(law.sample(shape, len(rows), seed, first, f"{purpose}/eps", step))
            return self.diffusion.loss(network, n, u, eps, a, mask)

        return loss

    def learn(self, pairs: Pairs, validation: Pairs | None, *, seed: int = 0, **options: Any) -> Self:
        if self.variance == "analytic" and not validation:
            raise UserError(
                'the variance "analytic" is measured on pairs that are not learned from; hold some out (validation=0.1), or '
                'choose another rule, such as variance="gaussian"'
            )
        if self.variance == "analytic" and validation and validation.mask is not None and not validation.mask.any():
            raise UserError("all outputs that were held out are masked; bring more that are known, or choose another variance")
        super().learn(pairs, validation, seed=seed, **options)
        if self.variance == "analytic" and validation:
            shown = options.get("progress", True)
            with progress_bar("measuring the denoising error", "steps") if shown else nullcontext() as bar:
                self.error = self.measure(validation, seed, bar)
        return self

    learn.__doc__ = Surrogate.learn.__doc__

    def measure(self, pairs: Pairs, seed: int = 0, progress: Callable[[int, int], None] | None = None) -> Array:
        """The denoising error e_n, n = 0 … N, on pairs that were not learned from."""
        shape = self.fitted().u_shape
        count = min(len(pairs), max(32, ERROR_VALUES // int(np.prod(shape))))
        a, u, mask = self.rows(pairs[:count])(np.arange(count))
        denoise = self._denoiser()

        def in_parts(n: int, v: Tensor, a: Tensor) -> Tensor:
            return torch.cat([denoise(n, *part) for part in zip(torch.split(v, PART), torch.split(a, PART), strict=True)])

        def eps(n: int) -> Tensor:
            if progress is not None:
                progress(n, self.diffusion.schedule.n_steps)
            return self.tensor(self.diffusion.law.sample(shape, count, seed, 0, "error", n))

        return denoising_error(in_parts, self.diffusion, u, a, eps, mask)

    def mean(self, a: Any, *, scalars: Any = None, seed: int = 0) -> Any:
        """s_θ(a), the mean of q_θ(· | a), from one evaluation of the network: E[U_0 | U_N], as U_N says nothing about U_0.

        It has none of the Monte-Carlo error of a mean over members, but is only as good as the network is at n = N; targets
        that are divided by √γ_N ("eps", "mean") are not good there.
        """
        self._whole_chain("mean")
        return self.sample(a, 1, seed, scalars=scalars, steps=1, sampler="ddim")[0]

    def _whole_chain(self, what: str) -> None:
        if self.t_start:
            raise UserError(f"{what} needs a chain down to step 0, but this model stops at t_start = {self.t_start}")

    def nvlb(self, a: Any, u: Any, seed: int = 0, scalars: Any = None) -> float:
        """The negative variational lower bound of the paper's appendix for these pairs, in nats a pair and in units of u."""
        frame = self.fitted()
        fields, parameters = frame.inputs(a, scalars)
        outputs = frame.field("u", u)
        if len(outputs) != len(fields):
            raise UserError(f"numbers of samples differ: {len(fields)} of a, {len(outputs)} of u")
        self._whole_chain("nvlb")
        chain, var = self._chain({})
        condition, v = self.condition(fields, parameters), self.tensor(self.scalings["u"].normalise(outputs))

        def eps(n: int) -> Tensor:
            return self.tensor(self.diffusion.law.sample(frame.u_shape, len(v), seed, 0, "nvlb", n))

        scale = np.log(np.broadcast_to(self.scalings["u"].std, frame.u_shape)).sum()
        return nvlb(self._denoiser(), self.diffusion, chain, var, v, condition, eps) + float(scale)

    def draw(self, condition: Tensor, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Tensor:
        """The inference stage of Algorithm `alg:PDNO`. `how` may name steps, sampler, variance and a callback (n, V_n)."""
        shape, law = self.fitted().u_shape, self.diffusion.law
        chain, var = self._chain(how)

        def noise(n: int) -> Tensor:
            """A draw of the base law for each row, a function of (seed, input, member, n)."""
            cuts = np.flatnonzero(np.diff(inputs) | (np.diff(members) != 1)) + 1
            runs = np.split(np.stack([inputs, members]), cuts, axis=1)
            draws = [law.sample(shape, r.shape[1], seed, (int(r[0, 0]) << 32) + int(r[1, 0]), "reverse", n) for r in runs]
            return self.tensor(np.concatenate(draws))

        sampler, start, callback = SAMPLERS[how.get("sampler", self.sampler)], noise(0), how.get("callback")
        if callback is not None:
            callback(int(chain.n[-1]), start)
        v = sampler(
            self._denoiser(),
            start,
            condition,
            chain,
            var=var,
            noise=noise,
            last_noise=self.last_noise,
            callback=callback,
        )
        return v / float(np.sqrt(chain.gamma[0]))

    def evaluations(self, **how: Any) -> int:
        chain, _ = self._chain(how)
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
            steps = min(AUTO_STEPS, longest) if rule == "analytic" else None
        chain = self.diffusion.schedule.subchain(None if steps is None else int(steps), self.t_start, self.spacing)
        untrained = self.frame is None and rule == "analytic"
        return chain, np.zeros(chain.n_steps + 1) if untrained else variance(rule, chain, self.error, self.mix)

    def arrays(self) -> dict[str, Array]:
        return {} if self.error is None else {"error": self.error}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "PDNO":
        """The model that `settings` describes, without weights."""
        d = settings["diffusion"]
        diffusion = Diffusion(Schedule(d["gamma"]), from_json(d["base"]), d["target"], d["weight"])
        return cls(settings["network"], diffusion, normalise=normalise_of(settings), **settings["reverse"])


def _preset(base: int, batch: int, noisy: bool, **options: Any) -> dict[str, Any]:
    """What Tables A1–A4 share: N = 100, 1000 epochs, Adam at 1e-4 that is halved every 100, target ε, the theorem's σ_n."""
    loop: dict[str, Any] = {"epochs": 1000, "batch": batch, "optimizer": "adam", "rate": 1e-4, "rate_schedule": "step"}
    schedule, normalise = options.pop("schedule", Schedule.cosine), options.pop("normalise", "none")
    return {
        "network": {"kind": "unet", "base": base},
        "diffusion": Diffusion(schedule(100), White(), "eps", "ddsm"),
        "variance": "gaussian" if noisy else "noise-free",
        "steps": 100,
        "normalise": normalise,
        "training": Training(ema=0.0, clip=0.0, **(loop | options)),
    }


PAPER: dict[str, Callable[[bool], dict[str, Any]]] = {
    "elliptic1d": lambda noisy: _preset(32, 50, noisy),  # `tab:params-test1`
    "darcy": lambda noisy: _preset(64, 20, noisy, normalise="scalar"),  # `tab:params-test2`
    "burgers": lambda noisy: _preset(32, 32, noisy, schedule=Schedule.linear),  # `tab:params-test3`
    "advection": lambda noisy: _preset(  # `tab:params-test4`
        32, 20, noisy, rate=8e-5, rate_schedule="constant", normalise="scalar" if noisy else "none"
    ),
}
