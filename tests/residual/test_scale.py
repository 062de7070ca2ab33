"""Residual scales: S as a dense matrix, densities of scipy, and scales that were planted.

Statistical tests have fixed seeds; five standard deviations leave each a false alarm of less than 1e-4 over all its numbers.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pdno import UserError
from pdno.residual.scale import GAPS, KINDS, Scale
from pdno.residual.shrinkage import FLOOR

POINTS = 64
X = (np.arange(POINTS) + 0.5) / POINTS
BUMP = 0.05 + np.exp(-20 * (X - 0.4) ** 2)
GRIDS = [
    ((7,), (False,)),
    ((8,), (True,)),
    ((5,), (True,)),
    ((4, 3), (False, True)),
    ((4, 5), (True, True)),
    ((2, 4, 3), (True, False, True)),
]
by_grid = pytest.mark.parametrize(("grid", "periodic"), GRIDS, ids=str)
by_kind = pytest.mark.parametrize("kind", KINDS)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def unit(s: np.ndarray) -> np.ndarray:
    """(channel, *grid) of mean square one."""
    return s / np.sqrt(np.square(s).mean(axis=tuple(range(1, s.ndim)), keepdims=True))


def random_scale(grid, periodic, kind="both", seed: int = 1) -> Scale:
    """Two channels of numbers of many sizes, the same for k and −k."""
    rng = np.random.default_rng(seed)
    point, mode = np.exp(rng.normal(size=(2, *grid))), np.exp(rng.normal(size=(2, *grid)))
    axes = tuple(axis + 1 for axis, wave in enumerate(periodic) if wave)
    mode = unit(mode + np.roll(np.flip(mode, axes), 1, axes) if axes else mode)
    ones = (1,) * len(grid)
    return Scale(
        point if kind in ("point", "both") else point.reshape(2, -1)[:, :1].reshape(2, *ones),
        mode if kind in ("mode", "both") else np.ones((1, *ones)),
        periodic,
        kind,
    )


def dense(scale: Scale, shape: tuple[int, ...]) -> np.ndarray:
    """S, column by column."""
    size = int(np.prod(shape))
    return scale.restore(np.eye(size).reshape(size, *shape)).reshape(size, size).T


def wave(points: int, periodic: bool) -> np.ndarray:
    k = np.arange(points)
    return np.minimum(k, points - k) if periodic else k


def planted(kind, periodic: bool = False, power: float = 4.0) -> Scale:
    """0.1 times a bump, or a number, and standard deviations (1 + k)⁻⁴ of modes."""
    mode = unit((1.0 + wave(POINTS, periodic)[None]) ** -power)
    return Scale(
        0.1 * BUMP[None] if kind in ("point", "both") else np.full((1, 1), 0.1),
        mode if kind in ("mode", "both") else np.ones((1, 1)),
        (periodic,),
        kind,
    )


def drawn(scale: Scale, samples: int, seed: int = 0) -> np.ndarray:
    return scale.restore(normal(samples, 1, POINTS, seed=seed))


# S as a matrix


@by_kind
@by_grid
def test_normalise_is_the_inverse_of_restore(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    r = normal(3, 5, 2, *grid)
    np.testing.assert_allclose(scale.normalise(scale.restore(r)), r, atol=1e-12)
    np.testing.assert_allclose(scale.restore(scale.normalise(r)), r, atol=1e-12)
    np.testing.assert_array_equal(scale.restore(r)[1, 2], scale.restore(r[1, 2]))


@by_grid
def test_s_is_d_times_a_symmetric_root_of_c(grid, periodic) -> None:
    scale = random_scale(grid, periodic)
    matrix = dense(scale, (2, *grid))
    root = matrix / scale.point.reshape(-1, 1)
    np.testing.assert_allclose(root, root.T, atol=1e-13)
    np.testing.assert_allclose(np.linalg.eigvalsh(root), np.sort(scale.mode.ravel()), atol=1e-12)  # B is orthonormal
    assert np.trace(root @ root) == pytest.approx(len(root))
    half = len(root) // 2
    assert not root[:half, half:].any()  # channels are independent


@by_kind
@by_grid
def test_std_is_the_root_of_the_diagonal(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    matrix = dense(scale, (2, *grid))
    expected = np.sqrt(np.diag(matrix @ matrix.T)).reshape(2, *grid)
    np.testing.assert_allclose(np.broadcast_to(scale.std, expected.shape), expected, rtol=1e-12)


@by_kind
@by_grid
def test_log_likelihood_is_that_of_scipy(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    matrix, values = dense(scale, (2, *grid)), normal(4, 2, *grid)
    expected = multivariate_normal(cov=matrix @ matrix.T).logpdf(values.reshape(4, -1))
    np.testing.assert_allclose(scale.log_likelihood(values), expected, rtol=1e-9)
    volume = -scale.log_likelihood(np.zeros((1, 2, *grid)))[0] - len(matrix) * np.log(2 * np.pi) / 2
    assert volume == pytest.approx(np.log(np.linalg.svd(matrix, compute_uv=False)).sum(), abs=1e-10)


@by_grid
def test_log_likelihood_leaves_points_out(grid, periodic) -> None:
    """The density of the other points alone; of a channel that is 0 everywhere, of none."""
    for some in (slice(0, 1), slice(1, 2), slice(None)):
        scale = random_scale(grid, periodic)
        zero = np.zeros(scale.point.shape, bool)
        zero.reshape(2, -1)[some, [0, -2]] = True
        for left_out in (zero, zero | (np.arange(2) == 1).reshape(2, *(1,) * len(grid))):
            scale = replace(scale, point=np.where(left_out, 0.0, scale.point))
            matrix, values, kept = dense(scale, (2, *grid)), normal(4, 2, *grid), ~left_out.ravel()
            covariance = (matrix @ matrix.T)[np.ix_(kept, kept)]
            expected = multivariate_normal(cov=covariance).logpdf(values.reshape(4, -1)[:, kept])
            np.testing.assert_allclose(scale.log_likelihood(values), expected, rtol=1e-9)
            inverse = np.linalg.pinv(matrix, rcond=1e-12) @ values.reshape(4, -1).T
            np.testing.assert_allclose(scale.normalise(values).reshape(4, -1).T, inverse, atol=1e-9)
            np.testing.assert_allclose(scale.restore(scale.normalise(values)), np.where(left_out, 0, values), atol=1e-10)


def test_periodic_errors_are_the_same_wherever_one_starts() -> None:
    residuals = np.cumsum(normal(30, 1, 6, 8), axis=-1)
    scale = Scale.of(residuals, "mode", periodic=(False, True))
    r = normal(1, 6, 8, seed=1)
    np.testing.assert_allclose(scale.restore(np.roll(r, 3, axis=-1)), np.roll(scale.restore(r), 3, axis=-1), atol=1e-12)
    assert not np.allclose(scale.restore(np.roll(r, 3, axis=-2)), np.roll(scale.restore(r), 3, axis=-2), atol=1e-3)
    np.testing.assert_allclose(scale.std, scale.std[..., :1] * np.ones(8))


def test_waves_may_run_at_a_slant() -> None:
    """Errors cos(k·x + phase) with k = (1, 2) but not (1, −2): any stationary law has modes of its own."""
    x, y, phase = np.meshgrid(np.arange(6) / 6, np.arange(8) / 8, 2 * np.pi * np.arange(40) / 40, indexing="ij")
    residuals = np.moveaxis(np.cos(2 * np.pi * (x + 2 * y) + phase), -1, 0)[:, None]
    mode = Scale.of(residuals, "mode", periodic=(True, True)).mode[0]
    assert {tuple(int(i) for i in place) for place in np.argwhere(mode > 1e-6)} == {(1, 2), (5, 6)}
    np.testing.assert_allclose(mode[[1, 5], [2, 6]], np.sqrt(48 / 2))


# Estimates


def test_scalar_is_the_root_mean_square_of_each_channel() -> None:
    residuals = normal(30, 2, 4, 5) * np.array([1.0, 20.0]).reshape(2, 1, 1) + 3  # a bias is part of the error
    scale = Scale.of(residuals, "scalar")
    np.testing.assert_allclose(scale.point, np.sqrt(np.square(residuals).mean(axis=(0, 2, 3))).reshape(2, 1, 1))
    assert scale.mode.shape == (1, 1, 1)
    assert np.square(scale.normalise(residuals)).mean(axis=(0, 2, 3)) == pytest.approx([1, 1])


def test_point_finds_what_was_planted() -> None:
    scale = Scale.of(drawn(planted("point"), 2000), "point")
    np.testing.assert_allclose(scale.point, planted("point").point, rtol=5 / np.sqrt(2 * 2000))


@pytest.mark.parametrize("periodic", [False, True])
def test_mode_finds_a_steep_spectrum(periodic) -> None:
    """(1 + k)⁻⁴ falls by seven decades over 64 cosines; each is known as well as its samples allow."""
    truth = planted("mode", periodic)
    scale = Scale.of(drawn(truth, 2000), "mode", periodic=(periodic,))
    np.testing.assert_allclose(scale.mode, truth.mode, rtol=5 / np.sqrt(2 * 2000))
    assert scale.point.shape == (1, 1)
    assert float(scale.point[0, 0]) == pytest.approx(0.1, rel=5 / np.sqrt(2 * 2000))


@pytest.mark.parametrize("periodic", [False, True])
def test_both_finds_what_was_planted(periodic) -> None:
    """d times s is what is seen: for cosines, variances of points are d² times a diagonal of C that is not 1."""
    truth = planted("both", periodic, power=1.0)
    scale = Scale.of(drawn(truth, 5000), "both", periodic=(periodic,))
    np.testing.assert_allclose(scale.point, truth.point, rtol=0.06)
    np.testing.assert_allclose(scale.mode, truth.mode, rtol=0.06)


@by_kind
def test_new_residuals_have_unit_variance(kind) -> None:
    truth = planted(kind, power=2.0)
    r = Scale.of(drawn(truth, 1000), kind).normalise(drawn(truth, 1000, seed=1))
    assert np.square(r).mean() == pytest.approx(1, abs=5 * np.sqrt(2 / 64000) + 2 / 1000)
    np.testing.assert_allclose(r[:, 0].T @ r[:, 0] / 1000, np.eye(POINTS), atol=0.3)


def test_std_is_what_residuals_show() -> None:
    residuals = drawn(planted("both"), 300)
    shown = Scale.of(residuals, "point").std
    np.testing.assert_allclose(Scale.of(residuals, "both").std, shown, rtol=1e-12)
    assert np.square(Scale.of(residuals, "mode").std).mean() == pytest.approx(np.square(residuals).mean())


def lost(scale: Scale, truth: Scale) -> float:
    """Expected log-likelihood for each mode, against the truth."""
    ratio = np.square(scale.point * scale.mode / (truth.point * truth.mode))
    return float((1 / ratio - 1 + np.log(ratio)).mean() / 2)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("power", [0.0, 2.0, 4.0])
def test_few_samples_are_smoothed_but_steep_spectra_not_flattened(periodic, power, monkeypatch) -> None:
    """Half of what is lost without smoothing, or less: .010 for .033, and .0073 for .015 where ±k make two of each."""
    truth = planted("mode", periodic, power)
    residuals = [drawn(truth, 20, seed) for seed in range(20)]
    smooth = np.mean([lost(Scale.of(each, "mode", periodic=(periodic,)), truth) for each in residuals])
    monkeypatch.setattr("pdno.residual.shrinkage.ENOUGH", 0)
    rough = np.mean([lost(Scale.of(each, "mode", periodic=(periodic,)), truth) for each in residuals])
    assert smooth < (0.55 if periodic else 0.35) * rough


def test_modes_of_enough_samples_are_as_they_are() -> None:
    """Two squares of each of 100 samples on a periodic axis: the mean of |FFT|²."""
    residuals = np.cumsum(normal(100, 1, POINTS), axis=-1)
    expected = np.sqrt(np.square(np.abs(np.fft.fft(residuals))).mean(axis=0))
    np.testing.assert_allclose(Scale.of(residuals, "mode", periodic=(True,)).mode, unit(expected), rtol=1e-10)


def test_spectra_with_holes_are_not_filled() -> None:
    """Odd fields have no even cosines: averages over neighbours would be far too large for these, too small for the others."""
    noise = normal(20, 1, POINTS)
    scale = Scale.of(noise - noise[..., ::-1], "mode")
    np.testing.assert_allclose(scale.mode[0, ::2], FLOOR * scale.mode.max(), rtol=0.02)
    assert (np.abs(scale.mode[0, 1::2] / np.sqrt(2) - 1) < 5 / np.sqrt(2 * 20)).all()


def test_points_of_few_samples_are_moved_together() -> None:
    """If all are alike, to one number; if they differ by decades, hardly at all."""
    residuals = normal(10, 1, POINTS)
    alike = Scale.of(residuals, "point")
    assert np.log(alike.point).std() < 0.5 / np.sqrt(2 * 10)
    assert np.square(alike.normalise(residuals)).mean() == pytest.approx(1)
    d = 10.0 ** (-4 * X)
    found = Scale.of(d * normal(10, 1, POINTS), "point").point[0]
    assert np.polyfit(X, np.log10(found), 1)[0] == pytest.approx(-4, abs=0.4)


def test_points_that_are_seldom_known_are_not_too_small() -> None:
    """The logarithm of two squares' mean is low by .58 on average, a standard deviation's by half of that."""
    d, known = 10.0 ** (2 * np.random.default_rng(1).random(2000)), np.ones((100, 1, 2000), bool)
    known[2:, :, ::2] = False
    found = Scale.of(d * normal(100, 1, 2000), "point", mask=known).point[0]
    assert np.log(found / d)[::2].mean() == pytest.approx(0, abs=5 * 0.64 / np.sqrt(1000))


# Choice


@pytest.mark.parametrize("periodic", [False, True])
@by_kind
def test_auto_finds_the_planted_kind(kind, periodic) -> None:
    residuals = drawn(planted(kind, periodic), 200)
    scale = Scale.of(residuals, periodic=(periodic,))
    assert scale.kind == kind
    np.testing.assert_array_equal(scale.point, Scale.of(residuals, kind, periodic=(periodic,)).point)  # of all samples


def test_auto_finds_what_is_hardly_there() -> None:
    """Errors that differ by a third: a gain of a few standard errors."""
    assert Scale.of((1 + 0.3 * np.sin(2 * np.pi * X)) * normal(200, 1, POINTS)).kind == "point"
    assert Scale.of(normal(200, 1, POINTS) + 0.4 * np.roll(normal(200, 1, POINTS), 1, axis=-1), periodic=(True,)).kind == "mode"


def test_auto_is_seldom_more_than_needed() -> None:
    """Two standard errors of a gain that is negative on average: measured, 1 to 2 % of data sets."""
    kinds = [Scale.of(normal(20, 1, 16, seed=seed)).kind for seed in range(100)]
    assert kinds.count("scalar") >= 93


def test_auto_takes_a_number_if_samples_are_few() -> None:
    residuals = drawn(planted("both"), 8)
    assert Scale.of(residuals).kind == "both"
    assert Scale.of(residuals[:7]).kind == "scalar"
    assert Scale.of(np.repeat(residuals[:3], 4, axis=0), group=np.repeat(np.arange(3), 4)).kind == "scalar"


def test_groups_are_not_divided() -> None:
    """Ten fields of noise, forty times each: who learns from the others of a group believes that it knows their modes."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 40))
    residuals = normal(10, 1, POINTS)[labels]
    assert Scale.of(residuals).kind != "scalar"
    assert Scale.of(residuals, group=labels).kind == "scalar"
    assert Scale.of(residuals, group=np.array([f"run {k}" for k in labels])).kind == "scalar"


