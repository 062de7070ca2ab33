"""Figures of the evaluation and of training: the values of their lines and maps."""

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

from pdno import plot
from tests.plot.helpers import RECORDS, edges, lines, words

LEVELS = np.linspace(0.1, 0.9, 9)


def test_coverage() -> None:
    figure = plot.coverage(LEVELS, LEVELS**2, 0.03 + 0 * LEVELS, conformal=([0.5, 0.9], [0.51, 0.89]))
    (axes,) = figure.axes
    assert_array_equal(axes.lines[0].get_xydata(), [[0, 0], [1, 1]])
    assert_array_equal(lines(axes)["measured"], LEVELS**2)
    assert_array_equal(lines(axes)["conformal"], [0.51, 0.89])
    assert edges(axes) == pytest.approx(np.clip([LEVELS**2 - 0.06, LEVELS**2 + 0.06], 0, 1))
    (below,), (above,) = ([t for t in axes.texts if word in t.get_text()] for word in ("narrow", "wide"))
    for text, side in ((below, -1), (above, 1)):
        x, y = text.get_position()
        assert np.sign(y - x) == side
    assert "conformal" not in words(plot.coverage(LEVELS, LEVELS, 0 * LEVELS))


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
    assert axes.get_title() == "spread–skill ratio: 0.67"


def test_spectra_omit_empty_bands() -> None:
    (axes,) = plot.spectra([1, 0, 4], [1, 2, 3], labels=("mean", "data")).axes
    assert_array_equal(lines(axes)["mean"], [1, np.nan, 4])
    assert_array_equal(lines(axes)["data"], [1, 2, 3])
    assert_array_equal(axes.lines[0].get_xdata(), [1, 2, 3])
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_coverage_map_is_centred_on_the_nominal_level() -> None:
    share = np.full((1, 9, 8), 0.9)
    share[0, 0, 0] = 0.7
    figure = plot.coverage_map(share, 0.9)
    mesh = next(c for c in figure.axes[0].collections if isinstance(c, QuadMesh))
    assert mesh.get_clim() == pytest.approx((0.7, 1.1))
    assert min(mesh.to_rgba(0.9)[:3]) > 0.95
    assert mesh.to_rgba(0.7)[0] > mesh.to_rgba(0.7)[2]  # orange: more red than blue
    assert figure.axes[0].child_axes[0].get_ylim() == pytest.approx((0.7, 1.0))  # coverage is at most 1
    assert mesh_limits(plot.coverage_map(np.full((1, 9, 8), 0.91), 0.9)) == pytest.approx((0.85, 0.95))
    line = plot.coverage_map(share[0, 0], 0.9, x=np.linspace(0, 1, 8)).axes[0]
    assert_array_equal(line.lines[0].get_ydata(), share[0, 0])
    assert_array_equal(line.lines[1].get_ydata(), [0.9, 0.9])


def mesh_limits(figure: Figure) -> tuple[float, float]:
    return figure.axes[0].collections[0].get_clim()


def test_novelty_counts_inputs_above_the_threshold() -> None:
    (axes,) = (figure := plot.novelty([0.2, 0.4, 0.9, 1.1], [0.5, 2.0])).axes
    assert {"validation: 25.0 % above 1", "test: 50.0 % above 1"} <= words(figure)
    assert sum(p.get_height() for p in axes.patches[:30]) == pytest.approx(1)
    assert_array_equal(lines(axes)["threshold"], [0, 1])
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
