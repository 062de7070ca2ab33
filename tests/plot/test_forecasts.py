"""Figures of data and predictions: the values of their lines and maps."""

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

import pdno
from pdno import UserError, plot
from pdno.plot import paper as figures
from pdno.plot.paper import Evolution
from tests.plot.helpers import (
    X,
    check,
    edges,
    field,
    limits_of,
    lines,
    meshes,
    words,
)

SHAPES = [(1, 16), (2, 16), (1, 9, 8), (2, 9, 8), (1, 9, 8, 5), (2, 9, 8, 5)]


def prediction(shape: tuple[int, ...], **options: Any) -> Figure:
    a, u, mean, *members = (field(*shape, seed=k) for k in range(6))
    return plot.fields(a, u, mean, np.abs(a), members, title="input 0", **options)


@pytest.fixture(scope="module")
def data() -> list[pdno.Dataset]:
    noise = pdno.noise.Gaussian(0.1)
    equations = (pdno.equation.Elliptic1D(points=16), pdno.equation.Darcy(points=8))
    return [pdno.generate(equation, train=3, test=2, noise=noise) for equation in equations]


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


# Predictions


@pytest.mark.parametrize("shape", SHAPES)
def test_predictions_on_one_to_three_axes(shape) -> None:
    """The first channel and, of three axes, the middle slice are drawn; saving emits no warning."""
    figure = prediction(shape)
    figure.savefig(io.BytesIO(), dpi=40)
    mean = field(*shape, seed=2)[0]
    if mean.ndim == 1:
        assert_array_equal(lines(figure.axes[1])["mean"], mean)
    else:
        assert_array_equal(meshes(figure)["mean"].get_array(), (mean[..., 2] if mean.ndim == 3 else mean).T)


def test_lines_of_a_prediction() -> None:
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
    assert {"90 % interval", "input a", "error and spread", "± std"} <= words(figure)
    plain = plot.fields(a, u, mean, std, x=X)
    assert edges(plain.axes[1]) == pytest.approx(np.stack([mean[0] - 1.64 * std[0], mean[0] + 1.64 * std[0]]))
    assert "mean ± 1.64 std" in words(plain)
    assert "90 % interval" not in words(plain)


def test_maps_of_a_prediction_share_their_scale_and_errors_are_centred() -> None:
    figure = prediction((1, 9, 8), observed=10 + field(1, 9, 8, seed=9))
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
    three = meshes(prediction((1, 9, 8)))
    assert list(three)[:5] == ["truth", "mean", "member 1", "member 2", "member 3"]


def test_a_map_has_coordinates_and_its_first_axis_is_horizontal() -> None:
    x, y = np.linspace(0, 2, 9), np.array([0, 1, 2, 3, 5, 6, 7, 8]) / 8
    figure = plot.fields(None, None, field(1, 9, 8), np.ones((1, 9, 8)), x=(x, y))
    corners = meshes(figure)["mean"].get_coordinates()
    assert_array_equal((corners[0, :-1, 0] + corners[0, 1:, 0]) / 2, x)
    assert corners[4, 0, 1] == 0.5  # half way between the nodes 3/8 and 5/8
    assert figure.axes[0].get_box_aspect() == pytest.approx(0.5)


def test_missing_values_stay_empty() -> None:
    u = field(1, 9, 8)
    u[0, 2, 3] = np.nan
    found = meshes(plot.fields(None, u, field(1, 9, 8), np.ones((1, 9, 8))))
    assert np.ma.getmaskarray(found["truth"].get_array()).sum() == 1
    assert np.ma.getmaskarray(found["mean − truth"].get_array()).sum() == 1
    assert np.isfinite(found["truth"].get_clim()).all()


def test_an_input_on_another_grid() -> None:
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
        (lambda: plot.coverage_map(field(1, 9, 8), 0.9, x=X), "one array for each axis"),
        (
            lambda: figures.advection(X, np.zeros((2, 1, 16)), np.ones((2, 1, 16)), np.ones((2, 1, 16))),
            "all solutions are zero",
        ),
        (lambda: Evolution(every=0), "every = 0"),
    ],
)
def test_invalid_arguments(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_bands() -> None:
    figure = plot.bands(X, [("one", X, X + 1, np.full(16, 0.5), 0.1), ("two", X, X, np.ones(16), 1.0)])
    left = figure.axes[0]
    assert_array_equal(lines(left)["learned mean"], X + 1)
    assert_array_equal(lines(left)["exact solution"], X)
    assert edges(left) == pytest.approx(np.stack([X + 1 - 0.98, X + 1 + 0.98]))
    exact = [line.get_ydata() for line in left.lines if line.get_label() == "exact 95 % interval"]
    assert_array_equal(exact, [X - 0.196, X + 0.196])
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    assert len(figure.legends[0].get_texts()) == 4
