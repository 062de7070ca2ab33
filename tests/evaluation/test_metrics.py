"""Scores of forecasts: hand arithmetic, closed forms and the package scoringrules are the oracles."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

from pdno import UserError
from pdno.evaluation import metrics
from pdno.evaluation.metrics import (
    RunningCRPS,
    RunningEnergy,
    Score,
    crps,
    energy_score,
    mean_std,
    mrle,
    mstd,
    nll,
    per_sample,
    relative_residual,
    rmse,
    spectral_distance,
    spectrum,
)

CRPS_AT_0 = (np.sqrt(2) - 1) / np.sqrt(np.pi)  # of N(0, 1), observed 0
MEAN_CRPS = 1 / np.sqrt(np.pi)  # of N(0, 1), observed N(0, 1): ½ E|X − X'|
few = settings(max_examples=25, deadline=None)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# Every score of fields as a function of (members, u, mask and weights); means and deviations are made from members.
SCORES: dict[str, Callable[..., Score]] = {
    "mrle": lambda x, u, **where: mrle(x[0], u, **where),
    "residual": lambda x, u, **where: relative_residual(x[0], u, **where),
    "rmse": lambda x, u, **where: rmse(x.mean(axis=0), u, **where),
    "mstd": lambda x, u, **where: mstd(x.std(axis=0), len(x), **where),
    "mean_std": lambda x, u, **where: mean_std(x.std(axis=0), **where),
    "nll": lambda x, u, **where: nll(x.mean(axis=0), x.std(axis=0), u, **where),
    "crps": crps,
    "energy_score": energy_score,
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)


# Hand arithmetic


def test_score_of_four_samples() -> None:
    score = Score.mean([1, 2, 3, 6])
    assert float(score) == score.value == 3
    assert score.error == pytest.approx(np.sqrt((4 + 1 + 0 + 9) / 3) / 2)
    np.testing.assert_array_equal(score.each, [1, 2, 3, 6])


def test_one_sample_has_no_error() -> None:
    assert np.isnan(Score.mean([2]).error)
    assert np.isnan(rmse([[1.0]], [[0.0]]).error)
    assert np.isnan(spectral_distance([[1, 2]], [[3, 4]]).error)


def test_means_of_samples() -> None:
    values = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    np.testing.assert_allclose(per_sample(values), [2.5, 6.5])
    np.testing.assert_allclose(per_sample(values, weights=[1, 3]), [(1 + 6 + 3 + 12) / 8, (5 + 18 + 7 + 24) / 8])
    np.testing.assert_allclose(per_sample(values, mask=[True, False]), [2, 6])
    np.testing.assert_allclose(per_sample([1.0, 7.0]), [1, 7])
    np.testing.assert_allclose(per_sample([[True, False], [True, True]]), [0.5, 1])


def test_relative_error() -> None:
    score = mrle([[[3, 0]], [[1, 1]]], [[[3, 4]], [[1, 1]]])
    np.testing.assert_allclose(score.each, [0.8, 0])
    assert score.value == pytest.approx(0.4)
    assert relative_residual([[[0, 4]]], [[[3, 4]]]).value == pytest.approx(0.8)


def test_root_mean_square_error() -> None:
    score = rmse([[1, 1], [0, 2]], [[0, 0], [0, 0]])
    assert score.value == pytest.approx(np.sqrt(1.5))  # of mean squares 1 and 2
    assert score.error == pytest.approx(0.5 / (2 * np.sqrt(1.5)))
    np.testing.assert_allclose(score.each, [1, np.sqrt(2)])
    assert rmse([[1, 1], [0, 2]], [[1, 1], [0, 2]]).error == 0


def test_standard_deviations() -> None:
    std = [[[3, 4]], [[6, 8]]]
    assert mstd(std, 10).value == pytest.approx((5 / 10 + 10 / 10) / 2)
    assert mean_std(std).value == pytest.approx((5 / np.sqrt(2) + 10 / np.sqrt(2)) / 2)


def test_the_papers_formula_literally() -> None:
    u = normal(7, 5, 2, 4, 3)
    std = u.std(axis=0, ddof=1)
    literal = sum(np.sqrt((std[n] ** 2).sum()) / 7 for n in range(5)) / 5
    assert mstd(std, 7).value == pytest.approx(literal, rel=1e-14)
    assert mstd(std, 7, weights=np.full(3, 0.1)).value == pytest.approx(literal, rel=1e-14)


def test_crps_of_three_members() -> None:
    score = crps(np.reshape([0, 1, 5], (3, 1, 1)), [[2]])
    assert score.value == pytest.approx((2 + 1 + 3) / 3 - (1 + 5 + 4) / 3 / 2)
    assert crps([[[5.0]]], [[2.0]]).value == 3


def test_energy_score_of_three_members() -> None:
    members = np.reshape([[3, 4], [0, 0], [6, 8]], (3, 1, 2))
    score = energy_score(members, [[0, 0]])
    assert score.value == pytest.approx(((5 + 0 + 10) / 3 - (5 + 5 + 10) / 3 / 2) / np.sqrt(2))
    assert energy_score(members[:1], [[0, 0]]).value == pytest.approx(5 / np.sqrt(2))


def test_likelihood() -> None:
    score = nll([[0, 1]], [[1, 2]], [[1, 5]])
    at_points = 0.5 * np.log(2 * np.pi) + 0.5, 0.5 * np.log(2 * np.pi * 4) + 16 / 8
    assert score.value == pytest.approx(np.mean(at_points))


def test_likelihood_without_spread() -> None:
    """u = m was certain, anything else impossible; a sample with both, and a mean over both kinds, is impossible."""
    assert nll([[1.0]], [[0.0]], [[1.0]]).value == -np.inf
    assert nll([[1.0]], [[0.0]], [[2.0]]).value == np.inf
    assert nll([[1e300]], [[1e-300]], [[-1e300]]).value == np.inf
    both = nll([[1, 1], [1, 1], [1, 1]], [[0, 0], [0, 0], [1, 1]], [[1, 2], [1, 1], [1, 1]])
    np.testing.assert_array_equal(both.each[:2], [np.inf, -np.inf])
    assert both.value == np.inf
    assert np.isnan(both.error)


def test_spectral_distance_by_hand() -> None:
    p, q = [[150, 2], [50, 0]], [[2, 1], [0, 1]]  # means 100, 1 and 1, 1
    score = spectral_distance(p, q)
    assert score.value == pytest.approx(np.sqrt((2**2 + 0) / 2), rel=1e-6)
    assert spectral_distance(q, q).value == 0


# Other people's code


@pytest.mark.parametrize("count", [2, 3, 20])
def test_against_scoringrules(count) -> None:
    x, u = normal(count, 4, 2, 5, 3), normal(4, 2, 5, 3, seed=1)
    points = scoringrules.crps_ensemble(u, x, m_axis=0, estimator="fair", backend="numpy")
    np.testing.assert_allclose(crps(x, u).each, points.reshape(4, -1).mean(axis=1), rtol=1e-12)
    flat = x.reshape(count, 4, -1)
    scores = scoringrules.es_ensemble(u.reshape(4, -1), flat, m_axis=0, v_axis=-1, estimator="fair", backend="numpy")
    np.testing.assert_allclose(energy_score(x, u).each, scores / np.sqrt(30), rtol=1e-10)


# Closed forms


def test_fair_scores_are_unbiased() -> None:
    """20,000 ensembles of two members; by chance one seed in 16,000 is more than four standard errors off."""
    x = normal(2, 20_000, 1)
    for score in crps(x, np.zeros((20_000, 1))), energy_score(x, np.zeros((20_000, 1))):
        assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.03


def test_gaussian_likelihood_on_average() -> None:
    """E NLL is the entropy ½ ln 2πe σ² of N(0, σ²)."""
    zeros = np.zeros((5000, 1))
    score = nll(zeros, zeros + 3, 3 * normal(5000, 1))
    assert abs(score.value - 0.5 * np.log(2 * np.pi * np.e * 9)) < 4 * score.error < 0.05


@pytest.mark.parametrize("score", [crps, energy_score, SCORES["nll"]], ids=["crps", "energy_score", "nll"])
def test_the_law_of_observations_is_the_best_forecast(score) -> None:
    """Differences between paired scores are ten standard errors or more."""
    x, u = normal(30, 2000, 4), normal(2000, 4, seed=1)
    right = score(x, u).each
    for wrong in 0.5 * x, 2 * x, x + 0.5:
        gain = Score.mean(score(wrong, u).each - right)
        assert gain.value > 8 * gain.error


@pytest.mark.parametrize("score", [mrle, rmse], ids=["mrle", "rmse"])
def test_a_perfect_prediction_has_no_error(score) -> None:
    u = normal(3, 1, 6)
    assert score(u, u).value == 0


@pytest.mark.parametrize("grid", [(16,), (1,), (6, 9), (4, 3, 5)])
def test_bands_keep_all_power(grid) -> None:
    v = normal(3, 2, *grid)
    found = spectrum(v)
    assert found.shape == (3, 1 + round(np.sqrt(sum((n - 1) ** 2 for n in grid))))
    np.testing.assert_allclose(found.sum(axis=1), (v**2).sum(axis=tuple(range(1, v.ndim))), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 1, 7, 15])
def test_a_cosine_is_in_its_band(k) -> None:
    wave = np.cos(np.pi * k * (np.arange(16) + 0.5) / 16)
    expected = np.zeros(16)
    expected[k] = (wave**2).sum()
    np.testing.assert_allclose(spectrum(wave[None, None])[0], expected, atol=1e-12)


def test_bands_in_two_dimensions_are_rings() -> None:
    i, j = np.meshgrid((np.arange(12) + 0.5) / 12, (np.arange(8) + 0.5) / 8, indexing="ij")
    wave = np.cos(np.pi * 3 * i) * np.cos(np.pi * 5 * j)
    found = spectrum(wave[None, None])[0]
    assert found[round(np.sqrt(34))] == pytest.approx((wave**2).sum())
    assert found.sum() == pytest.approx((wave**2).sum())


def test_distance_of_a_known_factor() -> None:
    q = np.random.default_rng(0).exponential(size=(50, 6))
    assert spectral_distance(10 * q, q).value == pytest.approx(1, rel=1e-6)
    assert spectral_distance(10 * q, q).error < 1e-6
    assert spectral_distance(q, 100 * q).value == pytest.approx(2, rel=1e-6)


def test_empty_bands_are_quiet() -> None:
    assert spectral_distance([[1.0, 0.0]], [[1.0, 0.0]]).value == 0
    assert spectral_distance([[1.0, 1e-20]], [[1.0, 0.0]]).value < 1e-10


def test_jackknife_by_leaving_out() -> None:
    p, q = np.random.default_rng(0).exponential(size=(2, 8, 5))
    score = spectral_distance(p, q)
    without = np.array([spectral_distance(np.delete(p, n, 0), np.delete(q, n, 0)).value for n in range(8)])
    np.testing.assert_allclose(score.each, 8 * score.value - 7 * without, rtol=1e-6)
    assert score.error == pytest.approx(np.sqrt(7 / 8 * ((without - without.mean()) ** 2).sum()), rel=1e-6)


# Monte-Carlo errors


def spectra_of(z: np.ndarray) -> Score:
    """Means 4 and 1 in three bands, of independent predictions and observations."""
    return spectral_distance(4 * z[:, :3] ** 2, z[:, 3:6] ** 2)


@pytest.mark.parametrize(
    ("score", "truth"),
    [
        (lambda z: mrle(1 + z[:, :1], np.ones((len(z), 1))), np.sqrt(2 / np.pi)),
        (lambda z: rmse(z, 0 * z), 1.0),
        (lambda z: crps(z.T[:2, :, None], z[:, 2:3]), MEAN_CRPS),
        (lambda z: energy_score(z.T[:2, :, None], z[:, 2:3]), MEAN_CRPS),
        (lambda z: nll(0 * z, 1 + 0 * z, z), 0.5 * np.log(2 * np.pi * np.e)),
        (spectra_of, np.log10(4)),
    ],
    ids=["mrle", "rmse", "crps", "energy_score", "nll", "spectral_distance"],
)
def test_two_errors_cover_the_truth(score, truth) -> None:
    """In 95 % of 500 repetitions with 100 samples, give or take 1 % by chance and a little more by the samples' skewness."""
    scores = [score(normal(100, 6, seed=seed)) for seed in range(500)]
    covered = np.mean([abs(s.value - truth) <= 2 * s.error for s in scores])
    assert 0.91 < covered < 0.98


