"""The Fourier neural operator: number of parameters, and its spectral layer as a Fourier multiplier."""

import math
from itertools import product

import pytest
import torch

from pdno import UserError
from pdno.nn import FNO
from pdno.nn.fno import SpectralConv


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({"dim": 2, "modes": 12, "width": 32}, 2_376_449),
        ({"dim": 1, "modes": 16, "width": 64}, 582_849),
        ({"dim": 1, "modes": 16, "width": 128}, 2_328_961),
    ],
)
def test_parameters(settings, parameters) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in FNO(**settings).parameters()) == parameters


def coordinate(points: int, grid: tuple[int, ...], axis: int) -> torch.Tensor:
    """Return x = i/points along one axis, in a shape that broadcasts to the grid."""
    shape = [1] * len(grid)
    shape[axis] = points
    return (torch.arange(points, dtype=torch.float64) / points).reshape(shape)


@pytest.mark.parametrize("grid", [(16,), (12, 9), (10, 12, 8)])
def test_spectral_layer_is_a_fourier_multiplier(grid) -> None:
    """exp(2πi k·x) ↦ w_k exp(2πi k·x) for every k below the cutoff, up to conjugation, and 0 above it."""
    dim, modes = len(grid), 3
    layer = SpectralConv(dim, modes, 1).double()
    weights = torch.view_as_complex(layer.weight.detach())[:, 0, 0]
    for k in product(*[range(-modes, modes)] * (dim - 1), (1, 2)):
        phase = sum((k[i] * coordinate(s, grid, i) for i, s in enumerate(grid)), start=torch.zeros(grid))
        wave = torch.exp(2j * math.pi * phase)
        corner = sum(2 ** (dim - 2 - i) for i in range(dim - 1) if k[i] < 0)
        factor = weights[(corner, *(j % modes for j in k))]
        torch.testing.assert_close(layer(wave.real[None, None])[0, 0], (factor * wave).real)
    high = torch.cos(2 * math.pi * modes * coordinate(grid[-1], grid, dim - 1)).expand(grid)
    torch.testing.assert_close(layer(high[None, None]), torch.zeros(1, 1, *grid, dtype=torch.float64))


def test_spectral_layer_is_the_same_operator_on_every_grid() -> None:
    """For a band-limited function, outputs on a coarse and on a fine grid agree at the common nodes."""
    layer = SpectralConv(2, 4, 3).double()
    x, y = torch.meshgrid(*[torch.arange(48, dtype=torch.float64) / 48] * 2, indexing="ij")
    u = torch.stack([torch.cos(2 * math.pi * (i * x - 3 * y)) + torch.sin(2 * math.pi * 2 * y + i) for i in range(3)])[None]
    torch.testing.assert_close(layer(u)[..., ::4, ::3], layer(u[..., ::4, ::3].contiguous()))


def test_coordinates_are_an_input() -> None:
    """The lifting takes the field and linspace(0, 1, s), both ends included."""
    net = FNO(1, modes=2, width=4)
    lifted = []
    net.lift.register_forward_hook(lambda module, inputs, output: lifted.append(inputs[0]))
    net(torch.ones(2, 1, 5))
    expected = torch.tensor([[1, 1, 1, 1, 1], [0, 0.25, 0.5, 0.75, 1]]).expand(2, 2, 5)
    torch.testing.assert_close(lifted[0], expected)


@pytest.mark.parametrize(("dim", "grid"), [(1, (14,)), (2, (7, 5)), (2, (40, 23))])
def test_any_grid_with_enough_points_is_accepted(dim, grid) -> None:
    assert FNO(dim, modes=8, width=4, out_channels=2)(torch.randn(3, 1, *grid)).shape == (3, 2, *grid)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FNO(4), "dim = 4: the FNO works in one, two or three"),
        (lambda: FNO(2, modes=0), "modes = 0"),
    ],
)
def test_impossible_networks_are_refused(make, message) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("net", "grid", "message"),
    [
        (FNO(1, modes=8, width=4), (13,), "a grid of 13 is too small for an FNO of 8 modes; use at least 14 points"),
        (FNO(2, modes=8, width=4), (6, 6), "6x6 is too small for an FNO of 8 modes; use at least 7x5 points"),
    ],
)
def test_a_grid_that_is_too_small_is_refused(net, grid, message) -> None:
    with pytest.raises(UserError, match=message):
        net(torch.randn(2, 1, *grid))
