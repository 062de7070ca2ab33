r"""Which parameters matter: Sobol' indices of a functional f of the predicted mean, for independent uniform parameters.

    S_i = Var E[f | x_i]/Var f,        T_i = E Var[f | x_{∼i}]/Var f,

the main and the total index: the share of the variance of f that parameter i explains alone, and with all its interactions.
With two matrices A and B of points and A_i, which is A with column i of B (Saltelli et al. 2010; Jansen 1999),

    S_i ≈ ⟨f(B) (f(A_i) − f(A))⟩/Var f,        T_i ≈ ⟨(f(A) − f(A_i))²⟩/(2 Var f).

A and B are the halves of one low-discrepancy sequence (Sobol). Standard errors are those of resampled rows: they are errors of
the averages, not of the model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..._typing import Array, Floats
from ...draw import generator
from ...errors import UserError, nearest
from ..law import positive
from ..surrogate import Surrogate
from .suggest import Box, box_of, points_of

__all__ = ["FUNCTIONALS", "Response", "Sensitivity", "responses", "sensitivity", "sobol_indices"]

RESAMPLED = 200  # sets of rows from which standard errors are estimated
BLOCK = 2**22  # numbers of fields that are predicted at a time
LEVELS = (0.05, 0.95)  # of the band of a response

Functional = Callable[[Array], Array]  # (sample, channel, *grid) → (sample,)

FUNCTIONALS: dict[str, Functional] = {
    "mean": lambda u: u.reshape(len(u), -1).mean(axis=1),
    "maximum": lambda u: u.reshape(len(u), -1).max(axis=1),
    "minimum": lambda u: u.reshape(len(u), -1).min(axis=1),
}


@dataclass(frozen=True)
class Sensitivity:
    """Indices of each parameter with standard errors, all (parameter,), and the standard deviation of the functional."""

    parameters: tuple[str, ...]
    main: Floats
    main_error: Floats
    total: Floats
    total_error: Floats
    std: float

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each parameter."""
        columns = {name: getattr(self, name) for name in ("main", "main_error", "total", "total_error")}
        return pd.DataFrame(columns, index=pd.Index(self.parameters, name="parameter"))


@dataclass(frozen=True)
class Response:
    """A functional along one parameter, with the others in the middle of their ranges.

    Args:
        parameter: its name.
        x: its values, (point,).
        centre: the functional of the predicted mean, (point,).
        low, high: 5 % and 95 % quantiles of the functional over members, (point,).
    """

    parameter: str
    x: Floats
    centre: Floats
    low: Floats
    high: Floats


def sensitivity(
    model: Surrogate,
    functional: str | Functional = "mean",
    *,
    box: Box | None = None,
    samples: int = 1024,
    seed: int = 0,
) -> Sensitivity:
    """Return main and total indices of all parameters.

    Args:
        model: a trained one without a field input.
        functional: "mean", "maximum" or "minimum" of a field, or a function of fields (sample, channel, *grid) that returns a
            number for each, such as ``lambda u: u[:, 0, 17]`` for a point.
        box: ranges of the parameters, by name or in their order; default: those of the training pairs.
        samples: rows of A and of B; the mean is evaluated (number of parameters + 2) times as often.
        seed: of the points.

    Raises:
        UserError: if the model has a field input, or the functional is unknown or returns something else.
    """
    ranges, f = box_of(model.spaces, box), _functional(functional)
    indices = sobol_indices(lambda x: _of_mean(model, f, x), ranges, positive(samples, "samples"), seed)
    return Sensitivity(model.spaces.parameters, *indices)


