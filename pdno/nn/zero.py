"""No network: the answer is zero, which is exact for residuals of unit variance that are Gaussian, with the target "v"."""

import torch
from torch import Tensor

from .layers import Network

__all__ = ["Zero"]


class Zero(Network):
    """Answers 0 at every step and place, and has nothing to learn.

    >>> Zero(dim=1)(3, torch.ones(2, 1, 8), torch.ones(2, 1, 8)).abs().sum()
    tensor(0.)
    """

    def __init__(self, dim: int, in_channels: int = 2, out_channels: int = 1, time: bool = True) -> None:
        super().__init__(dim, in_channels, out_channels, time)
        self.out_channels = out_channels
        self.register_buffer("place", torch.zeros(1))  # says on which device, and in which type, to compute

    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        return x.new_zeros(len(x), self.out_channels, *x.shape[2:])
