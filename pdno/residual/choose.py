r"""Selection of the residual law: candidates from cheap to costly, compared by one proper score on held-out pairs.

    gaussian → resampled → copula → censored → linear statistics → scaled → statistics → diffusion

The score of a law is a mean of proper scores of its draws (`ResidualLaw.score`). A law replaces the Gaussian one, and a law
with a network one without, only if its score is lower by more than chance allows (`pdno.residual.compare`). Networks are first
trained for a short time (screening); the most promising one is then trained for the remaining time. They are not tried if the
mean is exact, if residuals of training pairs are not representative of new ones, if normalised residuals pass all tests of
white Gaussian noise, or if there is no time or there are too few pairs.
"""

import time
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from ..data.split import folds
from ..errors import UserError
from ..evaluation.whiteness import components_look_gaussian, looks_gaussian
from ..learning.budget import Terms
from ..learning.network import NetworkOnPairs
from .build import LAWS
from .candidates import LINEAR, Candidate, candidates
from .censored import Censored
from .compare import SCORE_MEMBERS, held_out_scores
from .copula import Copula
from .diffused import Diffused
from .gaussian import Gaussian
from .law import MeanResiduals, ResidualLaw, Tunable
from .posterior import PosteriorLaw
from .resampled import Resampled
from .scaled import Scaled
from .score import Units
from .statistics import Statistics
from .trials import Trial, Trials, largest

__all__ = ["LawChoice", "LawSelection", "choose_law"]

FEWEST_FOR_VALUES = 20  # training pairs for the distribution of single values
FEWEST_SECONDS = 2.0  # of screening a network
FEWEST_TESTED = 50  # residual fields whose leading components are tested, of large fields
TESTED_VALUES = 2**24  # of residual fields whose leading components are tested
SCREENING = 0.35  # of the time, for screening all networks
LINEAR_SHARE = 0.05  # of the remaining time, for linear statistics that were not screened
CROSS_SHARE = 0.08  # of the remaining time, for scoring laws on training pairs by folds
CROSS_SECONDS = 20.0  # at least, for this
MOST_CROSS_SHARE = 0.6  # of the remaining time, if that is less
SCORE_SHARE = 0.05  # of the remaining time, for scoring one law
ENOUGH_HELD_OUT = 100  # held-out pairs by which laws without networks are compared, otherwise on training pairs by folds
FOLDS = 5  # of training pairs
MOST_CROSSED = 2**22  # values of training residuals that are scored by folds
FINAL_TRAINING = 0.92  # of the remaining time, for the final training of a law; the rest is for its score


@dataclass(frozen=True)
class LawChoice:
    """The selected law.

    Args:
        law: trained.
        summary: the reasons in sentences.
        networks: of the law, or of a law that was trained and not selected.
    """

    law: ResidualLaw
    summary: list[str]
    networks: tuple[NetworkOnPairs, ...] = ()


def choose_law(
    law: str | ResidualLaw, residuals: MeanResiduals, gaussian: Gaussian, diffused: Diffused, terms: Terms
) -> LawChoice:
    """Train the requested law, or select one ("auto").

    Args:
        law: "auto", a name of `pdno.residual.LAWS`, or an untrained law, which is copied.
        residuals: of the mean.
        gaussian: untrained Gaussian law with the settings of the model.
        diffused: untrained diffusion with the settings of the model; it shares S and t with the Gaussian law.
        terms: seed, folder, devices and deadline.

    Returns:
        The trained law, and sentences for the summary of the model.
    """
    if law == "auto":
        selection = LawSelection(residuals, gaussian, candidates(diffused, residuals.nodes), terms)
        return selection.choice() if selection.reason else selection.screen(SCREENING).finish()
    if law == diffused.name:
        gaussian.learn(residuals.measured, residuals.held_out, terms)
        diffused.with_spread(gaussian.spread).learn(residuals.train, residuals.held_out, terms)
        return LawChoice(diffused, [diffused.describe(), *diffused.notes], diffused.networks)
    made = {each.name: each.make for each in candidates(diffused, residuals.nodes)}
    if isinstance(law, str):
        new = gaussian if law == gaussian.name else made[law](gaussian) if law in made else LAWS[law]()
    else:
        new = deepcopy(law)
    if new.trains_network:
        new.learn(residuals.train if new.has_own_size else residuals.enlarged, residuals.held_out, terms)
    else:
        new.learn(residuals.measured, None if residuals.measured is residuals.held_out else residuals.held_out, terms)
    return LawChoice(new, [new.describe()], new.networks)


