r"""Predictions on another mesh than that of training.

    a′ on A′  ──►  a on A  ──►  m(a) and draws of the residual law on U  ──►  interpolated to U′

The parts of a model are evaluated on the grids A and U of training: an input is interpolated to A, its mean and its members to
U′. A member is thus the same function on every mesh; only white noise has new values at new nodes (`pdno.residual.whitepart`).
An operator (`pdno.mean.base.AnyGrid`) can also be evaluated on A′ itself.

`Transfer.of` selects interpolation and evaluation on held-out pairs. They are moved to half the grid, and the way that loses
least is taken.
"""

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from .._typing import Array
from ..basis import modes
from ..data.interpolation import best_interpolation, half_of, possible_interpolations, relative_distance
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..grid import Grid, Interpolation, interpolate
from ..mean.base import AnyGrid, Mean
from ..residual.law import AnyGridLaw, ResidualLaw, Rows
from ..residual.whitepart import WhitePart, nearest_nodes, relative_waves
from ..work.state import State

__all__ = ["UNRESOLVED", "Mesh", "Transfer"]

MEASURED = 64  # pairs that the selection is based on
LEAST_NOISE = 1e-4  # std of white noise, relative to that of predictions, from which it is treated as such
AS_GOOD = 1.01  # error of a direct evaluation, relative to that with interpolation, up to which it is selected: it is no
# worse on half the grid, and on finer grids it can have details that interpolation cannot
ROUNDING = 1e-9
HIGHEST = 0.75  # wavenumber relative to the highest one, from which modes count as the highest
TINY = 1e-300
UNRESOLVED = 0.01  # part of the variance in the highest modes, from which inputs count as unresolved


@dataclass(frozen=True, eq=False)
class Transfer:
    """How a model predicts on another mesh.

    Args:
        a, u, residual: interpolation of inputs, of m(a) and of residuals.
        white: the white part of residuals.
        direct: whether m is evaluated on the grid of the inputs.
        errors: relative errors on half the grid, at the grid of training and directly; NaN if they were not measured.
        rough: part of the variance of m(a) in the highest modes of the grid of training.
    """

    a: Interpolation
    u: Interpolation
    residual: Interpolation
    white: WhitePart
    direct: bool = False
    errors: tuple[float, float] = (np.nan, np.nan)
    rough: float = 0.0

    @classmethod
    def of(cls, mean: Mean, pairs: Pairs, spaces: Spaces) -> "Transfer":
        """Select interpolation and evaluation on pairs, preferably held-out ones."""
        some = pairs[:MEASURED]
        prediction = mean(some.a, some.scalars)
        if not np.isfinite(prediction).all():
            return cls("linear", "linear", "linear", WhitePart.of(np.zeros(prediction.shape), [False] * len(spaces.kind)))
        errors = some.u - prediction if some.mask is None else np.zeros_like(prediction)
        white = WhitePart.of(errors, [kind == "periodic" for kind in spaces.kind], LEAST_NOISE * float(prediction.std()))
        is_number = min(spaces.a_shape[1:]) < 2  # an input without a grid, which is never interpolated
        a: Interpolation = "linear" if is_number else best_interpolation(some.a, spaces.a_grid)
        u = best_interpolation(prediction, spaces.grid)
        residual: Interpolation = "series" if "series" in possible_interpolations(spaces.grid) else u
        new = cls(a, u, residual, white, rough=_share_of_highest(prediction, spaces.grid))
        measured = new._half_errors(mean, some, spaces)
        return replace(new, direct=bool(measured[1] <= AS_GOOD * measured[0] + ROUNDING), errors=measured)

    def _half_errors(self, mean: Mean, pairs: Pairs, spaces: Spaces) -> tuple[float, float]:
        """Return the errors of an operator on half the grid: at the grid of training and interpolated, and directly."""
        half = half_of(spaces.grid) if spaces.a_shape[1:] == spaces.u_shape[1:] else None
        if half is None or not isinstance(mean, AnyGrid) or not mean.any_grid or pairs.mask is not None:
            return np.nan, np.nan
        a, u = interpolate(pairs.a, spaces.a_grid, half, self.a), interpolate(pairs.u, spaces.grid, half, self.u)
        target = replace(spaces, a_shape=a.shape[1:], u_shape=u.shape[1:], coordinates={})
        mesh = Mesh(self, spaces, target)
        try:
            direct = mean.on_grid(a, pairs.scalars)
        except UserError:  # too few points for the operator
            return np.nan, np.nan
        return relative_distance(mesh.mean(mean(mesh.inputs(a), pairs.scalars)), u), relative_distance(direct, u)

    def describe(self) -> str:
        """Describe predictions on other meshes in a sentence."""
        method = "spectral" if self.u == "series" else self.u
        way = "on the grid of the input" if self.direct else f"on the grid of training, with {method} interpolation"
        if np.isfinite(self.errors).all():
            way += f" (error on half the grid: {self.errors[0]:.2g} interpolated, {self.errors[1]:.2g} directly)"
        noise = "; white noise keeps its standard deviation at every node" if self.white.exists else ""
        return f"On other meshes, the mean is evaluated {way}{noise}."

    def state(self) -> State:
        """Return all settings, to be saved."""
        settings = {name: getattr(self, name) for name in ("a", "u", "residual", "direct", "rough")}
        arrays = {"white": self.white.share, "errors": np.array(self.errors)}
        return State({**settings, "periodic": list(self.white.periodic)}, arrays)

    @classmethod
    def from_state(cls, state: State) -> "Transfer":
        """Restore what `state` returned.

        Raises:
            UserError: if an interpolation is unknown.
        """
        settings = dict(state.settings)
        if unknown := {settings[name] for name in ("a", "u", "residual")} - set(get_args(Interpolation)):
            raise UserError(f"the file has the unknown interpolation {unknown.pop()!r}; save the model again")
        white = WhitePart(np.asarray(state.arrays["white"]), tuple(map(bool, settings.pop("periodic"))))
        low, high = map(float, state.arrays["errors"])
        return cls(**settings, white=white, errors=(low, high))


