"""Correlated errors of fields with missing values: likelihood, conditional draws and estimates, against dense matrices.

Statistical tests have fixed seeds; at five standard deviations, the false-alarm rate of each, over all its numbers, is below
1e-4.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pdno import PDNO, Pairs, UserError
from pdno.basis import mirror, modes
from pdno.learning.budget import Terms
from pdno.residual import Gaussian, Residuals
from pdno.residual.amplitude import Amplitude
from pdno.residual.estimate import estimate_scale
from pdno.residual.lags import power_by_lag
from pdno.residual.scale import Scale
from pdno.residual.spread import Spread
from pdno.residual.window import NODES, block_of_nodes, block_squares_and_volume
from tests.helpers import normal
from tests.residual.scales import POINTS, X, dense, drawn, planted, random_scale

GRIDS = [((7,), (False,)), ((8,), (True,)), ((4, 3), (False, True))]
by_grid = pytest.mark.parametrize(("grid", "periodic"), GRIDS, ids=str)
by_correlated_kind = pytest.mark.parametrize("kind", ["mode", "both"])


def with_zeros(scale: Scale) -> Scale:
    """Return a scale whose second channel is 0 at its first node."""
    point = np.broadcast_to(scale.point, scale.mode.shape).copy()
    point[1].flat[0] = 0
    return replace(scale, point=point)


def observed(samples: int, *shape: int, share: float = 0.6) -> np.ndarray:
    """Return a mask that differs from sample to sample; the last sample has no value in its first channel."""
    mask = np.random.default_rng(3).random((samples, *shape)) < share
    mask[-1, 0] = False
    return mask


def masks(samples: int) -> dict[str, np.ndarray]:
    """Return masks of (sample, 1, POINTS): values missing at random places, at one place, and at random intervals."""
    rng, shape = np.random.default_rng(1), (samples, 1, POINTS)
    start = rng.integers(0, POINTS, (samples, 1, 1))
    return {
        "random": rng.random(shape) < 0.6,
        "land": np.broadcast_to(np.abs(X - 0.4) > 0.15, shape),
        "intervals": (np.arange(POINTS) - start) % POINTS < 40,
    }


# S


@by_grid
def test_log_likelihood_is_the_marginal_density_of_scipy(grid, periodic) -> None:
    for scale in (random_scale(grid, periodic), with_zeros(random_scale(grid, periodic))):
        values, mask, matrix = normal(5, 2, *grid), observed(5, 2, *grid), dense(scale, (2, *grid))
        covariance = matrix @ matrix.T
        expected = []
        for x, known in zip(values.reshape(5, -1), (mask & (scale.point > 0)).reshape(5, -1), strict=True):
            expected.append(multivariate_normal(cov=covariance[np.ix_(known, known)]).logpdf(x[known]))
        marred = np.where(mask, values, np.nan)
        np.testing.assert_allclose(scale.log_likelihood(marred, mask), expected, rtol=1e-9)
        every = np.ones((2, *grid), bool)
        squares, volume = block_squares_and_volume(scale, values, mask, every)
        np.testing.assert_allclose(-0.5 * squares - volume, expected, rtol=1e-5)


@by_correlated_kind
def test_completed_fields_have_the_conditional_distribution(kind) -> None:
    """Mean and covariance of 20,000 draws given four of six nodes, within five standard errors; known values are kept."""
    scale, mask = random_scale((6,), (False,), kind), np.array([[True, False, True, True, False, True]] * 2)
    values, count = np.broadcast_to(normal(1, 2, 6, seed=4), (20_000, 2, 6)), 20_000
    fields = scale.sqrt(scale.completed(np.where(mask, values, np.nan), np.broadcast_to(mask, values.shape)))
    np.testing.assert_allclose(fields[:, mask], values[:, mask], atol=1e-9)
    matrix, known = dense(scale, (2, 6)), mask.ravel()
    c = matrix @ matrix.T
    gain = c[np.ix_(~known, known)] @ np.linalg.inv(c[np.ix_(known, known)])
    expected = c[np.ix_(~known, ~known)] - gain @ c[np.ix_(known, ~known)]
    rest = fields.reshape(count, -1)[:, ~known] - gain @ values[0].ravel()[known]
    stderr = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    assert (np.abs(rest.mean(axis=0)) < 5 * np.sqrt(np.diag(expected) / count)).all()
    assert (np.abs(rest.T @ rest / count - expected) < 5 * stderr).all()


def test_too_many_missing_values_are_refused() -> None:
    """A field of 100 × 100 nodes with 5000 missing ones needs 2·10⁴·5000² operations."""
    scale = Scale(np.ones((1, 1, 1)), np.ones((1, 100, 100)), (False, False), "mode")
    mask = np.arange(10_000).reshape(1, 1, 100, 100) < 5000
    with pytest.raises(UserError, match=r"need 5e\+11 operations for 1 fields of 10000 values, expected at most 2e\+11"):
        scale.log_likelihood(np.ones(mask.shape), mask)


def test_normalised_residuals_with_missing_values_are_white() -> None:
    """r has unit covariance at all nodes, also where values are missing."""
    scale, mask = planted("mode", power=1.0), masks(1000)["intervals"]
    values = np.where(mask, drawn(scale, 1000), 0.0)
    r = Spread(scale).normalised(Residuals(Pairs.of(values, values, mask=mask), values))
    np.testing.assert_allclose(r[:, 0].T @ r[:, 0] / 1000, np.eye(POINTS), atol=5 * np.sqrt(2 / 1000))


# The spectrum by lags


@pytest.mark.parametrize("periodic", [(False,), (True,), (False, True)])
def test_the_spectrum_by_lags_is_exact_without_missing_values(periodic) -> None:
    x = normal(9, 2, *(7, 6)[: len(periodic)])
    power = np.square(modes(x, periodic)).mean(axis=0)
    blocks = [(part, np.ones(part.shape, bool)) for part in (x[:4], x[4:])]
    np.testing.assert_allclose(power_by_lag(blocks, periodic), (power + mirror(power, periodic)) / 2, rtol=1e-10)


def test_the_spectrum_by_lags_has_no_bias_on_periodic_axes() -> None:
    truth, mask = planted("mode", periodic=True, power=0.5), masks(4000)["random"]
    power = power_by_lag([(drawn(truth, 4000), mask)], (True,))
    expected = np.square(0.1 * truth.mode)
    np.testing.assert_allclose(power, expected, rtol=5 * np.sqrt(2 / (2 * 4000)), atol=0.05 * expected.mean())


# Estimates


@pytest.mark.parametrize(("missing", "periodic"), [("random", False), ("land", False), ("land", True), ("intervals", True)])
@by_correlated_kind
def test_correlation_is_kept_with_missing_values(kind, missing, periodic) -> None:
    """The kind is selected; neighbours and the field's average are those of an estimate from complete fields."""
    values, mask = drawn(planted(kind, periodic, power=1.0), 150), masks(150)[missing]
    scale = estimate_scale(np.where(mask, values, np.nan), mask=mask, periodic=(periodic,))
    assert scale.kind == kind
    seen = mask.any(axis=(0, 1))
    complete = estimate_scale(values, kind, periodic=(periodic,))
    found, expected = (m @ m.T for m in (dense(each, (1, POINTS))[seen] for each in (scale, complete)))
    near, near_expected = (np.diagonal(c, 1).sum() / np.trace(c) for c in (found, expected))
    assert near == pytest.approx(near_expected, abs=0.01)
    assert found.mean() == pytest.approx(expected.mean(), rel=0.06)
    assert np.abs(found - expected).max() < 0.2 * expected.max()
    assert (scale.std > 0).all()  # draws fill all places


