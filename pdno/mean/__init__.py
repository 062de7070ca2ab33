"""Mean operators m(a): regressions of u on a, each a surrogate of its own and the first part of u | a = m(a) + residual."""

from .base import Mean
from .kernel import Kernel
from .linear import Linear

__all__ = ["Kernel", "Linear", "Mean"]
