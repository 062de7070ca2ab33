"""Parametric equations 𝒢(u; a) = 0 (`eqn:random-PDE`): random inputs a, solutions u = S†(a) and residuals 𝒢(u; a).

>>> eq = Darcy(points=16)
>>> a = eq.sample_input(3, seed=0)
>>> u = eq.solve(a)
>>> a.shape, u.shape
((3, 1, 16, 16), (3, 1, 16, 16))
"""

from .advection import Advection
from .base import Equation
from .burgers import Burgers
from .darcy import Darcy
from .elliptic1d import Elliptic1D

__all__ = ["EQUATIONS", "Advection", "Burgers", "Darcy", "Elliptic1D", "Equation"]

EQUATIONS: dict[str, type[Equation]] = {eq.name: eq for eq in (Elliptic1D, Darcy, Burgers, Advection)}