def test_samples_of_a_group_are_no_more_evidence_than_one() -> None:
    residuals, labels = normal(10, 1, POINTS), np.repeat(np.arange(10), 40)
    for kind in KINDS:
        one, many = Scale.of(residuals, kind), Scale.of(np.repeat(residuals, 40, axis=0), kind, group=labels)
        np.testing.assert_allclose(many.point, one.point)
        np.testing.assert_allclose(many.mode, one.mode)
    assert not np.allclose(Scale.of(np.repeat(residuals, 40, axis=0), "mode").mode, one.mode, rtol=0.1)


# Zeros


@by_kind
def test_points_that_are_always_0(kind) -> None:
    """Ends and a gap: S gives 0 there, and elsewhere what it would give without them."""
    zero = (np.arange(POINTS) % 63 == 0) | ((X > 0.6) & (X < 0.66))
    truth = planted(kind, power=2.0)
    residuals = np.where(zero, 1e-18 * normal(500, 1, POINTS, seed=2), drawn(truth, 500))
    scale = Scale.of(residuals, kind)
    np.testing.assert_array_equal(scale.point[0] == 0, zero)
    np.testing.assert_array_equal(scale.std[0] == 0, zero)
    assert not scale.restore(normal(3, 1, POINTS))[..., zero].any()
    np.testing.assert_allclose(scale.restore(scale.normalise(residuals)), np.where(zero, 0, residuals), atol=1e-12)
    new = drawn(truth, 500, seed=1)
    r = scale.normalise(new)
    assert np.square(r).sum() / (500 * (~zero).sum()) == pytest.approx(1, abs=0.05)
    if kind in ("scalar", "point"):
        assert not r[..., zero].any()
    matrix = dense(truth, (1, POINTS))[~zero]
    best = multivariate_normal(cov=matrix @ matrix.T).logpdf(new[:, 0][:, ~zero]).mean()
    assert best - scale.log_likelihood(new).mean() < 0.02 * POINTS
    assert Scale.of(residuals).kind == kind


