"""Selection of the residual law: when a diffusion is kept, dropped, or not tried."""

from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest

from pdno import PDNO, Diffusion, Pairs, Schedule, Training
from pdno.learning.budget import Terms
from pdno.mean import Linear
from pdno.residual import Diffused, Exact, Gaussian, Residuals, Rows, Scaled
from pdno.residual.candidates import Candidate, candidates
from pdno.residual.choose import LawSelection, choose_law
from pdno.residual.law import MeanResiduals
from tests.helpers import STILL, TINY, TWO, linear_pairs
from tests.residual.coins import BLUR, BlurredCoin, Coins

QUIET = Terms(progress=False)
LINEAR = Linear(degree=1, sparse=False)


def mean_residuals(count: int = 60, seed: int = 0) -> MeanResiduals:
    """Return the residuals of an exact mean: white noise."""
    train, held_out = (
        Residuals(Pairs.of(a, u), u - clean) for a, u, clean in (linear_pairs(count, seed=seed + k) for k in (0, 1))
    )
    return MeanResiduals(train, held_out, train)


@pytest.mark.parametrize("out_of_fold", [True, False])
def test_laws_are_scored_by_folds_if_residuals_are_out_of_fold(out_of_fold) -> None:
    train, held_out = coins(60, 0), coins(20, 1)
    laws = LawSelection(MeanResiduals(train, held_out, train, out_of_fold=out_of_fold), Gaussian("scalar"), [], QUIET)
    assert (laws.trials["gaussian"].crossed is not None) is out_of_fold
    assert (laws.trials["copula"].crossed is not None) is out_of_fold


def test_laws_are_screened_for_two_means_in_one_folder(tmp_path) -> None:
    """The first mean is replaced by another one, with other residuals, as when it is trained to the end."""
    terms = replace(QUIET.within(60.0), run=tmp_path)
    for scale, earlier in ((1.0, []), (2.0, ["scaled"])):
        train, held_out = (replace(each, values=scale * each.values) for each in (coins(100, 0), coins(60, 1)))
        scaled = Candidate("scaled", lambda gaussian: Scaled(training=STILL), 1.0, fewest_pairs=1)
        others = [scaled, Candidate("coins", lambda gaussian: Coins(), 1.0, fewest_pairs=1)]
        laws = LawSelection(MeanResiduals(train, held_out, train), Gaussian("scalar"), others, terms, earlier).screen(0.5)
        assert "scaled" in laws.trials.tried()


# "auto"


def test_exact_predictions_have_no_spread() -> None:
    a, _, clean = linear_pairs(200)
    model = PDNO(training=STILL).fit(a, clean)
    new, _, truth = linear_pairs(20, seed=1)
    draws = model.sample(new, members=3)
    np.testing.assert_allclose(draws, np.broadcast_to(truth, draws.shape), atol=1e-9)
    assert "exact" in model.fit_summary[0]
    assert any("predictions of the mean are exact" in line for line in model.fit_summary)


def coins(count: int, seed: int) -> Residuals:
    """Return blurred coins at every node."""
    a, _, clean = linear_pairs(count, seed=seed)
    coin, blur = np.random.default_rng(seed + 10).standard_normal((2, *clean.shape))
    values = (1 - BLUR**2) ** 0.5 * np.sign(coin) + BLUR * blur
    return Residuals(Pairs.of(a, clean + values), values)


def test_a_copula_is_kept_for_values_that_are_not_gaussian() -> None:
    """Coins at every node, which are independent of the input, need no network."""
    diffusion = Diffusion(Schedule.cosine(60), target="v")
    train, held_out = coins(300, 0), coins(100, 1)
    law = Diffused(BlurredCoin(diffusion), diffusion, training=STILL)
    choice = choose_law("auto", MeanResiduals(train, held_out, held_out), Gaussian("scalar"), law, QUIET)
    assert choice.law.name == "copula"
    assert any("the law 'copula' was kept" in line for line in choice.summary)


@pytest.mark.slow
def test_a_diffusion_is_kept_if_it_is_better_than_a_gaussian(monkeypatch) -> None:
    """The exact network is kept, and members have two values, as the residuals."""
    monkeypatch.setattr("pdno.residual.choose.FEWEST_FOR_VALUES", 1000)  # without a copula, which is as good
    diffusion = Diffusion(Schedule.cosine(60), target="v")
    train, held_out = coins(300, 0), coins(30, 1)
    law = Diffused(BlurredCoin(diffusion), diffusion, training=STILL)
    choice = choose_law("auto", MeanResiduals(train, held_out, held_out), Gaussian("scalar"), law, QUIET)
    assert choice.law.name == "diffusion"
    assert any("the law 'diffusion' was kept" in line for line in choice.summary)
    rows = Rows(0, *(np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20), np.repeat(np.arange(20), 10)))
    draws = choice.law.draw(held_out.inputs, rows)
    near = np.abs(np.abs(draws) - (1 - BLUR**2) ** 0.5) < 2 * BLUR
    assert np.mean(near) > 0.88  # .60 for a Gaussian
    assert np.mean(draws > 0) == pytest.approx(0.5, abs=0.05)


