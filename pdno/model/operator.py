r"""PDNO, the probabilistic diffusion neural operator: the law of u given a,

    u | a = m(a) + t(a) S r,        m a mean operator (`pdno.mean`), t S the scale of what it leaves (`pdno.residual.scale`,
                                    `pdno.residual.amplitude`), r from a diffusion (`pdno.model.conditional`).

With the target "v" and r of unit variance, a network that answers 0 is exact for Gaussian residuals, and with S = 0 for none:
a network is kept only if it beats that on held-out pairs. Without a mean (the paper's model) S is the normalisation of u.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..basis import Kind
from ..data.pairs import Pairs
from ..diffusion.base import from_json
from ..diffusion.chain import Diffusion
from ..diffusion.reverse import Rule, nvlb
from ..diffusion.schedule import Schedule, Spacing
from ..errors import UserError, nearest
from ..evaluation.metrics import crps
from ..learning.loop import Training
from ..learning.normalisation import Normalise, Scaling
from ..mean import Mean, is_saveable
from ..mean.choice import Chosen
from ..mean.choose import learn_mean
from ..nn import Zero, build
from ..symmetry import Own
from ..work.engine import is_first
from ..work.progress import progress_bar
from .conditional import AUTO_STEPS, PART, Conditional
from .law import Decomposition, decompose
from .paper import PDNO_TESTS
from .surrogate import Surrogate, Terms
from .surrogate import chosen as settings_of

__all__ = ["PDNO"]

Array = NDArray[Any]
AUTO_BUDGET = 600.0  # seconds, where neither time nor steps are given
MEAN_SHARE = 0.85  # of the time for the mean operator
TRIED_STEPS = (5, 10, 20, 40)
CHOICE = 512  # held-out pairs that decide on the network
MEASURING = 0.3  # share of the time that is left, for this, and for e_n


class PDNO(Conditional):
    """Learns the law of u given a from pairs, noisy or not, and draws from it.

    Args:
        network: "auto" (a small UNet), "unet", "fno", "zero" (none: residuals are Gaussian), a mapping {"kind": "unet",
            "base": 32}, or any module (n, v, a) ↦ answer.
        diffusion: schedule, base law and target; if left out cosine, white and "v" for residuals, u₀ without a mean.
        mean: "auto" tries some and takes the best (`pdno.mean.choose`), "linear", "kernel", "fno", "slim", a
            `pdno.mean.Mean`, or None: the paper's model, where one network learns mean and noise.
        residual_scale: kind of S, "scalar", "point", "mode", "both" or "auto", see `pdno.residual.scale`.
        variance: rule for σ_n, see `pdno.diffusion.reverse`.
        mix: weight of "gaussian" in the rule "mixed".
        steps: of the reverse chain; "auto" takes the fewest that held-out pairs allow, without a mean 20, and all where the
            variance is not "analytic".
        spacing: of these steps, "even" or "quadratic", see `Schedule.subchain`.
        sampler: "ancestral", "ddim", "dpm" or "heun".
        last_noise: whether the last step of the ancestral chain gets noise.
        t_start: step at which the reverse chain ends, for noise-free data (`remark:noise-free-OL`).
        normalise: "none", "scalar" or "pointwise", or one for a and one for u.
        training: settings of the training loop.
        budget: seconds that learning may take; ten minutes with mean="auto", unless `training` says how many steps.
        symmetries: exact ones of the operator, see `pdno.symmetry`, for the mean, S and the network.
        kind: of the grid's axes, "cell", "vertex", "periodic" or "left"; one for all or one each.

    `trials` has what was tried and `said` what was chosen and why.

    >>> import pdno
    >>> data = pdno.generate(pdno.equation.Elliptic1D(points=32), train=64, noise=pdno.noise.Gaussian(0.05))
    >>> model = pdno.PDNO(network={"kind": "unet", "base": 8}, mean="linear", training=pdno.Training(updates=3))
    >>> pred = model.fit(data.train.a, data.train.u, seed=0).predict(data.train.a[:2], members=4)
    >>> pred.mean.shape, pred.quantile(0.95).shape
    ((2, 1, 32), (2, 1, 32))
    """

    name = "pdno"

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "auto",
        diffusion: Diffusion | None = None,
        *,
        mean: str | Mapping[str, Any] | Mean | None = "auto",
        residual_scale: str = "auto",
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
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.mean_asked, self.residual_scale = None if mean == "none" else mean, residual_scale
        self.parts: Decomposition | None = None
        self._written: Mapping[str, Any] | None = None
        self.said: list[str] = []
        self.tell: Callable[[str], None] = lambda text: None  # what is tried, line by line
        if diffusion is None:
            diffusion = Diffusion(target="u0" if self.mean_asked is None else "v")
        reverse: dict[str, Any] = {"variance": variance, "mix": mix, "steps": steps, "spacing": spacing, "sampler": sampler}
        reverse |= {"last_noise": last_noise, "t_start": t_start}
        known: dict[str, Any] = {"normalise": normalise, "training": training, "symmetries": symmetries, "kind": kind}
        super().__init__(network, diffusion, budget=budget, **reverse, **known)
        limited = self.training.updates is not None or self.training.epochs is not None
        self.recipe = self.training if limited or training is not None else None  # of networks for the mean
        if self.mean_asked == "auto" and budget is None and not limited:
            self.budget = AUTO_BUDGET

    @classmethod
    def paper(cls, test: str, noisy: bool = False) -> "PDNO":
        """The model of the paper for one of its tests, with the settings of Tables A1–A4 and the theorem's σ_n.

        "elliptic1d" (always noisy in the paper), "darcy", "burgers" (always noise-free), "advection". Training it takes
        hours on a GPU; `PDNO()` is the model for an ordinary machine.
        """
        if test not in PDNO_TESTS:
            raise UserError(f"the paper has no test {test!r}; {nearest(test, PDNO_TESTS)}")
        return cls(**PDNO_TESTS[test](noisy))

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if self.parts is None:
            return {**settings, "mean": "none" if self.mean_asked is None else "unknown"}
        return {**settings, **self.parts.settings(), "said": self.said}

    def learn(self, pairs: Pairs, validation: Pairs | None, *, seed: int = 0, **options: Any) -> Self:
        if self.variance == "analytic" and not validation:
            raise UserError(
                'the variance "analytic" is measured on pairs that are not learned from; hold some out (validation=0.1), or '
                'choose another rule, such as variance="gaussian"'
            )
        if self.variance == "analytic" and validation and validation.mask is not None and not validation.mask.any():
            raise UserError("all outputs that were held out are masked; bring more that are known, or choose another variance")
        return super().learn(pairs, validation, seed=seed, **options)

    learn.__doc__ = Surrogate.learn.__doc__

    def _describe(self, pairs: Pairs, channel: bool) -> None:
        self.parts, self.said, self.error, self.auto_steps = None, [], None, None  # of an earlier fit
        super()._describe(pairs, channel)

    def prepare(self, pairs: Pairs, validation: Pairs | None, terms: Terms) -> tuple[Pairs, Pairs | None]:
        """Learn m and S, and hand on the residuals."""
        if self.mean_asked is None:
            return pairs, validation
        mean = self._chosen(pairs, validation, terms)
        how: dict[str, Any] = {"scale": self.residual_scale, "kind": self.kind, "elements": self.elements}
        self.parts, pairs, validation = decompose(mean, pairs, validation, **how, seed=terms.seed)
        self.said = list(self.parts.said)
        self.scalings["u"] = Scaling.of(pairs.u, "none")
        self.elements = tuple(g.linear for g in self.elements)
        return pairs, validation

    def _chosen(self, pairs: Pairs, validation: Pairs | None, terms: Terms) -> Chosen:
        """The mean operator: that of the run that is gone on with, or a new one."""
        asked = self.mean_asked
        assert asked is not None
        told = {"name": asked.name, **asked.settings()} if isinstance(asked, Mean) else asked
        plan = {**self._plan(pairs, terms.seed), "asked": told, "budget": self.budget, "precision": terms.precision}
        if terms.run is not None and (chosen := Chosen.kept(terms.run, plan)) is not None:
            chosen.mean.to(terms.device)
            return chosen
        known: dict[str, Any] = {"symmetries": self.symmetries, "kind": self.kind, "training": self.recipe}
        chosen = learn_mean(asked, pairs, validation, terms, **known, share=MEAN_SHARE, tell=self.tell)
        if terms.run is not None and is_first():
            chosen.keep(terms.run, plan)
        return chosen

    def _built(self, seed: int) -> nn.Module:
        """No network where nothing is left to learn."""
        if self.parts is None or not self.parts.finished:
            return super()._built(seed)
        frame = self.fitted()
        return build("zero", frame.u_shape[1:], frame.channels + frame.u_shape[0], frame.u_shape[0], True, seed)

    def finish(self, validation: Pairs | None, terms: Terms) -> None:
        """Keep the network or not, measure e_n, choose the number of steps."""
        assert isinstance(self.network, nn.Module)
        if self.parts is not None:
            self.network = self._kept(self.network, validation, terms)
        if self.gaussian or self.variance != "analytic" or not validation:
            return
        with progress_bar("measuring the denoising error", "steps") if terms.progress else nullcontext() as bar:
            self.error = self.measure(validation, terms.seed, bar, terms.left(MEASURING) if terms.alone else None)
        if self.parts is not None and self.steps == "auto":
            self.auto_steps = self._fewest(validation, terms)

    def known_mean(self, a: Array, scalars: Array | None) -> Array | None:
        return self.parts.mean(a, scalars) if self.gaussian and self.parts is not None else None

    def chunk(self, numbers: int) -> int:
        return int(np.clip(2**17 // numbers, 4, 512)) if self.gaussian else super().chunk(numbers)

    @property
    def gaussian(self) -> bool:
        """Whether residuals are drawn as they are, without a network."""
        return self.parts is not None and isinstance(self.network, Zero)

    def _kept(self, network: nn.Module, validation: Pairs | None, terms: Terms) -> nn.Module:
        """The network, or none if it does not beat that on the denoising loss of held-out pairs."""
        assert self.parts is not None
        frame = self.fitted()
        none = build("zero", frame.u_shape[1:], frame.channels + frame.u_shape[0], frame.u_shape[0], True, 0)
        none = none.to(next(chain(network.parameters(), network.buffers())))
        if isinstance(network, Zero):
            reason = f": {self.parts.finished}" if self.parts.finished else ""
            self.said.append(f"Residuals are taken as Gaussian{reason}.")
            return none
        if not validation:
            return network
        gain = self._gain(network, validation, terms)
        doubt = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
        better = bool(gain.mean() > doubt)
        told = f"the denoising loss of held-out pairs is {_signed(gain.mean())} ± {doubt:.2g} against a Gaussian's"
        self.said.append(f"The diffusion was {'kept' if better else 'dropped, residuals are Gaussian'}: {told}.")
        return network if better else none

    def _gain(self, network: nn.Module, validation: Pairs, terms: Terms) -> Array:
        """How much lower the denoising loss of each of some held-out pairs is than a Gaussian's, as far as time allows."""
        assert self.parts is not None
        drawn, gains = self._draws(validation, terms.seed, "choice"), list[Array]()
        gaussian = partial(self.parts.gaussian_answer, self.diffusion)
        limit, begin = terms.left(MEASURING) if terms.alone else None, time.monotonic()
        for lo in range(0, min(len(validation), CHOICE), PART):
            draws = drawn(np.arange(lo, min(lo + PART, len(validation), CHOICE)), lo, 0)
            with torch.no_grad():
                gain = self.diffusion.losses(gaussian, *draws) - self.diffusion.losses(network, *draws)
            gains.append(gain.double().cpu().numpy())
            if limit is not None and time.monotonic() - begin > limit:
                break
        return np.concatenate(gains)

    def _fewest(self, validation: Pairs, terms: Terms) -> int:
        """The fewest steps whose CRPS on some held-out pairs is within 1 % of the best; the usual ones without time to try."""
        count, seed = min(len(validation), 32), terms.seed
        a, scalars = validation.a[:count], None if validation.scalars is None else validation.scalars[:count]
        r, mask = validation.u[:count], None if validation.mask is None else validation.mask[:count]

        def drawn(member: int, steps: int) -> Array:
            return self.residuals(a, scalars, np.arange(count), np.full(count, member), seed, {"steps": steps})

        scores: dict[int, float] = {}
        longest, begin = self.diffusion.schedule.n_steps - self.t_start, time.monotonic()
        drawn(0, 1)
        second = 20 * (time.monotonic() - begin)  # for 20 members, a step
        for steps in [k for k in TRIED_STEPS if k <= longest]:
            if (left := terms.left() if terms.alone else None) is None or steps * second < left:
                scores[steps] = crps(np.stack([drawn(member, steps) for member in range(20)]), r, mask=mask).value
        usual = min(AUTO_STEPS, longest)
        if max(scores, default=0) < usual:
            self.said.append(f"The reverse chain has {usual} steps, as usual: there was no time to try others.")
            return usual
        fewest = min(k for k in scores if scores[k] <= 1.01 * min(scores.values()))
        self.said.append(f"{fewest} steps of the reverse chain are enough, by the CRPS of held-out pairs.")
        return fewest

    def centre(self, a: Array, scalars: Array | None) -> tuple[Array, Array] | None:
        """m(a) and t(a)."""
        return None if self.parts is None else self.parts.centre(a, scalars)

    def spread(self, a: Array, scalars: Array | None) -> tuple[Array | None, Array | None]:
        return (None, None) if self.parts is None else self.parts.spread(a, scalars, self.fitted().u_shape)

    def mean(self, a: Any, *, scalars: Any = None, seed: int = 0) -> Any:
        """s_θ(a), the mean of q_θ(· | a), from one evaluation of the network: E[U_0 | U_N], as U_N says nothing about U_0.

        It has none of the Monte-Carlo error of a mean over members, but is only as good as the network is at n = N; targets
        that are divided by √γ_N ("eps", "mean") are not good there.
        """
        self._whole_chain("mean")
        if self.gaussian:
            frame = self.fitted()
            assert self.parts is not None
            return frame.outputs(self.parts.mean(*frame.inputs(a, scalars)), a)
        return self.sample(a, 1, seed, scalars=scalars, steps=1, sampler="ddim")[0]

    def nvlb(self, a: Any, u: Any, seed: int = 0, scalars: Any = None) -> float:
        """The negative variational lower bound of the paper's appendix for these pairs, in nats a pair and in units of u."""
        frame = self.fitted()
        fields, parameters = frame.inputs(a, scalars)
        outputs = frame.field("u", u)
        if len(outputs) != len(fields):
            raise UserError(f"numbers of samples differ: {len(fields)} of a, {len(outputs)} of u")
        self._whole_chain("nvlb")
        chain, var = self._chain({})
        v = self.tensor(self.scalings["u"].normalise(outputs))
        scale = np.log(np.broadcast_to(self.scalings["u"].std, frame.u_shape)).sum()
        if self.parts is not None:
            if self.gaussian:
                return -float(self.parts.log_likelihood(fields, outputs, parameters).mean())
            left, size = self.parts.left(fields, outputs, parameters)
            d = self.parts.seen(frame.u_shape)
            volume = -self.parts.scale.log_likelihood(0 * left[:1])[0] - 0.5 * d * np.log(2 * np.pi)  # log det S
            v, scale = self.tensor(self.parts.scale.normalise(left)), float(volume + d * np.log(size).mean())
        condition = self.condition(fields, parameters)

        def eps(n: int) -> Tensor:
            return self.tensor(self.diffusion.law.sample(frame.u_shape, len(v), seed, 0, "nvlb", n))

        return nvlb(self._denoiser(), self.diffusion, chain, var, v, condition, eps) + float(scale)

    def draw(self, a: Array, scalars: Array | None, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Array:
        """S r, or members of u where there is no mean."""
        r = self.residuals(a, scalars, inputs, members, seed, how)
        if self.parts is None:
            return self.scalings["u"].restore(r)
        if self.gaussian and self.parts.amplitude is not None:
            r = r * self.parts.amplitude.draw(seed, inputs, members).reshape(-1, *(1,) * (r.ndim - 1))
        return self.parts.scale.restore(r)

    def to(self, device: str) -> Self:
        if self.parts is not None:
            self.parts.mean.to(device)
        return super().to(device)

    @property
    def parameters(self) -> int:
        return super().parameters + (0 if self.parts is None else self.parts.mean.parameters)

    def arrays(self) -> dict[str, Array]:
        found = {} if self.parts is None else self.parts.arrays()
        return found if self.error is None else {**found, "error": self.error}

    def save(self, path: str | Path) -> None:
        if self.parts is not None and not is_saveable(self.parts.mean):
            raise UserError(
                f"a {self.parts.mean.label} mean is code of your own, which is not saved; save what it gave, or fit it anew"
            )
        super().save(path)

    save.__doc__ = Surrogate.save.__doc__

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        self.error = arrays.get("error")
        if self._written is not None:
            self.parts = Decomposition.restored(self._written, arrays)
            self.said = list(self.parts.said)
        elif self.variance == "analytic" and self.error is None:
            raise UserError("the denoising error is missing")
        return self

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "PDNO":
        """The model that `settings` describes, without weights."""
        d = settings["diffusion"]
        diffusion = Diffusion(Schedule(d["gamma"]), from_json(d["base"]), d["target"], d["weight"])
        mean = settings.get("mean", "none")
        model = cls(settings["network"], diffusion, mean=mean, **settings_of(settings), **settings["reverse"])
        model.auto_steps = settings.get("auto_steps")
        model._written = None if mean == "none" else settings
        return model


def _signed(value: float) -> str:
    return f"{abs(value):.2g} {'lower' if value > 0 else 'higher'}"
