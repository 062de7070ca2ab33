r"""How many more runs? The error of the mean model against the number of runs it is trained on, and its extrapolation.

    e(n)² = c² + b² n^(−2α),        b, c ≥ 0,

where e(n)² is the mean squared error of refits on n of the runs, on the other runs, and that of the model itself is its
cross-validated one. The floor c is what no number of runs will remove: noise, and what the mean model cannot represent.

**Fit.** b² and c² are fitted by non-negative least squares of relative errors to geometric means over refits (a few large
errors would dominate arithmetic ones) for each α ≥ 0.1 of a grid, and the best α is taken. The law is then scaled to the
cross-validated error, for which all runs are tested. Standard errors are those of fits to resampled repetitions and runs
(bootstrap).

**Posterior.** A Gaussian process of parameters with known distributions knows more: e(2n)/e(n) is that of its posterior with
the present and with twice as many runs (`pdno.mean.process.forecast`). The error of a smooth function falls faster than that
of refits, whose hyper-parameters are worse. c is then the noise by the posterior or the floor of the fit, whichever is
smaller: a process can take a kink for noise. Standard errors of α are those of the fits.
"""

import time
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.optimize import minimize_scalar, nnls

from ..._typing import Floats, Ints
from ...data.dataset import Dataset
from ...data.pairs import Pairs
from ...draw import generator
from ...errors import UserError
from ...learning.budget import Terms
from ...mean.base import Componentwise, Mean, out_of_fold
from ...mean.constant import Constant
from ...mean.kernel.kernel import Kernel
from ...mean.linear.linear import Linear
from ...mean.process.process import Process
from ...mean.process.promise import inputs_are_known, size_at_new_inputs
from ..surrogate import Surrogate

__all__ = ["LearningCurve", "PowerLaw", "fit_power_law", "has_cheap_refits", "learning_curve"]

CHEAP = (Constant, Linear, Kernel, Process)  # means whose training is in closed form, or nearly so
FRACTIONS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)  # of the runs, that refits are trained on
FEWEST = 4  # runs that a refit is trained on
FEWEST_RUNS = 12
REPETITIONS = 8
SCORED = 200  # largest number of runs on which a refit is scored
RESAMPLED = 100  # fits from which standard errors are estimated
MOST_RUNS = 500  # for which posteriors are computed
TINY = 1e-150
EXPONENTS = np.geomspace(0.1, 3.0, 30)  # α, between which the best is looked for


@dataclass(frozen=True)
class PowerLaw:
    """The function e(n); all numbers may be arrays of several fits."""

    floor: Floats
    factor: Floats
    exponent: Floats

    def __call__(self, runs: float) -> Floats:
        """Return e(n)."""
        return np.asarray(np.sqrt(self.floor**2 + self.factor**2 * float(runs) ** (-2 * self.exponent)))


@dataclass(frozen=True)
class LearningCurve:
    """Errors of refits, and their extrapolation.

    Args:
        runs: n of each size of refits, (size,).
        errors: root mean square error of each refit, (repetition, size), in units of u.
        present: cross-validated root mean square error of the model.
        trained: number of runs that the model itself was trained on.
        spread: root mean square deviation of outputs from their average, in units of u.
        law: e(n).
        resampled: e(n) of resampled repetitions.
    """

    runs: Ints
    errors: Floats
    present: float
    trained: int
    spread: float
    law: PowerLaw
    resampled: PowerLaw

    def forecast(self, runs: float) -> tuple[float, float]:
        """Return e(n) and its standard error."""
        return float(self.law(runs)), float(np.std(self.resampled(runs)))

    @property
    def floor(self) -> tuple[float, float]:
        """The error that no number of runs removes, and its standard error."""
        return float(self.law.floor), float(np.std(self.resampled.floor))

    def describe(self) -> str:
        """Return the forecast in a sentence or two, in percent of the spread of outputs."""
        if self.spread == 0:
            return "All outputs are equal, so that there is no error that more runs could reduce."
        n = self.trained
        now, twice, four = (_percent(self.forecast(k * n), self.spread) for k in (1, 2, 4))
        floor, error = self.floor
        limit = _percent((floor, error), self.spread)
        rest = (
            f"No number of runs will bring it below {limit}."
            if floor > 2 * error
            else f"No lower limit was found (at most {100 * (floor + 2 * error) / self.spread:.2g} %)."
        )
        return (
            f"The error of the mean, relative to the spread of outputs, is {now} with {n} runs; {twice} is expected with twice "
            f"as many, and {four} with four times as many. {rest}"
        )


