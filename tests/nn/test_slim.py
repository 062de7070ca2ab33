"""The small UNet: parameters counted by hand, equality with a plain implementation, zero initial output, and training."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pdno.nn.slim as module
from pdno import UserError
from pdno.nn import Slim
from pdno.nn.layers import sinusoid
from pdno.nn.slim import fold, unfold


def fields(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def small(dim: int, **settings: object) -> Slim:
    """Return a small network whose last convolution is not zero."""
    net = Slim(dim, **{"widths": (8, 16), "blocks": 1, **settings})
    nn.init.normal_(net.out.weight, std=0.1)
    nn.init.normal_(net.out.bias, std=0.1)
    return net


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# Outputs


def test_parameters_are_those_of_the_formula_and_of_the_docstring() -> None:
    def conv(i: int, o: int, k: int) -> int:
        return i * o * k**2 + o

    def block(c: int) -> int:
        return 2 * c + 2 * conv(c, c, 3)

    by_hand = conv(4, 48, 3) + conv(48, 4, 3)  # a patch has 2 × 2 points of one channel
    by_hand += 4 * block(48) + 4 * block(96) + 4 * block(128)  # two per level down and up, four on the coarsest level
    by_hand += conv(48, 96, 2) + conv(96, 128, 2) + conv(128, 4 * 96, 1) + conv(96, 4 * 48, 1)
    with torch.device("meta"):
        net = Slim(dim=2, in_channels=1, time=False)
    assert sum(p.numel() for p in net.parameters()) == by_hand
    assert f" {by_hand:,} parameters" in str(module.__doc__)


def reference(net: Slim, x: Tensor, n: Tensor | None) -> Tensor:
    """Return the output by torch functions for one or two dimensions; sides must be multiples of the coarsest cells."""
    convolve = F.conv1d if net.dim == 1 else F.conv2d

    def conv(layer: nn.Module, x: Tensor) -> Tensor:
        k = layer.weight.shape[2]
        weight = layer.weight.permute(0, 3, 1, 2)
        return convolve(x, weight[:, :, 0] if net.dim == 1 else weight, layer.bias, 2 if k == 2 else 1, k // 2 if k != 2 else 0)

    def fold_patches(x: Tensor, p: int) -> Tensor:
        return x.unflatten(2, (-1, p)).movedim(3, 2).flatten(1, 2) if net.dim == 1 else F.pixel_unshuffle(x, p)

    def unfold_patches(x: Tensor, p: int) -> Tensor:
        return x.unflatten(1, (-1, p)).movedim(2, 3).flatten(2) if net.dim == 1 else F.pixel_shuffle(x, p)

    def block(layer: nn.Module, x: Tensor) -> Tensor:
        y = F.group_norm(x, 8, layer.norm.weight, layer.norm.bias)
        if t is not None:
            scale, shift = layer.time(t).reshape(len(x), -1, *(1,) * net.dim).chunk(2, 1)
            y = (1 + scale) * y + shift
        return x + conv(layer.second, F.gelu(conv(layer.first, y)))

    t = None if n is None else net.embed(sinusoid(n, 64, x.dtype))
    patch, stack = net.settings["patch"], []
    x = conv(net.input, fold_patches(x, patch))
    for down in net.down:
        for each in down.blocks:
            x = block(each, x)
        stack.append(x)
        x = conv(down.coarsen, x)
    for each in net.middle:
        x = block(each, x)
    for up in net.up:
        x = unfold_patches(conv(up.twice, x), 2) + stack.pop()
        for each in up.blocks:
            x = block(each, x)
    return unfold_patches(conv(net.out, x), patch)


@pytest.mark.parametrize("time", [False, True])
@pytest.mark.parametrize(("dim", "grid", "patch"), [(1, (24,), 3), (2, (16, 8), 2), (2, (12, 12), 1)])
def test_outputs_are_those_of_a_plain_implementation(dim, grid, patch, time) -> None:
    net = small(dim, in_channels=3, out_channels=2, time=time, widths=(8, 16, 8), blocks=2, patch=patch).double()
    x, n = fields(2, 3, *grid, dtype=torch.float64), torch.tensor([1, 60])
    y = net(n, x[:, 1:], x[:, :1]) if time else net(x)  # a is the first channel
    torch.testing.assert_close(y, reference(net, x, n if time else None), rtol=1e-12, atol=1e-12)


def test_folding_is_pixel_unshuffle_and_unfolding_is_pixel_shuffle() -> None:
    x = fields(2, 3, 12, 18)
    assert torch.equal(fold(x, 3, 3), F.pixel_unshuffle(x, 3))
    y = fields(2, 18, 4, 6)
    assert torch.equal(unfold(y, 3, 3), F.pixel_shuffle(y, 3))


@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 4), (3, 2)])
def test_unfolding_undoes_folding(p, q) -> None:
    x = fields(2, 3, 6, 8)
    assert fold(x, p, q).shape == (2, 3 * p * q, 6 // p, 8 // q)
    assert torch.equal(unfold(fold(x, p, q), p, q), x)
    assert torch.equal(fold(x, p, q)[:, q * (p - 1) + q - 1], x[:, 0, p - 1 :: p, q - 1 :: q])  # the far corner of patches


@pytest.mark.parametrize("dim", [1, 2])
def test_the_initial_output_is_zero(dim) -> None:
    x = fields(2, 1, *(16,) * dim)
    assert not Slim(dim, in_channels=1, time=False, widths=(8, 16))(x).any()
    assert not Slim(dim, widths=(8, 16))(3, x, x).any()
    assert small(dim)(3, x, x).any()


# Grids


@pytest.mark.parametrize(
    ("dim", "grid", "patch"),
    [(1, (4,), 2), (1, (33,), 2), (1, (50,), 3), (2, (4, 4), 2), (2, (9, 14), 2), (2, (17, 8), 4), (2, (2, 3), 1)],
)
def test_any_grid_with_enough_points_is_accepted(dim, grid, patch) -> None:
    y = small(dim, in_channels=3, out_channels=2, time=False, patch=patch)(fields(2, 3, *grid))
    assert y.shape == (2, 2, *grid)
    assert y.is_contiguous()
    assert y.isfinite().all()


def test_padding_repeats_the_last_value() -> None:
    net = small(2, in_channels=1, time=False)
    x = fields(2, 1, 9, 14)
    rows = torch.cat((x, x[:, :, -1:].expand(2, 1, 3, 14)), 2)
    long = torch.cat((rows, rows[..., -1:].expand(2, 1, 12, 2)), 3)
    torch.testing.assert_close(net(x), net(long)[:, :, :9, :14])


def test_groups_of_one_value_are_accepted() -> None:
    """One sample on the smallest grid, whose coarsest level has one point; its normalised value is zero."""
    net = small(1, in_channels=1, time=False, widths=(8, 8))
    one, two = fields(1, 1, 4), fields(2, 1, 4)
    assert net(one).shape == (1, 1, 4)
    torch.testing.assert_close(net(torch.cat((one, two)))[:1], net(one))


# Inputs and parameters


@pytest.mark.parametrize("time", [False, True])
@pytest.mark.parametrize("dim", [1, 2])
def test_every_parameter_gets_a_gradient(dim, time) -> None:
    net = small(dim, in_channels=2 if time else 1, time=time)
    x = fields(2, 1, *(8,) * dim)
    y = net(torch.tensor([5, 60]), x, x.flip(-1)) if time else net(x)
    y.square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("dim", [1, 2])
def test_the_output_depends_on_the_step_which_may_be_one_number(dim) -> None:
    net, (v, a) = small(dim), fields(2, 2, 1, *(11,) * dim)
    assert torch.equal(net(9, v, a), net(torch.tensor([9, 9]), v, a))
    assert (net(9, v, a) - net(10, v, a)).abs().max() > 1e-5


@pytest.mark.parametrize("dim", [1, 2])
def test_the_output_depends_on_both_fields(dim) -> None:
    net, (v, a) = small(dim), fields(2, 2, 1, *(11,) * dim)
    assert (net(9, v, a) - net(9, v.flip(-1), a)).abs().max() > 1e-5
    assert (net(9, v, a) - net(9, v, a.flip(-1))).abs().max() > 1e-5


@pytest.mark.parametrize("dim", [1, 2])
def test_samples_of_a_batch_are_independent(dim) -> None:
    net, (v, a), n = small(dim), fields(2, 3, 1, *(11,) * dim), torch.tensor([1, 40, 90])
    alone = torch.cat([net(n[i : i + 1], v[i : i + 1], a[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(net(n, v, a), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2])
def test_settings_rebuild_the_network(dim) -> None:
    net = small(dim, in_channels=3, out_channels=2, time=False, blocks=2, patch=3)
    again = Slim(**json.loads(json.dumps(net.settings)))
    again.load_state_dict(net.state_dict())
    x = fields(2, 3, *(9,) * dim)
    assert again.settings == net.settings
    assert torch.equal(again(x), net(x))


def test_weights_are_a_function_of_the_seed() -> None:
    nets = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        nets.append(torch.cat([p.detach().flatten() for p in small(2).parameters()]))
    assert torch.equal(nets[0], nets[1])
    assert not torch.equal(nets[0], nets[2])


@pytest.mark.parametrize("dim", [1, 2])
def test_training_fits_a_few_random_pairs(dim) -> None:
    """Four pairs with unrelated a and u: the mean squared error falls to less than a tenth."""
    net = Slim(dim, in_channels=1, time=False, widths=(8, 16), blocks=1)
    a, u = fields(2, 4, 1, *(8,) * dim)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(150):
        loss = (net(a) - u).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(float(u.square().mean()))  # the initial output is zero
    assert losses[-1] < 0.1 * losses[0]


# Wrong settings and inputs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Slim(3), "dim = 3: the slim UNet works in one or two dimensions; use an FNO"),
        (
            lambda: Slim(2, widths=(48, 100)),
            r"widths = \[48, 100\]: .* normalised in 8 groups; choose multiples of 8",
        ),
        (lambda: Slim(2, widths=()), r"widths = \[\]: a network needs whole numbers"),
        (lambda: Slim(2, blocks=0), "blocks = 0: a network needs whole numbers of at least 1"),
        (lambda: Slim(2, patch=1.5), r"patch = 1\.5: a network needs whole numbers"),
    ],
)
def test_impossible_networks_are_refused(make, message) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(("dim", "grid", "sides"), [(1, (7,), "7"), (2, (8, 7), "8x7"), (2, (3, 20), "3x20")])
def test_a_grid_that_is_too_small_is_refused(dim, grid, sides) -> None:
    net = Slim(dim, in_channels=1, time=False, widths=(8, 8, 8))
    with pytest.raises(UserError, match=f"a grid of {sides} is too small for this network, which needs 8 points per side"):
        net(fields(1, 1, *grid))
    assert net(fields(1, 1, *(8,) * dim)).shape == (1, 1, *(8,) * dim)
