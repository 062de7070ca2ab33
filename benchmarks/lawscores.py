r"""Scores of members relative to those of draws of the true distribution itself, added up over blocks of inputs.

The 90 % interval of M members ranges from the k-th smallest to the k-th largest with k = .05 (M + 1). A further draw of the
distribution of the members is then inside with probability (M + 1 − 2k)/(M + 1) = .9 exactly. Quantiles of the members
themselves would cover less: with 50 members .87.
"""

from collections.abc import Callable

import numpy as np

from pdno._typing import Array
from pdno.evaluation import metrics

__all__ = ["MEMBERS", "Scores"]

MEMBERS = 99  # for which k = 5 exactly
TAIL = 0.05  # probability below and above an interval
SPREAD_TENTH = 0.9  # quantile of the true spread above which places count as those of largest spread
ROUNDING = 1e-9  # by which observations may be outside of an interval, in units of the standard deviation of a channel


class Scores:
    """Scores and coverage of the members of a model, with draws of the truth for comparison.

    Args:
        unit: standard deviation of each channel, in which its values are counted, (channel, 1, …).
    """

    def __init__(self, unit: Array) -> None:
        self.unit = unit
        self.parts: dict[str, list[Array]] = {}

    def add(self, members: Array, truth: Array, observed: Array) -> None:
        """Add some inputs.

        Args:
            members: of the model, (member, sample, channel, *grid).
            truth: draws of the law itself, likewise.
            observed: one further draw of the law, (sample, channel, *grid).
        """
        y, axes = observed / self.unit, tuple(range(1 - self.unit.ndim, 0))
        for source, drawn in (("model", members), ("truth", truth)):
            x = drawn / self.unit
            self._keep(f"{source}_crps", metrics.crps(x, y).each)
            self._keep(f"{source}_energy", metrics.energy_score(x, y).each)
            self._keep(f"{source}_variance", x.var(axis=0, ddof=1))
            for name, functional in FUNCTIONALS.items():
                self._keep(f"{source}_{name}", inside(functional(x, axes), functional(y, axes)))

    def _keep(self, name: str, values: Array) -> None:
        self.parts.setdefault(name, []).append(values)

    def values(self) -> dict[str, float]:
        """Return the scores over all inputs.

        Returns:
            Ratios of CRPS and energy score to those of the truth, the ratio of standard deviations, and coverage of 90 %
            intervals of values, of values where the true spread is largest, and of mean, maximum and roughness of the field.
            Coverage by draws of the truth has the prefix "truth_"; it is above .9 where the distribution is discrete.
        """
        whole = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        crps, energy, variance = (
            whole[f"model_{x}"].mean() / whole[f"truth_{x}"].mean() for x in ("crps", "energy", "variance")
        )
        wide = whole["truth_variance"]
        largest = wide >= np.quantile(wide, SPREAD_TENTH)
        coverage = {}
        for source, prefix in (("model", ""), ("truth", "truth_")):
            coverage[f"{prefix}coverage_90"] = whole[f"{source}_value"].mean()
            coverage[f"{prefix}coverage_90_largest_spread"] = whole[f"{source}_value"][largest].mean()
            for name in ("mean", "maximum", "roughness"):
                coverage[f"{prefix}coverage_90_{name}"] = whole[f"{source}_{name}"].mean()
        scores = {"crps_ratio": crps, "energy_ratio": energy, "std_ratio": np.sqrt(variance)}
        return {name: float(value) for name, value in {**scores, **coverage}.items()}


def inside(members: Array, observed: Array) -> Array:
    """Return whether observations are within the 90 % interval of members, in the shape of the observations."""
    count = len(members)
    rank = round(TAIL * (count + 1))
    ordered = np.partition(members, (rank - 1, count - rank), axis=0)
    return np.asarray((observed >= ordered[rank - 1] - ROUNDING) & (observed <= ordered[count - rank] + ROUNDING))


Axes = tuple[int, ...]  # of the grid: (-1,) or (-2, -1)


def _value(u: Array, axes: Axes) -> Array:
    return u


def _mean(u: Array, axes: Axes) -> Array:
    return np.asarray(u.mean(axis=axes))


def _maximum(u: Array, axes: Axes) -> Array:
    return np.asarray(u.max(axis=axes))


def _roughness(u: Array, axes: Axes) -> Array:
    """Return the root mean square of differences of neighbours, averaged over the axes of the grid."""
    return np.asarray(np.sqrt(np.mean([np.square(np.diff(u, axis=axis)).mean(axis=axes) for axis in axes], axis=0)))


FUNCTIONALS: dict[str, Callable[[Array, Axes], Array]] = {
    "value": _value,
    "mean": _mean,
    "maximum": _maximum,
    "roughness": _roughness,
}
