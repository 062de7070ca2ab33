"""Networks ε_θ(n, v, a) and s_θ(a): the UNet of the paper and the Fourier neural operator."""

from .build import NETWORKS, build
from .fno import FNO
from .layers import Network
from .unet import UNet

__all__ = ["FNO", "NETWORKS", "Network", "UNet", "build"]
