"""Figures: functions from arrays to a matplotlib Figure, which has the method ``savefig``.

    data           pairs, preview
    predictions    fields, bands
    evaluation     coverage, rank_histogram, spread_skill, spectra, coverage_map, novelty
    noise          noise_std, noise_density, noise_correlation, functionals
    parameters     responses, learning
    training       history
    paper          `pdno.plot.paper.FIGURES`, the figures of the paper by label

Every function has the keyword `theme`, "light" or "dark". Fields are (channel, *grid), such as `data.test.u[0]`, and x has the
nodes of their axis, or of each of their axes, such as `data.test.xarray["x"]`; see `pdno.plot.style`.
"""

from . import paper
from .evaluation import coverage, coverage_map, history, novelty, rank_histogram, spectra, spread_skill
from .forecasts import bands, fields, pairs, preview
from .noise import functionals, noise_correlation, noise_density, noise_std
from .parameters import learning, responses

__all__ = [
    "bands",
    "coverage",
    "coverage_map",
    "fields",
    "functionals",
    "history",
    "learning",
    "noise_correlation",
    "noise_density",
    "noise_std",
    "novelty",
    "pairs",
    "paper",
    "preview",
    "rank_histogram",
    "responses",
    "spectra",
    "spread_skill",
]
