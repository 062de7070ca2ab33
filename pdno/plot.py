"""Pictures. Each function takes arrays, returns a matplotlib Figure and leaves no global state behind."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .dataset import Dataset

__all__ = ["pairs"]

Array = NDArray[np.float64]
BLUE, ORANGE = "#0072b2", "#e69f00"  # of the Okabe–Ito palette: apart for every kind of colour vision


def pairs(sets: Sequence[tuple[str, Dataset]], sample: int = 0) -> Figure:
    """One test pair of each data set: the input a above, the output u (line) with its noisy observation (points) below."""
    figure = Figure(figsize=(3.1 * len(sets), 5.2), layout="constrained")
    axes = figure.subplots(2, len(sets), squeeze=False)
    for column, (title, data) in enumerate(sets):
        observed = data.test.u if data.test.u_eta is None else data.test.u_eta
        fields = (data.test.a[sample, 0], data.test.u[sample, 0], observed[sample, 0])
        top, bottom = axes[0, column], axes[1, column]
        top.set_title(title, fontsize=11)
        if data.grid.dim == 1:
            _lines(top, bottom, data.grid.axes[0].nodes, *fields)
        else:
            _maps(top, bottom, fields[0], fields[2])
    axes[0, 0].set_ylabel("input a")
    axes[1, 0].set_ylabel("output u, observed with noise")
    return figure


def _lines(top: Axes, bottom: Axes, x: Array, a: Array, u: Array, u_eta: Array) -> None:
    top.plot(x, a, color=BLUE, linewidth=1.2)
    bottom.plot(x, u_eta, ".", color=ORANGE, markersize=2.5, label="observed")
    bottom.plot(x, u, color=BLUE, linewidth=1.5, label="exact")
    bottom.legend(fontsize=8, loc="best", frameon=False)
    for axes in (top, bottom):
        axes.set_xlim(x[0], x[-1])
        axes.spines[["top", "right"]].set_visible(False)


def _maps(top: Axes, bottom: Axes, a: Array, u_eta: Array) -> None:
    for axes, values, colours in ((top, a, "cividis"), (bottom, u_eta, "viridis")):
        image = axes.imshow(values.T, origin="lower", cmap=colours)
        axes.set_xticks([])
        axes.set_yticks([])
        figure = axes.get_figure()
        assert figure is not None
        figure.colorbar(image, ax=axes, shrink=0.8)
