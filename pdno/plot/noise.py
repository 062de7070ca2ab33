"""Figures of the noise: standard deviation by place, densities, correlation, and functionals of whole fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation
from numpy.typing import ArrayLike

from .._typing import Floats
from .style import (
    INPUT,
    Coordinates,
    Theme,
    band,
    bar,
    chart,
    colour,
    curve,
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

__all__ = ["functionals", "noise_correlation", "noise_density", "noise_std"]

LABELS = {"residuals": "held-out errors", "members": "members", "truth": "true noise"}  # name of a source → label
STYLES = {"residuals": (1, "--"), "members": (0, "-"), "truth": (None, ":")}  # colour and line of a source
MOST_INPUTS = 40  # inputs of `functionals`
CUT = 1.5  # height of the axis of densities, as a multiple of the highest bin: narrower peaks of estimates are cut off
TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of distances
WIDE = 1.25  # range of the densities, as a multiple of the central 99 % of the draws

Estimates = Mapping[str, tuple[ArrayLike, ArrayLike]]  # name of a source → values and standard errors


@themed
def noise_std(
    std: Estimates, *, x: Coordinates | Triangulation | None = None, xlabel: str = "x", theme: Theme = "light"
) -> Figure:
    """Plot the standard deviation of the noise at each node, with ± 2 standard errors in one dimension.

    Args:
        std: for each of "residuals", "members" and "truth": standard deviations (channel, *grid), and their errors.
        x: nodes of the axis, or of each axis; a triangulation for the nodes of a mesh.
        xlabel: name of the axis.
        theme: "light" or "dark".
    """
    fields = {name: (plane(value), plane(error)) for name, (value, error) in std.items()}
    along = meshed(x, next(iter(fields.values()))[0].shape)
    if is_line(along):
        figure, ((axes,),) = sheet(1, 1, width=5, height=3.2)
        for name, (value, error) in fields.items():
            k, line = STYLES[name]
            if name != "truth":
                margin = 2 * np.nan_to_num(error)
                band(axes, along[0], value - margin, value + margin, k)
            curve(axes, along[0], value, k, LABELS[name], linestyle=line)
        tidy(axes, along[0], xlabel=xlabel, ylabel="standard deviation")
        axes.set_ylim(0, 1.1 * limits(*(value + 2 * np.nan_to_num(error) for value, error in fields.values()))[1] or 1.0)
        keys(figure, [axes])
        return figure
    figure, grid = sheet(1, len(fields), width=3.1 * len(fields) + 0.7, height=2.9)
    span = (0.0, limits(*(value for value, _ in fields.values()))[1])
    for axes, (name, (value, error)) in zip(grid[0], fields.items(), strict=True):
        mesh = chart(axes, along, value, INPUT, span)
        relative = np.nanmedian(error) / max(1e-300, float(np.nanmedian(value))) if np.isfinite(error).any() else np.nan
        axes.set_title(f"{LABELS[name]}" + (f" (± {100 * relative:.0f} %)" if np.isfinite(relative) else ""))
    bar(mesh, grid[0, -1], "standard deviation")
    return figure


@themed
def noise_density(
    places: Sequence[
        tuple[str, Mapping[str, ArrayLike], Mapping[str, tuple[ArrayLike, ArrayLike]], tuple[ArrayLike, ArrayLike] | None]
    ],
    *,
    theme: Theme = "light",
) -> Figure:
    """Plot the density of the noise at some places: a histogram of errors, estimates from members, and the exact density.

    The exact density is averaged over the bins of the histogram, so that peaks narrower than a bin have comparable heights.

    Args:
        places: (title, draws by source, (x, density) by source, exact (x, density) or None) of each panel.
        theme: "light" or "dark".
    """
    figure, grid = sheet(1, len(places), width=3.2 * len(places) + 0.6, height=3.1)
    for axes, (title, draws, estimates, exact) in zip(grid[0], places, strict=True):
        values = np.asarray(draws["residuals"], dtype=np.float64)
        low, high = _range(*(np.asarray(v, dtype=np.float64) for v in draws.values()))
        edges = np.linspace(low, high, int(np.clip(2 * np.sqrt(len(values)), 10, 60)) + 1)
        style: dict[str, Any] = {"density": True, "color": colour(1), "alpha": 0.35, "label": LABELS["residuals"]}
        heights = [axes.hist(values, edges, **style)[0]]
        for name, (at, height) in estimates.items():
            k, line = STYLES[name]
            curve(axes, at, height, k, LABELS[name], linestyle=line)
        if exact is not None:
            heights.append(_averages(np.asarray(exact[0]), np.asarray(exact[1]), edges))
            axes.stairs(heights[-1], edges, color=ink(), linestyle=":", linewidth=1.4, label="true density, by bins")
        axes.set_ylim(0, CUT * max(h.max() for h in heights))
        tidy(axes, np.array([low, high]), title, xlabel="u − mean")
        axes.set_yticks([])
    grid[0, 0].set_ylabel("density")
    keys(figure, grid[0])
    return figure


def _averages(x: Floats, density: Floats, edges: Floats) -> Floats:
    """Return the averages of a density, given at points x, over bins."""
    masses = np.concatenate([[0.0], np.cumsum(np.diff(x) * (density[1:] + density[:-1]) / 2)])
    return np.asarray(np.diff(np.interp(edges, x, masses)) / np.diff(edges))


def _range(*draws: Floats) -> tuple[float, float]:
    """Return a range around the central 99 % of each set of draws."""
    ends = np.array([np.quantile(values, [0.005, 0.995]) for values in draws if len(values)])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-300)
    return float(middle - WIDE * half), float(middle + WIDE * half)


@themed
def noise_correlation(lags: ArrayLike, correlation: Estimates, *, theme: Theme = "light") -> Figure:
    """Plot the correlation of nodes against their distance, with ± 2 standard errors.

    Args:
        lags: distances along the first axis, as fractions of its length.
        correlation: for each of "residuals", "members" and "truth": correlations and their errors.
        theme: "light" or "dark".
    """
    distance = np.asarray(lags, dtype=np.float64)
    figure, ((axes,),) = sheet(1, 1, width=5, height=3.2)
    axes.axhline(0, color=ink(), linewidth=0.8)
    for name, (value, error) in correlation.items():
        k, line = STYLES[name]
        values, margin = np.asarray(value, dtype=np.float64), 2 * np.nan_to_num(np.asarray(error, dtype=np.float64))
        band(axes, distance, values - margin, values + margin, k)
        curve(axes, distance, values, k, LABELS[name], linestyle=line, marker="o", markersize=3)
    axes.set_xscale("log")
    ticks = [tick for tick in TICKS if distance.min() <= tick <= distance.max()] or [float(distance[0])]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    lowest = limits(*(value for value, _ in correlation.values()))[0]
    tidy(axes, None, xlabel="distance / length of the axis", ylabel="correlation", ylim=(min(-0.1, 1.1 * lowest), 1.05))
    keys(figure, [axes])
    return figure


@themed
def functionals(observed: ArrayLike, bounds: ArrayLike, level: float, *, theme: Theme = "light") -> Figure:
    """Plot intervals of the mean, the maximum and the roughness of fields, and the observed values, for up to 40 inputs.

    Args:
        observed: (sample, 3).
        bounds: of the intervals, (2, sample, 3).
        level: nominal level of the intervals.
        theme: "light" or "dark".
    """
    values, ends = np.asarray(observed, dtype=np.float64), np.asarray(bounds, dtype=np.float64)
    figure, grid = sheet(1, 3, width=10, height=3)
    for k, (axes, name) in enumerate(zip(grid[0], ("mean", "maximum", "roughness"), strict=True)):
        u, (low, high) = values[:, k], ends[:, :, k]
        inside = (low <= u) & (u <= high)
        shown = np.flatnonzero(np.isfinite(u))[:MOST_INPUTS]
        shown = shown[np.argsort((low + high)[shown])]
        place = np.arange(len(shown))
        axes.vlines(
            place, low[shown], high[shown], color=colour(0), linewidth=2.4, alpha=0.5, label=f"{100 * level:g} % interval"
        )
        for mark, chosen, label in ((None, inside[shown], "observed, inside"), (1, ~inside[shown], "observed, outside")):
            style = {"linestyle": "", "marker": "o" if mark is None else "D", "markersize": 3 if mark is None else 4}
            curve(axes, place[chosen], u[shown][chosen], mark, label, **style)
        total = np.isfinite(u)
        tidy(axes, None, f"{name}: {inside[total].sum()} of {total.sum()} inside", xlabel="test input (sorted)", xticks=[])
    keys(figure, grid[0])
    return figure
