"""The spectral network: equality with fast Fourier transforms, commutation with translations, and independence of the grid."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pdno import UserError
from pdno.nn import Spectral
from pdno.nn.layers import sinusoid
from pdno.nn.spectral import _Layer, resampling, transforms


def fields(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def small(**settings: object) -> Spectral:
    """Return a small network whose last layer is not zero."""
    net = Spectral(1, **{"modes": 4, "width": 8, "layers": 2, **settings})
    nn.init.normal_(net.out[2].weight, std=0.5)
    nn.init.normal_(net.out[2].bias, std=0.5)
    return net


def waves(points: int, samples: int = 3, highest: int = 3) -> Tensor:
    """Return random functions with frequencies 0 … highest at the nodes i/points, (sample, 1, points)."""
    angle = 2 * math.pi * torch.outer(torch.arange(highest + 1), torch.arange(points, dtype=torch.float64) / points)
    return (fields(samples, 2 * highest + 2, dtype=torch.float64) @ torch.cat((angle.cos(), angle.sin())))[:, None]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# Outputs


def multiplied(weight: Tensor, x: Tensor) -> Tensor:
    """Return F⁻¹(R·F x) by fast Fourier transforms, (batch, width, points)."""
    x_hat = torch.fft.rfft(x)
    y_hat = torch.zeros_like(x_hat)
    y_hat[..., : len(weight)] = torch.einsum("bik,kio->bok", x_hat[..., : len(weight)], torch.view_as_complex(weight))
    return torch.fft.irfft(y_hat, n=x.shape[2])


@pytest.mark.parametrize("points", [9, 10, 64, 75])
def test_the_spectral_part_is_that_of_fast_transforms(points) -> None:
    """For odd and even numbers of points, starting with the minimum for five modes."""
    layer, x = _Layer(5, 6).double(), fields(3, 6, points, dtype=torch.float64)
    hidden = []
    layer.first.register_forward_hook(lambda module, inputs, output: hidden.append(inputs[0].permute(1, 2, 0)))
    nn.init.zeros_(layer.skip.weight)
    nn.init.zeros_(layer.skip.bias)
    layer(x.permute(2, 0, 1), *transforms(points, 5), None)
    torch.testing.assert_close(hidden[0], multiplied(layer.weight.detach(), x), rtol=1e-12, atol=1e-12)


def test_the_inverse_transform_inverts_the_transform_below_the_cutoff() -> None:
    transform, inverse = transforms(12, 4)
    kept = waves(12, samples=5, highest=3)[:, 0].T
    torch.testing.assert_close(inverse @ (transform @ kept), kept, rtol=1e-12, atol=1e-12)
    high = torch.cos(2 * math.pi * 4 * torch.arange(12, dtype=torch.float64) / 12)
    torch.testing.assert_close(transform @ high, torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-12)


def reference(net: Spectral, x: Tensor, n: Tensor | None) -> Tensor:
    """Return the output by the formula of the module, with channels first."""

    def linear(layer: nn.Linear, x: Tensor) -> Tensor:
        return torch.einsum("oi,bix->box", layer.weight, x) + layer.bias[:, None]

    if net.coordinates:
        x = torch.cat((x, torch.linspace(0, 1, x.shape[2], dtype=x.dtype).expand(len(x), 1, -1)), 1)
    x = linear(net.lift, x)
    steps = None if n is None else net.embed(sinusoid(n, 64, x.dtype)).unflatten(1, (len(net.layers), 2, -1))
    for place, layer in enumerate(net.layers):
        y = multiplied(layer.weight, x) + linear(layer.skip, x)
        if steps is not None:
            scale, shift = steps[:, place, :, :, None].unbind(1)
            y = (1 + scale) * y + shift
        x = x + linear(layer.second, F.gelu(linear(layer.first, y)))
    return linear(net.out[2], F.gelu(linear(net.out[0], x)))


@pytest.mark.parametrize("coordinates", [False, True])
@pytest.mark.parametrize("time", [False, True])
def test_outputs_are_those_of_a_plain_implementation(time, coordinates) -> None:
    net = small(in_channels=3, out_channels=2, time=time, layers=3, coordinates=coordinates).double()
    x, n = fields(2, 3, 15, dtype=torch.float64), torch.tensor([1, 60])
    y = net(n, x[:, 1:], x[:, :1]) if time else net(x)  # a is the first channel
    assert y.shape == (2, 2, 15)
    assert y.is_contiguous()
    torch.testing.assert_close(y, reference(net, x, n if time else None), rtol=1e-12, atol=1e-12)


def test_the_initial_output_is_zero() -> None:
    x = fields(2, 1, 16)
    assert not Spectral(1, modes=4, width=8)(x).any()
    assert not Spectral(1, modes=4, width=8, in_channels=2, time=True)(3, x, x).any()
    assert small()(x).any()


# Symmetry and grids


@pytest.mark.parametrize("shift", [1, 7, 20])
def test_it_commutes_with_translations_of_a_periodic_domain(shift) -> None:
    net, x = small(), fields(3, 1, 33)
    torch.testing.assert_close(net(x.roll(shift, 2)), net(x).roll(shift, 2), rtol=0, atol=1e-5)
    net, x = net.double(), x.double()
    torch.testing.assert_close(net(x.roll(shift, 2)), net(x).roll(shift, 2), rtol=0, atol=1e-12)


def test_coordinates_break_the_symmetry() -> None:
    net, x = small(coordinates=True), fields(3, 1, 33)
    assert (net(x.roll(7, 2)) - net(x).roll(7, 2)).abs().max() > 1e-2


def test_coordinates_run_from_zero_to_one() -> None:
    net, lifted = small(coordinates=True), []
    net.lift.register_forward_hook(lambda module, inputs, output: lifted.append(inputs[0]))
    net(torch.full((2, 1, 9), 3.0))
    expected = torch.stack((torch.full((9,), 3.0), torch.arange(9) / 8), 1)[:, None].expand(9, 2, 2)
    torch.testing.assert_close(lifted[0], expected)


def gap(net: Spectral, coarse: int, fine: int, size: float) -> float:
    """Return the maximum difference of the outputs on two grids at the coarse nodes, divided by the maximum output."""
    x, y = net(size * waves(coarse)), net(size * waves(fine))
    return float((x - y[..., :: fine // coarse]).abs().max() / y.abs().max())


def test_outputs_agree_on_grids_that_resolve_them() -> None:
    """The input has frequencies up to 3; those that σ adds decay geometrically and are below rounding at 32."""
    net = small(layers=4).double().requires_grad_(False)
    assert gap(net, 64, 128, size=1) < 1e-12
    assert gap(net, 8, 128, size=1) > 1e-4  # 8 points resolve frequencies up to 4 only


def test_outputs_depend_little_on_a_grid_that_does_not_resolve_the_nonlinearity() -> None:
    """With inputs ten times larger, 64 points resolve σ(…) to 1e-5, and 128 points at least ten times better."""
    net = small(layers=4).double().requires_grad_(False)
    assert 1e-7 < gap(net, 64, 512, size=10) < 1e-4
    assert gap(net, 128, 512, size=10) < 0.1 * gap(net, 64, 512, size=10)


# Inputs and parameters


@pytest.mark.parametrize("time", [False, True])
def test_every_parameter_gets_a_gradient(time) -> None:
    net, x = small(in_channels=2 if time else 1, time=time), fields(2, 1, 16)
    y = net(torch.tensor([5, 60]), x, x.flip(2)) if time else net(x)
    y.square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_output_depends_on_the_step_which_may_be_one_number() -> None:
    net, (v, a) = small(in_channels=2, time=True), fields(2, 2, 1, 16)
    assert torch.equal(net(9, v, a), net(torch.tensor([9, 9]), v, a))
    assert (net(9, v, a) - net(10, v, a)).abs().max() > 1e-5


def test_samples_of_a_batch_are_independent() -> None:
    net, (v, a), n = small(in_channels=2, time=True), fields(2, 3, 1, 16), torch.tensor([1, 40, 90])
    alone = torch.cat([net(n[i : i + 1], v[i : i + 1], a[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(net(n, v, a), alone, rtol=1e-5, atol=1e-5)


def test_single_precision_agrees_with_double_whichever_comes_first() -> None:
    """The matrices of the transforms are cached in double precision."""
    net, x = small(), fields(2, 1, 21)
    before = net(x)
    double = Spectral(**net.settings).double()
    double.load_state_dict(net.state_dict())
    y = double(x.double())
    assert y.dtype == torch.float64
    torch.testing.assert_close(y.float(), before, rtol=1e-4, atol=1e-5)
    assert torch.equal(net(x), before)


@pytest.mark.parametrize("coordinates", [False, True])
def test_settings_rebuild_the_network(coordinates) -> None:
    net = small(in_channels=2, out_channels=3, layers=3, coordinates=coordinates)
    again = Spectral(**json.loads(json.dumps(net.settings)))
    again.load_state_dict(net.state_dict())
    x = fields(2, 2, 20)
    assert again.settings == net.settings
    assert again.settings["coordinates"] is coordinates
    assert torch.equal(again(x), net(x))


def test_training_fits_a_few_random_pairs() -> None:
    net = Spectral(1, modes=4, width=8, layers=2)
    a, u = waves(16, samples=4).float(), waves(16, samples=8).float()[4:]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        loss = (net(a) - u).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]


# Wrong settings and inputs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spectral(2), "dim = 2: the spectral network works in one dimension; use an FNO"),
        (lambda: Spectral(1, modes=0), "modes = 0: a network needs whole numbers of at least 1"),
        (lambda: Spectral(1, layers=0), "layers = 0: a network needs whole numbers of at least 1"),
        (lambda: Spectral(1, width=8.0), r"width = 8\.0: a network needs whole numbers"),
    ],
)
def test_impossible_networks_are_refused(make, message) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_too_few_points_are_refused() -> None:
    net = Spectral(1, width=4)
    with pytest.raises(UserError, match="a grid of 46 points is too small for 24 modes; use at least 47 points, or fewer"):
        net(fields(2, 1, 46))
    assert net(fields(2, 1, 47)).shape == (2, 1, 47)


def test_layers_on_a_coarser_grid() -> None:
    """Fields with few modes, and a wave of a higher one: the output is that of the coarse grid, interpolated exactly."""
    net = small(points=16).double()
    other = Spectral(**{**net.settings, "points": None}).double()
    other.load_state_dict(net.state_dict())
    high = torch.cos(2 * math.pi * 20 * torch.arange(64, dtype=torch.float64) / 64)
    found = net(waves(64) + high)
    torch.testing.assert_close(found @ resampling(64, 16).T, net(waves(16)) @ resampling(16, 16).T)
    torch.testing.assert_close(net(waves(16)), other(waves(16)))  # a grid that is not finer
    assert Spectral(**net.settings).points == 16
    with pytest.raises(UserError, match="4 modes need at least 7 points"):
        small(points=6)


def test_resampling_is_exact_for_modes_of_both_grids() -> None:
    torch.testing.assert_close(waves(20)[:, 0] @ resampling(20, 33).T, waves(33)[:, 0])
