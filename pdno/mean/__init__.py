"""Mean operators m(a): regressions of u on a, each a surrogate of its own and the first part of u | a = m(a) + residual."""

from .base import Mean
from .build import MEANS, is_saveable, mean_of
from .kernel.kernel import Kernel
from .linear.linear import Linear
from .lowfidelity import LowFidelity
from .network import Network
from .sum import Sum

__all__ = ["MEANS", "Kernel", "Linear", "LowFidelity", "Mean", "Network", "Sum", "is_saveable", "mean_of"]
