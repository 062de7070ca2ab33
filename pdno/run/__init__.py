"""The commands: train, predict, evaluate and report in the folder of a run."""

from .. import lazy_submodules

__getattr__ = lazy_submodules(__name__)
