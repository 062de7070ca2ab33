"""Figures of runs with a few parameters: the values of their lines and bands."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pdno import plot
from tests.plot.helpers import edges, lines

X = np.linspace(0, 1, 8)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_responses_have_an_axis_for_each_parameter(theme) -> None:
    curves = [(name, X, X**2, X**2 - 1, X**2 + 2) for name in ("speed", "angle", "height", "width")]
    figure = plot.responses(curves, "mean of u", theme=theme)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_xlabel() for axes in shown] == ["speed", "angle", "height", "width"]
    assert_array_equal(lines(shown[3])["predicted mean"], X**2)
    assert_allclose(edges(shown[0]), np.stack([X**2 - 1, X**2 + 2]))


def test_a_learning_curve_shows_all_refits_and_the_floor() -> None:
    runs, errors = np.array([5, 10, 20]), np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]])
    n = np.geomspace(5, 80, 8)
    (axes,) = plot.learning(runs, errors, (n, 1 / n, 0.1 / n), 0.05).axes
    assert axes.get_xscale() == "log"
    assert_allclose(lines(axes)["power law with a floor"], 1 / n)
    assert_allclose(edges(axes), np.stack([0.9 / n, 1.1 / n]))
    assert_array_equal(lines(axes)["floor"], [0.05, 0.05])
    points = [line.get_ydata() for line in axes.lines if line.get_label() == "refits" or line.get_marker() == "."]
    assert_array_equal(points, errors)
