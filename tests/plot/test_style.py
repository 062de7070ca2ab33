"""All figures: legibility, layout, colours, and settings of matplotlib."""

import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from pdno import UserError, plot
from pdno.plot import evaluation as diagrams
from pdno.plot import paper as figures
from pdno.plot.style import GROUND, PALETTE, keys, sheet, themed
from tests.plot.helpers import EPOCHS, RECORDS, X, check, contrast, field, linear, rendered

THEMES = ["light", "dark"]
LEVELS = np.linspace(0.1, 0.9, 9)


def prediction(shape: tuple[int, ...], **options: Any) -> Figure:
    a, u, mean, *members = (field(*shape, seed=k) for k in range(6))
    return plot.fields(a, u, mean, np.abs(a), members, title="input 0", **options)


CASE = ("Case 1", X, X**2, np.abs(X), field(100))
SOURCES = ("residuals", "members", "truth")
DENSITY = ("centre", {"residuals": field(50), "members": field(90)}, {"members": (X, 1 - X**2)}, (X, np.exp(-8 * X**2)))
PICTURES: dict[str, Callable[..., Figure]] = {
    "fields": lambda **k: prediction((1, 16), x=X, observed=field(1, 16, seed=9), **k),
    "maps": lambda **k: prediction((1, 9, 8), observed=field(1, 9, 8, seed=9), **k),
    "prediction alone": lambda **k: plot.fields(None, None, field(1, 9, 8), np.ones((1, 9, 8)), **k),
    "small values": lambda **k: plot.fields(None, 1e-6 * field(1, 9, 8), 2e-6 * field(1, 9, 8), np.full((1, 9, 8), 1e-7), **k),
    "bands": lambda **k: plot.bands(X, [(f"noise {s}", X, X, np.full(16, s), s) for s in (0.01, 0.05, 1)], **k),
    "one band": lambda **k: plot.bands(X, [("noise", X, X, np.ones(16), 1.0)], **k),
    "coverage": lambda **k: plot.coverage(LEVELS, LEVELS**2, 0.02 + 0 * LEVELS, conformal=([0.5, 0.9], [0.51, 0.9]), **k),
    "rank_histogram": lambda **k: plot.rank_histogram(np.linspace(0, 1, 6), [1.5, 0.7, 0.6, 0.7, 1.5], np.full(5, 0.1), **k),
    "spread_skill": lambda **k: plot.spread_skill(LEVELS, 1.2 * LEVELS, 0.83, **k),
    "spread_skill, near": lambda **k: plot.spread_skill(1 + LEVELS, 1.2 + LEVELS, 0.9, **k),
    "spectra": lambda **k: plot.spectra(1 / np.arange(1.0, 9), 1 / np.arange(1.0, 9) ** 2, **k),
    "coverage_map": lambda **k: plot.coverage_map(0.9 + 0.05 * np.sin(X), 0.9, x=X, **k),
    "coverage_map, 2-D": lambda **k: plot.coverage_map(0.9 + 0.02 * field(1, 9, 8), 0.9, **k),
    "novelty": lambda **k: plot.novelty(np.abs(field(50)) / 2, np.abs(field(20)) + 0.1, **k),
    "novelty, wide": lambda **k: plot.novelty(np.geomspace(1e-3, 1, 50), np.geomspace(1e-2, 50, 20), **k),
    "noise_std": lambda **k: plot.noise_std(dict.fromkeys(SOURCES, (1 + X[None] ** 2, 0.1 + 0 * X[None])), x=X, **k),
    "noise_std, 2-D": lambda **k: plot.noise_std(dict.fromkeys(SOURCES, (np.abs(field(1, 9, 8)), np.ones((1, 9, 8)))), **k),
    "noise_density": lambda **k: plot.noise_density([DENSITY, DENSITY, DENSITY], **k),
    "noise_correlation": lambda **k: plot.noise_correlation(LEVELS / 2, {"residuals": (1 - LEVELS, 0.1 * LEVELS)}, **k),
    "functionals": lambda **k: plot.functionals(field(50, 3), [field(50, 3) - 1, field(50, 3) + 1], 0.9, **k),
    "history": lambda **k: plot.history(RECORDS, **k),
    "operators": lambda **k: figures.operators(**k),
    "inference": lambda **k: figures.inference(**k),
    "large_noise": lambda **k: figures.large_noise(X, *(field(2, 1, 16, seed=s) for s in range(4)), 1.0, **k),
    "evolution": lambda **k: figures.history([(n, field(1, 16, seed=n)) for n in range(100, -1, -10)], x=X, **k),
    "evolution of maps": lambda **k: figures.history([(n, field(1, 9, 8, seed=n)) for n in range(100, -1, -10)], **k),
    "evolution, own scales": lambda **k: figures.history([(n, field(1, 9, 8)) for n in (20, 10, 0)], shared=False, **k),
    "noise_distribution": lambda **k: figures.noise_distribution([CASE, CASE], **k),
    "advection": lambda **k: figures.advection(X, *(field(3, 1, 16, seed=s) for s in range(3)), **k),
    "noisy_samples": lambda **k: figures.noisy_samples(X, field(2, 1, 16), field(2, 1, 16, seed=1), **k),
    "learned_solutions": lambda **k: figures.learned_solutions(
        X, field(2, 1, 16), field(2, 1, 16), lower=-np.ones((2, 1, 16)), upper=np.ones((2, 1, 16)), **k
    ),
    "error_vs_epoch": lambda **k: figures.error_vs_epoch({"Darcy": EPOCHS, "Burgers": EPOCHS}, **k),
}
each_theme = pytest.mark.parametrize("theme", THEMES)


