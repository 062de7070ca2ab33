"""The paper's experiments, run: `pdno bench`."""

from .bench import listing, run, selected
from .claims import CLAIMS
from .part import PARTS, Part
from .scale import SCALES, Scale

__all__ = ["CLAIMS", "PARTS", "SCALES", "Part", "Scale", "listing", "run", "selected"]
