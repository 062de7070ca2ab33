"""The two diagrams of the paper: the commutative diagram of operator learning, and the inference stage."""

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from .._typing import Floats
from ..draw import normals
from .style import Theme, colour, ink, sheet, themed

__all__ = ["inference", "operators"]

Point = tuple[float, float]

NODES = 48  # of a curve in a box
N_STEPS = 100
STATES = {"V_N": 100, "V_n": 40, "V_{n-1}": 26, "V_0": 0}  # of the inference stage → step that is drawn
BOX = (1.5, 1.0)  # width and height of a box in inches


@themed
def operators(*, theme: Theme = "light") -> Figure:
    """Draw the commutative diagram of operator learning (`fig:op-diagram`).

    The direct route learns 𝒮_θ : 𝒜 → 𝒰 between spaces of functions, the other s_θ between their discretisations, with
    restrictions ℛ and interpolations ℐ.
    """
    figure, axes = _canvas(6.0, 2.7)
    left, right, top, bottom = 1.15, 4.85, 2.2, 0.5
    corners = {
        (left, top): r"$a\in\mathcal{A}$",
        (right, top): r"$u\in\mathcal{U}$",
        (left, bottom): r"$\mathbf{A}\in\mathbb{R}^{d_\mathcal{A}}$",
        (right, bottom): r"$\mathbf{U}\in\mathbb{R}^{d_\mathcal{U}}$",
    }
    for at, text in corners.items():
        _text(axes, at, text)
    half, gap, shift = 0.62, 0.24, 0.09
    for k, (y, text) in enumerate(
        ((top, r"$\mathcal{S}_\theta\approx\mathcal{S}^\dagger$"), (bottom, r"$s_\theta\approx s^\dagger$"))
    ):
        _arrow(axes, (left + half, y), (right - half, y), k)
        _text(axes, ((left + right) / 2, y + 0.18), text)
    notes = (top - 0.17, "between spaces of functions"), (bottom - 0.17, "between fields on a mesh")
    for y, text in notes:
        axes.text((left + right) / 2, y, text, ha="center", va="center", fontsize=8)
    for x, space in ((left, "A"), (right, "U")):
        _arrow(axes, (x - shift, top - gap), (x - shift, bottom + gap))
        _arrow(axes, (x + shift, bottom + gap), (x + shift, top - gap))
        _text(axes, (x - shift - 0.24, (top + bottom) / 2), rf"$\mathcal{{R}}_\mathcal{{{space}}}$")
        _text(axes, (x + shift + 0.24, (top + bottom) / 2), rf"$\mathcal{{I}}_\mathcal{{{space}}}$")
    return figure


@themed
def inference(*, theme: Theme = "light") -> Figure:
    """Draw the inference stage: the reverse chain from noise to a solution, conditioned on the input (`fig:schemeDDMP`)."""
    figure, axes = _canvas(9.6, 3.9)
    y, centres = 2.75, (1.0, 3.35, 6.25, 8.6)
    for x, (name, n) in zip(centres, STATES.items(), strict=True):
        _curve(axes, (x, y), _state(n), 1 if n else 0)
        _text(axes, (x, y + 0.68), rf"$\mathbf{{{name[0]}}}{name[1:]}$")
    for k, (start, end) in enumerate(pairwise(centres)):
        if k == 1:
            _arrow(axes, (start + BOX[0] / 2, y), (end - BOX[0] / 2, y))
            _text(axes, ((start + end) / 2, y + 0.24), r"$\bar{\rho}_\theta(\mathbf{V}_{n-1}|\mathbf{V}_n,\mathbf{A})$")
        else:
            _chain(axes, start + BOX[0] / 2, end - BOX[0] / 2, y)
    axes.text(centres[0], y - 0.72, r"$\mathbf{V}_N\sim\mathcal{N}(0,\mathbf{I})$", ha="center", va="center")
    axes.text(centres[-1], y - 0.72, r"a member of $q_\theta(\cdot\,|\mathbf{A})$", ha="center", va="center")
    low, network = 0.75, (4.8, 0.75)
    _curve(axes, (centres[0], low), _input(), 2)
    _text(axes, (centres[0], low - 0.66), r"input $\mathbf{A}$")
    _box(axes, network, (2.9, 0.9))
    _text(axes, (network[0], low + 0.17), r"network $\epsilon_\theta(n,\mathbf{V}_n,\mathbf{A})$")
    _text(
        axes,
        (network[0], low - 0.2),
        r"$\mathbf{V}_{n-1}\sim\mathcal{N}(m_\theta(n,\mathbf{V}_n,\mathbf{A}),\,\sigma_n\mathbf{I})$",
    )
    _arrow(axes, (centres[0] + BOX[0] / 2, low), (network[0] - 1.45, low), 2)
    _arrow(axes, (centres[1], y - BOX[1] / 2), (centres[1] + 0.25, low + 0.45), 1)
    _arrow(axes, (centres[2] - 0.25, low + 0.45), (centres[2], y - BOX[1] / 2), 1)
    repeated = "repeated for $n=N,\\dots,1$,\nand for $M_\\mathrm{infer}$ members"
    axes.text(centres[-1], low, repeated, ha="center", va="center")
    return figure


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure with one area in which coordinates are inches."""
    figure, ((axes,),) = sheet(1, 1, width=width, height=height)
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.set_axis_off()
    return figure, axes


def _text(axes: Axes, at: Point, text: str) -> None:
    axes.text(*at, text, ha="center", va="center", fontsize=10)


def _arrow(axes: Axes, start: Point, end: Point, k: int | None = None) -> None:
    """Draw an arrow in the k-th colour; in that of text for None."""
    shade = ink() if k is None else colour(k)
    arrow = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, shrinkA=3, shrinkB=3, color=shade, linewidth=1.3)
    axes.add_patch(arrow)


def _chain(axes: Axes, start: float, end: float, y: float) -> None:
    """Draw two arrows with dots between them: steps that are not drawn."""
    middle = (start + end) / 2
    _text(axes, (middle, y), r"$\cdots$")
    _arrow(axes, (start, y), (middle - 0.12, y))
    _arrow(axes, (middle + 0.12, y), (end, y))


def _box(axes: Axes, centre: Point, size: Point = BOX) -> None:
    corner = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    shape = "round,pad=0,rounding_size=0.09"
    axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=shape, facecolor="none", edgecolor=ink(), linewidth=0.9))


def _curve(axes: Axes, centre: Point, values: Floats, k: int) -> None:
    """Draw a field, with values from −1 to 1, in a box."""
    _box(axes, centre)
    x = centre[0] + 0.9 * BOX[0] * np.linspace(-0.5, 0.5, NODES)
    axes.plot(x, centre[1] + 0.42 * BOX[1] * values, color=colour(k), linewidth=1.1)


def _state(n: int) -> Floats:
    """Return √γ_n u + √(1−γ_n) ε, (nodes,), at a third of its size."""
    gamma = np.cos(0.5 * np.pi * n / N_STEPS) ** 2
    x = np.linspace(0, 1, NODES)
    u = 1.9 * np.sin(np.pi * x) ** 2 * np.sin(3 * np.pi * x + 0.4)
    return np.asarray(np.clip((np.sqrt(gamma) * u + np.sqrt(1 - gamma) * normals(0, "diagram", 0, 1, NODES)[0]) / 2.4, -1, 1))


def _input() -> Floats:
    """Return an input that is piecewise constant, (nodes,)."""
    return 0.6 * np.sign(np.sin(8 * np.linspace(0, 1, NODES) + 0.7))
