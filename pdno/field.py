r"""Gaussian random fields N(0, 𝒞) and their covariance operators (appendix `app:Wiener-process`).

    𝒞 = scale·(−Δ + τ²)^(−r),        U = Σ_j √λ_j ζ_j e_j,        𝒞^(1/2) u = Σ_j √λ_j ⟨u, e_j⟩ e_j,

with the eigenpairs of −Δ under Neumann, Dirichlet or periodic conditions (`pdno.basis`) and independent ζ_j ~ N(0, 1).
τ is the inverse correlation length, r the smoothness; λ_j = scale·(|ω_j|² + τ²)^(−r).

**Nested draws.** The ζ_j of one (seed, index) come in an order that no grid changes (shells of growing max_i j_i), so a
finer grid adds modes to the same function. With `modes=K` the function has K modes along each axis and its values are
exact on *every* grid; with `modes=None` it has those modes that the grid can tell apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .basis import Condition, analyze, capacity, synthesize, wavenumbers
from .draw import check_numbers, normals
from .errors import UserError
from .grid import Axis, Grid

__all__ = ["Field", "TrigonometricPotential"]

Array = NDArray[np.float64]

BLOCK = 2**18  # coefficients that a draw holds at once (2 MB: they stay in the cache)


@dataclass(frozen=True)
class Field:
    """The law N(0, scale·(−Δ + τ²)^(−r)).

    Args:
        tau: inverse correlation length τ ≥ 0.
        r: smoothness; the variance is finite for r > dim/2.
        scale: factor of the covariance, ≥ 0.
        condition: of the Laplacian: "neumann", "dirichlet" or "periodic".
        modes: modes along each axis; None takes all that the grid can tell apart.
        mean_free: drop the constant mode.

    Good values: tau=3, r=2 for blobs of a third of the domain (Darcy), tau=100, r=2 for fine intervals (advection).

    >>> field = Field(tau=3, r=2)
    >>> field.sample(Grid.uniform(64, dim=2, kind="cell"), count=5, seed=0).shape
    (5, 64, 64)
    """

    tau: float
    r: float
    scale: float = 1.0
    condition: Condition = "neumann"
    modes: int | None = None
    mean_free: bool = False

    def __post_init__(self) -> None:
        finite = np.isfinite([self.scale, self.tau, self.r]).all()
        if not finite or self.scale < 0 or self.tau < 0 or self.r <= 0:
            raise UserError(f"a field needs scale ≥ 0, tau ≥ 0 and r > 0; got scale={self.scale}, tau={self.tau}, r={self.r}")
        if self.tau == 0 and self.condition != "dirichlet" and not self.mean_free:
            raise UserError("with tau = 0 the constant mode has infinite variance; set mean_free=True or tau > 0")
        capacity(8, "left" if self.condition == "periodic" else "cell", self.condition)  # checks the condition
        if self.modes is not None and self.modes < 1:
            raise UserError(f"modes = {self.modes}: a field needs at least one mode along each axis")

    def eigenvalues(self, grid: Grid) -> Array:
        """λ_j, one axis of the result for each axis of the grid."""
        return _eigenvalues(self, grid, self._mode_shape(grid))

    def variance(self, grid: Grid) -> Array:
        """Pointwise variance Σ_j λ_j e_j(x)²: the grid's shape."""
        value = self.eigenvalues(grid)
        for axis, modes in zip(grid.axes, value.shape, strict=True):
            squares = synthesize(np.eye(modes), axis.points, axis.kind, self.condition) ** 2
            value = np.tensordot(value, squares / axis.length, axes=(0, 0))  # takes the first axis, puts nodes last
        return np.asarray(value)

    def sample(self, grid: Grid, count: int, seed: int = 0, first: int = 0, purpose: str = "field", step: int = 0) -> Array:
        """The draws first … first + count − 1 of this seed: (count, *grid)."""
        check_numbers(first, count)
        shape = self._mode_shape(grid)
        root, order = np.sqrt(self.eigenvalues(grid)), _nested_order(shape)
        drawn = max(shape) ** grid.dim
        out = np.empty((count, *grid.shape))
        block = max(1, BLOCK // drawn)
        for lo in range(0, count, block):
            hi = min(lo + block, count)
            zeta = normals(seed, purpose, first + lo, hi - lo, drawn, step)
            out[lo:hi] = self.values(root * zeta[:, order], grid)
        return out

    def wiener_increments(self, grid: Grid, times: Array, count: int, seed: int = 0, first: int = 0) -> Array:
        """W(t_{i+1}) − W(t_i) ~ N(0, (t_{i+1} − t_i)·𝒞) of a 𝒞-Wiener process: (count, len(times) − 1, *grid)."""
        dt = np.diff(np.atleast_1d(np.asarray(times, dtype=np.float64)))
        if dt.size == 0 or (dt < 0).any():
            raise UserError("the times of a Wiener process must be at least two and must not descend")
        draws = [np.sqrt(d) * self.sample(grid, count, seed, first, "wiener", i) for i, d in enumerate(dt)]
        return np.stack(draws, axis=1)

    def grid_eigenvalues(self, grid: Grid) -> Array:
        """Variances of the coefficients that the grid can tell apart: λ_j, and what surplus modes add to them by aliasing.

        Aliasing folds every mode onto one other, so these coefficients stay independent.
        """
        value = self.eigenvalues(grid)
        for axis, modes in zip(grid.axes, value.shape, strict=True):
            seen = synthesize(np.eye(modes), axis.points, axis.kind, self.condition)
            value = np.tensordot(value, analyze(seen, axis.kind, self.condition) ** 2, axes=(0, 0))
        return np.asarray(value)

    def sqrt(self, u: Array, grid: Grid) -> Array:
        """𝒞^(1/2) u for the law of the values at the nodes: (…, *grid) → (…, *grid)."""
        return self._filter(u, grid, 0.5)

    def inverse_sqrt(self, u: Array, grid: Grid) -> Array:
        """𝒞^(−1/2) u, which whitens a draw. Modes without variance (a dropped constant) stay zero."""
        return self._filter(u, grid, -0.5)

    def coefficients(self, u: Array, grid: Grid) -> Array:
        """⟨u, e_j⟩ of the modes that the grid can tell apart: (…, *grid) → (…, *modes)."""
        c = np.asarray(u, dtype=np.float64)
        if c.shape[-grid.dim :] != grid.shape:
            raise UserError(f"the field has shape {c.shape}, but its grid is {grid}; its last axes must be those of the grid")
        for place, axis in _last_first(grid):
            c = np.moveaxis(analyze(np.moveaxis(c, place, -1), axis.kind, self.condition), -1, place)
        return np.asarray(c * np.sqrt(grid.volume))

    def values(self, c: Array, grid: Grid) -> Array:
        """Σ_j c_j e_j at the nodes, for any number of modes: (…, *modes) → (…, *grid)."""
        for place, axis in _last_first(grid):
            c = np.moveaxis(synthesize(np.moveaxis(c, place, -1), axis.points, axis.kind, self.condition), -1, place)
        return np.asarray(c / np.sqrt(grid.volume))

    def _filter(self, u: Array, grid: Grid, power: float) -> Array:
        lam = self.grid_eigenvalues(grid)
        factor = np.zeros_like(lam)
        np.power(lam, power, out=factor, where=lam > 1e-24 * lam.max())  # rounding of the transforms is not variance
        return self.values(factor * self.coefficients(u, grid), grid)

    def _mode_shape(self, grid: Grid) -> tuple[int, ...]:
        if self.modes is not None:
            return (self.modes,) * grid.dim
        return tuple(capacity(axis.points, axis.kind, self.condition) for axis in grid.axes)


def _last_first(grid: Grid) -> Iterator[tuple[int, Axis]]:
    """(place, axis) from the last axis, which is contiguous and so the cheapest to shorten, to the first."""
    return zip(range(-1, -1 - grid.dim, -1), grid.axes[::-1], strict=True)


def _eigenvalues(field: Field, grid: Grid, shape: tuple[int, ...]) -> Array:
    omega = [wavenumbers(n, field.condition) / axis.length for n, axis in zip(shape, grid.axes, strict=True)]
    squared = sum(np.ix_(*(w**2 for w in omega)), start=np.zeros(shape))
    with np.errstate(divide="ignore"):
        lam = field.scale * (squared + field.tau**2) ** -field.r
    if field.mean_free and field.condition != "dirichlet":
        lam[(0,) * grid.dim] = 0.0
    if field.scale > 0 and not lam.max() > 1e-290:
        raise UserError(f"a field with tau = {field.tau:g} and r = {field.r:g} has no variance left; choose a smaller r or tau")
    return np.asarray(lam)


@lru_cache(maxsize=32)
def _nested_order(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Place of each mode in the sequence of draws: by shells of growing max_i j_i, so that larger shapes only append."""
    cube = np.indices((max(shape),) * len(shape)).reshape(len(shape), -1)
    sequence = np.lexsort((*cube[::-1], cube.max(axis=0)))
    place = np.empty(sequence.size, dtype=np.intp)
    place[sequence] = np.arange(sequence.size)
    return np.asarray(place.reshape((max(shape),) * len(shape))[tuple(slice(n) for n in shape)])


@dataclass(frozen=True)
class TrigonometricPotential:
    """The field V of Test 1 on an axis of length 2: V(x) = n^(−½) Σ_{k=1}^{n} A_k cos πkx + B_k sin πkx, A_k, B_k ~ N(0, 1).

    Its covariance is n^(−1) Σ_k cos πk(x₂ − x₁), its variance 1. exp(log_scale·V) is the log-normal field of the paper.
    """

    n: int = 5

    def sample(self, axis: Axis, count: int, seed: int = 0, first: int = 0) -> Array:
        """Draws first … first + count − 1: (count, points)."""
        z = normals(seed, "potential", first, count, 2 * self.n).reshape(count, self.n, 2)
        potential = np.zeros((count, axis.points))
        for k in range(1, self.n + 1):  # term by term, so that no sum depends on the batch
            angle = np.pi * k * axis.nodes
            potential += z[:, k - 1, :1] * np.cos(angle) + z[:, k - 1, 1:] * np.sin(angle)
        return np.asarray(potential / np.sqrt(self.n))
