"""Means over points and samples with their standard errors, by hand arithmetic and repetitions."""

import numpy as np
import pytest

from pdno import UserError
from pdno.evaluation.score import Score, per_sample


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_score_of_four_samples() -> None:
    score = Score.mean([1, 2, 3, 6])
    assert float(score) == score.value == 3
    assert score.error == pytest.approx(np.sqrt((4 + 1 + 0 + 9) / 3) / 2)
    np.testing.assert_array_equal(score.each, [1, 2, 3, 6])


def test_means_of_samples() -> None:
    values = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    np.testing.assert_allclose(per_sample(values), [2.5, 6.5])
    np.testing.assert_allclose(per_sample(values, weights=[1, 3]), [(1 + 6 + 3 + 12) / 8, (5 + 18 + 7 + 24) / 8])
    np.testing.assert_allclose(per_sample(values, mask=[True, False]), [2, 6])
    np.testing.assert_allclose(per_sample([1.0, 7.0]), [1, 7])
    np.testing.assert_allclose(per_sample([[True, False], [True, True]]), [0.5, 1])


def test_root_of_a_ratio_of_means() -> None:
    """By hand: √((4 + 12)/(1 + 3)) = 2 with error 0, as numerator − 4·denominator is zero; the error by many repetitions."""
    exact = Score.root_of_ratio(np.array([4.0, 12.0]), np.array([1.0, 3.0]))
    assert (exact.value, exact.error) == (2.0, 0.0)
    assert Score.root_of_ratio(np.array([-1.0, 0.5]), np.ones(2)).value == 0
    assert np.isnan(Score.root_of_ratio(np.array([-1.0, 0.5]), np.ones(2)).error)
    assert Score.root_of_ratio(np.ones(2), np.zeros(2)).value == np.inf
    rng = np.random.default_rng(0)
    scores = [Score.root_of_ratio(rng.exponential(2.0, 200), rng.exponential(1.0, 200)) for _ in range(1000)]
    values = np.array([score.value for score in scores])
    assert np.mean([score.error for score in scores]) == pytest.approx(values.std(), rel=0.1)


u23 = normal(2, 3)
nan23 = np.where(np.arange(3) == 1, np.nan, u23)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Score.mean([]), r"scores of samples have shape \(0,\)"),
        (lambda: Score.mean([[1.0]]), r"scores of samples have shape \(1, 1\)"),
        (lambda: per_sample(3.0), "a single number was passed"),
        (lambda: per_sample(nan23), "values to be averaged are NaN at observed points"),
        (lambda: per_sample(u23, mask=[[True], [False]]), "sample 1 has no observed point of positive weight"),
        (lambda: per_sample(u23, weights=[0, 0, 0]), "sample 0 has no observed point of positive weight"),
        (lambda: per_sample(np.empty((2, 0))), "sample 0 has no observed point"),
        (lambda: per_sample(u23, weights=[1, -1, 1]), r"weights of shape \(3,\), minimum -1.0, expected finite numbers ≥ 0"),
        (lambda: per_sample(u23, weights=[1, np.nan, 1]), r"minimum nan, expected finite numbers ≥ 0"),
        (lambda: per_sample(u23, weights=[1, 2]), r"weights of shape \(2,\), .* for samples of shape \(3,\)"),
        (lambda: per_sample(u23, weights=u23**2), r"weights of shape \(2, 3\), .* for samples of shape \(3,\)"),
        (lambda: per_sample(u23, mask=[1.0, 0.0, 1.0]), "a mask is float64 .* pass True where u is observed"),
        (lambda: per_sample(u23, mask=[True, False]), r"a mask is bool of shape \(2,\), .* fields of shape \(2, 3\)"),
    ],
)
def test_invalid_arguments(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
