"""Principal components and Gaussian processes with a length for each coordinate, for few runs."""

from .process import Process

__all__ = ["Process"]
