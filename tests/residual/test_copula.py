"""Residuals with any distribution of single values, without a network."""

import numpy as np
import pytest
from scipy.stats import kurtosis, skew

from pdno import UserError
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Copula, Residuals, Rows, law_from_state
from pdno.residual.law import named_state

NODES = 32


def residuals_of(values: np.ndarray, mask: np.ndarray | None = None) -> Residuals:
    a = np.random.default_rng(9).standard_normal(values.shape)
    return Residuals(pairs_of(a, values, None, mask), values, prediction=np.zeros_like(values))


def drawn(law: Copula, members: int = 2000) -> np.ndarray:
    rows = Rows(0, np.zeros(members, int), np.arange(members), np.zeros(members, int))
    return law.draw(residuals_of(np.zeros((1, 1, NODES))).inputs, rows)


@pytest.mark.parametrize("name", ["laplace", "exponential"])
def test_skewness_and_tails_are_those_of_the_values(name) -> None:
    """Laplace values have the excess kurtosis 3, exponential ones the skewness 2."""
    values = getattr(np.random.default_rng(0), name)(size=(1000, 1, NODES)) - (name == "exponential")
    draws = drawn(Copula().learn(residuals_of(values), None, Terms()))
    assert draws.std() == pytest.approx(values.std(), rel=0.02)
    assert skew(draws, axis=None) == pytest.approx(2.0 if name == "exponential" else 0.0, abs=0.15)
    if name == "laplace":
        assert kurtosis(draws, axis=None) == pytest.approx(3.0, abs=0.5)


def test_the_standard_deviation_depends_on_the_node() -> None:
    std = np.linspace(0.1, 2, NODES)
    values = std * np.random.default_rng(0).laplace(size=(1000, 1, NODES)) / np.sqrt(2)
    np.testing.assert_allclose(drawn(Copula().learn(residuals_of(values), None, Terms())).std(axis=(0, 1)), std, rtol=0.15)


def test_correlations_are_kept() -> None:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((1000, 1, 1)) + 0.3 * rng.standard_normal((1000, 1, NODES))
    draws = drawn(Copula().learn(residuals_of(np.exp(shared)), None, Terms()))
    assert np.corrcoef(np.log(draws[:, 0, 3]), np.log(draws[:, 0, 20]))[0, 1] == pytest.approx(1 / 1.09, abs=0.05)
    assert (draws > 0).all()


def test_values_have_the_size_of_held_out_ones() -> None:
    values = np.random.default_rng(0).laplace(size=(500, 1, NODES))
    law = Copula().learn(residuals_of(values), residuals_of(1.5 * values[:100]), Terms())
    assert drawn(law).std() == pytest.approx(1.5 * np.sqrt(2), rel=0.03)


def test_sizes_vary_as_those_of_held_out_fields() -> None:
    """Held-out fields have random sizes with a standard deviation of .3 in the logarithm; training ones have not."""
    rng = np.random.default_rng(0)
    values, new = rng.laplace(size=(500, 1, NODES)), rng.laplace(size=(200, 1, NODES))
    sizes = np.exp(0.3 * rng.standard_normal((200, 1, 1)))
    law = Copula().learn(residuals_of(values), residuals_of(sizes * new), Terms())
    assert law.values.size == pytest.approx(0.3, abs=0.06)  # four standard errors
    assert "sizes of fields vary" in law.describe()
    log_sizes = np.log(np.sqrt(np.square(drawn(law)).mean(axis=(1, 2))))
    expected = np.log(np.sqrt(np.square(sizes * new).mean(axis=(1, 2))))
    assert log_sizes.std() == pytest.approx(expected.std(), rel=0.15)
    assert Copula().learn(residuals_of(values), residuals_of(new), Terms()).values.size == 0


def test_random_sizes_are_counted_once() -> None:
    """Values that have random sizes in training too: the quantile function must not contain them a second time."""
    rng = np.random.default_rng(0)
    values, new = (np.exp(0.5 * rng.standard_normal((n, 1, 1))) * rng.standard_normal((n, 1, NODES)) for n in (600, 200))
    draws = drawn(Copula().learn(residuals_of(values), residuals_of(new), Terms()))
    assert draws.std() == pytest.approx(values.std(), rel=0.1)
    assert np.quantile(np.abs(draws), 0.99) == pytest.approx(np.quantile(np.abs(values), 0.99), rel=0.12)
    sizes = [np.log(np.square(x).mean(axis=(1, 2))).std() / 2 for x in (draws, values)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.12)


def test_residuals_that_are_always_zero_stay_so() -> None:
    values = 0.01 * np.random.default_rng(0).standard_normal((300, 1, NODES))
    values[..., [0, -1]] = 0.0
    law = Copula().learn(residuals_of(values), residuals_of(values[:100]), Terms())
    draws = drawn(law)
    assert not draws[..., [0, -1]].any()
    np.testing.assert_allclose(draws[..., 1:-1].std(axis=0), 0.01, rtol=0.2)
    np.testing.assert_array_equal(drawn(law_from_state(named_state(law)), 5), draws[:5])


def test_few_held_out_pairs_do_not_enlarge_the_values() -> None:
    values = np.random.default_rng(0).standard_normal((70, 1, NODES))
    law = Copula().learn(residuals_of(values), residuals_of(2 * values[:8]), Terms())
    assert drawn(law).std() == pytest.approx(values.std(), rel=0.05)


def test_missing_values_do_not_count() -> None:
    rng = np.random.default_rng(0)
    values, mask = rng.laplace(size=(500, 1, NODES)), rng.random((500, 1, NODES)) < 0.7
    law = Copula().learn(residuals_of(np.where(mask, values, 0.0), mask), None, Terms())
    assert drawn(law).std() == pytest.approx(np.sqrt(2), rel=0.05)


def test_it_is_saved_with_all_that_it_needs() -> None:
    law = Copula().learn(residuals_of(np.random.default_rng(0).laplace(size=(100, 1, NODES))), None, Terms())
    again = law_from_state(named_state(law))
    np.testing.assert_array_equal(drawn(law, 10), drawn(again, 10))
    assert again.describe() == law.describe()


def test_it_must_be_trained_first() -> None:
    with pytest.raises(UserError, match="has not been trained"):
        Copula().describe()