# Masks and weights


@every_score
def test_what_is_unknown_never_matters(score) -> None:
    x, u = normal(6, 4, 2, 5), normal(4, 2, 5, seed=1)
    mask = np.random.default_rng(2).random((4, 2, 5)) < 0.6
    expected = score(x, u, mask=mask)
    for garbage in np.nan, 1e9:
        spoilt = score(np.where(mask, x, garbage), np.where(mask, u, garbage), mask=mask)
        np.testing.assert_array_equal(spoilt.each, expected.each)
    only_u = score(x, np.where(mask, u, np.nan), mask=mask)
    np.testing.assert_array_equal(only_u.each, expected.each)
    for n in range(4):
        dropped = score(x[:, n][:, mask[n]][:, None], u[n][mask[n]][None])
        np.testing.assert_allclose(expected.each[n], dropped.value, rtol=1e-10)


@every_score
@given(counts=st.lists(st.integers(0, 3), min_size=5, max_size=5).filter(any), seed=st.integers(0, 9))
@few
def test_weights_repeat_points(score, counts, seed) -> None:
    x, u = normal(4, 3, 2, 5, seed=seed), normal(3, 2, 5, seed=seed + 10)
    weighted = score(x, u, weights=0.1 * np.array(counts)).each
    repeated = score(np.repeat(x, counts, axis=-1), np.repeat(u, counts, axis=-1)).each
    if score is SCORES["mstd"]:  # the Euclidean norm grows with the number of points
        repeated = repeated * np.sqrt(np.count_nonzero(counts) / sum(counts))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


