"""Coordinates of inputs, components of outputs and the processes between them, trained on some runs."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ..._typing import Array, Floats
from ...work.state import State
from .components import Basis, Coordinates
from .regression import Hyper, Regression, select
from .warp import Warp, warped

__all__ = ["Fitted"]

MOST_OUTPUTS = 30  # components of outputs
LEAST_SHARE = 1e-8  # of the variance of outputs, that a component has
RUNS_PER_COMPONENT = 2  # at least: the last components of few runs are single runs
NUMBERS = 2**26  # of the inverse matrices of all processes
SELECTING = 100  # runs on which kernels are selected
REFINING = 300  # runs on which lengths and nuggets are refined
REFINING_STEPS = 10


@dataclass(frozen=True, eq=False)
class Fitted:
    """Processes that are conditioned on runs.

    Args:
        coordinates: of inputs.
        warp: their maps.
        basis: of outputs.
        hyper: hyper-parameters of the processes.
        x: coordinates of the runs, (run, coordinate).
        y: their numbers, (run, component).
        rest: standard deviation of what the components leave of outputs, (channel, *grid).
    """

    coordinates: Coordinates
    warp: Warp
    basis: Basis
    hyper: Hyper
    x: Floats
    y: Floats
    rest: Floats

    @classmethod
    def of(cls, a: Floats, u: Floats, s: Floats, start: Self | None = None, roots: Floats | None = None) -> Self:
        """Train on runs.

        Args:
            a, u, s: inputs, outputs and scalars.
            start: whose coordinates are used, and whose maps and hyper-parameters are refined.
            roots: of the weights of the nodes of u, (node,), for principal components; default: those of `start`.
        """
        roots = roots if start is None else start.basis.roots
        n = len(u)
        most = min(MOST_OUTPUTS, max(1, n // RUNS_PER_COMPONENT), max(1, NUMBERS // n**2))
        coordinates = (
            Coordinates.of(a, s, roots if a.shape[-1] == u.shape[-1] else None) if start is None else start.coordinates
        )
        basis = Basis.of(u, most if start is None else min(most, start.y.shape[1]), LEAST_SHARE, roots=roots)
        x, y = coordinates(a, s), basis.numbers(u)
        if start is None:
            some = select(x[:SELECTING], y[:SELECTING])
            warp, hyper = warped(x[:SELECTING], y[:SELECTING], some)
        else:
            warp, hyper = start.warp, start.hyper.first(y.shape[1])
        if start is not None or n > SELECTING:
            warp, hyper = warped(x[:REFINING], y[:REFINING], hyper, warp.bend, REFINING_STEPS)
        x = warp(x)
        left = np.square(u - basis.restored(y)).sum(axis=0) / max(n - 1 - y.shape[1], 1)
        return cls(coordinates, warp, basis, hyper, x, y, np.sqrt(left))

    @cached_property
    def regression(self) -> Regression:
        """The processes."""
        return Regression(self.x, self.y, self.hyper)

    def inputs(self, a: Array, s: Array) -> Floats:
        """Return the mapped coordinates, (sample, coordinate)."""
        return self.warp(self.coordinates(a, s))

    def __call__(self, a: Array, s: Array) -> Floats:
        """Return m(a)."""
        return self.basis.restored(self.regression(self.inputs(a, s))[0])

    def variances(self, a: Array, s: Array) -> tuple[Floats, Floats]:
        """Return the variances of the numbers by the nuggets and of their means, (component,) and (sample, component)."""
        size = self.regression.variance
        return self.hyper.nugget * size, self.regression(self.inputs(a, s))[1] * size

    def state(self) -> State:
        """Return all arrays, to be saved."""
        arrays = {"x": self.x, "y": self.y, "rest": self.rest, "kernel": self.hyper.kernel, "log": self.hyper.log}
        return State(
            {}, arrays, {"coordinates": self.coordinates.state(), "warp": self.warp.state(), "basis": self.basis.state()}
        )

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        arrays = {name: np.array(values) for name, values in state.arrays.items()}
        hyper = Hyper(arrays["kernel"].astype(np.int64), arrays["log"])
        parts = state.parts
        coordinates, warp = Coordinates.from_state(parts["coordinates"]), Warp.from_state(parts["warp"])
        basis = Basis.from_state(parts["basis"])
        return cls(coordinates, warp, basis, hyper, arrays["x"], arrays["y"], arrays["rest"])
