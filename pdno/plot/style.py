"""Themes and drawing primitives of the figures.

A figure is made by a function decorated with `themed`: it takes arrays and the keyword `theme`, and returns a matplotlib
Figure. It opens no window, does not import pyplot, and leaves the settings of matplotlib unchanged.

Colours are from the Okabe–Ito palette, which is distinguishable for every kind of colour vision; only those with a contrast of
at least 3:1 to the background are used. A field is (channel, *grid) or (nodes,): the first channel is drawn, and of three axes
the middle slice of the last one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeGuard

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation
from numpy.typing import ArrayLike

from .._typing import Floats
from ..data.nodes import Nodes
from ..errors import UserError, nearest

__all__ = [
    "COVERAGE",
    "ERROR",
    "INPUT",
    "OUTPUT",
    "PALETTE",
    "Coordinates",
    "Meshed",
    "Theme",
    "around",
    "band",
    "bar",
    "chart",
    "colour",
    "curve",
    "diagonal",
    "ink",
    "is_line",
    "keys",
    "limits",
    "meshed",
    "nodes",
    "plane",
    "sheet",
    "themed",
    "tidy",
    "triangulation",
]

Coordinates = ArrayLike | Sequence[ArrayLike]
"""Nodes of the one axis, or of each axis."""
Meshed = list[Floats] | Triangulation
"""Nodes of each axis, or the triangles of a mesh."""
Theme = Literal["light", "dark"]
P = ParamSpec("P")

PALETTE: dict[Theme, tuple[str, ...]] = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7"),  # blue, vermilion, green, purple
    "dark": ("#56b4e9", "#e69f00", "#009e73", "#cc79a7"),  # sky blue, orange, green, purple
}
GROUND: dict[Theme, tuple[str, str]] = {"light": ("#ffffff", "#16181d"), "dark": ("#16181d", "#e4e6eb")}  # background, ink
INPUT = "cividis"  # colour map of inputs and standard deviations
OUTPUT = "viridis"  # of outputs
ERROR = "RdBu_r"  # of errors: diverging
COVERAGE = "PuOr"  # of coverage: diverging
MAX_CHANNELS = 16  # with more, the axis of channels is assumed to be missing


def themed(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that makes a figure, so that its keyword `theme` selects the theme."""

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
    """Return the colour of text."""
    return str(mpl.rcParams["text.color"])


def colour(k: int) -> str:
    """Return the k-th colour of the palette, cyclically."""
    cycle: list[str] = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    return cycle[k % len(cycle)]