@dataclass(frozen=True, eq=False)
class Mesh:
    """The maps between the grids of training and others.

    Args:
        transfer: how to interpolate.
        source, target: the spaces of training, and those of the prediction.
    """

    transfer: Transfer
    source: Spaces
    target: Spaces

    def inputs(self, a: Array) -> Array:
        """Return inputs on the grid of training."""
        if self.source.a_shape == self.target.a_shape:
            return a
        return interpolate(a, self.target.a_grid, self.source.a_grid, self._of_inputs)

    def mean(self, values: Array) -> Array:
        """Return predictions on the new grid."""
        return interpolate(values, self.source.grid, self.target.grid, self.transfer.u)

    def std(self, values: Array) -> Array:
        """Return standard deviations (…, channel, *grid) on the new grid."""
        shape = self.source.u_shape
        whole = np.broadcast_to(values, (*values.shape[: values.ndim - len(shape)], *shape))
        return np.maximum(interpolate(whole, self.source.grid, self.target.grid, "linear"), 0.0)

    def residual(self, values: Array, rows: Rows) -> Array:
        """Return draws of the residual law on the new grid, those of the first rows."""
        source, target, white = self.source.grid, self.target.grid, self.transfer.white
        if not white.exists or source.shape == target.shape:
            return interpolate(values, source, target, self.transfer.residual)
        noise = white.drawn(values, rows)
        smooth = interpolate(values - noise, source, target, self.transfer.residual)
        return smooth + white.moved(noise, rows, source, target)

    @property
    def is_direct(self) -> bool:
        """Whether the mean is evaluated on the grid of the inputs, which is that of the outputs."""
        return self.transfer.direct and self.target.a_shape[1:] == self.target.u_shape[1:]

    def draws_on_it(self, law: ResidualLaw) -> bool:
        """Whether a law draws members on this mesh itself: functions, on a grid at least as fine as that of training."""
        grids = zip(self.target.u_shape[1:], self.source.u_shape[1:], strict=True)
        shared = self.target.a_shape[1:] == self.target.u_shape[1:]
        return isinstance(law, AnyGridLaw) and law.any_grid and shared and all(n >= m for n, m in grids)

    def unresolved(self, a: Array) -> float:
        """Return the part of the variance of inputs in the highest modes; 0 if the nodes of training are among theirs."""
        if self.source.a_shape == self.target.a_shape:
            return 0.0
        source, target = self.source.a_grid, self.target.a_grid
        if all(nearest_nodes(t, s)[1].all() for s, t in zip(source.axes, target.axes, strict=True)):
            return 0.0
        return _share_of_highest(a, target)

    def notes(self, law: ResidualLaw) -> tuple[str, ...]:
        """Return what a prediction on this mesh is, in sentences."""
        is_drawn = self.draws_on_it(law)
        way = "the mean is evaluated on this grid" if self.is_direct else "predictions are interpolated"
        way = "members are drawn on this grid" if is_drawn else way
        first = f"Trained on a grid of {self.source.grid}, predicted on {self.target.grid}: {way}."
        notes, finer = [first], any(n > m for n, m in zip(self.target.u_shape, self.source.u_shape, strict=True))
        if finer and self.transfer.rough > UNRESOLVED and not (self.is_direct or is_drawn):
            notes.append(
                f"Outputs are not resolved on the grid of training, {100 * self.transfer.rough:.2g} % of their variance is in "
                "its highest modes: jumps are placed up to a spacing of that grid; train on a finer one to place them better."
            )
        if self.transfer.white.exists and not is_drawn:
            notes.append("White noise has the standard deviation of training at every node, whatever the distance of nodes.")
        return tuple(notes)

    @property
    def _of_inputs(self) -> Interpolation:
        """The interpolation of inputs, a simpler one if their grid has too few points."""
        possible = possible_interpolations(self.target.a_grid, 1)
        return self.transfer.a if self.transfer.a in possible else possible[0]


def _share_of_highest(values: Array, grid: Grid) -> float:
    """Return the part of the variance of fields (sample, channel, *grid) in the highest modes of their grid."""
    periodic = [axis.kind == "periodic" for axis in grid.axes]
    power = np.square(modes(values, periodic)).sum(axis=(0, 1))
    power.flat[0] = 0.0  # the constant
    high = relative_waves(grid.shape, periodic) >= HIGHEST
    return float(power[high].sum() / max(power.sum(), TINY))
