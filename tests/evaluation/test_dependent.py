"""Dependent test pairs: groups, repeated inputs and series count once in errors, tests, conformal intervals and verdicts."""

from dataclasses import replace

import numpy as np
import pytest

import pdno
from pdno.data.split import one_of_each
from pdno.evaluation import scoring
from pdno.evaluation.calibration import coverage, diagnose, rank_histogram, sharpness, spread_skill
from pdno.evaluation.dependence import groups_of
from pdno.evaluation.low_coverage import low_coverage_range, low_coverage_region
from pdno.evaluation.novelty import Novelty
from pdno.evaluation.score import Score, group_means
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.verdict import verdict
from tests.evaluation.known import POINTS, SIGMA, Known, pairs

SIZE = 6  # of a group


def grouped(count: int, seed: int, shared: float = 0.9) -> pdno.Pairs:
    """Groups of pairs: a fraction `shared` of the variance of the noise is common to a group."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(count), SIZE)
    a = 2 + rng.normal(size=(len(labels), 1, POINTS))
    eta = np.sqrt(shared) * rng.normal(size=(count, 1, POINTS))[labels] + np.sqrt(1 - shared) * rng.normal(size=a.shape)
    return pdno.Pairs.of(a, a, u_eta=a + SIGMA * eta, group=labels)


def dataset(test: pdno.Pairs, validation: pdno.Pairs | None = None) -> pdno.Dataset:
    train = pairs(40, 1000)
    return pdno.Dataset(pdno.Pairs.of(train.a, train.u_eta), test, {"name": "known"}, None, validation)


def test_scores_are_averaged_within_groups() -> None:
    """The mean of group averages with their standard error; unequal groups have equal weights."""
    each, groups = np.array([1.0, 3.0, 5.0, 8.0]), np.array([4, 4, 1, 9])
    assert group_means(each, groups) == pytest.approx([5, 2, 8])
    score = Score.mean(each, groups)
    assert (score.value, score.error) == pytest.approx((5.0, np.sqrt(9 / 3)))
    np.testing.assert_array_equal(score.each, each)
    again = Score.mean(each).grouped(groups)
    assert (again.value, again.error) == (score.value, score.error)
    root = Score.root_of_ratio(each, np.ones(4), groups)
    assert root.value == pytest.approx(np.sqrt(5))
    assert root.error == pytest.approx(np.sqrt(3) / (2 * np.sqrt(5)))
    assert Score(0.0, 0.0, np.array([1.0, np.nan, 3.0])).grouped(np.array([0, 0, 1])).value == 2


def test_copies_of_a_sample_change_no_diagnostic() -> None:
    """Each sample three times as a group: all numbers and errors are those of the samples."""
    rng = np.random.default_rng(0)
    pit, std, error = rng.random((3, 12, 1, 8))
    labels, copies = np.repeat(np.arange(12), 3), lambda x: np.repeat(x, 3, axis=0)
    for once, thrice in (
        (coverage(pit, [0.5, 0.9]), coverage(copies(pit), [0.5, 0.9], groups=labels)),
        (rank_histogram(pit, 4), rank_histogram(copies(pit), 4, groups=labels)),
    ):
        for name in ("error", "value" if hasattr(once, "value") else "density"):
            np.testing.assert_allclose(getattr(thrice, name), getattr(once, name), rtol=1e-9)
    one, three = diagnose(pit), diagnose(copies(pit), groups=labels)
    assert three.samples == one.samples == 12
    assert [c.p for c in three.orders] == pytest.approx([c.p for c in one.orders])
    assert diagnose(copies(pit)).p < 0.9 * one.p  # copies taken for independent samples
    ratio, again = spread_skill(std, error, 20), spread_skill(copies(std), copies(error), 20, groups=labels)
    assert (again.ratio, again.ratio_error) == pytest.approx((ratio.ratio, ratio.ratio_error))
    width, same = sharpness(0 * std, std), sharpness(0 * copies(std), copies(std), groups=labels)
    assert (same.value, same.error) == pytest.approx((width.value, width.error))


def test_low_coverage_of_copies_is_that_of_samples() -> None:
    """Four samples are too few for a test, also with five copies of each; so is a range that two groups reach."""
    inside = np.broadcast_to(np.arange(8) < 7, (20, 1, 8))
    labels, axes = np.repeat(np.arange(4), 5), {"x": np.arange(8.0)}
    assert low_coverage_region(inside, axes, 0.9) is not None
    assert low_coverage_region(inside, axes, 0.9, groups=labels) is None
    values = np.broadcast_to(np.arange(8.0), inside.shape)
    assert low_coverage_range(inside, values, 0.9, "u is") is not None
    assert low_coverage_range(inside, values, 0.9, "u is", groups=labels) is None


def test_a_range_with_one_sample_is_not_called_low() -> None:
    """Fields of one fate at n different levels: the coverage of a range is that of one or two samples, without error."""
    for n in (8, 16):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            values = (rng.permutation(n)[:, None] + 0.01 * rng.random((n, 8)))[:, None]
            inside = np.broadcast_to(rng.random((n, 1, 1)) < 0.9, values.shape)
            assert low_coverage_range(inside, values, 0.9, "u is") is None


def test_groups_of_pairs() -> None:
    """The user's groups, else repeated inputs, else blocks of a series; independent pairs have none."""
    test = grouped(5, 0)
    assert groups_of(test).tolist() == np.repeat(np.arange(5), SIZE).tolist()
    a = test.a[::SIZE]
    repeated = groups_of(pdno.Pairs.of(np.repeat(a, 2, axis=0), np.repeat(a, 2, axis=0)))
    assert len(np.unique(repeated)) == 5
    assert groups_of(pairs(50, 0)) is None
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.normal(size=(200, 1, POINTS)), axis=0)
    blocks = groups_of(pdno.Pairs.of(steps, steps))
    assert len(np.unique(blocks)) == 10
    assert (np.diff(blocks) >= 0).all()