# All figures


@pytest.mark.parametrize(
    ("name", "theme"), [*((name, "dark") for name in PICTURES), *((name, "light") for name in ("fields", "maps", "coverage"))]
)
def test_text_is_legible_inside_the_figure_and_settings_are_unchanged(name, theme) -> None:
    before = dict(mpl.rcParams)
    figure = PICTURES[name](theme=theme)
    assert dict(mpl.rcParams) == before
    check(figure, theme)


def test_the_layout_check_detects_long_titles() -> None:
    @themed
    def bad() -> Figure:
        figure, axes = sheet(1, 2)
        axes[0, 0].set_title("far too long a title for a panel of this width, and longer still than that")
        return figure

    with pytest.raises(AssertionError):
        check(bad(), "light")


def test_settings_are_unchanged_after_an_error() -> None:
    before = dict(mpl.rcParams)
    with pytest.raises(UserError, match="there are no states of the reverse chain"):
        figures.history([], theme="dark")
    assert dict(mpl.rcParams) == before


def test_a_theme_overrides_the_settings_of_the_user() -> None:
    with mpl.rc_context({"text.color": "red", "figure.facecolor": "red", "axes.facecolor": "red", "xtick.color": "red"}):
        pixels = rendered(PICTURES["coverage"]())
    assert not (np.abs(pixels[..., :3].astype(int) - [255, 0, 0]).max(axis=-1) < 30).any()


def test_pyplot_and_torch_are_not_imported() -> None:
    code = """
import io, sys
from pdno import plot
from pdno.plot import paper as figures
plot.fields(None, [1, 2], [1, 2], [1, 1], theme="dark").savefig(io.BytesIO())
figures.history([(0, [[[1, 2], [3, 4]]])]).savefig(io.BytesIO())
print("matplotlib.pyplot" in sys.modules or "torch" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_every_figure_has_a_theme() -> None:
    for module in (plot, diagrams, figures):
        for name in {*module.__all__} - {"FIGURES", "Evolution", "paper"}:
            theme = signature(getattr(module, name)).parameters["theme"]
            assert (theme.default, theme.kind) == ("light", theme.KEYWORD_ONLY)
    with pytest.raises(UserError, match="did you mean 'dark'"):
        plot.history(RECORDS, theme="drak")


# Colours


VISION = {  # Machado, Oliveira and Fernandes (2009), full severity, on linear RGB
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def distance(one: str, other: str, vision: str) -> float:
    """ΔE of 1976 as seen with this vision."""

    def lab(colour: str) -> np.ndarray:
        seen = np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1)
        xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]) @ seen
        x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1, 1.0888], 0.008856))
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    return float(np.linalg.norm(lab(one) - lab(other)))


@each_theme
@pytest.mark.parametrize("vision", VISION)
def test_colours_are_distinguishable_for_every_kind_of_colour_vision(theme, vision) -> None:
    colours = [*PALETTE[theme], *GROUND[theme]]
    assert min(distance(one, other, vision) for one, other in combinations(colours, 2)) > 15
    assert min(contrast(colour, GROUND[theme][0]) for colour in PALETTE[theme]) >= 3


def test_the_colour_check_detects_red_and_green() -> None:
    assert distance("#d62728", "#2ca02c", "deuteranopia") < 10 < 100 < distance("#d62728", "#2ca02c", "normal")


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)


def test_keys_name_each_label_once_and_fit_the_figure() -> None:
    @themed
    def many() -> Figure:
        figure, axes = sheet(1, 2)
        for each in axes[0]:
            for k in range(12):
                each.plot([0, 1], [k, k], label=f"a label of some length {k}")
        keys(figure, axes[0])
        return figure

    figure = many()
    rendered(figure)
    box = figure.legends[0].get_window_extent()
    assert len(figure.legends[0].get_texts()) == 12
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
