"""Diagrams of judgements and of training: whether a forecast keeps its promises, where it does, and for which inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from .style import (
    PROMISE,
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
    keys,
    limits,
    nodes,
    plane,
    sheet,
    themed,
    tidy,
)

__all__ = ["coverage", "history", "novelty", "rank_histogram", "spectra", "spread_skill", "trust"]

LEAST_REACH = 0.05  # of the colours of `trust`: a deviation of less than this is chance on most test sets
WIDE = 20  # a range of more than this factor is drawn on a logarithmic axis


@themed
def coverage(
    levels: ArrayLike,
    value: ArrayLike,
    error: ArrayLike,
    *,
    repaired: tuple[ArrayLike, ArrayLike] | None = None,
    theme: Theme = "light",
) -> Figure:
    """How many observations lie inside intervals that promise to hold this share of them.

    Args:
        levels: promised, from 0 to 1.
        value: measured.
        error: standard error of the measurement; the band is twice that to both sides.
        repaired: levels and measured shares of the intervals after repair.
        theme: "light" or "dark".
    """
    level, share, reach = (np.asarray(v, dtype=np.float64) for v in (levels, value, 2 * np.asarray(error)))
    figure, ((axes,),) = sheet(1, 1, width=4.4, height=4.6)
    diagonal(axes, 0, 1, above="intervals too wide", below="intervals too narrow")
    band(axes, level, np.clip(share - reach, 0, 1), np.clip(share + reach, 0, 1), 0, "± 2 standard errors")
    curve(axes, level, share, 0, "measured", marker="o", markersize=3.5)
    if repaired is not None:
        curve(axes, repaired[0], repaired[1], 1, "after repair", marker="D", markersize=4, linestyle="--")
    tidy(axes, None, xlabel="share that intervals promise", ylabel="share of observations inside")
    keys(figure, [axes])
    return figure


@themed
def rank_histogram(edges: ArrayLike, density: ArrayLike, error: ArrayLike, *, theme: Theme = "light") -> Figure:
    """Ranks of observations among members, with ± 2 standard errors: flat where the forecast is honest.

    A valley shows members that are too close together, a hill ones that are too far apart, a slope a bias.
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
    """Spread of the members against the error of their mean, a point for each bin; on the diagonal if the spread is right."""
    x, y = np.asarray(spread, dtype=np.float64), np.asarray(skill, dtype=np.float64)
    figure, ((axes,),) = sheet(1, 1, width=4.4, height=4.3)
    low, high = limits(x, y)
    if low > 0 and high > 5 * low:
        axes.set(xscale="log", yscale="log")
        low, high = low / 1.4, high * 1.4
    else:
        low, high = 0.0, 1.1 * high or 1.0
    diagonal(axes, low, high, above="members too close together", below="members too far apart")
    curve(axes, x, y, 0, linestyle="", marker="o", markersize=5)
    tidy(axes, None, f"spread over error: {ratio:.2f}", xlabel="spread of the members", ylabel="error of the mean")
    return figure


@themed
def spectra(
    p: ArrayLike, q: ArrayLike, *, labels: tuple[str, str] = ("members", "observations"), theme: Theme = "light"
) -> Figure:
    """Mean power in each band of wavenumbers, for p and for q; bands without power are left out."""
    figure, ((axes,),) = sheet(1, 1, width=5, height=3.4)
    for k, (power, label) in enumerate(zip((p, q), labels, strict=True)):
        values = np.asarray(power, dtype=np.float64)
        known = np.where(values > 0, values, np.nan)
        curve(
            axes,
            np.arange(1, len(values) + 1),
            known,
            k,
            label,
            marker="os"[k],
            markersize=3.5,
            linestyle="-" if k == 0 else "--",
        )
    axes.set(xscale="log", yscale="log")
    tidy(axes, None, xlabel="band of wavenumbers", ylabel="mean power")
    keys(figure, [axes])
    return figure


@themed
def trust(coverage_map: ArrayLike, level: float, *, x: Coordinates | None = None, theme: Theme = "light") -> Figure:
    """Where intervals of this level hold what they promise: the share of observations inside, at each node."""
    share = plane(coverage_map)
    along = nodes(x, share.shape)
    if share.ndim == 1:
        figure, ((axes,),) = sheet(1, 1, width=6.5, height=3)
        curve(axes, along[0], share, 0, "share of observations inside")
        axes.axhline(level, color=ink(), linestyle="--", linewidth=1, label=f"promised: {100 * level:g} %")
        band(axes, along[0], np.minimum(share, level), level, 1, "too narrow")
        tidy(axes, along[0], xlabel="x", ylabel=f"inside {100 * level:g} % intervals")
        axes.set_ylim(max(0.0, around(level, share, least=0.1)[0]), 1.0)
        keys(figure, [axes])
        return figure
    figure, ((axes,),) = sheet(1, 1, width=5, height=4)
    low, high = around(level, share, least=LEAST_REACH)
    side = bar(chart(axes, along, share, PROMISE, (low, high)), axes, f"observations inside {100 * level:g} % intervals")
    side.set_ylim(max(low, 0.0), min(high, 1.0))
    side.axhline(level, color="black", linewidth=1.2)
    axes.set_title("orange: too narrow, purple: too wide")
    return figure


@themed
def novelty(held: ArrayLike, test: ArrayLike, *, theme: Theme = "light") -> Figure:
    """Distances of inputs from those learned from, for inputs that were held out and for those of the test; 1 is the limit."""
    known, asked = np.ravel(np.asarray(held, dtype=np.float64)), np.ravel(np.asarray(test, dtype=np.float64))
    low, high = limits(known, asked, 1.0)
    wide = low > 0 and high > WIDE * low
    edges = np.geomspace(low, high, 31) if wide else np.linspace(min(low, 0), high, 31)
    figure, ((axes,),) = sheet(1, 1, width=5.5, height=3.2)
    looks: tuple[dict[str, Any], ...] = ({"alpha": 0.5}, {"histtype": "step", "linewidth": 1.6})
    for k, (values, label) in enumerate(((known, "held out"), (asked, "test"))):
        if not values.size:
            continue
        share, beyond = np.full(values.shape, 1 / values.size), 100 * np.mean(values > 1)
        axes.hist(values, edges, weights=share, color=colour(k), label=f"{label}: {beyond:.1f} % beyond 1", **looks[k])
    axes.axvline(1, color=ink(), linestyle="--", linewidth=1.2, label="limit")
    if wide:
        axes.set_xscale("log")
    tidy(axes, None, xlabel="distance from the inputs learned from", ylabel="share of inputs")
    keys(figure, [axes])
    return figure


@themed
def history(records: Sequence[Mapping[str, Any]], *, theme: Theme = "light") -> Figure:
    """Loss of training and of validation against the step, from the rows of `model.history` or ``metrics.jsonl``."""
    figure, ((axes,),) = sheet(1, 1, width=6, height=3.2)
    for k, (name, label) in enumerate((("loss", "training"), ("validation", "validation"))):
        rows = [(row["step"], row[name]) for row in records if row.get(name) is not None]
        if rows:
            marks: dict[str, Any] = {"marker": "o", "markersize": 4} if name == "validation" else {"linewidth": 1}
            step, loss = np.array(rows, dtype=np.float64).T
            curve(axes, step, loss, k, label, **marks)
    if all(row[name] > 0 for row in records for name in ("loss", "validation") if row.get(name) is not None):
        axes.set_yscale("log")
    tidy(axes, None, xlabel="step", ylabel="loss")
    keys(figure, [axes])
    return figure
