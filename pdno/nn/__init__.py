"""Networks ε_θ(n, v, a) and s_θ(a): the UNet of the paper, a slim one, the Fourier neural operator, and none at all."""

from .build import NETWORKS, build
from .fno import FNO
from .layers import Network
from .slim import Slim
from .spectral import Spectral
from .unet import UNet
from .zero import Zero

__all__ = ["FNO", "NETWORKS", "Network", "Slim", "Spectral", "UNet", "Zero", "build"]