def _percent(pair: tuple[float, float], spread: float) -> str:
    return f"{100 * pair[0] / spread:.2g} ± {100 * pair[1] / spread:.1g} %"


def has_cheap_refits(mean: Mean) -> bool:
    """Return whether a mean can be refitted in seconds: it contains no network and no solver."""
    return all(isinstance(leaf, CHEAP) for leaf in mean.leaves())


def learning_curve(
    model: Surrogate, data: Dataset | Pairs, *, repetitions: int = REPETITIONS, seconds: float = 60.0, seed: int = 0
) -> LearningCurve:
    """Refit the mean of a model on parts of its runs, and extrapolate the error.

    Args:
        model: a trained one whose mean is in closed form: constant, linear, kernel or process.
        data: the runs; of a Dataset, those of training and validation.
        repetitions: number of random parts of each size; fewer if the time is over.
        seconds: time limit, checked after each repetition.
        seed: of the parts.

    Raises:
        UserError: if the mean is a network or a solver, or there are too few runs.
    """
    mean, pairs = model.fitted.mean, _pooled(data)
    if not has_cheap_refits(mean):
        raise UserError(f"a learning curve needs many refits, for which the mean {mean.name!r} is too costly; use another one")
    labels = pairs.labels()
    independent = int(labels.max(initial=-1)) + 1
    if independent < FEWEST_RUNS:
        raise UserError(f"{independent} different runs are too few for a learning curve; expected at least {FEWEST_RUNS}")
    sizes = np.unique([max(FEWEST, round(fraction * independent)) for fraction in FRACTIONS])
    begin, errors = time.monotonic(), []
    for repetition in range(repetitions):
        order = generator(seed, "learning curve", repetition).permutation(independent)
        errors.append([_error(mean, pairs, labels, order, n, seed) for n in sizes])
        if time.monotonic() - begin > seconds * (repetition + 1) / (repetition + 2):
            break
    own = _cross_validated(mean, pairs, seed)
    rng, every = generator(seed, "learning curve", -1), np.array(errors)
    draws = [[rng.integers(len(part), size=len(part)) for part in (every, own)] for _ in range(RESAMPLED)]
    fits = [_fitted(sizes, every[rows], independent, float(own[some].mean())) for rows, some in draws]
    resampled = PowerLaw(*(np.array([getattr(fit, name) for fit in fits]) for name in ("floor", "factor", "exponent")))
    u, present = pairs.filled, float(np.sqrt(own.mean()))
    spread = float(np.sqrt(np.square(u - u.mean(axis=0)).mean()))
    law = _fitted(sizes, every, independent, float(own.mean()))
    if isinstance(mean, Componentwise) and inputs_are_known(pairs):
        size = mean.sizes_with((min(independent, MOST_RUNS), 2 * min(independent, MOST_RUNS)), seed)
        law = _by_posterior(*size, law, independent, 0.0)
        resampled = _by_posterior(*size, resampled, independent, resampled.exponent - resampled.exponent.mean())
    trained = int(model.provenance.get("pairs", len(pairs)))
    return LearningCurve(sizes, every, present, trained, spread, law, resampled)


def _cross_validated(mean: Mean, pairs: Pairs, seed: int) -> Floats:
    """Return squared errors of the mean without each run, of the size that new inputs will show, (run,)."""
    copy = deepcopy(mean)
    squares = np.square(out_of_fold(copy, pairs, pairs.shared_labels(), seed))
    if pairs.mask is not None:
        observed = np.maximum(pairs.mask.reshape(len(pairs), -1).sum(axis=1), 1)
        return np.asarray(np.where(pairs.mask, squares, 0.0).reshape(len(pairs), -1).sum(axis=1) / observed)
    ratio = size_at_new_inputs(copy, pairs, seed)
    return np.asarray(ratio**2 * squares.reshape(len(pairs), -1).mean(axis=1))