def test_white_noise_with_missing_values_is_not_correlated() -> None:
    kinds = [estimate_scale(normal(20, 1, 16, seed=k), mask=normal(20, 1, 16, seed=k + 99) < 0.5).kind for k in range(6)]
    assert kinds.count("scalar") >= 5


def test_large_fields_are_compared_at_a_block_of_nodes(monkeypatch) -> None:
    """Without any rounds of expectation maximisation, by the spectrum by lags alone."""
    truth, mask = planted("mode", power=1.0), masks(100)["random"]
    values = np.where(mask, drawn(truth, 100), np.nan)
    for name in ("ROUND_WORK", "LIKELIHOOD_WORK"):
        monkeypatch.setattr(f"pdno.residual.estimate.{name}", 0.0)
    scale = estimate_scale(values, mask=mask)
    assert scale.kind == "mode"
    found, expected = (m @ m.T for m in (dense(each, (1, POINTS)) for each in (scale, truth)))
    assert np.abs(found - expected).max() < 0.4 * expected.max()


def test_the_block_has_the_most_observations() -> None:
    count = np.zeros((2, 60, 50))
    count[:, 30:50, 10:30] = 1
    block = block_of_nodes(count)
    np.testing.assert_array_equal(block, count > 0)
    assert block[0].sum() == NODES
    assert block_of_nodes(np.ones((1, 8))).all()


# t(a)


def test_sizes_are_those_of_the_observed_nodes() -> None:
    """Sizes are the same with and without a mask, but for chance; a field without values has no effect."""
    rng = np.random.default_rng(0)
    t = np.exp(rng.standard_normal((400, 1, 1)))
    a, values = t * np.sin(X), t * rng.standard_normal((400, 1, POINTS))
    mask = rng.random(values.shape) < 0.5
    mask[7] = False
    scale = estimate_scale(values, "scalar")
    whole, partly = (Amplitude.of(values, scale, a, a, mask=each) for each in (None, mask))
    assert whole is not None
    assert partly is not None
    np.testing.assert_allclose(np.log(partly(a, a) / whole(a, a)), 0, atol=0.1)


def test_a_gaussian_law_with_missing_values_has_all_its_parts() -> None:
    """S is correlated and t depends on the input, although a third of the values is missing."""
    rng = np.random.default_rng(0)
    t, mask = np.exp(0.7 * rng.standard_normal((150, 1, 1))), masks(150)["intervals"]
    a, u = t * np.sin(7 * X), t * drawn(planted("mode", power=1.0), 150)
    residuals = Residuals(Pairs.of(a, np.where(mask, u, np.nan), mask=mask), np.where(mask, u, 0.0), prediction=a)
    law = Gaussian().learn(residuals, None, Terms())
    assert law.spread.scale.kind == "mode"
    sizes = np.log(law.spread.sizes(residuals.inputs))
    assert np.corrcoef(sizes, np.log(t.ravel()))[0, 1] > 0.95


def test_members_of_masked_data_are_correlated() -> None:
    """Land masked: neighbours of members are correlated as the errors are, and all nodes have values."""
    mask, a = masks(150)["land"], normal(150, 1, POINTS, seed=8)
    u = a + drawn(planted("mode", power=1.0), 150)
    model = PDNO(law="gaussian", mean="linear").fit(a, np.where(mask, u, np.nan), mask="nan", progress=False)
    members = model.sample(a[:1], 400)[:, 0, 0]
    rest = members - members.mean(axis=0)
    truth = dense(planted("mode", power=1.0), (1, POINTS))
    near = np.mean(rest[:, 1:] * rest[:, :-1]) / np.mean(np.square(rest))
    assert near == pytest.approx(np.diagonal(truth @ truth.T, 1).sum() / np.trace(truth @ truth.T), abs=0.08)
    assert (rest.std(axis=0) > 0).all()
