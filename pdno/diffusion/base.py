r"""Base distributions N(0, 𝒞) of the diffusion noise: white noise, a Gaussian random field, low modes, or a sum of these.

Finite-dimensional and function-space diffusion differ in this distribution alone. Each covariance 𝒞 is diagonal in a basis
e_j of the domain (cosines unless the field has another boundary condition): ε = Σ_j c_j e_j with independent c_j ~ N(0, λ_j):

    White()                    λ_j = 1/(d w_j)                iid N(0, 1) at the d nodes
    Field(tau, r)              λ_j ∝ (|ω_j|² + τ²)^(−r)       scaled to Σ_j w_j λ_j = tr 𝒞/d = 1
    LowModes(modes, std)       λ_j = std² for low modes       modes=1: one shift of standard deviation `std` at all nodes
    White() + LowModes()       the sum of both                noise with a large component in the mean of the field

As a matrix on the d nodes, 𝒞 has the eigenvalues d w_j λ_j, where w_j is the mean of e_j² over the nodes. It is 1 except for
the highest mode of an axis with sines, or with an even number of periodic nodes: e_j is ±√2 there, and w_j = 2.

The scale of a field or of white noise is that of a grid. `Base.nested(points)` has the variances λ_j of one grid on every grid:
a draw of a field is then the same function on each of them, up to modes that a coarser grid does not resolve. White noise has
the same power in each mode, and a variance that increases with the number of nodes: it has no limit.

A base distribution has two serialised forms, plain JSON types (`to_json`, `from_json`) and a text (`text`, `from_text`):
terms white, field:TAU,R and low:MODES,STD, joined by +, for instance "white+low:1,1".

Arrays are (…, *grid) on a unit box. Draws are functions of (seed, purpose, index, step), see `pdno.draw`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from .._typing import Floats
from ..basis import Condition
from ..draw import normals
from ..errors import UserError, nearest
from ..field import Field
from ..grid import Grid

__all__ = ["Base", "FieldBase", "LowModes", "Nested", "SumBase", "White", "as_base", "from_json", "from_text"]


class Base(ABC):
    """A distribution N(0, 𝒞); a subclass defines the variances λ_j and how to draw samples."""

    @property
    @abstractmethod
    def condition(self) -> Condition | None:
        """Boundary condition of the basis e_j; None if every basis diagonalises 𝒞."""

    @abstractmethod
    def eigenvalues(self, grid: Grid) -> Floats:
        """Return λ_j, the variances of the coefficients ⟨ε, e_j⟩, in the shape of the grid."""

    @abstractmethod
    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        """Return the draws first … first + count − 1 of one channel: (count, *grid)."""

    @abstractmethod
    def to_json(self) -> list[dict[str, Any]]:
        """Return plain types, one dictionary per term; see `from_json`."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Text form, for instance "white+low:1,1"; see `from_text`."""

    def sample(self, shape: tuple[int, ...], count: int, seed: int, first: int = 0, purpose: str = "", step: int = 0) -> Floats:
        """Return the draws first … first + count − 1 of fields with this shape.

        Args:
            shape: (channel, *grid); channels are independent.
            count: number of draws.
            seed, first, purpose, step: key of the first draw, see `pdno.draw`.

        Returns:
            (count, channel, *grid).
        """
        grid = self.grid(shape[1:])
        channels = [self.draw(grid, count, seed, first, f"{purpose}/{c}", step) for c in range(shape[0])]
        return np.stack(channels, axis=1)

    def sqrt(self, u: Floats, dim: int) -> Floats:
        """Return 𝒞^(1/2) u, applied to the last `dim` axes: (…, *grid) → (…, *grid)."""
        return _filter(self, u, dim, 0.5)

    def inverse_sqrt(self, u: Floats, dim: int) -> Floats:
        """Return 𝒞^(−1/2) u, applied to the last `dim` axes: it maps draws of this distribution to white noise."""
        return _filter(self, u, dim, -0.5)

    def log_det(self, shape: tuple[int, ...]) -> float:
        """Return log det 𝒞 for fields with this shape (channel, *grid)."""
        return shape[0] * float(np.log(_spectrum(self, shape[1:])).sum())

    def grid(self, points: tuple[int, ...]) -> Grid:
        """Return the unit box with this number of points per axis, at nodes where the basis is orthogonal."""
        return Grid.uniform(points, kind="periodic" if self.condition == "periodic" else "cell")

    def nested(self, points: tuple[int, ...]) -> "Base":
        """Return the distribution with the variances λ_j that it has on a grid of these points, on every grid."""
        return Nested(self, tuple(points))

    def __add__(self, other: "Base | Field") -> "Base":
        return SumBase((*_terms(self), *_terms(as_base(other))))

    __radd__ = __add__


def _terms(base: Base) -> tuple[Base, ...]:
    return base.terms if isinstance(base, SumBase) else (base,)


