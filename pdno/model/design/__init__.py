"""Design of experiments with a trained model: where to run next, how many runs are worth it, and which parameters matter."""

from ... import lazy_submodules

__getattr__ = lazy_submodules(__name__)
