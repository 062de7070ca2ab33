"""Features of linear means: logarithms and products are taken where they help."""

import numpy as np
import pytest

from pdno.mean.linear.linear import Linear
from tests.mean.problems import error, normal


@pytest.mark.parametrize("seed", range(3))
def test_logarithms_are_taken_where_they_help(seed) -> None:
    """This held for 20 seeds, with errors of at most 0.016."""
    a, b = np.exp(0.5 * normal(200, 1, 12, seed=seed)), normal(12, 12, seed=9)
    noise, new = 0.1 * normal(200, 1, 12, seed=seed + 50), np.exp(0.5 * normal(100, 1, 12, seed=seed + 100))
    of_logs, of_values = Linear().fit(a, np.log(a) @ b + noise), Linear().fit(a, a @ b + noise)
    assert of_logs.logged
    assert not of_values.logged
    assert error(of_logs, new, np.log(new) @ b) < 0.05
    assert error(of_values, new, new @ b) < 0.05
    assert not Linear().fit(a - 1, np.log(a) @ b + noise).logged
    assert Linear().fit(a, np.log(a) ** 2).logged  # though an affine map of a is better than one of log a


def test_logarithms_of_positive_channels_only() -> None:
    a = np.concatenate([np.exp(normal(200, 1, 6)), normal(200, 1, 6, seed=1)], axis=1)
    s = np.exp(normal(200, 1, seed=2))
    u = np.log(a[:, :1]) + a[:, 1:] * 2 - np.log(s)[:, :, None]
    mean = Linear().fit(a[:150], u[:150], s[:150])
    np.testing.assert_array_equal(mean.state().arrays["logged"], [1] * 6 + [0] * 6 + [1])
    assert error(mean, a[150:], u[150:], s[150:]) < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_products_are_taken_where_they_help(seed) -> None:
    """This held for 20 seeds."""
    a, new, noise = normal(400, 1, 6, seed=seed), normal(100, 1, 6, seed=seed + 50), 0.1 * normal(400, 1, 6, seed=seed + 100)
    b = normal(6, 6, seed=9)
    curved, straight = Linear().fit(a, a @ b + a**2 + noise), Linear().fit(a, a @ b + noise)
    assert curved.products == 6
    assert error(curved, new, new @ b + new**2) < 0.1
    assert not straight.products
    assert not Linear().fit(a, a @ b).products
    assert Linear(degree=2).fit(a, a @ b).products == 6


def test_weight_of_products_is_chosen(monkeypatch) -> None:
    a = normal(100, 1, 12)
    best = Linear(degree=2).fit(a, a**2).score
    monkeypatch.setattr("pdno.mean.linear.features.WEIGHTS", (0.3,))
    assert best < 0.99 * Linear(degree=2).fit(a, a**2).score


def test_logarithms_of_two_values_are_not_tried() -> None:
    x, group = np.where(normal(50, 4) > 0, 12.0, 4.0), np.zeros(4, dtype=int)
    assert len(Linear()._logarithms(x, group)) == 1
    assert len(Linear()._logarithms(x + 0.1 * normal(50, 4) ** 2, group)) == 2


def test_components_are_as_many_as_pairs_allow() -> None:
    a = normal(60, 1, 50)
    assert Linear(degree=2).fit(a, a**2).products == 7  # 28 products; 8 components would have 36
    assert Linear(degree=2, components=3).fit(a, a**2).products == 3


def test_some_of_many_pairs_select_the_features(monkeypatch) -> None:
    monkeypatch.setattr("pdno.mean.linear.linear.MOST_PAIRS", 50)
    a, new = np.exp(0.3 * normal(400, 1, 60)), np.exp(0.3 * normal(100, 1, 60, seed=1))
    a[7, 0, 3] = -1  # not among those pairs, but logarithms are impossible
    assert error(Linear().fit(a, np.cumsum(a, axis=2)), new, np.cumsum(new, axis=2)) < 1e-9
    assert not Linear().fit(a, np.log(np.abs(a))).logged
