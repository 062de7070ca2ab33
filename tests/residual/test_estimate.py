"""Estimates of S, from residuals whose scale was planted.

Statistical tests have fixed seeds; at five standard deviations, the false-alarm rate of each, over all its numbers, is below
1e-4.
"""

import time

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pdno import UserError
from pdno.residual.estimate import GAPS, estimate_scale
from pdno.residual.scale import KINDS, Scale
from pdno.residual.shrinkage import FLOOR
from tests.helpers import normal
from tests.residual.scales import POINTS, X, by_kind, dense, drawn, planted, unit


def test_periodic_errors_are_stationary() -> None:
    residuals = np.cumsum(normal(30, 1, 6, 8), axis=-1)
    scale = estimate_scale(residuals, "mode", periodic=(False, True))
    r = normal(1, 6, 8, seed=1)
    np.testing.assert_allclose(scale.sqrt(np.roll(r, 3, axis=-1)), np.roll(scale.sqrt(r), 3, axis=-1), atol=1e-12)
    assert not np.allclose(scale.sqrt(np.roll(r, 3, axis=-2)), np.roll(scale.sqrt(r), 3, axis=-2), atol=1e-3)
    np.testing.assert_allclose(scale.std, scale.std[..., :1] * np.ones(8))


def test_each_mode_of_two_axes_has_its_own_size() -> None:
    """Errors cos(k·x + phase) with k = (1, 2), but not (1, −2)."""
    x, y, phase = np.meshgrid(np.arange(6) / 6, np.arange(8) / 8, 2 * np.pi * np.arange(40) / 40, indexing="ij")
    residuals = np.moveaxis(np.cos(2 * np.pi * (x + 2 * y) + phase), -1, 0)[:, None]
    mode = estimate_scale(residuals, "mode", periodic=(True, True)).mode[0]
    assert {tuple(int(i) for i in place) for place in np.argwhere(mode > 1e-6)} == {(1, 2), (5, 6)}
    np.testing.assert_allclose(mode[[1, 5], [2, 6]], np.sqrt(48 / 2))


# Consistency


def test_scalar_is_the_root_mean_square_of_each_channel() -> None:
    residuals = normal(30, 2, 4, 5) * np.array([1.0, 20.0]).reshape(2, 1, 1) + 3  # a bias is part of the error
    scale = estimate_scale(residuals, "scalar")
    np.testing.assert_allclose(scale.point, np.sqrt(np.square(residuals).mean(axis=(0, 2, 3))).reshape(2, 1, 1))
    assert scale.mode.shape == (1, 1, 1)
    assert np.square(scale.inverse_sqrt(residuals)).mean(axis=(0, 2, 3)) == pytest.approx([1, 1])


def test_point_recovers_the_planted_scale() -> None:
    scale = estimate_scale(drawn(planted("point"), 2000), "point")
    np.testing.assert_allclose(scale.point, planted("point").point, rtol=5 / np.sqrt(2 * 2000))


@pytest.mark.parametrize("periodic", [False, True])
def test_mode_recovers_a_steep_spectrum(periodic) -> None:
    """(1 + k)⁻⁴ falls by seven decades over 64 cosines; each is estimated as well as its samples allow."""
    truth = planted("mode", periodic)
    scale = estimate_scale(drawn(truth, 2000), "mode", periodic=(periodic,))
    np.testing.assert_allclose(scale.mode, truth.mode, rtol=5 / np.sqrt(2 * 2000))
    assert scale.point.shape == (1, 1)
    assert float(scale.point[0, 0]) == pytest.approx(0.1, rel=5 / np.sqrt(2 * 2000))


@pytest.mark.parametrize("periodic", [False, True])
def test_both_recovers_the_planted_scale(periodic) -> None:
    """Only d times s is observed: for cosines, variances of nodes are d² times a diagonal of C that is not 1."""
    truth = planted("both", periodic, power=1.0)
    scale = estimate_scale(drawn(truth, 5000), "both", periodic=(periodic,))
    np.testing.assert_allclose(scale.point, truth.point, rtol=0.06)
    np.testing.assert_allclose(scale.mode, truth.mode, rtol=0.06)


@by_kind
def test_new_residuals_have_unit_variance(kind) -> None:
    truth = planted(kind, power=2.0)
    r = estimate_scale(drawn(truth, 1000), kind).inverse_sqrt(drawn(truth, 1000, seed=1))
    assert np.square(r).mean() == pytest.approx(1, abs=5 * np.sqrt(2 / 64000) + 2 / 1000)
    np.testing.assert_allclose(r[:, 0].T @ r[:, 0] / 1000, np.eye(POINTS), atol=0.3)