@every_score
def test_masks_and_weights_broadcast(score) -> None:
    x, u = normal(4, 3, 2, 5, 4), normal(3, 2, 5, 4, seed=1)
    mask, weights = np.arange(5)[:, None] != 2, np.arange(1.0, 5.0)
    full = score(x, u, mask=np.broadcast_to(mask, u.shape), weights=np.broadcast_to(weights, u.shape[1:]))
    np.testing.assert_array_equal(score(x, u, mask=mask, weights=weights).each, full.each)


@every_score
@given(order=st.permutations(range(4)), points=st.permutations(range(6)))
@few
def test_order_of_samples_and_points_does_not_matter(score, order, points) -> None:
    x, u = normal(5, 4, 6), normal(4, 6, seed=1)
    moved = score(x[:, order][..., points], u[order][:, points])
    np.testing.assert_allclose(moved.each, score(x, u).each[list(order)], rtol=1e-9)
    assert moved.error == pytest.approx(score(x, u).error)


@pytest.mark.parametrize("score", [crps, energy_score])
@given(seed=st.integers(0, 99), scale=st.sampled_from([-3.0, 1e-3, 50.0]), shift=st.sampled_from([0.0, -7.0]))
@few
def test_units_and_origin(score, seed, scale, shift) -> None:
    x, u = normal(5, 2, 3, seed=seed), normal(2, 3, seed=seed + 100)
    np.testing.assert_allclose(score(scale * x + shift, scale * u + shift).each, abs(scale) * score(x, u).each, rtol=1e-8)