@pytest.fixture
def without_noise(monkeypatch) -> None:
    """Omit the statistics of the noise, which take most of the time of an evaluation."""
    monkeypatch.setattr(scoring, "noise_structure", lambda *arguments: None)


@pytest.mark.slow
def test_a_calibrated_model_of_groups_is_rarely_rejected(without_noise) -> None:
    """Twelve groups of six, 90 % of the noise shared: counted as 72 fields, a third of perfect models would be rejected."""
    rejected = alone = 0
    for seed in range(20):
        test = grouped(12, seed)
        data = dataset(test)
        e = evaluate(Known(data), data, members=19, seed=seed, calibrate=0, progress=False)
        rejected += verdict(e)[1].grade != "good" or bool(e.low_coverage) or not e.diagnoses["points"].passed
        loose = replace(data, test=pdno.Pairs.of(test.a, test.u, u_eta=test.u_eta))
        e = evaluate(Known(data), loose, members=19, seed=seed, calibrate=0, progress=False)
        alone += verdict(e)[1].grade != "good" or bool(e.low_coverage) or not e.diagnoses["points"].passed
    assert rejected <= 1
    assert alone >= 3


def test_the_number_of_groups_is_stated() -> None:
    data = dataset(grouped(7, 0))
    e = evaluate(Known(data), data, members=19, calibrate=0, progress=False)
    accuracy, calibration, _, limitations = verdict(e)
    assert e.metadata["independent"] == 7
    assert "over 42 test inputs in 7 groups" in accuracy.text
    assert "7 independent fields" in calibration.text
    assert "There are only 7 groups" in limitations.headline
    data = dataset(grouped(4, 0))
    e = evaluate(Known(data), data, members=19, calibrate=0, progress=False)
    assert verdict(e)[1].headline.startswith("4 groups are too few to assess calibration")


@pytest.mark.slow
def test_conformal_intervals_are_calibrated_on_one_pair_of_each_group(without_noise) -> None:
    """12 groups, each with one noise field: 12 of 13 ranks are covered. 72 pairs taken for independent cover less."""
    held, loose = [], []
    for seed in range(50):
        test, validation = grouped(4, 2 * seed, 1.0), grouped(12, 2 * seed + 1, 1.0)
        points = evaluate_conformal(test, validation, seed)
        held.append(points)
        loose.append(evaluate_conformal(test, pdno.Pairs.of(validation.a, validation.u, u_eta=validation.u_eta), seed))
    assert np.mean(held) == pytest.approx(12 / 13, abs=4 * np.std(held) / np.sqrt(len(held)))
    assert np.mean(loose) < np.mean(held) - 3 * np.std(np.subtract(held, loose)) / np.sqrt(len(held))


def evaluate_conformal(test: pdno.Pairs, validation: pdno.Pairs, seed: int) -> float:
    data = dataset(test, validation)
    e = evaluate(Known(data, deterministic=True), data, seed=seed, progress=False)
    return e.scores["coverage_90_conformal"].value


