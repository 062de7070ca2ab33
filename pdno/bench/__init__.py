"""The paper's experiments, run: `pdno bench`."""

from .bench import listing, run, selected
from .claims import CLAIMS
from .figures import draw_figures, figure_states
from .part import PARTS, Part
from .scale import SCALES, Scale

__all__ = ["CLAIMS", "PARTS", "SCALES", "Part", "Scale", "draw_figures", "figure_states", "listing", "run", "selected"]