def test_both_scores_agree_at_one_point() -> None:
    x, u = normal(9, 5, 1), normal(5, 1, seed=1)
    np.testing.assert_allclose(energy_score(x, u).each, crps(x, u).each, rtol=1e-9)


# Numbers and memory


@pytest.mark.parametrize("score", [crps, energy_score])
def test_small_spreads_far_from_zero(score) -> None:
    """Multiples of 2⁻²⁰, which 10⁶ keeps exactly: sums of squares or of ordered members would lose them."""
    x = np.random.default_rng(0).integers(-500, 500, size=(40, 1, 8)) * 2.0**-20
    u = np.zeros((1, 8))
    np.testing.assert_allclose(score(x + 1e6, u + 1e6).each, score(x, u).each, rtol=1e-6)


@pytest.mark.parametrize("score", [crps, energy_score])
def test_blocks_do_not_matter(score, monkeypatch) -> None:
    x, u = normal(70, 2, 3, 7), normal(2, 3, 7, seed=1)
    expected = score(x, u).each
    monkeypatch.setattr(metrics, "BLOCK", 100)
    np.testing.assert_allclose(score(x, u).each, expected, rtol=1e-12)


@pytest.mark.parametrize("score", [crps, energy_score])
def test_members_in_single_precision(score) -> None:
    x, u = normal(20, 2, 9).astype(np.float32), normal(2, 9, seed=1)
    np.testing.assert_array_equal(score(x, u).each, score(x.astype(np.float64), u).each)


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("score", [crps, energy_score])
def test_arrays_are_not_copied(score, monkeypatch) -> None:
    x, u = normal(2000, 1, 1, 32, 32), normal(1, 1, 32, 32, seed=1)
    monkeypatch.setattr(metrics, "BLOCK", 2**16)
    assert peak(lambda: score(x, u)) < x.nbytes / 4