def test_std_is_that_of_the_residuals() -> None:
    residuals = drawn(planted("both"), 300)
    shown = estimate_scale(residuals, "point").std
    np.testing.assert_allclose(estimate_scale(residuals, "both").std, shown, rtol=1e-12)
    assert np.square(estimate_scale(residuals, "mode").std).mean() == pytest.approx(np.square(residuals).mean())


def lost(scale: Scale, truth: Scale) -> float:
    """Return the expected loss of log-likelihood per mode."""
    ratio = np.square(scale.point * scale.mode / (truth.point * truth.mode))
    return float((1 / ratio - 1 + np.log(ratio)).mean() / 2)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("power", [0.0, 2.0, 4.0])
def test_few_samples_are_smoothed_but_steep_spectra_not_flattened(periodic, power, monkeypatch) -> None:
    """The loss is about half of that without smoothing, or less: .010 for .033; .0073 for .015 on periodic axes."""
    truth = planted("mode", periodic, power)
    residuals = [drawn(truth, 20, seed) for seed in range(20)]
    smooth = np.mean([lost(estimate_scale(each, "mode", periodic=(periodic,)), truth) for each in residuals])
    monkeypatch.setattr("pdno.residual.shrinkage.ENOUGH", 0)
    rough = np.mean([lost(estimate_scale(each, "mode", periodic=(periodic,)), truth) for each in residuals])
    assert smooth < (0.55 if periodic else 0.35) * rough


def test_modes_of_enough_samples_are_not_smoothed() -> None:
    """100 samples give 200 squares per mode of a periodic axis: s² is the mean of |FFT|²."""
    residuals = np.cumsum(normal(100, 1, POINTS), axis=-1)
    expected = np.sqrt(np.square(np.abs(np.fft.fft(residuals))).mean(axis=0))
    np.testing.assert_allclose(estimate_scale(residuals, "mode", periodic=(True,)).mode, unit(expected), rtol=1e-10)


def test_spectra_with_holes_are_not_filled() -> None:
    """Odd fields have no even cosines; averages over neighbours would be far too large for these."""
    noise = normal(20, 1, POINTS)
    scale = estimate_scale(noise - noise[..., ::-1], "mode")
    np.testing.assert_allclose(scale.mode[0, ::2], FLOOR * scale.mode.max(), rtol=0.02)
    assert (np.abs(scale.mode[0, 1::2] / np.sqrt(2) - 1) < 5 / np.sqrt(2 * 20)).all()


def test_variances_of_few_samples_are_shrunk() -> None:
    """To one number if all are equal; hardly at all if they differ by decades."""
    residuals = normal(10, 1, POINTS)
    alike = estimate_scale(residuals, "point")
    assert np.log(alike.point).std() < 0.5 / np.sqrt(2 * 10)
    assert np.square(alike.inverse_sqrt(residuals)).mean() == pytest.approx(1)
    d = 10.0 ** (-4 * X)
    found = estimate_scale(d * normal(10, 1, POINTS), "point").point[0]
    assert np.polyfit(X, np.log10(found), 1)[0] == pytest.approx(-4, abs=0.4)


def test_nodes_that_are_seldom_observed_have_no_bias() -> None:
    """The logarithm of the mean of two squares is low by .58 on average, that of a standard deviation by half of it."""
    d, known = 10.0 ** (2 * np.random.default_rng(1).random(2000)), np.ones((100, 1, 2000), bool)
    known[2:, :, ::2] = False
    found = estimate_scale(d * normal(100, 1, 2000), "point", mask=known).point[0]
    assert np.log(found / d)[::2].mean() == pytest.approx(0, abs=5 * 0.64 / np.sqrt(1000))


# Selection of the kind


@pytest.mark.parametrize("periodic", [False, True])
@by_kind
def test_auto_selects_the_planted_kind(kind, periodic) -> None:
    residuals = drawn(planted(kind, periodic), 200)
    scale = estimate_scale(residuals, periodic=(periodic,))
    assert scale.kind == kind
    np.testing.assert_array_equal(scale.point, estimate_scale(residuals, kind, periodic=(periodic,)).point)  # of all samples


def test_auto_detects_small_differences() -> None:
    """Errors differ by a third: the gain is a few standard errors."""
    assert estimate_scale((1 + 0.3 * np.sin(2 * np.pi * X)) * normal(200, 1, POINTS)).kind == "point"
    assert (
        estimate_scale(normal(200, 1, POINTS) + 0.4 * np.roll(normal(200, 1, POINTS), 1, axis=-1), periodic=(True,)).kind
        == "mode"
    )


