"""Trained laws with their scores on the same pairs, and the comparisons by which one of them is selected.

A law is better than another one if the mean difference of their scores is more than chance allows (`pdno.residual.compare`).
One standard error suffices for the law that is tried only where many outputs are at a bound. There is also evidence beside
scores: numbers that whole fields share are not Gaussian, by their likelihood on held-out pairs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .._typing import Array
from .candidates import LINEAR
from .censored import Censored
from .compare import Difference, is_evident
from .copula import Copula
from .diffused import Diffused
from .gaussian import Gaussian
from .law import MeanResiduals, ResidualLaw
from .posterior import PosteriorLaw
from .resampled import Resampled
from .statistics import Statistics

__all__ = ["Trial", "Trials", "largest"]

SIMPLE = (PosteriorLaw.name, Resampled.name, Copula.name, Censored.name)  # laws without a network, beside the Gaussian one
NETWORK_GAIN = 0.01  # of statistics with a network over linear ones, at least
PROMISING = 0.2  # share of the variance that a few numbers explain, or of what principal components leave unexplained


@dataclass
class Trial:
    """A trained law and its scores.

    Args:
        law: None if it could not be trained.
        scores: for each held-out pair; None if there are none.
        crossed: for each training pair, of copies that were trained without it; None if they were not needed.
        seconds: training time.
        problem: why it was not tried.
    """

    law: ResidualLaw | None
    scores: Array | None
    crossed: Array | None = None
    seconds: float = 0.0
    problem: str = ""


@dataclass
class Trials:
    """Laws that were trained for the residuals of one mean.

    Args:
        residuals: of the mean.
        networks: names of the laws that train a network.
        named: the trials by the name of the law.
    """

    residuals: MeanResiduals
    networks: Collection[str] = ()
    named: dict[str, Trial] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.named

    def __getitem__(self, name: str) -> Trial:
        return self.named[name]

    def tried(self) -> list[str]:
        """Return the names of laws that could be trained."""
        return [name for name, trial in self.named.items() if trial.law is not None]

    def promising(self) -> str:
        """Return the law that is worth further training, after which it is compared with cheaper ones, see `best`.

        It is a law whose few numbers per field explain much of the variance, unless another network is better by more than
        chance allows, or else the law with the lowest score of those that are better than a Gaussian by more than chance
        allows.
        """
        shared = {name: trial.law.shared for name, trial in self.named.items() if trial.law is not None}
        if max(shared.values()) > PROMISING:
            first = largest(shared, Gaussian.name)
            gains = self.gains(first, evidence=False)
            return largest({name: gain for name, gain in gains.items() if name in self.networks}, first)
        return largest(self.gains(Gaussian.name), Gaussian.name)

    def has_curved_effects(self) -> bool:
        """Whether a few numbers per field explain residuals much better than as many principal components."""
        return any(trial.law is not None and trial.law.shared > PROMISING for trial in self.named.values())

    def is_shared(self, name: str) -> bool:
        """Whether a law models randomness that a whole field shares, and which limits the prediction."""
        law = self[name].law
        return law is not None and (name == Diffused.name or law.explained > PROMISING)

    def best(self) -> str:
        """Return the name of the best law.

        Laws without a network must be better than a Gaussian by more than chance allows, and laws with networks better than the
        best one of these; of several such laws, the one with the lowest score is the best. Statistics with a network must be
        better than linear ones by a standard error, and by a hundredth: errors of its numbers depend on the input.
        """
        simple = largest({name: gain for name, gain in self.gains(Gaussian.name).items() if name in SIMPLE}, Gaussian.name)
        gains = self.gains(simple)
        if LINEAR in gains and Statistics.name in gains:
            change = self.difference(LINEAR, Statistics.name)
            if change is None or change.gain < max(NETWORK_GAIN, change.stderr):
                gains.pop(Statistics.name)
        return largest(gains, simple)

    def gains(self, old: str, evidence: bool = True) -> dict[str, float]:
        """Return the laws that are better than this one by more than chance allows, with their gain; by evidence as well."""
        differences = {name: self.difference(old, name) for name, trial in self.named.items() if trial.law is not None}
        return {
            name: each.gain
            for name, each in differences.items()
            if each is not None
            and (
                each.is_decisive
                or (name == Censored.name and each.is_likely)
                or (evidence and not each.is_worse and self.is_evident(name, old))
            )
        }

    def is_evident(self, name: str, old: str) -> bool:
        """Whether the numbers that whole fields share, which this law models and the old one does not, are not Gaussian."""
        law, held_out = self[name].law, self.residuals.held_out
        if law is None or law.evidence is None or held_out is None or old == Resampled.name:
            return False
        return law.explained > PROMISING and is_evident(law.evidence, held_out.pairs.labels())

    def difference(self, old: str, new: str) -> Difference | None:
        """Return the difference of two scores; None if one has not been measured."""
        return self.difference_of(self[old], self[new])

    def difference_of(self, old: Trial, new: Trial) -> Difference | None:
        if old.crossed is not None and new.crossed is not None:
            return Difference.of(old.crossed, new.crossed, self.residuals.train.pairs.labels())
        held_out = self.residuals.held_out
        if old.scores is None or new.scores is None or held_out is None:
            return None
        return Difference.of(old.scores, new.scores, held_out.pairs.labels())


def largest(values: Mapping[str, float], otherwise: str) -> str:
    """Return the name with the largest value; `otherwise` if there are none."""
    return max(values, key=lambda name: values[name]) if values else otherwise