def offsets(count: int, seed: int, modes: bool) -> Residuals:
    """Return fields with an offset, of one of two values or Gaussian, and white noise."""
    a, _, clean = linear_pairs(count, seed=seed)
    rng = np.random.default_rng(seed + 10)
    shared = rng.choice([-1.0, 1.0], (count, 1, 1)) if modes else rng.standard_normal((count, 1, 1))
    values = shared + 0.5 * rng.standard_normal(clean.shape)
    return Residuals(Pairs.of(a, clean + values), values)


@pytest.mark.parametrize("modes", [True, False])
def test_modes_of_what_fields_share_are_seen_with_few_held_out_pairs(modes) -> None:
    """Their scores are the same within chance; their likelihoods are not."""
    train, held_out = offsets(200, 0, modes), offsets(30, 1, modes)
    residuals = MeanResiduals(train, held_out, held_out)
    laws = LawSelection(residuals, Gaussian(), candidates(Diffused())[:1], QUIET.within(20.0))
    law = laws.screen(0.3).choice().law
    assert law.name == ("statistics" if modes else "gaussian")
    assert any("not Gaussian by its likelihood" in line for line in laws.summary()) is modes


def test_time_that_a_law_without_a_network_leaves_is_for_the_best_one_with_a_network() -> None:
    trained = []

    class Learner(Coins):
        def learn(self, *args: Any) -> Self:
            trained.append(self)
            return super().learn(*args)

    networks = [
        Candidate("coins", lambda gaussian: Learner(), 1.0, fewest_pairs=1),
        Candidate("no better", lambda gaussian: Gaussian("scalar"), 1.0, fewest_pairs=1),
    ]
    train, held_out = (replace(each, values=np.sign(each.values)) for each in (coins(300, 0), coins(100, 1)))
    laws = LawSelection(MeanResiduals(train, held_out, train), Gaussian("scalar"), networks, QUIET.within(60.0)).screen(0.3)
    laws.only("resampled")
    assert len(trained) == 2


@pytest.mark.parametrize(("gain", "expected"), [(0.02, "statistics"), (0.005, "linear statistics"), (-1, "linear statistics")])
def test_statistics_with_a_network_must_be_better_than_linear_ones(gain, expected) -> None:
    """By a standard error, which is .012, and by a hundredth."""
    laws = LawSelection(mean_residuals(100), Gaussian("scalar"), candidates(Diffused()), QUIET)
    noise = np.random.default_rng(0).standard_normal(100)
    noise = 0.12 * (noise - noise.mean()) / noise.std()
    scores = {"gaussian": np.ones(100), "linear statistics": np.full(100, 0.9), "statistics": 0.9 * (1 - gain + noise)}
    trial = replace(laws.trials["gaussian"], crossed=None)
    laws.trials.named = {name: replace(trial, scores=each) for name, each in scores.items()}
    assert laws.trials.best() == expected


@pytest.mark.parametrize(("gain", "expected"), [(0.018, "censored"), (0.006, "gaussian")])
def test_outputs_at_a_bound_ask_for_their_law(gain, expected) -> None:
    """One standard error suffices, which is .012; another law needs two."""
    laws = LawSelection(mean_residuals(100), Gaussian("scalar"), [], QUIET)
    noise = np.random.default_rng(0).standard_normal(100)
    scores = 1 - gain + 0.12 * (noise - noise.mean()) / noise.std()
    trial = replace(laws.trials["gaussian"], crossed=None, scores=np.ones(100))
    laws.trials.named = {"gaussian": trial, "copula": replace(trial, scores=scores), "censored": replace(trial, scores=scores)}
    assert laws.trials.best() == expected


@pytest.mark.parametrize(("score", "expected"), [(0.8, "scaled"), (0.899, "statistics")])
def test_a_law_of_shared_numbers_is_promising_unless_another_network_is_better(score, expected) -> None:
    laws = LawSelection(mean_residuals(100), Gaussian("scalar"), candidates(Diffused()), QUIET)
    law = deepcopy(laws.gaussian)
    law.shared = 0.5
    noise = 0.01 * np.random.default_rng(0).standard_normal(100)
    trial = replace(laws.trials["gaussian"], crossed=None, scores=np.ones(100))
    laws.trials.named = {"gaussian": trial, "scaled": replace(trial, scores=score + noise)}
    laws.trials.named["statistics"] = replace(trial, law=law, scores=np.full(100, 0.9))
    assert laws.trials.promising() == expected


