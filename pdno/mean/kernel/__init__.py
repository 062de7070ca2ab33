"""Vector-valued Gaussian-process regression."""

from .kernel import KERNELS, Hyper, Kernel, log_likelihood

__all__ = ["KERNELS", "Hyper", "Kernel", "log_likelihood"]