# Members that come batch by batch


def fed(running: RunningCRPS | RunningEnergy, x: np.ndarray, cuts: list[int]) -> RunningCRPS | RunningEnergy:
    for batch in np.split(x, sorted(min(cut, len(x)) for cut in cuts)):
        running.add(batch)
    return running


@given(count=st.integers(1, 100), cuts=st.lists(st.integers(0, 100), max_size=6))
@few
def test_running_scores_are_those_of_arrays_at_first(count, cuts) -> None:
    x, u = normal(count, 2, 3, 4), normal(2, 3, 4, seed=1)
    mask, weights = np.arange(3)[:, None] != 1, np.arange(4)
    points = crps(x.reshape(count, -1), u.ravel()).each.reshape(u.shape)
    np.testing.assert_allclose(fed(RunningCRPS(u), x, cuts).value, points, rtol=1e-12, atol=1e-13)
    energy = energy_score(x[:, None], u[None], mask=mask, weights=weights).value
    assert fed(RunningEnergy(u, mask=mask, weights=weights), x, cuts).value == pytest.approx(energy, rel=1e-12)


@given(count=st.integers(95, 350), cuts=st.lists(st.integers(0, 350), max_size=6))
@few
def test_cuts_do_not_matter(count, cuts) -> None:
    x, u = normal(count, 3), normal(3, seed=1)
    for kind in RunningCRPS, RunningEnergy:
        np.testing.assert_array_equal(fed(kind(u), x, cuts).value, fed(kind(u), x, list(range(0, count, 4))).value)


@pytest.mark.parametrize("kind", [RunningCRPS, RunningEnergy])
def test_asking_changes_nothing(kind) -> None:
    x, u = normal(250, 3), normal(3, seed=1)
    silent, asked = kind(u), kind(u)
    for start in range(0, 250, 7):
        silent.add(x[start : start + 7])
        asked.add(x[start : start + 7])
        fresh = kind(u)
        fresh.add(x[: start + 7])
        np.testing.assert_array_equal(asked.value, fresh.value)
    np.testing.assert_array_equal(asked.value, silent.value)
    assert asked.count == 250


def test_pairs_within_hundreds_by_hand() -> None:
    x, u = normal(230, 2), np.zeros(2)
    parts = [x[:100], x[100:200], x[200:]]
    sums = sum(np.abs(part[:, None] - part).sum(axis=(0, 1)) / 2 for part in parts)
    expected = np.abs(x).mean(axis=0) - 0.5 * sums / (4950 + 4950 + 435)
    np.testing.assert_allclose(fed(RunningCRPS(u), x, [17]).value, expected, rtol=1e-12)
    sums = sum(np.linalg.norm(part[:, None] - part, axis=-1).sum() / 2 for part in parts)
    expected = (np.linalg.norm(x, axis=1).mean() - 0.5 * sums / (4950 + 4950 + 435)) / np.sqrt(2)
    assert fed(RunningEnergy(u), x, [17]).value == pytest.approx(expected, rel=1e-10)


def test_more_members_stay_unbiased() -> None:
    """250 members, half a buffer among them, at 2000 independent points; one seed in 16,000 would fail by chance."""
    score = Score.mean(fed(RunningCRPS(np.zeros(2000)), normal(250, 2000), [130]).value)
    assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.01
    energies = [fed(RunningEnergy([0.0]), normal(250, 1, seed=seed), []).value for seed in range(300)]
    score = Score.mean(energies)
    assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.02


def test_pairs_within_hundreds_lose_little() -> None:
    """The mean over all pairs is the best one, so what others add to it is uncorrelated and variances subtract.

    For Gaussians ζ₁ = 4/π (√3/2 + π/12 − 1), ζ₂ = 2 − 4/π. The deviation over 2000 points is within 1.6 % as a rule.
    """
    one, two = 4 / np.pi * (np.sqrt(3) / 2 + np.pi / 12 - 1), 2 - 4 / np.pi
    x, u = normal(1000, 2000), np.zeros(2000)
    added = fed(RunningCRPS(u), x, []).value - crps(x, u).each
    assert added.std() == pytest.approx(0.5 * np.sqrt(2 * (two - 2 * one) / 1000 * (1 / 99 - 1 / 999)), rel=0.07)
    assert 2 * (two - 2 * one) / 99 / (4 * one) == pytest.approx(0.012, abs=0.0005)


