"""Pictures are read back: the numbers in their lines and maps, their colours, what is written on them and where it stands."""

import io
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.spines import Spine
from matplotlib.text import Text
from numpy.testing import assert_array_equal

import pdno
from pdno import UserError, plot
from pdno.diffusion.reverse import SAMPLERS, variance
from pdno.diffusion.schedule import Schedule
from pdno.plot import judgement as diagrams
from pdno.plot import paper as figures
from pdno.plot.paper import FIGURES, Evolution
from pdno.plot.style import GROUND, PALETTE, keys, sheet, themed

THEMES = ["light", "dark"]
SHAPES = [(1, 16), (2, 16), (1, 9, 8), (2, 9, 8), (1, 9, 8, 5), (2, 9, 8, 5)]
X = np.linspace(-1, 1, 16)
LEVELS = np.linspace(0.1, 0.9, 9)


def field(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def forecast(shape: tuple[int, ...], **options: Any) -> Figure:
    a, u, mean, *members = (field(*shape, seed=k) for k in range(6))
    return plot.fields(a, u, mean, np.abs(a), members, title="input 0", **options)


@pytest.fixture(scope="module")
def data() -> list[pdno.Dataset]:
    noise = pdno.noise.Gaussian(0.1)
    equations = (pdno.equation.Elliptic1D(points=16), pdno.equation.Darcy(points=8))
    return [pdno.generate(equation, train=3, test=2, noise=noise) for equation in equations]


CASE = ("Case 1", X, X**2, np.abs(X), field(100))
RECORDS = [{"step": k, "loss": 1 / k} | ({"validation": 2 / k} if k % 2 else {}) for k in range(1, 9)]
EPOCHS = {"64²": ([1, 10], [0.1, 0.01]), "128²": ([1, 10], [0.2, 0.02])}
PICTURES: dict[str, Callable[..., Figure]] = {
    "fields": lambda **k: forecast((1, 16), x=X, observed=field(1, 16, seed=9), **k),
    "maps": lambda **k: forecast((1, 9, 8), observed=field(1, 9, 8, seed=9), **k),
    "forecast alone": lambda **k: plot.fields(None, None, field(1, 9, 8), np.ones((1, 9, 8)), **k),
    "small values": lambda **k: plot.fields(None, 1e-6 * field(1, 9, 8), 2e-6 * field(1, 9, 8), np.full((1, 9, 8), 1e-7), **k),
    "bands": lambda **k: plot.bands(X, [(f"noise {s}", X, X, np.full(16, s), s) for s in (0.01, 0.05, 1)], **k),
    "one band": lambda **k: plot.bands(X, [("noise", X, X, np.ones(16), 1.0)], **k),
    "coverage": lambda **k: plot.coverage(LEVELS, LEVELS**2, 0.02 + 0 * LEVELS, repaired=([0.5, 0.9], [0.51, 0.9]), **k),
    "rank_histogram": lambda **k: plot.rank_histogram(np.linspace(0, 1, 6), [1.5, 0.7, 0.6, 0.7, 1.5], np.full(5, 0.1), **k),
    "spread_skill": lambda **k: plot.spread_skill(LEVELS, 1.2 * LEVELS, 0.83, **k),
    "spread_skill, near": lambda **k: plot.spread_skill(1 + LEVELS, 1.2 + LEVELS, 0.9, **k),
    "spectra": lambda **k: plot.spectra(1 / np.arange(1.0, 9), 1 / np.arange(1.0, 9) ** 2, **k),
    "trust": lambda **k: plot.trust(0.9 + 0.05 * np.sin(X), 0.9, x=X, **k),
    "trust map": lambda **k: plot.trust(0.9 + 0.02 * field(1, 9, 8), 0.9, **k),
    "novelty": lambda **k: plot.novelty(np.abs(field(50)) / 2, np.abs(field(20)) + 0.1, **k),
    "novelty, wide": lambda **k: plot.novelty(np.geomspace(1e-3, 1, 50), np.geomspace(1e-2, 50, 20), **k),
    "history": lambda **k: plot.history(RECORDS, **k),
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


def rendered(figure: Figure) -> np.ndarray:
    """The pixels, (height, width, 4)."""
    figure.set_dpi(60)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """Label → y of each line; of lines that share a label the last."""
    return {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}


def meshes(figure: Figure) -> dict[str, QuadMesh]:
    """Title → map."""
    found = {axes.get_title(): [c for c in axes.collections if isinstance(c, QuadMesh)] for axes in figure.axes}
    return {title: mesh for title, (mesh,) in found.items()}


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()}


# All pictures


@pytest.mark.parametrize(
    ("name", "theme"), [*((name, "dark") for name in PICTURES), *((name, "light") for name in ("fields", "maps", "coverage"))]
)
def test_text_is_readable_nothing_is_cut_off_and_settings_are_left_alone(name, theme) -> None:
    before = dict(mpl.rcParams)
    figure = PICTURES[name](theme=theme)
    assert dict(mpl.rcParams) == before
    check(figure, theme)


def check(figure: Figure, theme: str) -> None:
    """Contrast 4.5:1, as WCAG asks of text, ticks included; sizes; nothing beyond the edge, nothing on something else."""
    pixels, ground = rendered(figure), GROUND[theme][0]
    np.testing.assert_allclose(pixels[0, 0, :3] / 255, to_rgb(ground), atol=1 / 255)
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(contrast(text.get_color(), ground) for text in texts) >= 4.5
    marks = {s.get_edgecolor() for s in figure.findobj(Spine)} | {
        t.tick1line.get_markeredgecolor() for t in figure.findobj(Tick)
    }
    assert min(contrast(mark, ground) for mark in marks) >= 4.5
    assert 7.9 <= min(text.get_fontsize() for text in texts) <= max(text.get_fontsize() for text in texts) <= 10
    titles = [figure._suptitle] if figure._suptitle is not None else []
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [each.get_window_extent() for each in [*figure.legends, *titles]]
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
    for one, other in combinations(boxes, 2):
        assert min(one.x1, other.x1) - max(one.x0, other.x0) < 2 or min(one.y1, other.y1) - max(one.y0, other.y0) < 2


def test_the_check_of_the_layout_sees_long_titles() -> None:
    @themed
    def bad() -> Figure:
        figure, axes = sheet(1, 2)
        axes[0, 0].set_title("far too long a title for a panel of this width, and longer still than that")
        return figure

    with pytest.raises(AssertionError):
        check(bad(), "light")


def test_settings_are_left_as_they_were_after_an_error_too() -> None:
    before = dict(mpl.rcParams)
    with pytest.raises(UserError, match="no state of the reverse chain was seen"):
        figures.history([], theme="dark")
    assert dict(mpl.rcParams) == before


def test_a_theme_overrides_the_style_of_the_user() -> None:
    with mpl.rc_context({"text.color": "red", "figure.facecolor": "red", "axes.facecolor": "red", "xtick.color": "red"}):
        pixels = rendered(PICTURES["coverage"]())
    assert not (np.abs(pixels[..., :3].astype(int) - [255, 0, 0]).max(axis=-1) < 30).any()


def test_pictures_do_without_pyplot() -> None:
    code = """
import io, sys
from pdno import plot
from pdno.plot import paper as figures
plot.fields(None, [1, 2], [1, 2], [1, 1], theme="dark").savefig(io.BytesIO())
figures.history([(0, [[[1, 2], [3, 4]]])]).savefig(io.BytesIO())
print("matplotlib.pyplot" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_every_picture_takes_a_theme_and_says_if_it_is_unknown() -> None:
    for module in (plot, diagrams, figures):
        for name in {*module.__all__} - {"FIGURES", "Evolution"}:
            theme = signature(getattr(module, name)).parameters["theme"]
            assert (theme.default, theme.kind) == ("light", theme.KEYWORD_ONLY)
    with pytest.raises(UserError, match="did you mean 'dark'"):
        plot.history(RECORDS, theme="drak")


# Colours


def linear(colour: str) -> np.ndarray:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Ratio of relative luminances by WCAG 2."""
    dark, light = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(c)) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


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
def test_colours_are_apart_for_every_kind_of_colour_vision(theme, vision) -> None:
    colours = [*PALETTE[theme], *GROUND[theme]]
    assert min(distance(one, other, vision) for one, other in combinations(colours, 2)) > 15
    assert min(contrast(colour, GROUND[theme][0]) for colour in PALETTE[theme]) >= 3


