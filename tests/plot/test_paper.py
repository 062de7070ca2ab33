"""Figures of the paper: the values of their lines and maps, and the recorded reverse chain."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import FancyArrowPatch
from numpy.testing import assert_array_equal

import pdno
from pdno.diffusion.reverse import SAMPLERS, variance
from pdno.diffusion.schedule import Schedule
from pdno.plot import paper as figures
from pdno.plot.paper import FIGURES, Evolution
from tests.plot.helpers import EPOCHS, X, edges, field, limits_of, lines, meshes, words


def test_every_figure_of_the_paper_names_its_label() -> None:
    assert pdno.plot.paper.FIGURES is FIGURES
    assert len(FIGURES) == 11
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
    """With the exact denoiser of a point mass at m, V_n has mean √γ_n m and V_0 = m."""
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
    run(evolution, 100)  # a second batch of members is ignored
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
    """Relative errors of PDNO are 0.2, 0.05, 0.5 and undefined; those of FNO and absolute errors have another order."""
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


def test_noisy_samples_and_learned_solutions() -> None:
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


def test_more_errors_than_colours_are_told_apart() -> None:
    figure = figures.error_vs_epoch({"Darcy": {f"part {k}": ([1, 2], [1, k + 1]) for k in range(7)}})
    styles = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines]
    assert len(set(styles)) == 7


def arrows(figure) -> list[tuple[int, int]]:
    """Return the directions of the arrows: signs of their horizontal and vertical parts."""
    ends = [np.array(patch._posA_posB) for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    return [tuple(np.sign(np.round(end - start, 9)).astype(int).tolist()) for start, end in ends]


def test_the_diagram_of_operator_learning_commutes() -> None:
    """Two routes from inputs to outputs, and on each side one arrow to the mesh and one back."""
    figure = figures.operators()
    assert sorted(arrows(figure)) == [(0, -1), (0, -1), (0, 1), (0, 1), (1, 0), (1, 0)]
    names = " ".join(words(figure))
    assert all(rf"\mathcal{{{map_}}}_\mathcal{{{space}}}" in names for map_ in "RI" for space in "AU")


def test_the_inference_stage_goes_from_noise_to_a_smooth_field() -> None:
    """Roughness of the drawn states decreases; the network is given the input and a state."""
    figure = figures.inference()
    states = [line.get_ydata() for line in figure.axes[0].lines[:4]]
    roughness = [float(np.abs(np.diff(v, 2)).mean()) for v in states]
    assert roughness == sorted(roughness, reverse=True)
    assert roughness[-1] < 0.1 * roughness[0]
    assert sorted(arrows(figure)) == [(1, -1), *[(1, 0)] * 6, (1, 1)]
