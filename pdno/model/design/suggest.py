"""Where to run next: inputs whose outputs reduce the expected error of a model most.

Inputs are selected one after the other from a pool, or from low-discrepancy points (Sobol) of a box of parameters. Each is the
one with the largest reduction g of the expected squared error, summed over the whole pool or box, given all that were selected
before it (`pdno.model.design.belief`). A batch therefore does not repeat itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import qmc

from ..._typing import Array, Floats, Ints
from ...data.dataset import Dataset
from ...data.pairs import Pairs
from ...data.spaces import Spaces
from ...draw import generator
from ...errors import UserError, nearest
from ..law import positive
from ..surrogate import Surrogate
from .belief import Belief

__all__ = ["Design", "box_of", "points_of", "suggest"]

CANDIDATES = 512  # points of a box, and largest number of rows of a pool that are compared

Box = Mapping[str, tuple[float, float]] | Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Design:
    """Inputs to run next, the most useful first.

    Args:
        parameters: of each, a column for each parameter, with the names of training.
        rows: of the pool, (count,); None for points of a box.
        std: expected error of the model at each, the root of its mean square over the field, (count,).
        remaining: expected squared error, averaged over the pool or box, after each run, relative to the present: (count,).
    """

    parameters: pd.DataFrame
    rows: Ints | None
    std: Floats
    remaining: Floats


def suggest(
    model: Surrogate,
    pool: Any = None,
    count: int = 10,
    *,
    box: Box | None = None,
    data: Dataset | Pairs | None = None,
    seed: int = 0,
) -> Design:
    """Return the inputs whose outputs would reduce the expected error most.

    Args:
        model: a trained one.
        pool: inputs to select from: a table or array of parameters (sample, parameter), `Pairs`, or (a, scalars). Its
            distribution weighs the errors.
        count: number of inputs.
        box: ranges of the parameters to select from, by name or in their order; default: those of the training pairs. For
            models without a field input.
        data: the training pairs. Models other than Gaussian processes need them to keep away from training inputs.
        seed: of the points of a box, and of the rows of a large pool.

    Raises:
        UserError: if pool or box do not fit the model, or the pool has too few different inputs.

    >>> import pdno
    >>> x = np.array([0.0, 0.1, 0.2, 0.3, 0.9, 1.0])[:, None]
    >>> model = pdno.baseline.Deterministic("process")
    >>> model.fit(None, np.sin(3 * x * np.linspace(0, 1, 8)), scalars=x, validation=0) is model
    True
    >>> design = suggest(model, count=2)
    >>> bool(0.3 < design.parameters["p1"][0] < 0.9)
    True
    """
    spaces, count = model.spaces, positive(count, "count")
    if pool is not None and box is not None:
        raise UserError("both a pool and a box were given; give one of them")
    rows: Ints | None = None
    if pool is None:
        a, scalars = spaces.inputs(None, points_of(box_of(spaces, box), max(CANDIDATES, 2 * count), seed))
    else:
        a, scalars, rows = _candidates(spaces, pool, count, seed)
    train = data.train if isinstance(data, Dataset) else data
    belief = Belief.of(model.fitted, a, scalars, None if train is None else (train.a, train.scalars))
    std, chosen, remaining = belief.std, *_greedy(belief, _labels(a, scalars), count)
    table = pd.DataFrame(np.zeros((count, 0)) if scalars is None else scalars[chosen], columns=list(spaces.parameters))
    return Design(table, None if rows is None else rows[chosen], std[chosen], remaining)


def _greedy(belief: Belief, labels: Ints, count: int) -> tuple[Ints, Floats]:
    """Return rows of the candidates, none of them with equal labels, and what remains of the expected squared error."""
    if (different := len(np.unique(labels))) < count:
        raise UserError(f"{count} inputs are to be selected from {different} different ones; give a larger pool")
    before = max(float(np.square(belief.std).sum()), np.finfo(float).tiny)
    free, chosen, remaining = np.ones(len(labels), dtype=bool), [], []
    for _ in range(count):
        chosen.append(int(np.where(free, belief.gains(), -np.inf).argmax()))
        belief.observe(chosen[-1])
        free &= labels != labels[chosen[-1]]
        remaining.append(float(np.square(belief.std).sum()) / before)
    return np.array(chosen), np.array(remaining)


def _candidates(spaces: Spaces, pool: Any, count: int, seed: int) -> tuple[Array, Array | None, Ints]:
    """Return inputs of a pool and the numbers of their rows; of a large pool, a random part."""
    given = (pool.a, pool.scalars) if isinstance(pool, Pairs) else pool if isinstance(pool, tuple) else (None, pool)
    if spaces.scalars == 0 and not isinstance(pool, Pairs | tuple):
        given = (pool, None)
    a, scalars = spaces.inputs(*given)
    rows = np.sort(generator(seed, "suggest", 0).permutation(len(a))[: max(CANDIDATES, 2 * count)])
    return a[rows], None if scalars is None else scalars[rows], rows


def _labels(a: Array, scalars: Array | None) -> Ints:
    """Return a number for each input, equal for equal ones."""
    flat = a.reshape(len(a), -1) if scalars is None else np.concatenate([a.reshape(len(a), -1), scalars], axis=1)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1)


def box_of(spaces: Spaces, box: Box | None = None) -> Floats:
    """Return the ranges of all parameters, (parameter, 2): those given, else those of training.

    Raises:
        UserError: if the model has a field input or no ranges, or a range is unknown, empty or not finite.
    """
    names = spaces.parameters
    if not spaces.without_field:
        raise UserError("this model has a field input, which a box of parameters does not describe; give a pool of inputs")
    if box is not None and not isinstance(box, Mapping):
        if len(box) != len(names):
            raise UserError(f"got {len(box)} ranges, expected one for each of {', '.join(names)}; name them to give some only")
        box = dict(zip(names, box, strict=True))
    for name in box or {}:
        if name not in names:
            raise UserError(f"there is no parameter {name!r}; {nearest(name, names)}")
    ranges = np.array([(box or {}).get(name, pair) for name, pair in zip(names, spaces.ranges, strict=True)], dtype=np.float64)
    for name, (low, high) in zip(names, ranges, strict=True):
        if not (np.isfinite(low) and np.isfinite(high) and low <= high) or (name in (box or {}) and low == high):
            raise UserError(f"the range of {name!r} is {low:g} to {high:g}; expected two numbers, the smaller one first")
    return ranges


def points_of(ranges: Floats, count: int, seed: int = 0) -> Floats:
    """Return at least `count` low-discrepancy points of a box (parameter, 2): (point, parameter)."""
    sobol = qmc.Sobol(len(ranges), rng=np.random.default_rng(int(generator(seed, "box", 0).integers(2**63))))
    unit = sobol.random_base2(int(np.ceil(np.log2(max(count, 2)))))
    return np.asarray(ranges[:, 0] + unit * (ranges[:, 1] - ranges[:, 0]))