def sheet(rows: int, columns: int, width: float | None = None, height: float = 2.6, **options: Any) -> tuple[Figure, Any]:
    """Return a figure and an array (rows, columns) of axes; width in inches, height in inches per row."""
    figure = Figure(figsize=(width or float(np.clip(3.1 * columns, 4, 10)), height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


# Fields


def plane(field: ArrayLike) -> Floats:
    """Return the part of a field that is drawn, (nodes,) or (nodes, nodes): the first channel, of three axes the middle slice.

    >>> plane(np.ones((2, 8, 8, 5))).shape, plane(np.ones((2, 8))).shape, plane(np.ones(8)).shape
    ((8, 8), (8,), (8,))
    """
    values = np.asarray(field, dtype=np.float64)
    if not 1 <= values.ndim <= 4 or (values.ndim > 1 and len(values) > MAX_CHANNELS) or not values.size:
        raise UserError(
            f"a field has shape {values.shape}, expected (channel, *grid) on 1 to 3 axes; one channel is field[None]"
        )
    first = values if values.ndim == 1 else values[0]
    return first[..., first.shape[2] // 2] if first.ndim == 3 else first


def triangulation(mesh: Nodes) -> Triangulation | None:
    """Return the triangles of a mesh to draw; None for nodes on a line.

    A mesh in three dimensions is seen from above: triangles, or the surface of tetrahedra, from the lowest to the highest.
    """
    if mesh.dim == 1:
        return None
    x, y, faces = mesh.points[:, 0], mesh.points[:, 1], mesh.cells
    if faces.shape[1] == 4:
        every = np.sort(faces[:, [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]].reshape(-1, 3), axis=1)
        unique, count = np.unique(every, axis=0, return_counts=True)
        faces = unique[count == 1]
    if faces.shape[1] != 3:
        return Triangulation(x, y)
    return Triangulation(x, y, faces[np.argsort(mesh.points[faces, -1].mean(axis=1))] if mesh.dim == 3 else faces)


def is_line(along: Meshed) -> TypeGuard[list[Floats]]:
    """Return whether fields with these coordinates are drawn as lines."""
    return isinstance(along, list) and len(along) == 1


def meshed(x: Coordinates | Triangulation | None, shape: tuple[int, ...]) -> Meshed:
    """Return `nodes`, or a triangulation as it is, if values of this shape are on its nodes."""
    if isinstance(x, Triangulation):
        return x if shape == x.x.shape else nodes(None, shape)
    return nodes(x, shape)


def nodes(x: Coordinates | None, shape: tuple[int, ...]) -> list[Floats]:
    """Return coordinates along each axis of a plane; the indices of the nodes if x is None.

    >>> nodes(None, (2, 3)), nodes([0.0, 0.5], (2,))
    ([array([0., 1.]), array([0., 1., 2.])], [array([0. , 0.5])])
    """
    if x is None:
        return [np.arange(n, dtype=np.float64) for n in shape]
    several = not isinstance(x, np.ndarray) and np.ndim(x[0]) > 0  # type: ignore[index]
    axes = [np.asarray(axis, dtype=np.float64) for axis in (x if several else [x])][: len(shape)]  # type: ignore[union-attr]
    if tuple(axis.shape for axis in axes) != tuple((n,) for n in shape):
        lengths = ", ".join(str(axis.size) for axis in axes)
        raise UserError(f"coordinates of {lengths} nodes for a field on {shape}; pass one array for each axis of the field")
    return axes


def limits(*values: ArrayLike) -> tuple[float, float]:
    """Return minimum and maximum of all finite values; (0, 1) if there are none.

    >>> limits([1, np.nan], [[3], [2]])
    (1.0, 3.0)
    """
    flat = np.concatenate([np.ravel(np.asarray(v, dtype=np.float64)) for v in values])
    finite = flat[np.isfinite(flat)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def around(centre: float, *values: ArrayLike, least: float = 0.0) -> tuple[float, float]:
    """Return the smallest range around `centre` that contains all values, and at least `centre` ± `least`.

    >>> around(0, [-1, 3])
    (-3.0, 3.0)
    """
    low, high = limits(*values)
    half = max(abs(low - centre), abs(high - centre), least) or 1.0
    return centre - half, centre + half


# Primitives


def curve(axes: Axes, x: ArrayLike, y: ArrayLike, k: int | None, label: str | None = None, **options: Any) -> None:
    """Draw a line in the k-th colour; in the colour of text for None."""
    axes.plot(np.asarray(x), np.asarray(y), color=ink() if k is None else colour(k), label=label, **options)


def band(axes: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, k: int | None, label: str | None = None) -> None:
    """Fill the area between two lines in a faint k-th colour; in that of text for None."""
    shade, alpha = (ink(), 0.16) if k is None else (colour(k), 0.28)
    axes.fill_between(np.asarray(x), np.asarray(low), np.asarray(high), color=shade, alpha=alpha, linewidth=0, label=label)


def diagonal(axes: Axes, low: float, high: float, above: str, below: str) -> None:
    """Draw the diagonal of the square from low to high, and label the areas above and below it."""
    axes.plot([low, high], [low, high], color=ink(), linewidth=1, linestyle="--")
    axes.set(xlim=(low, high), ylim=(low, high), box_aspect=1)
    box = {"facecolor": axes.get_facecolor(), "alpha": 0.7, "linewidth": 0, "pad": 1}  # readable on top of data
    axes.text(0.04, 0.96, above, transform=axes.transAxes, ha="left", va="top", bbox=box)
    axes.text(0.96, 0.04, below, transform=axes.transAxes, ha="right", va="bottom", bbox=box)


def chart(axes: Axes, x: Meshed, values: Floats, colours: str, span: tuple[float, float] | None = None) -> Collection:
    """Draw a map of values (first axis, second axis), the first axis horizontal; non-finite values are left blank.

    With a triangulation, values (node,) are interpolated linearly in each triangle.
    """
    low, high = limits(values) if span is None else span
    colouring: dict[str, Any] = {"cmap": colours, "vmin": low, "vmax": high, "rasterized": True}
    if isinstance(x, Triangulation):
        mesh: Collection = axes.tripcolor(x, np.nan_to_num(values, nan=low), shading="gouraud", **colouring)
        x = [x.x, x.y]
    else:
        mesh = axes.pcolormesh(x[0], x[1], np.ma.masked_invalid(values.T), shading="nearest", **colouring)
    axes.set(xticks=[], yticks=[])
    sides = [float(np.ptp(axis)) or 1.0 for axis in x]
    axes.set_box_aspect(float(np.clip(sides[1] / sides[0], 0.5, 2)))
    return mesh


def bar(mesh: Collection, axes: Axes, label: str = "") -> Axes:
    """Draw the colour bar of a map to its right; return its axes."""
    side = axes.inset_axes((1.04, 0.02, 0.05, 0.96))
    colours = axes.figure.colorbar(mesh, cax=side, ticks=MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]), label=label)
    colours.ax.yaxis.set_offset_position("left")
    return side


def tidy(axes: Axes, x: Floats | None = None, title: str = "", **labels: Any) -> None:
    """Remove the frame except for two axes; set the range of x, few ticks, the title, and other properties of `Axes.set`."""
    axes.spines[["top", "right"]].set_visible(False)
    if x is not None and len(x) > 1:
        axes.set_xlim(float(np.min(x)), float(np.max(x)))
        axes.locator_params(axis="x", nbins=5)
    axes.set(title=title, **labels)


def keys(figure: Figure, axes: Iterable[Axes]) -> None:
    """Draw one legend of all axes below the figure, each label once."""
    handles: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    sizes = sorted((0.55 + 0.062 * len(label) for label in handles), reverse=True)  # width in inches, approximately
    columns = sum(sum(sizes[: k + 1]) <= figure.get_figwidth() for k in range(len(sizes)))
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=max(1, columns))
