r"""The conditional distribution of u given a that a model has learned,

    u | a = m(a) + residual,        m a mean (`pdno.mean`), the residual from a residual law (`pdno.residual`).

`Law` is immutable: `fit` creates it, and a saved model contains it. `Law.given(a)` is the distribution for some inputs; m(a)
and all other values that depend on a alone are computed once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .._typing import Array, Ints
from ..data.spaces import Spaces
from ..data.support import Support
from ..errors import UserError
from ..evaluation.novelty import Novelty
from ..learning.network import device_of
from ..mean.base import AnyGrid, Componentwise, Mean, Posterior
from ..mean.base import named_state as named_mean
from ..mean.choice import Trial
from ..residual.law import Inputs, ResidualLaw, Rows
from ..residual.law import named_state as named_law
from ..work.state import State
from .intervals import Intervals
from .transfer import Mesh, Transfer

__all__ = ["Given", "Law"]


@dataclass(frozen=True)
class Law:
    """The distribution of u given a.

    Args:
        spaces: grids and channels of a and u.
        mean: m.
        residual: the law of u − m(a).
        noise_std: standard deviation of the observation noise, (channel, *grid); None unless there are repeated inputs.
        support: values that outputs can take; None for any.
        novelty: out-of-distribution score of inputs; None if there were too few.
        fingerprints: of training and validation pairs, sorted.
        leaderboard: candidates for the mean.
        summary: what was selected and why, in sentences.
        history: rows of the training log of the residual law, or of the mean of a network baseline.
        provenance: version, seed, number of pairs and of updates.
        transfer: how to predict on other meshes; None for models that cannot.
        mesh: another mesh than that of training, on which `spaces` are; None for that of training. It is not saved.
        intervals: conformal calibration of the members; None before `calibrate`.
    """

    spaces: Spaces
    mean: Mean
    residual: ResidualLaw
    noise_std: Array | None = None
    support: Support | None = None
    novelty: Novelty | None = None
    fingerprints: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    leaderboard: tuple[Trial, ...] = ()
    summary: tuple[str, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    transfer: Transfer | None = None
    mesh: Mesh | None = None
    intervals: Intervals | None = None

    def on(self, spaces: Spaces) -> "Law":
        """Return the law on another mesh.

        Args:
            spaces: channels of training, and other grids on the same domain, such as those of `pdno.data.meshes.spaces_on`.

        Raises:
            UserError: if the model cannot predict on another mesh.
        """
        own = self.spaces if self.mesh is None else self.mesh.source
        if (spaces.a_shape, spaces.u_shape) == (own.a_shape, own.u_shape):
            return replace(self, spaces=spaces, mesh=None)
        if self.transfer is None:
            raise UserError(
                f"this model predicts on its grid of {own.grid} only, got {spaces.grid}; train it again with this version of "
                "pdno, or interpolate inputs to the grid of training"
            )
        return replace(self, spaces=spaces, mesh=Mesh(self.transfer, own, spaces))

    def given(self, a: Array, scalars: Array | None = None) -> "Given":
        """Return the distribution of u for inputs (sample, channel, *grid) and scalars (sample, parameter)."""
        return Given(self, a, scalars)

    def evaluations(self, **sampling: Any) -> int:
        """Return the number of network evaluations for one member; for a deterministic model, those of m(a)."""
        count = self.residual.evaluations(**sampling)
        return sum(len(leaf.networks) for leaf in self.mean.leaves()) if self.residual.deterministic else count

    @property
    def parameters(self) -> int:
        """Number of values that were learned: of the mean, and of the networks of the residual law."""
        return self.mean.parameters + sum(network.parameters for network in self.residual.networks)

    def to(self, device: str) -> None:
        """Move all networks to a device.

        Raises:
            UserError: if this machine does not have the device.
        """
        device_of(device)
        self.mean.to(device)
        for network in self.residual.networks:
            network.to(device)

    def state(self) -> State:
        """Return mean, residual law and all other fields, to be saved.

        Raises:
            UserError: if a part is code of the user that cannot be saved.
        """
        parts = {"spaces": self.spaces.state(), "mean": named_mean(self.mean), "residual": named_law(self.residual)}
        if self.support is not None:
            parts["support"] = self.support.state()
        if self.novelty is not None:
            parts["novelty"] = self.novelty.state()
        if self.transfer is not None:
            parts["transfer"] = self.transfer.state()
        if self.intervals is not None:
            parts["intervals"] = self.intervals.state()
        arrays: dict[str, Array] = {"fingerprints": self.fingerprints}
        arrays |= {} if self.noise_std is None else {"noise_std": self.noise_std}
        leaderboard = [trial.to_json() for trial in self.leaderboard]
        settings = {"leaderboard": leaderboard, "summary": list(self.summary), "provenance": dict(self.provenance)}
        return State(settings, arrays, parts)

    @classmethod
    def from_state(cls, state: State, mean: Callable[[State], Mean], residual: Callable[[State], ResidualLaw]) -> "Law":
        """Restore what `state` returned; `mean` and `residual` restore the two parts."""
        novelty, support, transfer, intervals = (
            state.parts.get(name) for name in ("novelty", "support", "transfer", "intervals")
        )
        return cls(
            Spaces.from_state(state.parts["spaces"]),
            mean(state.parts["mean"]),
            residual(state.parts["residual"]),
            state.arrays.get("noise_std"),
            None if support is None else Support.from_state(support),
            None if novelty is None else Novelty.from_state(novelty),
            state.arrays["fingerprints"],
            tuple(Trial(**trial) for trial in state.settings["leaderboard"]),
            tuple(state.settings["summary"]),
            (),
            state.settings["provenance"],
            None if transfer is None else Transfer.from_state(transfer),
            None,
            None if intervals is None else Intervals.from_state(intervals),
        )


class Given:
    """The distribution of u for some inputs.

    Args:
        law: of u given a.
        a: inputs, (sample, channel, *grid), on the grid of the law.
        scalars: (sample, parameter).
    """

    def __init__(self, law: Law, a: Array, scalars: Array | None = None) -> None:
        self.law, self.a, self.scalars = law, a, scalars

    @cached_property
    def inputs(self) -> Inputs:
        """The inputs with m(a), on the grid of training, and with the posterior of the mean if the law uses it."""
        a = self.a if self.law.mesh is None else self.law.mesh.inputs(self.a)
        mean, components = self.law.mean, None
        if self.law.residual.uses_components and isinstance(mean, Componentwise):
            components = mean.components(a, self.scalars)
        return Inputs(a, mean(a, self.scalars), self.scalars, components)

    @cached_property
    def centre(self) -> Array:
        """m(a) on the grid of the law, (sample, channel, *grid)."""
        mesh, mean = self.law.mesh, self.law.mean
        if mesh is None:
            return self.inputs.mean
        if mesh.is_direct and isinstance(mean, AnyGrid):
            return mean.on_grid(self.a, self.scalars)
        return mesh.mean(self.inputs.mean)

    @cached_property
    def _drawn_for(self) -> Inputs:
        """The inputs with m(a) on the grid on which residuals are drawn: that of training, or that of the law."""
        mesh = self.law.mesh
        is_direct = mesh is not None and mesh.draws_on_it(self.law.residual)
        return Inputs(self.a, self.centre, self.scalars) if is_direct else self.inputs

    @property
    def mean(self) -> Array | None:
        """The exact mean of u, (sample, channel, *grid); None if it is available only from members."""
        if not self.law.residual.centred:
            return None
        return self.centre if self.law.support is None else self.law.support.clipped(self.centre)

    def uncertainty(self) -> tuple[Array | None, Array | None]:
        """Return aleatoric and epistemic standard deviations in the shape of u; None for one that is not available.

        They come from repeated inputs, from homoscedastic residuals, or from the posterior of the mean.
        """
        noise, std, mesh = self.law.noise_std, self.law.residual.std, self.law.mesh
        both: tuple[Array, ...] = ()
        if noise is not None and std is not None:
            both = noise, np.sqrt(np.maximum(std**2 - noise**2, 0.0))
        elif isinstance(self.law.mean, Posterior) and not self.law.residual.deterministic:
            both = self.law.mean.uncertainty(self.inputs.a, self.scalars)
        shape = (len(self.a), *self.law.spaces.u_shape)
        values = [np.broadcast_to(x if mesh is None else mesh.std(x), shape) for x in both]
        return (values[0], values[1]) if values else (None, None)

    @torch.no_grad()
    def stream(
        self, members: int, seed: int = 0, *, chunk: int | None = None, start: int = 0, **sampling: Any
    ) -> Iterator[tuple[Ints, Ints, Array]]:
        """Yield (inputs, members, values) for all members of all inputs in turn, with the memory of one call.

        Member m of input i is a function of (seed, start + i, m). Calls have a fixed number of rows, the last one is padded, so
        that a member is bitwise the same at equal `chunk`.

        Args:
            members: of each input.
            seed: of the draws.
            chunk: rows of a call; default: by the size of a field.
            start: number of the first input.
            sampling: settings of the residual law, such as steps=20.
        """
        law, total = self.law.residual, len(self.a) * members
        inputs, shapes = self._drawn_for, (self.law.spaces.u_shape, self.inputs.mean.shape[1:])
        size = min(map(law.rows_of_call, shapes)) if chunk is None else positive(chunk, "chunk")
        for first in range(0, total, size):
            flat = np.minimum(np.arange(first, first + size), total - 1)
            places, numbers = flat // members, flat % members
            rows, kept = Rows(seed, start + places, numbers, places), slice(0, min(size, total - first))
            values = law.draw(inputs, rows, **sampling)[kept]
            moved = self.law.mesh.residual(values, rows) if self.law.mesh is not None and inputs is self.inputs else values
            u = self.centre[places[kept]] + moved
            yield places[kept], numbers[kept], u if self.law.support is None else self.law.support.nearest(u)


def positive(number: int, name: str = "members") -> int:
    """Return a whole number of at least 1.

    Raises:
        UserError: if it is not one.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise UserError(f"{name} = {number!r}: expected a whole number of at least 1")
    return int(number)
