"""Principal components of inputs and outputs: the numbers that a process of `pdno.mean.process.process` maps to each other."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from ..._typing import Array, Floats
from ...work.state import State

__all__ = ["Basis", "Coordinates"]

INPUT_SHARE = 0.99  # of the variance of input fields, that their components explain
MOST_INPUTS = 10  # components of input fields
ROUNDING = 1e-12  # relative to the size of values: a smaller variation is rounding error


@dataclass(frozen=True, eq=False)
class Basis:
    """Principal components of fields, u ≈ centre + Σ_k y_k φ_k, with numbers y_k of unit variance.

    Args:
        centre: mean, (channel, *grid).
        fields: φ, (component, channel, *grid).
        directions: y = directions · (u − centre), (component, channel, *grid).
        roots: of the weights of the nodes in the inner product, (node,); (1,) if all count equally.
    """

    centre: Floats
    fields: Floats
    directions: Floats
    roots: Floats = field(default_factory=lambda: np.ones(1))

    @classmethod
    def of(cls, u: Floats, most: int, least_share: float = 0.0, enough: float = 1.0, roots: Floats | None = None) -> Self:
        """Return the leading components of fields (sample, channel, *grid), each channel divided by its standard deviation.

        Args:
            u: fields.
            most: largest number of components.
            least_share: of the variance, that a component has.
            enough: share of the variance that all of them explain; further ones are left out.
            roots: as above.
        """
        roots = np.ones(1) if roots is None else roots
        centre, axes = u.mean(axis=0), (0, *range(2, u.ndim))
        unit = np.sqrt(np.square(u - centre).mean(axis=axes))
        unit = np.where(unit > ROUNDING * np.abs(u).max(axis=axes), unit, np.inf).reshape(-1, *(1,) * (u.ndim - 2))
        flat = ((u - centre) / unit * roots).reshape(len(u), -1)
        squares, left = np.linalg.eigh(flat @ flat.T)
        squares, left = np.maximum(squares[::-1], 0.0), left[:, ::-1]
        shares = squares / (squares.sum() or 1.0)
        before = np.cumsum(shares) - shares
        count = min(most, int(((shares > max(least_share, ROUNDING)) & (before < enough)).sum()))
        y = left[:, :count] * np.sqrt(len(u))
        y *= np.sign(y[np.abs(y).argmax(axis=0), np.arange(count)])  # signs of eigenvectors are arbitrary
        shape = (count, *u.shape[1:])
        scaled = (y.T @ flat / len(u)).reshape(shape)
        sizes = (squares[:count] / len(u)).reshape(-1, *(1,) * (u.ndim - 1))
        fields = scaled / roots * np.where(np.isfinite(unit), unit, 0.0)
        return cls(centre, fields, scaled * roots / unit / sizes, roots)

    def numbers(self, u: Array) -> Floats:
        """Return y, (sample, component)."""
        axes = range(1, u.ndim)
        return np.asarray(np.tensordot(u - self.centre, self.directions, axes=(axes, axes)))

    def restored(self, y: Floats) -> Floats:
        """Return centre + Σ_k y_k φ_k."""
        return np.asarray(self.centre + np.tensordot(y, self.fields, axes=1))

    def state(self) -> State:
        """Return all arrays, to be saved."""
        return State({}, dict(vars(self)))

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        return cls(**{name: np.array(values) for name, values in state.arrays.items()})


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The map of an input to the coordinates of a process, of unit variance: scalars, then components of the field.

    Args:
        centre, scale: of the scalars, (parameter,).
        basis: of the input fields.
    """

    centre: Floats
    scale: Floats
    basis: Basis

    @classmethod
    def of(cls, a: Floats, scalars: Floats, roots: Floats | None = None) -> Self:
        """Estimate from inputs (sample, channel, *grid) and scalars (sample, parameter); `roots` of the nodes of a."""
        centre, scale = scalars.mean(axis=0), scalars.std(axis=0)
        varies = scale > ROUNDING * np.abs(scalars).max(axis=0, initial=0.0)
        return cls(centre, np.where(varies, scale, np.inf), Basis.of(a, MOST_INPUTS, enough=INPUT_SHARE, roots=roots))

    @staticmethod
    def number(a: Floats, scalars: Floats) -> int:
        """Return how many coordinates explain INPUT_SHARE of the input fields, and scalars that vary."""
        varies = np.ptp(scalars, axis=0) > ROUNDING * np.abs(scalars).max(axis=0, initial=0.0)
        return int(varies.sum()) + len(Basis.of(a, len(a), enough=INPUT_SHARE).fields)

    def __call__(self, a: Array, scalars: Array) -> Floats:
        """Return (sample, coordinate)."""
        return np.concatenate([(scalars - self.centre) / self.scale, self.basis.numbers(a)], axis=1)

    def state(self) -> State:
        """Return all arrays, to be saved."""
        return State({}, {"centre": self.centre, "scale": self.scale}, {"basis": self.basis.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        arrays = {name: np.array(values) for name, values in state.arrays.items()}
        return cls(**arrays, basis=Basis.from_state(state.parts["basis"]))
