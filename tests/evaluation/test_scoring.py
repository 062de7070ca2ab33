"""Evaluation of models with a known distribution, compared with closed forms."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

import pdno
from pdno import UserError, equation, noise
from pdno.evaluation.ensemble import LEVELS, summarise
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.verdict import percent, verdict
from tests.evaluation.known import POINTS, SIGMA, Known, pairs


@pytest.fixture(scope="module")
def data() -> pdno.Dataset:
    train = pairs(200, 0)
    train = pdno.Pairs.of(train.a, train.u_eta)
    return pdno.Dataset(train, pairs(150, 1), {"name": "known", "noise": f"gaussian:{SIGMA}"}, None, pairs(120, 2))


@pytest.fixture(scope="module")
def perfect(data):
    return evaluate(Known(data), data, members=60, calibrate=120, progress=False)


def within(score, value: float, times: float = 4.0) -> bool:
    """Within 4 standard errors: fails for one seed in 16,000."""
    return abs(score.value - value) < times * score.error


def test_scores_of_the_true_distribution_are_closed_forms(perfect) -> None:
    s = perfect.scores
    assert within(s["crps"], SIGMA / np.sqrt(np.pi))  # of a correct Gaussian
    norm = np.sqrt(2 / POINTS) * np.exp(gammaln((POINTS + 1) / 2) - gammaln(POINTS / 2))  # E‖z‖/√d, z ~ N(0, I)
    assert within(s["energy_score"], SIGMA * norm * np.sqrt(2) / 2)
    assert s["mean_std"].value == pytest.approx(SIGMA, rel=0.01)
    assert s["std_noise_ratio"].value == pytest.approx(1.0, abs=0.01)
    assert within(s["spread_skill"], 1.0)
    for level in LEVELS:
        assert within(s[f"coverage_{100 * level:.0f}"], level)
    assert s["mrle"].value == pytest.approx(np.mean(SIGMA / np.sqrt(60) / np.sqrt(5)), rel=0.1)  # ‖a‖² = 4 + 1 a point
    assert s["mrle_debiased"].value < 0.3 * s["mrle"].value  # truly 0
    assert s["spectral_distance"].value < 0.1
    assert within(s["coverage_90_conformal"], 0.9, 5)
    assert s["band_coverage_90_conformal"].value > 0.8
    assert s["ood_fraction"].value < 0.15


def test_an_exact_mean_has_no_sampling_error(data) -> None:
    s = evaluate(Known(data, exact=True), data, members=60, calibrate=0, progress=False).scores
    assert s["mrle"].value < 1e-12
    assert "mrle_debiased" not in s
    assert within(s["spread_skill"], 1.0)


def test_intervals_agree_with_ranks(data) -> None:
    """The bounds are corrected for the number of members."""
    f = summarise(Known(data), data.test, 39)
    for level in LEVELS[:2]:  # (M + 1)(1 ± level)/2 is a whole number: the bounds are two members
        lower, upper = f.interval(level)
        inside = (lower <= data.test.u_eta) & (data.test.u_eta <= upper)
        ranks = np.abs(f.pit - 0.5) <= level / 2
        assert (inside != ranks).mean() < 1e-12


def test_the_true_distribution_is_called_calibrated(perfect) -> None:
    accuracy, calibration, structure, limitations = verdict(perfect)
    assert [s.about for s in verdict(perfect)] == ["Accuracy", "Calibration", "Noise", "Limitations"]
    assert structure.grade == "good"
    assert calibration.grade == "good"
    assert "are calibrated" in calibration.headline
    assert "No bias" in calibration.text
    assert accuracy.grade == "good"
    assert limitations.grade == "good"


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        ({"shift": 0.3}, "biased high"),
        ({"shift": -0.3}, "biased low"),
        ({"factor": 0.5}, "too narrow"),
        ({"factor": 2.0}, "too wide"),
    ],
)
def test_a_defect_is_named(data, defect, words) -> None:
    e = evaluate(Known(data, **defect), data, members=40, calibrate=120, progress=False)
    _, calibration, _, _ = verdict(e)
    assert calibration.grade in ("fair", "poor")
    assert words in calibration.text
    assert "Conformal intervals" in calibration.text
    assert e.scores["coverage_90_conformal"].value == pytest.approx(0.9, abs=0.03)


def test_shared_errors_are_detected_by_whole_fields(data) -> None:
    """The distribution is correct at each point, but points of a member are independent."""
    shared = replace(data, test=pairs(150, 8, shared=0.5), validation=pairs(120, 6, shared=0.5))
    _, calibration, _, _ = verdict(e := evaluate(Known(data), shared, members=40, progress=False))
    assert within(e.scores["coverage_90"], 0.9)
    assert "too narrow" in e.diagnoses["field means"].findings
    assert "whole fields" in calibration.headline + calibration.text
    assert calibration.grade != "good"
    _, right, _, _ = verdict(evaluate(Known(data, shared=0.5), shared, members=40, progress=False))
    assert right.grade == "good"


def test_a_deterministic_model_gets_conformal_intervals(data) -> None:
    e = evaluate(Known(data, deterministic=True), data, calibrate=120, progress=False)
    _, calibration, _, _ = verdict(e)
    assert calibration.grade == "unknown"
    assert "predicts no intervals" in calibration.headline
    assert e.metadata["members"] == 1
    assert e.coverage is None
    assert e.scores["crps"].value == pytest.approx(SIGMA * np.sqrt(2 / np.pi), rel=0.05)  # the mean absolute error
    assert e.scores["coverage_90_conformal"].value == pytest.approx(0.9, abs=0.03)
    assert e.scores["width_90_conformal"].value == pytest.approx(2 * 1.645 * SIGMA, rel=0.1)


def test_masked_outputs_have_no_effect(data) -> None:
    mask = np.ones((150, 1, POINTS), bool)
    mask[:, :, ::4] = False
    test = pairs(150, 1)
    observed = np.where(mask, test.u_eta, np.nan)
    masked = replace(data, test=pdno.Pairs.of(test.a, np.where(mask, test.u, np.nan), u_eta=observed, mask=mask))
    e = evaluate(Known(data), masked, members=40, calibrate=0, progress=False)
    assert within(e.scores["crps"], SIGMA / np.sqrt(np.pi))
    assert within(e.scores["coverage_90"], 0.9)
    assert e.scores["std_noise_ratio"].value == pytest.approx(1.0, abs=0.01)
    assert not e.diagnoses["roughness"].findings
    assert np.isfinite([score.value for score in e.scores.values()]).all()


def test_masked_points_have_no_low_coverage(data) -> None:
    mask = np.ones((150, 1, POINTS), bool)
    mask[:, :, 12:] = False
    test = pairs(150, 1)
    masked = replace(data, test=pdno.Pairs.of(test.a, test.u, u_eta=test.u_eta, mask=mask))
    e = evaluate(Known(data, shift=0.05), masked, members=40, calibrate=0, progress=False)
    assert np.isnan(e.coverage_map[0, 12:]).all()
    assert not e.low_coverage
    assert not e.diagnoses["roughness"].findings  # a shift does not change differences


def test_a_calibrated_model_is_rarely_graded_otherwise() -> None:
    """30 data sets of 12 inputs with mostly shared errors, for which coverage varies strongly."""
    rejected = warned = 0
    for seed in range(30):
        train, test = pairs(20, 3 * seed), pairs(12, 3 * seed + 1, shared=0.9)
        small = pdno.Dataset(pdno.Pairs.of(train.a, train.u_eta), test, {"name": "known"}, None, None)
        e = evaluate(Known(small, shared=0.9), small, members=20, seed=seed, progress=False)
        _, calibration, structure, _ = verdict(e)
        rejected += calibration.grade != "good" or bool(e.low_coverage)
        warned += structure.grade == "poor"
    assert rejected <= 3
    assert warned <= 2


@pytest.mark.parametrize("count", [5, 10])
def test_few_fields_of_one_fate_are_not_called_wrong(count, monkeypatch) -> None:
    """If all fields lie inside, as 59 % of five do, the standard error of the coverage is 0, but nothing is significant."""
    monkeypatch.setattr("pdno.evaluation.scoring.noise_structure", lambda *arguments: None)
    for seed in range(15):
        train, test = pairs(20, seed), pairs(count, 100 + seed, shared=1.0)
        data = pdno.Dataset(pdno.Pairs.of(train.a, train.u_eta), test, {"name": "known"})
        e = evaluate(Known(data, shared=1.0), data, members=19, seed=seed, calibrate=0, progress=False)
        assert verdict(e)[1].grade == "good"


def test_the_corrected_error_is_the_error_if_members_are_exact(data) -> None:
    """Without spread both are the same mean of ratios, also where outputs have very different sizes."""
    test = pairs(40, 5)
    size = np.geomspace(1e-3, 10, 40)[:, None, None]
    u = size * test.u
    sized = replace(data, test=pdno.Pairs.of(test.a, u, u_eta=u))
    s = evaluate(Known(data, factor=0.0, shift=0.1), sized, members=20, calibrate=0, progress=False).scores
    assert s["mrle_debiased"].value == pytest.approx(s["mrle"].value)
    assert s["mrle_debiased"].error == pytest.approx(s["mrle"].error)


def test_cases_are_the_best_the_median_and_the_worst(perfect) -> None:
    errors = perfect.scores["mrle"].each
    best, typical, worst = (case.number for case in perfect.cases)
    assert errors[best] == errors.min()
    assert errors[worst] == errors.max()
    assert (errors < errors[typical]).sum() == len(errors) // 2


def test_members_of_a_case_are_the_evaluated_ones_and_inputs_are_evaluated_once(data) -> None:
    model = Known(data)
    e = evaluate(model, data, members=40, calibrate=20, progress=False)
    assert model.calls == 2  # test and calibration pairs
    for case in e.cases:
        first = next(iter(model.given(data.test.a[case.number][None]).stream(40, start=case.number)))[2][:3]
        assert case.members.shape == (3, 1, POINTS)
        np.testing.assert_array_equal(case.members, first)
    assert evaluate(Known(data, deterministic=True), data, progress=False).cases[0].members.shape == (1, 1, POINTS)


def test_pairs_without_training_data(data) -> None:
    e = evaluate(Known(data), data.test, members=20, progress=False)
    assert "crps_unconditional" not in e.scores
    assert "coverage_90_conformal" not in e.scores
    assert verdict(e)[0].grade == "good"  # by its absolute size


def test_the_residual_of_the_equation_is_scored() -> None:
    eq = equation.Elliptic1D(points=32)
    data = pdno.generate(eq, train=20, test=6, noise=noise.Gaussian(0.01)).split(0.2, 0.0)

    class Solution:
        mean = None

        def __init__(self, a: np.ndarray) -> None:
            self.u = eq.solve(a)

        def stream(self, members, seed=0, *, chunk=None, start=0, **sampling: object) -> Iterator[tuple]:
            for i, field in enumerate(self.u):
                yield np.full(members, i), np.arange(members), np.repeat(field[None], members, axis=0)

    model = Known(data)
    model.given = lambda a, scalars=None: Solution(a)
    e = evaluate(model, data, members=19, calibrate=0, progress=False)
    assert e.scores["residual_mean"].value < 1e-10
    assert e.scores["residual_u"].value < 1e-10
    assert e.scores["mrle"].value < 1e-14


def test_memory_does_not_grow_with_members(data) -> None:
    def peak(members: int) -> int:
        tracemalloc.start()
        summarise(Known(data), data.test[:2], members)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(6000) < 1.1 * peak(2000)


def test_results_do_not_depend_on_other_inputs(data) -> None:
    whole, part = summarise(Known(data), data.test, 20), summarise(Known(data), data.test[:3], 20)
    np.testing.assert_array_equal(whole.pit[:3], part.pit)
    np.testing.assert_array_equal(whole.crps[:3], part.crps)


def test_few_members_cause_no_low_coverage(data) -> None:
    """Intervals are narrow where few members happen to be close together; this is not reported."""
    for seed in range(5):
        assert not evaluate(Known(data), data, members=19, seed=seed, calibrate=0, progress=False).low_coverage


def test_the_range_of_low_coverage_is_named(data) -> None:
    """The noise grows with a, the spread of the members does not: intervals are too narrow where u is large."""
    test = pairs(150, 9)
    grown = np.where(test.a > 3, 3.0, 0.7) * (test.u_eta - test.u)
    wrong = replace(data, test=pdno.Pairs.of(test.a, test.u, u_eta=test.u + grown))
    e = evaluate(Known(data), wrong, members=40, calibrate=0, progress=False)
    limitations = verdict(e)[3]
    assert limitations.grade == "fair"
    assert limitations.headline.startswith("The lowest coverage of 90 % intervals is")
    assert "where the prediction is above 3" in limitations.headline
    assert e.low_coverage[0].coverage < 0.6


def test_the_region_of_low_coverage_is_named(data) -> None:
    test = pairs(150, 10)
    factor = np.where(np.arange(POINTS) < 2, 4.0, 1.0)
    x = np.linspace(-1, 1, POINTS)
    local = pdno.Pairs.of(test.a, test.u, u_eta=test.u + factor * (test.u_eta - test.u), coordinates={"x": x})
    e = evaluate(Known(data), replace(data, test=local), members=40, calibrate=0, progress=False)
    assert f"for x from -1 to {x[1]:.3g}" in verdict(e)[3].headline


def test_a_model_worse_than_the_unconditional_mean_is_poor(data) -> None:
    accuracy = verdict(evaluate(Known(data, shift=5.0), data, members=20, calibrate=0, progress=False))[0]
    assert accuracy.grade == "poor"
    assert "more than the unconditional mean" in accuracy.headline


def test_out_of_distribution_inputs_are_the_first_limitation(data) -> None:
    test = pairs(50, 11)
    other = pdno.Pairs.of(9 * test.a, 9 * test.u, u_eta=9 * test.u_eta)
    _, calibration, _, limitations = verdict(evaluate(Known(data), replace(data, test=other), members=40, progress=False))
    assert limitations.grade == "poor"
    assert limitations.headline.startswith("50 of 50 test inputs are flagged as out of distribution")
    assert "Even conformal intervals" in calibration.text


def test_zero_outputs_have_no_relative_error(data) -> None:
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


def test_levels_that_require_more_members_are_omitted(data) -> None:
    """The probability beyond the outermost of M members is 1/(M + 1) on each side."""
    few = evaluate(Known(data), data, members=20, calibrate=0, progress=False).scores
    assert {"coverage_50", "coverage_90"} <= set(few)
    assert "coverage_95" not in few


def test_unknown_noise_has_no_ratio(data) -> None:
    own = replace(data, provenance={"name": "known", "noise": "heteroscedastic:<lambda>"})
    e = evaluate(Known(data), own, members=20, calibrate=0, progress=False)
    assert "std_noise_ratio" not in e.scores


def test_too_few_calibration_pairs_are_not_used(data) -> None:
    e = evaluate(Known(data), replace(data, validation=data.validation[:5]), members=20, progress=False)
    assert e.metadata["calibration_pairs"] == 0
    assert "coverage_90_conformal" not in e.scores
    none = evaluate(Known(data), replace(data, validation=data.validation[:0]), members=20, progress=False)
    assert none.metadata["calibration_pairs"] == 0


def test_invalid_arguments(data) -> None:
    model = Known(data)
    with pytest.raises(UserError, match="no test pairs to evaluate on"):
        evaluate(model, replace(data, test=data.test[:0]))
    with pytest.raises(UserError, match="at least 19"):
        evaluate(model, data, members=1)
    axes = ("sample", "channel", "x")
    wrong = pdno.Pairs.of(data.test.a, np.repeat(data.test.u, 2, axis=1), dims=(axes, axes))
    with pytest.raises(UserError, match=r"outputs have shape \(2, 16\), expected \(1, 16\) as in training"):
        evaluate(model, wrong)
    with pytest.raises(UserError, match="NaN or infinite"):
        evaluate(model, pdno.Pairs.of(data.test.a, np.full_like(data.test.u, np.nan)))


def test_a_deterministic_model_and_unknown_noise(data) -> None:
    """Without noise in the metadata, u may be noisy; there is no spread to compare the error with."""
    unknown = pdno.Dataset(data.train, pdno.Pairs.of(data.test.a, data.test.u_eta), {"name": "known"}, None, data.validation)
    e = evaluate(Known(data, deterministic=True), unknown, progress=False)
    assert e.metadata["relative_spread"] is None
    accuracy = verdict(e)[0]
    assert "The noise level is unknown" in accuracy.text
    assert "spread" not in accuracy.text


def test_percentages() -> None:
    assert [percent(x) for x in (0.0, 1.0, 0.00123, 0.098, float("nan"))] == ["0 %", "100.0 %", "0.12 %", "9.8 %", "nan %"]
