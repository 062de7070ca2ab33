"""Figures of runs with a few parameters: responses along each parameter, and the learning curve."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from .style import Theme, band, curve, keys, sheet, themed, tidy

__all__ = ["learning", "responses"]

COLUMNS = 3  # of the figure of responses
DECADE = 10.0  # the band of a learning curve ends at an error that is lower by this factor


@themed
def responses(
    curves: Sequence[tuple[str, ArrayLike, ArrayLike, ArrayLike, ArrayLike]], label: str = "", *, theme: Theme = "light"
) -> Figure:
    """Plot a functional of the prediction along each parameter, with its 90 % band.

    Args:
        curves: (name, values of the parameter, centre, low, high) of each parameter.
        label: of the functional.
        theme: "light" or "dark".
    """
    columns = min(COLUMNS, len(curves))
    rows = -(-len(curves) // columns)
    figure, axes = sheet(rows, columns, sharey=True)
    for each, (name, x, centre, low, high) in zip(axes.flat, curves, strict=False):
        band(each, x, low, high, 0, "90 % of members")
        curve(each, x, centre, 0, "predicted mean")
        tidy(each, np.asarray(x), xlabel=name)
    for empty in axes.flat[len(curves) :]:
        empty.set_visible(False)
    for first in axes[:, 0]:
        first.set_ylabel(label)
    keys(figure, axes.flat[: len(curves)])
    return figure


@themed
def learning(
    runs: ArrayLike, errors: ArrayLike, fit: tuple[ArrayLike, ArrayLike, ArrayLike], floor: float, *, theme: Theme = "light"
) -> Figure:
    """Plot errors of refits against the number of runs, with their extrapolation.

    Args:
        runs: numbers of runs, (size,).
        errors: of each refit, (repetition, size).
        fit: numbers of runs, extrapolated errors and their standard errors, each (point,).
        floor: error that no number of runs removes.
        theme: "light" or "dark".
    """
    figure, axes = sheet(1, 1, width=4.6, height=3)
    each, (n, centre, error) = axes[0, 0], (np.asarray(x, dtype=np.float64) for x in fit)
    for row in np.atleast_2d(errors):
        curve(each, runs, row, 1, "refits", linestyle="", marker=".", markersize=4)
    band(each, n, np.maximum(centre - error, centre / DECADE), centre + error, 0, "± standard error")
    curve(each, n, centre, 0, "power law with a floor")
    if floor > 0:
        each.axhline(floor, linestyle=":", linewidth=1, color="gray", label="floor")
    each.set(xscale="log", yscale="log" if np.min(errors) > 0 and centre.min() > 0 else "linear")
    tidy(each, None, xlabel="runs", ylabel="root mean square error")
    keys(figure, axes[0])
    return figure
