"""Ridge regression on selected features."""

from .linear import Linear

__all__ = ["Linear"]
