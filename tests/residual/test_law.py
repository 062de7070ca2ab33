"""The protocol of residual laws: inputs, residuals, draws that are functions of (seed, input, member), scores."""

import numpy as np
import pytest

from pdno import Pairs, metrics
from pdno.diffusion.base import White
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.residual import Exact, Gaussian, Inputs, ResidualLaw, Residuals, Rows, normals
from pdno.residual.score import neighbours
from tests.helpers import linear_pairs, normal
from tests.residual.coins import Coins


def noise(count: int = 30, seed: int = 0) -> Residuals:
    """Return residuals of a linear mean: white noise of standard deviation .2."""
    a, u, clean = linear_pairs(count, seed=seed)
    return Residuals(Pairs.of(a, u), u - clean)


# Inputs


def test_what_depends_on_the_inputs_is_computed_once() -> None:
    inputs, calls = Inputs(normal(3, 1, 4), normal(3, 1, 4)), []

    def compute() -> int:
        calls.append("call")
        return 5

    assert [inputs.once("five", compute) for _ in range(3)] == [5, 5, 5]
    assert len(calls) == 1
    assert inputs.once("other", lambda: None) is None
    assert inputs.once("other", lambda: 7) is None  # None is a result, too
    assert Inputs(inputs.a, inputs.mean).once("five", lambda: 6) == 6  # of other inputs
    assert len(inputs) == 3


def test_residuals_know_their_inputs() -> None:
    a, u, clean = linear_pairs(9)
    residuals = Residuals(Pairs.of(a, u, scalars=normal(9, 2)), u - clean)
    np.testing.assert_allclose(residuals.inputs.mean, clean, rtol=1e-12)
    np.testing.assert_array_equal(residuals.inputs.scalars, normal(9, 2))
    assert residuals.mask is None
    assert residuals.groups() is None
    assert len(residuals) == 9


def test_residuals_of_equal_inputs_or_of_one_group_are_not_independent() -> None:
    a, u, _ = linear_pairs(6)
    a[3] = a[0]
    groups = Residuals(Pairs.of(a, u), u).groups()
    assert groups[0] == groups[3]
    assert len(np.unique(groups)) == 5
    grouped = Residuals(Pairs.of(a, u, group=np.array([0, 0, 1, 1, 2, 2])), u)
    assert grouped.groups().tolist() == [0, 0, 1, 1, 2, 2]


def test_a_mask_that_hides_nothing_is_none() -> None:
    a, u, _ = linear_pairs(6)
    mask = np.ones(u.shape, dtype=bool)
    assert Residuals(Pairs.of(a, u, mask=mask), u).mask is None
    mask[2, 0, 3] = False
    np.testing.assert_array_equal(Residuals(Pairs.of(a, u, mask=mask), u).mask, mask)


# Draws


def test_draws_of_a_base_law_are_functions_of_seed_input_member_and_step() -> None:
    def drawn(inputs: list[int], members: list[int], seed: int = 5, step: int = 2) -> np.ndarray:
        rows = Rows(seed, np.array(inputs), np.array(members), np.zeros(len(inputs), dtype=int))
        return normals(White(), (2, 4), rows, step)

    whole = drawn([3, 3, 3, 4, 9], [0, 1, 2, 0, 1])
    for k, (i, m) in enumerate(((3, 0), (3, 1), (3, 2), (4, 0), (9, 1))):
        np.testing.assert_array_equal(drawn([i], [m])[0], whole[k])
    np.testing.assert_array_equal(drawn([9, 3, 3], [1, 2, 1]), whole[[4, 2, 1]])
    assert len({row.tobytes() for row in whole}) == 5
    assert not np.array_equal(drawn([3], [0], seed=6)[0], whole[0])
    assert not np.array_equal(drawn([3], [0], step=1)[0], whole[0])


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 16), 512), ((1, 1024), 128), ((1, 64, 64), 32), ((3, 128, 128), 4), ((1, 512, 512), 4)]
)
def test_the_rows_of_a_call_are_bounded_by_their_values(shape, rows) -> None:
    """At most 2¹⁷ values and 512 rows; at least four rows."""
    assert Gaussian().rows_of_call(shape) == rows


def test_some_rows_of_residuals_have_the_predictions_of_these_rows() -> None:
    whole = noise()
    prediction = normal(30, 1, 16)
    given = Residuals(whole.pairs, whole.values, prediction=prediction)[np.array([4, 7])]
    np.testing.assert_array_equal(given.inputs.mean, prediction[[4, 7]])


# Scores


def test_differences_ofneighbours_are_along_all_axes_and_between_observed_nodes() -> None:
    fields = normal(3, 2, 4, 5)
    steps = neighbours(fields, np.subtract, 2)
    assert steps.shape == (3, 2, 3 * 5 + 4 * 4)
    np.testing.assert_array_equal(steps[..., :15], np.diff(fields, axis=-2).reshape(3, 2, 15))
    np.testing.assert_array_equal(steps[..., 15:], np.diff(fields, axis=-1).reshape(3, 2, 16))
    mask = np.array([True, True, False, True])
    np.testing.assert_array_equal(neighbours(mask[None, None], np.logical_and, 1)[0, 0], [True, False, False])


def test_single_observed_nodes_have_a_score() -> None:
    """No two neighbours are observed: there are no differences."""
    mask = np.zeros((8, 1, 16), bool)
    mask[..., ::4] = True
    values = normal(8, 1, 16)
    residuals = Residuals(pairs_of(values, values, None, mask), np.where(mask, values, 0.0))
    assert np.isfinite(Gaussian("scalar").learn(residuals, None, Terms()).score(residuals, 5)).all()


@pytest.mark.parametrize("law", [Gaussian("scalar"), Coins(), Exact()], ids=lambda law: law.name)
def test_the_score_is_the_mean_of_crps_and_energy_scores_of_the_draws(law: ResidualLaw) -> None:
    """In units of the root mean square residual, and of its differences of neighbours."""
    law.learn(noise(), None, Terms())
    held_out = noise(8, seed=1)
    numbers = np.arange(8)
    draws = np.stack([law.draw(held_out.inputs, Rows(3, numbers, np.full(8, member), numbers)) for member in range(7)])
    values, steps = held_out.values, np.diff(held_out.values)
    scores = [score(draws, values).each / np.sqrt(np.mean(values**2)) for score in (metrics.crps, metrics.energy_score)]
    scores.append(metrics.energy_score(np.diff(draws), steps).each / np.sqrt(np.mean(steps**2)))
    expected = np.mean(scores, axis=0)
    np.testing.assert_allclose(law.score(held_out, members=7, seed=3), expected, rtol=1e-12)


def test_missing_values_are_not_scored() -> None:
    a, u, clean = linear_pairs(8, seed=1)
    mask = np.random.default_rng(2).random(u.shape) < 0.6
    law = Coins().learn(noise(), None, Terms())
    scores = [
        law.score(Residuals(Pairs.of(a, np.where(mask, u, 5.0), mask=mask), np.where(mask, u - clean, other)))
        for other in (0.0, 99.0)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])


def test_the_score_prefers_the_true_law() -> None:
    """White noise against coins of its mean absolute value and against no residual, by at least four standard errors."""
    held_out = noise(200, seed=1)
    gaussian, coins, exact = (law.learn(noise(400), None, Terms()).score(held_out) for law in (Gaussian(), Coins(), Exact()))
    for other in (coins, exact):
        gain = other - gaussian
        assert gain.mean() > 4 * gain.std() / np.sqrt(len(gain))
