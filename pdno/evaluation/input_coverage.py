"""Coverage input by input: intervals that are calibrated on average may cover nearly all of one input and little of another.

    c_i = share of the observed points of input i that are inside their intervals.

The median, the lowest decile and the worst of c_i stand beside their average, with standard errors by resampling inputs. They
have no nominal values: where errors are shared by a whole field, c_i is near 0 or 1 also for a perfect model. The lowest decile
of members of the model, in place of observations, is therefore given beside them: one far below it is a defect.
"""

from collections.abc import Iterator

import numpy as np

from .._typing import Array, Floats, Ints, Mask
from ..draw import generator
from .score import Score

__all__ = ["QUANTILES", "by_input", "input_coverage", "member_decile"]

QUANTILES = {"median": 0.5, "lowest_decile": 0.1, "worst": 0.0}  # of coverage over inputs
MIN_INPUTS = 10  # for a lowest decile
MIN_POINTS = 20  # of a field: with fewer, coverage of one input is a coarse number
RESAMPLED = 200  # sets of inputs from which standard errors are estimated


def input_coverage(inside: Mask, mask: Mask | None = None, groups: Ints | None = None) -> dict[str, Score]:
    """Return quantiles of the coverage of single inputs.

    Args:
        inside: whether each observation is inside its interval, (sample, channel, *grid).
        mask: True where u is observed.
        groups: labels of dependent inputs, (sample,), which are resampled together.

    Returns:
        Scores by the names of QUANTILES; none if there are too few inputs or points.

    >>> inside = np.arange(40) < np.array([40, 20, 38] * 10)[:, None]
    >>> {name: score.value for name, score in input_coverage(inside[:, None]).items()}
    {'median': 0.95, 'lowest_decile': 0.5, 'worst': 0.5}
    """
    each = by_input(inside, mask)
    if len(each) < MIN_INPUTS or inside[0].size < MIN_POINTS:
        return {}
    present = np.ones(len(inside), dtype=bool) if mask is None else mask.reshape(len(mask), -1).any(axis=1)
    labels = np.arange(len(each)) if groups is None else np.asarray(groups)[present]
    resampled = [each[rows] for rows in _resamples(labels)]
    quantiles = {name: np.array([np.quantile(values, level) for values in resampled]) for name, level in QUANTILES.items()}
    return {name: Score(float(np.quantile(each, QUANTILES[name])), float(q.std()), each) for name, q in quantiles.items()}


def member_decile(shown: Array, lower: Floats, upper: Floats, mask: Mask | None = None) -> Score:
    """Return the lowest decile of coverage of members in place of observations, averaged over the members.

    Args:
        shown: some members, (sample, member, channel, *grid).
        lower, upper: bounds of the intervals, (sample, channel, *grid).
        mask: True where u is observed.
    """
    inside = (lower[:, None] <= shown) & (shown <= upper[:, None])
    # each: the decile of every member, which shows how much it varies by chance
    return Score.mean([np.quantile(by_input(part, mask), QUANTILES["lowest_decile"]) for part in inside.swapaxes(0, 1)])


def by_input(inside: Mask, mask: Mask | None = None) -> Floats:
    """Return c_i of the inputs with observed points, (sample,)."""
    present = np.ones(inside.shape, dtype=bool) if mask is None else mask
    axes = tuple(range(1, inside.ndim))
    points = present.sum(axis=axes)
    return np.asarray((inside & present).sum(axis=axes)[points > 0] / points[points > 0])


def _resamples(labels: Ints) -> Iterator[Ints]:
    """Yield rows of inputs, resampled by their labels."""
    _, number = np.unique(labels, return_inverse=True)
    parts = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    for drawn in generator(0, "input coverage", 0).integers(len(parts), size=(RESAMPLED, len(parts))):
        yield np.concatenate([parts[i] for i in drawn])
