r"""Comparison of residual laws: by how much the score of one is lower than that of another, and how much chance allows.

Scores are those of `ResidualLaw.score` for the same held-out pairs. The error of their mean difference counts dependent pairs
as what they are (`pdno.evaluation.dependence`).
"""

import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from .._typing import Array, Ints
from ..evaluation.dependence import stderr_of_mean
from .law import ResidualLaw, Residuals
from .score import Units

__all__ = ["SCORE_MEMBERS", "Difference", "held_out_scores", "is_evident"]

LEVEL = 0.975  # quantile of the error of a difference
EVIDENT = 3.0  # standard errors of a likelihood
LEAST_GAIN = 0.001  # relative difference that is never decisive
SCORE_PAIRS = 200  # held-out pairs on which laws are compared
FEWEST_SCORED = 50  # pairs, if time is short
FEW_MEMBERS = 16  # likewise, of a law that takes several network evaluations per member
MOST_SCORED = 2**25  # values of all members of the pairs on which a law is scored, which are in memory
SCORE_MEMBERS = 64  # drawn for each pair: with few, scores of laws of what a field shares are noisy


@dataclass(frozen=True)
class Difference:
    """Scores of two laws for the same held-out pairs.

    Args:
        gain: by which share of the first score the second is lower.
        stderr: standard error of `gain`.
        groups: number of independent pairs.
    """

    gain: float
    stderr: float
    groups: int

    @classmethod
    def of(cls, old: Array, new: Array, labels: Ints) -> "Difference":
        """Compare two laws.

        Args:
            old, new: scores of the two laws for held-out pairs, (sample,); if one has more pairs, the others are ignored.
            labels: equal for pairs that are not independent, (sample,).

        >>> rng = np.random.default_rng(0)
        >>> old = 1 + 0.1 * rng.random(50)
        >>> bool(Difference.of(old, 0.9 * old, np.arange(50)).is_decisive), Difference.of(old, old, np.arange(50)).is_decisive
        (True, False)
        """
        count = min(len(old), len(new))
        difference, unit, some = old[:count] - new[:count], max(float(old[:count].mean()), 1e-300), labels[:count]
        return cls(float(difference.mean() / unit), stderr_of_mean(difference, some) / unit, len(np.unique(some)))

    @property
    def is_decisive(self) -> bool:
        """Whether the second law is better than chance allows."""
        if self.groups < 2:
            return False
        return self.gain > max(LEAST_GAIN, float(student.ppf(LEVEL, self.groups - 1)) * self.stderr)

    @property
    def is_likely(self) -> bool:
        """Whether the second law has a lower score, by more than one standard error."""
        return self.gain > max(LEAST_GAIN, self.stderr)

    @property
    def is_worse(self) -> bool:
        """Whether the second law has a higher score, by more than one standard error."""
        return self.gain < -self.stderr

    def describe(self) -> str:
        """Return the ratio of the two scores with its standard error."""
        return f"{1 - self.gain:.3f} ± {self.stderr:.3f}"


def is_evident(gains: Array, labels: Ints) -> bool:
    """Return whether log-likelihoods of held-out pairs are higher than those of another law by more than chance allows.

    Modes of what fields share change a score of draws by a few per cent, less than a hundred pairs can show. The likelihood of
    the shared numbers shows them with a few dozen.

    Args:
        gains: differences of log-likelihoods, (sample,).
        labels: equal for pairs that are not independent, (sample,).
    """
    return len(np.unique(labels)) > 1 and float(gains.mean()) > EVIDENT * stderr_of_mean(gains, labels)


def held_out_scores(law: ResidualLaw, held_out: Residuals, seconds: float | None) -> Array:
    """Return the scores of a law on some held-out pairs, (sample,): as many as time and memory allow.

    Args:
        law: trained.
        held_out: residuals of held-out pairs.
        seconds: that it may take; None for no limit.
    """
    units = Units.of(held_out.values, held_out.mask)
    law.score(held_out[:1], 2, units=units)  # the first draws include set-up
    most = MOST_SCORED // held_out.values[0].size  # fields, of all members
    members = SCORE_MEMBERS if law.evaluations() <= 2 and most >= SCORE_MEMBERS * FEWEST_SCORED else FEW_MEMBERS
    pairs = min(SCORE_PAIRS, max(1, most // members))
    few, begin = held_out[: min(FEWEST_SCORED, pairs)], time.monotonic()
    first = law.score(few, members, units=units)
    pace = max((time.monotonic() - begin) / len(few), 1e-6)
    count = pairs if seconds is None else min(pairs, max(len(few), int(seconds / pace)))
    more = held_out[len(few) : count]
    return first if not len(more) else np.concatenate([first, law.score(more, members, first=len(few), units=units)])
