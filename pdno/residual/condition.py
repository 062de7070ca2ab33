r"""What networks and mixtures of residual laws are conditioned on: a, m(a) and scalars.

Networks take a and m(a) as channels on the grid of u; of an a of another dimension they take the leading modes, as scalars.
Mixtures take a vector of features: the leading principal components of a and of m(a), the logarithms of their sizes, and the
scalars, each with mean 0 and variance 1.
"""

from dataclasses import dataclass

import numpy as np

from .._typing import Array
from ..basis import low_modes
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..mean.base import inputs as flattened
from ..mean.base import pairs_of
from ..work.state import State
from .amplitude import size_features
from .law import Inputs, Residuals

__all__ = ["Features", "network_inputs", "network_pairs"]

ROUNDING = 1e-5  # of a mode, relative to the root mean square of a, which may be in single precision
COMPONENTS = 12  # principal components of a, and of m(a)
FIELDS = 2000  # from which they are computed, at most
LEADING = {1: 8, 2: 4, 3: 2}  # modes along each axis of an a of another dimension than u, by its dimension


def network_inputs(inputs: Inputs, spaces: Spaces) -> tuple[Array, Array | None]:
    """Return the inputs of a network as fields on the grid of u and scalars.

    Returns:
        a on the grid of u, then m(a), as channels, (sample, channel, *grid), and the scalars, (sample, parameter). If a has
        another dimension than u: m(a) alone, and the leading modes of a as further scalars.
    """
    if spaces.same_dimension:
        return np.concatenate([spaces.condition(inputs.a, None), inputs.mean], axis=1), inputs.scalars
    values, axes = np.asarray(inputs.a, dtype=np.float64), spaces.a_grid.axes
    for axis in axes:  # the first axis of the grid becomes the last one
        modes = low_modes(axis.points, LEADING[len(axes)], axis.kind == "periodic")
        values = np.moveaxis(values, 2, -1) @ (modes.T / axis.points)
    return inputs.mean, flattened(_rounded(values, inputs.a), inputs.scalars)


def _rounded(modes: Array, a: Array) -> Array:
    """Return modes with 0 for those that are rounding errors of a: networks normalise each scalar, however small it is."""
    axes = tuple(range(2, a.ndim))
    size = np.sqrt(np.mean(np.square(a, dtype=np.float64), axis=axes)).reshape(*a.shape[:2], *(1,) * len(axes))
    return np.where(np.abs(modes) > ROUNDING * size, modes, 0.0)


def network_pairs(residuals: Residuals, spaces: Spaces, first: Array | None = None) -> Pairs:
    """Return pairs whose inputs are those of `network_inputs` and whose outputs are the residuals.

    Args:
        residuals: of a mean.
        spaces: grids of a and u.
        first: further channels, before the others, (sample, channel, *grid).
    """
    fields, scalars = network_inputs(residuals.inputs, spaces)
    fields = fields if first is None else np.concatenate([first, fields], axis=1)
    return pairs_of(fields, residuals.values, scalars, residuals.mask)


@dataclass(frozen=True, eq=False)
class Features:
    """The leading principal components of a and of m(a), the logarithms of their sizes, and the scalars.

    Args:
        centres: mean of a, of m(a), and of sizes and scalars, flat.
        directions: principal directions divided by the standard deviation along them: (value, component).
    """

    centres: tuple[Array, ...]
    directions: tuple[Array, ...]

    @classmethod
    def of(cls, inputs: Inputs) -> "Features":
        """Compute the directions from training inputs."""
        *fields, numbers = parts = _flat(inputs)
        centres = tuple(part.mean(axis=0) for part in parts)
        directions = [_directions(part - centre) for part, centre in zip(fields, centres, strict=False)]
        return cls(centres, (*directions, _standardising(numbers)))

    def __call__(self, inputs: Inputs) -> Array:
        """Return the features: (sample, feature)."""
        both = zip(_flat(inputs), self.centres, self.directions, strict=True)
        return np.concatenate([(part - centre) @ directions for part, centre, directions in both], axis=1)

    def state(self) -> State:
        """Return centres and directions, to be saved."""
        arrays = {f"centre{k}": centre for k, centre in enumerate(self.centres)}
        return State({}, arrays | {f"directions{k}": each for k, each in enumerate(self.directions)})

    @classmethod
    def from_state(cls, state: State) -> "Features":
        """Restore what `state` returned."""
        count = len(state.arrays) // 2
        centres, directions = (
            [np.asarray(state.arrays[f"{name}{k}"]) for k in range(count)] for name in ("centre", "directions")
        )
        return cls(tuple(centres), tuple(directions))


def _flat(inputs: Inputs) -> list[Array]:
    fields = [inputs.a.reshape(len(inputs), -1), inputs.mean.reshape(len(inputs), -1)]
    return [*fields, size_features(inputs.a, inputs.mean, inputs.scalars)]


def _standardising(values: Array) -> Array:
    """Return the matrix that divides columns by their standard deviation; columns without variance are left out."""
    stds = values.std(axis=0)
    kept = stds > 1e-9 * np.maximum(np.abs(values).max(axis=0, initial=0.0), 1e-300)
    return np.asarray(np.diag(1 / np.where(kept, stds, 1.0))[:, kept])


def _directions(values: Array) -> Array:
    """Return principal directions, scaled such that components have unit variance; those without variance are left out."""
    some = values[:: max(1, len(values) // FIELDS)]
    _, sizes, directions = np.linalg.svd(some, full_matrices=False)
    stds = sizes[:COMPONENTS] / np.sqrt(len(some))
    kept = stds > 1e-3 * max(stds.max(initial=0.0), 1e-300)
    return np.asarray((directions[:COMPONENTS][kept] / stds[kept, None]).T)
