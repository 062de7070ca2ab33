"""The interface of networks: inputs, settings, precision, and independence of the samples of a batch."""

import pytest
import torch

from pdno import Diffusion, Schedule, UserError
from pdno.nn import FNO, DenoisingNetwork, UNet


def fields(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two random fields v and a."""
    v, a = torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return v, a


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


NETS = [
    UNet(1, base=8, multipliers=(1, 2)),
    UNet(2, base=8, multipliers=(1, 2)),
    FNO(1, modes=4, width=8, in_channels=2, time=True),
    FNO(2, modes=4, width=8, in_channels=2, time=True),
    FNO(3, modes=2, width=4, in_channels=2, time=True),
]
each_net = pytest.mark.parametrize("net", NETS, ids=lambda net: f"{type(net).__name__}-{net.dim}")


@each_net
def test_samples_of_a_batch_are_independent(net) -> None:
    v, a = fields(3, 1, *(11,) * net.dim)
    n = torch.tensor([1, 40, 90])
    alone = torch.cat([net(n[i : i + 1], v[i : i + 1], a[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(net(n, v, a), alone, rtol=1e-5, atol=1e-5)


@each_net
def test_the_output_depends_on_the_step_which_may_be_one_number(net) -> None:
    v, a = fields(2, 1, *(11,) * net.dim)
    assert torch.equal(net(9, v, a), net(torch.tensor([9, 9]), v, a))
    assert (net(9, v, a) - net(10, v, a)).abs().max() > 1e-5


@each_net
def test_the_output_depends_on_both_fields(net) -> None:
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
def test_a_regression_network_has_no_step(net) -> None:
    a = fields(2, 1, 16, 16)[0]
    assert net(a).shape == a.shape
    assert type(net)(**net.settings).settings == net.settings
    with pytest.raises(UserError, match=r"got 3 inputs; with time=False call it as network\(a\)"):
        net(1, a, a)


def test_any_callable_is_a_network() -> None:
    """A function serves as a denoising network: the target "u0" of a Dirac distribution at a is a."""
    diffusion = Diffusion(Schedule.cosine(10), target="u0")
    v, a = fields(2, 1, 8)
    network: DenoisingNetwork = lambda n, v, a: a.expand_as(v)  # noqa: E731
    assert torch.equal(diffusion.denoiser(network)(3, v, a), a)
    assert diffusion.loss(network, torch.tensor([1, 9]), a, v, a) == 0


@pytest.mark.parametrize("time", [True, False])
def test_settings_have_the_arguments_of_the_constructor(time) -> None:
    settings = {"dim": 1, "in_channels": 2, "out_channels": 3, "time": time, "modes": 4, "width": 8}
    assert FNO(**settings).settings == settings


@pytest.mark.parametrize(
    ("net", "inputs", "message"),
    [
        (NETS[1], (1, *fields(2, 1, 8)), r"takes \(batch, channel, x, y\); got \(2, 1, 8\)"),
        (NETS[1], (1, *fields(2, 2, 8, 8)), "have 4 channels, but the network was made with in_channels=2"),
        (NETS[1], (1, *(x.double() for x in fields(2, 1, 8, 8))), "computes in torch.float32, but got torch.float64"),
        (NETS[1], (1, *(x.int() for x in fields(2, 1, 8, 8))), "computes in torch.float32, but got torch.int32"),
        (NETS[1], (1, fields(2, 1, 8, 8)[0], fields(2, 1, 8, 9)[0]), r"v is \(2, 1, 8, 8\) and a is \(2, 1, 8, 9\)"),
        (NETS[1], (torch.ones(3), *fields(2, 1, 8, 8)), r"n has shape \(3\); expected one step"),
        (NETS[1], fields(2, 1, 8, 8), r"got 2 inputs; with time=True call it as network\(n, v, a\)"),
        (NETS[1], (1, *(x.numpy() for x in fields(2, 1, 8, 8))), "got a ndarray; expected tensors"),
    ],
)
def test_wrong_inputs_are_refused(net, inputs, message) -> None:
    with pytest.raises(UserError, match=message):
        net(*inputs)