def test_no_member_and_one() -> None:
    points, energy = RunningCRPS([1.0, 2.0]), RunningEnergy([1.0, 2.0])
    for running in points, energy:
        assert np.isnan(running.value).all()
        running.add(np.empty((0, 2)))
        assert np.isnan(running.value).all()
        running.add([[4.0, -2.0]])
    np.testing.assert_array_equal(points.value, [3, 4])
    assert energy.value == pytest.approx(5 / np.sqrt(2))


def test_running_scores_know_what_is_unknown() -> None:
    u, mask = np.array([1.0, np.nan, 3.0]), np.array([True, False, True])
    x = normal(120, 3)
    x[:, 1] = np.nan
    points = fed(RunningCRPS(u), x, [50]).value
    np.testing.assert_array_equal(np.isnan(points), ~mask)
    np.testing.assert_array_equal(points[mask], fed(RunningCRPS(u[mask]), x[:, mask], []).value)
    energy = fed(RunningEnergy(u, mask=mask), x, [50]).value
    assert energy == pytest.approx(fed(RunningEnergy(u[mask]), x[:, mask], []).value, rel=1e-12)
    assert per_sample(points[None], mask=mask)[0] == pytest.approx(points[mask].mean())


def test_memory_does_not_grow_with_members() -> None:
    u = np.zeros((1, 32, 32))
    chunk = normal(4, 1, 32, 32)

    def judge(count: int) -> None:
        points, energy = RunningCRPS(u), RunningEnergy(u)
        for _ in range(0, count, 4):
            points.add(chunk)
            energy.add(chunk)
        assert points.count == count
        assert points.value.mean() > 0
        assert energy.value > 0

    judge(4)
    assert peak(lambda: judge(2000)) <= 1.02 * peak(lambda: judge(300))


# What is refused

