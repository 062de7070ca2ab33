"""Test 2, the elliptic equation in two dimensions, Darcy flow (`eqn:2d-elliptic`)

    −∇·(a ∇u) = f on (0, 1)²,   u = 0 on the boundary,   f = 1,

    a = a_low + (a_high − a_low)·1{ã ≥ 0},   ã ~ N(0, (−Δ + τ²)^(−r)), Neumann, without the constant mode.

Finite volumes on points × points cells, values at the cell centres ((i + ½)h, (j + ½)h). The coefficient of an inner face is
the harmonic mean of those of its two cells; at a boundary face it is that of the cell, and the distance is h/2. Order 2.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike
from scipy.sparse.linalg import splu

from .._typing import Floats, Ints
from ..errors import UserError
from ..field import Field
from ..grid import Grid
from .base import Equation

__all__ = ["Darcy"]

SIDES = (  # of each axis: the cells before and after its inner faces, and those at its two ends
    (np.s_[..., :-1, :], np.s_[..., 1:, :], np.s_[..., 0, :], np.s_[..., -1, :]),
    (np.s_[..., :-1], np.s_[..., 1:], np.s_[..., 0], np.s_[..., -1]),
)
MODES = 256  # modes of ã along each axis on every grid, so that one (seed, index) is the same coefficient on every grid


@dataclass(frozen=True)
class Darcy(Equation):
    """Darcy flow with a two-phase coefficient; one sparse direct solve per sample.

    Good values: points=64, 128 or 256 and the defaults (the paper). A solve takes about 8 ms at 64² and 0.2 s at 256².
    """

    points: int = 64
    a_low: float = 4.0
    a_high: float = 12.0
    tau: float = 3.0
    r: float = 2.0

    name: ClassVar[str] = "darcy"
    symmetries: ClassVar[tuple[str, ...]] = ("square",)

    def __post_init__(self) -> None:
        self._check_points(self.points, at_least=2)
        self._check_positive(a_low=self.a_low, a_high=self.a_high, tau=self.tau, r=self.r)
        if self.a_low >= self.a_high:
            raise UserError(f"a_low = {self.a_low} must be below a_high = {self.a_high}")

    @property
    def grid(self) -> Grid:
        return Grid.uniform(self.points, dim=2, kind="cell")

    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Floats:
        field = Field(self.tau, self.r, modes=MODES, mean_free=True)
        phase = field.sample(self.grid, count, seed, first) >= 0
        return np.where(phase, float(self.a_high), float(self.a_low))[:, None]

    def solve(self, a: ArrayLike, f: ArrayLike = 1.0) -> Floats:
        """Return u = S†(a); the source f is a number, one field (*grid) or a field per sample."""
        coefficient = self._as_fields(a, "a", positive=True)
        source = self._source(f, len(coefficient))
        u = np.empty(coefficient.shape)
        for i, (a_i, f_i) in enumerate(zip(coefficient[:, 0], source[:, 0], strict=True)):
            u[i, 0] = _factorize(self._matrix(a_i)).solve(f_i.ravel()).reshape(self.grid.shape)
        return u.reshape(np.shape(a))

    def residual(self, u: ArrayLike, a: ArrayLike, f: ArrayLike = 1.0) -> Floats:
        """Return −∇·(a ∇u) − f in every cell."""
        v, coefficient = self._as_pair(u, a, positive=True)
        r: Floats = self.discrete_residual(v, coefficient, self._source(f, len(v)))
        return r.reshape(np.shape(u))

    def discrete_residual(self, u: Any, a: Any, f: Any = 1.0) -> Any:
        a = a * self.points**2  # a/h²
        r = u * 0 - f
        for near, far, first, last in SIDES:
            flux = 2 * a[near] * a[far] / (a[near] + a[far]) * (u[far] - u[near])  # across the faces between two cells
            r[near] -= flux
            r[far] += flux
            for edge in (first, last):
                r[edge] += 2 * a[edge] * u[edge]
        return r

    def _source(self, f: ArrayLike, batch: int) -> Floats:
        """Return the source as (batch, 1, *grid)."""
        source = np.asarray(f, dtype=np.float64)
        if source.ndim == 0:
            source = np.full(self.grid.shape, source)
        if source.ndim == 2:
            source = np.broadcast_to(source, (batch, *source.shape))
        source = self._as_fields(source, "f")
        if len(source) != batch:
            raise UserError(f"f has {len(source)} samples and a has {batch}; give equally many, or one for all")
        return source

    def _matrix(self, a: Floats) -> sparse.csc_array:
        """Return the symmetric five-point operator −∇·(a ∇ ·) for cells in row-major order: (cells, cells)."""
        n = self.points
        a = a * n**2  # a/h²
        down = 2 * a[1:] * a[:-1] / (a[1:] + a[:-1])
        across = 2 * a[:, 1:] * a[:, :-1] / (a[:, 1:] + a[:, :-1])
        diagonal = np.zeros((n, n))
        for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
            diagonal[edge] += 2 * a[edge]
        for cells, faces in ((np.s_[1:], down), (np.s_[:-1], down), (np.s_[:, 1:], across), (np.s_[:, :-1], across)):
            diagonal[cells] += faces
        entries = np.concatenate([diagonal.ravel(), -down.ravel(), -across.ravel()])
        position, indices, indptr = _pattern(n)
        return sparse.csc_array((entries[position], indices, indptr), shape=(n**2, n**2))


@lru_cache(maxsize=8)
def _pattern(n: int) -> tuple[Ints, Ints, Ints]:
    """Return the position of each stored entry among (cells, faces down, faces across), and the CSC indices."""
    cell = np.arange(n**2).reshape(n, n)
    first = np.concatenate([cell.ravel(), cell[:-1].ravel(), cell[:, :-1].ravel()])  # the two cells of a face
    second = np.concatenate([cell.ravel(), cell[1:].ravel(), cell[:, 1:].ravel()])
    entry = np.arange(first.size)
    faces = entry[n**2 :]
    rows, columns = np.concatenate([first, second[faces]]), np.concatenate([second, first[faces]])
    pattern = sparse.coo_array((np.concatenate([entry, faces]) + 1, (rows, columns))).tocsc()
    return pattern.data - 1, pattern.indices.astype(np.int32), pattern.indptr.astype(np.int32)


def _factorize(matrix: sparse.csc_array) -> "sparse.linalg.SuperLU":
    """Factorise a symmetric, diagonally dominant matrix."""
    # A symmetric ordering without pivoting, and narrow supernodes, take half the time of the defaults of spsolve.
    options = {"SymmetricMode": True}
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, relax=1, panel_size=1, options=options)
