r"""Observation noise η: u^η = u + η (`eqn:noisy-model`). Not to be confused with the noise of the diffusion.

Each law has

    sample(u, seed=0, first=0)   η for fields u (batch, channel, *grid); where η does not depend on u, a shape will do
    std                          standard deviation of η at a point (for `Heteroscedastic`: the function of u)
    log_prob(eta)                log-density of each field on R^d, where it exists: (batch,)
    spec                         the law as the command line writes it

The draw of a field is a function of (seed, index) alone, where the fields are numbered from `first`.
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from .draw import generator, normals
from .errors import UserError, nearest
from .field import Field
from .grid import Grid

__all__ = ["FieldNoise", "Gaussian", "GaussianMixture", "Heteroscedastic", "Noise", "parse"]

Array = NDArray[np.float64]
Fields = ArrayLike | tuple[int, ...]


NAMES = {
    "none": "none",
    "gaussian": "gaussian:STD",
    "mixture": "mixture:1 or mixture:2",
    "field": "field:STD or field:STD,TAU,R",
}
"""The laws that a specification can name, and how it is written."""


@runtime_checkable
class Noise(Protocol):
    """What `pdno.generate` needs of a law of η."""

    @property
    def spec(self) -> str: ...

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Array: ...


@dataclass(frozen=True)
class Gaussian:
    """η ~ N(0, std²·I): independent in every point.

    >>> Gaussian(0.05).sample((2, 1, 8), seed=0).shape
    (2, 1, 8)
    """

    std: float

    def __post_init__(self) -> None:
        _check_std(self.std)

    @property
    def spec(self) -> str:
        return f"gaussian:{_text(self.std)}"

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Array:
        return self.std * _white(_shape(u), seed, first)

    def log_prob(self, eta: ArrayLike) -> Array:
        return _normal_log_prob(_rows(eta), self.std)


@dataclass(frozen=True)
class GaussianMixture:
    """η ~ scale·Σ_i weights_i N(means_i·1, stds_i²·I), the mixture of the noisy Darcy test (`tab:noisydata`).

    With ``shared=True`` (the paper's formula, a law on R^d) a field has one component: one shift for all its points plus
    independent noise. With ``shared=False`` every point draws its own component.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]
    scale: float = 1.0
    shared: bool = True

    def __post_init__(self) -> None:
        if not len(self.weights) == len(self.means) == len(self.stds) > 0:
            raise UserError(
                f"a mixture has {len(self.weights)} weights, {len(self.means)} means, {len(self.stds)} stds; give as many each"
            )
        if not np.isfinite(self.means).all():
            raise UserError(f"means {self.means} must be finite")
        if not (min(self.weights) >= 0 and abs(sum(self.weights) - 1) < 1e-9):
            raise UserError(
                f"weights {self.weights} must not be negative and must sum to one; they sum to {sum(self.weights):g}"
            )
        for std in (*self.stds, self.scale):
            _check_std(std)

    @classmethod
    def case(cls, number: int) -> "GaussianMixture":
        """The paper's Case 1 (three narrow modes, std 8.167e-4) or Case 2 (four modes, std 1.598e-3)."""
        scale = 0.2 * 0.01  # 0.2·u_max
        if number == 1:
            return cls((1 / 3,) * 3, (-0.5, 0.0, 0.5), (0.01,) * 3, scale)
        if number == 2:
            return cls((0.25,) * 4, (-1.0, -0.5, 0.5, 1.0), (0.01, 0.1, 0.2, 0.05), scale)
        raise UserError(f"mixture case {number!r} is unknown; the paper has cases 1 and 2")

    @property
    def mean(self) -> float:
        return self.scale * float(np.dot(self.weights, self.means))

    @property
    def std(self) -> float:
        second = np.dot(self.weights, np.square(self.means) + np.square(self.stds))
        return float(np.sqrt(self.scale**2 * second - self.mean**2))

    @property
    def spec(self) -> str:
        for number in (1, 2):
            if self == self.case(number):
                return f"mixture:{number}"
        return repr(self)

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Array:
        shape = _shape(u)
        means, stds, upto = np.asarray(self.means), np.asarray(self.stds), np.cumsum(self.weights)[:-1]
        eta = np.empty(shape)
        for i in range(shape[0]):
            stream = generator(seed, "noise", first + i)
            component = np.searchsorted(upto, stream.random(() if self.shared else shape[1:]), side="right")
            eta[i] = means[component] + stds[component] * stream.standard_normal(shape[1:])
        return self.scale * eta

    def log_prob(self, eta: ArrayLike) -> Array:
        eta = _rows(eta)
        means, stds = self.scale * np.asarray(self.means), self.scale * np.asarray(self.stds)
        log_weights = np.log(self.weights)
        if self.shared:
            parts = [w + _normal_log_prob(eta - m, s) for w, m, s in zip(log_weights, means, stds, strict=True)]
            return np.asarray(logsumexp(parts, axis=0))
        parts = [w + _pointwise_log_prob(eta - m, s) for w, m, s in zip(log_weights, means, stds, strict=True)]
        return np.asarray(logsumexp(parts, axis=0).sum(axis=1))