u23, x423 = normal(2, 3), normal(4, 2, 3)
nan23 = np.where(np.arange(3) == 1, np.nan, u23)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Score.mean([]), r"scores of samples have shape \(0,\)"),
        (lambda: Score.mean([[1.0]]), r"scores of samples have shape \(1, 1\)"),
        (lambda: per_sample(3.0), "a single number was given"),
        (lambda: per_sample(nan23), "values to be averaged are NaN at known points"),
        (lambda: per_sample(u23, mask=[[True], [False]]), "sample 1 has no known point of positive weight"),
        (lambda: per_sample(u23, weights=[0, 0, 0]), "sample 0 has no known point of positive weight"),
        (lambda: per_sample(np.empty((2, 0))), "sample 0 has no known point"),
        (lambda: per_sample(u23, weights=[1, -1, 1]), r"weights of shape \(3,\), the least -1.0, expected finite numbers ≥ 0"),
        (lambda: per_sample(u23, weights=[1, np.nan, 1]), r"the least nan, expected finite numbers ≥ 0"),
        (lambda: per_sample(u23, weights=[1, 2]), r"weights of shape \(2,\), .* for samples of shape \(3,\)"),
        (lambda: per_sample(u23, weights=u23**2), r"weights of shape \(2, 3\), .* for samples of shape \(3,\)"),
        (lambda: per_sample(u23, mask=[1.0, 0.0, 1.0]), "a mask is float64 .* give True where u is known"),
        (lambda: per_sample(u23, mask=[True, False]), r"a mask is bool of shape \(2,\), .* fields of shape \(2, 3\)"),
        (lambda: mrle(u23[:1], u23), r"v has shape \(1, 3\), u has \(2, 3\)"),
        (lambda: mrle(u23, nan23), "u has NaN or infinite values"),
        (lambda: mrle(nan23, u23), "v has NaN or infinite values"),
        (lambda: mrle(u23, 0 * u23), "all samples are zero, so that no error is relative to them"),
        (lambda: mrle(np.empty((0, 3)), np.empty((0, 3))), r"u has shape \(0, 3\), so no values"),
        (lambda: relative_residual(u23, u23[:, :2]), r"residual has shape \(2, 3\), reference has \(2, 2\)"),
        (lambda: relative_residual(u23, 0 * u23), "all samples are zero"),
        (lambda: rmse(u23, u23[0]), r"v has shape \(2, 3\), u has \(3,\)"),
        (lambda: mstd(np.abs(u23), 1), "members = 1, expected 2 or more"),
        (lambda: mstd(-np.abs(u23), 2), "std has negative values"),
        (lambda: mean_std(-np.abs(u23)), "std has negative values"),
        (lambda: nll(u23, -np.abs(u23), u23), "std has negative values"),
        (lambda: nll(u23, u23[:1], u23), r"std has shape \(1, 3\), u has \(2, 3\)"),
        (lambda: crps(x423, u23[:1]), r"members have shape \(4, 2, 3\), expected \(member, 1, 3\)"),
        (lambda: crps(1.0, u23), r"members have shape \(\), expected \(member, 2, 3\)"),
        (lambda: crps(x423[:0], u23), "an ensemble without members"),
        (lambda: crps(x423, nan23), "u has NaN or infinite values"),
        (lambda: crps(np.where(x423 > 0, np.inf, x423), u23), "members are NaN or infinite at known points"),
        (lambda: energy_score(x423, u23[:1]), r"members have shape \(4, 2, 3\), expected \(member, 1, 3\)"),
        (lambda: energy_score(x423[:0], u23), "an ensemble without members"),
        (lambda: spectrum(u23), r"fields have shape \(2, 3\), expected \(sample, channel, \*grid\)"),
        (lambda: spectrum(nan23[None]), "field has NaN or infinite values"),
        (lambda: spectral_distance(u23**2, u23[:1] ** 2), r"p has shape \(2, 3\), q has \(1, 3\)"),
        (lambda: spectral_distance(u23[0] ** 2, u23[0] ** 2), r"p and q of shape \(3,\) are not spectra"),
        (lambda: spectral_distance(-(u23**2), u23**2), "are not spectra"),
        (lambda: spectral_distance(u23**2, 0 * u23), "spectra q of observations are zero"),
        (lambda: RunningCRPS([np.inf, 1.0]), "u has NaN or infinite values"),
        (lambda: RunningCRPS([1.0]).add([1.0]), r"members have shape \(1,\), expected \(member, 1\)"),
        (lambda: RunningCRPS([1.0]).add([[np.nan]]), "members are NaN or infinite"),
        (lambda: RunningEnergy(nan23), "u has NaN or infinite values"),
        (lambda: RunningEnergy(u23, mask=False), "no known point"),
        (lambda: RunningEnergy(u23).add(u23), r"members have shape \(2, 3\), expected \(member, 2, 3\)"),
        (lambda: RunningEnergy([1.0]).add([[np.inf]]), "members are NaN or infinite"),
    ],
)
def test_what_is_refused(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_refused_batch_leaves_no_trace() -> None:
    running = RunningCRPS([0.0])
    running.add([[1.0], [3.0]])
    with pytest.raises(UserError, match="members are NaN"):
        running.add([[1.0], [np.nan]])
    assert running.count == 2
    assert running.value == pytest.approx(2 - 1)


def test_samples_that_are_zero_have_no_relative_error() -> None:
    score = mrle([[3.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [0.0, 0.0]])
    assert score.value == 0.8
    np.testing.assert_array_equal(score.each, [0.8, np.nan])


def test_root_of_a_ratio_of_means() -> None:
    """By hand: √((4 + 12)/(1 + 3)) = 2; top − 4·bottom is zero, hence without error. And its error against many repetitions."""
    exact = Score.root_of_ratio(np.array([4.0, 12.0]), np.array([1.0, 3.0]))
    assert (exact.value, exact.error) == (2.0, 0.0)
    assert Score.root_of_ratio(np.array([-1.0, 0.5]), np.ones(2)).value == 0
    assert np.isnan(Score.root_of_ratio(np.array([-1.0, 0.5]), np.ones(2)).error)
    assert Score.root_of_ratio(np.ones(2), np.zeros(2)).value == np.inf
    rng = np.random.default_rng(0)
    scores = [Score.root_of_ratio(rng.exponential(2.0, 200), rng.exponential(1.0, 200)) for _ in range(1000)]
    values = np.array([score.value for score in scores])
    assert np.mean([score.error for score in scores]) == pytest.approx(values.std(), rel=0.1)