def _by_posterior(sizes: Floats, noise: float, law: PowerLaw, runs: int, shift: Floats | float) -> PowerLaw:
    """Return e(n) by the posterior, with the present error of a fit.

    Args:
        sizes: of errors without noise, with the present number of runs, and with twice as many.
        noise: in units of these sizes.
        law: the fit, or fits.
        runs: the present number.
        shift: added to the exponent.
    """
    now, then = np.maximum(np.square(sizes) + noise**2, TINY)
    square = law(runs) ** 2
    floor = np.minimum(law.floor**2, square * noise**2 / now)
    rest = square - floor
    exponent = np.log2(np.maximum(rest, TINY) / np.maximum(square * then / now - floor, TINY)) / 2 + shift
    exponent = np.clip(exponent, EXPONENTS[0], EXPONENTS[-1])
    return PowerLaw(np.sqrt(floor), np.sqrt(rest) * float(runs) ** exponent, exponent)


def _fitted(sizes: Ints, errors: Floats, runs: int, square: float) -> PowerLaw:
    """Fit e(n) to errors of refits, (repetition, size), and to the mean square for all runs, which it is then scaled to."""
    squares = np.exp(2 * np.log(np.maximum(errors, TINY)).mean(axis=0))
    law = fit_power_law(np.append(sizes, runs), np.append(squares, square))
    scale = np.sqrt(square) / max(float(law(runs)), TINY)
    return PowerLaw(law.floor * scale, law.factor * scale, law.exponent)


def fit_power_law(runs: Ints, squares: Floats) -> PowerLaw:
    """Fit e(n)² to mean squared errors.

    >>> law = fit_power_law(np.array([10, 20, 40, 80]), 0.09 + 4 / np.array([10, 20, 40, 80]))
    >>> round(float(law.floor), 2), round(float(law(160)), 3)
    (0.3, 0.339)
    """
    if squares.min() <= TINY**2:  # no error at all
        return PowerLaw(np.zeros(()), np.zeros(()), np.ones(()))

    def solved(exponent: float) -> tuple[Floats, float]:
        power = (runs / runs[0]) ** (-2.0 * exponent)
        solution, residual = nnls(np.stack([np.ones(len(runs)), power], axis=1) / squares[:, None], np.ones(len(runs)))
        return solution, float(residual)

    best = int(np.argmin([solved(exponent)[1] for exponent in EXPONENTS]))
    bounds = EXPONENTS[max(best - 1, 0)], EXPONENTS[min(best + 1, len(EXPONENTS) - 1)]
    exponent = float(minimize_scalar(lambda x: solved(x)[1], bounds=bounds, method="bounded", options={"xatol": 1e-5}).x)
    floor, factor = np.sqrt(solved(exponent)[0])
    return PowerLaw(floor, factor * float(runs[0]) ** exponent, np.array(exponent))


def _error(mean: Mean, pairs: Pairs, labels: Ints, order: Ints, runs: int, seed: int) -> float:
    """Return the root mean square error of a refit on the first labels of an order, on pairs of the others."""
    kept = np.isin(labels, order[:runs])
    rest = pairs[np.flatnonzero(~kept)[:SCORED]]
    copy = deepcopy(mean).learn(pairs[np.flatnonzero(kept)], None, Terms(seed, progress=False))
    squares = np.square(rest.filled - copy(rest.a, rest.scalars))
    return float(np.sqrt(squares.mean() if rest.mask is None else squares[rest.mask].mean()))


def _pooled(data: Dataset | Pairs) -> Pairs:
    """Return all pairs that may be trained on."""
    if isinstance(data, Pairs):
        return data
    parts = [part.xarray for part in (data.train, data.validation) if part]
    return Pairs(parts[0] if len(parts) == 1 else xr.concat(parts, "sample", data_vars="minimal", join="override"))
