"""How good is a model, and how far can it be trusted?"""

from .scoring import ALARM, FEWEST, LEVEL, Case, Evaluation, evaluate

__all__ = ["ALARM", "FEWEST", "LEVEL", "Case", "Evaluation", "evaluate"]
