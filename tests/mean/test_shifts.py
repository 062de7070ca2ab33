"""Linear maps of a few displaced values, on any grid."""

import numpy as np
import pytest

import pdno
from pdno.mean import Linear
from pdno.mean.linear.shifts import Shifts

FORTY = np.random.default_rng(0).normal(size=(80, 1, 16))


@pytest.mark.parametrize("points", [128, 512, 1024])
def test_advection_is_exact_on_every_grid(points) -> None:
    fine = pdno.equation.Advection(points=points)
    coarse = pdno.equation.Advection(points=256)
    a = coarse.sample_input(600)
    mean = Linear().fit(a, coarse.solve(a))
    assert mean.any_grid
    new = fine.sample_input(20, seed=1)
    np.testing.assert_allclose(mean.on_grid(new), fine.solve(new), atol=1e-6)


def test_weights_and_constants_are_those_of_the_cell() -> None:
    """u = 2 a(x − ¼) + 3 a(x) + x in the right half, 1 in the left, on a grid of three times the points."""

    def truth(a: np.ndarray) -> np.ndarray:
        n = a.shape[-1]
        x = (np.arange(16) / 16).repeat(n // 16)
        shifted = np.concatenate([np.zeros_like(a[..., : n // 4]), a[..., : 3 * n // 4]], axis=-1)
        return np.where(x < 0.5, 1.0, 2 * shifted + 3 * a + x)

    new = np.random.default_rng(1).normal(size=(5, 1, 48))
    mean = Linear(penalty=0.0, degree=1, log=False, smooth=False).fit(FORTY, truth(FORTY))
    np.testing.assert_allclose(mean.on_grid(new), truth(new), atol=1e-5)


def test_two_dimensions_and_channels() -> None:
    """u₀ = a₁ one cell to the right, u₁ = a₀ one cell below, periodically but for the ends, which are 0."""
    matrix = np.zeros((2, 4, 4, 2, 4, 4))
    for i in range(4):
        for j in range(3):
            matrix[1, i, j, 0, i, j + 1] = 1.0
            matrix[0, j, i, 1, j + 1, i] = 1.0
    shifts = Shifts.of(matrix.reshape(32, 32), np.zeros(32), 2, (2, 4, 4))
    a = np.random.default_rng(0).normal(size=(3, 2, 8, 12))
    u = shifts(a)
    np.testing.assert_array_equal(u[:, 0, :, 3:], a[:, 1, :, :-3])
    np.testing.assert_array_equal(u[:, 1, 2:], a[:, 0, :-2])
    assert not u[:, 0, :, :3].any()


def test_maps_of_many_inputs_are_none() -> None:
    mean = Linear(log=False, degree=1).fit(FORTY, np.cumsum(FORTY, axis=-1))
    assert not mean.any_grid
    with pytest.raises(pdno.UserError, match="this linear mean is not a sum of a few displaced values"):
        mean.on_grid(FORTY)
    positive = np.exp(FORTY)
    assert not Linear(log=True).fit(positive, np.log(positive)).any_grid
    with pytest.raises(pdno.UserError, match="interpolate inputs to its own grid"):
        Linear(degree=1).fit(FORTY, FORTY[..., :8]).on_grid(FORTY)