def _filter(base: Base, u: Floats, dim: int, power: float) -> Floats:
    """Return 𝒞^power u, applied to the last `dim` axes."""
    if isinstance(base, White):
        return u
    transform = Field(tau=1.0, r=1.0, condition=base.condition or "neumann")
    grid = base.grid(u.shape[-dim:])
    return transform.values(_spectrum(base, grid.shape) ** power * transform.coefficients(u, grid), grid)


@lru_cache(maxsize=64)
def _spectrum(base: Base, points: tuple[int, ...]) -> Floats:
    """Return the eigenvalues d·w_j·λ_j of 𝒞 as a matrix on the d nodes."""
    grid = base.grid(points)
    spectrum = base.eigenvalues(grid) * _mean_squares(grid, base.condition) * np.prod(points)
    if not spectrum.min() > 0:
        raise UserError(
            f"the base distribution {base} has zero variance in some modes of a grid {grid}; add White() or a pdno.Field to it"
        )
    return np.asarray(spectrum)


def _mean_squares(grid: Grid, condition: Condition | None) -> Floats:
    """Return w_j, the mean of e_j² over the nodes."""
    w = np.ones(grid.shape)
    for place, axis in enumerate(grid.axes):
        if condition == "dirichlet" or (axis.kind == "periodic" and axis.points % 2 == 0):
            w[(slice(None),) * place + (-1,)] *= 2
    return w


@dataclass(frozen=True)
class White(Base):
    """White noise, iid N(0, 1) at every node: the finite-dimensional chain of the paper."""

    @property
    def condition(self) -> None:
        return None

    def eigenvalues(self, grid: Grid) -> Floats:
        return np.asarray(1 / (_mean_squares(grid, None) * np.prod(grid.shape)))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        d = int(np.prod(grid.shape))
        return normals(seed, purpose, first, count, d, step).reshape(count, *grid.shape)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "white"}]

    @property
    def text(self) -> str:
        return "white"


@dataclass(frozen=True)
class FieldBase(Base):
    """A Gaussian random field, scaled to a mean pointwise variance of 1: the function-space chain of the paper."""

    field: Field

    def __post_init__(self) -> None:
        if self.field.mean_free and self.field.condition != "dirichlet":
            raise UserError("a base distribution needs variance in every mode, but this field has mean_free=True; remove it")

    @property
    def condition(self) -> Condition:
        return self.field.condition

    def eigenvalues(self, grid: Grid) -> Floats:
        return np.asarray(self.field.grid_eigenvalues(grid) / _trace(self.field, grid))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        return np.asarray(self.field.sample(grid, count, seed, first, purpose, step) / np.sqrt(_trace(self.field, grid)))

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "field", **asdict(self.field)}]

    @property
    def text(self) -> str:
        tau, r = self.field.tau, self.field.r
        if replace(self.field, scale=1.0) != Field(tau=tau, r=r):  # the scale has no effect on a base distribution
            raise UserError(f"the text of a base distribution has the settings tau and r of a field only; got {self.field!r}")
        return f"field:{_number(tau)},{_number(r)}"


@lru_cache(maxsize=64)
def _trace(field: Field, grid: Grid) -> float:
    """Return tr 𝒞/d, the mean of the pointwise variance over the nodes."""
    lam = field.grid_eigenvalues(grid)
    if not lam.min() > 1e-14 * lam.max():
        raise UserError(
            f"the base distribution {field!r} has modes without variance on a grid {grid}; choose a smaller r, or modes=None"
        )
    return float((lam * _mean_squares(grid, field.condition)).sum())


@dataclass(frozen=True)
class LowModes(Base):
    """The lowest modes along each axis, with one standard deviation: a term to add to another base distribution.

    One mode is the constant, a shift of the whole field. With white noise alone the first few steps of the reverse chain
    fix this shift, because the noise of the mean over d nodes is smaller by the factor √d.

    Args:
        modes: number of modes along each axis, at least 1.
        std: standard deviation of each coefficient, positive.
    """

    modes: int = 1
    std: float = 1.0

    def __post_init__(self) -> None:
        if self.modes < 1 or not self.std > 0:
            raise UserError(f"low modes need modes ≥ 1 and std > 0; got modes={self.modes}, std={self.std}")

    @property
    def condition(self) -> None:
        return None

    def eigenvalues(self, grid: Grid) -> Floats:
        lam = np.zeros(grid.shape)
        lam[(slice(self.modes),) * grid.dim] = self.std**2
        return lam

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        condition: Condition = "periodic" if grid.axes[0].kind == "periodic" else "neumann"
        shape = tuple(min(self.modes, points) for points in grid.shape)
        zeta = normals(seed, f"{purpose}/low", first, count, int(np.prod(shape)), step).reshape(count, *shape)
        return self.std * Field(tau=1.0, r=1.0, condition=condition).values(zeta, grid)

    def to_json(self) -> list[dict[str, Any]]:
        return [{"law": "low", **asdict(self)}]

    @property
    def text(self) -> str:
        return f"low:{self.modes},{_number(self.std)}"


