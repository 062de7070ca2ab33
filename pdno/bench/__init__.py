"""The paper's experiments, run: `pdno bench`."""

from .bench import listing, run, selected
from .part import PARTS, Part
from .scale import SCALES, Scale

__all__ = ["PARTS", "SCALES", "Part", "Scale", "listing", "run", "selected"]
