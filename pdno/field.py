r"""Gaussian random fields N(0, 𝒞) and their covariance operators (appendix `app:Wiener-process`).

    𝒞 = scale·(−Δ + τ²)^(−r),        U = Σ_j √λ_j ζ_j e_j,        𝒞^(1/2) u = Σ_j √λ_j ⟨u, e_j⟩ e_j,

with the eigenpairs of −Δ under Neumann, Dirichlet or periodic conditions (`pdno.basis`) and independent ζ_j ~ N(0, 1).
τ is the inverse correlation length, r the smoothness; λ_j = scale·(|ω_j|² + τ²)^(−r).

**Nested draws.** The ζ_j of one (seed, index) are drawn in an order that does not depend on the grid (by increasing
max_i j_i), so that a finer grid adds modes to the same function. With `modes=K` the function has K modes along each axis and
its values are exact on every grid; with `modes=None` it has the modes that the grid can resolve.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ._typing import Floats, Ints
from .basis import Condition, analyze, capacity, synthesize, wavenumbers
from .draw import check_range, normals
from .errors import UserError
from .grid import Axis, Grid

__all__ = ["Field", "TrigonometricPotential"]

BLOCK_COEFFICIENTS = 2**18  # coefficients in memory at a time: 2 MB, which fits the processor cache


@dataclass(frozen=True)
class Field:
    """The Gaussian distribution N(0, scale·(−Δ + τ²)^(−r)).

    Args:
        tau: inverse correlation length τ ≥ 0.
        r: smoothness; the variance is finite for r > dim/2.
        scale: factor of the covariance, ≥ 0.
        condition: boundary condition of the Laplacian: "neumann", "dirichlet" or "periodic".
        modes: number of modes along each axis; None: all that the grid can resolve.
        mean_free: omit the constant mode.

    Good values: tau=3, r=2 for a correlation length of a third of the domain (Darcy); tau=100, r=2 for fine patterns.

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
        capacity(8, "left" if self.condition == "periodic" else "cell", self.condition)  # raises if the condition is unknown
        if self.modes is not None and self.modes < 1:
            raise UserError(f"modes = {self.modes}: a field needs at least one mode along each axis")

    def eigenvalues(self, grid: Grid) -> Floats:
        """Return λ_j, with an axis of modes for each axis of the grid: (*modes,)."""
        return _eigenvalues(self, grid, self._mode_shape(grid))

    def variance(self, grid: Grid) -> Floats:
        """Return the pointwise variance Σ_j λ_j e_j(x)²: (*grid,)."""
        value = self.eigenvalues(grid)
        for axis, modes in zip(grid.axes, value.shape, strict=True):
            squares = synthesize(np.eye(modes), axis.points, axis.kind, self.condition) ** 2
            value = np.tensordot(value, squares / axis.length, axes=(0, 0))  # replaces the first axis by a last axis of nodes
        return np.asarray(value)

    def sample(self, grid: Grid, count: int, seed: int = 0, first: int = 0, purpose: str = "field", step: int = 0) -> Floats:
        """Draw the fields first … first + count − 1 of this seed.

        Args:
            grid: where to evaluate the fields.
            count: number of fields.
            seed, first, purpose, step: identify the draw, see `pdno.draw.generator`.

        Returns:
            (count, *grid).
        """
        check_range(first, count)
        shape = self._mode_shape(grid)
        root, order = np.sqrt(self.eigenvalues(grid)), _nested_order(shape)
        numbers = max(shape) ** grid.dim
        out = np.empty((count, *grid.shape))
        block = max(1, BLOCK_COEFFICIENTS // numbers)
        for start in range(0, count, block):
            stop = min(start + block, count)
            zeta = normals(seed, purpose, first + start, stop - start, numbers, step)
            out[start:stop] = self.values(root * zeta[:, order], grid)
        return out

    def wiener_increments(self, grid: Grid, times: Floats, count: int, seed: int = 0, first: int = 0) -> Floats:
        """Draw increments W(t_{i+1}) − W(t_i) ~ N(0, (t_{i+1} − t_i)·𝒞) of a 𝒞-Wiener process.

        Args:
            grid: where to evaluate the fields.
            times: t_0 ≤ t_1 ≤ …, at least two.
            count: number of processes.
            seed, first: identify the draw: processes first … first + count − 1 of this seed.

        Returns:
            (count, len(times) − 1, *grid).

        Raises:
            UserError: if there are fewer than two times, or they decrease.
        """
        dt = np.diff(np.atleast_1d(np.asarray(times, dtype=np.float64)))
        if dt.size == 0 or (dt < 0).any():
            raise UserError("a Wiener process needs at least two times, in non-decreasing order")
        draws = [np.sqrt(d) * self.sample(grid, count, seed, first, "wiener", i) for i, d in enumerate(dt)]
        return np.stack(draws, axis=1)

    def grid_eigenvalues(self, grid: Grid) -> Floats:
        """Return the variances of the coefficients on this grid: λ_j plus the contribution of aliased modes, (*modes,).

        Each aliased mode contributes to one coefficient only, so that the coefficients are independent.
        """
        value = self.eigenvalues(grid)
        for axis, modes in zip(grid.axes, value.shape, strict=True):
            at_nodes = synthesize(np.eye(modes), axis.points, axis.kind, self.condition)
            value = np.tensordot(value, analyze(at_nodes, axis.kind, self.condition) ** 2, axes=(0, 0))
        return np.asarray(value)

    def sqrt(self, u: Floats, grid: Grid) -> Floats:
        """Return 𝒞^(1/2) u, with 𝒞 the covariance of the values at the nodes: (…, *grid) → (…, *grid)."""
        return self._filter(u, grid, 0.5)

    def inverse_sqrt(self, u: Floats, grid: Grid) -> Floats:
        """Return 𝒞^(−1/2) u, which whitens draws: (…, *grid) → (…, *grid). Modes of zero variance are set to zero."""
        return self._filter(u, grid, -0.5)

    def coefficients(self, u: Floats, grid: Grid) -> Floats:
        """Return ⟨u, e_j⟩ for the modes that the grid can resolve: (…, *grid) → (…, *modes).

        Raises:
            UserError: if the last axes of u are not those of the grid.
        """
        c = np.asarray(u, dtype=np.float64)
        if c.shape[-grid.dim :] != grid.shape:
            raise UserError(f"u has shape {c.shape}, but the grid is {grid}; the last axes of u must be those of the grid")
        for position, axis in _axes_backwards(grid):
            c = np.moveaxis(analyze(np.moveaxis(c, position, -1), axis.kind, self.condition), -1, position)
        return np.asarray(c * np.sqrt(grid.volume))

    def values(self, c: Floats, grid: Grid) -> Floats:
        """Return Σ_j c_j e_j at the nodes, for any number of modes: (…, *modes) → (…, *grid)."""
        for position, axis in _axes_backwards(grid):
            c = np.moveaxis(synthesize(np.moveaxis(c, position, -1), axis.points, axis.kind, self.condition), -1, position)
        return np.asarray(c / np.sqrt(grid.volume))

    def _filter(self, u: Floats, grid: Grid, power: float) -> Floats:
        """Return 𝒞^power u; modes of zero variance are set to zero."""
        lam = self.grid_eigenvalues(grid)
        factor = np.zeros_like(lam)
        np.power(lam, power, out=factor, where=lam > 1e-24 * lam.max())  # smaller values are rounding errors of the transforms
        return self.values(factor * self.coefficients(u, grid), grid)

    def _mode_shape(self, grid: Grid) -> tuple[int, ...]:
        """Return the number of modes along each axis."""
        if self.modes is not None:
            return (self.modes,) * grid.dim
        return tuple(capacity(axis.points, axis.kind, self.condition) for axis in grid.axes)


def _axes_backwards(grid: Grid) -> Iterator[tuple[int, Axis]]:
    """Yield (position, axis) from last to first: transforms of the last axis, which is contiguous, are the cheapest."""
    return zip(range(-1, -1 - grid.dim, -1), grid.axes[::-1], strict=True)


def _eigenvalues(field: Field, grid: Grid, shape: tuple[int, ...]) -> Floats:
    """Return λ_j = scale·(|ω_j|² + τ²)^(−r) for this number of modes along each axis."""
    omega = [wavenumbers(n, field.condition) / axis.length for n, axis in zip(shape, grid.axes, strict=True)]
    squared = sum(np.ix_(*(w**2 for w in omega)), start=np.zeros(shape))
    with np.errstate(divide="ignore"):
        lam = field.scale * (squared + field.tau**2) ** -field.r
    if field.mean_free and field.condition != "dirichlet":
        lam[(0,) * grid.dim] = 0.0
    if field.scale > 0 and not lam.max() > 1e-290:
        raise UserError(
            f"the variance of a field with tau = {field.tau:g}, r = {field.r:g} underflows to zero; choose a smaller r or tau"
        )
    return np.asarray(lam)


@lru_cache(maxsize=32)
def _nested_order(shape: tuple[int, ...]) -> Ints:
    """Return the position of each mode in the sequence of draws: by max_i j_i, so that a larger shape only appends modes."""
    cube = np.indices((max(shape),) * len(shape)).reshape(len(shape), -1)
    sequence = np.lexsort((*cube[::-1], cube.max(axis=0)))
    position = np.empty(sequence.size, dtype=np.intp)
    position[sequence] = np.arange(sequence.size)
    return np.asarray(position.reshape((max(shape),) * len(shape))[tuple(slice(n) for n in shape)])


@dataclass(frozen=True)
class TrigonometricPotential:
    """The field V of Test 1 on an axis of length 2: V(x) = n^(−½) Σ_{k=1}^{n} A_k cos πkx + B_k sin πkx, A_k, B_k ~ N(0, 1).

    The covariance is n^(−1) Σ_k cos πk(x₂ − x₁), the variance 1. The log-normal field of the paper is exp(log_scale·V).

    Args:
        n: number of wavenumbers.
    """

    n: int = 5

    def sample(self, axis: Axis, count: int, seed: int = 0, first: int = 0) -> Floats:
        """Draw the fields first … first + count − 1 of this seed: (count, points)."""
        z = normals(seed, "potential", first, count, 2 * self.n).reshape(count, self.n, 2)
        potential = np.zeros((count, axis.points))
        for k in range(1, self.n + 1):  # term by term: the order of summation must not depend on the batch
            angle = np.pi * k * axis.nodes
            potential += z[:, k - 1, :1] * np.cos(angle) + z[:, k - 1, 1:] * np.sin(angle)
        return np.asarray(potential / np.sqrt(self.n))