@by_kind
def test_residuals_that_are_0(kind) -> None:
    scale = Scale.of(np.zeros((10, 2, 4, 5)), kind, periodic=(True, False))
    assert not scale.std.any()
    assert not scale.normalise(normal(3, 2, 4, 5)).any()
    assert not scale.restore(normal(3, 2, 4, 5)).any()
    np.testing.assert_array_equal(scale.log_likelihood(normal(3, 2, 4, 5)), 0)
    assert scale.describe() == "no errors: residuals are always 0"
    assert Scale.of(np.zeros((10, 2, 4, 5))).kind == "scalar"


@by_kind
def test_a_channel_that_is_0_beside_one_that_is_not(kind) -> None:
    other = drawn(planted(kind), 100)
    alone, beside = Scale.of(other, kind), Scale.of(np.concatenate([np.zeros_like(other), other], axis=1), kind)
    assert not beside.point[0].any()
    np.testing.assert_allclose(beside.point[1:], alone.point)
    values = np.concatenate([normal(100, 1, POINTS), other], axis=1)
    np.testing.assert_allclose(beside.log_likelihood(values), alone.log_likelihood(other))


def test_sizes_do_not_matter() -> None:
    """1e-200 squared is 0, 1e200 squared is infinite."""
    residuals = drawn(planted("both"), 50)
    scale = Scale.of(residuals)
    for size in (1e-200, 1e200):
        other = Scale.of(size * residuals)
        np.testing.assert_allclose(other.point, size * scale.point)
        np.testing.assert_allclose(other.normalise(size * residuals), scale.normalise(residuals), atol=1e-6)


