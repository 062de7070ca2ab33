"""Figures of the noise: the values of their lines, bins and maps."""

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from numpy.testing import assert_array_equal

from pdno import plot
from tests.plot.helpers import edges, field, lines, words

X = np.linspace(0, 1, 8)


def test_standard_deviations_by_place() -> None:
    std = {"residuals": (1 + X[None], 0.1 + 0 * X[None]), "truth": (np.ones((1, 8)), np.full((1, 8), np.nan))}
    (axes,) = plot.noise_std(std, x=X).axes
    assert_array_equal(lines(axes)["held-out errors"], 1 + X)
    assert_array_equal(lines(axes)["true noise"], np.ones(8))
    assert edges(axes) == pytest.approx(np.stack([0.8 + X, 1.2 + X]))
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 2.2
    maps = plot.noise_std(
        {"residuals": (np.full((1, 9, 8), 2.0), np.full((1, 9, 8), 0.1)), "members": (np.ones((1, 9, 8)),) * 2}
    )
    assert [axes.get_title() for axes in maps.axes[:2]] == ["held-out errors (± 5 %)", "members (± 100 %)"]
    assert {c.get_clim() for a in maps.axes[:2] for c in a.collections if isinstance(c, QuadMesh)} == {(0.0, 2.0)}


def test_an_exact_density_has_the_mass_of_its_bins() -> None:
    """A peak narrower than a bin has the height of a bin with the same mass."""
    draws = np.repeat([-1.0, 1.0], 150)
    x = np.concatenate([s + 1e-4 * np.linspace(-7, 7, 141) for s in (-1, 1)])
    peaks = 0.5 * np.exp(-0.5 * ((np.abs(x) - 1) / 1e-4) ** 2) / (1e-4 * np.sqrt(2 * np.pi))
    figure = plot.noise_density([("average", {"residuals": draws}, {"members": (X, X)}, (x, peaks))])
    (axes,) = figure.axes
    heights, bins, _ = next(p for p in axes.patches if p.get_label() == "true density, by bins").get_data()
    assert np.sum(heights * np.diff(bins)) == pytest.approx(1, abs=1e-3)
    histogram = [p.get_height() for p in axes.patches if p.get_label() != "true density, by bins"]
    assert heights == pytest.approx(histogram, rel=1e-3, abs=1e-3)
    assert axes.get_ylim() == pytest.approx((0, 1.5 * max(histogram)), rel=1e-3)
    assert_array_equal(lines(axes)["members"], X)


def test_correlation_against_distance() -> None:
    (axes,) = plot.noise_correlation([0.1, 0.2, 0.5], {"residuals": ([0.9, 0.5, -0.3], [0.1, 0.1, 0.1])}).axes
    assert_array_equal(lines(axes)["held-out errors"], [0.9, 0.5, -0.3])
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.2", "0.5"]
    assert axes.get_ylim() == pytest.approx((-0.33, 1.05))


def test_functionals_count_observations_inside() -> None:
    observed = np.zeros((60, 3))
    observed[:6, 0] = 5
    observed[0, 1] = np.nan
    figure = plot.functionals(observed, [field(60, 3) * 0 - 1, field(60, 3) * 0 + 1], 0.9)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["mean: 54 of 60 inside", "maximum: 59 of 59 inside", "roughness: 60 of 60 inside"]
    assert len(figure.axes[2].collections[0].get_segments()) == 40
    assert len(lines(figure.axes[0])["observed, outside"]) == 6
    assert "90 % interval" in words(figure)
