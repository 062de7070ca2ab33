"""Test 1, the elliptic equation in one dimension (`eqn:1d-problem`)

    −(a u′)′ = 0 on (−1, 1),   u(−1) = 0,   u(1) = 1,

    u(x) = ∫_{−1}^{x} a⁻¹ dξ / ∫_{−1}^{1} a⁻¹ dξ,          a = exp(log_scale·V),

with the trigonometric potential V of `pdno.field`. Vertex grid linspace(−1, 1, points) with both ends.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats, Ints
from ..errors import UserError
from ..field import TrigonometricPotential
from ..grid import Grid
from .base import Equation, as_type

__all__ = ["Elliptic1D"]

STENCIL = 8  # nodes of the polynomial that is integrated over each interval, which gives order 8


@dataclass(frozen=True)
class Elliptic1D(Equation):
    """−(a u′)′ = 0 with a log-normal coefficient, solved by the closed form with a quadrature of order 8.

    Good values: points=128, log_scale=0.1 (the paper); log_scale=0.5 for a visibly nonlinear operator.
    """

    points: int = 128
    log_scale: float = 0.1

    name: ClassVar[str] = "elliptic1d"
    symmetries: ClassVar[tuple[str, ...]] = ("reflection-complement",)

    def __post_init__(self) -> None:
        self._check_points(self.points, at_least=STENCIL)
        self._check_positive(log_scale=self.log_scale)

    @property
    def grid(self) -> Grid:
        return Grid.uniform(self.points, kind="vertex", low=-1.0, high=1.0)

    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Floats:
        potential = TrigonometricPotential().sample(self.grid.axes[0], count, seed, first)
        return np.exp(self.log_scale * potential)[:, None]

    def solve(self, a: ArrayLike) -> Floats:
        coefficient = self._as_fields(a, "a", positive=True)
        resistance = self._resistance(coefficient)
        u = np.zeros(coefficient.shape)
        np.cumsum(resistance, axis=-1, out=u[..., 1:])
        u /= u[..., -1:]
        lower_bound = 1 / np.maximum(coefficient[..., 1:], coefficient[..., :-1]) * self.grid.axes[0].spacing
        if not (resistance > 0.5 * lower_bound).all():
            raise UserError(
                f"a is not resolved by {self.points} points: the quadrature of 1/a over an interval is below its lower bound; "
                "use more points, or a smaller log_scale"
            )
        return u.reshape(np.shape(a))

    def residual(self, u: ArrayLike, a: ArrayLike) -> Floats:
        """Return the differences of the flux a u′ between neighbouring intervals, and u(−1) and u(1) − 1 at the ends.

        The flux in an interval is (u_{i+1} − u_i)/∫ a⁻¹; in one dimension this finite-volume scheme is exact at the nodes.
        """
        r: Floats = self.discrete_residual(*self._as_pair(u, a, positive=True))
        return r.reshape(np.shape(u))

    def discrete_residual(self, u: Any, a: Any) -> Any:
        flux = (u[..., 1:] - u[..., :-1]) / self._resistance(a)
        r = u - as_type(np.eye(self.points)[-1], u)  # at the ends: u − 0 and u − 1
        r[..., 1:-1] = flux[..., :-1] - flux[..., 1:]
        return r

    def _resistance(self, a: Any) -> Any:
        """Return ∫ a⁻¹ over each interval, of arrays or tensors: (…, points) → (…, points − 1)."""
        start, weights = _interval_weights(self.points)
        terms = [as_type(weights[:, j], a) / a[..., start + j] for j in range(STENCIL)]
        return sum(terms[1:], terms[0]) * self.grid.axes[0].spacing


@lru_cache(maxsize=32)
def _interval_weights(points: int) -> tuple[Ints, Floats]:
    """Return the first node of the stencil of each interval, and the weights, exact for polynomials of degree 7."""
    interval = np.arange(points - 1)
    start = np.clip(interval - (STENCIL // 2 - 1), 0, points - STENCIL)
    centre = (STENCIL - 1) / 2  # moments about the middle of the stencil are the best conditioned
    vandermonde = np.vander(np.arange(STENCIL) - centre, increasing=True).T
    degree = np.arange(1, STENCIL + 1)
    left = (interval - start - centre)[:, None].astype(np.float64)
    moments = ((left + 1) ** degree - left**degree) / degree
    return start, np.linalg.solve(vandermonde, moments.T).T