def sobol_indices(
    f: Callable[[Floats], Floats], ranges: Floats, samples: int = 1024, seed: int = 0
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Return main indices, their errors, total indices, their errors, and the standard deviation of f.

    Args:
        f: of points (point, parameter): (point,).
        ranges: of the parameters, (parameter, 2).
        samples: rows of A and of B; a power of two is best.
        seed: of the points.

    >>> main, _, total, _, _ = sobol_indices(lambda x: x[:, 0] + 2 * x[:, 1], np.array([[0, 1], [0, 1]]))
    >>> main.round(2).tolist(), total.round(2).tolist()
    ([0.2, 0.8], [0.2, 0.8])
    """
    d = len(ranges)
    points = points_of(np.concatenate([ranges, ranges]), samples, seed)
    a, b = points[:, :d], points[:, d:]
    mixed = np.repeat(a[None], d, axis=0)
    mixed[np.arange(d), :, np.arange(d)] = b.T
    fa, fb, *rest = np.split(f(np.concatenate([a, b, mixed.reshape(-1, d)])), d + 2)
    centre = (fa.mean() + fb.mean()) / 2
    fa, fb, fm = fa - centre, fb - centre, np.array(rest) - centre
    terms = np.stack([fb * (fm - fa), (fa - fm) ** 2 / 2], axis=0)  # (index, parameter, row)
    square = (fa**2 + fb**2) / 2
    variance = max(float(square.mean()), np.finfo(float).tiny)
    rows = generator(seed, "sensitivity", 0).integers(len(fa), size=(RESAMPLED, len(fa)))
    again = np.stack([terms[..., row].mean(axis=-1) / max(float(square[row].mean()), variance * 1e-9) for row in rows])
    (main, total), (main_error, total_error) = terms.mean(axis=-1) / variance, again.std(axis=0)
    return main, main_error, total, total_error, float(np.sqrt(square.mean()))


def responses(
    model: Surrogate,
    functional: str | Functional = "mean",
    *,
    box: Box | None = None,
    points: int = 21,
    members: int = 50,
    seed: int = 0,
) -> list[Response]:
    """Return the response of a functional along each parameter.

    Args:
        model, functional, box: as in `sensitivity`.
        points: values of each parameter.
        members: from which the band is computed; it has no width for a deterministic model.
        seed: of the members.
    """
    ranges, f = box_of(model.spaces, box), _functional(functional)
    found = []
    for i, name in enumerate(model.spaces.parameters):
        x = np.tile(ranges.mean(axis=1), (positive(points, "points"), 1))
        x[:, i] = np.linspace(ranges[i, 0], ranges[i, 1], len(x))
        a, scalars = model.spaces.inputs(None, x)
        drawn = np.empty((1 if model.deterministic else positive(members), len(x)))
        for inputs, numbers, values in model.given(a, scalars).stream(len(drawn), seed):
            drawn[numbers, inputs] = _checked(f, values)
        low, high = np.quantile(drawn, LEVELS, axis=0)
        found.append(Response(name, x[:, i], _of_mean(model, f, x), low, high))
    return found


def _of_mean(model: Surrogate, f: Functional, x: Floats) -> Floats:
    """Return the functional of the predicted mean at points (point, parameter)."""
    size = max(1, BLOCK // int(np.prod(model.spaces.u_shape)))
    blocks = (model.spaces.inputs(None, x[first : first + size]) for first in range(0, len(x), size))
    return np.concatenate([_checked(f, model.fitted.mean(a, scalars)) for a, scalars in blocks])


def _functional(functional: str | Functional) -> Functional:
    if callable(functional):
        return functional
    if functional not in FUNCTIONALS:
        raise UserError(
            f"functional {functional!r} is unknown; {nearest(functional, FUNCTIONALS)}, or give a function of fields"
        )
    return FUNCTIONALS[functional]


def _checked(f: Functional, fields: Array) -> Floats:
    """Return the functional of fields, one finite number for each."""
    values = np.asarray(f(fields), dtype=np.float64)
    if values.shape != (len(fields),) or not np.isfinite(values).all():
        raise UserError(f"the functional of fields {fields.shape} has shape {values.shape}; expected a finite number for each")
    return values
