"""Models of u | a = m(a) + residual: their protocol, the learned distribution, predictions, and saving."""

from .. import lazy_submodules

__getattr__ = lazy_submodules(__name__)