@dataclass(frozen=True)
class FieldNoise:
    """η ~ N(0, 𝒞), 𝒞 ∝ (−Δ + τ²)^(−r) under Neumann conditions on cell centres, scaled to tr 𝒞 = std².

    `std` is the root mean square over the domain; at a single point the spread differs (it is larger at the boundary).
    Fields are (batch, channel, *grid), channels independent; one (seed, index) is the same function on every grid.
    """

    std: float
    tau: float = 3.0
    r: float = 2.0

    def __post_init__(self) -> None:
        _check_std(self.std)
        self.field(dim=1)  # checks tau and r

    @property
    def spec(self) -> str:
        return f"field:{_text(self.std)},{_text(self.tau)},{_text(self.r)}"

    def field(self, dim: int) -> Field:
        """The law of one channel of η on the unit cube."""
        modes = {1: 1024, 2: 128, 3: 32}[dim]
        unit = Field(self.tau, self.r, modes=modes)
        trace = unit.eigenvalues(Grid.uniform(2, dim=dim, kind="cell")).sum()
        return Field(self.tau, self.r, scale=self.std**2 / trace, modes=modes)

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Array:
        shape = _shape(u)
        channels, grid = _cells(shape)
        field = self.field(grid.dim)
        eta = [field.sample(grid, shape[0], seed, first, "noise", channel) for channel in range(channels)]
        return np.stack(eta, axis=1)

    def log_prob(self, eta: ArrayLike) -> Array:
        eta = np.asarray(eta, dtype=np.float64)
        channels, grid = _cells(eta.shape)
        field = self.field(grid.dim)
        lam, c = field.grid_eigenvalues(grid), field.coefficients(eta, grid)
        if not (lam > 1e-24 * lam.max()).all() or self.std == 0:
            raise UserError(f"{self} has no density on a grid of {grid}: some of its modes have no variance")
        # Values are √d times an orthogonal map of the coefficients: the Jacobian of the density on R^d.
        constant = channels * np.log(2 * np.pi * lam.size * lam).sum()
        return np.asarray(-0.5 * ((c**2 / lam).reshape(len(c), -1).sum(axis=1) + constant))


