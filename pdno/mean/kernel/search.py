"""The search for the hyper-parameters of kernel regression, by Σ r² of leave-one-out residuals.

    1. κ, ℓ, s, α, logarithms and the weight of scalars     COARSE pairs, without symmetric copies
    2. ℓ, s, α and the weight of scalars, refined           as many pairs as cost as much as FINE rows, with copies
    3. nuggets ν, one for each band of output modes         up to MOST_PAIRS pairs

Kernel and lengths are found by descent to the best neighbour; a time budget ends it early.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ..._typing import Floats
from ...basis import modes
from ...errors import UserError
from ...work.engine import memory_allowed
from .characters import Characters
from .covariance import KERNELS, Features, Hyper, Units, unit_of
from .domain import Domain
from .solve import MOST_NUGGETS, NUGGETS, Labels, project, regress, select_nuggets, together, total_error, without_label

__all__ = ["MOST_PAIRS", "MOST_ROWS", "Search", "Selected"]

AUTO = KERNELS[:3]  # that "auto" tries
LENGTHS = (1.0, 4.0, 16.0)  # ℓ at which the search starts
EXPONENTS = (0.0, 1.0)  # s at which the search starts
COARSE = 300  # pairs that select κ
FINE = 800  # rows that select ℓ, s and α
MOST_PAIRS = 2000  # that select the nuggets
EVERY = 4  # of NUGGETS, that are tried during the search
GAIN = 1e-3  # relative decrease of the error that a step of the search must achieve
SEARCH_SHARE = 2 / 3  # of the budget, for the search
ALL_MODES = 2.0  # cost of a solve with all output modes, relative to one with some directions
MOST_COPIES = 8  # elements of a group whose copies are trained on
MOST_ROWS = 8000  # pairs times copies that are trained on

Errors = Callable[..., Floats]


@dataclass(frozen=True, eq=False)
class Selected:
    """The result of a search.

    Args:
        hyper: hyper-parameters of the covariance.
        units: by which inputs are normalised.
        copied: whether symmetric copies of the pairs are trained on.
        level: index of the nugget of each output mode, −1 for a constant m, (mode,).
        nuggets: ν, in the order of their selection.
        affordable: pairs that the budget allows to train on; None for no limit.
    """

    hyper: Hyper
    units: Units
    copied: bool
    level: Floats
    nuggets: Floats
    affordable: int | None


@dataclass(frozen=True, eq=False)
class Search:
    """A search for hyper-parameters.

    Args:
        domain: of the regression.
        kernel: one of KERNELS, or "auto".
        log: whether logarithms of inputs are taken; None tries it where they are positive.
        budget: seconds for the search and the regressions after it; None for no limit.
    """

    domain: Domain
    kernel: str
    log: bool | None
    budget: float | None

    def run(self, a: Floats, u: Floats, s: Floats, labels: Labels, rows: Labels, pairs: int) -> Selected:
        """Select hyper-parameters and nuggets: without symmetries, then with them.

        Args:
            a, u, s: all pairs; s is (sample, parameter).
            labels: equal for pairs that are left out together, (sample,).
            rows: of the pairs that the search may use, in random order.
            pairs: how many will be trained on.
        """
        end = math.inf if self.budget is None else time.monotonic() + self.budget
        stop = end if self.budget is None else end - (1 - SEARCH_SHARE) * self.budget
        units = self._units(a, s, rows)
        a, u, s, labels = a[rows], u[rows], s[rows], labels[rows]
        split, m, scalars = self.domain.characters(False), min(COARSE, len(a)), s.shape[1] > 0
        errors = errors_of(self.domain, split, units, a[:m], u[:m], s[:m], labels[:m])
        hyper = self._coarse(errors, list(units), scalars, stop)
        if copied := self._may_copy(hyper, units[hyper.log], a[:4], s[:4], pairs):
            split = self.domain.characters(True)
        if copied or (len(a) > COARSE and time.monotonic() < stop):
            m = min(int(FINE / len(split.copies) / len(split.signs) ** (1 / 3)), len(a))  # as much work as FINE rows
            errors = errors_of(self.domain, split, units, a[:m], u[:m], s[:m], labels[:m])
            hyper = descend(hyper, errors, (0.5,), scalars, stop)
        if len(a) > FINE and not copied and time.monotonic() < stop:
            m, errors = len(a), errors_of(self.domain, split, units, a, u, s, labels)
        begin = time.monotonic()
        level, nuggets = select_nuggets(errors(hyper, 1))
        affordable = self._affordable(m, time.monotonic() - begin, end, copied)
        return Selected(hyper, units[hyper.log], copied, level[self.domain.bands].astype(np.float64), nuggets, affordable)

    def _units(self, a: Floats, s: Floats, rows: Labels) -> dict[bool, Units]:
        """Return the units of inputs, or of their logarithms, or of both where both are tried."""
        elements = self.domain.elements
        images = elements if len(elements) <= MOST_COPIES else elements[:1]
        some = rows[: max(2, FINE // len(images))]
        copies, scalars = np.concatenate([g.on_a(a[some]) for g in images]), np.tile(s[some], (len(images), 1))
        positive = bool((a > 0).all() and (copies > 0).all())
        if self.log and not positive:
            raise UserError("log = True, but inputs or their symmetric copies are not all positive; set log = False")
        logs = [False, True] if self.log is None and positive else [bool(self.log)]
        return {log: Units.of(copies, scalars, log, self.domain.waves[0]) for log in logs}

    def _coarse(self, errors: Errors, logs: Sequence[bool], scalars: bool, stop: float) -> Hyper:
        """Return the best kernel, each being tried from the best of a few starting points of the first one."""
        kernels = AUTO if self.kernel == "auto" else (self.kernel,)
        starts = [Hyper(kernels[0], ell, e, log=log) for ell in LENGTHS for e in EXPONENTS for log in logs]
        start = min(starts, key=lambda h: total_error(errors(h)))
        ends = [descend(start._replace(kernel=kernel), errors, (1.0, 0.5), scalars, stop) for kernel in kernels]
        return min(ends, key=lambda h: total_error(errors(h)))

    def _may_copy(self, hyper: Hyper, units: Units, a: Floats, s: Floats, pairs: int) -> bool:
        """Return whether symmetric copies can be trained on: they must be few, and the kernel must be invariant."""
        elements = self.domain.elements
        if not 1 < len(elements) <= MOST_COPIES:
            return False
        split = self.domain.characters(True)
        rows = pairs * len(split.copies)
        matrices = 4 + (1 + MOST_NUGGETS) * len(split.signs)
        if rows > MOST_ROWS or self.domain.bytes_needed(rows, matrices) > memory_allowed():
            return False
        features = Features(hyper, units, self.domain.waves[0])
        grams = [hyper.gram(f, f) for f in (features(g.on_a(a), s) for g in elements)]
        return all(np.allclose(grams[0], k, rtol=1e-6, atol=1e-9) for k in grams)

    def _affordable(self, pairs: int, seconds: float, end: float, copied: bool) -> int | None:
        """Return how many pairs can be trained on until the end.

        Args:
            pairs, seconds: of the selection of nuggets, by which the time of a solve is estimated.
            end: on the monotonic clock.
            copied: whether symmetric copies are trained on.
        """
        if self.budget is None:
            return None
        one = ALL_MODES * seconds * MOST_NUGGETS / len(NUGGETS)  # time of one solve with this number of pairs
        solves = 4 if len(self.domain.elements) > 1 and not copied else 2  # of that size, in `learn` and `residuals`
        return max(pairs, int(pairs * (max(0.0, end - time.monotonic()) / (solves * one)) ** (1 / 3)))


def errors_of(
    domain: Domain, split: Characters, units: Mapping[bool, Units], a: Floats, u: Floats, s: Floats, labels: Labels
) -> Errors:
    """Return the function (hyper, step) ↦ Σ r² in each band, (1 + nugget, band), for every step-th of NUGGETS.

    Pairs with equal labels are left out together. The first row is that of a constant m: zero, or the mean of the other pairs,
    whichever is better in a band.
    """
    (waves, output_waves), bands = domain.waves, domain.bands
    unit = unit_of(u, (0, *range(2, u.ndim))).reshape(-1, *(1 for _ in output_waves))
    centre, labels = domain.centre(u, split.elements), together(labels)
    parts = (*split.parts(u, centre), u, without_label(u - centre, labels))
    projected = [project(modes(part / unit, output_waves).reshape(len(part), -1), bands) for part in parts]
    (*targets, zero, about), of = [y for y, _ in projected], projected[0][1]
    constant = len(split.copies) * np.minimum(*(np.bincount(of, np.square(y).sum(axis=0)) for y in (zero, about)))
    copies, rows_of = [g.on_a(a) for g in split.elements], np.tile(labels, len(split.copies))
    modes_of = {log: [each.modes(x, s, log, waves) for x in copies] for log, each in units.items()}

    @cache
    def errors(h: Hyper, step: int = EVERY) -> Floats:
        weights = units[h.log].weights(h, a.shape[2:], waves)
        phi = modes_of[h.log][0] * weights
        grams = split.matrices(lambda g: h.gram(phi, modes_of[h.log][split.elements.index(g)] * weights))
        rows = [constant]
        for nugget in NUGGETS[::step]:
            left = [regress(k, y, nugget, i == 0, rows_of)[2] for i, (k, y) in enumerate(zip(grams, targets, strict=True))]
            rows.append(np.bincount(of, np.square(left).sum(axis=(0, 1))))
        return np.stack(rows)

    return errors


def descend(h: Hyper, errors: Errors, steps: Sequence[float], scalars: bool, end: float = math.inf) -> Hyper:
    """Move to the best neighbour as long as it is better by GAIN, with one step size after the other, until time ends.

    Args:
        h: where to start.
        errors: see `errors_of`.
        steps: sizes of the steps, see `Hyper.neighbours`.
        scalars: whether inputs have scalars.
        end: on the monotonic clock.
    """
    for step in steps:
        while time.monotonic() < end:
            near = [(total_error(errors(n)), n) for n in h.neighbours(step, scalars) if time.monotonic() < end]
            least, best = min(near, key=lambda pair: pair[0], default=(math.inf, h))
            if not least < total_error(errors(h)) * (1 - GAIN):
                break
            h = best
    return h
