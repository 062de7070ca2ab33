"""Judgement as a whole: forecasters whose law is known are judged as they deserve."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

import pdno
from pdno import UserError, equation, noise
from pdno.data.spaces import Frame
from pdno.evaluation.ensemble import LEVELS, forecast
from pdno.evaluation.novelty import Novelty
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.verdict import percent, verdict

POINTS, SIGMA = 16, 0.3


class Known:
    """u | a ~ N(a + shift, (factor·SIGMA)²) at each point, with an optional part that all points of a field share."""

    name, parameters, exact = "known", 0, False

    def __init__(self, data, shift=0.0, factor=1.0, shared=0.0, deterministic=False) -> None:
        self.shift, self.factor, self.shared, self.deterministic = shift, factor, shared, deterministic
        self.frame = Frame.of(data.train)
        self.novelty = Novelty.halves(data.train.a)
        self.provenance = {"pairs": len(data.train)}

    def fitted(self) -> Frame:
        return self.frame

    def known_mean(self, a, scalars) -> np.ndarray | None:
        return a + self.shift if self.exact else None

    def evaluations(self, **how: object) -> int:
        return 1

    def stream(self, a, scalars=None, members=1, seed=0, chunk=None, start=0, **how: object) -> Iterator[tuple]:
        for i, field in enumerate(a):
            rng = np.random.default_rng((seed, start + i))
            for first in range(0, members, 32):
                count = min(32, members - first)
                if self.deterministic:
                    yield np.full(1, i), np.zeros(1, int), field[None] + self.shift
                    continue
                eta = rng.normal(size=(count, *field.shape)) * np.sqrt(1 - self.shared)
                eta += np.sqrt(self.shared) * rng.normal(size=(count, *[1] * field.ndim))
                yield np.full(count, i), first + np.arange(count), field + self.shift + self.factor * SIGMA * eta


def pairs(count: int, seed: int, shared: float = 0.0, mask=None) -> pdno.Pairs:
    rng = np.random.default_rng(seed)
    a = 2 + rng.normal(size=(count, 1, POINTS))
    eta = np.sqrt(1 - shared) * rng.normal(size=a.shape) + np.sqrt(shared) * rng.normal(size=(count, 1, 1))
    return pdno.Pairs.of(a, a, u_eta=a + SIGMA * eta, mask=mask)


@pytest.fixture(scope="module")
def data() -> pdno.Dataset:
    train = pairs(200, 0)
    train = pdno.Pairs.of(train.a, train.u_eta)
    return pdno.Dataset(train, pairs(150, 1), {"name": "known", "noise": f"gaussian:{SIGMA}"}, None, pairs(120, 2))


@pytest.fixture(scope="module")
def perfect(data):
    return evaluate(Known(data), data, members=60, calibrate=120, progress=False)


def within(score, value: float, times: float = 4.0) -> bool:
    """4 standard errors: once in 16,000 by chance."""
    return abs(score.value - value) < times * score.error


def test_scores_of_the_truth_are_those_of_the_closed_form(perfect) -> None:
    s = perfect.scores
    assert within(s["crps"], SIGMA / np.sqrt(np.pi))  # of a Gaussian that is right
    norm = np.sqrt(2 / POINTS) * np.exp(gammaln((POINTS + 1) / 2) - gammaln(POINTS / 2))  # E‖z‖/√d, z ~ N(0, I)
    assert within(s["energy_score"], SIGMA * norm * np.sqrt(2) / 2)
    assert s["mean_std"].value == pytest.approx(SIGMA, rel=0.01)
    assert s["std_over_noise"].value == pytest.approx(1.0, abs=0.01)
    assert within(s["spread_skill"], 1.0)
    for level in LEVELS:
        assert within(s[f"coverage_{100 * level:.0f}"], level)
    assert s["mrle"].value == pytest.approx(np.mean(SIGMA / np.sqrt(60) / np.sqrt(5)), rel=0.1)  # ‖a‖² = 4 + 1 a point
    assert s["mrle_fair"].value < 0.3 * s["mrle"].value  # truly 0
    assert s["spectral_distance"].value < 0.1
    assert within(s["coverage_90_repaired"], 0.9, 5)
    assert s["fields_90_repaired"].value > 0.8
    assert s["unfamiliar"].value < 0.15


def test_a_mean_that_is_known_owes_nothing_to_chance(data) -> None:
    model = Known(data)
    model.exact = True
    s = evaluate(model, data, members=60, calibrate=0, progress=False).scores
    assert s["mrle"].value < 1e-12
    assert "mrle_fair" not in s
    assert within(s["spread_skill"], 1.0)


def test_intervals_hold_what_the_ranks_say(data) -> None:
    """Whatever the number of members: quantiles of few members are nearer to each other than those of the law."""
    f = forecast(Known(data), data.test, 39)
    for level in LEVELS[:2]:  # (M + 1)(1 ± level)/2 is whole: the interval is that of two members
        lower, upper = f.interval(level)
        inside = (lower <= data.test.u_eta) & (data.test.u_eta <= upper)
        ranks = np.abs(f.pit - 0.5) <= level / 2
        assert (inside != ranks).mean() < 1e-12


def test_the_truth_is_called_honest(perfect) -> None:
    accuracy, honesty, caution = verdict(perfect)
    assert honesty.grade == "good"
    assert "honest" in honesty.headline
    assert "No bias" in honesty.text
    assert accuracy.grade == "good"
    assert caution.grade == "good"


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ({"shift": 0.3}, "biased high"),
        ({"shift": -0.3}, "biased low"),
        ({"factor": 0.5}, "too narrow"),
        ({"factor": 2.0}, "too wide"),
    ],
)
def test_a_flaw_is_named(data, flaw, words) -> None:
    e = evaluate(Known(data, **flaw), data, members=40, calibrate=120, progress=False)
    _, honesty, _ = verdict(e)
    assert honesty.grade in ("fair", "poor")
    assert words in honesty.text
    assert "repaired" in honesty.text
    assert e.scores["coverage_90_repaired"].value == pytest.approx(0.9, abs=0.03)


def test_errors_that_a_field_shares_are_missed_by_points_but_not_by_wholes(data) -> None:
    """Right at each point, but its members do not move as one."""
    shared = replace(data, test=pairs(150, 8, shared=0.5), validation=pairs(120, 6, shared=0.5))
    _, honesty, _ = verdict(e := evaluate(Known(data), shared, members=40, progress=False))
    assert within(e.scores["coverage_90"], 0.9)
    assert "too narrow" in e.diagnoses["field means"].findings
    assert "whole fields" in honesty.headline + honesty.text
    assert honesty.grade != "good"
    _, right, _ = verdict(evaluate(Known(data, shared=0.5), shared, members=40, progress=False))
    assert right.grade == "good"


def test_a_deterministic_model_has_no_error_bars_but_gets_repaired_ones(data) -> None:
    e = evaluate(Known(data, deterministic=True), data, calibrate=120, progress=False)
    _, honesty, _ = verdict(e)
    assert honesty.grade == "unknown"
    assert "no error bars" in honesty.headline
    assert e.facts["members"] == 1
    assert e.coverage is None
    assert e.scores["crps"].value == pytest.approx(SIGMA * np.sqrt(2 / np.pi), rel=0.05)  # the mean absolute error
    assert e.scores["coverage_90_repaired"].value == pytest.approx(0.9, abs=0.03)
    assert e.scores["width_90_repaired"].value == pytest.approx(2 * 1.645 * SIGMA, rel=0.1)


def test_what_is_masked_does_not_matter(data) -> None:
    mask = np.ones((150, 1, POINTS), bool)
    mask[:, :, ::4] = False
    spoilt = pairs(150, 1)
    observed = np.where(mask, spoilt.u_eta, np.nan)
    masked = replace(data, test=pdno.Pairs.of(spoilt.a, np.where(mask, spoilt.u, np.nan), u_eta=observed, mask=mask))
    e = evaluate(Known(data), masked, members=40, calibrate=0, progress=False)
    assert within(e.scores["crps"], SIGMA / np.sqrt(np.pi))
    assert within(e.scores["coverage_90"], 0.9)
    assert e.scores["std_over_noise"].value == pytest.approx(1.0, abs=0.01)
    assert not e.diagnoses["roughness"].findings
    assert np.isfinite([score.value for score in e.scores.values()]).all()


def test_masked_places_are_not_called_weak(data) -> None:
    mask = np.ones((150, 1, POINTS), bool)
    mask[:, :, 12:] = False
    test = pairs(150, 1)
    masked = replace(data, test=pdno.Pairs.of(test.a, test.u, u_eta=test.u_eta, mask=mask))
    e = evaluate(Known(data, shift=0.05), masked, members=40, calibrate=0, progress=False)
    assert np.isnan(e.trust[0, 12:]).all()
    assert not e.weak
    assert not e.diagnoses["roughness"].findings  # a shift leaves differences alone


def test_a_perfect_forecaster_is_seldom_called_otherwise() -> None:
    """30 data sets of 12 inputs with errors that are mostly shared: coverage alone would be far off by chance."""
    accused = 0
    for seed in range(30):
        train, test = pairs(20, 3 * seed), pairs(12, 3 * seed + 1, shared=0.9)
        small = pdno.Dataset(pdno.Pairs.of(train.a, train.u_eta), test, {"name": "known"}, None, None)
        e = evaluate(Known(small, shared=0.9), small, members=20, seed=seed, progress=False)
        _, honesty, _ = verdict(e)
        accused += honesty.grade != "good" or bool(e.weak)
    assert accused <= 3


def test_cases_are_the_best_the_median_and_the_worst(perfect) -> None:
    errors = perfect.scores["mrle"].each
    best, typical, worst = (case.number for case in perfect.cases)
    assert errors[best] == errors.min()
    assert errors[worst] == errors.max()
    assert (errors < errors[typical]).sum() == len(errors) // 2


def test_members_of_a_case_are_those_that_were_judged(data) -> None:
    e = evaluate(Known(data), data, members=40, calibrate=0, progress=False)
    f = forecast(Known(data), data.test, 40)
    np.testing.assert_array_equal(e.cases[0].members[0], f.member[e.cases[0].number])


def test_pairs_alone_will_do(data) -> None:
    e = evaluate(Known(data), data.test, members=20, progress=False)
    assert "crps_ignoring_a" not in e.scores
    assert "coverage_90_repaired" not in e.scores
    assert verdict(e)[0].grade == "good"  # by its size alone


def test_the_residual_of_a_known_equation_is_told() -> None:
    eq = equation.Elliptic1D(points=32)
    data = pdno.generate(eq, train=20, test=6, noise=noise.Gaussian(0.01)).split(0.2, 0.0)

    class Exact(Known):
        def stream(self, a, scalars=None, members=1, seed=0, chunk=None, start=0, **how: object) -> Iterator[tuple]:
            for i, field in enumerate(eq.solve(a)):
                yield np.full(members, i), np.arange(members), np.repeat(field[None], members, axis=0)

    e = evaluate(Exact(data), data, members=19, calibrate=0, progress=False)
    assert e.scores["residual_mean"].value < 1e-10
    assert e.scores["residual_u"].value < 1e-10
    assert e.scores["mrle"].value < 1e-14


def test_memory_does_not_grow_with_members(data) -> None:
    def peak(members: int) -> int:
        tracemalloc.start()
        forecast(Known(data), data.test[:2], members)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(6000) < 1.1 * peak(2000)


def test_results_do_not_depend_on_other_inputs(data) -> None:
    whole, part = forecast(Known(data), data.test, 20), forecast(Known(data), data.test[:3], 20)
    np.testing.assert_array_equal(whole.pit[:3], part.pit)
    np.testing.assert_array_equal(whole.crps[:3], part.crps)


def test_few_members_make_no_weak_places(data) -> None:
    """Where so few happen to lie close together, intervals hold less: that is chance, and no place is named for it."""
    for seed in range(5):
        assert not evaluate(Known(data), data, members=19, seed=seed, calibrate=0, progress=False).weak


def test_error_bars_that_do_not_follow_the_noise_are_located(data) -> None:
    """The noise grows with a, the spread of the members does not: right on average, wrong where u is large."""
    test = pairs(150, 9)
    grown = np.where(test.a > 3, 3.0, 0.7) * (test.u_eta - test.u)
    wrong = replace(data, test=pdno.Pairs.of(test.a, test.u, u_eta=test.u + grown))
    e = evaluate(Known(data), wrong, members=40, calibrate=0, progress=False)
    caution = verdict(e)[2]
    assert caution.grade == "fair"
    assert caution.headline.startswith("90 % intervals hold least")
    assert "where u is predicted above 3" in caution.headline
    assert e.weak[0].share < 0.6


def test_a_weak_part_of_the_domain_is_named(data) -> None:
    test = pairs(150, 10)
    factor = np.where(np.arange(POINTS) < 2, 4.0, 1.0)
    x = np.linspace(-1, 1, POINTS)
    local = pdno.Pairs.of(test.a, test.u, u_eta=test.u + factor * (test.u_eta - test.u), coordinates={"x": x})
    e = evaluate(Known(data), replace(data, test=local), members=40, calibrate=0, progress=False)
    assert f"for x from -1 to {x[1]:.3g}" in verdict(e)[2].headline


def test_a_model_that_is_worse_than_none_is_told_so(data) -> None:
    accuracy = verdict(evaluate(Known(data, shift=5.0), data, members=20, calibrate=0, progress=False))[0]
    assert accuracy.grade == "poor"
    assert "worse than ignoring the input" in accuracy.headline


def test_inputs_of_another_law_are_the_first_caution(data) -> None:
    test = pairs(50, 11)
    other = pdno.Pairs.of(9 * test.a, 9 * test.u, u_eta=9 * test.u_eta)
    _, honesty, caution = verdict(evaluate(Known(data), replace(data, test=other), members=40, progress=False))
    assert caution.grade == "poor"
    assert caution.headline.startswith("50 of 50 test inputs are unlike")
    assert "even intervals repaired" in honesty.text


def test_outputs_that_are_zero_have_no_relative_error(data) -> None:
    test = pairs(30, 12)
    u, observed = test.u.copy(), test.u_eta.copy()
    u[3] = 0
    some = replace(data, test=pdno.Pairs.of(test.a, u, u_eta=observed))
    e = evaluate(Known(data), some, members=20, calibrate=0, progress=False)
    assert np.isnan(e.scores["mrle"].each[3])
    assert e.scores["mrle"].value == pytest.approx(np.nanmean(e.scores["mrle"].each))
    assert 3 not in [case.number for case in e.cases]
    assert "over 29 test inputs" in verdict(e)[0].text
    none = replace(data, test=pdno.Pairs.of(test.a, np.zeros_like(u), u_eta=observed))
    e = evaluate(Known(data), none, members=20, calibrate=0, progress=False)
    assert "mrle" not in e.scores
    assert "root mean square" in verdict(e)[0].headline


def test_levels_that_so_few_members_cannot_have_are_left_out(data) -> None:
    """Beyond the outermost of M members lies 1/(M + 1) on each side."""
    few = evaluate(Known(data), data, members=20, calibrate=0, progress=False).scores
    assert {"coverage_50", "coverage_90"} <= set(few)
    assert "coverage_95" not in few


def test_noise_of_the_users_own_is_no_hindrance(data) -> None:
    own = replace(data, provenance={"name": "known", "noise": "heteroscedastic:<lambda>"})
    e = evaluate(Known(data), own, members=20, calibrate=0, progress=False)
    assert "std_over_noise" not in e.scores


def test_too_few_pairs_for_the_repair_are_not_claimed(data) -> None:
    e = evaluate(Known(data), replace(data, validation=data.validation[:5]), members=20, progress=False)
    assert e.facts["held"] == 0
    assert "coverage_90_repaired" not in e.scores
    none = evaluate(Known(data), replace(data, validation=data.validation[:0]), members=20, progress=False)
    assert none.facts["held"] == 0


def test_mistakes_are_told(data) -> None:
    model = Known(data)
    with pytest.raises(UserError, match="no test pairs to judge by"):
        evaluate(model, replace(data, test=data.test[:0]))
    with pytest.raises(UserError, match="at least 19"):
        evaluate(model, data, members=1)
    axes = ("sample", "channel", "x")
    wrong = pdno.Pairs.of(data.test.a, np.repeat(data.test.u, 2, axis=1), dims=(axes, axes))
    with pytest.raises(UserError, match=r"outputs have shape \(2, 16\), but the model learned \(1, 16\)"):
        evaluate(model, wrong)
    with pytest.raises(UserError, match="NaN or infinite"):
        evaluate(model, pdno.Pairs.of(data.test.a, np.full_like(data.test.u, np.nan)))


def test_percentages_read_well() -> None:
    assert [percent(x) for x in (0.0, 1.0, 0.00123, 0.098, float("nan"))] == ["0 %", "100.0 %", "0.12 %", "9.8 %", "nan %"]
