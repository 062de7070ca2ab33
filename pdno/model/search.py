r"""Selection of mean and residual law together, within one time budget.

    cheap means → screening of network means → screening of laws on the residuals of the best mean so far
                → the remaining time for what gains most: the mean, the law, or both

If the law that is best after its screening models randomness that a whole field shares, and residuals are mostly noise
(`pdno.mean.noise`), this limits the prediction, not the mean: the mean is trained again without it (`pdno.model.effects`), and
the law gets the rest of the time. If there is less noise, or the law has a scale field, mean and law share the time. Otherwise
the mean gets most of it, before any law is tried if there is hardly any noise. Where one of the two is given by the user, the
other one is selected alone. With few runs of few parameters, both are selected by cross-validation (`pdno.mean.crossed`), and
held-out pairs are trained on as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import xarray as xr

from ..data.pairs import Pairs
from ..data.selection import SAMPLE
from ..data.spaces import Spaces
from ..learning.budget import Terms
from ..mean.base import Mean
from ..mean.choice import Choice
from ..mean.choose import MeanSelection, choose_mean
from ..mean.crossed import cross_validated, suits
from ..residual.candidates import candidates
from ..residual.choose import LawChoice, LawSelection, choose_law
from ..residual.diffused import Diffused
from ..residual.gaussian import Gaussian
from ..residual.law import MeanResiduals, ResidualLaw
from ..residual.posterior import PosteriorLaw
from ..residual.scaled import Scaled
from ..symmetry import Symmetry
from ..work.engine import is_first
from .decompose import decompose
from .effects import network_without_effects, refit
from .missing import learn_observed

__all__ = ["Search"]

MEAN_SHARE = 0.85  # of the remaining time, for the mean of Gaussian residuals
SHARED_SHARE = 0.55  # likewise, if residuals have a scale field
LEAST_NOISE = 0.25  # share of noise in the residuals of the best mean so far, below which it is trained before any law
SHARED_NOISE = 0.9  # likewise, below which mean and law share the time even if whole fields share randomness
LAW_SCREENING = 0.3  # of the remaining time, for screening laws before the mean is trained to the end


@dataclass(frozen=True)
class Search:
    """The parts among which mean and law are selected.

    Args:
        pairs: training pairs.
        held_out: validation pairs.
        spaces: those of the pairs.
        elements: of the group of symmetries.
        terms: seed, folder, devices and deadline.
        gaussian: untrained Gaussian law with the settings of the model.
        diffused: untrained diffusion with the settings of the model.
    """

    pairs: Pairs
    held_out: Pairs | None
    spaces: Spaces
    elements: Sequence[Symmetry]
    terms: Terms
    gaussian: Gaussian
    diffused: Diffused

    def run(
        self,
        mean: str | Mapping[str, Any] | Mean,
        law: str | ResidualLaw,
        shared: Mapping[str, Any],
        plan: Mapping[str, Any],
    ) -> tuple[Choice, LawChoice]:
        """Return the trained mean and the trained law.

        Args:
            mean: "auto", or what `pdno.mean.mean_of` takes.
            law: "auto", a name of `pdno.residual.LAWS`, or an untrained law.
            shared: symmetries and kinds of axes, for all means.
            plan: what two runs must share for one to resume with the mean of the other.
        """
        if self.held_out is None and self._is_crossed(mean, law):
            return self._crossed(shared, plan)
        terms, choice = self.terms, self._resumed(plan)
        if choice is None and mean == law == "auto" and self.held_out:
            return self._both(self.held_out, shared, plan)
        if choice is None:
            share = terms.within(terms.left(MEAN_SHARE))
            choice = self._kept(choose_mean(mean, self.pairs, self.held_out, share, **self._means_of(shared)), plan)
        residuals, remarks = self._decomposed(choice, terms)
        if law == "auto" and choice.law:
            selected = self._laws(residuals).only(choice.law)
        else:
            selected = choose_law(law, residuals, self.gaussian, self.diffused, terms)
        return choice, replace(selected, summary=[*selected.summary, *remarks])

    def joined(self, mean: Any, law: Any) -> "Search":
        """Return the search with held-out pairs among the training pairs, if all is selected by cross-validation; else itself.

        Args:
            mean, law: as in `run`.
        """
        parts = [part.xarray for part in (self.pairs, self.held_out) if part is not None]
        if len({tuple(sorted(map(str, part.data_vars))) for part in parts}) > 1:
            return self
        few = replace(self, pairs=Pairs(xr.concat(parts, SAMPLE)), held_out=None)
        return few if few._is_crossed(mean, law) else self

    def _is_crossed(self, mean: Any, law: Any) -> bool:
        """Return whether mean and law are selected by cross-validation: there are few runs with few parameters."""
        return isinstance(mean, str) and isinstance(law, str) and mean == law == "auto" and suits(self.pairs)

    def _crossed(self, shared: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[Choice, LawChoice]:
        """Select mean and law by cross-validation."""
        choice = self._resumed(plan) or self._kept(cross_validated(self.pairs, self.terms, shared), plan)
        residuals, remarks = self._decomposed(choice)
        law = "auto" if residuals.train.components is None or choice.exact else PosteriorLaw.name
        selected = choose_law(law, residuals, self.gaussian, self.diffused, self.terms)
        return choice, replace(selected, summary=[*selected.summary, *remarks])

    def _both(self, held_out: Pairs, shared: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[Choice, LawChoice]:
        """Select mean and law together."""
        means = MeanSelection(self.pairs, held_out, self.terms, **self._means_of(shared))
        reason = means.screen(held_out)
        noise = 1.0
        if reason is None:
            noise = means.noise_share()
            self.terms.log(f"noise is at most {noise:.0%} of the variance of residuals")
            if noise < LEAST_NOISE:  # what laws would learn now are errors of the mean
                return self._finished(means, None, plan)
        choice = means.selected(reason or "more training of the mean would gain less than that of the law")
        residuals, remarks = self._decomposed(choice)
        laws = self._laws(residuals)
        if not laws.reason:
            laws.screen(LAW_SCREENING)
        best = laws.trials.promising()
        if reason is None and (noise < SHARED_NOISE or not laws.trials.is_shared(best)):
            return self._finished(means, laws, plan)
        if laws.trials.is_shared(best):
            before = choice.mean
            choice, residuals = self._without_effects(means, choice, residuals, held_out, laws.trials.has_curved_effects())
            if choice.mean is not before:
                laws = self._laws(residuals, laws.trials.tried())
        self._kept(replace(choice, law=best), plan)
        return choice, self._law_of(laws, best, remarks)

    def _finished(
        self, means: MeanSelection, screened: LawSelection | None, plan: Mapping[str, Any]
    ) -> tuple[Choice, LawChoice]:
        """Train the mean for most of the remaining time, then the law; `screened` has compared laws for an earlier mean."""
        best = Gaussian.name if screened is None else screened.trials.promising()
        is_known = best == Scaled.name or (screened is not None and screened.trials.is_shared(best))
        choice = means.selected(means.finish(self.terms.left(SHARED_SHARE if is_known else MEAN_SHARE)))
        residuals, remarks = self._decomposed(choice, self.terms)
        laws = self._laws(residuals, [] if screened is None else screened.trials.tried())
        if not laws.reason and not is_known:
            best = laws.screen(LAW_SCREENING).trials.promising()
        self._kept(replace(choice, law=best), plan)
        return choice, self._law_of(laws, best, remarks)

    @staticmethod
    def _law_of(laws: LawSelection, best: str, remarks: Sequence[str]) -> LawChoice:
        selected = laws.choice() if laws.reason else laws.only(best)
        return replace(selected, summary=[*selected.summary, *remarks])

    def _without_effects(
        self, means: MeanSelection, choice: Choice, residuals: MeanResiduals, held_out: Pairs, curved: bool
    ) -> tuple[Choice, MeanResiduals]:
        """Return the mean, trained without what whole fields share, and its residuals.

        Effects are estimated from out-of-fold residuals: a network fits a part of the effects of its training pairs, which
        would be missing. Effects that are not a multiple of one field (`curved`) are removed from cheap means only.
        """

        def decomposed(each: Choice) -> MeanResiduals:
            return self._decomposed(each)[0]

        start, before = choice, residuals
        if not choice.mean.cheap_folds and not curved:
            start = means.selected("its residuals are out of fold", cheap_folds=True)
            before = decomposed(start)
        if start.mean.cheap_folds:
            start, before = refit(start, self.pairs, held_out, before, decomposed, self.terms)
        if curved:
            return start, before
        new, after = network_without_effects(means, start, before, decomposed, self.terms)
        return (new, after) if new.mean is not start.mean or choice.mean.cheap_folds else (choice, residuals)

    def _means_of(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the selection of means."""
        periodic = tuple(kind == "periodic" for kind in self.spaces.kind)
        return {**shared, "learn_observed": partial(learn_observed, periodic=periodic)}

    def _laws(self, residuals: MeanResiduals, earlier: Sequence[str] = ()) -> LawSelection:
        return LawSelection(residuals, self.gaussian, candidates(self.diffused, residuals.nodes), self.terms, earlier)

    def _decomposed(self, choice: Choice, terms: Terms | None = None) -> tuple[MeanResiduals, list[str]]:
        """Return the residuals of the mean; with terms, by cross-fitting if in-sample residuals are not representative."""
        return decompose(choice, self.pairs, self.held_out, self.spaces, self.elements, self.terms.seed, terms)

    def _resumed(self, plan: Mapping[str, Any]) -> Choice | None:
        """Return the choice of the run if it is resumed."""
        choice = None if self.terms.run is None else Choice.load(self.terms.run, plan)
        if choice is not None:
            choice.mean.to(self.terms.device)
        return choice

    def _kept(self, choice: Choice, plan: Mapping[str, Any]) -> Choice:
        """Write the choice into the folder of the run."""
        if self.terms.run is not None and is_first():
            choice.save(self.terms.run, plan)
        return choice
