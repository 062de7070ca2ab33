"""Ridge regression, and what belongs to it."""

from .linear import Linear

__all__ = ["Linear"]