# Masks


def test_unknown_values_do_not_count() -> None:
    truth, residuals = planted("point"), drawn(planted("point"), 500)
    known = np.random.default_rng(1).random(residuals.shape) < 0.5
    known[:, 0, 7] = False
    marred = np.where(known, residuals, np.nan)
    scalar, point = (Scale.of(marred, kind, mask=known) for kind in KINDS[:2])
    assert float(scalar.point[0, 0]) == pytest.approx(np.sqrt(np.square(residuals[known]).mean()))
    seen = np.arange(POINTS) != 7
    np.testing.assert_allclose(point.point[0, seen], truth.point[0, seen], rtol=5 / np.sqrt(2 * 200))
    assert point.point[0, seen].min() < point.point[0, 7] < point.point[0, seen].max()  # never known: like all others
    assert Scale.of(marred, mask=known).kind == "point"
    assert Scale.of(np.where(known, drawn(planted("mode"), 500), np.nan), mask=known).kind in ("scalar", "point")
    for scale in (scalar, point):
        d = np.broadcast_to(scale.point[0], POINTS)
        by_hand = [
            multivariate_normal(cov=np.diag(d[k] ** 2)).logpdf(x[k])
            for x, k in zip(residuals[:5, 0], known[:5, 0], strict=True)
        ]
        np.testing.assert_allclose(scale.log_likelihood(marred[:5], known[:5]), by_hand)


