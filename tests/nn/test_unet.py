"""The networks: counted to the parameter, equal to a plain implementation, and exact where a network can be."""

import math
from itertools import product

import pytest
import torch

from benchmarks.plain import channels_first, load
from pdno import UserError
from pdno.nn import FNO, NETWORKS, UNet
from pdno.nn.fno import SpectralConv
from pdno.nn.fused import gather, scatter
from pdno.nn.layers import LinearAttention, sinusoid


def count(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def fields(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Two fields v and a."""
    v, a = torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return v, a


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("dim", "base", "parts"),
    [
        (2, 64, (88_768, 5_401_024, 10_232_832, 19_833_024, 152_193)),
        (1, 32, (21_216, 681_184, 1_053_184, 2_204_768, 19_777)),
    ],
)
def test_parameters_of_the_paper(dim, base, parts) -> None:
    with torch.device("meta"):
        net = UNet(dim, base)
    assert (count(net.input, net.embed), count(net.down), count(net.middle), count(net.up), count(net.final)) == parts
    assert count(net) == sum(parts) == {2: 35_707_841, 1: 3_980_129}[dim]


@pytest.mark.parametrize(
    ("network", "settings", "parameters"),
    [
        ("unet", {"dim": 2, "base": 32}, 9_192_929),
        ("unet", {"dim": 2, "base": 16}, 2_431_217),
        ("unet", {"dim": 1, "base": 16}, 1_127_345),
        ("fno", {"dim": 2, "modes": 12, "width": 32}, 2_376_449),
        ("fno", {"dim": 1, "modes": 16, "width": 64}, 582_849),
        ("fno", {"dim": 1, "modes": 16, "width": 128}, 2_328_961),
    ],
)
def test_parameters(network, settings, parameters) -> None:
    with torch.device("meta"):
        assert count(NETWORKS[network](**settings)) == parameters


@pytest.mark.parametrize(("dim", "grid"), [(1, (96,)), (1, (16,)), (2, (24, 40)), (2, (8, 8))])
def test_unet_equals_the_plain_one(dim, grid) -> None:
    """Outputs and the gradient of every parameter, in double precision; the grids take both ways of the attention."""
    fast = UNet(dim, base=8, in_channels=3, out_channels=2).double()
    plain = load(fast)
    v, a = fields(3, 2, *grid, dtype=torch.float64)
    n = torch.tensor([1, 50, 100])
    y, expected = fast(n, v, a[:, :1]), plain(n, v, a[:, :1])
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (expected * weight).sum().backward()
    plainly = dict(plain.named_parameters())
    for name, p in fast.named_parameters():
        gradient = channels_first(p.grad).reshape(plainly[name].shape)
        torch.testing.assert_close(gradient, plainly[name].grad, rtol=1e-8, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("dim", [1, 2])
def test_unet_equals_the_plain_one_in_single_precision(dim) -> None:
    fast = UNet(dim, base=16)
    v, a = fields(2, 1, *(32,) * dim)
    n = torch.tensor([3, 77])
    with torch.no_grad():
        torch.testing.assert_close(fast(n, v, a), load(fast)(n, v, a), rtol=1e-4, atol=1e-5)


def test_gather_and_scatter_are_softmax_products() -> None:
    """Against their definitions, for logits whose exponentials overflow."""
    z, m = torch.randn(3, 50, 8, dtype=torch.float64), torch.randn(3, 128, 8, dtype=torch.float64)
    w, bias = 300 * torch.randn(128, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    torch.testing.assert_close(gather(z, w), (z @ w.T).softmax(1).mT @ z)
    q = (z @ w.T).unflatten(2, (4, 32)).softmax(3).flatten(2)
    torch.testing.assert_close(scatter(z, w, m, bias), q @ m + bias)


def test_gather_and_scatter_have_the_derivatives_of_their_values(monkeypatch) -> None:
    """By finite differences, in parts of two samples."""
    monkeypatch.setattr("pdno.nn.fused.BLOCK", 2 * 3 * 128)
    z, m = torch.randn(5, 3, 2, dtype=torch.float64), torch.randn(5, 128, 2, dtype=torch.float64)
    w, bias = torch.randn(128, 2, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (z, w, m, bias)]
    assert torch.autograd.gradcheck(gather, inputs[:2], fast_mode=True)
    assert torch.autograd.gradcheck(scatter, inputs, fast_mode=True)


@pytest.mark.parametrize("dim", [1, 2])
def test_both_orders_of_the_linear_attention_agree(dim) -> None:
    layer = LinearAttention(dim, 16).double()
    z = torch.randn(2, 40, 16, dtype=torch.float64)
    torch.testing.assert_close(layer._few(z, 0.3), layer._many(z, 0.3))


def test_linear_attention_ignores_the_order_of_positions() -> None:
    layer = LinearAttention(1, 16)
    x, order = torch.randn(2, 16, 1, 40), torch.randperm(40)
    torch.testing.assert_close(layer(x)[..., order], layer(x[..., order]), rtol=1e-4, atol=1e-5)


def test_sinusoid_of_the_step() -> None:
    """sin, then cos, of (n − 1)·10⁻⁴ⁱ⁄³ for four frequencies, in hand arithmetic."""
    got = sinusoid(torch.tensor([1, 8]), 8, torch.float64)
    angles = [7 * 10 ** (-4 * i / 3) for i in range(4)]
    expected = [[0.0] * 4 + [1.0] * 4, [math.sin(x) for x in angles] + [math.cos(x) for x in angles]]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("dim", "grid"), [(1, (100,)), (1, (8,)), (1, (33,)), (2, (50, 50)), (2, (33, 70)), (2, (8, 8))])
def test_unet_takes_any_grid(dim, grid) -> None:
    y = UNet(dim, base=8, in_channels=5, out_channels=3)(
        7, *(x[:, :k] for x, k in zip(fields(2, 3, *grid), (2, 3), strict=True))
    )
    assert y.shape == (2, 3, *grid)
    assert y.is_contiguous()
    assert y.isfinite().all()


def test_padding_repeats_the_last_value() -> None:
    """On 13 points the network does what it does on 16, the last three being copies."""
    net = UNet(1, base=8)
    v, a = fields(2, 1, 13)
    long = [torch.cat((x, x[..., -1:].expand(2, 1, 3)), -1) for x in (v, a)]
    torch.testing.assert_close(net(4, v, a), net(4, *long)[..., :13])


@pytest.mark.parametrize("multipliers", [(1,), (2, 3), (1, 2, 4)])
def test_other_depths(multipliers) -> None:
    side = 2 ** (len(multipliers) - 1)
    assert UNet(2, base=8, multipliers=multipliers)(1, *fields(1, 1, side, side)).shape == (1, 1, side, side)


NETS = [
    UNet(1, base=8, multipliers=(1, 2)),
    UNet(2, base=8, multipliers=(1, 2)),
    FNO(1, modes=4, width=8, in_channels=2, time=True),
    FNO(2, modes=4, width=8, in_channels=2, time=True),
    FNO(3, modes=2, width=4, in_channels=2, time=True),
]
each_net = pytest.mark.parametrize("net", NETS, ids=lambda net: f"{type(net).__name__}-{net.dim}")


@each_net
def test_rows_of_a_batch_do_not_meet(net) -> None:
    v, a = fields(3, 1, *(11,) * net.dim)
    n = torch.tensor([1, 40, 90])
    alone = torch.cat([net(n[i : i + 1], v[i : i + 1], a[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(net(n, v, a), alone, rtol=1e-5, atol=1e-5)


@each_net
def test_the_step_matters_and_may_be_one_number(net) -> None:
    v, a = fields(2, 1, *(11,) * net.dim)
    assert torch.equal(net(9, v, a), net(torch.tensor([9, 9]), v, a))
    assert (net(9, v, a) - net(10, v, a)).abs().max() > 1e-5


@each_net
def test_both_fields_matter(net) -> None:
    v, a = fields(2, 1, *(11,) * net.dim)
    assert (net(9, v, a) - net(9, v + 1, a)).abs().max() > 1e-5
    assert (net(9, v, a) - net(9, v, a + 1)).abs().max() > 1e-5


@each_net
def test_settings_rebuild_the_network(net) -> None:
    again = type(net)(**net.settings)
    again.load_state_dict(net.state_dict())
    v, a = fields(2, 1, *(11,) * net.dim)
    assert again.settings == net.settings
    assert torch.equal(again(3, v, a), net(3, v, a))


@each_net
def test_double_precision_agrees_with_single(net) -> None:
    v, a = fields(2, 1, *(11,) * net.dim)
    double = type(net)(**net.settings).double()
    double.load_state_dict(net.state_dict())
    y = double(3, v.double(), a.double())
    assert y.dtype == torch.float64
    torch.testing.assert_close(y.float(), net(3, v, a), rtol=1e-4, atol=1e-4)


@each_net
def test_every_parameter_is_used(net) -> None:
    v, a = fields(2, 1, *(11,) * net.dim)
    net.zero_grad()
    net(torch.tensor([5, 60]), v, a).square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize(
    "net", [UNet(2, base=8, in_channels=1, time=False), FNO(2, modes=4, width=8)], ids=lambda net: type(net).__name__
)
def test_regression_knows_no_step(net) -> None:
    a = fields(2, 1, 16, 16)[0]
    assert net(a).shape == a.shape
    assert type(net)(**net.settings).settings == net.settings
    with pytest.raises(UserError, match=r"got 3 inputs; with time=False call it as network\(a\)"):
        net(1, a, a)


def frequencies(points: int, grid: tuple[int, ...], axis: int) -> torch.Tensor:
    shape = [1] * len(grid)
    shape[axis] = points
    return (torch.arange(points, dtype=torch.float64) / points).reshape(shape)


@pytest.mark.parametrize("grid", [(16,), (12, 9), (10, 12, 8)])
def test_spectral_layer_is_a_fourier_multiplier(grid) -> None:
    """exp(2πi k·x) → w_k exp(2πi k·x) below the cut, for every kept k up to conjugation, and zero above it."""
    dim, modes = len(grid), 3
    layer = SpectralConv(dim, modes, 1).double()
    weights = torch.view_as_complex(layer.weight.detach())[:, 0, 0]
    for k in product(*[range(-modes, modes)] * (dim - 1), (1, 2)):
        phase = sum((k[i] * frequencies(s, grid, i) for i, s in enumerate(grid)), start=torch.zeros(grid))
        wave = torch.exp(2j * math.pi * phase)
        corner = sum(2 ** (dim - 2 - i) for i in range(dim - 1) if k[i] < 0)
        factor = weights[(corner, *(j % modes for j in k))]
        torch.testing.assert_close(layer(wave.real[None, None])[0, 0], (factor * wave).real)
    high = torch.cos(2 * math.pi * modes * frequencies(grid[-1], grid, dim - 1)).expand(grid)
    torch.testing.assert_close(layer(high[None, None]), torch.zeros(1, 1, *grid, dtype=torch.float64))


def test_spectral_layer_is_the_same_operator_on_every_grid() -> None:
    """On a band-limited function, the values on a coarse grid are those on a fine one at the common nodes."""
    layer = SpectralConv(2, 4, 3).double()
    x, y = torch.meshgrid(*[torch.arange(48, dtype=torch.float64) / 48] * 2, indexing="ij")
    u = torch.stack([torch.cos(2 * math.pi * (i * x - 3 * y)) + torch.sin(2 * math.pi * 2 * y + i) for i in range(3)])[None]
    torch.testing.assert_close(layer(u)[..., ::4, ::3], layer(u[..., ::4, ::3].contiguous()))


def test_fno_sees_the_coordinates() -> None:
    """On a constant field the lifting gives the same value everywhere but for linspace(0, 1, s), ends included."""
    net = FNO(1, modes=2, width=4)
    lifted = []
    net.lift.register_forward_hook(lambda module, inputs, output: lifted.append(inputs[0]))
    net(torch.ones(2, 1, 5))
    expected = torch.tensor([[1, 1, 1, 1, 1], [0, 0.25, 0.5, 0.75, 1]]).expand(2, 2, 5)
    torch.testing.assert_close(lifted[0], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UNet(3), "dim = 3: the UNet works in one or two dimensions"),
        (lambda: UNet(2, base=12), "base = 12.*choose a multiple of 8"),
        (lambda: UNet(2, base=8, multipliers=()), r"multipliers = \[\]"),
        (lambda: UNet(2, base=8.0), r"base = 8\.0.*whole numbers"),
        (lambda: UNet(2, base=8, out_channels=0), "out_channels = 0"),
        (lambda: FNO(4), "dim = 4: the FNO works in one, two or three"),
        (lambda: FNO(2, modes=0), "modes = 0"),
    ],
)
def test_impossible_networks_are_refused(make, message) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("net", "inputs", "message"),
    [
        (NETS[1], (1, *fields(2, 1, 8)), r"takes \(batch, channel, x, y\); got \(2, 1, 8\)"),
        (NETS[1], (1, *fields(2, 2, 8, 8)), "have 4 channels, but the network was made with in_channels=2"),
        (NETS[1], (1, *(x.double() for x in fields(2, 1, 8, 8))), "computes in torch.float32, but got torch.float64"),
        (NETS[1], (1, *(x.int() for x in fields(2, 1, 8, 8))), "computes in torch.float32, but got torch.int32"),
        (NETS[1], (1, fields(2, 1, 8, 8)[0], fields(2, 1, 8, 9)[0]), r"v is \(2, 1, 8, 8\) and a is \(2, 1, 8, 9\)"),
        (NETS[1], (torch.ones(3), *fields(2, 1, 8, 8)), r"n has shape \(3\); give one step"),
        (NETS[1], fields(2, 1, 8, 8), r"got 2 inputs; with time=True call it as network\(n, v, a\)"),
        (NETS[1], (1, *(x.numpy() for x in fields(2, 1, 8, 8))), "got a ndarray; give it tensors"),
        (UNet(2, base=8), (1, *fields(2, 1, 8, 7)), "8x7 is too small for a UNet of 4 levels; it needs 8 points a side"),
        (FNO(1, modes=8, width=4), (fields(2, 1, 13)[0],), "a grid of 13 is too small for an FNO of 8 modes; it needs 14"),
        (FNO(2, modes=8, width=4), (fields(2, 1, 6, 6)[0],), "6x6 is too small for an FNO of 8 modes; it needs 7x5"),
    ],
)
def test_wrong_inputs_are_refused(net, inputs, message) -> None:
    with pytest.raises(UserError, match=message):
        net(*inputs)


@pytest.mark.parametrize(("dim", "grid"), [(1, (14,)), (2, (7, 5)), (2, (40, 23))])
def test_fno_takes_any_grid_with_enough_points(dim, grid) -> None:
    assert FNO(dim, modes=8, width=4, out_channels=2)(fields(3, 1, *grid)[0]).shape == (3, 2, *grid)
