"""Figures of data and of predictions."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation
from numpy.typing import ArrayLike

from .._typing import Floats
from ..data.dataset import Dataset
from ..errors import UserError
from .style import (
    ERROR,
    INPUT,
    OUTPUT,
    Coordinates,
    Meshed,
    Theme,
    around,
    band,
    bar,
    chart,
    curve,
    ink,
    is_line,
    keys,
    limits,
    meshed,
    nodes,
    plane,
    sheet,
    themed,
    tidy,
    triangulation,
)

__all__ = ["bands", "fields", "pairs", "preview"]

DOTS: dict[str, Any] = {"linestyle": "", "marker": ".", "markersize": 2.5}  # of noisy observations
MAPS = 5  # maximum number of maps that share the scale of u
Z_90 = 1.64  # standard deviations of a central 90 % interval of a Gaussian
Z_95 = 1.96  # likewise, of 95 %


# Data


@themed
def pairs(sets: Sequence[tuple[str, Dataset]], sample: int = 0, *, theme: Theme = "light") -> Figure:
    """Plot one test pair of each data set: the input a (top), the output u (line) and its noisy observation (dots).

    Args:
        sets: (title, data) of each column.
        sample: number of the test pair.
        theme: "light" or "dark".
    """
    figure, axes = sheet(2, len(sets), height=2.4)
    for (top, bottom), (title, data) in zip(axes.T, sets, strict=True):
        observed = data.test.u if data.test.u_eta is None else data.test.u_eta
        a, u, u_eta = (plane(values[sample, :1]) for values in (data.test.a, data.test.u, observed))
        if u.ndim == 1:
            x = data.test.xarray["x"].values
            curve(top, x, a, 0)
            curve(bottom, x, u_eta, 1, "observed", **DOTS)
            curve(bottom, x, u, 0, "exact")
            tidy(top, x)
            tidy(bottom, x)
        else:
            bar(chart(top, nodes(None, a.shape), a, INPUT), top)
            bar(chart(bottom, nodes(None, u.shape), u_eta, OUTPUT), bottom)
        top.set_title(fill(title, 24))
    axes[0, 0].set_ylabel("input a")
    axes[1, 0].set_ylabel("output u, observed")
    keys(figure, axes[1])
    return figure


@themed
def preview(data: Dataset, count: int = 4, *, theme: Theme = "light") -> Figure:
    """Plot the first channel of the first `count` training pairs: inputs (top) and outputs (bottom)."""
    count = min(count, len(data.train))
    figure, axes = sheet(2, count, height=2.1, sharey="row")
    for row, name in zip(axes, ("a", "u"), strict=True):
        values = [plane(field[:1]) for field in getattr(data.train, name)[:count]]
        labels = data.train.xarray.coords.get(str(data.train.xarray[name].dims[-1]))
        x = labels.values if labels is not None and labels.dtype.kind in "iuf" and values[0].ndim == 1 else None
        triangles = None if data.train.nodes is None else triangulation(data.train.nodes)
        _row(row, values, meshed(triangles or x, values[0].shape), INPUT if name == "a" else OUTPUT)
        row[0].set_ylabel(name)
    for column, each in enumerate(axes[0]):
        each.set_title(f"pair {column}")
    return figure


def _row(row: Sequence[Axes], values: Sequence[Floats], along: Meshed, colours: str) -> None:
    """Draw lines, or maps with a shared colour scale."""
    for axes, field in zip(row, values, strict=True):
        if is_line(along):
            curve(axes, along[0], field, 0)
            tidy(axes, along[0])
        else:
            mesh = chart(axes, along, field, colours, limits(*values))
    if not is_line(along):
        bar(mesh, row[-1])


# Predictions


@themed
def fields(
    a: ArrayLike | None,
    u: ArrayLike | None,
    mean: ArrayLike,
    std: ArrayLike,
    members: Sequence[ArrayLike] | Floats = (),
    *,
    x: Coordinates | Triangulation | None = None,
    observed: ArrayLike | None = None,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    labels: Mapping[str, str] | None = None,
    title: str = "",
    theme: Theme = "light",
) -> Figure:
    """Plot the prediction for one input, and the truth.

    Args:
        a: the input, on the grid of u or another; None to omit it.
        u: the truth; None if it is unknown.
        mean: predicted mean.
        std: predicted standard deviation.
        members: ensemble members; at most three are shown.
        x: nodes of the axis, or of each axis; a triangulation for the nodes of a mesh.
        observed: noisy observation of u.
        lower: 5 % quantile; default: mean − 1.64 std.
        upper: 95 % quantile; default: mean + 1.64 std.
        labels: names with units of "a" and "u", and of the axes "x", "y", such as {"x": "position [km]"}.
        title: of the figure.
        theme: "light" or "dark".
    """
    given = {"observed": observed, "truth": u, "mean": mean, **{f"member {k}": v for k, v in enumerate(members[:3], start=1)}}
    like_u = {name: plane(value) for name, value in given.items() if value is not None}
    more = {name: plane(v) for name, v in {"std": std, "lower": lower, "upper": upper}.items() if v is not None}
    shape = like_u["mean"].shape
    for name, value in {**like_u, **more}.items():
        if value.shape != shape:
            raise UserError(f"{name} is on a grid {value.shape}, the mean on {shape}; pass both on one grid")
    given_a, along = None if a is None else plane(a), meshed(x, shape)
    draw = _lines if is_line(along) else _maps
    figure = draw(given_a, like_u, more, along, {"a": "a", "u": "u", "x": "x", **(labels or {})})
    if title:
        figure.suptitle(title)
    return figure


def _lines(
    a: Floats | None, like_u: Mapping[str, Floats], more: Mapping[str, Floats], along: Any, labels: Mapping[str, str]
) -> Figure:
    """Draw the input, the prediction, and its error with its standard deviation."""
    x, mean, std = along[0], like_u["mean"], more["std"]
    figure, axes = sheet(1, 2 if a is None else 3, width=9.5, height=3)
    *rest, middle, right = axes[0]
    if a is not None:
        _input(rest[0], a, along, labels)
    bounded = "lower" in more and "upper" in more
    low, high = (more["lower"], more["upper"]) if bounded else (mean - Z_90 * std, mean + Z_90 * std)
    band(middle, x, low, high, 0, "90 % interval" if bounded else f"mean ± {Z_90} std")
    for name, value in like_u.items():
        if name.startswith("member"):
            curve(middle, x, value, 2, "members", linewidth=0.6)
    if "observed" in like_u:
        curve(middle, x, like_u["observed"], 1, "observed", **DOTS)
    curve(middle, x, mean, 0, "mean")
    band(right, x, -std, std, None, "± std")
    if "truth" in like_u:
        curve(middle, x, like_u["truth"], None, "truth", linestyle=":")
        curve(right, x, mean - like_u["truth"], 3, "mean − truth")
    right.axhline(0, color=ink(), linewidth=0.8)
    tidy(middle, x, f"output {labels['u']}", xlabel=labels["x"])
    tidy(right, x, "error and spread" if "truth" in like_u else "spread", xlabel=labels["x"])
    keys(figure, (middle, right))
    return figure


def _maps(
    a: Floats | None, like_u: Mapping[str, Floats], more: Mapping[str, Floats], along: Meshed, labels: Mapping[str, str]
) -> Figure:
    """Draw maps with the scale of u (top), and input, error and std with their own scales (bottom)."""
    shown = dict(list(like_u.items())[:MAPS])
    own = {"std": (more["std"], INPUT, limits(more["std"]))}
    if "truth" in like_u:
        error = like_u["mean"] - like_u["truth"]
        own = {"mean − truth": (error, ERROR, around(0, error)), **own}
    panels = max(len(shown), 1.5 * (len(own) + (a is not None)))
    figure = Figure(figsize=(min(9.5, 0.8 + 1.9 * panels), 4.4), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
    top = above.subplots(1, len(shown), squeeze=False)[0]
    bottom = list(below.subplots(1, len(own) + (a is not None), squeeze=False)[0])
    _row(top, list(shown.values()), along, OUTPUT)
    for axes, name in zip(top, shown, strict=True):
        axes.set_title(name)
    if "y" in labels:
        top[0].set(xlabel=labels["x"], ylabel=labels["y"])
    if a is not None:
        _input(bottom.pop(0), a, along, labels)
    for axes, (name, (value, colours, span)) in zip(bottom, own.items(), strict=True):
        bar(chart(axes, along, value, colours, span), axes)
        axes.set_title(name)
    return figure


def _input(axes: Axes, a: Floats, along: Meshed, labels: Mapping[str, str]) -> None:
    """Draw the input, at the nodes of the output if the shapes agree."""
    shape = along.x.shape if isinstance(along, Triangulation) else tuple(len(axis) for axis in along)
    _row([axes], [a], along if a.shape == shape else nodes(None, a.shape), INPUT)
    axes.set(title=f"input {labels['a']}", xlabel=labels["x"] if a.ndim == 1 else "")


@themed
def bands(x: ArrayLike, panels: Sequence[tuple[str, Floats, Floats, Floats, float]], *, theme: Theme = "light") -> Figure:
    """Plot learned mean and 95 % interval, and the exact solution and interval (`fig:1d_noisy`).

    Args:
        x: nodes.
        panels: (title, exact u, learned mean, learned std, std of the noise) of each panel.
        theme: "light" or "dark".
    """
    along = np.asarray(x, dtype=np.float64)
    figure, row = sheet(1, len(panels), height=3.2)
    for axes, (title, u, mean, std, noise) in zip(row[0], panels, strict=True):
        band(axes, along, mean - Z_95 * std, mean + Z_95 * std, 0, "learned 95 % interval")
        curve(axes, along, mean, 0, "learned mean")
        curve(axes, along, u, None, "exact solution", linestyle=":")
        for sign in (-1, 1):
            curve(axes, along, u + sign * Z_95 * noise, 1, "exact 95 % interval", linestyle="--", linewidth=1)
        tidy(axes, along, title, xlabel="x")
    row[0, 0].set_ylabel("u")
    keys(figure, row[0])
    return figure
