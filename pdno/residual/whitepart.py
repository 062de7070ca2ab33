r"""The white part of residuals, on any mesh.

White noise is no function: it has a value at each node, and none in between, and its power does not fall with the wavenumber.
Where that of residuals falls more slowly than |k|^−d near the highest modes, a residual is the sum of a smooth part, which can
be interpolated, and of noise w at the nodes. Given the residual, w is Gaussian with

    mean  B diag(f²/p) Bᵀ residual,        covariance  B diag(f² (1 − f²/p)) Bᵀ,

p the power of each mode and f² that of the highest ones. On another mesh, w is kept at the nodes that both meshes have. At
other nodes it is that of a nearby node with a random sign, a function of (seed, input, member, position). The standard
deviation at a node is therefore that of training, and so is the distribution of single values if it is symmetric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from .._typing import Array, Floats, Mask
from ..basis import fields, modes
from ..draw import generator, streams
from ..grid import Axis, Grid
from .law import Rows

__all__ = ["WhitePart", "nearest_nodes", "relative_waves"]

BANDS = 16  # of modes, of equal width, in which the power of residuals is averaged
HIGHEST = 0.5  # wavenumber relative to the highest one, from which modes count as high
WHITE = 1.2  # power relative to that of high modes, below which it counts as white
SIGMAS = 3  # standard errors that the power of white noise may be larger than that by chance
NEGLIGIBLE = 1e-3  # part of the power, below which white noise is not split off
WINDOW = 8  # nodes to each side from which noise at a new node is taken
SHARED = 1e-6  # distance between two equal nodes, in units of the domain
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class WhitePart:
    """The white part of residuals (row, channel, *grid).

    Args:
        share: f²/p by wavenumber, (channel, BANDS); 0 without white noise.
        periodic: whether each axis is periodic.
    """

    share: Floats
    periodic: tuple[bool, ...]

    @classmethod
    def of(cls, residuals: Array, periodic: Sequence[bool], least: float = 0.0) -> "WhitePart":
        """Estimate f²/p; it is 0 for residuals whose power falls like that of a function, and for negligible noise.

        Args:
            residuals: (sample, channel, *grid).
            periodic: whether each axis is periodic.
            least: standard deviation, below which noise is negligible.
        """
        shape, periodic = residuals.shape[2:], tuple(periodic)
        wave, band = relative_waves(shape, periodic), _bands(shape, periodic)
        power, share = np.mean(np.square(modes(residuals, periodic)), axis=0), np.zeros((residuals.shape[1], BANDS))
        middle, top = (wave >= HIGHEST) & (wave < (1 + HIGHEST) / 2), wave >= (1 + HIGHEST) / 2
        if not middle.any() or not top.any():
            return cls(share, periodic)
        steepest = float(wave[top].mean() / wave[middle].mean()) ** len(shape)  # ratio of powers that fall like |k|^−d
        for c, p in enumerate(power):
            floor = float(p[wave >= HIGHEST].mean())
            is_flat, is_large = p[middle].mean() < steepest * p[top].mean(), floor > max(NEGLIGIBLE * p.mean(), least**2)
            if is_flat and is_large:
                count = np.maximum(np.bincount(band.ravel(), minlength=BANDS), 1)
                mean = np.bincount(band.ravel(), p.ravel(), BANDS) / count
                limit = WHITE + SIGMAS * np.sqrt(2 / (count * len(residuals)))
                share[c] = np.where(mean > limit * floor, floor / np.maximum(mean, TINY), 1.0)
        return cls(share, periodic)

    @property
    def exists(self) -> bool:
        """Whether residuals have a white part."""
        return bool(self.share.any())

    def drawn(self, values: Array, rows: Rows) -> Floats:
        """Draw the white part given residuals, those of the first rows."""
        shape = values.shape[2:]
        share, c = self.share[:, _bands(shape, self.periodic)], modes(values, self.periodic)
        if not (share * (1 - share)).any():
            return fields(share * c, self.periodic)
        high = relative_waves(shape, self.periodic) >= HIGHEST
        power = np.mean(np.square(c[:, :, high]), axis=2)  # f² of each row and channel
        each = streams(rows.seed, "white", rows.inputs[: len(values)], rows.members[: len(values)])
        xi = np.stack([stream.standard_normal(c.shape[1:]) for stream in each])
        size = np.sqrt(power.reshape(*power.shape, *(1,) * len(shape)) * (1 - share))
        return fields(share * c + size * xi, self.periodic)

    def moved(self, noise: Floats, rows: Rows, source: Grid, target: Grid) -> Floats:
        """Return white noise on another grid: its own at nodes of both grids, else that of a nearby node with a random sign."""
        places = [nearest_nodes(s, t) for s, t in zip(source.axes, target.axes, strict=True)]
        shared = reduce(np.logical_and.outer, (same for _, same in places))
        codes, out = _codes(target), np.empty((*noise.shape[:2], *target.shape))
        for row in range(len(noise)):
            numbers = _hash(codes, rows.seed, int(rows.inputs[row]), int(rows.members[row]))
            index = []
            for k, ((near, _), axis) in enumerate(zip(places, source.axes, strict=True)):
                step = (numbers >> np.uint64(8 + 8 * k)).astype(np.int64) % (2 * WINDOW + 1) - WINDOW
                node = near.reshape(-1, *(1,) * (len(places) - 1 - k)) + np.where(shared, 0, step)
                index.append(node % axis.points if axis.kind == "periodic" else np.clip(node, 0, axis.points - 1))
            sign = np.where(shared | (numbers & np.uint64(1) == 0), 1.0, -1.0)
            out[row] = sign * noise[row][(slice(None), *index)]
        return out


def nearest_nodes(source: Axis, target: Axis) -> tuple[Array, Mask]:
    """Return the nearest node of `source` to each node of `target`, and whether they are the same."""
    first = float(source.nodes[0])
    index = np.rint((target.nodes - first) / source.spacing).astype(np.intp)
    same: Mask = np.abs(first + index * source.spacing - target.nodes) < SHARED * source.length
    if source.kind == "periodic":
        return index % source.points, same
    inside = np.clip(index, 0, source.points - 1)
    return inside, same & (inside == index)


def relative_waves(shape: tuple[int, ...], periodic: Sequence[bool]) -> Floats:
    """Return the wavenumber of each mode relative to the highest, the largest over the axes: (*grid,)."""
    i = [np.arange(n) for n in shape]
    each = [2 * np.minimum(k, n - k) / n if p else k / n for k, n, p in zip(i, shape, periodic, strict=True)]
    return np.asarray(reduce(np.maximum.outer, each))


def _bands(shape: tuple[int, ...], periodic: Sequence[bool]) -> Array:
    """Return the number of the band of each mode: (*grid,)."""
    return np.minimum((relative_waves(shape, periodic) * BANDS).astype(np.intp), BANDS - 1)


def _codes(grid: Grid) -> Array:
    """Return a number for each node, the same for equal positions on all grids of a domain."""
    code = np.zeros((), dtype=np.uint64)
    for axis in grid.axes:
        place = (axis.nodes - axis.low) / axis.length
        code = _scramble(code[..., None] + np.rint(place * 2**32).astype(np.uint64))
    return code


def _hash(codes: Array, seed: int, number: int, member: int) -> Array:
    """Return a random 64-bit number for each position, a function of (seed, input, member, position)."""
    key = generator(seed, "white/nodes", number, member).integers(2**63, size=1, dtype=np.uint64)
    return _scramble(codes + key)


def _scramble(x: Array) -> Array:
    """Return a well-mixed 64-bit number for each: the last step of the generator SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
