"""Noise of residuals, members and the truth: models with a known distribution, right and wrong."""

import numpy as np
import pytest

import pdno
from pdno.evaluation.ensemble import summarise
from pdno.evaluation.ranks import channel_functionals, functionals
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.structure import known_noise, noise_structure
from pdno.evaluation.verdict import verdict
from tests.evaluation.known import POINTS, SIGMA, Known, pairs


def dataset(test: pdno.Pairs, noise: str | None = None) -> pdno.Dataset:
    train = pairs(30, 0)
    return pdno.Dataset(train, test, {"name": "known"} | ({} if noise is None else {"noise": noise}))


def noise_statement(e) -> object:
    return next(s for s in verdict(e) if s.about == "Noise")


def structure(data: pdno.Dataset, members: int = 20, **model: float):
    return noise_structure(summarise(Known(data, **model), data.test, members), data.test, data)


def within(score, value: float) -> bool:
    return abs(score.value - value) < 4 * score.error


def test_lost_correlation_is_a_warning_and_kept_correlation_is_not() -> None:
    """Half of the variance is shared by the field; members have the right distribution at each point."""
    data = dataset(pairs(70, 1, shared=0.5))
    e = evaluate(Known(data), data, members=20, progress=False)
    assert within(e.scores["noise_neighbour_correlation"], 0.5)
    assert within(e.scores["members_neighbour_correlation"], 0.0)
    assert within(e.scores["noise_average_std"], np.sqrt(0.5 + 0.5 / POINTS))
    assert e.scores["members_average_std"].value == pytest.approx(1 / np.sqrt(POINTS), rel=0.15)
    assert e.scores["coverage_90_mean"].value < 0.7
    lost = noise_statement(e)
    assert lost.grade == "poor"
    assert lost.headline.startswith("Members lack correlation that errors have: neighbouring nodes correlate by 0.")
    assert "in errors, but by" in lost.headline
    kept = evaluate(Known(data, shared=0.5), data, members=20, progress=False)
    assert noise_statement(kept).grade == "good"
    assert "partly shared by the whole field" in noise_statement(kept).headline
    for name in ("mean", "maximum", "roughness"):
        assert within(kept.scores[f"coverage_90_{name}"], 0.9)


def test_the_truth_is_the_recorded_noise() -> None:
    found = structure(dataset(pairs(40, 2), f"gaussian:{SIGMA}"))
    assert set(found.sources) == {"residuals", "members", "truth"}
    assert found.sources["truth"].statistics.word == "white"
    assert found.exact[-1].stds == pytest.approx([SIGMA])
    assert found.exact[0].stds == pytest.approx([SIGMA / np.sqrt(POINTS)])
    assert found.scores()["truth_point_modes"].value == 1


@pytest.mark.parametrize(("spec", "word"), [("mixture:1", "shared by"), ("field:0.1,3,2", "correlated over|shared by")])
def test_shared_and_correlated_truths(spec, word) -> None:
    found = structure(dataset(pairs(20, 2), spec))
    assert any(part in found.sources["truth"].statistics.word for part in word.split("|"))
    if spec == "mixture:1":
        assert found.scores()["truth_average_modes"].value == 3
        assert found.exact[0].means == pytest.approx([-0.001, 0, 0.001])


def test_without_a_record_the_truth_is_the_noise_of_the_test_pairs() -> None:
    test = pairs(60, 3)
    grown = pdno.Pairs.of(test.a, test.u, u_eta=test.u + 0.1 * test.u * (test.u_eta - test.u) / SIGMA)
    found = structure(dataset(grown, "heteroscedastic:<lambda>"))
    assert within(found.scores()["truth_growth"], 1.0)
    assert within(found.scores()["members_growth"], 0.0)
    assert known_noise(dataset(grown, "heteroscedastic:<lambda>")) is None
    assert "truth" not in structure(dataset(pdno.Pairs.of(test.a, test.u_eta))).sources
    e = evaluate(Known(dataset(grown)), dataset(grown), members=20, progress=False)
    assert "varies as |mean| to the power of" in noise_statement(e).text


def test_noise_that_depends_on_the_input() -> None:
    test = pairs(80, 4)
    size = np.exp(2 * (test.a.mean(axis=2, keepdims=True) - 2) / 0.25)
    data = dataset(pdno.Pairs.of(test.a, test.u, u_eta=test.u + size * (test.u_eta - test.u)))
    e = evaluate(Known(data), data, members=20, progress=False)
    assert e.scores["noise_input_dependence"].value > 0.6
    assert e.scores["members_input_dependence"].value < 0.3
    assert "of the variance of their log size" in noise_statement(e).text


