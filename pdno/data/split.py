"""Divide pairs into splits and folds such that dependent pairs stay on one side.

Pairs of one group, or pairs with equal inputs (repeated noisy observations), are not independent: a model that was trained on
one of them is not evaluated on the others, or its scores would be optimistic. Consecutive samples of a series are grouped into
blocks (`pdno.data.series`).
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._typing import Ints
from ..draw import generator
from ..errors import UserError

if TYPE_CHECKING:
    from .pairs import Pairs

__all__ = ["divide", "folds", "one_of_each", "some_rows"]

Rows = NDArray[np.intp]


def divide(pairs: "Pairs", fractions: Mapping[str, float], seed: int) -> dict[str, Rows]:
    """Hold out a fraction of the pairs for each of some splits.

    Args:
        pairs: to be divided. Without groups, pairs with equal inputs stay together unless there are too few different inputs.
        fractions: of the independent pairs, by name of the split; 0 leaves a split empty.
        seed: of the random choice.

    Returns:
        Rows of each split, ascending, and those that are left under "train".

    Raises:
        UserError: if fractions are negative, sum to 1 or more, or there are too few independent pairs.
    """
    if not (all(f >= 0 for f in fractions.values()) and sum(fractions.values()) < 1):
        raise UserError(f"got the fractions {dict(fractions)}; fractions must not be negative and must sum to less than 1")
    if not len(pairs):
        raise UserError("there are no pairs: the arrays are empty; provide more pairs")
    labels = _dependent(pairs, min((f for f in fractions.values() if f), default=1.0))
    independent = np.unique(labels)
    shuffled = generator(seed, "split", 0).permutation(independent)
    rows, begin = {}, 0
    for split, fraction in fractions.items():
        end = begin + (max(1, round(fraction * len(independent))) if fraction else 0)
        if fraction and end >= len(independent):
            raise UserError(
                f"{len(independent)} independent pairs are too few to hold out a fraction of {fraction:g} for {split}; "
                "provide more pairs"
            )
        rows[split] = np.flatnonzero(np.isin(labels, shuffled[begin:end]))
        begin = end
    rows["train"] = np.flatnonzero(np.isin(labels, shuffled[begin:]))
    return rows


def _dependent(pairs: "Pairs", smallest: float) -> Ints:
    """Return a label for each pair, equal for dependent pairs: its group, else the first row with the same input.

    Without groups all labels differ if the different inputs are too few to hold out the `smallest` fraction of them.
    """
    if pairs.group is not None:
        return np.asarray(pairs.group)
    _, first, inverse = np.unique(pairs.fingerprints(), return_index=True, return_inverse=True)
    return np.arange(len(pairs)) if smallest * len(first) < 1 else first[inverse.reshape(-1)]


def some_rows(samples: int, most: int, seed: int = 0) -> Rows:
    """Return at most this number of rows, drawn at random, ascending: the first rows of a sorted file are not a sample."""
    return np.sort(generator(seed, "rows", 0).permutation(samples)[:most])


def one_of_each(groups: Ints | None, samples: int, seed: int = 0) -> Rows:
    """Return one row of each group, drawn at random, ascending; all rows without groups.

    A random member of a new group is exchangeable with these rows. The first rows of groups are no sample of them: those of
    trajectories are initial values.
    """
    if groups is None:
        return np.arange(samples)
    rows = generator(seed, "one of each", 0).permutation(samples)
    return np.sort(rows[np.unique(np.asarray(groups)[rows], return_index=True)[1]])


def folds(samples: int, count: int, group: Ints | None = None, seed: int = 0) -> Iterator[tuple[Rows, Rows]]:
    """Divide samples into folds at random for cross-validation.

    Args:
        samples: number of samples.
        count: number of folds; fewer if there are fewer independent samples.
        group: labels, (sample,); samples with equal labels are in one fold.
        seed: of the random choice.

    Yields:
        For each fold, the rows to train on and the rows that are held out, both ascending.

    Raises:
        UserError: if there are fewer than two independent samples.
    """
    labels = np.arange(samples) if group is None else np.unique(group, return_inverse=True)[1]
    independent = generator(seed, "folds", 0).permutation(int(labels.max()) + 1 if samples else 0)
    count = min(count, len(independent))
    if count < 2:
        raise UserError(f"{len(independent)} independent pairs cannot be divided into folds; provide at least two")
    for k in range(count):
        held_out = np.isin(labels, independent[k::count])
        yield np.flatnonzero(~held_out), np.flatnonzero(held_out)
