"""Figures of calibration, coverage, spectra, novelty scores and training losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation
from numpy.typing import ArrayLike

from .style import (
    COVERAGE,
    Coordinates,
    Theme,
    around,
    band,
    bar,
    chart,
    colour,
    curve,
    diagonal,
    ink,
    is_line,
    keys,
    limits,
    meshed,
    plane,
    sheet,
    themed,
    tidy,
)

__all__ = ["coverage", "coverage_map", "history", "novelty", "rank_histogram", "spectra", "spread_skill"]

MIN_HALF_RANGE = 0.05  # of the colours of `coverage_map`: smaller deviations are not significant on most test sets
LOG_RANGE = 20  # maximum / minimum from which novelty scores have a logarithmic axis
LOG_SPREAD = 5  # likewise, for spread and error
BINS = 30  # of the histogram of novelty scores


@themed
def coverage(
    levels: ArrayLike,
    value: ArrayLike,
    error: ArrayLike,
    *,
    conformal: tuple[ArrayLike, ArrayLike] | None = None,
    theme: Theme = "light",
) -> Figure:
    """Plot the coverage of central intervals against their nominal level.

    Args:
        levels: nominal levels, from 0 to 1.
        value: measured coverage.
        error: its standard error; the band is ± 2 standard errors.
        conformal: nominal levels and measured coverage of conformal intervals.
        theme: "light" or "dark".
    """
    level, measured, margin = (np.asarray(v, dtype=np.float64) for v in (levels, value, 2 * np.asarray(error)))
    figure, ((axes,),) = sheet(1, 1, width=4.4, height=4.6)
    diagonal(axes, 0, 1, above="intervals too wide", below="intervals too narrow")
    band(axes, level, np.clip(measured - margin, 0, 1), np.clip(measured + margin, 0, 1), 0, "± 2 standard errors")
    curve(axes, level, measured, 0, "measured", marker="o", markersize=3.5)
    if conformal is not None:
        curve(axes, conformal[0], conformal[1], 1, "conformal", marker="D", markersize=4, linestyle="--")
    tidy(axes, None, xlabel="nominal level", ylabel="coverage")
    keys(figure, [axes])
    return figure


@themed
def rank_histogram(edges: ArrayLike, density: ArrayLike, error: ArrayLike, *, theme: Theme = "light") -> Figure:
    """Plot the histogram of ranks of observations among members, with ± 2 standard errors: flat if calibrated.

    It is U-shaped if the spread of the members is too small, has a hump if it is too large, and a slope if there is a bias.

    Args:
        edges: of the bins, (bin + 1,).
        density: of the ranks, (bin,).
        error: its standard error.
        theme: "light" or "dark".
    """
    edge, height = np.asarray(edges, dtype=np.float64), np.asarray(density, dtype=np.float64)
    figure, ((axes,),) = sheet(1, 1, width=5, height=3.2)
    bars = {"width": np.diff(edge), "align": "edge", "color": colour(0), "edgecolor": axes.get_facecolor(), "label": "ranks"}
    axes.bar(edge[:-1], height, **bars)
    centre, twice = (edge[:-1] + edge[1:]) / 2, 2 * np.asarray(error, dtype=np.float64)
    axes.errorbar(centre, height, twice, fmt="none", ecolor=ink(), elinewidth=0.9, capsize=2, label="± 2 standard errors")
    axes.axhline(1 / np.ptp(edge), color=colour(1), linestyle="--", label="uniform")
    tidy(axes, edge, xlabel="rank of the observation among the members", ylabel="density")
    keys(figure, [axes])
    return figure


@themed
def spread_skill(spread: ArrayLike, skill: ArrayLike, ratio: float, *, theme: Theme = "light") -> Figure:
    """Plot the error of the mean against the spread of the members, one point per bin; calibrated if on the diagonal.

    Args:
        spread: predicted spread, (bin,).
        skill: root mean square error, (bin,).
        ratio: overall spread–skill ratio.
        theme: "light" or "dark".
    """
    x, y = np.asarray(spread, dtype=np.float64), np.asarray(skill, dtype=np.float64)
    figure, ((axes,),) = sheet(1, 1, width=4.4, height=4.3)
    low, high = limits(x, y)
    if low > 0 and high > LOG_SPREAD * low:
        axes.set(xscale="log", yscale="log")
        low, high = low / 1.4, high * 1.4
    else:
        low, high = 0.0, 1.1 * high or 1.0
    diagonal(axes, low, high, above="spread too small", below="spread too large")
    curve(axes, x, y, 0, linestyle="", marker="o", markersize=5)
    tidy(axes, None, f"spread–skill ratio: {ratio:.2f}", xlabel="spread of the members", ylabel="error of the mean")
    return figure


@themed
def spectra(
    p: ArrayLike, q: ArrayLike, *, labels: tuple[str, str] = ("members", "observations"), theme: Theme = "light"
) -> Figure:
    """Plot the mean power p and q, (band,), in each band of wavenumbers; empty bands are omitted."""
    figure, ((axes,),) = sheet(1, 1, width=5, height=3.4)
    for k, (power, label) in enumerate(zip((p, q), labels, strict=True)):
        values = np.asarray(power, dtype=np.float64)
        positive = np.where(values > 0, values, np.nan)
        curve(
            axes,
            np.arange(1, len(values) + 1),
            positive,
            k,
            label,
            marker="os"[k],
            markersize=3.5,
            linestyle="-" if k == 0 else "--",
        )
    logarithmic = any(np.any(np.asarray(power) > 0) for power in (p, q))  # such an axis needs a positive value
    axes.set(xscale="log", yscale="log" if logarithmic else "linear")
    tidy(axes, None, xlabel="band of wavenumbers", ylabel="mean power")
    keys(figure, [axes])
    return figure


@themed
def coverage_map(
    coverage: ArrayLike,
    level: float,
    *,
    x: Coordinates | Triangulation | None = None,
    xlabel: str = "x",
    theme: Theme = "light",
) -> Figure:
    """Plot the coverage of intervals at each node.

    Args:
        coverage: fraction of observations inside, (channel, *grid).
        level: nominal level of the intervals.
        x: nodes of the axis, or of each axis; a triangulation for the nodes of a mesh.
        xlabel: name of the axis.
        theme: "light" or "dark".
    """
    values = plane(coverage)
    along = meshed(x, values.shape)
    if is_line(along):
        figure, ((axes,),) = sheet(1, 1, width=6.5, height=3)
        curve(axes, along[0], values, 0, "measured")
        axes.axhline(level, color=ink(), linestyle="--", linewidth=1, label=f"nominal: {100 * level:g} %")
        band(axes, along[0], np.minimum(values, level), level, 1, "too narrow")
        tidy(axes, along[0], xlabel=xlabel, ylabel=f"coverage of {100 * level:g} % intervals")
        axes.set_ylim(max(0.0, around(level, values, least=0.1)[0]), 1.0)
        keys(figure, [axes])
        return figure
    figure, ((axes,),) = sheet(1, 1, width=5, height=4)
    low, high = around(level, values, least=MIN_HALF_RANGE)
    side = bar(chart(axes, along, values, COVERAGE, (low, high)), axes, f"coverage of {100 * level:g} % intervals")
    side.set_ylim(max(low, 0.0), min(high, 1.0))
    side.axhline(level, color="black", linewidth=1.2)
    axes.set_title("orange: too narrow, purple: too wide")
    return figure


@themed
def novelty(validation: ArrayLike, test: ArrayLike, *, theme: Theme = "light") -> Figure:
    """Plot histograms of the novelty scores of validation and test inputs; inputs above the threshold 1 are flagged."""
    scores = {
        "validation": np.ravel(np.asarray(validation, dtype=np.float64)),
        "test": np.ravel(np.asarray(test, dtype=np.float64)),
    }
    low, high = limits(*scores.values(), 1.0)
    wide = low > 0 and high > LOG_RANGE * low
    edges = np.geomspace(low, high, BINS + 1) if wide else np.linspace(min(low, 0), high, BINS + 1)
    figure, ((axes,),) = sheet(1, 1, width=5.5, height=3.2)
    styles: tuple[dict[str, Any], ...] = ({"alpha": 0.5}, {"histtype": "step", "linewidth": 1.6})
    for k, (label, values) in enumerate(scores.items()):
        if not values.size:
            continue
        weights, flagged = np.full(values.shape, 1 / values.size), 100 * np.mean(values > 1)
        axes.hist(values, edges, weights=weights, color=colour(k), label=f"{label}: {flagged:.1f} % above 1", **styles[k])
    axes.axvline(1, color=ink(), linestyle="--", linewidth=1.2, label="threshold")
    if wide:
        axes.set_xscale("log")
    tidy(axes, None, xlabel="novelty score", ylabel="fraction of inputs")
    keys(figure, [axes])
    return figure


@themed
def history(records: Sequence[Mapping[str, Any]], *, theme: Theme = "light") -> Figure:
    """Plot training and validation loss against the step, from the rows of `model.history` or ``metrics.jsonl``."""
    figure, ((axes,),) = sheet(1, 1, width=6, height=3.2)
    for k, (name, label) in enumerate((("loss", "training"), ("validation", "validation"))):
        rows = [(row["step"], row[name]) for row in records if row.get(name) is not None]
        if rows:
            style: dict[str, Any] = {"marker": "o", "markersize": 4} if name == "validation" else {"linewidth": 1}
            step, loss = np.array(rows, dtype=np.float64).T
            curve(axes, step, loss, k, label, **style)
    if all(row[name] > 0 for row in records for name in ("loss", "validation") if row.get(name) is not None):
        axes.set_yscale("log")
    tidy(axes, None, xlabel="step", ylabel="loss")
    keys(figure, [axes])
    return figure