@dataclass(frozen=True)
class SumBase(Base):
    """The distribution of a sum of independent draws, one of each term."""

    terms: tuple[Base, ...]

    def __post_init__(self) -> None:
        conditions = {term.condition for term in self.terms} - {None}
        if len(conditions) > 1 or "dirichlet" in conditions:
            given = " and ".join(sorted(map(str, conditions)))
            raise UserError(f"the terms of a base distribution need one common basis, neumann or periodic; got {given}")

    @property
    def condition(self) -> Condition | None:
        return next((term.condition for term in self.terms if term.condition), None)

    def eigenvalues(self, grid: Grid) -> Floats:
        return np.asarray(sum(term.eigenvalues(grid) for term in self.terms))

    def nested(self, points: tuple[int, ...]) -> Base:
        return SumBase(tuple(term.nested(points) for term in self.terms))

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        draws = [term.draw(grid, count, seed, first, f"{purpose}/{i}", step) for i, term in enumerate(self.terms)]
        return np.asarray(sum(draws))

    def to_json(self) -> list[dict[str, Any]]:
        return [entry for term in self.terms for entry in term.to_json()]

    @property
    def text(self) -> str:
        return "+".join(term.text for term in self.terms)


@dataclass(frozen=True)
class Nested(Base):
    """A term with the variances λ_j of a grid of these points on every grid; its serialised forms are those of the term."""

    base: Base
    points: tuple[int, ...]

    @property
    def condition(self) -> Condition | None:
        return self.base.condition

    def eigenvalues(self, grid: Grid) -> Floats:
        return self._ratio(grid) * self.base.eigenvalues(grid)

    def draw(self, grid: Grid, count: int, seed: int, first: int, purpose: str, step: int) -> Floats:
        return np.asarray(np.sqrt(self._ratio(grid)) * self.base.draw(grid, count, seed, first, purpose, step))

    def _ratio(self, grid: Grid) -> float:
        """Return the factor of the variances, which is that of the lowest mode."""
        return float(self.base.eigenvalues(self.base.grid(self.points)).flat[0] / self.base.eigenvalues(grid).flat[0])

    def to_json(self) -> list[dict[str, Any]]:
        return self.base.to_json()

    @property
    def text(self) -> str:
        return self.base.text


def as_base(law: Base | Field) -> Base:
    """Return a base distribution as it is, and a `pdno.Field` as a `FieldBase`.

    Raises:
        UserError: if it is neither.
    """
    if isinstance(law, Field):
        return FieldBase(law)
    if not isinstance(law, Base):
        raise UserError(f"{law!r} is not a base distribution; expected White(), a pdno.Field, LowModes(), or a sum of these")
    return law


_TERMS = {"white": White, "field": Field, "low": LowModes}  # by the key "law" of the JSON form


def from_json(entries: Sequence[Mapping[str, Any]]) -> Base:
    """Return the base distribution that `Base.to_json` describes.

    Raises:
        UserError: if a term is unknown or has unknown settings, or if there is none.

    >>> from_json((White() + LowModes(2)).to_json())
    SumBase(terms=(White(), LowModes(modes=2, std=1.0)))
    """
    terms = []
    for entry in entries:
        settings = dict(entry)
        name = settings.pop("law", "")
        if name not in _TERMS:
            raise UserError(f"base distribution {name!r} is unknown; {nearest(str(name), _TERMS)}")
        try:
            terms.append(as_base(_TERMS[name](**settings)))
        except TypeError as error:
            raise UserError(f"base distribution {name!r} does not accept these settings: {error}") from None
    if not terms:
        raise UserError('a base distribution needs at least one term, for instance {law = "white"}')
    return _joined(terms)


def from_text(text: str) -> Base:
    """Return the base distribution with this text form.

    Args:
        text: terms white, field:TAU,R and low:MODES,STD, joined by +.

    Raises:
        UserError: if a term has another form, or numbers out of range.

    >>> from_text("white+low:1,2")
    SumBase(terms=(White(), LowModes(modes=1, std=2.0)))
    >>> from_text("white+low:1,2").text
    'white+low:1,2'
    """
    return _joined([_term(term.strip()) for term in re.split(r"(?<!\d[eE])\+", text)])  # not in 1e+3


def _term(text: str) -> Base:
    name, _, rest = text.partition(":")
    try:
        match name, [float(number) for number in rest.split(",")] if rest else []:
            case "white", []:
                return White()
            case "field", [tau, r]:
                return as_base(Field(tau=tau, r=r))
            case "low", [modes, std] if modes.is_integer():
                return LowModes(int(modes), std)
    except UserError:
        raise
    except ValueError:  # not a number
        pass
    raise UserError(f"base distribution {text!r}: expected white, field:TAU,R or low:MODES,STD, or a sum of these")


def _joined(terms: list[Base]) -> Base:
    return terms[0] if len(terms) == 1 else SumBase(tuple(terms))


def _number(value: float) -> str:
    """Return the text of a number: six digits if they are exact, otherwise all digits."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
