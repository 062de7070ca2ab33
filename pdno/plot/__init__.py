"""Pictures: arrays in, a matplotlib Figure out."""

from .forecasts import bands, fields, pairs, preview
from .judgement import coverage, history, novelty, rank_histogram, spectra, spread_skill, trust

__all__ = [
    "bands",
    "coverage",
    "fields",
    "history",
    "novelty",
    "pairs",
    "preview",
    "rank_histogram",
    "spectra",
    "spread_skill",
    "trust",
]
