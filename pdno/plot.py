"""Pictures. Each function takes arrays, returns a matplotlib Figure and leaves no global state behind."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .dataset import Dataset

__all__ = ["bands", "pairs", "preview"]

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
        if fields[1].ndim == 1:
            _lines(top, bottom, data.test.xarray["x"].values, *fields)
        else:
            _map(top, fields[0], "cividis")
            _map(bottom, fields[2], "viridis")
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


def _map(axes: Axes, values: Array, colours: str) -> None:
    image = axes.imshow(values.T, origin="lower", cmap=colours)
    axes.set_xticks([])
    axes.set_yticks([])
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, shrink=0.8)


def preview(data: Dataset, count: int = 4) -> Figure:
    """The first training pairs: inputs above, outputs below; of several channels the first."""
    count = min(count, len(data.train))
    figure = Figure(figsize=(3.1 * count, 5.2), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False)
    for row, name in enumerate(("a", "u")):
        values = getattr(data.train, name)[:count, 0]
        x = data.train.xarray.coords.get(str(data.train.xarray[name].dims[2])) if values.ndim > 1 else None
        for column, field in enumerate(values):
            _field(axes[row, column], field, None if x is None else x.values)
        axes[row, 0].set_ylabel(name)
    for column in range(count):
        axes[0, column].set_title(f"pair {column}", fontsize=11)
    return figure


def _field(axes: Axes, field: Array, x: Array | None) -> None:
    if field.ndim == 1:
        axes.plot(np.arange(len(field)) if x is None else x, field, color=BLUE, linewidth=1.2)
        axes.spines[["top", "right"]].set_visible(False)
    else:
        _map(axes, field.reshape(*field.shape[:2], -1)[..., 0], "viridis")


def bands(x: Array, panels: Sequence[tuple[str, Array, Array, Array, float]]) -> Figure:
    """Learned mean and 95 % band beside the exact solution and the band of its noise (`fig:1d_noisy`, `fig:1d_large_noise`).

    A panel is (title, exact u, learned mean, learned std, std of the noise).
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for axes, (title, u, mean, std, noise) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        low, high = mean - 1.96 * std, mean + 1.96 * std
        axes.fill_between(x, low, high, color=BLUE, alpha=0.25, linewidth=0, label="learned 95 % band")
        axes.plot(x, mean, color=BLUE, linewidth=1.5, label="learned mean")
        axes.plot(x, u, color="black", linewidth=1, linestyle=":", label="exact solution")
        for sign in (-1, 1):
            label = "exact 95 % band" if sign < 0 else None
            axes.plot(x, u + sign * 1.96 * noise, color=ORANGE, linewidth=1, linestyle="--", label=label)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("x")
        axes.set_xlim(x[0], x[-1])
        axes.locator_params(axis="x", nbins=5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("u")
    figure.axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    return figure
