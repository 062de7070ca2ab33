"""The posterior of the mean as the law of its residuals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import pdno
from pdno.learning.budget import Terms
from pdno.mean.base import Components, pairs_of
from pdno.residual import Inputs, PosteriorLaw, Residuals, law_from_state
from pdno.residual.law import named_state
from pdno.residual.posterior import factors_of, scatter_of

TERMS = Terms(0, progress=False)
FIELDS = np.stack([np.ones((1, 6)), np.array([[1.0, -1, 1, -1, 1, -1]])])  # orthogonal


def residuals(count, factor=2.0, rest=0.0, seed=0):
    """Return residuals whose numbers are `factor` times as large as the posterior, which depends on the input."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.5, 2, (count, 2)) * [1.0, 0.1]
    values = np.tensordot(factor * std * rng.normal(size=std.shape), FIELDS, axes=1)
    values = values + rest * rng.normal(size=values.shape)
    a = rng.normal(size=(count, 1, 6))
    pairs = pairs_of(a, values)
    return Residuals(pairs, values, components=Components(FIELDS, FIELDS / 6, std))


def inputs(std):
    zeros = np.zeros((len(std), 1, 6))
    return Inputs(zeros, zeros, None, Components(FIELDS, FIELDS / 6, np.asarray(std)))


def test_factor_is_that_of_out_of_fold_residuals():
    law = PosteriorLaw().learn(residuals(400), None, TERMS)
    assert law.factors == pytest.approx([2.0, 2.0], rel=0.15)  # four standard errors


def test_draws_have_the_posterior_of_their_input():
    law = PosteriorLaw().learn(residuals(400), None, TERMS)
    drawn = law.members(inputs([[1.0, 0.0], [3.0, 0.0]]), np.array([0, 1]), 4000, 0, 0)
    assert drawn[:, :, 0].std(axis=0)[:, 0] == pytest.approx(law.factors[0] * np.array([1.0, 3.0]), rel=0.05)
    spread = np.ptp(drawn, axis=-1).max()  # of one field, which is constant but for a rest that is zero
    assert spread < 1e-6 * np.abs(drawn).max()


def test_few_pairs_widen_intervals_by_the_t_distribution():
    law = PosteriorLaw().learn(residuals(6), None, TERMS)
    drawn = law.members(inputs([[1.0, 0.0]]), np.array([0]), 8000, 0, 0)[:, 0, 0, 0] / law.factors[0]
    assert law.freedom == 5
    assert np.quantile(drawn, 0.95) == pytest.approx(np.sqrt(7 / 5) * stats.t.ppf(0.95, 5), rel=0.08)  # two standard errors


def test_intervals_of_five_pairs_cover_on_average():
    """Over many data sets of five pairs, 90 % intervals of a new number cover 90 %."""
    inside = []
    for seed in range(300):
        some = residuals(5, seed=seed)
        tau = factors_of(some.components.numbers(some.values), some.components)[0]
        inside.append(2 * stats.norm.cdf(tau * stats.t.ppf(0.95, 4) / 2.0) - 1)  # numbers are twice as large as the posterior
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)  # two standard errors are 0.02


def test_the_rest_has_the_size_of_what_the_fields_leave():
    law = PosteriorLaw().learn(residuals(300, rest=0.3), None, TERMS)
    drawn = law.members(inputs([[0.0, 0.0]]), np.array([0]), 2000, 0, 0)
    assert drawn.std() == pytest.approx(0.3 * np.sqrt(4 / 6), rel=0.1)


def test_a_restored_law_draws_the_same():
    law = PosteriorLaw().learn(residuals(30, rest=0.1), None, TERMS)
    again = law_from_state(named_state(law))
    at = inputs([[1.0, 0.1]])
    np.testing.assert_array_equal(again.members(at, np.array([0]), 3, 0, 0), law.members(at, np.array([0]), 3, 0, 0))
    assert again.describe() == law.describe()


@pytest.mark.parametrize(("count", "message"), [(3, "at least 4"), (0, "mean='process'")])
def test_data_without_a_posterior_or_with_too_few_pairs_are_refused(count, message):
    some = residuals(count or 10)
    if not count:
        some = Residuals(some.pairs, some.values)
    with pytest.raises(pdno.UserError, match=message):
        PosteriorLaw().learn(some, None, TERMS)


def test_settings_of_a_diffusion_are_checked():
    law = PosteriorLaw().learn(residuals(10), None, TERMS)
    with pytest.raises(pdno.UserError):
        law.evaluations(stesp=3)
    assert law.evaluations(steps=3) == 0


def test_the_local_size_multiplies_draws():
    law = PosteriorLaw().learn(residuals(400), None, TERMS)
    at = inputs([[1.0, 0.0], [1.0, 0.0]])
    local = Inputs(at.a, at.mean, None, replace(at.components, size=np.array([1.0, 3.0])))
    plain, sized = (law.members(each, np.array([0, 1]), 3, 0, 0) for each in (at, local))
    np.testing.assert_allclose(sized, plain * np.array([1.0, 3.0])[:, None, None])


def test_left_out_pairs_count_by_their_weights():
    """The second half of the pairs has errors that are ten times as large, and no weight."""
    some, weights = residuals(400), np.repeat([1.0, 0.0], 200)
    values = some.values * np.where(weights > 0, 1, 10)[:, None, None]
    law = PosteriorLaw().learn(replace(some, values=values, components=replace(some.components, weights=weights)), None, TERMS)
    assert law.factors == pytest.approx([2.0, 2.0], rel=0.2)  # four standard errors


@pytest.mark.parametrize("scatter", [0.0, 0.5])
def test_the_scatter_of_sizes_is_that_of_residuals(scatter):
    """Sizes e^(ση) of fields of six independent numbers; the standard error of σ² is .025 with 400 pairs."""
    rng, nodes = np.random.default_rng(1), np.eye(6)[:, None]
    numbers = 2 * np.exp(scatter * rng.normal(size=(400, 1))) * rng.normal(size=(400, 6))
    components, factors = Components(nodes, nodes, np.ones((400, 6))), np.full(6, 2.0)
    assert scatter_of(numbers, components, factors) ** 2 == pytest.approx(scatter**2, abs=0.1)
    assert scatter_of(numbers, replace(components, size_variance=scatter**2), factors) ** 2 < 0.1
    few = Components(nodes, nodes, np.ones((7, 6)))
    assert scatter_of(numbers[:7], few, factors) == 0  # which would narrow the intervals of very few runs
