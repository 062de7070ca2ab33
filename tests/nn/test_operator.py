"""The network with a spectral and a local path as an operator: one function on every grid."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno import Grid
from pdno.grid import interpolate
from pdno.nn import build
from pdno.nn.local import LocalFNO, _Layer


def inputs(points: tuple[int, ...], kind: str, seed: int) -> Tensor:
    """Return two functions with four modes along each axis at the nodes of a grid: (2, 1, *grid)."""
    coarse, fine = (Grid.uniform(n, kind=kind) for n in ((8,) * len(points), points))
    values = np.random.default_rng(seed).standard_normal((2, *coarse.shape))
    low = interpolate(interpolate(values, coarse, coarse.with_points(4), "spectral"), coarse.with_points(4), fine, "spectral")
    return torch.as_tensor(low)[:, None]


def network(points: tuple[int, ...], kind: str, **settings: object) -> torch.nn.Module:
    """Return a network for a training grid, with random weights in layers that are 0 at first."""
    asked = {"kind": "operator", "modes": 5, "width": 8, "layers": 2, **settings}
    net = build(asked, points, 2, 1, True, 0, periodic=(kind == "periodic",) * len(points)).double()
    torch.manual_seed(1)
    for layer in [net.out, *(each.down for each in net.layers)]:
        torch.nn.init.normal_(layer.weight, std=0.1)
    return net


def outputs(net: torch.nn.Module, points: tuple[int, ...], kind: str) -> np.ndarray:
    with torch.no_grad():
        return net(7, inputs(points, kind, 0), inputs(points, kind, 1)).numpy()


@pytest.mark.parametrize("kind", ["periodic", "cell"])
@pytest.mark.parametrize(("trained", "finer"), [((64,), (128,)), ((64,), (256,)), ((64,), (96,)), ((24, 32), (48, 96))])
def test_the_output_is_the_same_function_on_finer_grids(kind, trained, finer) -> None:
    """Up to aliasing of the nonlinear layers, in two dimensions on coarser grids; and, with 96 points, linear interpolation."""
    net, (source, target) = network(trained, kind), (Grid.uniform(n, kind=kind) for n in (trained, finer))
    there, here = outputs(net, finer, kind), outputs(net, trained, kind)
    assert here.std() > 0.01
    difference = interpolate(here, source, target, "spectral") - there
    limit = 2e-2 if len(trained) == 2 else 2e-3 if finer[0] % trained[0] else 2e-4
    assert np.square(difference).mean() < limit**2 * np.square(there).mean()


def test_neighbouring_nodes_are_another_function_on_a_finer_grid() -> None:
    """The test above can fail: it does for the local path between neighbours."""
    net, (source, target) = network((64,), "periodic"), (Grid.uniform(n, kind="periodic") for n in (64, 256))
    net.points = [256]  # the distance of neighbours on the finer grid
    there = outputs(net, (256,), "periodic")
    net.points = [64]
    here = interpolate(outputs(net, (64,), "periodic"), source, target, "spectral")
    assert np.square(here - there).mean() > 0.05**2 * np.square(there).mean()


@pytest.mark.parametrize("dim", [1, 2])
def test_on_periodic_training_grids_the_local_path_is_that_between_neighbours(dim) -> None:
    layer = _Layer(dim, 3, 4, (True,) * dim)
    z = torch.randn(2, *(9, 7)[:dim], 4)
    torch.testing.assert_close(layer._local(z, [1.0] * dim), layer._local(z, None), rtol=0, atol=0)


def test_the_local_path_takes_values_at_a_fixed_distance() -> None:
    """Σ_j w_j cos 2π(x + j/8) on 8, 16 and 12 points, the last with the linear interpolant of the cosine."""
    layer = _Layer(1, 3, 1, (True,)).double()
    weight, bias = (x.detach().numpy().ravel() for x in (layer.local.weight, layer.local.bias))
    for points in (8, 16, 12):
        x = np.arange(points) / points
        nodes = np.append(x, 1.0)
        expected = bias + sum(
            w * np.interp((x + j / 8) % 1, nodes, np.cos(2 * np.pi * nodes)) for w, j in zip(weight, range(-2, 3), strict=True)
        )
        values = layer._local(torch.as_tensor(np.cos(2 * np.pi * x))[None, :, None], [points / 8])
        np.testing.assert_allclose(values.detach().numpy().ravel(), expected, atol=1e-12)


def test_it_is_built_by_name_and_from_its_settings() -> None:
    net = build("operator", (16, 12), 2, 1, True, 0, periodic=(True, False))
    assert isinstance(net, LocalFNO)
    assert net.settings["points"] == [16, 12]
    again = build({"kind": "local", **net.settings}, (32, 24), 2, 1, True, 0, periodic=(True, False))
    assert again.settings == net.settings
    assert "points" not in build("local", (16,), 2, 1, True, 0).settings