@dataclass
class LawSelection:
    """Candidates for the law of some residuals, trained one after the other.

    Args:
        residuals: of the mean.
        gaussian: untrained Gaussian law.
        networks: laws with networks, from cheap to costly.
        terms: seed, folder, devices and deadline.
        earlier: names of laws that were compared on the residuals of an earlier mean.

    `reason` says why no network is tried; empty if some are.
    """

    residuals: MeanResiduals
    gaussian: Gaussian
    networks: Sequence[Candidate]
    terms: Terms
    earlier: Collection[str] = ()
    trials: Trials = field(init=False)

    def __post_init__(self) -> None:
        self.budget = self.terms.left()
        self.trials = Trials(self.residuals, [each.name for each in self.networks if each.name != LINEAR])
        self.final = set[str]()  # names of laws that were trained for the remaining time
        self.gaussian.learn(self.residuals.measured, self.residuals.held_out, self.terms)
        self._add(Gaussian.name, self.gaussian, 0.0)
        self.reason = self._nothing_to_learn()
        if not self.residuals.exact and self.residuals.representative:
            if self.residuals.measured is self.residuals.train:
                self._train(Resampled.name, lambda gaussian: Resampled(), self.terms)
                if self.residuals.train.components is not None:
                    self._train(PosteriorLaw.name, lambda gaussian: PosteriorLaw(), self.terms)
            if len(self.residuals.train) >= FEWEST_FOR_VALUES:
                self._train(Copula.name, lambda gaussian: Copula(), self.terms)
                if Censored.applies(self.residuals.train):
                    self._train(Censored.name, lambda gaussian: Censored(), self.terms)
            self._cross()

    def screen(self, share: float) -> "LawSelection":
        """Train each network for a short time, together for this share of the remaining time; return the selection.

        A single one is trained for all of the remaining time.
        """
        total = self.terms.left(share)
        tried = [each for each in self.networks if self._has_time(each)]
        if len(tried) == 1:
            self.only(tried[0].name)
            return self
        for each in tried:
            if each.name == Scaled.name and LINEAR in self.trials and self.trials.is_evident(LINEAR, Gaussian.name):
                self._skip(each.name, "what whole fields share is not Gaussian")
                continue
            if each.name == Diffused.name and not each.required and self.trials.has_curved_effects():
                self._skip(each.name, "a few numbers per field explain much of the residuals")
                continue
            seconds = None if total is None else total * each.weight / sum(other.weight for other in tried)
            if seconds is not None and seconds < FEWEST_SECONDS:
                if each.name != LINEAR or (self.terms.left() or 0.0) < 2 * FEWEST_SECONDS:  # which needs no training
                    self._skip(each.name, "there was no time for it")
                    continue
                seconds = FEWEST_SECONDS
            self._train(each.name, each.make, self._screening(each.name).within(seconds))
        return self

    def finish(self) -> LawChoice:
        """Train the most promising law of the screening for the remaining time; select the best law."""
        return self.only(self.trials.promising())

    def only(self, name: str) -> LawChoice:
        """Train the law of this name for the remaining time; select the best law.

        If it is that of linear statistics, the one with a network is trained, and compared with it. If it has no network, the
        most promising law that has one is trained, and compared with it.
        """
        made = {each.name for each in self.networks}
        if name not in made:
            name = largest({each: gain for each, gain in self.trials.gains(Gaussian.name).items() if each in made}, name)
        name = Statistics.name if name == LINEAR else name
        linear = next((each for each in self.networks if each.name == LINEAR), None)
        if name == Statistics.name and linear is not None and LINEAR not in self.trials and self._has_time(linear):
            self._train(LINEAR, linear.make, self._screening(LINEAR).within(self.terms.left(LINEAR_SHARE)))
        network = next((each for each in self.networks if each.name == name), None)
        if network is not None and name not in self.final and (self.budget is not None or name not in self.trials):
            self.final.add(name)
            self._train(name, network.make, self.terms.within(self.terms.left(FINAL_TRAINING)))
        return self.choice()

    def choice(self) -> LawChoice:
        """Return the best law so far, with the reasons."""
        law = None if self.reason else self.trials[self.trials.best()].law
        held_out = self.residuals.held_out
        note = law.tune(held_out, self.terms) if isinstance(law, Tunable) and held_out is not None else ""
        trained = [trial.law.networks for trial in self.trials.named.values() if trial.law is not None and trial.law.networks]
        networks = law.networks if law is not None and law.networks else trained[-1] if trained else ()
        return LawChoice(law or self.gaussian, [*self.summary(), *filter(None, [note])], networks)

    def _screening(self, name: str) -> Terms:
        """Return the terms of the screening of a law, with a folder of its own for each mean."""
        return self.terms.below(f"{name}-screening{'-again' if self.earlier else ''}")

    def _has_time(self, each: Candidate) -> bool:
        pairs = len(self.residuals.train)
        if pairs < each.fewest_pairs:
            self._skip(each.name, f"{pairs} training pairs are too few for networks")
            return False
        if self.budget is not None and self.budget < each.least_seconds:
            self._skip(each.name, f"there was no time for it, at least {each.least_seconds:.0f} s")
            return False
        return True

    def _skip(self, name: str, problem: str) -> None:
        self.trials.named[name] = Trial(None, None, problem=problem)
        self.terms.log(f"{name}: not tried, {problem}")

    def _train(self, name: str, make: Callable[[Gaussian], ResidualLaw], terms: Terms) -> None:
        """Train a candidate and score it; an earlier law of the same name is kept if it was better than chance allows."""
        begin = time.monotonic()
        try:
            law = make(self.gaussian)
            law.learn(self.residuals.train if law.has_own_size else self.residuals.enlarged, self.residuals.held_out, terms)
        except UserError as error:
            if any(each.required for each in self.networks if each.name == name):
                raise
            if name not in self.trials:
                self._skip(name, str(error))
            return
        before = self.trials.named.get(name)
        self._add(name, law, time.monotonic() - begin)
        if (
            before is not None
            and (change := self.trials.difference_of(self.trials[name], before)) is not None
            and change.is_decisive
        ):
            self.trials.named[name] = before  # such as a training that was cut short

    def _add(self, name: str, law: ResidualLaw, seconds: float) -> None:
        seconds_left = self.terms.left_here(1.0 if name in self.final else SCORE_SHARE)
        held_out = self.residuals.held_out
        scores = None if held_out is None else held_out_scores(law, held_out, seconds_left)
        self.trials.named[name] = Trial(law, scores, seconds=seconds)
        told = "" if scores is None else f"score {scores.mean():.3g} "
        self.terms.log(f"{name}: {told}({seconds:.0f} s)")

    def _cross(self) -> None:
        """Score the laws without networks on all training pairs if there are few held-out pairs: copies of them, by folds.

        In-sample residuals are not scored: what a mean has learned by heart looks like a law of single values.
        """
        train, held_out = self.residuals.train, self.residuals.held_out
        if not self.residuals.out_of_fold:
            return
        if (held_out is not None and len(held_out) >= ENOUGH_HELD_OUT) or train.values.size > MOST_CROSSED:
            return
        if len(np.unique(train.pairs.labels())) < FOLDS:
            return
        units, seconds = Units.of(train.values, train.mask), self.terms.left_here()
        if seconds is not None:
            seconds = min(max(CROSS_SHARE * seconds, CROSS_SECONDS), MOST_CROSS_SHARE * seconds)
        share = self.terms.within(seconds)
        for trial, law in self._candidates_for_folds():
            scores = np.empty(len(train))
            for kept, left in folds(len(train), FOLDS, train.groups(), self.terms.seed):
                if share.left() == 0:
                    return
                copy = deepcopy(law).learn(train[kept], None, self.terms)
                scores[left] = copy.score(train[left], SCORE_MEMBERS, units=units)
            trial.crossed = scores

    def _candidates_for_folds(self) -> list[tuple[Trial, ResidualLaw]]:
        """Return the Gaussian law, and those that are better than it on held-out pairs, by chance or not, best first."""
        trained = [(trial, trial.law, trial.scores) for trial in self.trials.named.values() if trial.law is not None]
        ordered = sorted(trained, key=lambda each: np.inf if each[2] is None else float(each[2].mean()))
        usual = self.trials[Gaussian.name].scores
        better = [
            (trial, law) for trial, law, scores in ordered if usual is None or scores is None or scores.mean() < usual.mean()
        ]
        return [(self.trials[Gaussian.name], self.gaussian), *better]

    def _nothing_to_learn(self) -> str:
        """Return why no network is tried; empty if some are."""
        residuals, spread = self.residuals, self.gaussian.spread
        if residuals.exact:
            return "predictions of the mean are exact up to rounding"
        if not residuals.representative:
            return "those of the training pairs are not representative, as the mean is overfitted"
        r = spread.normalised(residuals.train, self.terms.seed, "train")
        pairs, values = residuals.train.pairs, residuals.train.values
        if (
            spread.is_homoscedastic
            and looks_gaussian(pairs.along(r), None if pairs.mask is None else pairs.along(pairs.mask))
            and components_look_gaussian(values[: max(FEWEST_TESTED, TESTED_VALUES // values[0].size)])
        ):
            return "they pass all tests of white, homoscedastic Gaussian noise"
        return ""

    def summary(self) -> list[str]:
        """Return what was tried, what was selected, and what there was no time for."""
        best = self.trials.best()
        sentences = [f"Residual scale: {self.gaussian.spread.describe()}."]
        if self.reason:
            return [*sentences, f"Residuals are taken as Gaussian: {self.reason}."]
        others = {name: self.trials.difference("gaussian", name) for name in self.trials.named if name != "gaussian"}
        compared = [f"{name} {difference.describe()}" for name, difference in others.items() if difference is not None]
        if compared:
            score = "Scores (⅓ (CRPS + energy score + that of increments)) on held-out pairs, relative to Gaussian residuals"
            ratios = f"{score}: {', '.join(compared)}"
            result = "no other law is better than chance allows" if best == "gaussian" else f"the law {best!r} was kept"
            if self.trials.is_evident(best, "gaussian"):
                result += ": what whole fields share is not Gaussian by its likelihood on held-out pairs"
            sentences.append(f"{ratios}; {result}.")
        law = self.trials[best].law
        if law is not None and best != "gaussian":
            sentences.append(law.describe())
        for name, problem in {name: trial.problem for name, trial in self.trials.named.items() if trial.problem}.items():
            tried = "was not tried again for the final mean" if name in self.earlier else "was not tried"
            sentences.append(f"The law {name!r} {tried}: {problem}.")
        return sentences
