"""Networks F_θ(n, v, a) and s_θ(a): the UNet of the paper, a small UNet, and Fourier neural operators."""

from .base import DenoisingNetwork, GridNetwork, RegressionNetwork
from .build import NETWORKS, build
from .fno import FNO
from .local import LocalFNO
from .projection import Projected, Projection
from .slim import Slim
from .spectral import Spectral
from .unet import UNet

__all__ = [
    "FNO",
    "NETWORKS",
    "DenoisingNetwork",
    "GridNetwork",
    "LocalFNO",
    "Projected",
    "Projection",
    "RegressionNetwork",
    "Slim",
    "Spectral",
    "UNet",
    "build",
]
