"""The domain of a kernel regression: shapes, transforms and symmetries of inputs and outputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..._typing import Array, Floats, Mask
from ...basis import Kind, Waves, fields, modes, squared_waves, waves_of
from ...data.spaces import axis_kinds, input_kinds
from ...errors import UserError
from ...grid import Axis, Grid
from ...symmetry import Own, Symmetry, group
from .characters import Characters
from .solve import Labels

__all__ = ["Domain"]

BANDS = 12  # of output modes, at most, per channel
LINE_SHIFTS = 4  # translations along the axis of a line: few enough to train on the copies
PLANE_SHIFTS = 2  # translations along each axis in two dimensions or more


@dataclass(frozen=True, eq=False)
class Domain:
    """Shapes, transforms and symmetries of inputs and outputs.

    Args:
        shapes: of one input and of one output, (channel, *grid).
        waves: of the inputs' and of the outputs' axes, whether each is periodic.
        elements: of the group of symmetries, the identity first.
        mixes_channels: whether a symmetry may mix the channels of outputs.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    waves: tuple[Waves, Waves]
    elements: tuple[Symmetry, ...]
    mixes_channels: bool

    @classmethod
    def of(
        cls,
        a: tuple[int, ...],
        u: tuple[int, ...],
        symmetries: Sequence[str | Own],
        kind: Kind | Sequence[Kind],
        shifts: int | None,
    ) -> "Domain":
        """Return the domain of inputs and outputs with these shapes, (sample, channel, *grid).

        Raises:
            UserError: if there is not one kind for each axis of u, or symmetries are given for an a of another dimension.
        """
        of_u = axis_kinds(kind, len(u) - 2)
        of_a = input_kinds(of_u, len(a) - 2)
        if symmetries and len(a) != len(u):
            raise UserError(
                f"symmetries act on a and u in the same way, but inputs have {len(a) - 2} dimensions and outputs {len(u) - 2}; "
                "omit the symmetries"
            )
        axes = (Axis(n, each, name=name) for n, each, name in zip(a[2:], of_a, "xyzt", strict=False))
        grid = Grid(tuple(axes)) if symmetries else Grid.uniform(2)
        few = math.gcd(LINE_SHIFTS if grid.dim == 1 else PLANE_SHIFTS, *grid.shape)
        elements = group(symmetries, grid, few if shifts is None else shifts)
        waves = (waves_of(of_a), waves_of(of_u))
        return cls((a[1:], u[1:]), waves, elements, not all(isinstance(name, str) for name in symmetries))

    def characters(self, copied: bool) -> Characters:
        """Return the characters of the group if its copies of the pairs are trained on, else those of the trivial group."""
        a, u = (np.zeros((1, *shape)) for shape in self.shapes)
        return Characters(self.elements if copied else self.elements[:1], a, u)

    @cached_property
    def bands(self) -> Labels:
        """The band of each output mode, by |k| and by channel unless symmetries may mix them: (mode,)."""
        channels, *grid = self.shapes[1]
        k = np.sqrt(squared_waves(grid, self.waves[1])).round()
        band = np.digitize(k, np.unique(np.geomspace(1, max(2.0, k.max()), BANDS).round()))
        apart = (not self.mixes_channels) * (int(band.max()) + 1)
        return np.concatenate([band + apart * channel for channel in range(channels)])

    def centre(self, u: Array, elements: Sequence[Symmetry], shrunk: Mask | None = None) -> Floats:
        """Return the mean of outputs over samples and symmetric copies, (1, channel, *grid).

        Args:
            u: outputs, (sample, channel, *grid).
            elements: of the group that gives the copies.
            shrunk: modes whose mean is shrunk towards zero by the rule of James and Stein, for each band: (mode,).
        """
        copies = np.mean([g.on_u(u) for g in elements], axis=0)
        mean = modes(copies.mean(axis=0, keepdims=True), self.waves[1])
        if shrunk is not None and shrunk.any():
            noise = modes(copies, self.waves[1]).var(axis=0).ravel() / (len(u) - 1)
            size = np.bincount(self.bands, np.square(mean).ravel())
            factor = np.maximum(0, 1 - np.bincount(self.bands, noise) / np.where(size > 0, size, 1))
            mean *= np.where(shrunk, factor[self.bands], 1).reshape(mean.shape)
        return fields(mean, self.waves[1])

    def channel_sizes(self, u: Array) -> Floats:
        """Return the largest value of each channel; of all channels if symmetries may mix them: (channel,)."""
        largest = np.abs(u).max(axis=(0, *range(2, u.ndim)))
        return np.full(len(largest), largest.max()) if self.mixes_channels else largest

    def bytes_needed(self, rows: int, matrices: int = 5) -> int:
        """Return the bytes that regression on this number of rows needs for matrices of the kernel, and for fields."""
        return 8 * rows * (matrices * rows + 8 * sum(int(np.prod(shape)) for shape in self.shapes))
