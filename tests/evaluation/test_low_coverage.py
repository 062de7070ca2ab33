"""Regions of low coverage are found if there are any, and otherwise rarely."""

import numpy as np
import pytest
from scipy.stats import t as student

from pdno.evaluation.low_coverage import ALPHA, low_coverage_range, low_coverage_region

LEVEL = 0.9


def covered(rng, shape, shared: float) -> np.ndarray:
    """Whether observations are inside calibrated intervals; a fraction `shared` of the fields has fully dependent points."""
    own, same = rng.random(shape) < LEVEL, rng.random((shape[0], *[1] * (len(shape) - 1))) < LEVEL
    return np.where(rng.random((shape[0], *[1] * (len(shape) - 1))) < shared, same, own)


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [10, 50])
def test_calibrated_intervals_have_no_low_coverage(n, shared) -> None:
    """The false-positive rate of both tests is at most 1 %; of 400, 12 or more have a probability below 1/1000."""
    found = 0
    axes = {"x": np.arange(8.0), "y": np.arange(4.0)}
    for seed in range(200):
        rng = np.random.default_rng((seed, n))
        inside = covered(rng, (n, 1, 8, 4), shared)
        found += low_coverage_region(inside, axes, LEVEL) is not None
        found += low_coverage_range(inside, rng.normal(size=inside.shape), LEVEL, "u") is not None
    assert found < 12
    assert ALPHA == 0.01


def test_a_corner_of_low_coverage_is_found() -> None:
    rng = np.random.default_rng(0)
    inside = rng.random((60, 2, 16, 8)) < LEVEL
    inside[:, :, 14:, :1] = rng.random((60, 2, 2, 1)) < 0.5
    region = low_coverage_region(inside, {"x": np.linspace(0, 1, 16), "height": np.arange(8)}, LEVEL)
    assert region.description == f"for x from {14 / 15:.3g} to 1 and height from 0 to 0"
    assert region.coverage == pytest.approx(0.5, abs=4 * region.error)
    assert region.error == pytest.approx(0.5 / np.sqrt(60 * 4), rel=0.3)


def test_a_range_of_low_coverage_is_found_and_ties_stay_together() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 3, size=(50, 1, 40)).astype(float)
    inside = np.where(values == 1, rng.random(values.shape) < 0.6, rng.random(values.shape) < LEVEL)
    region = low_coverage_range(inside, values, LEVEL, "the prediction is")
    assert region.description == "where the prediction is between 0 and 1"
    assert region.coverage == pytest.approx(0.6, abs=4 * region.error)
    constant = low_coverage_range(inside, np.ones_like(values), LEVEL - 0.2, "u")
    assert constant is None


def test_masked_points_have_no_effect() -> None:
    inside, mask = np.ones((30, 1, 16), dtype=bool), np.ones((30, 1, 16), dtype=bool)
    inside[:, :, 12:], mask[:, :, 12:] = False, False
    assert low_coverage_region(inside, {"x": np.arange(16)}, LEVEL, mask) is None
    assert low_coverage_range(inside, np.broadcast_to(np.arange(16.0), inside.shape), LEVEL, "u", mask) is None
    assert low_coverage_region(inside, {"x": np.arange(16)}, LEVEL).description == "for x from 12 to 13"


def test_a_small_deficit_is_not_reported() -> None:
    """However significant it is."""
    inside = np.random.default_rng(2).random((400, 1, 64)) < 0.85
    assert low_coverage_region(inside, {"x": np.arange(64)}, LEVEL) is None


def test_few_samples_are_not_tested() -> None:
    assert low_coverage_region(np.zeros((4, 1, 8), dtype=bool), {"x": np.arange(8)}, LEVEL) is None


def coverages(low: int, high: int, samples: int, parts: int) -> np.ndarray:
    """Samples that cover in turn `low` and `high` of 1000 points of the first part, and all of the others."""
    inside = np.ones((samples, 1000, parts), dtype=bool)
    number = np.where(np.arange(samples) % 2, low, high)
    inside[:, :, 0] = np.arange(1000) < number[:, None]
    return inside


def found(inside: np.ndarray, tests: int = 1) -> bool:
    return low_coverage_region(inside, {"x": np.arange(inside.shape[2])}, LEVEL, tests=tests) is not None


def test_parts_and_tests_share_the_false_positive_rate() -> None:
    """t = .2·√19/.281 = 3.10 is between the quantiles 2.79 of one part and 3.63 of four, with 9.5 degrees of freedom."""
    assert found(coverages(419, 981, 20, 1))
    assert not found(coverages(419, 981, 20, 4))
    assert not found(coverages(419, 981, 20, 1), tests=4)
    values = np.broadcast_to(np.arange(4.0), (20, 1000, 4))
    assert low_coverage_range(coverages(419, 981, 20, 4), values, LEVEL, "u is") is None


def test_the_quantile_has_half_of_the_degrees_of_freedom() -> None:
    """Of eight samples: 4.06 for 3.5 degrees of freedom, and not 3.00 for 7; t = .2·√7/.151 = 3.50, and 4.60 for .115."""
    assert not found(coverages(549, 851, 8, 1))
    assert found(coverages(585, 815, 8, 1))


@pytest.mark.parametrize(("value", "words"), [(0, "up to 0"), (3, "between 2 and 3"), (6, "between 5 and 6"), (7, "above 6")])
def test_each_of_eight_ranges_is_found(value, words) -> None:
    values = np.broadcast_to(np.arange(8.0), (20, 8))
    assert low_coverage_range(values != value, values, LEVEL, "u is").description == f"where u is {words}"


def test_the_number_of_ranges_is_that_of_the_parts() -> None:
    """Eight ranges: t = 4.11 is between the quantiles 4.07 of eight parts and 4.15 of nine, with 9.5 degrees of freedom."""
    t = (student.isf(ALPHA / 8, 9.5) + student.isf(ALPHA / 9, 9.5)) / 2
    half = 0.2 * np.sqrt(19) / t
    values = np.broadcast_to(np.arange(8.0), (20, 4000, 8))
    inside = np.ones(values.shape, dtype=bool)
    covered = np.where(np.arange(20) % 2, 0.7 - half, 0.7 + half)
    inside[:, :, 0] = np.arange(4000) < 4000 * covered[:, None]
    assert low_coverage_range(inside, values, LEVEL, "u is") is not None
    assert low_coverage_region(inside, {"x": np.arange(8)}, LEVEL) is not None
    assert low_coverage_region(inside, {"x": np.arange(8)}, LEVEL, tests=2) is None
