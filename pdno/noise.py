r"""Observation noise η: u^η = u + η (`eqn:noisy-model`). The noise of the diffusion is in `pdno.diffusion.base`.

Each distribution has

    sample(u, seed=0, first=0)   draws of η for fields u (batch, channel, *grid), or for their shape if η does not depend on u
    std                          standard deviation of η at a point (for `Heteroscedastic`: a function of u)
    log_prob(eta)                log-density of each field on R^d, if it exists: (batch,)
    spec                         specification of the distribution on the command line

Each draw is a function of (seed, index) alone; the fields have the indices first, first + 1, …
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ._typing import Floats
from .draw import generator, normals
from .errors import UserError, nearest
from .field import Field
from .grid import Grid

__all__ = ["FieldNoise", "Gaussian", "GaussianMixture", "Heteroscedastic", "Noise", "parse"]

Fields = ArrayLike | tuple[int, ...]  # fields (batch, channel, *grid), or their shape

NAMES = {
    "none": "none",
    "gaussian": "gaussian:STD",
    "mixture": "mixture:1 or mixture:2",
    "field": "field:STD or field:STD,TAU,R",
}
"""Name of each distribution in a specification, and the syntax of the specification."""


@runtime_checkable
class Noise(Protocol):
    """Protocol of a noise distribution, as `pdno.generate` requires it."""

    @property
    def spec(self) -> str:
        """Specification of the distribution."""

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Floats:
        """Draw η.

        Args:
            u: fields (batch, channel, *grid), or their shape if η does not depend on u.
            seed, first: identify the draw: the fields have the indices first, first + 1, …

        Returns:
            η in the shape of u.
        """


@dataclass(frozen=True)
class Gaussian:
    """η ~ N(0, std²·I): independent at every point.

    Args:
        std: standard deviation, ≥ 0.

    >>> Gaussian(0.05).sample((2, 1, 8), seed=0).shape
    (2, 1, 8)
    """

    std: float

    def __post_init__(self) -> None:
        _check_std(self.std)

    @property
    def spec(self) -> str:
        """Specification, as `parse` reads it."""
        return f"gaussian:{_format(self.std)}"

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Floats:
        """Draw η in the shape of u; arguments as in `Noise.sample`."""
        return self.std * _white(_shape(u), seed, first)

    def log_prob(self, eta: ArrayLike) -> Floats:
        """Return the log-density of fields η (batch, channel, *grid): (batch,)."""
        return _normal_log_prob(_rows(eta), self.std)


@dataclass(frozen=True)
class GaussianMixture:
    """η ~ scale·Σ_i weights_i N(means_i·1, stds_i²·I), the mixture of the noisy Darcy test (`tab:noisydata`).

    Args:
        weights: of the components; they sum to one.
        means, stds: of the components, as many as weights.
        scale: factor of η.
        shared: True draws one component for each field (the formula of the paper, a distribution on R^d): one shift for all
            points, plus independent noise. False draws a component for each point.

    Raises:
        UserError: if numbers of components differ, or values are out of range.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]
    scale: float = 1.0
    shared: bool = True

    def __post_init__(self) -> None:
        if not len(self.weights) == len(self.means) == len(self.stds) > 0:
            raise UserError(
                f"a mixture has {len(self.weights)} weights, {len(self.means)} means, {len(self.stds)} stds; give equally many"
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
        """Return Case 1 (three narrow modes, std 8.167e-4) or Case 2 (four modes, std 1.598e-3) of the paper.

        Raises:
            UserError: if there is no such case.
        """
        scale = 0.2 * 0.01  # 0.2·u_max, with u_max ≈ 0.01 in the Darcy test
        if number == 1:
            return cls((1 / 3,) * 3, (-0.5, 0.0, 0.5), (0.01,) * 3, scale)
        if number == 2:
            return cls((0.25,) * 4, (-1.0, -0.5, 0.5, 1.0), (0.01, 0.1, 0.2, 0.05), scale)
        raise UserError(f"mixture case {number!r} is unknown; the paper has cases 1 and 2")

    @property
    def mean(self) -> float:
        """Mean of η at a point."""
        return self.scale * float(np.dot(self.weights, self.means))

    @property
    def std(self) -> float:
        """Standard deviation of η at a point."""
        second = np.dot(self.weights, np.square(self.means) + np.square(self.stds))
        return float(np.sqrt(self.scale**2 * second - self.mean**2))

    @property
    def spec(self) -> str:
        """Specification, as `parse` reads it."""
        for number in (1, 2):
            if self == self.case(number):
                return f"mixture:{number}"
        return repr(self)

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Floats:
        """Draw η in the shape of u; arguments as in `Noise.sample`."""
        shape = _shape(u)
        means, stds, thresholds = np.asarray(self.means), np.asarray(self.stds), np.cumsum(self.weights)[:-1]
        eta = np.empty(shape)
        for i in range(shape[0]):
            stream = generator(seed, "noise", first + i)
            component = np.searchsorted(thresholds, stream.random(() if self.shared else shape[1:]), side="right")
            eta[i] = means[component] + stds[component] * stream.standard_normal(shape[1:])
        return self.scale * eta

    def log_prob(self, eta: ArrayLike) -> Floats:
        """Return the log-density of fields η (batch, channel, *grid): (batch,)."""
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
    """η ~ N(0, 𝒞), 𝒞 ∝ (−Δ + τ²)^(−r) with Neumann conditions on cell centres, scaled to tr 𝒞 = std².

    The pointwise standard deviation varies (it is larger at the boundary). Channels are independent. One (seed, index)
    is the same function on every grid.

    Args:
        std: root mean square of the pointwise standard deviation over the domain.
        tau: inverse correlation length τ.
        r: smoothness.
    """

    std: float
    tau: float = 3.0
    r: float = 2.0

    def __post_init__(self) -> None:
        _check_std(self.std)
        self.field(dim=1)  # raises if tau or r is invalid

    @property
    def spec(self) -> str:
        """Specification, as `parse` reads it."""
        return f"field:{_format(self.std)},{_format(self.tau)},{_format(self.r)}"

    def field(self, dim: int) -> Field:
        """Return the distribution of one channel of η on the unit cube."""
        modes = {1: 1024, 2: 128, 3: 32}[dim]
        unit = Field(self.tau, self.r, modes=modes)
        trace = unit.eigenvalues(Grid.uniform(2, dim=dim, kind="cell")).sum()
        return Field(self.tau, self.r, scale=self.std**2 / trace, modes=modes)

    def sample(self, u: Fields, seed: int = 0, first: int = 0) -> Floats:
        """Draw η in the shape of u, (batch, channel, *grid); arguments as in `Noise.sample`."""
        shape = _shape(u)
        channels, grid = _cells(shape)
        field = self.field(grid.dim)
        eta = [field.sample(grid, shape[0], seed, first, "noise", channel) for channel in range(channels)]
        return np.stack(eta, axis=1)

    def log_prob(self, eta: ArrayLike) -> Floats:
        """Return the log-density of fields η (batch, channel, *grid): (batch,).

        Raises:
            UserError: if there is no density, because some modes have zero variance.
        """
        eta = np.asarray(eta, dtype=np.float64)
        channels, grid = _cells(eta.shape)
        field = self.field(grid.dim)
        lam, c = field.grid_eigenvalues(grid), field.coefficients(eta, grid)
        if not (lam > 1e-24 * lam.max()).all() or self.std == 0:
            raise UserError(
                f"{self} has no density on a grid of {grid}: some modes have zero variance; choose a smaller r, or std > 0"
            )
        # The values are √d times an orthogonal map of the coefficients, which gives the Jacobian of the density on R^d.
        constant = channels * np.log(2 * np.pi * lam.size * lam).sum()
        return np.asarray(-0.5 * ((c**2 / lam).reshape(len(c), -1).sum(axis=1) + constant))


@dataclass(frozen=True)
class Heteroscedastic:
    """η(x) ~ N(0, std(u(x))²), independent at every point.

    Args:
        std: function of one field u (channel, *grid) that returns standard deviations, for instance a relative error.

    >>> noise = Heteroscedastic(lambda u: 0.01 + 0.1 * abs(u))
    >>> noise.sample(np.ones((2, 1, 8)), seed=0).shape
    (2, 1, 8)
    """

    std: Callable[[Floats], Floats]

    def __post_init__(self) -> None:
        if not callable(self.std):
            raise UserError(f"std = {self.std!r} is not a function of u; for a constant use Gaussian(std)")

    @property
    def spec(self) -> str:
        """Name of the distribution in records; `parse` cannot read it."""
        return f"heteroscedastic:{getattr(self.std, '__qualname__', type(self.std).__qualname__)}"

    def sample(self, u: ArrayLike, seed: int = 0, first: int = 0) -> Floats:
        """Draw η in the shape of u.

        Args:
            u: fields (batch, channel, *grid); a shape is not sufficient.
            seed, first: as in `Noise.sample`.

        Raises:
            UserError: if u is a shape, or std(u) is negative or infinite.
        """
        if isinstance(u, tuple):
            raise UserError("heteroscedastic noise depends on u; pass the fields u, not a shape")
        u = np.asarray(u, dtype=np.float64)
        return self._std(u) * _white(u.shape, seed, first)

    def log_prob(self, eta: ArrayLike, u: ArrayLike) -> Floats:
        """Return the log-density of fields η (batch, channel, *grid) given u, in the same shape: (batch,)."""
        return _normal_log_prob(_rows(eta), _rows(self._std(np.asarray(u, dtype=np.float64))))

    def _std(self, u: Floats) -> Floats:
        """Return std(u), checked, with the shape of u."""
        # Sample by sample, so that the result cannot depend on other samples of the batch.
        std = np.stack([np.broadcast_to(np.asarray(self.std(field), dtype=np.float64), field.shape) for field in u])
        if not (np.isfinite(std).all() and (std >= 0).all()):
            raise UserError("std(u) returned a negative or infinite value; a standard deviation must be finite and ≥ 0")
        return std


def parse(spec: str) -> Noise | None:
    """Return the distribution of a specification; None for "none".

    Args:
        spec: none | gaussian:STD | mixture:1 | mixture:2 | field:STD[,TAU,R].

    Raises:
        UserError: if the specification has another form, or numbers out of range.

    >>> parse("gaussian:0.05")
    Gaussian(std=0.05)
    """
    name, _, text = spec.strip().lower().partition(":")
    if name not in NAMES:
        raise UserError(f"noise {spec!r} is unknown; {nearest(name, NAMES)}")
    try:
        values = [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise UserError(f"noise {spec!r} contains a value that is not a number; write {NAMES[name]}") from None
    if name == "none" and not values:
        return None
    if name == "gaussian" and len(values) == 1:
        return Gaussian(values[0])
    if name == "mixture" and values in ([1.0], [2.0]):
        return GaussianMixture.case(int(values[0]))
    if name == "field" and len(values) in (1, 3):
        return FieldNoise(*values)
    raise UserError(f"noise {spec!r} has the wrong number or range of values; write {NAMES[name]}")


def _format(x: float) -> str:
    """Format a number with six digits if they are exact, otherwise with all digits."""
    return f"{x:g}" if float(f"{x:g}") == x else repr(float(x))


def _check_std(std: float) -> None:
    """Raise UserError unless the standard deviation is a finite number ≥ 0."""
    if not isinstance(std, numbers.Real) or not (np.isfinite(std) and std >= 0):
        raise UserError(f"got a standard deviation of {std!r}; it must be a number, finite and not negative")


def _shape(u: Fields) -> tuple[int, ...]:
    """Return the shape of fields that are given as an array or by their shape."""
    shape = u if isinstance(u, tuple) else np.shape(u)
    if len(shape) < 2:
        raise UserError(f"got fields of shape {shape}; expected (batch, channel, *grid)")
    return tuple(int(n) for n in shape)


def _cells(shape: tuple[int, ...]) -> tuple[int, Grid]:
    """Return the number of channels and the cell-centred unit grid of fields (batch, channel, *grid)."""
    if len(shape) < 3:
        raise UserError(f"got arrays of shape {shape}; field noise needs (batch, channel, *grid)")
    return shape[1], Grid.uniform(shape[2:], kind="cell")


def _white(shape: tuple[int, ...], seed: int, first: int) -> Floats:
    """Draw standard normal numbers of this shape for the samples first, first + 1, …"""
    return normals(seed, "noise", first, shape[0], int(np.prod(shape[1:]))).reshape(shape)


def _rows(eta: ArrayLike) -> Floats:
    """Flatten each field: (batch, …) → (batch, d)."""
    eta = np.asarray(eta, dtype=np.float64)
    return eta.reshape(eta.shape[0], -1)


def _pointwise_log_prob(eta: Floats, std: float | Floats) -> Floats:
    """Return the log-density of N(0, std²) at each point: the shape of eta."""
    if np.any(np.asarray(std) == 0):
        raise UserError("noise with a standard deviation of zero has no density; use std > 0")
    return np.asarray(-0.5 * (eta / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi))


def _normal_log_prob(eta: Floats, std: float | Floats) -> Floats:
    """Return the log-density of N(0, diag(std²)) for each row: (batch, d) → (batch,)."""
    return np.asarray(_pointwise_log_prob(eta, std).sum(axis=1))