def test_a_mask_of_all_values_is_none() -> None:
    residuals = drawn(planted("mode"), 50)
    scale = Scale.of(residuals, mask=np.ones(residuals.shape))
    assert scale.kind == "mode"
    np.testing.assert_array_equal(scale.mode, Scale.of(residuals).mode)
    np.testing.assert_array_equal(scale.log_likelihood(residuals, residuals < np.inf), scale.log_likelihood(residuals))


# Files, words, speed, mistakes


@by_kind
def test_arrays(kind) -> None:
    scale = random_scale((4, 3), (False, True), kind)
    arrays = scale.arrays()
    assert all(each.dtype == np.float64 for each in arrays.values())
    again, values = Scale.from_arrays(arrays), normal(3, 2, 4, 3)
    assert (again.kind, again.periodic) == (kind, (False, True))
    np.testing.assert_array_equal(again.normalise(values), scale.normalise(values))
    np.testing.assert_array_equal(again.restore(values), scale.restore(values))


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (Scale(np.array([[0.05]]), np.ones((1, 1)), (False,), "scalar"), "one number, 0.05"),
        (Scale(np.array([[0.05], [2.0]]), np.ones((1, 1)), (False,), "scalar"), "one number for each channel, from 0.05 to 2"),
        (
            Scale(np.array([[0.0, 0.05, 1.0]]), np.ones((1, 1)), (False,), "point"),
            "a standard deviation for each point, from 0.05 to 1; 0 at 1 of 3 points",
        ),
        (
            Scale(np.array([[0.05]]), np.array([[1.9, 0.1, 0.6]]), (True,), "mode"),
            "correlated errors: one number, 0.05; 90 % of the variance is in 1 of 3 modes",
        ),
    ],
)
def test_words(scale, words) -> None:
    assert scale.describe() == words


