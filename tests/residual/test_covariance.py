"""The regularised covariance of normalised residuals, against planted ones."""

import numpy as np
import pytest

from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Gaussian, Residuals, Rows
from pdno.residual.covariance import Covariance, held_out_likelihoods, is_better
from pdno.residual.spread import Spread
from pdno.work.state import State

NODES = 24
REGION = slice(8, 16)  # where noise is absent and errors are smooth


def dense(covariance: Covariance) -> np.ndarray:
    """Return C as a matrix."""
    root = covariance.sqrt(np.eye(covariance.vectors[0].size).reshape(-1, *covariance.vectors.shape[1:]))
    flat = root.reshape(len(root), -1)
    return flat.T @ flat


def partly_smooth(count: int, seed: int) -> np.ndarray:
    """Return white noise that is replaced by small parabolas in a region, (count, 1, NODES)."""
    rng = np.random.default_rng(seed)
    fields, x = rng.standard_normal((count, 1, NODES)), np.linspace(-1, 1, 8)
    fields[..., REGION] = 0.05 * rng.standard_normal((count, 1, 3)) @ np.stack([x**0, x, x**2])
    return fields


def residuals_of(fields: np.ndarray) -> Residuals:
    """Return residuals of a mean of 0, for different inputs."""
    return Residuals(pairs_of(np.random.default_rng(9).standard_normal(fields.shape), fields), fields)


def law_of(fields: np.ndarray) -> Gaussian:
    return Gaussian().learn(residuals_of(fields), None, Terms())


def drawn(law: Gaussian, count: int) -> np.ndarray:
    rows = Rows(0, np.zeros(count, int), np.arange(count), np.zeros(count, int))
    return law.draw(residuals_of(np.zeros((1, 1, NODES))).inputs, rows)


def roughness(fields: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(np.diff(fields[..., REGION])).mean(axis=(1, 2)))


def test_square_roots_are_inverse_and_symmetric() -> None:
    covariance = Covariance.of(partly_smooth(300, 0), 0.01, 0.4)
    r = np.random.default_rng(1).standard_normal((5, 1, NODES))
    np.testing.assert_allclose(covariance.inverse_sqrt(covariance.sqrt(r)), r, atol=1e-10)
    matrix = dense(covariance)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    assert covariance.log_volume(NODES) == pytest.approx(0.5 * np.linalg.slogdet(matrix)[1], abs=1e-9)


@pytest.mark.parametrize("count", [400, 12])
def test_without_a_threshold_it_is_the_shrunk_sample_covariance(count) -> None:
    """(1 − λ) Ĉ + λ I, also with fewer fields than nodes."""
    fields = partly_smooth(count, 2)
    flat = fields.reshape(count, -1)
    expected = 0.9 * flat.T @ flat / count + 0.1 * np.eye(NODES)
    np.testing.assert_allclose(dense(Covariance.of(fields, 0.1, 0.0)), expected, atol=1e-10)


def test_values_that_are_always_zero_are_left_alone() -> None:
    fields = partly_smooth(400, 3)
    fields[..., :2] = 0.0
    covariance = Covariance.of(fields, 0.01, 0.4)
    assert not covariance.vectors[..., :2].any()
    assert covariance.log_volume(NODES - 2) == pytest.approx(0.5 * np.linalg.slogdet(dense(covariance)[2:, 2:])[1], abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_white_noise_has_no_covariance_of_its_own(seed) -> None:
    """By chance it would have one with a probability of 2.5 %."""
    held_out = held_out_likelihoods(np.random.default_rng(seed).standard_normal((200, 1, NODES)), None)
    assert held_out is not None
    assert not is_better(held_out.after, held_out.before)


def test_too_few_fields_have_none() -> None:
    assert held_out_likelihoods(partly_smooth(19, 0), None) is None
    labels = np.repeat(np.arange(10), 20)
    assert held_out_likelihoods(partly_smooth(200, 0), labels) is None


def test_members_are_as_smooth_as_residuals_at_each_place() -> None:
    """A spectrum for the whole grid makes members ten times too rough in the region."""
    fields = partly_smooth(1000, 4)
    law = law_of(fields)
    members, new = drawn(law, 1000), partly_smooth(1000, 5)
    assert law.spread.covariance is not None
    assert np.median(roughness(members)) == pytest.approx(np.median(roughness(new)), rel=0.1)
    np.testing.assert_allclose(members.std(axis=0), new.std(axis=0), rtol=0.15)
    np.testing.assert_allclose(law.std, members.std(axis=0), rtol=0.1)
    stationary = Gaussian("both").learn(residuals_of(fields), None, Terms())
    assert np.median(roughness(drawn(stationary, 1000))) > 3 * np.median(roughness(new))


def test_correlations_by_place_are_found_beside_nodes_that_are_always_zero() -> None:
    rng = np.random.default_rng(0)
    fields = rng.standard_normal((600, 1, NODES))
    fields[..., 12:] = np.cumsum(fields[..., 12:], axis=2) / 3
    fields[..., [0, -1]] = 0.0
    law = law_of(fields)
    assert law.spread.covariance is not None
    members = drawn(law, 2000)[:, 0]
    assert not members[:, [0, -1]].any()
    assert abs(np.corrcoef(members[:, 4], members[:, 5])[0, 1]) < 0.1
    assert np.corrcoef(members[:, 20], members[:, 21])[0, 1] > 0.85


def test_it_is_saved_with_the_spread() -> None:
    fields = partly_smooth(1000, 4)
    law = law_of(fields)
    again = Spread.from_state(State({}, law.spread.state().arrays, law.spread.state().parts))
    residuals = residuals_of(fields)
    np.testing.assert_array_equal(again.normalised(residuals), law.spread.normalised(residuals))
    assert again.describe() == law.spread.describe()
    assert "components" in again.describe()


def test_the_density_is_that_of_a_gaussian() -> None:
    """Against the density from the dense covariance of S C^½ ξ."""
    law, new = law_of(partly_smooth(1000, 4)), partly_smooth(50, 6)
    assert law.spread.covariance is not None
    assert law.spread.is_homoscedastic
    root = law.spread.restored(np.eye(NODES)[:, None], residuals_of(new).inputs, np.zeros(NODES, int))[:, 0]
    matrix = root.T @ root
    squares = np.einsum("ni,ij,nj->n", new[:, 0], np.linalg.inv(matrix), new[:, 0])
    expected = 0.5 * squares.mean() + 0.5 * np.linalg.slogdet(2 * np.pi * matrix)[1]
    assert law.negative_log_density(residuals_of(new)) == pytest.approx(expected, rel=1e-8)
