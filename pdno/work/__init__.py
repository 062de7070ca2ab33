"""Processes, files, saved states and progress bars; no mathematics."""

from .. import lazy_submodules

__getattr__ = lazy_submodules(__name__)