def test_the_check_of_colours_sees_red_and_green() -> None:
    assert distance("#d62728", "#2ca02c", "deuteranopia") < 10 < 100 < distance("#d62728", "#2ca02c", "normal")


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("white", "black") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)


# Data


def test_pairs_and_preview(data) -> None:
    sets = [
        ("elliptic", data[0]),
        ("Darcy", data[1]),
        ("Darcy", data[1]),
        ("a title that is rather long, of two lines", data[0]),
    ]
    check(plot.pairs(sets), "light")
    figure = plot.pairs(sets[:2], sample=1, theme="dark")
    check(figure, "dark")
    upper, darcy, lower, observed = figure.axes
    assert_array_equal(lines(upper)["_child0"], data[0].test.a[1, 0])
    assert_array_equal(lines(lower)["observed"], data[0].test.u_eta[1, 0])
    assert_array_equal(lines(lower)["exact"], data[0].test.u[1, 0])
    assert_array_equal(darcy.collections[0].get_array(), data[1].test.a[1, 0].T)
    assert_array_equal(observed.collections[0].get_array(), data[1].test.u_eta[1, 0].T)
    for each in data:
        figure = plot.preview(each, count=5)
        check(figure, "light")
        assert len(figure.axes) == 6
        drawn = [axes.lines[0].get_ydata() if axes.lines else axes.collections[0].get_array().T for axes in figure.axes]
        assert_array_equal(drawn, [*each.train.a[:, 0], *each.train.u[:, 0]])
    shared = {axes.collections[0].get_clim() for axes in figure.axes[3:]}
    assert shared == {(data[1].train.u.min(), data[1].train.u.max())}


