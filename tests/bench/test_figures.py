"""The figures of the paper from parts of the bench: which parts they need, and which arrays they show."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import pdno
from pdno import UserError
from pdno.bench import PARTS, draw_figures, figure_states, run
from pdno.bench.figures import FIGURES, Trained, file_name
from pdno.bench.scale import SCALES
from pdno.plot import paper

NOISY = "advection-256-gaussian:0.5/diffusion"
ERRORS = "burgers-1024/diffusion"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Return a folder in which two parts were run."""
    folder = tmp_path_factory.mktemp("bench")
    run([NOISY, ERRORS], "smoke", folder, tell=lambda text: None)
    return folder


@pytest.fixture
def drawn(finished, tmp_path, monkeypatch) -> tuple[Path, list[str], dict[str, tuple]]:
    """Return a copy of the folder with its figures, the messages, and the arguments of each figure."""
    arguments: dict[str, tuple] = {}
    for name in ("noisy_samples", "learned_solutions"):
        real = getattr(paper, name)

        def recorded(*given: Any, real=real, name=name) -> Figure:
            arguments[name] = given
            return real(*given)

        monkeypatch.setattr(paper, name, recorded)
    folder = copytree(finished, tmp_path / "bench")
    told: list[str] = []
    draw_figures("smoke", folder, tell=told.append)
    return folder, told, arguments


def test_all_figures_of_the_paper_have_parts_that_exist() -> None:
    assert list(FIGURES) == list(paper.FIGURES)
    for scale in ("smoke", "paper"):
        missing = {name for recipe in FIGURES.values() for name in recipe.missing(SCALES[scale], Path("nothing"))}
        assert missing <= set(PARTS)
        assert {name.split("/")[1] for name in missing} == {"diffusion", "fno"} | ({"paper"} if scale == "paper" else set())


@pytest.mark.slow
def test_figures_whose_parts_were_run_are_drawn(drawn) -> None:
    folder, told, _ = drawn
    labels = {"fig:op-diagram", "fig:schemeDDMP", "fig:noisy_advection_sample", "fig:learned_solutions_advection"}
    pictures = {path.name for path in (folder / "smoke" / "figures").glob("*.png")}
    assert pictures == {file_name(label) for label in labels}
    sources = json.loads((folder / "smoke" / "figures" / "figures.json").read_text())
    assert sources == {label: [] if label in ("fig:op-diagram", "fig:schemeDDMP") else [NOISY] for label in labels}
    assert len(told) == len(FIGURES)
    wanted = "fig:advection: not drawn, needs `pdno bench advection-256/diffusion advection-256/fno --scale smoke`"
    assert wanted in told
    assert "fig:error_vs_epoch: not drawn, needs `pdno bench darcy-64/diffusion advection-256/diffusion --scale smoke`" in told


def test_figures_show_test_pairs_and_the_mean_of_members(drawn) -> None:
    folder, _, arguments = drawn
    trained = Trained(PARTS[NOISY], SCALES["smoke"], folder / "smoke")
    test = trained.part.data(trained.scale, trained.folder).test
    x, a, observed = arguments["noisy_samples"]
    np.testing.assert_array_equal(a, test.a[:2])
    np.testing.assert_array_equal(observed, test.u_eta[:2])
    assert 0.3 < np.std(observed - test.u[:2]) < 0.7  # noise of standard deviation 0.5, 64 values: within 4 standard errors
    _, u, mean = arguments["learned_solutions"]
    np.testing.assert_array_equal(u, test.u[:2])
    model = pdno.load(folder / "smoke" / "runs" / "advection-256-gaussian-0.5" / "diffusion")
    np.testing.assert_allclose(mean, model.sample(test.a[:2], 50).mean(axis=0), rtol=1e-5, atol=1e-6)
    assert len(x) == a.shape[-1] == 32


def test_errors_are_logged_on_test_pairs(finished) -> None:
    epochs, errors = Trained(PARTS[ERRORS], SCALES["smoke"], finished / "smoke").errors()
    assert len(epochs) == len(errors) > 0
    assert epochs == sorted(epochs)
    assert all(0 < error < 10 for error in errors)  # of single members of a network that was trained for a second


def test_the_density_of_mixture_noise_is_that_of_its_components(finished, monkeypatch) -> None:
    """For a model that draws exact noise, learned and exact density agree, at the centre."""
    part = PARTS["darcy-64-mixture:2/diffusion"]
    noise, u = pdno.noise.GaussianMixture.case(2), np.random.default_rng(0).random((1, 1, 16, 16))

    class Exact:
        def given(self, a) -> "Exact":
            return self

        def stream(self, members) -> Iterator[tuple]:
            yield None, np.arange(members), u + noise.sample((members, 1, 16, 16), seed=3)

    class Pair:
        a = np.zeros((1, 1, 16, 16))

    Pair.u = u
    trained = Trained(part, SCALES["paper"], finished)  # 10,000 members
    monkeypatch.setattr(Trained, "model", Exact())
    monkeypatch.setattr(Trained, "test", Pair())
    shown: list = []
    monkeypatch.setattr(paper, "noise_distribution", shown.extend)
    FIGURES["fig:noise_distribution"].draw([[trained]])
    ((title, x, exact, learned, draws),) = shown
    assert title == "Case 2, 64x64 points"
    assert len(draws) == 10_000
    assert np.trapezoid(exact, x) == pytest.approx(1, abs=1e-3)
    assert np.trapezoid(np.abs(exact - learned), x) < 0.1  # 2 for disjoint densities
    assert np.std(draws) == pytest.approx(1.598e-3, rel=0.02)  # `tab:noisydata`


def test_states_of_figures(drawn) -> None:
    lines = figure_states("smoke", drawn[0])
    assert len(lines) == 1 + len(FIGURES)
    states = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[1:]}
    assert states["fig:op-diagram"] == "drawn"
    assert states["fig:1d_large_noise"] == "needs elliptic1d-128-gaussian:1/diffusion"
    (drawn[0] / "smoke" / "figures" / file_name("fig:noisy_advection_sample")).unlink()
    assert "ready for --figures" in "".join(figure_states("smoke", drawn[0]))
    assert max(map(len, lines)) <= 80


def test_figures_and_lists_take_no_parts(refused) -> None:
    assert "--figures concerns all parts; omit darcy" in refused("bench darcy --figures")
    assert "--list concerns all parts; omit darcy fno" in refused("bench darcy fno --list")
    with pytest.raises(UserError, match="--scale gpu is unknown"):
        draw_figures("gpu", Path("nothing"), tell=print)
