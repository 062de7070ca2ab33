"""A diffusion that was trained on one grid draws members on others: one function for each (seed, input, member)."""

from functools import cache

import numpy as np
import pytest

from pdno import Diffusion, Field, Grid, Pairs, Schedule, Training
from pdno.diffusion.base import White
from pdno.diffusion.reverse import Reverse
from pdno.grid import interpolate
from pdno.learning.budget import Terms
from pdno.residual import Diffused, Inputs, Residuals
from pdno.residual.scale import Scale
from pdno.residual.spread import Spread

POINTS = 32
GRID = Grid.uniform(POINTS, kind="periodic")
ROUGH, SMOOTH = Field(tau=6, r=2, condition="periodic"), Field(tau=6, r=3, scale=6e4, condition="periodic", modes=15)
ROUGHEST = Field(tau=6, r=1, condition="periodic")


@cache
def trained(base: Field | White) -> Diffused:
    """Return a diffusion of smooth residuals, trained for a few updates: its network is not zero, and not good."""
    a, r = (SMOOTH.sample(GRID, 64, seed)[:, None] for seed in (0, 1))
    spread = Spread(Scale(np.ones((1, 1)), np.ones((1, 1)), (True,), "scalar"))
    network = {"kind": "operator", "modes": 9, "width": 8, "layers": 2}
    diffusion = Diffusion(Schedule.geometric(20, 0.02, 20.0), base, "v")
    reverse, training = Reverse("noise-free", sampler="dpm", steps=6), Training(updates=20, batch=16, rate=0.01, ema=0.0)
    law = Diffused(network, diffusion, reverse, spread=spread, training=training)
    residuals = Residuals(Pairs.of(a, r), r, periodic=(True,))
    return law.learn(residuals, None, Terms(progress=False))


def members(law: Diffused, points: int) -> np.ndarray:
    """Return three members of two inputs on a grid: (3, 2, points)."""
    a = SMOOTH.sample(GRID.with_points(points), 2, seed=7)[:, None]
    return law.members(Inputs(a, np.zeros_like(a)), np.arange(2), 3, 0, 0)[:, :, 0]


@pytest.mark.parametrize("points", [64, 128])
def test_a_member_is_the_same_function_on_a_finer_grid(points) -> None:
    """Within 2 % of its size: 32 points do not resolve all of the base distribution. Members differ by far more."""
    law = trained(ROUGH)
    here, there = members(law, POINTS), members(law, points)
    difference = interpolate(here, GRID, GRID.with_points(points), "spectral") - there
    assert np.sqrt(np.square(difference).mean() / np.square(there).mean()) < 0.02
    assert np.sqrt(np.square(there[0] - there[1]).mean() / np.square(there).mean()) > 0.5


def test_the_network_matters() -> None:
    """The test above would also hold for a network that predicts 0, whose chain is linear."""
    law, inputs = trained(ROUGH), np.zeros((1, 1, POINTS))
    first, second = (
        law.members(Inputs(a, inputs), np.arange(1), 1, 0, 0) for a in (inputs, SMOOTH.sample(GRID, 1, seed=7)[:, None])
    )
    assert np.abs(first - second).max() > 0.05 * np.abs(first).max()


def test_with_white_noise_members_become_rougher_on_a_finer_grid() -> None:
    """White noise has no limit: differences of neighbours, which fall by a half for a function, increase."""
    law = trained(White())
    coarse, fine = (np.diff(members(law, points)).std() for points in (POINTS, 2 * POINTS))
    assert fine > coarse
    law = trained(ROUGH)
    coarse, fine = (np.diff(members(law, points)).std() for points in (POINTS, 2 * POINTS))
    assert fine < 0.6 * coarse


def test_the_reverse_chain_starts_from_the_same_function_on_a_finer_grid() -> None:
    """Modes of V_N that 32 points resolve are equal to 1e-5; scaled by the trace of each grid they differ by 1 %."""
    starts = []
    for points in (POINTS, 2 * POINTS):
        path: list[np.ndarray] = []
        a = np.zeros((1, 1, points))
        trained(ROUGHEST).members(Inputs(a, a), np.arange(1), 1, 0, 0, callback=lambda n, v, path=path: path.append(v.numpy()))
        starts.append(np.fft.rfft(path[0], norm="forward")[..., : POINTS // 2])
    np.testing.assert_allclose(starts[0], starts[1], rtol=1e-4, atol=1e-5)