def test_auto_seldom_selects_more_than_a_scalar_for_white_noise() -> None:
    """The threshold is two standard errors of a gain that is negative on average: less than 2 % of data sets were measured."""
    kinds = [estimate_scale(normal(20, 1, 16, seed=seed)).kind for seed in range(100)]
    assert kinds.count("scalar") >= 93


@pytest.mark.parametrize("sizes", [0.0, 1.0])
def test_auto_selects_correlated_errors_for_few_fields(sizes) -> None:
    """Seven fields of 64 nodes show that neighbours are correlated, also if one of them is ten times larger than others."""
    for seed in range(5):
        size = np.exp(sizes * normal(7, 1, 1, seed=100 + seed))
        assert estimate_scale(size * drawn(planted("mode", power=1.0), 7, seed)).kind == "mode"
        assert estimate_scale(size * normal(7, 1, POINTS, seed=seed)).kind == "scalar"


def test_auto_selects_a_scalar_for_very_few_samples() -> None:
    residuals = drawn(planted("both"), 5)
    assert estimate_scale(residuals).kind == "both"
    assert estimate_scale(residuals[:3]).kind == "scalar"
    assert estimate_scale(np.repeat(residuals[:3], 4, axis=0), group=np.repeat(np.arange(3), 4)).kind == "scalar"


