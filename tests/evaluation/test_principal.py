"""Leading principal components of fields."""

import numpy as np
import pytest

from pdno.evaluation.principal import leading, without_leading

RNG = np.random.default_rng(0)
SHIFTS = RNG.standard_normal((300, 1, 1))
NOISE = RNG.standard_normal((300, 1, 16))


def test_the_projection_has_the_shift_and_nothing_else() -> None:
    fields = SHIFTS * np.ones(16) + 0.1 * NOISE
    project = leading(fields, 0.2)
    np.testing.assert_allclose(project(fields), SHIFTS * np.ones(16), atol=0.25)
    np.testing.assert_allclose(project(project(fields)), project(fields), atol=1e-9)
    np.testing.assert_allclose(without_leading(fields, 0.2), fields - project(fields), atol=1e-12)
    other = 3 * np.ones((2, 1, 16))
    np.testing.assert_allclose(project(other), other, rtol=0.1)


@pytest.mark.parametrize(("together", "is_kept"), [(0.2, True), (0.5, False)])
def test_components_that_do_not_have_enough_of_the_variance_together_are_ignored(together, is_kept) -> None:
    """The shift has about 40 % of the variance."""
    fields = 0.8 * SHIFTS * np.ones(16) + NOISE
    assert bool(leading(fields, 0.2, together=together)(fields).any()) == is_kept