def test_modes_that_members_lack_are_named() -> None:
    test = pairs(100, 5)
    sign = np.sign(np.random.default_rng(0).normal(size=(100, 1, 1)))
    data = dataset(pdno.Pairs.of(test.a, test.u, u_eta=test.u + sign + 0.05 * (test.u_eta - test.u)))
    e = evaluate(Known(data, factor=1 / SIGMA, shared=1.0), data, members=20, progress=False)
    assert e.scores["noise_average_modes"].value == 2
    assert e.scores["members_average_modes"].value == 1
    assert "Members have fewer modes: the field's average has 2 modes in errors, 1 in members" in noise_statement(e).text
    fit = e.noise.sources["residuals"].fits[0]
    assert np.abs(fit.mixture.weights - (sign < 0).mean() * np.array([1, -1]) - [0, 1]).max() < 1e-6
    assert np.abs((fit.mixture.means - [-1, 1]) / np.hypot(fit.mean_errors, 0.25 / np.sqrt(20))).max() < 4


@pytest.mark.parametrize("count", [1, 5])
def test_few_pairs(count) -> None:
    e = evaluate(Known(data := dataset(pairs(count, 6))), data, members=20, progress=False)
    assert np.isfinite(e.scores["noise_std"].value)
    assert "noise_input_dependence" not in e.scores
    statement = noise_statement(e)
    assert (statement.grade == "unknown") == (count < 5)


def test_masks_channels_and_places() -> None:
    """Two channels in units 1 and 1e-6; half of the first is never observed."""
    test = pairs(60, 7)
    two = [np.concatenate([x, 1e-6 * x], axis=1) for x in (test.a, test.u, test.u_eta)]
    mask = np.ones(two[0].shape, dtype=bool)
    mask[:, 0, POINTS // 2 :] = False
    axes = ("sample", "channel", "x")
    observed = pdno.Pairs.of(two[0], two[1], u_eta=np.where(mask, two[2], np.nan), mask=mask, dims=(axes, axes))
    e = summarise(Units(dataset(test)), observed, 20)
    found = noise_structure(e, observed, dataset(observed))
    assert within(found.scores()["noise_neighbour_correlation"], 0.0)
    assert [place.name for place in found.places] == ["field average", "largest standard deviation"]
    assert found.places[-1].node[0] < POINTS // 2
    std = found.sources["members"].statistics.std
    assert np.isnan(std[0, POINTS // 2 :]).all()
    assert std[1] == pytest.approx(1e-6 * SIGMA, rel=0.2)


class Units(Known):
    """The channels have the units 1 and 1e-6."""

    def given(self, a, scalars=None):
        given = super().given(a / np.array([1, 1e-6])[:, None])
        stream = given.stream
        given.stream = lambda *args, **options: (
            (i, m, values * np.array([1, 1e-6])[:, None]) for i, m, values in stream(*args, **options)
        )
        return given


def test_exact_predictions_have_no_noise() -> None:
    test = pairs(10, 8)
    data = dataset(pdno.Pairs.of(test.a, test.a))
    e = evaluate(Known(data, deterministic=True), data, progress=False)
    assert e.noise is None
    assert noise_statement(e).grade == "unknown"
    shifted = evaluate(Known(data, deterministic=True, shift=0.1), data, progress=False)
    assert "members_std" not in shifted.scores
    assert noise_statement(shifted).headline.startswith("Held-out errors are shared by the whole field")


def test_scalars_are_features_of_the_input() -> None:
    test = pairs(60, 9)
    p = np.random.default_rng(1).normal(size=(60, 1))
    constant = np.full_like(test.a, 2.0)
    u = constant + np.exp(p)[:, :, None] * (test.u_eta - test.u)
    data = dataset(pdno.Pairs.of(constant, constant, u_eta=u, scalars=p))
    found = noise_structure(summarise(Known(dataset(test)), data.test, 20), data.test, data)
    assert found.scores()["noise_input_dependence"].value > 0.6


def test_functionals_of_channels() -> None:
    field = np.array([[[1.0, 2.0, 4.0], [3.0, 3.0, 9.0]]])[None]
    mean, largest, roughness = channel_functionals(field)[0, :, 0]
    assert (mean, largest) == (22 / 6, 9.0)
    assert roughness**2 == pytest.approx(functionals(field)[0, 1])
    mask = np.array([[[True, True, False], [True, False, False]]])
    assert channel_functionals(np.where(mask, field, np.nan), mask=mask)[0, :, 0] == pytest.approx([2, 3, np.sqrt(2.5)])
    nothing = np.zeros((2, 3), dtype=bool)
    nothing[0] = True
    assert np.isnan(channel_functionals(np.ones((1, 2, 3)), mask=nothing)[0, :, 1]).all()
    assert channel_functionals(np.ones((1, 1, 1)))[0, 2, 0] == 0
