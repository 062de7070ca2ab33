"""The UNet of the paper: number of parameters, equality with a plain implementation, and any grid."""

import pytest
import torch

from benchmarks.plain import channels_first, load
from pdno import UserError
from pdno.nn import UNet


def count(*modules: torch.nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def fields(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two random fields v and a."""
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
    ("settings", "parameters"),
    [
        ({"dim": 2, "base": 32}, 9_192_929),
        ({"dim": 2, "base": 16}, 2_431_217),
        ({"dim": 1, "base": 16}, 1_127_345),
    ],
)
def test_parameters_of_smaller_networks(settings, parameters) -> None:
    with torch.device("meta"):
        assert count(UNet(**settings)) == parameters


@pytest.mark.parametrize(("dim", "base", "all_layers"), [(1, 32, 3_980_129), (2, 64, 35_707_841), (1, 16, 1_127_345)])
def test_attention_is_optional(dim, base, all_layers) -> None:
    """A layer on c channels has 384 c weights of q, k, v, 129 c of the output, and one or two norms of c.

    Linear attention is on b, b, 2b, 4b channels downwards and on 8b, 4b, 2b, b upwards; full attention on 8b.
    """
    linear, full = (384 + 129 + 2) * 23 * base, (384 + 129 + 1) * 8 * base
    with torch.device("meta"):
        counts = {name: count(UNet(dim, base, attention=name)) for name in ("all", "middle", "none")}
    assert counts == {"all": all_layers, "middle": all_layers - linear, "none": all_layers - linear - full}


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize(("attention", "shared"), [("middle", ["middle.attention"]), ("none", [])])
def test_the_rest_of_the_network_does_not_depend_on_attention(dim, attention, shared) -> None:
    """Its weights are those of the whole network by name, and its output is finite on any grid."""
    net, whole = UNet(dim, base=8, attention=attention), UNet(dim, base=8)
    names = [name for name in whole.state_dict() if ".attention." not in name or any(name.startswith(x) for x in shared)]
    assert list(net.state_dict()) == names
    y = net(torch.tensor([1, 100]), *fields(2, 1, *(19,) * dim))
    assert y.shape == (2, 1, *(19,) * dim)
    assert y.isfinite().all()


@pytest.mark.parametrize(("dim", "grid"), [(1, (96,)), (1, (16,)), (2, (24, 40)), (2, (8, 8))])
def test_outputs_and_gradients_are_those_of_the_plain_implementation(dim, grid) -> None:
    """Outputs and gradients of all parameters, in double precision; the grids cover both branches of the linear attention."""
    fast = UNet(dim, base=8, in_channels=3, out_channels=2).double()
    plain = load(fast)
    v, a = fields(3, 2, *grid, dtype=torch.float64)
    n = torch.tensor([1, 50, 100])
    y, expected = fast(n, v, a[:, :1]), plain(n, v, a[:, :1])
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    (expected * weight).sum().backward()
    plain_parameters = dict(plain.named_parameters())
    for name, p in fast.named_parameters():
        gradient = channels_first(p.grad).reshape(plain_parameters[name].shape)
        torch.testing.assert_close(
            gradient, plain_parameters[name].grad, rtol=1e-8, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.mark.parametrize("dim", [1, 2])
def test_outputs_are_those_of_the_plain_implementation_in_single_precision(dim) -> None:
    fast = UNet(dim, base=16)
    v, a = fields(2, 1, *(32,) * dim)
    n = torch.tensor([3, 77])
    with torch.no_grad():
        torch.testing.assert_close(fast(n, v, a), load(fast)(n, v, a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dim", "grid"), [(1, (100,)), (1, (8,)), (1, (33,)), (2, (50, 50)), (2, (33, 70)), (2, (8, 8))])
def test_any_grid_is_accepted(dim, grid) -> None:
    y = UNet(dim, base=8, in_channels=5, out_channels=3)(
        7, *(x[:, :k] for x, k in zip(fields(2, 3, *grid), (2, 3), strict=True))
    )
    assert y.shape == (2, 3, *grid)
    assert y.is_contiguous()
    assert y.isfinite().all()


def test_padding_repeats_the_last_value() -> None:
    """The output on 13 points is that on 16 points where the last three are copies of the 13th."""
    net = UNet(1, base=8)
    v, a = fields(2, 1, 13)
    long = [torch.cat((x, x[..., -1:].expand(2, 1, 3)), -1) for x in (v, a)]
    torch.testing.assert_close(net(4, v, a), net(4, *long)[..., :13])


@pytest.mark.parametrize("multipliers", [(1,), (2, 3), (1, 2, 4)])
def test_other_depths(multipliers) -> None:
    side = 2 ** (len(multipliers) - 1)
    assert UNet(2, base=8, multipliers=multipliers)(1, *fields(1, 1, side, side)).shape == (1, 1, side, side)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UNet(3), "dim = 3: the UNet works in one or two dimensions"),
        (lambda: UNet(2, base=12), "base = 12.*choose a multiple of 8"),
        (lambda: UNet(2, base=8, multipliers=()), r"multipliers = \[\]"),
        (lambda: UNet(2, base=8.0), r"base = 8\.0.*whole numbers"),
        (lambda: UNet(2, base=8, out_channels=0), "out_channels = 0"),
        (lambda: UNet(2, base=8, attention="linear"), "attention = 'linear' is unknown"),
    ],
)
def test_impossible_networks_are_refused(make, message) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_a_grid_that_is_too_small_is_refused() -> None:
    with pytest.raises(UserError, match="8x7 is too small for a UNet of 4 levels; it needs 8 points per side"):
        UNet(2, base=8)(1, *fields(2, 1, 8, 7))
