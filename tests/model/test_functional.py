"""A model in function space predicts on finer grids by drawing there, not by interpolation."""

import numpy as np
import pytest

import pdno
from pdno import Field, Grid
from pdno.diffusion.base import White
from pdno.grid import interpolate
from pdno.residual import Inputs

BASE, SMOOTH = Field(tau=6, r=1.5, condition="periodic"), Field(tau=6, r=3, scale=6e4, condition="periodic", modes=15)


def fields(points: int, count: int, seed: int) -> np.ndarray:
    return SMOOTH.sample(Grid.uniform(points, kind="periodic"), count, seed)[:, None]


def fitted(base: Field | White, **others: object) -> pdno.PDNO:
    network = {"kind": "operator", "modes": 9, "width": 8, "layers": 2}
    diffusion = pdno.Diffusion(pdno.Schedule.geometric(20, 0.02, 20.0), base, "v")
    training = pdno.Training(updates=10, batch=16, rate=0.01, ema=0.0)
    settings = {"variance": "noise-free", "sampler": "dpm", "steps": 6, "kind": "periodic", "training": training, **others}
    return pdno.PDNO(network, diffusion, mean=None, **settings).fit(fields(32, 64, 0), 2 + fields(32, 64, 1), progress=False)


@pytest.fixture(scope="module")
def model() -> pdno.PDNO:
    return fitted(BASE)


def test_members_on_a_finer_grid_are_draws_of_the_diffusion_there(model) -> None:
    """They have modes that 32 points do not resolve, and are the same functions otherwise."""
    a, law = fields(64, 2, 7), model.fitted
    members = model.sample(a, 3)
    inputs = Inputs(a, np.full(a.shape, float(law.mean.normalisation.mean.item())))
    direct = inputs.mean + law.residual.members(inputs, np.arange(2), 3, 0, 0)
    np.testing.assert_allclose(members, direct, rtol=1e-5, atol=1e-5)
    coarse, fine = (Grid.uniform(points, kind="periodic") for points in (32, 64))
    raised = interpolate(model.sample(a[..., ::2], 3), coarse, fine, "spectral")
    size = np.abs(members - raised).max()
    assert 1e-3 < size < 0.2 * members.std()


def test_on_a_coarser_grid_members_of_the_training_grid_are_interpolated(model) -> None:
    """The local path of the network reaches over fewer nodes there than it needs."""
    a = fields(32, 2, 7)
    np.testing.assert_allclose(model.sample(a[..., ::2], 3), model.sample(a, 3)[..., ::2], atol=1e-3)


def test_a_loaded_model_draws_the_same_members(model, tmp_path) -> None:
    model.save(tmp_path / "model.safetensors")
    a = fields(64, 2, 7)
    np.testing.assert_array_equal(pdno.load(tmp_path / "model.safetensors").sample(a, 2), model.sample(a, 2))


def test_only_functions_are_drawn_on_other_grids(model) -> None:
    """White noise has no limit, and a normalisation by node has a grid: members of the training grid are interpolated."""
    assert model.fitted.residual.any_grid
    assert "members are drawn on this grid" in model.predict(fields(64, 1, 7), 2, progress=False).notes[0]
    assert not fitted(White()).fitted.residual.any_grid
    by_node = fitted(BASE, normalise=("pointwise", "scalar"))
    assert not by_node.fitted.residual.any_grid
    assert by_node.sample(fields(64, 1, 7), 1).shape == (1, 1, 1, 64)
