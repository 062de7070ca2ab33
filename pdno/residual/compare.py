r"""Comparison of residual laws: by how much the score of one is lower than that of another, and how much chance allows.

Scores are those of `ResidualLaw.score` for the same held-out pairs. The error of their mean difference counts dependent pairs
as what they are (`pdno.evaluation.dependence`).
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from .._typing import Array, Ints
from ..evaluation.dependence import stderr_of_mean

__all__ = ["Difference"]

LEVEL = 0.975  # quantile of the error of a difference
LEAST_GAIN = 0.01  # relative difference that is never decisive


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

    def describe(self) -> str:
        """Return the ratio of the two scores with its standard error."""
        return f"{1 - self.gain:.3f} ± {self.stderr:.3f}"
