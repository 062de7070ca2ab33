"""Figures of the paper by label, from arrays of any run.

>>> sorted(FIGURES)[:3]
['fig:1d_large_noise', 'fig:1d_noisy', 'fig:advection']

Arrays of several fields are (sample, channel, nodes), such as `data.test.u`. Every function has the keyword `theme`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from .._typing import Floats
from ..errors import UserError
from .diagrams import inference, operators
from .forecasts import DOTS, bands
from .style import (
    OUTPUT,
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

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FIGURES",
    "Evolution",
    "advection",
    "bands",
    "error_vs_epoch",
    "history",
    "inference",
    "large_noise",
    "learned_solutions",
    "noise_distribution",
    "noisy_samples",
    "operators",
]

COLOURS = 4  # of a theme
COLUMNS = 6  # of the frames of the reverse chain: V_100, V_90, …, V_0 fill two rows


class Evolution:
    """Record states V_n of the reverse chain at regular steps, for `history`. Pass it to a sampler as its callback.

        evolution = Evolution()
        model.sample(a[:1], callback=evolution)
        history(evolution.frames)

    It keeps the first state, then the first one at or below each multiple of `every`, and the last one. Further batches of
    members are ignored. States are normalised as in the chain; `model.scalings["u"].restore` inverts the normalisation.

    Args:
        every: steps of the full chain between two frames.
        row: number of the member within the first batch.
    """

    def __init__(self, every: int = 10, row: int = 0) -> None:
        if every < 1:
            raise UserError(f"every = {every}: expected a number of steps, at least 1")
        self.every, self.row = every, row
        self.frames: list[tuple[int, Floats]] = []
        self._last: int | None = None
        self._finished = False

    def __call__(self, n: int, v: "Tensor") -> None:
        """Record V_n = v, (row, channel, *grid), if it is due."""
        self._finished = self._finished or (self._last is not None and n > self._last)
        if self._finished:
            return
        if self._last is None or -(-n // self.every) < -(-self._last // self.every):
            self.frames.append((n, v[self.row].detach().cpu().numpy().astype(np.float64)))
        self._last = n


@themed
def large_noise(
    x: ArrayLike, u: Floats, observed: Floats, mean: Floats, std: Floats, noise: float, *, theme: Theme = "light"
) -> Figure:
    """Plot learned means (left) and standard deviations (right) for very noisy data (`fig:1d_large_noise`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        observed: noisy observations of u.
        mean: learned mean.
        std: learned standard deviation.
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
    """Plot states of the reverse chain, from noise to a solution (`fig:darcyflow_history`, `fig:advection_history`).

    Args:
        frames: (n, V_n), such as `Evolution.frames`.
        x: nodes of the axis, or of each axis.
        shared: whether all frames have the same colour scale or vertical axis, as suitable for normalised states.
        theme: "light" or "dark".
    """
    states = [(n, plane(v)) for n, v in frames]
    if not states:
        raise UserError("there are no states of the reverse chain; sample with callback=Evolution()")
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
    for each in axes.flat[: len(states)][-COLUMNS:]:  # the lowest of each column, also above a removed one
        each.tick_params(labelbottom=lines)
    if not lines and shared:
        bar(mesh, axes[0, -1])
    return figure


@themed
def noise_distribution(
    cases: Sequence[tuple[str, ArrayLike, ArrayLike, ArrayLike, ArrayLike]], *, theme: Theme = "light"
) -> Figure:
    """Plot the learned and exact density of the noise η at one node, one panel per case (`fig:noise_distribution`).

    Args:
        cases: (title, values of η, exact density there, learned density there, learned draws of η) of each panel.
        theme: "light" or "dark".
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
def advection(x: ArrayLike, u: Floats, pdno: Floats, fno: Floats, *, theme: Theme = "light") -> Figure:
    """Plot predictions of PDNO and FNO where the relative L2 error of PDNO is smallest and largest (`fig:advection`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        pdno: means of PDNO.
        fno: predictions of FNO.
        theme: "light" or "dark".
    """
    (along,) = nodes(x, plane(u[0]).shape)
    errors = {"PDNO": _relative(pdno, u), "FNO": _relative(fno, u)}
    if not np.isfinite(errors["PDNO"]).any():
        raise UserError("all solutions are zero, so the relative error is undefined; pass others")
    cases = {"best": np.nanargmin(errors["PDNO"]), "worst": np.nanargmax(errors["PDNO"])}
    figure, axes = sheet(2, 2, width=9, height=2.1, sharex=True, sharey=True)
    for column, (title, i) in zip(axes.T, cases.items(), strict=True):
        for k, (each, (method, prediction)) in enumerate(zip(column, (("PDNO", pdno), ("FNO", fno)), strict=True)):
            curve(each, along, plane(prediction[i]), k, method)
            curve(each, along, plane(u[i]), None, "exact", linestyle=":")
            where = f"{title} of {len(u)}, " if k == 0 else ""
            tidy(each, along, f"{where}{method}: error {100 * errors[method][i]:.1f} %")
        column[-1].set_xlabel("x")
    keys(figure, axes.flat)
    return figure


def _relative(prediction: Floats, u: Floats) -> Floats:
    """Return the relative L2 error of each sample, (sample,); NaN where u is zero."""
    error, size = (np.linalg.norm(np.reshape(v, (len(u), -1)), axis=1) for v in (prediction - u, u))
    return np.asarray(np.divide(error, size, out=np.full(len(u), np.nan), where=size > 0))


@themed
def noisy_samples(x: ArrayLike, a: Floats, observed: Floats, *, theme: Theme = "light") -> Figure:
    """Plot inputs (top) and their noisy outputs (bottom), one pair per column (`fig:noisy_advection_sample`)."""
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
    u: Floats,
    mean: Floats,
    *,
    lower: Floats | None = None,
    upper: Floats | None = None,
    theme: Theme = "light",
) -> Figure:
    """Plot solutions learned from very noisy outputs, and the exact ones (`fig:learned_solutions_advection`).

    Args:
        x: nodes.
        u: exact solutions, (sample, channel, nodes).
        mean: learned mean.
        lower: 5 % quantile of the learned distribution; with `upper`, a band is drawn.
        upper: 95 % quantile.
        theme: "light" or "dark".
    """
    (along,) = nodes(x, plane(u[0]).shape)
    figure, axes = sheet(1, len(u), width=9, height=2.9, sharey=True)
    for i, each in enumerate(axes[0]):
        if lower is not None and upper is not None:
            band(each, along, plane(lower[i]), plane(upper[i]), 0, "learned 90 % interval")
        curve(each, along, plane(mean[i]), 0, "learned mean")
        curve(each, along, plane(u[i]), None, "exact", linestyle=":")
        tidy(each, along, f"input {i}", xlabel="x")
    axes[0, 0].set_ylabel("u")
    keys(figure, axes[0])
    return figure


@themed
def error_vs_epoch(problems: Mapping[str, Mapping[str, tuple[ArrayLike, ArrayLike]]], *, theme: Theme = "light") -> Figure:
    """Plot the MRLE against epochs of training, one panel per problem and one line per mesh (`fig:error_vs_epoch`).

    Args:
        problems: title → label, such as "128²" → (epochs, MRLE).
        theme: "light" or "dark".
    """
    figure, axes = sheet(1, len(problems), height=3)
    for each, (title, lines) in zip(axes[0], problems.items(), strict=True):
        for k, (label, (epochs, error)) in enumerate(lines.items()):
            style = "--" if k >= COLOURS else "-"  # colours and markers repeat
            curve(each, epochs, error, k, label, marker="osD^"[k % COLOURS], markersize=3, linestyle=style)
        each.set_yscale("log")
        tidy(each, None, title, xlabel="epoch")
        each.legend()
    axes[0, 0].set_ylabel("MRLE")
    return figure


FIGURES: dict[str, Callable[..., Figure]] = {
    "fig:op-diagram": operators,
    "fig:schemeDDMP": inference,
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
"""Label of a figure → function; the two diagrams take no arrays."""