@dataclass(frozen=True)
class Heteroscedastic:
    """η(x) ~ N(0, std(u(x))²), independent in every point; `std` is a function of u, for instance a relative error.

    >>> noise = Heteroscedastic(lambda u: 0.01 + 0.1 * abs(u))
    >>> noise.sample(np.ones((2, 1, 8)), seed=0).shape
    (2, 1, 8)
    """

    std: Callable[[Array], Array]

    def __post_init__(self) -> None:
        if not callable(self.std):
            raise UserError(f"std = {self.std!r} is not a function of u; for a constant take Gaussian(std)")

    @property
    def spec(self) -> str:
        return f"heteroscedastic:{getattr(self.std, '__qualname__', type(self.std).__qualname__)}"

    def sample(self, u: ArrayLike, seed: int = 0, first: int = 0) -> Array:
        if isinstance(u, tuple):
            raise UserError("this noise depends on u: pass the fields u, not a shape")
        u = np.asarray(u, dtype=np.float64)
        return self._std(u) * _white(u.shape, seed, first)

    def log_prob(self, eta: ArrayLike, u: ArrayLike) -> Array:
        """Log-density given the fields u."""
        return _normal_log_prob(_rows(eta), _rows(self._std(np.asarray(u, dtype=np.float64))))

    def _std(self, u: Array) -> Array:
        # Sample by sample: a function that looks at the whole field must not see the batch.
        std = np.stack([np.broadcast_to(np.asarray(self.std(field), dtype=np.float64), field.shape) for field in u])
        if not (np.isfinite(std).all() and (std >= 0).all()):
            raise UserError(
                "the function std(u) gave a negative or infinite value; a standard deviation must be finite and ≥ 0"
            )
        return std


def parse(spec: str) -> Noise | None:
    """The law that a specification names: none | gaussian:STD | mixture:1 | mixture:2 | field:STD[,TAU,R].

    >>> parse("gaussian:0.05")
    Gaussian(std=0.05)
    """
    name, _, text = spec.strip().lower().partition(":")
    if name not in NAMES:
        raise UserError(f"noise {spec!r} is unknown; {nearest(name, NAMES)}")
    try:
        values = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise UserError(f"noise {spec!r} has something that is not a number; write {NAMES[name]}") from None
    if name == "none" and not values:
        return None
    if name == "gaussian" and len(values) == 1:
        return Gaussian(values[0])
    if name == "mixture" and values in ([1.0], [2.0]):
        return GaussianMixture.case(int(values[0]))
    if name == "field" and len(values) in (1, 3):
        return FieldNoise(*values)
    raise UserError(f"noise {spec!r} is not complete or has too much; write {NAMES[name]}")


def _text(x: float) -> str:
    """A number, short where nothing is lost by it."""
    return f"{x:g}" if float(f"{x:g}") == x else repr(float(x))


def _check_std(std: float) -> None:
    if not isinstance(std, numbers.Real) or not (np.isfinite(std) and std >= 0):
        raise UserError(f"a standard deviation of {std!r} was given; it must be a number, finite and not negative")


def _shape(u: Fields) -> tuple[int, ...]:
    shape = u if isinstance(u, tuple) else np.shape(u)
    if len(shape) < 2:
        raise UserError(f"noise was asked for fields of shape {shape}; expected (batch, channel, *grid)")
    return tuple(int(n) for n in shape)


def _cells(shape: tuple[int, ...]) -> tuple[int, Grid]:
    """Channels, and the cell-centred unit grid of fields (batch, channel, *grid)."""
    if len(shape) < 3:
        raise UserError(f"field noise was asked for arrays of shape {shape}; expected (batch, channel, *grid)")
    return shape[1], Grid.uniform(shape[2:], kind="cell")


def _white(shape: tuple[int, ...], seed: int, first: int) -> Array:
    return normals(seed, "noise", first, shape[0], int(np.prod(shape[1:]))).reshape(shape)


def _rows(eta: ArrayLike) -> Array:
    eta = np.asarray(eta, dtype=np.float64)
    return eta.reshape(eta.shape[0], -1)


def _pointwise_log_prob(eta: Array, std: float | Array) -> Array:
    if np.any(np.asarray(std) == 0):
        raise UserError("noise of standard deviation zero has no density")
    return np.asarray(-0.5 * (eta / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))


def _normal_log_prob(eta: Array, std: float | Array) -> Array:
    return np.asarray(_pointwise_log_prob(eta, std).sum(axis=1))
