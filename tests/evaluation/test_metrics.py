"""Scores of predictions, compared with hand arithmetic, closed forms and the package scoringrules."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st

from pdno import UserError
from pdno.evaluation import running
from pdno.evaluation.metrics import (
    Score,
    crps,
    energy_score,
    mean_std,
    mrle,
    mstd,
    nll,
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


# Every score of fields as a function of (members, u, mask and weights); means and deviations are computed from members.
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


def test_one_sample_has_no_error() -> None:
    assert np.isnan(Score.mean([2]).error)
    assert np.isnan(rmse([[1.0]], [[0.0]]).error)
    assert np.isnan(spectral_distance([[1, 2]], [[3, 4]]).error)


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


def test_mstd_is_the_formula_of_the_paper() -> None:
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
    """−∞ for u = m, +∞ otherwise; +∞ for a sample or a mean over samples with both."""
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


# The package scoringrules


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
    """20,000 ensembles of two members; four standard errors are exceeded for one seed in 16,000."""
    x = normal(2, 20_000, 1)
    for score in crps(x, np.zeros((20_000, 1))), energy_score(x, np.zeros((20_000, 1))):
        assert abs(score.value - CRPS_AT_0) < 4 * score.error < 0.03


def test_gaussian_likelihood_on_average() -> None:
    """The expected NLL is the entropy ½ ln 2πe σ² of N(0, σ²)."""
    zeros = np.zeros((5000, 1))
    score = nll(zeros, zeros + 3, 3 * normal(5000, 1))
    assert abs(score.value - 0.5 * np.log(2 * np.pi * np.e * 9)) < 4 * score.error < 0.05


@pytest.mark.parametrize("score", [crps, energy_score, SCORES["nll"]], ids=["crps", "energy_score", "nll"])
def test_proper_scores_are_best_for_the_distribution_of_observations(score) -> None:
    """Differences of paired scores exceed eight standard errors."""
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
def test_bands_sum_to_the_total_power(grid) -> None:
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


def test_empty_bands_do_not_contribute() -> None:
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
    """In 95 % of 500 repetitions with 100 samples, up to 1 % by chance and a little more by the skewness of samples."""
    scores = [score(normal(100, 6, seed=seed)) for seed in range(500)]
    covered = np.mean([abs(s.value - truth) <= 2 * s.error for s in scores])
    assert 0.91 < covered < 0.98


# Masks and weights


@every_score
def test_masked_values_have_no_effect(score) -> None:
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
    """Multiples of 2⁻²⁰, exact next to 10⁶: sums of squares or of ordered members would lose them."""
    x = np.random.default_rng(0).integers(-500, 500, size=(40, 1, 8)) * 2.0**-20
    u = np.zeros((1, 8))
    np.testing.assert_allclose(score(x + 1e6, u + 1e6).each, score(x, u).each, rtol=1e-6)


@pytest.mark.parametrize("score", [crps, energy_score])
def test_blocks_do_not_matter(score, monkeypatch) -> None:
    x, u = normal(70, 2, 3, 7), normal(2, 3, 7, seed=1)
    expected = score(x, u).each
    monkeypatch.setattr(running, "BLOCK_VALUES", 100)
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
    monkeypatch.setattr(running, "BLOCK_VALUES", 2**16)
    assert peak(lambda: score(x, u)) < x.nbytes / 4


# Invalid arguments

u23, x423 = normal(2, 3), normal(4, 2, 3)
nan23 = np.where(np.arange(3) == 1, np.nan, u23)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mrle(u23[:1], u23), r"v has shape \(1, 3\), u has \(2, 3\)"),
        (lambda: mrle(u23, nan23), "u has NaN or infinite values"),
        (lambda: mrle(nan23, u23), "v has NaN or infinite values"),
        (lambda: mrle(u23, 0 * u23), "all samples are zero, so the relative error is undefined"),
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
        (lambda: crps(np.where(x423 > 0, np.inf, x423), u23), "members are NaN or infinite at observed points"),
        (lambda: energy_score(x423, u23[:1]), r"members have shape \(4, 2, 3\), expected \(member, 1, 3\)"),
        (lambda: energy_score(x423[:0], u23), "an ensemble without members"),
        (lambda: spectrum(u23), r"fields have shape \(2, 3\), expected \(sample, channel, \*grid\)"),
        (lambda: spectrum(nan23[None]), "field has NaN or infinite values"),
        (lambda: spectral_distance(u23**2, u23[:1] ** 2), r"p has shape \(2, 3\), q has \(1, 3\)"),
        (lambda: spectral_distance(u23[0] ** 2, u23[0] ** 2), r"p and q of shape \(3,\) are not power spectra"),
        (lambda: spectral_distance(-(u23**2), u23**2), "are not power spectra"),
        (lambda: spectral_distance(u23**2, 0 * u23), "spectra q of observations are zero"),
    ],
)
def test_invalid_arguments(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_zero_samples_have_no_relative_error() -> None:
    score = mrle([[3.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [0.0, 0.0]])
    assert score.value == 0.8
    np.testing.assert_array_equal(score.each, [0.8, np.nan])


def test_the_distance_of_spectra_has_no_unit() -> None:
    p, q = np.array([[1.0, 0.0, 3.0]]), np.array([[2.0, 1e-9, 0.0]])
    assert spectral_distance(1e6 * p, 1e6 * q).value == pytest.approx(spectral_distance(p, q).value)
