"""Local sizes of errors by the jackknife: by hand for two copies, at a jump, and saved."""

import numpy as np
import pytest

from pdno.mean.base import pairs_of
from pdno.mean.process.fitted import Fitted
from pdno.mean.process.jackknife import POWER, Copy, Jackknife
from pdno.mean.process.process import FEWEST_SIZED, Process
from pdno.mean.process.promise import new_rows

RNG = np.random.default_rng(0)
GRID = np.linspace(0, 1, 12)


def runs(x: np.ndarray) -> np.ndarray:
    """Return fields that jump where x = ½, and change slowly elsewhere."""
    return np.where(x > 0.5, 1.0, -1.0) * (1 + 0.2 * np.sin(np.pi * GRID)) + 0.3 * x


def fitted(x: np.ndarray) -> Fitted:
    return Fitted.of(np.zeros((len(x), 1, 12)), runs(x)[:, None], x)


def zeros(x: np.ndarray) -> np.ndarray:
    return np.zeros((len(x), 1, 12))


def test_a_copy_predicts_numbers_along_the_components_of_the_process() -> None:
    x, new = RNG.uniform(size=(30, 1)), RNG.uniform(size=(5, 1))
    whole, part = fitted(x), Fitted.of(zeros(x[:20]), runs(x[:20])[:, None], x[:20], fitted(x))
    expected = whole.basis.numbers(part(zeros(new), new))
    np.testing.assert_allclose(Copy.of(part, whole)(whole.coordinates(zeros(new), new)), expected, atol=1e-9)


def test_the_spread_of_two_copies_is_half_their_squared_difference() -> None:
    """By hand: (F − 1)/F Σ (m − m̄)² = (m₁ − m₂)²/4 for F = 2, and t is its ratio to s², to the power ¼, about the average."""
    x = RNG.uniform(size=(24, 1))
    whole = fitted(x)
    copies = [Fitted.of(zeros(x[some]), runs(x[some])[:, None], x[some], whole) for some in (slice(0, 16), slice(8, 24))]
    new = whole.coordinates(zeros(x[:6]), x[:6] + 0.01)
    sizes = Jackknife.of(whole, copies, new)(new)
    first, second = (Copy.of(copy, whole)(new) for copy in copies)
    weights = np.square(whole.basis.fields).mean(axis=(1, 2))
    posterior = (whole.regression(whole.warp(new))[1] + whole.hyper.nugget) * whole.regression.variance
    logs = POWER * np.log((np.square(first - second) @ weights / 4) / (posterior @ weights))
    np.testing.assert_allclose(np.log(sizes), logs - logs.mean(), rtol=1e-6)


@pytest.fixture(scope="module")
def process() -> Process:
    x = np.random.default_rng(3).uniform(size=(30, 1))
    pairs = pairs_of(zeros(x), runs(x)[:, None], x)
    mean = Process().fit(pairs.a, pairs.u, x)
    mean.residuals(pairs.a, pairs.u, x)
    return mean


def test_errors_are_larger_next_to_a_jump(process) -> None:
    x = np.linspace(0.02, 0.98, 49)[:, None]
    near = np.abs(x[:, 0] - 0.5) < 0.05
    logs = np.log(process.components(zeros(x), x).size)
    assert logs[near].mean() > np.log(2) + logs[~near].mean()


def test_sizes_are_one_on_average_over_new_inputs(process) -> None:
    """The mean of log t over other inputs of the same distribution is 0, up to five standard errors of both."""
    runs_of_the_fixture = np.random.default_rng(3).uniform(size=(30, 1))
    x = new_rows(runs_of_the_fixture, 1)
    logs = np.log(process.components(zeros(x), x).size)
    assert abs(logs.mean()) < 5 * logs.std() * np.sqrt(2 / len(x))
    assert process.left_out_components().size_variance == pytest.approx(logs.var(), rel=0.3)


def test_left_out_runs_that_are_far_from_all_others_have_less_weight() -> None:
    """Of runs that are dense in a part of the range, the one beyond a gap is farther from the others than new inputs are."""
    x = np.append(np.random.default_rng(1).uniform(size=29), 4.0)[:, None]
    u = np.sin(3 * x) * (1 + GRID)
    process = Process().fit(zeros(x), u[:, None], x)
    process.residuals(zeros(x), u[:, None], x)
    weights = process.left_out_components().weights
    assert weights is not None
    assert weights.max() == 1
    assert weights[-1] == weights.min() < 0.9


def test_sizes_are_saved(process) -> None:
    again, x = Process.from_state(process.state()), RNG.uniform(size=(4, 1))
    np.testing.assert_array_equal(again.components(zeros(x), x).size, process.components(zeros(x), x).size)


def test_without_residuals_sizes_are_not_known() -> None:
    x = RNG.uniform(size=(20, 1))
    assert Process().fit(zeros(x), runs(x)[:, None], x).components(zeros(x), x).size is None


@pytest.mark.parametrize("count", [FEWEST_SIZED - 1, FEWEST_SIZED])
def test_very_few_runs_tell_no_sizes(count) -> None:
    x = np.random.default_rng(0).uniform(size=(count, 1))
    process = Process().fit(zeros(x), runs(x)[:, None], x)
    process.residuals(zeros(x), runs(x)[:, None], x)
    assert (process.components(zeros(x), x).size is None) is (count < FEWEST_SIZED)
