"""Noise from repeated inputs, against hand arithmetic, explicit sums and the χ² distribution."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from pdno import UserError
from pdno.residual.repeats import ENOUGH, FEWEST, replicate_noise
from tests.helpers import normal

SIZES = [2, 7, 1, 3, 1, 5]  # of groups: 13 degrees of freedom


def noise(labels: np.ndarray, u: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Return an estimate that exists, with the right shape."""
    found = replicate_noise(labels, u, mask)
    assert found is not None
    assert found.shape == u.shape[1:]
    assert (found >= 0).all()
    return found


def one_by_one(labels: np.ndarray, u: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ (u − ū)² and degrees of freedom at each node."""
    squares, freedom = np.zeros(u.shape[1:]), np.zeros(u.shape[1:])
    for point in np.ndindex(u.shape[1:]):
        for label in np.unique(labels):
            values = [u[(i, *point)] for i in np.flatnonzero(labels == label) if mask[(i, *point)]]
            if values:
                squares[point] += sum((value - sum(values) / len(values)) ** 2 for value in values)
                freedom[point] += len(values) - 1
    return squares, freedom


# Without missing values


def test_by_hand() -> None:
    """Eleven inputs twice, with differences d_g: σ² = Σ d²/2 / 11, whatever the means are."""
    d = np.arange(1.0, 12)
    means = 100 * normal(11)
    u = np.concatenate([means - d / 2, means + d / 2])[:, None, None]
    expected = np.sqrt((d**2).sum() / 2 / 11)  # of 1 + 4 + … + 121 = 506: √23
    assert expected == pytest.approx(np.sqrt(23))
    np.testing.assert_allclose(noise(np.tile(np.arange(11), 2), u), [[expected]], rtol=1e-12)


def test_planted_noise_is_recovered_at_each_node() -> None:
    """False-alarm rate: 1e-6."""
    sigma = np.linspace(0.1, 3, 40).reshape(2, 4, 5)
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(150) * 10**16, 3))
    means = 50 * normal(150, 2, 4, 5, seed=2)
    u = means[labels // 10**16] + sigma * normal(450, 2, 4, 5)
    found = noise(labels, u)
    low, high = chi2.ppf([5e-7 / 40, 1 - 5e-7 / 40], 300) / 300
    assert ((found / sigma) ** 2 > low).all()
    assert ((found / sigma) ** 2 < high).all()


def test_variance_has_no_bias_and_is_chi_square() -> None:
    """Unequal groups; 4000 channels are as many data sets. False-alarm rates: 6e-5 and 1e-4."""
    labels = np.repeat(np.arange(len(SIZES)), SIZES)
    u = 10.0 * labels[:, None, None] + 2 * normal(len(labels), 4000, 1)
    square = noise(labels, u)[:, 0] ** 2
    assert abs(square.mean() - 4) < 4 * 4 * np.sqrt(2 / 13) / np.sqrt(4000)
    assert kstest(13 * square / 4, chi2(13).cdf).pvalue > 1e-4


def test_few_degrees_of_freedom_are_pooled_over_nodes() -> None:
    for groups, pooled in ((ENOUGH - 1, True), (ENOUGH, False)):
        labels = np.repeat(np.arange(groups), 2)
        u = normal(2 * groups, 2, 8) * np.array([1.0, 5.0])[:, None] * np.arange(1, 9)
        squares, freedom = one_by_one(labels, u, np.ones(u.shape, dtype=bool))
        each = squares / freedom
        expected = np.repeat(each.mean(axis=1, keepdims=True), 8, axis=1) if pooled else each
        np.testing.assert_allclose(noise(labels, u) ** 2, expected, rtol=1e-12)


def test_pooled_variance_has_no_bias() -> None:
    """The nodes of a field are fully dependent. False-alarm rate: 6e-5."""
    labels = np.repeat(np.arange(len(SIZES)), SIZES)
    u = np.repeat(normal(len(labels), 4000, 1), 3, axis=2) * np.array([1.0, 2.0, 3.0])
    square = noise(labels, u) ** 2
    np.testing.assert_array_equal(square, np.repeat(square[:, :1], 3, axis=1))
    assert abs(square[:, 0].mean() - 14 / 3) < 4 * 14 / 3 * np.sqrt(2 / 13) / np.sqrt(4000)


@pytest.mark.parametrize("copies", [3, 7])
def test_exact_repeats_have_no_noise(copies) -> None:
    """Though (0.1 + 0.1 + 0.1)/3 is not 0.1."""
    u = np.repeat(normal(60, 1, 9) + 0.1, copies, axis=0)
    labels = np.repeat(np.arange(60), copies)
    np.testing.assert_array_equal(noise(labels, u), 0)
    np.testing.assert_array_equal(noise(labels, u, normal(*u.shape, seed=1) > -1), 0)


def test_large_means_do_not_change_the_noise() -> None:
    labels = np.repeat(np.arange(60), 3)
    u = normal(180, 1, 4)
    np.testing.assert_allclose(noise(labels, u + 1e9), noise(labels, u), rtol=1e-6)


def test_order_does_not_matter_and_arguments_are_not_modified() -> None:
    labels, u, mask = np.repeat(np.arange(60), 3), normal(180, 2, 4), normal(180, 2, 4, seed=1) > -1
    before, order = (labels.copy(), u.copy(), mask.copy()), np.random.default_rng(2).permutation(180)
    found = noise(labels, u, mask)
    np.testing.assert_allclose(noise(labels[order], u[order], mask[order]), found, rtol=1e-12)
    np.testing.assert_allclose(noise(-labels, u, mask), found, rtol=1e-12)
    for now, then in zip((labels, u, mask), before, strict=True):
        np.testing.assert_array_equal(now, then)


# Too few repeats


def test_none_without_enough_repeats() -> None:
    u = normal(40, 1, 5)
    assert replicate_noise(np.arange(40), u) is None
    for repeats, enough in ((FEWEST - 1, False), (FEWEST, True)):
        labels = np.arange(40)
        labels[-repeats:] = labels[:repeats]
        assert (replicate_noise(labels, u) is not None) == enough
        assert (replicate_noise(np.maximum(np.arange(40), repeats), u) is not None) == enough  # one input, k − 1 repeats
    assert replicate_noise(np.zeros(0, dtype=np.int64), u[:0]) is None


def test_many_nodes_do_not_replace_repeats() -> None:
    assert replicate_noise(np.repeat(np.arange(9), 2), normal(18, 1, 1000)) is None


# Missing values


def test_missing_values_are_ignored() -> None:
    labels, u = np.random.default_rng(0).integers(0, 60, 240), normal(240, 2, 3, 4)
    mask = normal(*u.shape, seed=1) > -0.5
    squares, freedom = one_by_one(labels, u, mask)
    assert freedom.min() >= FEWEST
    assert len(np.unique(freedom)) > 5
    hidden = np.where(mask, u, np.where(normal(*u.shape, seed=2) > 0, np.nan, np.inf))
    np.testing.assert_allclose(noise(labels, hidden, mask) ** 2, squares / freedom, rtol=1e-12)
    np.testing.assert_array_equal(noise(labels, u, np.ones(u.shape, dtype=bool)), noise(labels, u))
    np.testing.assert_array_equal(noise(labels, hidden, mask.astype(np.float64)), noise(labels, hidden, mask))


def test_nodes_with_few_values_have_the_noise_of_their_channel() -> None:
    labels, u = np.repeat(np.arange(120), 2), normal(240, 2, 4) * np.arange(1, 5)
    mask = np.ones(u.shape, dtype=bool)
    mask[2 * (FEWEST - 1) :, 0, 1] = False  # nine degrees of freedom are left
    mask[2 * FEWEST :, 0, 2] = False  # ten
    mask[::2, 1, 3] = False  # none
    squares, freedom = one_by_one(labels, u, mask)
    assert freedom[[0, 0, 1], [1, 2, 3]].tolist() == [9, 10, 0]
    expected = squares / np.maximum(freedom, 1)
    pooled = squares.sum(axis=1) / freedom.sum(axis=1)
    expected[0, 1], expected[1, 3] = pooled
    np.testing.assert_allclose(noise(labels, u, mask) ** 2, expected, rtol=1e-12)


def test_degrees_of_freedom_are_those_of_compared_fields() -> None:
    """Each of 36 inputs is repeated at one of four nodes: nine degrees of freedom at each node, 36 of the channel."""
    labels, u, mask = np.repeat(np.arange(36), 2), normal(72, 1, 4), np.zeros((72, 1, 4), dtype=bool)
    mask[np.arange(72), 0, labels % 4] = True
    squares, freedom = one_by_one(labels, u, mask)
    np.testing.assert_array_equal(freedom, 9)
    np.testing.assert_allclose(noise(labels, u, mask) ** 2, squares.sum() / 36, rtol=1e-12)
    apart = np.zeros_like(mask)
    apart[np.arange(72), 0, np.arange(72) % 4] = True  # repeats at different nodes cannot be compared
    assert replicate_noise(labels, u, apart) is None


def test_none_if_a_channel_has_too_few_repeats() -> None:
    labels, u = np.repeat(np.arange(120), 2), normal(240, 2, 4)
    mask = np.ones(u.shape, dtype=bool)
    mask[18:, 1] = False
    assert replicate_noise(labels, u, mask) is None
    mask[18:20, 1] = True
    found = noise(labels, u, mask)
    assert len(np.unique(found[0])) == 4  # enough for each node
    assert len(np.unique(found[1])) == 1  # ten


# Mistakes


def test_arguments_are_checked() -> None:
    labels, u = np.repeat(np.arange(20), 2), normal(40, 1, 4)
    for wrong in (
        (labels[1:], u),
        (labels[:, None], u),
        (labels, u[:, 0, 0]),
        (labels, u, np.ones((40, 4))),
        (labels, u[:, :0]),
    ):
        with pytest.raises(UserError, match=r"labels, outputs and mask have shapes .*give a label for each sample"):
            replicate_noise(*wrong)
    u[3, 0, 2] = np.nan
    with pytest.raises(UserError, match="NaN or infinite values, expected finite numbers; mask them"):
        replicate_noise(labels, u)
    noise(labels, u, np.isfinite(u))
