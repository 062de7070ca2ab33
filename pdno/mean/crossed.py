"""Selection of the mean by cross-validation, for few runs with few parameters: no run is held out, all are trained on.

    constant → linear → kernel (if inputs are fields) → process

Errors are those of `pdno.mean.choose`, of out-of-fold residuals: all settings of a candidate are selected again in each fold.
A run that is left out of a space-filling design is farther from the others than a new run usually is. If the process is
selected, its error is therefore multiplied by the ratio of its posterior sizes at new inputs and at left-out runs
(`pdno.mean.process.promise`).
Of candidates whose errors differ by less than one standard error of the difference, the cheapest is selected. Fewer than
COMPARED runs cannot compare candidates; the process, which its priors keep simple, is taken then.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from ..errors import UserError
from ..learning.budget import Terms
from .base import Mean, refitted
from .choice import Choice, Trial
from .choose import EXACT
from .compare import equally_good, mean_absolute, unit_of_errors
from .constant import Constant
from .kernel.kernel import Kernel
from .linear.linear import Linear
from .process.process import Process
from .process.promise import size_at_new_inputs

__all__ = ["FEW", "cross_validated", "suits"]

FEW = 300  # pairs up to which no pair is held out
COMPARED = 20  # pairs that can compare candidates
FOLDS = 10


def suits(pairs: Pairs) -> bool:
    """Return whether a few independent pairs with few coordinates have outputs that are observed at the same nodes."""
    independent = len(np.unique(pairs.labels()))
    return 3 < independent <= len(pairs) <= FEW and Process.suits(pairs)


def cross_validated(pairs: Pairs, terms: Terms, shared: Mapping[str, Any]) -> Choice:
    """Select and train a mean.

    Args:
        pairs: few ones, all of which are trained on.
        terms: seed and devices; `terms.log` receives a line for each candidate.
        shared: symmetries and kinds of axes, for all means that take them.
    """
    candidates: dict[str, Mean] = {Process.name: Process()}
    if len(pairs) >= COMPARED:
        fields = {Kernel.name: Kernel(**shared)} if np.ptp(pairs.a, axis=0).max(initial=0.0) > 0 else {}
        candidates = {Constant.name: Constant(**shared), Linear.name: Linear(), **fields, **candidates}
    unit = unit_of_errors(pairs, pairs.filled.mean(axis=0))
    trials, errors = [], {}
    for name, mean in candidates.items():
        begin = time.monotonic()
        try:
            mean.learn(pairs, None, terms)
            errors[name] = mean_absolute(_residuals(mean, pairs, terms.seed), pairs.mask) / unit
        except UserError as problem:
            if len(candidates) == 1:
                raise
            trials.append(Trial(name, None, str(problem)))
            continue
        error, seconds = float(errors[name].mean()), time.monotonic() - begin
        trials.append(Trial(name, error, mean.describe(), seconds))
        terms.log(f"{name}: relative error {error:.3g} by cross-validation ({seconds:.0f} s)")
    best = equally_good(errors, pairs.labels())[0]
    mean = candidates[best]
    ratio = size_at_new_inputs(mean, pairs, terms.seed)
    trials = [replace(t, error=ratio * t.error) if t.name == best and t.error is not None else t for t in trials]
    if ratio != 1:
        terms.log(f"{best}: relative error {ratio * errors[best].mean():.3g} expected for new inputs")
    exact = float(errors[best].mean(axis=0).max()) < EXACT
    reason = "it has the smallest error by cross-validation" if len(errors) > 1 else f"{len(pairs)} runs are too few to compare"
    return Choice(mean, tuple(replace(t, selected=t.name == best) for t in trials), _sentence(best, reason), exact)


def _residuals(mean: Mean, pairs: Pairs, seed: int) -> Array:
    """Return residuals of folds in which all settings of the mean are selected again."""
    labels = pairs.shared_labels()
    if mean.nested:
        return mean.residuals(pairs.a, pairs.filled, pairs.scalars, labels, seed=seed)
    return refitted(mean, pairs.a, pairs.filled, pairs.scalars, labels, FOLDS, seed)


def _sentence(name: str, reason: str) -> str:
    title = {Constant.name: "The training mean", Process.name: "A Gaussian process of principal components"}
    return f"{title.get(name, f'{name.capitalize()} regression')} was selected: {reason}"
