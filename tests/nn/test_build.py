"""Networks by name and settings: the right class and size for a grid, weights from the seed, and clear errors."""

import pytest
import torch
from torch import nn

from pdno import UserError
from pdno.nn import FNO, NETWORKS, LocalFNO, Slim, Spectral, UNet, build


def weights(network: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


@pytest.mark.parametrize(("name", "kind"), [("unet", UNet), ("fno", FNO), ("slim", Slim), ("spectral", Spectral)])
@pytest.mark.parametrize("time", [True, False])
def test_names_and_settings(name, kind, time) -> None:
    network = build(name, (64,), 3 if time else 1, 2, time, seed=0)
    assert type(network) is kind
    assert NETWORKS[name] is kind
    a, v = torch.randn(2, 1, 64), torch.randn(2, 2, 64)
    output = network(5, v, a) if time else network(a)
    assert output.shape == (2, 2, 64)


@pytest.mark.parametrize(
    ("grid", "kind", "settings"),
    [
        ((128,), LocalFNO, {"modes": 25, "width": 48}),
        ((16, 16), LocalFNO, {"modes": 10, "width": 40}),
        ((4, 64), LocalFNO, {"modes": 10}),
        ((3,), LocalFNO, {"modes": 25}),
        ((127, 300), LocalFNO, {"modes": 10}),
        ((128, 300), Slim, {"patch": 4, "blocks": 1}),
        ((32, 32, 32), FNO, {"modes": 8, "width": 24}),
        ((6, 32, 32), FNO, {"modes": 3, "width": 24}),
    ],
)
def test_the_automatic_network_fits_the_grid(grid, kind, settings) -> None:
    network = build("auto", grid, 2, 1, True, seed=0)
    assert type(network) is kind
    assert settings.items() <= network.settings.items()


@pytest.mark.parametrize(("grid", "levels"), [((128,), 4), ((16, 16), 3), ((4, 64), 1), ((3,), 1)])
def test_settings_of_a_unet_without_a_name_select_one_that_fits_the_grid(grid, levels) -> None:
    network = build({"base": 8}, grid, 2, 1, True, seed=0)
    assert type(network) is UNet
    assert network.settings["base"] == 8
    assert network.settings["multipliers"] == [1, 2, 4, 8][:levels]


def test_settings_without_a_name_are_those_of_the_automatic_network() -> None:
    network = build({"width": 8}, (16,), 2, 1, True, seed=0)
    assert type(network) is LocalFNO
    assert network.settings["width"] == 8
    assert network(torch.ones(2, dtype=torch.long), torch.randn(2, 1, 16), torch.randn(2, 1, 16)).shape == (2, 1, 16)


@pytest.mark.parametrize("name", ["fno", "spectral", "slim"])
@pytest.mark.parametrize("points", [2, 3, 7, 8, 23, 24, 46, 47])
def test_defaults_are_reduced_on_small_grids(name, points) -> None:
    a = torch.randn(2, 1, points)
    assert build(name, (points,), 1, 1, False, seed=0)(a).shape == a.shape


def test_settings_take_precedence_over_those_of_small_grids() -> None:
    assert build({"kind": "fno", "modes": 2, "width": 4}, (16,), 1, 1, False, seed=0).settings["modes"] == 2


def test_weights_are_a_function_of_the_seed() -> None:
    """They do not depend on the global random state, and do not change it."""
    state = torch.random.get_rng_state()
    first = weights(build("slim", (16,), 2, 1, True, seed=3))
    torch.manual_seed(5)
    assert torch.equal(first, weights(build("slim", (16,), 2, 1, True, seed=3)))
    assert not torch.equal(first, weights(build("slim", (16,), 2, 1, True, seed=4)))
    torch.random.set_rng_state(state)
    build("slim", (16,), 2, 1, True, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_module_is_copied() -> None:
    module = nn.Conv1d(1, 1, 3)
    copy = build(module, (16,), 1, 1, False, seed=0)
    assert copy is not module
    assert torch.equal(weights(copy), weights(module))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("unett", r"network 'unett' is unknown; did you mean 'unet'\? Expected one of auto, unet, fno"),
        ({"kind": "slimm"}, r"network 'slimm' is unknown; did you mean 'slim'\?"),
        ({"kind": "fno", "mode": 3}, "the network 'fno' does not take these settings: .*'mode'"),
        ({"kind": "unet", "base": 12}, "base = 12.*choose a multiple of 8"),
        (nn.Identity(), "the network has no parameters"),
        (3, "network = 3: expected a name, a mapping of settings, or a torch module"),
    ],
)
def test_wrong_networks_are_explained(network, message) -> None:
    with pytest.raises(UserError, match=message):
        build(network, (64,), 2, 1, True, seed=0)


@pytest.mark.parametrize(("name", "kind"), [("small", "Slim"), ("small-local", "LocalFNO"), ("small-fno", "FNO")])
def test_small_networks_are_much_smaller(name, kind) -> None:
    large_name = {"Slim": "slim", "LocalFNO": "local", "FNO": "fno"}[kind]
    small, large = (build(each, (32, 32), 2, 1, False, seed=0) for each in (name, large_name))
    assert type(small).__name__ == kind
    assert 3 * weights(small).numel() < weights(large).numel()
    assert small(torch.randn(2, 2, 32, 32)).shape == (2, 1, 32, 32)


def test_a_small_network_of_a_fine_grid_has_larger_patches() -> None:
    coarse, fine = (build("small", (side, side), 1, 1, False, seed=0).settings["patch"] for side in (64, 128))
    assert (coarse, fine) == (2, 4)
    assert build({"kind": "small", "patch": 2}, (128, 128), 1, 1, False, seed=0).settings["patch"] == 2


def test_a_small_network_works_on_a_tiny_grid() -> None:
    assert build("small", (5, 6), 1, 1, False, seed=0)(torch.randn(2, 1, 5, 6)).shape == (2, 1, 5, 6)
