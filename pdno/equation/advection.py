"""Test 4, advection with inflow

    u_t + u_x = 0 on (0, 1),   u(x, 0) = u_0(x),   u(0, t) = 0,

    a = u_0 = 1{ã ≥ 0},   ã ~ N(0, (−∂_xx + τ²)^(−r)), Neumann,        u = u(·, t_final) = u_0(· − t_final).

Nodes x_i = i/points without the end x = 1, so that the nodes of a coarse grid are among those of a refined one. t_final is a
whole number of cells: the solution is an exact shift, with zeros entering from the left.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats
from ..errors import UserError
from ..field import Field
from ..grid import Grid
from .base import Equation

__all__ = ["Advection"]

MODES = 1024  # modes of ã on every grid: the paper generates at 1024 points and restricts by striding


@dataclass(frozen=True)
class Advection(Equation):
    """Advection of a random pattern of zeros and ones: initial condition a to solution u(·, t_final).

    Good values: points=256, 512 or 1024 and the defaults (the paper): intervals of a few hundredths of the domain.
    """

    points: int = 256
    t_final: float = 0.5
    tau: float = 100.0
    r: float = 2.0

    name: ClassVar[str] = "advection"

    def __post_init__(self) -> None:
        self._check_points(self.points, at_least=2)
        self._check_positive(t_final=self.t_final, tau=self.tau, r=self.r)
        cells = self.t_final * self.points
        if abs(cells - round(cells)) > 1e-9 or not 1 <= round(cells) <= self.points:
            raise UserError(
                f"t_final = {self.t_final} moves the pattern by {cells:g} of {self.points} cells; "
                f"choose points and t_final so that this is a whole number from 1 to {self.points}"
            )

    @property
    def grid(self) -> Grid:
        return Grid.uniform(self.points, kind="left")

    @property
    def shift(self) -> int:
        """Distance that the pattern moves, in cells."""
        return round(self.t_final * self.points)

    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Floats:
        field = Field(self.tau, self.r, modes=MODES)
        return (field.sample(self.grid, count, seed, first) >= 0).astype(np.float64)[:, None]

    def solve(self, a: ArrayLike) -> Floats:
        initial = self._as_fields(a, "a")
        u = np.zeros(initial.shape)
        u[..., self.shift :] = initial[..., : self.points - self.shift]
        return u.reshape(np.shape(a))

    def residual(self, u: ArrayLike, a: ArrayLike) -> Floats:
        """Return u(x, t) − u_0(x − t) on characteristics from t = 0, and u(x, t) on those from the inflow boundary."""
        r: Floats = self.discrete_residual(*self._as_pair(u, a))
        return r.reshape(np.shape(u))

    def discrete_residual(self, u: Any, a: Any) -> Any:
        r = u + 0.0
        r[..., self.shift :] -= a[..., : self.points - self.shift]
        return r
