"""Evaluation of models: scores, calibration, conformal intervals, and out-of-distribution inputs.

It operates on arrays, and on any model with the interface of `pdno.evaluation.ensemble.Forecaster`.
"""

from .. import lazy_submodules
from .scoring import ALPHA, LEVEL, MIN_MEMBERS, Case, Evaluation, evaluate

__all__ = ["ALPHA", "LEVEL", "MIN_MEMBERS", "Case", "Evaluation", "evaluate"]

__getattr__ = lazy_submodules(__name__)