def test_calibration_pairs_are_a_sample_of_the_validation_pairs() -> None:
    """Validation pairs may be sorted: the first half here has ten times the noise."""
    validation = pairs(400, 3)
    factor = np.where(np.arange(400) < 200, 10.0, 1.0)[:, None, None]
    noisy = pdno.Pairs.of(validation.a, validation.u, u_eta=validation.u + factor * (validation.u_eta - validation.u))
    data = dataset(pairs(20, 4), noisy)
    e = evaluate(Known(data, deterministic=True), data, calibrate=100, progress=False)
    large = 10 * SIGMA * 1.28  # 80 % of large errors are 90 % of all of them
    assert e.metadata["calibration_pairs"] == 100
    assert e.conformal["points"].factor.mean() == pytest.approx(large, rel=0.15)


def test_one_of_each_is_a_random_member() -> None:
    groups = np.repeat(np.arange(200), 10)
    rows = one_of_each(groups, len(groups))
    assert sorted(groups[rows]) == list(range(200))
    assert (rows % 10).mean() == pytest.approx(4.5, abs=4 * 2.87 / np.sqrt(200))
    assert one_of_each(None, 3).tolist() == [0, 1, 2]


def test_a_new_trajectory_is_flagged_at_the_nominal_rate() -> None:
    """Inputs grow along each trajectory: the first of each are no sample, and half of the rest would be flagged."""
    rng = np.random.default_rng(0)

    def trajectories(count: int) -> np.ndarray:
        return (rng.normal(size=(count, 1, 1, 32)) * np.linspace(1, 3, 10)[:, None, None]).reshape(-1, 1, 32)

    novelty = Novelty.halves(trajectories(200), group=np.repeat(np.arange(200), 10))
    assert novelty.flag(trajectories(300)).mean() == pytest.approx(0.07, abs=0.05)


def test_the_number_of_flagged_inputs_has_a_beta_binomial_distribution() -> None:
    """Of n scores the k-th is the threshold: the rate is Beta(n + 1 − k, k); for one input the mean, (n + 1 − k)/(n + 1)."""
    rng = np.random.default_rng(0)
    novelty = Novelty.of(rng.normal(size=(100, 1, 8)), rng.normal(size=(19, 1, 8)), alpha=0.1)
    assert novelty.excess(1, 1) == pytest.approx(2 / 20)
    assert novelty.excess(0, 5) == pytest.approx(1)
    assert novelty.excess(2, 2) == pytest.approx(2 * 3 / (20 * 21))  # E p² of Beta(2, 18)
    assert novelty.excess(1, 0) == 1


def test_the_histogram_takes_masks_weights_and_groups() -> None:
    """Three samples in two groups, by hand: densities are fractions of the observed weight, times the number of bins."""
    pit = np.array([[0.1, 0.9, 0.6], [0.2, 0.3, 0.9], [0.7, 0.1, 0.2]])
    mask, weights = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], bool), np.array([1.0, 3.0, 2.0])
    below = np.array([1 / 4, 4 / 6, 5 / 6])  # weight below ½
    one = rank_histogram(pit, 2, mask=mask, weights=weights)
    np.testing.assert_allclose(one.density, [2 * below.mean(), 2 - 2 * below.mean()])
    groups = np.array([1, 1, 0])
    two = rank_histogram(pit, 2, mask=mask, weights=weights, groups=groups)
    mean = (below[:2].mean() + below[2]) / 2
    np.testing.assert_allclose(two.density, [2 * mean, 2 - 2 * mean])
    np.testing.assert_allclose(two.error, abs(below[:2].mean() - below[2]))
    half = coverage(pit, [0.0, 0.5, 1.0], mask=mask, weights=weights, groups=groups)
    inside = np.array([0, 3 / 6, 1 / 6])  # of the points within .25 of ½
    np.testing.assert_allclose(half.value, [0, (inside[:2].mean() + inside[2]) / 2, 1])
    with pytest.raises(pdno.UserError, match="numbers between 0 and 1"):
        coverage(pit, [1.5])
    assert len(rank_histogram(pit).density) == 20


def test_intervals_of_no_width_are_intervals() -> None:
    assert sharpness([[1.0, 2.0]], [[1.0, 5.0]]).value == 1.5
    assert sharpness([[1.0]], [[1.0]]).value == 0
