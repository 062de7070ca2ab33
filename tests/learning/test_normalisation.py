"""Normalisation against mean and standard deviation of NumPy."""

import numpy as np
import pytest

from pdno import UserError
from pdno.learning.normalisation import Normalisation


@pytest.fixture
def values() -> np.ndarray:
    """Two channels of very different size on 3 × 4 nodes, (50, 2, 3, 4)."""
    return np.random.default_rng(5).standard_normal((50, 2, 3, 4)) * [[[2.0]], [[100.0]]] + [[[5.0]], [[-3000.0]]]


@pytest.mark.parametrize(("kind", "axes"), [("scalar", (0, 2, 3)), ("pointwise", (0,))])
def test_mean_and_deviation_are_those_of_the_training_set(kind, axes, values, monkeypatch) -> None:
    monkeypatch.setattr("pdno.learning.normalisation.BLOCK_BYTES", 7 * values[:1].nbytes)  # blocks that do not divide 50
    normalisation = Normalisation.of(values, kind)
    np.testing.assert_allclose(normalisation.mean, values.mean(axis=axes, keepdims=True)[0], rtol=1e-12)
    np.testing.assert_allclose(normalisation.std, values.std(axis=axes, keepdims=True)[0], rtol=1e-12)


@pytest.mark.parametrize("kind", ["none", "scalar", "pointwise"])
def test_restoring_undoes_normalising(kind, values) -> None:
    normalisation = Normalisation.of(values, kind)
    np.testing.assert_allclose(normalisation.restore(normalisation.normalise(values)), values, rtol=1e-13)
    if kind == "none":
        np.testing.assert_array_equal(normalisation.normalise(values), values)
    else:
        assert abs(normalisation.normalise(values).std() - 1) < 1e-12


@pytest.mark.parametrize("kind", ["scalar", "pointwise"])
@pytest.mark.parametrize("garbage", [1e6, np.nan, np.inf])
def test_masked_values_do_not_count(kind, garbage, values) -> None:
    mask = np.random.default_rng(6).random(values.shape) < 0.7
    normalisation = Normalisation.of(np.where(mask, values, garbage), kind, mask)
    known = np.ma.masked_array(values, ~mask)
    axes = (0, 2, 3) if kind == "scalar" else (0,)
    np.testing.assert_allclose(normalisation.mean, known.mean(axis=axes, keepdims=True)[0], rtol=1e-12)
    np.testing.assert_allclose(normalisation.std, known.std(axis=axes, keepdims=True)[0], rtol=1e-12)


def test_nodes_that_never_change_are_scaled_like_the_others(values) -> None:
    values[:, :, 0] = 0.1  # a boundary value, with a mean that is rounded
    normalisation = Normalisation.of(values, "pointwise")
    moving = normalisation.std[:, 1:]
    np.testing.assert_allclose(moving, values[:, :, 1:].std(axis=0), rtol=1e-12)
    overall = np.sqrt(np.mean(moving**2, axis=(1, 2)) * 2 / 3)  # of each channel, a third of whose nodes never change
    np.testing.assert_allclose(normalisation.std[:, 0], np.broadcast_to(overall[:, None], (2, 4)), rtol=1e-12)
    np.testing.assert_allclose(normalisation.normalise(values)[:, :, 0], 0, atol=1e-12)


def test_nodes_are_compared_with_their_own_channel() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3, 4)) * np.array([1e5, 1e-8, 0])[:, None]
    std = Normalisation.of(values, "pointwise").std
    np.testing.assert_allclose(std[:2], values.std(axis=0)[:2], rtol=1e-12)
    np.testing.assert_array_equal(std[2], 1)


@pytest.mark.parametrize("kind", ["scalar", "pointwise"])
def test_a_field_that_never_changes_is_only_shifted(kind) -> None:
    normalisation = Normalisation.of(np.full((7, 1, 3), 0.1), kind)
    np.testing.assert_array_equal(normalisation.std, np.ones_like(normalisation.std))
    np.testing.assert_allclose(normalisation.normalise(np.full((1, 1, 3), 0.2)), 0.1, rtol=1e-12)


def test_a_small_deviation_from_a_large_mean_is_one() -> None:
    values = 1e6 + 1e-3 * np.random.default_rng(7).standard_normal((400, 1, 8))
    np.testing.assert_allclose(Normalisation.of(values, "scalar").std, values.std(), rtol=1e-6)


def test_a_node_that_is_never_known_stays_finite(values) -> None:
    mask = np.ones(values.shape, dtype=bool)
    mask[:, 1, 2, 3] = False
    normalisation = Normalisation.of(np.where(mask, values, np.nan), "pointwise", mask)
    assert np.isfinite(normalisation.mean).all()
    assert (normalisation.std > 0).all()


def test_an_unknown_normalisation_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"normalise 'pointwize' is unknown; did you mean 'pointwise'\?"):
        Normalisation.of(np.ones((2, 1, 3)), "pointwize")


@pytest.mark.parametrize("kind", ["none", "scalar", "pointwise"])
def test_the_state_is_all_of_a_normalisation(kind, values) -> None:
    normalisation = Normalisation.of(values, kind)
    again = Normalisation.from_state(normalisation.state())
    np.testing.assert_array_equal(again.normalise(values), normalisation.normalise(values))
    np.testing.assert_array_equal(again.restore(values), normalisation.restore(values))
