"""What `pdno evaluate` and the report say about runs with a few parameters: more runs, sensitivity, and responses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import plot
from .._typing import Array
from ..data.dataset import Dataset
from ..errors import UserError
from ..evaluation.verdict import Statement
from ..model.design.curve import LearningCurve, has_cheap_refits, learning_curve
from ..model.design.sensitivity import Sensitivity, responses, sensitivity
from ..model.surrogate import Surrogate

__all__ = ["Study", "drawings_of", "study"]

SECONDS = 20.0  # that refits for a learning curve may take
MOST_RUNS = 1000  # for which the learning curve is computed
MOST_PARAMETERS = 12  # that are studied
SAMPLES = 256  # rows of the matrices for indices
FUNCTIONAL = "mean"  # of the field, whose indices and responses are in the report
HARDLY = 0.97  # error with twice the runs / present error, above which more runs are not worth it
AHEAD = 4  # times the present number of runs, up to which errors are extrapolated


@dataclass(frozen=True)
class Study:
    """Statements for the verdict, and arrays for the figures of the report."""

    statements: tuple[Statement, ...] = ()
    arrays: dict[str, Array] = field(default_factory=dict)


def study(model: Surrogate, data: Dataset, seed: int = 0) -> Study:
    """Study a model whose outputs depend on parameters alone; for other models the study is empty.

    Args:
        model: a trained one.
        data: with its training pairs.
        seed: of parts of the runs, and of points of the box of parameters.
    """
    if not model.spaces.without_field or model.spaces.scalars > MOST_PARAMETERS:
        return Study()
    indices = sensitivity(model, FUNCTIONAL, samples=SAMPLES, seed=seed)
    found = [(r.parameter, np.stack([r.x, r.centre, r.low, r.high])) for r in responses(model, FUNCTIONAL, seed=seed)]
    arrays: dict[str, Array] = {f"response.{i}.{name}": values for i, (name, values) in enumerate(found)}
    statements = [Statement("Parameters", "unknown", _headline(indices), _indices(indices))]
    if has_cheap_refits(model.fitted.mean) and len(data.train) <= MOST_RUNS:
        try:
            curve = learning_curve(model, data, seconds=SECONDS, seed=seed)
        except UserError as error:  # too few runs
            return Study((*statements, Statement("More runs", "unknown", "There is no learning curve.", f"{error}.")), arrays)
        n = np.geomspace(curve.runs[0], AHEAD * max(curve.trained, 1), 40)
        forecast = np.array([curve.forecast(runs) for runs in n])
        arrays |= {"learning.runs": curve.runs, "learning.errors": curve.errors, "learning.floor": np.array(curve.floor)}
        arrays["learning.fit"] = np.stack([n, *forecast.T])
        statements.append(Statement("More runs", "unknown", *_more(curve)))
    return Study(tuple(statements), arrays)


def _headline(indices: Sensitivity) -> str:
    """Name the parameter with the largest effect."""
    largest = int(indices.total.argmax())
    share = f"{100 * indices.total[largest]:.0f} % of the variance of the field's {FUNCTIONAL}"
    return f"{indices.parameters[largest]} has the largest effect: it takes part in {share}."


def _indices(indices: Sensitivity) -> str:
    """List main and total indices."""
    rows = zip(indices.parameters, indices.main, indices.main_error, indices.total, indices.total_error, strict=True)
    parts = [f"{name} {m:.2f} ± {e:.2f} and {t:.2f} ± {f:.2f}" for name, m, e, t, f in rows]
    return f"Main and total sensitivity indices over the training ranges: {'; '.join(parts)}."


def _more(curve: LearningCurve) -> tuple[str, str]:
    """Return headline and text about twice the runs."""
    ratio = curve.forecast(2 * curve.trained)[0] / max(curve.forecast(curve.trained)[0], np.finfo(float).tiny)
    if ratio > HARDLY:
        return "More runs would hardly reduce the error of the mean.", curve.describe()
    return f"Twice as many runs would reduce the error of the mean to {100 * ratio:.0f} % of the present one.", curve.describe()


def drawings_of(arrays: Mapping[str, Array]) -> list[tuple[Callable[[Any], Figure], str]]:
    """Return the figures of the report, with captions."""
    drawings: list[tuple[Callable[[Any], Figure], str]] = []
    keys = sorted((key for key in arrays if key.startswith("response.")), key=lambda key: int(key.split(".")[1]))
    if keys:
        curves = [(key.split(".", 2)[2], *arrays[key]) for key in keys]
        caption = f"The field's {FUNCTIONAL} along each parameter, the others in the middle of their ranges."
        drawings.append((lambda theme: plot.responses(curves, f"{FUNCTIONAL} of u", theme=theme), caption))
    if "learning.runs" in arrays:
        parts = (arrays[f"learning.{name}"] for name in ("runs", "errors", "fit"))
        runs, errors, fit = parts
        caption = "Root mean square error of the mean model, refitted on parts of the runs, and its extrapolation, "
        caption += "scaled to the cross-validated error."
        floor = float(arrays["learning.floor"][0])
        drawings.append((lambda theme: plot.learning(runs, errors, tuple(fit), floor, theme=theme), caption))
    return drawings
