r"""PDNO, the probabilistic diffusion neural operator: the conditional distribution of u given a,

    u | a = m(a) + residual,

with a mean m (`pdno.mean`) and a law of its out-of-fold residuals (`pdno.residual`), both selected on held-out pairs
(`pdno.model.search`). With mean=None this is the paper's model: a constant mean, the normalisation of u as the scale, and a
diffusion of the normalised outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, Self

import numpy as np
from torch import nn

from .._typing import Array
from ..basis import Kind, waves_of
from ..data.meshes import Points
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..data.support import Support
from ..diffusion.chain import Diffusion
from ..diffusion.reverse import Reverse, Rule, Sampler
from ..diffusion.schedule import Schedule, Spacing
from ..errors import UserError, nearest
from ..learning.budget import Terms
from ..learning.network import OWN, elements_of, normalise_of, plain
from ..learning.normalisation import Normalise
from ..learning.settings import Training
from ..mean.base import Mean, pairs_of
from ..mean.build import mean_of
from ..mean.constant import Constant
from ..residual.build import check_law_name, law_name
from ..residual.diffused import RECIPE, Diffused
from ..residual.gaussian import Gaussian
from ..residual.law import Density, Expectation, ResidualLaw, Residuals
from ..residual.repeats import replicate_noise
from ..residual.scale import Scale
from ..residual.spread import Spread
from ..symmetry import Own, Symmetry
from .decompose import in_sample
from .law import Law
from .paper import PDNO_TESTS
from .prediction import given_for
from .search import Search
from .surrogate import Surrogate

__all__ = ["PDNO"]

AUTO_BUDGET = 600.0  # seconds, if neither time nor number of updates is given
MEAN_MEMBERS = 100  # for the mean of a law that has none in closed form
FEW_STEPS = 10  # of the sampler, with the small network


class PDNO(Surrogate):
    """Learns the conditional distribution of u given a from pairs, noisy or not, and draws from it.

    Args:
        network: of the diffusion: "auto" (a small network with a spectral and a local path), "unet", "fno", "zero" (none:
            residuals are Gaussian), a mapping {"kind": "unet", "base": 32}, or any module (n, v, a) ↦ prediction of the target.
        diffusion: schedule, base distribution and target; default: white, cosine, and "v" for residuals of a mean, "u0" without
            a mean; for residuals with network="auto", noise levels that are log-spaced.
        mean: "auto" selects the best of several (`pdno.mean.choose`), "linear", "kernel", "fno", "slim", a `pdno.mean.Mean`,
            or None: the paper's model, in which one network learns the whole distribution.
        law: of the residuals: "auto" selects on held-out pairs (`pdno.residual.choose`), "gaussian", "resampled", "scaled",
            "statistics", "diffusion", "exact", or a `pdno.residual.ResidualLaw`.
        residual_scale: kind of S, "scalar", "point", "mode", "both" or "auto", see `pdno.residual.scale`.
        variance: rule for σ_n, see `pdno.diffusion.reverse`.
        mix: weight of "gaussian" in the rule "mixed".
        steps: sampling steps; "auto" takes the fewest that held-out pairs allow, 20 without a mean, and all if the variance is
            not "analytic". For residuals with network="auto" and no other setting of the reverse chain: 10, "gaussian-exact".
        spacing: of the steps, "even", "quadratic" or "error", see `Schedule.subchain`.
        sampler: "ancestral", "ddim", "dpm", "gaussian-exact", "heun", or a function with the signature of these.
        last_noise: whether noise is added in the last step of the ancestral sampler.
        t_start: step at which the reverse chain ends, for noise-free data (`remark:noise-free-OL`).
        normalise: "none", "scalar" or "pointwise", or one for a and one for u.
        training: settings of the training loop.
        budget: seconds of training; default with mean="auto": ten minutes, unless `training` limits the updates.
        symmetries: exact symmetries of the operator, see `pdno.symmetry`; used by the mean, the scale and the network.
        kind: of the grid's axes, "cell", "vertex", "periodic" or "left"; one for all or one each. An axis named "node", which
            numbers the nodes of a mesh, has the kind "node".

    After `fit`, `leaderboard` lists the candidates for the mean, and `fit_summary` says what was selected and why.

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
        law: str | ResidualLaw = "auto",
        residual_scale: str = "auto",
        variance: Rule = "analytic",
        mix: float = 0.5,
        steps: int | Literal["auto"] = "auto",
        spacing: Spacing = "even",
        sampler: str | Sampler = "ancestral",
        last_noise: bool = True,
        t_start: int = 0,
        normalise: Normalise | Sequence[Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.mean_model = None if mean == "none" else mean
        self.network, self.residual_law, self.residual_scale = network, law_name(law), residual_scale
        self.diffusion = _default_diffusion(self.mean_model is None, network == "auto") if diffusion is None else diffusion
        self.reverse = Reverse(variance, mix, steps, spacing, sampler, last_noise, t_start)
        self.reverse.check(self.diffusion.schedule)
        self.normalise, self.training = normalise_of(normalise), training
        if not isinstance(law, ResidualLaw):
            check_law_name(law)
        unlimited = training is None or not training.is_limited
        default = AUTO_BUDGET if self.mean_model == "auto" and budget is None and unlimited else None
        super().__init__(default if budget is None else budget, symmetries, kind)

    @classmethod
    def paper(cls, test: str, noisy: bool = False) -> "PDNO":
        """Return the model of the paper for one of its tests, with the settings of Tables A1–A4 and the theorem's σ_n.

        Training takes hours on a GPU; `PDNO()` is the model for an ordinary machine.

        Args:
            test: "elliptic1d" (always noisy in the paper), "darcy", "burgers" (always noise-free), "advection".
            noisy: whether the data are noisy.

        Raises:
            UserError: if the paper has no such test.
        """
        if test not in PDNO_TESTS:
            raise UserError(f"the paper has no test {test!r}; {nearest(test, PDNO_TESTS)}")
        return cls(**PDNO_TESTS[test].arguments(noisy))

    @classmethod
    def field(cls, budget: float = AUTO_BUDGET, **settings: Any) -> "PDNO":
        """Return a diffusion of u itself with a small network: for distributions that a mean plus noise does not describe.

        Such are several solution branches, modes that a whole field shares, random positions of fronts, hidden parameters. One
        network learns the whole distribution, without a mean model: many cheap updates on noise levels that are log-spaced
        from 0.004 to 40 standard deviations of u, and ten evaluations per member.

        Args:
            budget: seconds of training.
            settings: further arguments of `PDNO`, such as kind="periodic", or others in place of these.
        """
        diffusion = Diffusion(Schedule.geometric(), target="v")
        field: dict[str, Any] = {"mean": None, "training": RECIPE, "steps": FEW_STEPS, "budget": budget}
        return cls(**{"network": "local", "diffusion": diffusion, "sampler": "gaussian-exact", **field, **settings})

    def learn_law(self, pairs: Pairs, held_out: Pairs | None, spaces: Spaces, terms: Terms) -> Law:
        """Select and train the mean, compute its residuals, then select and train their law."""
        self._check_held_out(held_out)
        elements, terms = elements_of(self.symmetries, spaces, pairs), replace(terms, training=self.training)
        law = "gaussian" if self.network == "zero" else self.residual_law
        if self.mean_model is None and law in ("auto", Diffused.name):
            return self._learn_without_mean(pairs, held_out, spaces, elements, terms)
        gaussian = Gaussian(self.residual_scale, self.diffusion.schedule.n_steps - self.reverse.t_start)
        search = Search(pairs, held_out, spaces, elements, terms, gaussian, self._diffused()).joined(self._mean, law)
        choice, selected = search.run(self._mean, law, self._shared, self._plan(search.pairs, spaces, terms))
        given, pairs = pairs, search.pairs
        updates = sum(network.updates for network in selected.networks)
        noise = replicate_noise(pairs.fingerprints(), pairs.filled, pairs.mask)
        remarks = [] if noise is None or pairs.mask is not None else [_noise_share(noise, pairs)]
        return Law(
            spaces,
            choice.mean,
            selected.law,
            noise,
            Support.of(pairs.u, pairs.mask),
            leaderboard=choice.trials,
            summary=(f"{choice.reason}. {choice.mean.describe()}", *remarks, *selected.summary),
            history=tuple(row for network in selected.networks for row in network.history),  # also of one that was not selected
            provenance={"updates": updates, "pairs": len(pairs), "cross_validated": pairs is not given},
        )

    def _learn_without_mean(
        self, pairs: Pairs, held_out: Pairs | None, spaces: Spaces, elements: tuple[Symmetry, ...], terms: Terms
    ) -> Law:
        """Learn the paper's model: a constant mean, the normalisation of u as S, and a diffusion of the normalised outputs."""
        mean = Constant(self.normalise[1], self.symmetries, self.kind).learn(pairs, held_out, terms)
        std = np.broadcast_to(mean.normalisation.std, (spaces.u_shape[0], *mean.normalisation.std.shape[1:]))
        ones, periodic = np.ones((1,) * len(spaces.u_shape)), waves_of(spaces.kind)
        spread = Spread(Scale(std, ones, periodic, "scalar" if std[0].size == 1 else "point"))
        validation = None if held_out is None else in_sample(mean, held_out, spaces, elements)
        law = self._diffused(search_steps=False).with_spread(spread)
        law.log_by = None if terms.log_pairs is None else in_sample(mean, terms.log_pairs, spaces, elements)
        law.learn(in_sample(mean, pairs, spaces, elements), validation, terms)
        return Law(spaces, mean, law, summary=(law.describe(),))

    def _diffused(self, search_steps: bool = True) -> Diffused:
        network = "auto" if self.network == "zero" else self.network
        settings: dict[str, Any] = {"normalise": self.normalise[0], "training": self.training, "search_steps": search_steps}
        settings["given_mean"] = small = network == "auto" and self.mean_model is not None
        steps = min(FEW_STEPS, self.diffusion.schedule.n_steps)
        reverse = Reverse(sampler="gaussian-exact", steps=steps) if small and self.reverse == Reverse() else self.reverse
        return Diffused(network, self.diffusion, reverse, **settings)

    @property
    def _mean(self) -> str | Mapping[str, Any] | Mean:
        return "constant" if self.mean_model is None else self.mean_model

    @property
    def _shared(self) -> dict[str, Any]:
        return {"symmetries": self.symmetries, "kind": self.kind}

    def _plan(self, pairs: Pairs, spaces: Spaces, terms: Terms) -> dict[str, Any]:
        """Return what two runs must share for one to resume with the mean of the other."""
        requested = self._mean if self._mean == "auto" else _settings_of(mean_of(self._mean, **self._shared))
        data = {"pairs": len(pairs), "first": float(pairs[:1].filled.mean()), "spaces": spaces.state().settings}
        return {**self.settings(), **data, "mean": requested, "seed": terms.seed, "precision": terms.precision}

    def _check_held_out(self, held_out: Pairs | None) -> None:
        if self.reverse.variance != "analytic":
            return
        if not held_out:
            raise UserError(
                'the variance "analytic" is measured on held-out pairs; got none, pass validation=0.1, or choose another rule, '
                'such as variance="gaussian"'
            )
        if held_out.mask is not None and not held_out.mask.any():
            raise UserError(
                "all held-out outputs are missing; pass validation pairs with observed outputs, or choose another rule, "
                'such as variance="gaussian"'
            )

    def mean(self, a: Any, *, scalars: Any = None, seed: int = 0, points: Points | None = None) -> Any:
        """Return s_θ(a), the mean of q_θ(· | a), in the shape of u.

        It is m(a) for a law of mean zero, and m(a) plus the mean of the residual law otherwise: without the Monte-Carlo error
        of a mean over members if the law has it (`pdno.residual.Expectation`), else the mean of 100 members. `points` are those
        of `predict`.

        Raises:
            UserError: if the model has not been fitted, inputs do not fit it, or the reverse chain does not end at step 0.
        """
        law, given = given_for(self.fitted, a, scalars, points)
        if given.mean is not None:
            return law.spaces.outputs(given.mean, a)
        if not isinstance(law.residual, Expectation):
            return self.predict(a, scalars=scalars, members=MEAN_MEMBERS, seed=seed, progress=False, points=points).mean
        expected = law.residual.expectation(given.inputs, seed)
        values = given.centre + (expected if law.mesh is None else law.mesh.mean(expected))
        return law.spaces.outputs(values if law.support is None else law.support.clipped(values), a)

    def nvlb(self, a: Any, u: Any, seed: int = 0, scalars: Any = None) -> float:
        """Return the negative variational lower bound of the paper's appendix, in nats per pair and in units of u.

        For Gaussian residuals it is the exact negative log-likelihood.

        Raises:
            UserError: if the residual law has no density.
        """
        law = self.fitted
        fields, parameters = law.spaces.inputs(a, scalars)
        outputs = law.spaces.check_field("u", u)
        if len(outputs) != len(fields):
            raise UserError(f"numbers of samples differ: {len(fields)} of a, {len(outputs)} of u; pass equally many")
        if not isinstance(law.residual, Density):
            raise UserError(f"the law {law.residual.name!r} has no density; compare models by their CRPS")
        pairs = pairs_of(fields, outputs, parameters)
        return law.residual.negative_log_density(Residuals(pairs, outputs - law.mean(fields, parameters)), seed)

    def settings(self) -> dict[str, Any]:
        return {
            "network": plain(self.network),
            "diffusion": self.diffusion.to_json(),
            "mean": plain(self.mean_model),
            "law": plain(self.residual_law),
            "residual_scale": self.residual_scale,
            "reverse": self.reverse.to_json(),
            "normalise": list(self.normalise),
            "training": None if self.training is None else asdict(self.training),
            "budget": self.budget,
            "symmetries": [each if isinstance(each, str) else OWN for each in self.symmetries],
            "kind": self.kind if isinstance(self.kind, str) else list(self.kind),
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], law: Law, sampler: Sampler | None = None) -> Self:
        arguments = dict(settings)
        reverse = Reverse.from_json(arguments.pop("reverse"), sampler)
        own = {"mean": law.mean, "law": law.residual}
        if law.residual.networks:
            own["network"] = law.residual.networks[0].module  # type: ignore[assignment]
        arguments |= {name: own.get(name, "auto") for name in ("network", "mean", "law") if arguments[name] == OWN}
        training = None if arguments["training"] is None else Training(**arguments["training"])
        new = cls(
            **{**arguments, **vars(reverse), "diffusion": Diffusion.from_json(arguments["diffusion"]), "training": training}
        )
        new.law = law
        return new


def _default_diffusion(without_mean: bool, small: bool) -> Diffusion:
    """Return the paper's chain for u; for residuals the target "v", with a wide range of noise levels for the small network."""
    if without_mean:
        return Diffusion(target="u0")
    return Diffusion(Schedule.geometric() if small else Schedule.cosine(), target="v")


def _noise_share(noise: Array, pairs: Pairs) -> str:
    """Describe the share of noise of a standard deviation (channel, *grid) in the variance of the outputs."""
    axes = tuple(range(1, noise.ndim))
    total = pairs.u.var(axis=0, dtype=np.float64).mean(axis=axes)
    share = np.divide(np.square(noise).mean(axis=axes), total, out=np.ones(len(total)), where=total > 0).mean()
    return f"By repeated inputs, noise is {min(1.0, share):.2g} of the outputs' variance."


def _settings_of(mean: Mean) -> dict[str, Any]:
    """Return the attributes of an untrained mean and of its parts: a run is resumed only if they are the same."""
    return {"name": mean.name, **vars(mean), "parts": [_settings_of(part) for part in mean.parts]}
