"""The figures of the paper by their labels, to be drawn from any run.

>>> sorted(FIGURES)[:3]
['fig:1d_large_noise', 'fig:1d_noisy', 'fig:advection']

Arrays of several fields are (sample, channel, nodes), such as `data.test.u`. Every picture has the keyword `theme`.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor

from ..errors import UserError
from .forecasts import DOTS, bands
from .style import (
    OUTPUT,
    Array,
    Coordinates,
    Theme,
    band,
    bar,
    chart,
    colour,
    curve,
    ink,
    keys,
    limits,
    nodes,
    plane,
    sheet,
    themed,
    tidy,
)

__all__ = [
    "FIGURES",
    "Evolution",
    "advection",
    "bands",
    "error_vs_epoch",
    "history",
    "large_noise",
    "learned_solutions",
    "noise_distribution",
    "noisy_samples",
]

COLUMNS = 6  # of the reverse evolution: V_100, V_90, …, V_0 are two rows


class Evolution:
    """States V_n of the reverse chain every so many steps, for `history`. Hand it to a sampler as its callback.

        evolution = Evolution()
        model.sample(a[:1], callback=evolution)
        history(evolution.frames)

    The first state that is seen is kept, then the first one at or below each multiple of `every`, and the last one. Members
    that a model draws in further batches are not looked at. States are those of the chain: normalised, as the model saw u;
    `model.scalings["u"].restore` brings them back.

    Args:
        every: steps of the full chain between two frames.
        row: which of the members that are drawn together.
    """

    def __init__(self, every: int = 10, row: int = 0) -> None:
        if every < 1:
            raise UserError(f"every = {every}: expected a number of steps, at least 1")
        self.every, self.row = every, row
        self.frames: list[tuple[int, Array]] = []
        self._last: int | None = None
        self._over = False

    def __call__(self, n: int, v: Tensor) -> None:
        """Look at V_n = v, (rows, channel, *grid)."""
        self._over = self._over or (self._last is not None and n > self._last)
        if self._over:
            return
        if self._last is None or -(-n // self.every) < -(-self._last // self.every):
            self.frames.append((n, v[self.row].detach().cpu().numpy().astype(np.float64)))
        self._last = n


@themed
def large_noise(
    x: ArrayLike, u: Array, observed: Array, mean: Array, std: Array, noise: float, *, theme: Theme = "light"
) -> Figure:
    """Learned solutions (left) and standard deviations (right) from very noisy data, a row an input (`fig:1d_large_noise`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        observed: the same with noise, to show how strong it is.
        mean: learned.
        std: learned.
        noise: standard deviation of the noise.
        theme: "light" or "dark".
    """
    (along,) = nodes(x, plane(u[0]).shape)
    figure, axes = sheet(len(u), 2, width=8.5, height=2.3, sharex=True)
    for i, (left, right) in enumerate(axes):
        curve(left, along, plane(observed[i]), 1, "exact with noise", **DOTS)
        curve(left, along, plane(mean[i]), 0, "learned")
        curve(left, along, plane(u[i]), None, "exact", linestyle=":")
        curve(right, along, plane(std[i]), 0, "learned")
        right.axhline(noise, color=ink(), linestyle=":", label="exact")
        right.set_ylim(0, 1.15 * max(noise, limits(std)[1]))
        tidy(left, along, "solution" if i == 0 else "", ylabel=f"input {i}")
        tidy(right, along, "standard deviation" if i == 0 else "")
    for each in axes[-1]:
        each.set_xlabel("x")
    keys(figure, axes.flat)
    return figure


@themed
def history(
    frames: Sequence[tuple[int, ArrayLike]], *, x: Coordinates | None = None, shared: bool = True, theme: Theme = "light"
) -> Figure:
    """How the reverse chain turns noise into a solution (`fig:darcyflow_history`, `fig:advection_history`).

    Args:
        frames: (n, V_n), such as `Evolution.frames`.
        x: nodes of the axis, or of each axis.
        shared: one scale for all, as normalised states have; else each frame has its own.
        theme: "light" or "dark".
    """
    states = [(n, plane(v)) for n, v in frames]
    if not states:
        raise UserError("no state of the reverse chain was seen; draw a member with Evolution() as the callback")
    along = nodes(x, states[0][1].shape)
    rows, lines = -(-len(states) // COLUMNS), len(along) == 1
    figure, axes = sheet(rows, min(COLUMNS, len(states)), width=10, height=1.7, sharex=lines, sharey=lines and shared)
    span = limits(*(v for _, v in states)) if shared else None
    for each, (n, v) in zip(axes.flat, states, strict=False):
        if lines:
            curve(each, along[0], v, 0, linewidth=0.8)
            tidy(each, along[0], f"n = {n}")
        else:
            mesh = chart(each, along, v, OUTPUT, span)
            each.set_title(f"n = {n}")
            if not shared:
                bar(mesh, each)
    for each in axes.flat[len(states) :]:
        each.remove()
    for each in axes.flat[: len(states)][-COLUMNS:]:  # the lowest of each column, also where one was removed below
        each.tick_params(labelbottom=lines)
    if not lines and shared:
        bar(mesh, axes[0, -1])
    return figure


@themed
def noise_distribution(
    cases: Sequence[tuple[str, ArrayLike, ArrayLike, ArrayLike, ArrayLike]], *, theme: Theme = "light"
) -> Figure:
    """The density of the noise η at one node, learned and exact, a panel a case (`fig:noise_distribution`).

    A case is (title, values of η, exact density there, learned density there, draws of η that were learned).
    """
    figure, axes = sheet(1, len(cases), width=4.3 * len(cases), height=3.2)
    for each, (title, eta, exact, learned, draws) in zip(axes[0], cases, strict=True):
        at = np.asarray(eta, dtype=np.float64)
        each.hist(np.ravel(draws), 60, range=limits(at), density=True, color=colour(0), alpha=0.3, label="draws")
        curve(each, at, learned, 0, "learned density")
        curve(each, at, exact, None, "exact density", linestyle=":")
        tidy(each, at, title, xlabel="η")
    axes[0, 0].set_ylabel("density")
    keys(figure, axes[0])
    return figure


@themed
def advection(x: ArrayLike, u: Array, pdno: Array, fno: Array, *, theme: Theme = "light") -> Figure:
    """Where PDNO is best (left) and worst (right) by its relative L2 error, and what FNO says there (`fig:advection`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        pdno: means that PDNO forecasts.
        fno: what FNO predicts.
        theme: "light" or "dark".
    """
    (along,) = nodes(x, plane(u[0]).shape)
    errors = {"PDNO": _relative(pdno, u), "FNO": _relative(fno, u)}
    if not np.isfinite(errors["PDNO"]).any():
        raise UserError("all solutions are zero, so no error is relative to them; give others")
    chosen = {"best": np.nanargmin(errors["PDNO"]), "worst": np.nanargmax(errors["PDNO"])}
    figure, axes = sheet(2, 2, width=9, height=2.1, sharex=True, sharey=True)
    for column, (place, i) in zip(axes.T, chosen.items(), strict=True):
        for k, (each, (method, guess)) in enumerate(zip(column, (("PDNO", pdno), ("FNO", fno)), strict=True)):
            curve(each, along, plane(guess[i]), k, method)
            curve(each, along, plane(u[i]), None, "exact", linestyle=":")
            where = f"{place} of {len(u)}, " if k == 0 else ""
            tidy(each, along, f"{where}{method}: error {100 * errors[method][i]:.1f} %")
        column[-1].set_xlabel("x")
    keys(figure, axes.flat)
    return figure


def _relative(guess: Array, u: Array) -> Array:
    """Relative L2 error of each sample; NaN where u is zero."""
    missed, size = (np.linalg.norm(np.reshape(v, (len(u), -1)), axis=1) for v in (guess - u, u))
    return np.asarray(np.divide(missed, size, out=np.full(len(u), np.nan), where=size > 0))


@themed
def noisy_samples(x: ArrayLike, a: Array, observed: Array, *, theme: Theme = "light") -> Figure:
    """Inputs (top) and their noisy outputs (bottom), a column a pair (`fig:noisy_advection_sample`)."""
    (along,) = nodes(x, plane(a[0]).shape)
    figure, axes = sheet(2, len(a), width=9, height=2, sharex=True, sharey="row")
    for i, (top, bottom) in enumerate(axes.T):
        curve(top, along, plane(a[i]), 0, linewidth=1)
        curve(bottom, along, plane(observed[i]), 1, linewidth=0.6)
        tidy(top, along, f"pair {i}")
        tidy(bottom, along, xlabel="x")
    axes[0, 0].set_ylabel("input u₀")
    axes[1, 0].set_ylabel("noisy output u")
    return figure


@themed
def learned_solutions(
    x: ArrayLike,
    u: Array,
    mean: Array,
    *,
    lower: Array | None = None,
    upper: Array | None = None,
    theme: Theme = "light",
) -> Figure:
    """What was learned from very noisy outputs beside the exact solutions (`fig:learned_solutions_advection`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        mean: learned.
        lower: 5 % quantile of the learned law; with `upper`, a band.
        upper: 95 % quantile.
        theme: "light" or "dark".
    """
    (along,) = nodes(x, plane(u[0]).shape)
    figure, axes = sheet(1, len(u), width=9, height=2.9, sharey=True)
    for i, each in enumerate(axes[0]):
        if lower is not None and upper is not None:
            band(each, along, plane(lower[i]), plane(upper[i]), 0, "learned 90 % band")
        curve(each, along, plane(mean[i]), 0, "learned mean")
        curve(each, along, plane(u[i]), None, "exact", linestyle=":")
        tidy(each, along, f"input {i}", xlabel="x")
    axes[0, 0].set_ylabel("u")
    keys(figure, axes[0])
    return figure


@themed
def error_vs_epoch(problems: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]], *, theme: Theme = "light") -> Figure:
    """Decay of the MRLE with the epochs of training, a panel a problem and a line a mesh (`fig:error_vs_epoch`).

    `problems` maps titles to lines, and these map labels such as "128²" to (epochs, MRLE).
    """
    figure, axes = sheet(1, len(problems), height=3)
    for each, (title, lines) in zip(axes[0], problems.items(), strict=True):
        for k, (label, (epochs, error)) in enumerate(lines.items()):
            curve(each, epochs, error, k, label, marker="osD^"[k % 4], markersize=3)
        each.set_yscale("log")
        tidy(each, None, title, xlabel="epoch")
        each.legend()
    axes[0, 0].set_ylabel("MRLE")
    return figure


FIGURES: dict[str, Callable[..., Figure]] = {
    "fig:1d_noisy": bands,
    "fig:1d_large_noise": large_noise,
    "fig:darcyflow_history": history,
    "fig:noise_distribution": noise_distribution,
    "fig:advection_history": history,
    "fig:advection": advection,
    "fig:noisy_advection_sample": noisy_samples,
    "fig:learned_solutions_advection": learned_solutions,
    "fig:error_vs_epoch": error_vs_epoch,
}
"""Label → the picture."""
