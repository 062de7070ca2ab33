r"""Base laws N(0, 𝒞) of the diffusion noise: white, a Gaussian field, low modes, or a sum of these.

Finite-dimensional and function-space diffusion differ by this law alone. Every law here is diagonal in one basis e_j of the
domain (cosines unless the field says otherwise), with ε = Σ_j c_j e_j and independent c_j ~ N(0, λ_j):

    White()                    λ_j = 1/(d w_j)                iid N(0, 1) at the d nodes
    Field(tau, r)              λ_j ∝ (|ω_j|² + τ²)^(−r)       scaled to Σ_j w_j λ_j = tr 𝒞/d = 1
    LowModes(modes, std)       λ_j = std² for the lowest      modes=1: one shift of std `std`, shared by all nodes
    White() + LowModes()       the sum of both                noise that also decides a shift of the whole field slowly

As a matrix on the d nodes 𝒞 has the eigenvalues d w_j λ_j, where w_j is the mean of e_j² over the nodes: 1, but 2 for the
highest mode of an axis with an even number of periodic nodes or with sines, whose e_j is ±√2 there.

Arrays are (…, *grid) on a unit box; draws are functions of (seed, purpose, index, step), see `pdno.draw`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..basis import Condition
from ..draw import normals
from ..errors import UserError, nearest
from ..field import Field
from ..grid import Grid

__all__ = ["Base", "FieldBase", "LowModes", "Sum", "White", "as_base", "from_json"]

Array = NDArray[np.float64]


class Base(ABC):
    """A law N(0, 𝒞); a subclass says its variances λ_j and draws from itself."""

    condition: Condition | None = None  # None goes with every basis

    @abstractmethod
    def eigenvalues(self, grid: Grid) -> Array:
        """λ_j, the variances of the coefficients ⟨ε, e_j⟩: the grid's shape."""

    @abstractmethod
    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Array:
        """Draws first … first + count − 1: (count, *grid)."""

    @abstractmethod
    def to_json(self) -> list[dict[str, Any]]:
        """The law as plain types: one dictionary a term."""

    def sample(self, shape: tuple[int, ...], count: int, seed: int, first: int = 0, purpose: str = "", step: int = 0) -> Array:
        """Draws first … first + count − 1 of fields with this shape (channel, *grid): (count, channel, *grid)."""
        grid = self.grid(shape[1:])
        channels = [self.draw(grid, count, seed, first, f"{purpose}/{c}", step) for c in range(shape[0])]
        return np.stack(channels, axis=1)

    def sqrt(self, u: Array, dim: int) -> Array:
        """𝒞^(1/2) u on the last `dim` axes."""
        return self._filter(u, dim, 0.5)

    def inverse_sqrt(self, u: Array, dim: int) -> Array:
        """𝒞^(−1/2) u on the last `dim` axes: draws of this law become white."""
        return self._filter(u, dim, -0.5)

    def log_det(self, shape: tuple[int, ...]) -> float:
        """log det 𝒞 for fields with this shape (channel, *grid)."""
        return shape[0] * float(np.log(self._spectrum(shape[1:])).sum())

    def grid(self, points: tuple[int, ...]) -> Grid:
        """The unit box with these points, at the nodes that make the basis orthogonal."""
        return Grid.uniform(points, kind="periodic" if self.condition == "periodic" else "cell")

    def __add__(self, other: "Base | Field") -> "Base":
        return Sum((*self._terms(), *as_base(other)._terms()))

    __radd__ = __add__

    def _terms(self) -> tuple["Base", ...]:
        return (self,)

    def _spectrum(self, points: tuple[int, ...]) -> Array:
        return _spectrum(self, points)

    def _filter(self, u: Array, dim: int, power: float) -> Array:
        transform = Field(tau=1.0, r=1.0, condition=self.condition or "neumann")
        grid = self.grid(u.shape[-dim:])
        return transform.values(self._spectrum(grid.shape) ** power * transform.coefficients(u, grid), grid)


@lru_cache(maxsize=64)
def _spectrum(law: Base, points: tuple[int, ...]) -> Array:
    """Eigenvalues d·w_j·λ_j of 𝒞 as a matrix on the d nodes."""
    grid = law.grid(points)
    spectrum = law.eigenvalues(grid) * _squares(grid, law.condition) * np.prod(points)
    if not spectrum.min() > 0:
        raise UserError(f"the base law {law} does not reach every mode of a grid {grid}; add White() or a pdno.Field to it")
    return np.asarray(spectrum)


def _squares(grid: Grid, condition: Condition | None) -> Array:
    """w_j, the mean of e_j² over the nodes."""
    w = np.ones(grid.shape)
    for place, axis in enumerate(grid.axes):
        if condition == "dirichlet" or (axis.kind == "periodic" and axis.points % 2 == 0):
            w[(slice(None),) * place + (-1,)] *= 2
    return w