# Forecasts


@pytest.mark.parametrize("shape", SHAPES)
def test_forecasts_are_drawn_on_one_to_three_axes(shape) -> None:
    """Of channels the first, of three axes the middle slice; saved without a warning."""
    figure = forecast(shape)
    figure.savefig(io.BytesIO(), dpi=40)
    mean = field(*shape, seed=2)[0]
    if mean.ndim == 1:
        assert_array_equal(lines(figure.axes[1])["mean"], mean)
    else:
        assert_array_equal(meshes(figure)["mean"].get_array(), (mean[..., 2] if mean.ndim == 3 else mean).T)


def test_lines_of_a_forecast() -> None:
    a, u, mean, member = (field(1, 16, seed=k) for k in range(4))
    std = np.abs(field(1, 16, seed=5))
    figure = plot.fields(a, u, mean, std, [member], x=X, observed=u + 1, lower=mean - 2, upper=mean + 3)
    left, middle, right = figure.axes
    assert_array_equal(left.lines[0].get_xydata(), np.stack([X, a[0]], axis=1))
    drawn = {"mean": mean[0], "truth": u[0], "members": member[0], "observed": u[0] + 1}
    found = lines(middle)
    assert found.keys() == drawn.keys()
    for name, values in drawn.items():
        assert_array_equal(found[name], values)
    assert_array_equal(lines(right)["mean − truth"], (mean - u)[0])
    assert edges(middle) == pytest.approx(np.stack([mean[0] - 2, mean[0] + 3]))
    assert edges(right) == pytest.approx(np.stack([-std[0], std[0]]))
    assert {"90 % band", "input a", "error and spread", "± std"} <= words(figure)
    plain = plot.fields(a, u, mean, std, x=X)
    assert edges(plain.axes[1]) == pytest.approx(np.stack([mean[0] - 1.64 * std[0], mean[0] + 1.64 * std[0]]))
    assert "mean ± 1.64 std" in words(plain)
    assert "90 % band" not in words(plain)


def edges(axes: Axes) -> np.ndarray:
    """Lower and upper edge of the one band, at the nodes."""
    (shape,) = axes.collections
    points = shape.get_paths()[0].vertices
    at = {x: points[points[:, 0] == x, 1] for x in np.unique(points[:, 0])}
    return np.array([[at[x].min() for x in at], [at[x].max() for x in at]])


