"""Pairs (a, u): in memory, in the store of pdno, and in files of other programs."""

from .. import lazy_submodules

__getattr__ = lazy_submodules(__name__)
