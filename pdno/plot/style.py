"""Themes and the strokes that pictures are made of.

A picture is a function decorated with `themed`: it takes arrays and the keyword `theme`, and returns a matplotlib Figure. No
window is opened, pyplot is not imported, and settings of matplotlib are as before when it returns.

Colours are of the Okabe–Ito palette, apart for every kind of colour vision; of its members those are used that stand out from
the background by 3:1 or more. A field is (channel, *grid), or (nodes,): of channels the first is drawn, of a field on three
axes the slice through the middle of the last one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from ..errors import UserError, nearest

__all__ = [
    "ERROR",
    "INPUT",
    "OUTPUT",
    "PALETTE",
    "PROMISE",
    "Array",
    "Coordinates",
    "Theme",
    "around",
    "band",
    "bar",
    "chart",
    "colour",
    "curve",
    "diagonal",
    "ink",
    "keys",
    "limits",
    "nodes",
    "plane",
    "sheet",
    "themed",
    "tidy",
]

Array = NDArray[np.float64]
Coordinates = ArrayLike | Sequence[ArrayLike]
"""Nodes of the one axis, or of each axis."""
Theme = Literal["light", "dark"]
P = ParamSpec("P")

PALETTE: dict[Theme, tuple[str, ...]] = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7"),  # blue, vermilion, green, purple
    "dark": ("#56b4e9", "#e69f00", "#009e73", "#cc79a7"),  # sky blue, orange, green, purple
}
GROUND: dict[Theme, tuple[str, str]] = {"light": ("#ffffff", "#16181d"), "dark": ("#16181d", "#e4e6eb")}  # background, ink
INPUT, OUTPUT, ERROR, PROMISE = "cividis", "viridis", "RdBu_r", "PuOr"  # maps; the last two diverge
CHANNELS = 16  # a field with more is taken for one whose axis of channels was forgotten


def themed(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Let a picture be drawn in the theme that its keyword `theme` names."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(_settings(kwargs.get("theme", "light"))):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return drawn


def _settings(theme: Any) -> dict[str, Any]:
    if theme not in GROUND:
        raise UserError(f"theme {theme!r} is unknown; {nearest(str(theme), GROUND)}")
    ground, text = GROUND[theme]
    inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color", "ytick.color")
    sizes = {"font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8.5, "figure.titlesize": 10}
    return {
        **dict.fromkeys(inked, text),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), ground),
        **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor", "legend.labelcolor"), text),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
        **sizes,
        "axes.prop_cycle": cycler(color=PALETTE[theme]),
        "legend.frameon": False,
        "lines.linewidth": 1.3,
        "savefig.facecolor": "auto",
        "axes.formatter.limits": (-3, 4),
        "axes.formatter.use_mathtext": True,
        "figure.constrained_layout.h_pad": 0.07,
        "figure.constrained_layout.w_pad": 0.07,
    }


def ink() -> str:
    """The colour of text."""
    return str(mpl.rcParams["text.color"])


def colour(k: int) -> str:
    """The k-th colour of the palette; after the last one they begin again."""
    cycle: list[str] = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    return cycle[k % len(cycle)]


def sheet(rows: int, columns: int, width: float | None = None, height: float = 2.6, **options: Any) -> tuple[Figure, Any]:
    """A figure with an array (rows, columns) of axes; sizes in inches, the height is that of a row."""
    figure = Figure(figsize=(width or float(np.clip(3.1 * columns, 4, 10)), height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


# Fields


def plane(field: ArrayLike) -> Array:
    """What is drawn of a field: its first channel, of three axes the middle slice; (nodes,) or (nodes, nodes).

    >>> plane(np.ones((2, 8, 8, 5))).shape, plane(np.ones((2, 8))).shape, plane(np.ones(8)).shape
    ((8, 8), (8,), (8,))
    """
    values = np.asarray(field, dtype=np.float64)
    if not 1 <= values.ndim <= 4 or (values.ndim > 1 and len(values) > CHANNELS) or not values.size:
        raise UserError(
            f"a field has shape {values.shape}, expected (channel, *grid) on 1 to 3 axes; one channel is field[None]"
        )
    first = values if values.ndim == 1 else values[0]
    return first[..., first.shape[2] // 2] if first.ndim == 3 else first


def nodes(x: Coordinates | None, shape: tuple[int, ...]) -> list[Array]:
    """Coordinates along each axis of a plane; without x, the numbers of the nodes.

    >>> nodes(None, (2, 3)), nodes([0.0, 0.5], (2,))
    ([array([0., 1.]), array([0., 1., 2.])], [array([0. , 0.5])])
    """
    if x is None:
        return [np.arange(n, dtype=np.float64) for n in shape]
    several = not isinstance(x, np.ndarray) and np.ndim(x[0]) > 0  # type: ignore[index]
    found = [np.asarray(axis, dtype=np.float64) for axis in (x if several else [x])][: len(shape)]  # type: ignore[union-attr]
    if tuple(axis.shape for axis in found) != tuple((n,) for n in shape):
        lengths = ", ".join(str(axis.size) for axis in found)
        raise UserError(f"coordinates of {lengths} nodes for a field on {shape}; give one array for each axis of the field")
    return found


def limits(*values: ArrayLike) -> tuple[float, float]:
    """The range that all these values share, leaving out what is not finite.

    >>> limits([1, np.nan], [[3], [2]])
    (1.0, 3.0)
    """
    flat = np.concatenate([np.ravel(np.asarray(v, dtype=np.float64)) for v in values])
    known = flat[np.isfinite(flat)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


def around(centre: float, *values: ArrayLike, least: float = 0.0) -> tuple[float, float]:
    """The range of all these values, widened so that `centre` is in its middle, and `least` from both ends or more.

    >>> around(0, [-1, 3])
    (-3.0, 3.0)
    """
    low, high = limits(*values)
    reach = max(abs(low - centre), abs(high - centre), least) or 1.0
    return centre - reach, centre + reach


# Strokes


def curve(axes: Axes, x: ArrayLike, y: ArrayLike, k: int | None, label: str | None = None, **options: Any) -> None:
    """A line in the k-th colour, or in ink."""
    axes.plot(np.asarray(x), np.asarray(y), color=ink() if k is None else colour(k), label=label, **options)


def band(axes: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, k: int | None, label: str | None = None) -> None:
    """What lies between two lines, in a faint k-th colour, or in faint ink."""
    shade, alpha = (ink(), 0.16) if k is None else (colour(k), 0.28)
    axes.fill_between(np.asarray(x), np.asarray(low), np.asarray(high), color=shade, alpha=alpha, linewidth=0, label=label)


def diagonal(axes: Axes, low: float, high: float, above: str, below: str) -> None:
    """A square from low to high with its diagonal, and what it means to be above or below."""
    axes.plot([low, high], [low, high], color=ink(), linewidth=1, linestyle="--")
    axes.set(xlim=(low, high), ylim=(low, high), box_aspect=1)
    box = {"facecolor": axes.get_facecolor(), "alpha": 0.7, "linewidth": 0, "pad": 1}  # readable also where data are below
    axes.text(0.04, 0.96, above, transform=axes.transAxes, ha="left", va="top", bbox=box)
    axes.text(0.96, 0.04, below, transform=axes.transAxes, ha="right", va="bottom", bbox=box)


def chart(axes: Axes, x: Sequence[Array], values: Array, colours: str, span: tuple[float, float] | None = None) -> QuadMesh:
    """A map of values (first axis, second axis), the first axis to the right; what is not finite stays empty."""
    low, high = limits(values) if span is None else span
    shown = np.ma.masked_invalid(values.T)
    mesh = axes.pcolormesh(x[0], x[1], shown, shading="nearest", cmap=colours, vmin=low, vmax=high, rasterized=True)
    axes.set(xticks=[], yticks=[])
    sides = [float(np.ptp(axis)) or 1.0 for axis in x]
    axes.set_box_aspect(float(np.clip(sides[1] / sides[0], 0.5, 2)))
    return mesh


def bar(mesh: QuadMesh, axes: Axes, label: str = "") -> Axes:
    """The colours of a map, right beside it. Of maps that share them, the last one has the bar."""
    side = axes.inset_axes((1.04, 0.02, 0.05, 0.96))
    found = axes.figure.colorbar(mesh, cax=side, ticks=MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]), label=label)
    found.ax.yaxis.set_offset_position("left")
    return side


def tidy(axes: Axes, x: Array | None = None, title: str = "", **labels: Any) -> None:
    """No frame but two axes, the range of x, few ticks, a title, and whatever else `Axes.set` takes."""
    axes.spines[["top", "right"]].set_visible(False)
    if x is not None and len(x) > 1:
        axes.set_xlim(float(np.min(x)), float(np.max(x)))
        axes.locator_params(axis="x", nbins=5)
    axes.set(title=title, **labels)


def keys(figure: Figure, axes: Iterable[Axes]) -> None:
    """What lines and bands mean, each label once: below the figure, not on its data."""
    found: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    sizes = sorted((0.55 + 0.062 * len(label) for label in found), reverse=True)  # inches, about
    columns = sum(sum(sizes[: k + 1]) <= figure.get_figwidth() for k in range(len(sizes)))
    if found:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=max(1, columns))
