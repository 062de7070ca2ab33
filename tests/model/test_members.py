"""The number of members for a tolerance, against closed forms of the Monte-Carlo error."""

import numpy as np
import pytest

from pdno import PDNO, UserError
from pdno.model.members import FEWEST, MOST
from tests.helpers import exact, normal


@pytest.fixture(scope="module")
def gaussian() -> PDNO:
    """Return a model of N(0, 1) whose mean is known from members alone."""
    a = normal(20, 16)
    return exact(s=1.0, variance="gaussian").fit(a, a)


@pytest.fixture(scope="module")
def centred() -> PDNO:
    """Return a Gaussian law about an exact mean."""
    a = normal(60, 16)
    return PDNO(mean="linear", law="gaussian").fit(a, a + 0.1 * normal(60, 16, seed=1), progress=False)


def test_the_mean_needs_one_over_the_square_of_the_tolerance(gaussian) -> None:
    pred = gaussian.predict(normal(2, 16), members="auto", tolerance=0.1, steps=1)
    assert pred.members == 100  # 1/.01, more than (κ − 1)/.04 = 50
    exactly = gaussian.predict(normal(2, 16), members=100, steps=1)
    np.testing.assert_array_equal(pred.std, exactly.std)


def test_an_exact_mean_needs_no_members_and_the_std_half_as_many(centred) -> None:
    """(κ − 1)/(4 tolerance²) = 200 for κ = 3, within the error of κ from 128 members of four inputs of 16 points."""
    pred = centred.predict(normal(4, 16), members="auto", tolerance=0.05)
    assert pred.members == pytest.approx(200, rel=0.15)
    error = pred.std / centred.predict(normal(4, 16), members=5000).std - 1
    assert np.sqrt(np.mean(error**2)) < 1.3 * 0.05


def test_the_number_is_limited(gaussian) -> None:
    assert gaussian.predict(normal(1, 16), members="auto", tolerance=10.0, steps=1).members == FEWEST
    assert MOST == 10_000


@pytest.mark.parametrize("tolerance", [0, -1, "small", True])
def test_a_tolerance_is_positive(gaussian, tolerance) -> None:
    with pytest.raises(UserError, match="expected a positive number"):
        gaussian.predict(normal(1, 16), members="auto", tolerance=tolerance)