@pytest.mark.slow
def test_resampled_fields_are_kept_if_they_are_better_than_a_gaussian() -> None:
    """All nodes of a field have one coin: no network is needed."""
    rng, (a, _, clean) = np.random.default_rng(0), linear_pairs(300)
    u = clean + rng.choice([-1.0, 1.0], (300, 1, 1)) + 0.01 * rng.standard_normal(clean.shape)
    model = PDNO(TINY, mean=LINEAR, training=TWO).fit(a, u)
    assert model.law.residual.name == "resampled"
    assert any("the law 'resampled' was kept" in line for line in model.fit_summary)


def test_the_same_diffusion_is_dropped_if_residuals_are_gaussian(monkeypatch) -> None:
    diffusion = Diffusion(Schedule.cosine(60), target="v")
    a, u, _ = linear_pairs(600)
    monkeypatch.setattr("pdno.residual.choose.looks_gaussian", lambda r, mask: False)
    model = PDNO(BlurredCoin(diffusion), diffusion, mean=LINEAR, training=STILL).fit(a, u)
    assert any("no other law is better than chance allows" in line for line in model.fit_summary)
    assert isinstance(model.law.residual, Gaussian)
    assert model.law.residual.networks == ()


def test_no_diffusion_is_trained_for_white_gaussian_residuals() -> None:
    a, u, _ = linear_pairs(600)
    model = PDNO({"kind": "unet", "base": 8}, mean=LINEAR, training=Training(updates=2)).fit(a, u)
    assert "pass all tests of white, homoscedastic Gaussian noise" in model.fit_summary[-2]
    assert model.provenance["updates"] == 0


def test_a_channel_that_is_always_zero_is_gaussian() -> None:
    """Noise in one channel, zero in the other: no network is trained to draw zeros."""
    a, u, _ = linear_pairs(600)
    both, dims = np.concatenate([u, np.zeros_like(u)], axis=1), "sample,channel,x"
    model = PDNO(mean=LINEAR, training=STILL).fit(a, both, dims=dims)
    assert isinstance(model.law.residual, Gaussian)
    assert "pass all tests" in model.fit_summary[-2]
    np.testing.assert_array_equal(np.ptp(model.sample(a[:3], 5)[:, :, 1]), 0)


# A law that is requested


@pytest.mark.parametrize("name", ["gaussian", "diffusion", "exact"])
def test_a_law_may_be_requested_by_name(name) -> None:
    choice = choose_law(
        name,
        mean_residuals(),
        Gaussian("scalar"),
        Diffused(TINY, Diffusion(Schedule.cosine(10)), training=TWO, search_steps=False),
        QUIET,
    )
    assert choice.law.name == name
    assert choice.summary[0] == choice.law.describe()
    if name == "diffusion":
        np.testing.assert_array_equal(
            choice.law.std, Gaussian("scalar").learn(mean_residuals().measured, None, QUIET).spread.scale.std
        )


@pytest.mark.parametrize("name", ["gaussian", "diffusion", "exact"])
@pytest.mark.slow
def test_the_law_of_a_model_may_be_requested_by_name(name) -> None:
    a, u, _ = linear_pairs(60)
    model = PDNO(TINY, Diffusion(Schedule.cosine(10), target="v"), mean="linear", law=name, training=TWO).fit(
        a, u, progress=False
    )
    assert model.law.residual.name == name
    assert model.deterministic == (name == "exact")
    assert bool(model.predict(a[:2], members=4, progress=False).std.any()) != model.deterministic


def test_a_law_of_the_user_is_copied_and_trained() -> None:
    """Coins of the mean absolute residual, which is .2 √(2/π) for Gaussian noise of .2."""
    own, (a, u, _) = Coins(), linear_pairs(400)
    model = PDNO(mean=LINEAR, law=own).fit(a, u)
    assert own.size == 0
    assert model.law.residual is not own
    assert model.law.residual.size == pytest.approx(0.2 * np.sqrt(2 / np.pi), rel=0.05)
    draws = model.sample(a[:5], members=6) - model.law.mean(a[:5])
    np.testing.assert_allclose(np.abs(draws), model.law.residual.size, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(a[:5], members=3, progress=False).mean, model.law.mean(a[:5]))
    assert "Coins of size" in model.fit_summary[1]


def test_the_mean_of_a_law_that_is_centred_is_that_of_the_mean_model() -> None:
    a, u, _ = linear_pairs(60)
    model = PDNO(mean="linear", law=Exact()).fit(a, u)
    np.testing.assert_array_equal(model.mean(a[:3]), model.law.mean(a[:3]))


@pytest.mark.parametrize(("nodes", "seconds"), [(64, 240.0), (1024, 480.0), (4096, 1920.0)])
def test_a_diffusion_of_large_fields_needs_more_time(nodes, seconds) -> None:
    assert candidates(Diffused(), nodes)[-1].least_seconds == seconds