def test_groups_are_not_split() -> None:
    """Ten fields of noise, forty times each: without groups, copies in both halves would confirm any spectrum."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 40))
    residuals = normal(10, 1, POINTS)[labels]
    assert estimate_scale(residuals).kind != "scalar"
    assert estimate_scale(residuals, group=labels).kind == "scalar"
    assert estimate_scale(residuals, group=np.array([f"run {k}" for k in labels])).kind == "scalar"


def test_copies_of_a_sample_count_once() -> None:
    residuals, labels = normal(10, 1, POINTS), np.repeat(np.arange(10), 40)
    for kind in KINDS:
        one, many = estimate_scale(residuals, kind), estimate_scale(np.repeat(residuals, 40, axis=0), kind, group=labels)
        np.testing.assert_allclose(many.point, one.point)
        np.testing.assert_allclose(many.mode, one.mode)
    assert not np.allclose(estimate_scale(np.repeat(residuals, 40, axis=0), "mode").mode, one.mode, rtol=0.1)


# Zeros


@by_kind
def test_nodes_that_are_always_zero(kind) -> None:
    """Ends and a gap: S is 0 there, and elsewhere the same as without them."""
    zero = (np.arange(POINTS) % 63 == 0) | ((X > 0.6) & (X < 0.66))
    truth = planted(kind, power=2.0)
    residuals = np.where(zero, 1e-18 * normal(500, 1, POINTS, seed=2), drawn(truth, 500))
    scale = estimate_scale(residuals, kind)
    np.testing.assert_array_equal(scale.point[0] == 0, zero)
    np.testing.assert_array_equal(scale.std[0] == 0, zero)
    assert not scale.sqrt(normal(3, 1, POINTS))[..., zero].any()
    np.testing.assert_allclose(scale.sqrt(scale.inverse_sqrt(residuals)), np.where(zero, 0, residuals), atol=1e-12)
    new = drawn(truth, 500, seed=1)
    r = scale.inverse_sqrt(new)
    assert np.square(r).sum() / (500 * (~zero).sum()) == pytest.approx(1, abs=0.05)
    if kind in ("scalar", "point"):
        assert not r[..., zero].any()
    matrix = dense(truth, (1, POINTS))[~zero]
    best = multivariate_normal(cov=matrix @ matrix.T).logpdf(new[:, 0][:, ~zero]).mean()
    assert best - scale.log_likelihood(new).mean() < 0.02 * POINTS
    assert estimate_scale(residuals).kind == kind


@by_kind
def test_residuals_that_are_zero(kind) -> None:
    scale = estimate_scale(np.zeros((10, 2, 4, 5)), kind, periodic=(True, False))
    assert not scale.std.any()
    assert not scale.inverse_sqrt(normal(3, 2, 4, 5)).any()
    assert not scale.sqrt(normal(3, 2, 4, 5)).any()
    np.testing.assert_array_equal(scale.log_likelihood(normal(3, 2, 4, 5)), 0)
    assert scale.describe() == "residuals are always 0"
    assert estimate_scale(np.zeros((10, 2, 4, 5))).kind == "scalar"


@by_kind
def test_a_channel_that_is_zero_does_not_change_the_other(kind) -> None:
    other = drawn(planted(kind), 100)
    alone, beside = estimate_scale(other, kind), estimate_scale(np.concatenate([np.zeros_like(other), other], axis=1), kind)
    assert not beside.point[0].any()
    np.testing.assert_allclose(beside.point[1:], alone.point)
    values = np.concatenate([normal(100, 1, POINTS), other], axis=1)
    np.testing.assert_allclose(beside.log_likelihood(values), alone.log_likelihood(other))


def test_the_scale_is_equivariant_under_units() -> None:
    """Though 1e-200 squared is 0, and 1e200 squared is infinite."""
    residuals = drawn(planted("both"), 50)
    scale = estimate_scale(residuals)
    for size in (1e-200, 1e200):
        other = estimate_scale(size * residuals)
        np.testing.assert_allclose(other.point, size * scale.point)
        np.testing.assert_allclose(other.inverse_sqrt(size * residuals), scale.inverse_sqrt(residuals), atol=1e-6)


# Missing values


def test_missing_values_are_ignored() -> None:
    truth, residuals = planted("point"), drawn(planted("point"), 500)
    known = np.random.default_rng(1).random(residuals.shape) < 0.5
    known[:, 0, 7] = False
    marred = np.where(known, residuals, np.nan)
    scalar, point = (estimate_scale(marred, kind, mask=known) for kind in KINDS[:2])
    assert float(scalar.point[0, 0]) == pytest.approx(np.sqrt(np.square(residuals[known]).mean()))
    seen = np.arange(POINTS) != 7
    np.testing.assert_allclose(point.point[0, seen], truth.point[0, seen], rtol=5 / np.sqrt(2 * 200))
    assert point.point[0, seen].min() < point.point[0, 7] < point.point[0, seen].max()  # never observed: as the others
    assert estimate_scale(marred, mask=known).kind == "point"
    for scale in (scalar, point):
        d = np.broadcast_to(scale.point[0], POINTS)
        by_hand = [
            multivariate_normal(cov=np.diag(d[k] ** 2)).logpdf(x[k])
            for x, k in zip(residuals[:5, 0], known[:5, 0], strict=True)
        ]
        np.testing.assert_allclose(scale.log_likelihood(marred[:5], known[:5]), by_hand)


def test_a_mask_without_missing_values_changes_nothing() -> None:
    residuals = drawn(planted("mode"), 50)
    scale = estimate_scale(residuals, mask=np.ones(residuals.shape))
    assert scale.kind == "mode"
    np.testing.assert_array_equal(scale.mode, estimate_scale(residuals).mode)
    np.testing.assert_array_equal(scale.log_likelihood(residuals, residuals < np.inf), scale.log_likelihood(residuals))


# Speed, mistakes


@pytest.mark.parametrize("shape", [(10_000, 1, 128), (1000, 1, 64, 64)])
def test_estimation_takes_seconds(shape) -> None:
    """CPU time; 0.2 s and 0.8 s were measured."""
    residuals = normal(*shape)
    start = time.process_time()
    assert estimate_scale(residuals, periodic=(True,) * (len(shape) - 2)).kind == "scalar"
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "pont"}, "kind 'pont' of a residual scale is unknown; did you mean 'point'"),
        ({"residuals": np.zeros((3, 8))}, r"residuals have the shape \(3, 8\), expected \(sample, channel, \*grid\)"),
        ({"residuals": np.zeros((0, 1, 8))}, r"residuals have the shape \(0, 1, 8\)"),
        ({"residuals": np.full((3, 1, 8), np.nan)}, "residuals are NaN or infinite; remove such samples"),
        ({"residuals": np.full((3, 1, 8), np.inf)}, "residuals are NaN or infinite"),
        ({"mask": np.ones((3, 8))}, r"mask has the shape \(3, 8\), expected that of the residuals, \(9, 1, 8\)"),
        ({"mask": np.zeros((9, 1, 8))}, "no value of channel 0 is observed"),
        ({"periodic": (True, False)}, r"periodic = \(True, False\) has 2 axes, residuals have 1"),
        ({"group": np.arange(4)}, r"group has the shape \(4,\), expected a label for each of the 9 samples"),
    ],
)
def test_mistakes_are_explained(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        estimate_scale(**{"residuals": normal(9, 1, 8), **changes})


def test_too_many_zeros_for_correlated_errors() -> None:
    """Their matrix has a column for each node that is 0: at most 2**25/30000 columns are allowed."""
    points = 30_000
    residuals = np.where(np.arange(points) < GAPS // points + 1, 0.0, np.cumsum(normal(8, 1, points), axis=-1))
    with pytest.raises(UserError, match="with 1119 nodes that are always 0, expected at most 1118; use 'scalar' or 'point'"):
        estimate_scale(residuals, "mode")
    assert estimate_scale(residuals).kind in ("scalar", "point")
