"""Mean models m(a) ≈ E[u | a]: regressions of u on a, the first part of u | a = m(a) + residual."""

from .. import lazy_submodules
from .base import Mean, Posterior, refitted
from .build import MEANS, mean_from_state, mean_of
from .constant import Constant
from .kernel import Kernel
from .linear import Linear
from .lowfidelity import LowFidelity
from .network import Network
from .physics import Physics
from .process import Process
from .sum import Sum

__all__ = [
    "MEANS",
    "Constant",
    "Kernel",
    "Linear",
    "LowFidelity",
    "Mean",
    "Network",
    "Physics",
    "Posterior",
    "Process",
    "Sum",
    "mean_from_state",
    "mean_of",
    "refitted",
]

__getattr__ = lazy_submodules(__name__)