@pytest.mark.parametrize("shape", [(10_000, 1, 128), (1000, 1, 64, 64)])
def test_it_takes_seconds(shape) -> None:
    """Of one core; 0.2 and 0.8 were measured."""
    residuals = normal(*shape)
    start = time.process_time()
    assert Scale.of(residuals, periodic=(True,) * (len(shape) - 2)).kind == "scalar"
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "pont"}, "kind 'pont' of a residual scale is unknown; did you mean 'point'"),
        ({"residuals": np.zeros((3, 8))}, r"residuals have the shape \(3, 8\), expected \(sample, channel, \*grid\)"),
        ({"residuals": np.zeros((0, 1, 8))}, r"residuals have the shape \(0, 1, 8\)"),
        ({"residuals": np.full((3, 1, 8), np.nan)}, "residuals are NaN or infinite; leave such samples out"),
        ({"residuals": np.full((3, 1, 8), np.inf)}, "residuals are NaN or infinite"),
        ({"mask": np.ones((3, 8))}, r"mask has the shape \(3, 8\), expected that of the residuals, \(9, 1, 8\)"),
        ({"mask": np.zeros((9, 1, 8))}, "no value of channel 0 is known"),
        ({"mask": np.arange(8) * np.ones((9, 1, 1)), "kind": "mode"}, "'mode' was asked for with unknown values, expected all"),
        ({"mask": np.arange(8) * np.ones((9, 1, 1)), "kind": "both"}, "'both' was asked for with unknown values, expected all"),
        ({"periodic": (True, False)}, r"periodic = \(True, False\) has 2 axes, residuals have 1"),
        ({"group": np.arange(4)}, r"group has the shape \(4,\), expected a label for each of the 9 samples"),
    ],
)
def test_mistakes_are_explained(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        Scale.of(**{"residuals": normal(9, 1, 8), **changes})


def test_fields_of_other_shapes_are_refused() -> None:
    number, each = (Scale.of(normal(9, 2, 8), kind) for kind in ("scalar", "mode"))
    assert number.normalise(np.ones((2, 5))).shape == (2, 5)  # one number fits all grids
    for scale, shape in [(each, (2, 5)), (each, (3, 8)), (number, (3, 8)), (number, (8,))]:
        with pytest.raises(UserError, match="fields have the shape"):
            scale.normalise(np.ones(shape))
        with pytest.raises(UserError, match="fields have the shape"):
            scale.restore(np.ones(shape))
    with pytest.raises(UserError, match=r"expected \(sample, 2, 8\) as the residuals"):
        each.log_likelihood(np.ones((2, 8)))
    with pytest.raises(UserError, match="got unknown values, expected all for correlated errors"):
        each.log_likelihood(np.ones((1, 2, 8)), np.arange(16).reshape(1, 2, 8))
    with pytest.raises(UserError, match="residuals are NaN"):
        each.log_likelihood(np.full((1, 2, 8), np.nan))


def test_too_many_zeros_are_too_many_for_correlated_errors() -> None:
    """Their matrix would have a row for each of 2**25/30000 points."""
    points = 30_000
    residuals = np.where(np.arange(points) < GAPS // points + 1, 0.0, np.cumsum(normal(8, 1, points), axis=-1))
    with pytest.raises(UserError, match="with 1119 points that are always 0, expected at most 1118; use 'scalar' or 'point'"):
        Scale.of(residuals, "mode")
    assert Scale.of(residuals).kind in ("scalar", "point")


def test_files_of_something_else_are_refused() -> None:
    arrays = random_scale((4,), (False,)).arrays()
    with pytest.raises(UserError, match="a residual scale lacks mode, kind"):
        Scale.from_arrays({name: arrays[name] for name in ("point", "periodic")})
    with pytest.raises(UserError, match="a residual scale is of kind 4, expected 0 to 3"):
        Scale.from_arrays({**arrays, "kind": np.array(4.0)})
