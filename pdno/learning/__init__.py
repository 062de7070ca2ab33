"""Training of networks on pairs: settings, time budget, loop, checkpoints and normalisation."""

from .. import lazy_submodules

__getattr__ = lazy_submodules(__name__)