@dataclass(frozen=True)
class White(Base):
    """iid N(0, 1) at every node: the finite-dimensional chain of the paper."""

    def eigenvalues(self, grid: Grid) -> Array:
        return np.asarray(1 / (_squares(grid, None) * np.prod(grid.shape)))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Array:
        d = int(np.prod(grid.shape))
        return normals(seed, purpose, first, count, d, step).reshape(count, *grid.shape)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "white"}]

    def _filter(self, u: Array, dim: int, power: float) -> Array:
        return u


@dataclass(frozen=True)
class FieldBase(Base):
    """A Gaussian field, scaled so that the mean of its pointwise variance is 1: the function-space chain of the paper."""

    field: Field

    def __post_init__(self) -> None:
        if self.field.mean_free and self.field.condition != "dirichlet":
            raise UserError("a base law must reach every mode, but this field has mean_free=True; leave it out")

    @property
    def condition(self) -> Condition:  # type: ignore[override]
        return self.field.condition

    def eigenvalues(self, grid: Grid) -> Array:
        return np.asarray(self.field.grid_eigenvalues(grid) / _trace(self.field, grid))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Array:
        return np.asarray(self.field.sample(grid, count, seed, first, purpose, step) / np.sqrt(_trace(self.field, grid)))

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "field", **asdict(self.field)}]


@lru_cache(maxsize=64)
def _trace(field: Field, grid: Grid) -> float:
    """Mean of the pointwise variance over the nodes: tr 𝒞/d."""
    lam = field.grid_eigenvalues(grid)
    if not lam.min() > 1e-14 * lam.max():
        raise UserError(
            f"the base law {field!r} has modes without variance on a grid {grid}; choose a smaller r, or modes=None"
        )
    return float((lam * _squares(grid, field.condition)).sum())


@dataclass(frozen=True)
class LowModes(Base):
    """The lowest modes along each axis, each with this standard deviation: a term to add to another law.

    One mode is the constant: a shift of the whole field. White noise alone decides such a shift within the first few
    steps of a chain, because averaging over d nodes cuts it by √d.
    """

    modes: int = 1
    std: float = 1.0

    def __post_init__(self) -> None:
        if self.modes < 1 or not self.std > 0:
            raise UserError(f"low modes need modes ≥ 1 and std > 0; got modes={self.modes}, std={self.std}")

    def eigenvalues(self, grid: Grid) -> Array:
        lam = np.zeros(grid.shape)
        lam[(slice(self.modes),) * grid.dim] = self.std**2
        return lam

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Array:
        condition: Condition = "periodic" if grid.axes[0].kind == "periodic" else "neumann"
        shape = tuple(min(self.modes, points) for points in grid.shape)
        zeta = normals(seed, f"{purpose}/low", first, count, int(np.prod(shape)), step).reshape(count, *shape)
        return self.std * Field(tau=1.0, r=1.0, condition=condition).values(zeta, grid)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "low", **asdict(self)}]


@dataclass(frozen=True)
class Sum(Base):
    """The law of a sum of independent draws, one of each term."""

    terms: tuple[Base, ...]

    def __post_init__(self) -> None:
        conditions = {term.condition for term in self.terms} - {None}
        if len(conditions) > 1 or "dirichlet" in conditions:
            got = " and ".join(sorted(map(str, conditions)))
            raise UserError(f"the terms of a base law need one common basis, neumann or periodic; got {got}")

    @property
    def condition(self) -> Condition | None:  # type: ignore[override]
        return next((term.condition for term in self.terms if term.condition), None)

    def _terms(self) -> tuple[Base, ...]:
        return self.terms

    def eigenvalues(self, grid: Grid) -> Array:
        return np.asarray(sum(term.eigenvalues(grid) for term in self.terms))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Array:
        draws = [term.draw(grid, count, seed, first, f"{purpose}/{i}", step) for i, term in enumerate(self.terms)]
        return np.asarray(sum(draws))

    def to_json(self) -> list[dict[str, Any]]:
        return [entry for term in self.terms for entry in term.to_json()]


def as_base(law: Base | Field) -> Base:
    """A base law; a `pdno.Field` becomes one."""
    if isinstance(law, Field):
        return FieldBase(law)
    if not isinstance(law, Base):
        raise UserError(f"{law!r} is no base law; give White(), a pdno.Field, LowModes(), or a sum of these")
    return law


LAWS = {"white": White, "field": Field, "low": LowModes}


def from_json(entries: list[Mapping[str, Any]]) -> Base:
    """The law that `to_json` wrote.

    >>> from_json((White() + LowModes(2)).to_json())
    Sum(terms=(White(), LowModes(modes=2, std=1.0)))
    """
    terms = []
    for entry in entries:
        settings = dict(entry)
        name = settings.pop("law", "")
        if name not in LAWS:
            raise UserError(f"base law {name!r} is unknown; {nearest(str(name), LAWS)}")
        try:
            terms.append(as_base(LAWS[name](**settings)))
        except TypeError as error:
            raise UserError(f"base law {name!r} does not take these settings: {error}") from None
    if not terms:
        raise UserError('a base law needs at least one term, for instance {law = "white"}')
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))