def test_maps_of_a_forecast_share_their_scale_and_errors_are_centred() -> None:
    figure = forecast((1, 9, 8), observed=10 + field(1, 9, 8, seed=9))
    found = meshes(figure)
    assert list(found) == ["observed", "truth", "mean", "member 1", "member 2", "input a", "mean − truth", "std"]
    shown = [10 + field(1, 9, 8, seed=9), *(field(1, 9, 8, seed=k) for k in (1, 2, 3, 4))]
    assert {mesh.get_clim() for mesh in list(found.values())[:5]} == {(np.min(shown), np.max(shown))}
    error = (field(1, 9, 8, seed=2) - field(1, 9, 8, seed=1))[0]
    low, high = found["mean − truth"].get_clim()
    assert low == -high == -np.abs(error).max()
    assert_array_equal(found["mean − truth"].get_array(), error.T)
    assert found["mean − truth"].get_cmap().name == "RdBu_r"
    middle = found["mean − truth"].to_rgba(0.0)
    assert min(middle[:3]) > 0.95
    assert found["std"].get_clim() == limits_of(np.abs(field(1, 9, 8)))
    three = meshes(forecast((1, 9, 8)))
    assert list(three)[:5] == ["truth", "mean", "member 1", "member 2", "member 3"]


def limits_of(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def test_coordinates_place_a_map_and_its_first_axis_is_horizontal() -> None:
    x, y = np.linspace(0, 2, 9), np.array([0, 1, 2, 3, 5, 6, 7, 8]) / 8
    figure = plot.fields(None, None, field(1, 9, 8), np.ones((1, 9, 8)), x=(x, y))
    corners = meshes(figure)["mean"].get_coordinates()
    assert_array_equal((corners[0, :-1, 0] + corners[0, 1:, 0]) / 2, x)
    assert corners[4, 0, 1] == 0.5  # half way between the nodes 3/8 and 5/8
    assert figure.axes[0].get_box_aspect() == pytest.approx(0.5)


def test_values_that_are_not_known_stay_empty() -> None:
    u = field(1, 9, 8)
    u[0, 2, 3] = np.nan
    found = meshes(plot.fields(None, u, field(1, 9, 8), np.ones((1, 9, 8))))
    assert np.ma.getmaskarray(found["truth"].get_array()).sum() == 1
    assert np.ma.getmaskarray(found["mean − truth"].get_array()).sum() == 1
    assert np.isfinite(found["truth"].get_clim()).all()


def test_an_input_on_a_grid_of_its_own() -> None:
    figure = plot.fields(field(1, 5), None, field(1, 16), np.ones((1, 16)), x=X)
    assert_array_equal(figure.axes[0].lines[0].get_xdata(), np.arange(5))
    assert_array_equal(figure.axes[1].lines[0].get_xdata(), X)
    assert len(plot.fields(field(1, 9, 8), None, field(1, 16), np.ones((1, 16))).axes[0].collections) == 1
    assert len(plot.fields(field(1, 16), None, field(1, 9, 8), np.ones((1, 9, 8))).axes[1].lines) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: plot.fields(None, None, field(64, 64), field(64, 64)),
            r"\(64, 64\), expected \(channel, \*grid\).*field\[None\]",
        ),
        (lambda: plot.fields(None, field(1, 8), field(1, 9), field(1, 9)), r"truth is on a grid \(8,\), the mean on \(9,\)"),
        (lambda: plot.fields(None, None, field(1, 9), field(1, 9), x=X), r"coordinates of 16 nodes for a field on \(9,\)"),
        (lambda: plot.trust(field(1, 9, 8), 0.9, x=X), "one array for each axis"),
        (
            lambda: figures.advection(X, np.zeros((2, 1, 16)), np.ones((2, 1, 16)), np.ones((2, 1, 16))),
            "all solutions are zero",
        ),
        (lambda: Evolution(every=0), "every = 0"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_bands() -> None:
    figure = plot.bands(X, [("one", X, X + 1, np.full(16, 0.5), 0.1), ("two", X, X, np.ones(16), 1.0)])
    left = figure.axes[0]
    assert_array_equal(lines(left)["learned mean"], X + 1)
    assert_array_equal(lines(left)["exact solution"], X)
    assert edges(left) == pytest.approx(np.stack([X + 1 - 0.98, X + 1 + 0.98]))
    exact = [line.get_ydata() for line in left.lines if line.get_label() == "exact 95 % band"]
    assert_array_equal(exact, [X - 0.196, X + 0.196])
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    assert len(figure.legends[0].get_texts()) == 4


# Judgements


def test_coverage_shows_the_promise_and_what_was_measured() -> None:
    figure = plot.coverage(LEVELS, LEVELS**2, 0.03 + 0 * LEVELS, repaired=([0.5, 0.9], [0.51, 0.89]))
    (axes,) = figure.axes
    assert_array_equal(axes.lines[0].get_xydata(), [[0, 0], [1, 1]])
    assert_array_equal(lines(axes)["measured"], LEVELS**2)
    assert_array_equal(lines(axes)["after repair"], [0.51, 0.89])
    assert edges(axes) == pytest.approx(np.clip([LEVELS**2 - 0.06, LEVELS**2 + 0.06], 0, 1))
    (below,), (above,) = ([t for t in axes.texts if word in t.get_text()] for word in ("narrow", "wide"))
    for text, side in ((below, -1), (above, 1)):
        x, y = text.get_position()
        assert np.sign(y - x) == side
    assert "after repair" not in words(plot.coverage(LEVELS, LEVELS, 0 * LEVELS))


def test_rank_histogram() -> None:
    figure = plot.rank_histogram([0, 0.25, 0.5, 1], [2.0, 1.0, 0.5], [0.1, 0.2, 0.3])
    (axes,) = figure.axes
    assert [(p.get_x(), p.get_width(), p.get_height()) for p in axes.patches] == [
        (0, 0.25, 2),
        (0.25, 0.25, 1),
        (0.5, 0.5, 0.5),
    ]
    assert_array_equal(lines(axes)["uniform"], [1, 1])
    segments = np.array(axes.collections[0].get_segments())
    assert segments[:, :, 1] == pytest.approx(np.array([[1.8, 2.2], [0.6, 1.4], [-0.1, 1.1]]))
    assert_array_equal(segments[:, 0, 0], [0.125, 0.375, 0.75])
    whole = plot.rank_histogram([0, 5, 10], [0.1, 0.1], [0.01, 0.01]).axes[0]
    assert_array_equal(lines(whole)["uniform"], [0.1, 0.1])


@pytest.mark.parametrize(("spread", "scale"), [(np.geomspace(0.01, 1, 5), "log"), (np.linspace(1, 2, 5), "linear")])
def test_spread_and_skill(spread, scale) -> None:
    (axes,) = plot.spread_skill(spread, 1.5 * spread, 2 / 3).axes
    assert axes.get_xscale() == axes.get_yscale() == scale
    assert axes.get_xlim() == axes.get_ylim()
    assert_array_equal(axes.lines[1].get_xydata(), np.stack([spread, 1.5 * spread], axis=1))
    low, high = axes.get_xlim()
    assert low < spread[0]
    assert high > 1.5 * spread[-1]
    assert axes.get_title() == "spread over error: 0.67"


def test_spectra_leave_out_bands_without_power() -> None:
    (axes,) = plot.spectra([1, 0, 4], [1, 2, 3], labels=("mean", "data")).axes
    assert_array_equal(lines(axes)["mean"], [1, np.nan, 4])
    assert_array_equal(lines(axes)["data"], [1, 2, 3])
    assert_array_equal(axes.lines[0].get_xdata(), [1, 2, 3])
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_trust_is_centred_on_the_promise() -> None:
    share = np.full((1, 9, 8), 0.9)
    share[0, 0, 0] = 0.7
    figure = plot.trust(share, 0.9)
    mesh = next(c for c in figure.axes[0].collections if isinstance(c, QuadMesh))
    assert mesh.get_clim() == pytest.approx((0.7, 1.1))
    assert min(mesh.to_rgba(0.9)[:3]) > 0.95
    assert mesh.to_rgba(0.7)[0] > mesh.to_rgba(0.7)[2]  # orange: more red than blue
    assert figure.axes[0].child_axes[0].get_ylim() == pytest.approx((0.7, 1.0))  # there is no share above 1
    assert mesh_limits(plot.trust(np.full((1, 9, 8), 0.91), 0.9)) == pytest.approx((0.85, 0.95))
    line = plot.trust(share[0, 0], 0.9, x=np.linspace(0, 1, 8)).axes[0]
    assert_array_equal(line.lines[0].get_ydata(), share[0, 0])
    assert_array_equal(line.lines[1].get_ydata(), [0.9, 0.9])


def mesh_limits(figure: Figure) -> tuple[float, float]:
    return figure.axes[0].collections[0].get_clim()


def test_novelty_counts_what_is_beyond_the_limit() -> None:
    (axes,) = (figure := plot.novelty([0.2, 0.4, 0.9, 1.1], [0.5, 2.0])).axes
    assert {"held out: 25.0 % beyond 1", "test: 50.0 % beyond 1"} <= words(figure)
    assert sum(p.get_height() for p in axes.patches[:30]) == pytest.approx(1)
    assert_array_equal(lines(axes)["limit"], [0, 1])
    assert axes.lines[0].get_xdata()[0] == 1
    assert axes.get_xscale() == "linear"
    assert plot.novelty([0.01, 0.9], [30.0]).axes[0].get_xscale() == "log"
    assert len(plot.novelty([0.2, 0.4], []).axes[0].patches) == 30


def test_history_of_training() -> None:
    (axes,) = plot.history(RECORDS).axes
    assert_array_equal(axes.lines[0].get_xydata(), [[k, 1 / k] for k in range(1, 9)])
    assert_array_equal(axes.lines[1].get_xydata(), [[k, 2 / k] for k in (1, 3, 5, 7)])
    assert axes.get_yscale() == "log"
    assert plot.history([{"step": 1, "loss": -1.0}]).axes[0].get_yscale() == "linear"
    assert list(lines(plot.history([{"step": 1, "loss": 1.0}]).axes[0])) == ["training"]


# The paper's figures


def test_every_figure_says_which_one_it_is() -> None:
    assert len(FIGURES) == 9
    for label, function in FIGURES.items():
        assert f"`{label}`" in function.__doc__


def test_large_noise() -> None:
    u, observed, mean, std = (field(2, 1, 16, seed=k) for k in range(4))
    figure = figures.large_noise(X, u, observed, mean, std, 1.5)
    for i, (left, right) in enumerate(np.reshape(figure.axes, (2, 2))):
        found = lines(left)
        assert_array_equal([found["exact"], found["exact with noise"], found["learned"]], [u[i, 0], observed[i, 0], mean[i, 0]])
        assert_array_equal(lines(right)["learned"], std[i, 0])
        assert_array_equal(lines(right)["exact"], [1.5, 1.5])


def test_frames_of_the_reverse_chain() -> None:
    frames = [(n, field(1, 9, 8, seed=n)) for n in range(100, -1, -10)]
    figure = figures.history(frames)
    found = meshes(figure)
    assert list(found) == [f"n = {n}" for n in range(100, -1, -10)]
    for n, values in frames:
        assert_array_equal(found[f"n = {n}"].get_array(), values[0].T)
    assert {mesh.get_clim() for mesh in found.values()} == {limits_of(np.array([v for _, v in frames]))}
    own = meshes(figures.history(frames, shared=False))
    assert own["n = 40"].get_clim() == limits_of(frames[6][1])
    drawn = figures.history([(n, v[:, 0]) for n, v in frames])
    assert_array_equal([axes.lines[0].get_ydata() for axes in drawn.axes], [v[0, 0] for _, v in frames])
    assert len({axes.get_ylim() for axes in drawn.axes}) == 1
    numbered = [axes.get_title() for axes in drawn.axes if axes.xaxis.get_tick_params()["labelbottom"]]
    assert numbered == ["n = 50", "n = 40", "n = 30", "n = 20", "n = 10", "n = 0"]  # the lowest of each column


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_evolution_records_a_run_every_ten_steps(name) -> None:
    """With the exact denoiser of a Dirac law: V_n has mean √γ_n m, and V_0 is m."""
    schedule, target = Schedule.cosine(100), torch.linspace(0, 3, 32, dtype=torch.float64).reshape(1, 1, 32)

    def run(evolution: Evolution, steps: int, given: bool = True, **options: Any) -> torch.Tensor:
        chain = schedule.subchain(steps, **options)
        gen = torch.Generator().manual_seed(0)
        start = torch.randn(2, 1, 32, dtype=torch.float64, generator=gen)
        noise = {
            "var": variance("noise-free", chain),
            "noise": lambda n: torch.randn(2, 1, 32, dtype=start.dtype, generator=gen),
        }
        if given:
            evolution(100, start)
        return SAMPLERS[name](lambda n, v, a: target.expand_as(v), start, None, chain, callback=evolution, **noise)

    evolution = Evolution(every=10)
    end = run(evolution, 100)
    assert [n for n, _ in evolution.frames] == list(range(100, -1, -10))
    assert all(v.shape == (1, 32) for _, v in evolution.frames)
    assert_array_equal(evolution.frames[-1][1], end[0].numpy())
    np.testing.assert_allclose(end[0].numpy(), target[0].numpy(), atol=1e-6)
    kept = [v.copy() for _, v in evolution.frames]
    run(evolution, 100)  # a second batch of members is not looked at
    assert_array_equal([v for _, v in evolution.frames], kept)
    assert len(figures.history(evolution.frames).axes) == 11
    second = Evolution(row=1)
    run(second, 100)
    assert not np.array_equal(second.frames[0][1], kept[0])
    for given, steps, expected in ((True, 20, range(100, -1, -10)), (False, 100, [99, *range(90, -1, -10)])):
        run(other := Evolution(), steps, given)
        assert [n for n, _ in other.frames] == list(expected)
    run(uneven := Evolution(), 7, spacing="quadratic")  # 100 73 51 33 18 8 2 0
    assert [n for n, _ in uneven.frames] == [100, 73, 51, 33, 18, 8, 0]


def test_evolution_keeps_copies() -> None:
    v, evolution = torch.zeros(1, 1, 4), Evolution()
    evolution(0, v)
    v += 1
    assert_array_equal(evolution.frames[0][1], np.zeros((1, 4)))


def test_density_of_the_noise() -> None:
    draws = np.random.default_rng(0).uniform(-1, 1, 1000)
    figure = figures.noise_distribution([("Case 1", X, X**2, np.abs(X), draws), ("Case 2", X, X, X, draws)])
    left = figure.axes[0]
    assert_array_equal(lines(left)["exact density"], X**2)
    assert_array_equal(lines(left)["learned density"], np.abs(X))
    assert sum(p.get_height() * p.get_width() for p in left.patches) == pytest.approx(1)
    assert [axes.get_title() for axes in figure.axes] == ["Case 1", "Case 2"]


def test_advection_picks_the_best_and_the_worst_of_pdno() -> None:
    """Relative errors of PDNO .2, .05, .5 and, for a zero solution, none; those of FNO and absolute ones have another order."""
    u = np.ones((4, 1, 16)) * np.array([1.0, 100.0, 1.0, 0.0]).reshape(4, 1, 1)
    pdno_mean, fno = u * np.array([1.2, 0.95, 1.5, 1]).reshape(4, 1, 1), u * np.array([1.9, 1.3, 1.1, 1]).reshape(4, 1, 1)
    best_pdno, worst_pdno, best_fno, worst_fno = figures.advection(X, u, pdno_mean, fno).axes
    assert_array_equal(lines(best_pdno)["PDNO"], pdno_mean[1, 0])
    assert_array_equal(lines(worst_pdno)["PDNO"], pdno_mean[2, 0])
    assert_array_equal(lines(best_fno)["FNO"], fno[1, 0])
    assert_array_equal(lines(worst_fno)["FNO"], fno[2, 0])
    for axes, i in ((best_pdno, 1), (worst_fno, 2)):
        assert_array_equal(lines(axes)["exact"], u[i, 0])
    assert best_pdno.get_title() == "best of 4, PDNO: error 5.0 %"
    assert worst_pdno.get_title() == "worst of 4, PDNO: error 50.0 %"
    assert best_fno.get_title() == "FNO: error 30.0 %"


def test_noisy_samples_and_what_was_learned() -> None:
    a, observed, u, mean = (field(2, 1, 16, seed=k) for k in range(4))
    figure = figures.noisy_samples(X, a, observed)
    assert_array_equal([axes.lines[0].get_ydata() for axes in figure.axes], [*a[:, 0], *observed[:, 0]])
    figure = figures.learned_solutions(X, u, mean, lower=mean - 1, upper=mean + 2)
    for i, axes in enumerate(figure.axes):
        assert_array_equal([lines(axes)["exact"], lines(axes)["learned mean"]], [u[i, 0], mean[i, 0]])
        assert edges(axes) == pytest.approx(np.stack([mean[i, 0] - 1, mean[i, 0] + 2]))
    assert not figures.learned_solutions(X, u, mean).axes[0].collections


def test_error_by_epoch() -> None:
    figure = figures.error_vs_epoch({"Darcy": EPOCHS, "Burgers": {"512": ([1, 2, 3], [3, 2, 1])}})
    left, right = figure.axes
    assert left.get_yscale() == right.get_yscale() == "log"
    assert_array_equal(lines(left)["128²"], [0.2, 0.02])
    assert_array_equal(right.lines[0].get_xydata(), [[1, 3], [2, 2], [3, 1]])
    assert {"Darcy", "Burgers", "64²", "128²", "MRLE", "epoch"} <= words(figure)


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
