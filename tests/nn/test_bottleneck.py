"""A network with a bottleneck: shapes in one to three dimensions, its start, and what one number can carry."""

import math

import numpy as np
import pytest
import torch

from pdno.nn.bottleneck import COMPONENTS, JITTER, SMALL, Bottleneck, LinearBottleneck


def with_jitter(x: torch.Tensor, latents: int = 1, eta: float = 0.0) -> torch.Tensor:
    return torch.cat([x, torch.full((len(x), latents, *x.shape[2:]), eta)], 1)


@pytest.mark.parametrize(("grid", "kind"), [((32,), "fno"), ((16, 16), "slim"), ((12, 10), "local"), ((8, 8, 8), "fno")])
def test_shapes(grid, kind) -> None:
    net = Bottleneck(grid, in_channels=7, out_channels=2, latents=3, kind=kind)
    x = torch.randn(5, 4, *grid)
    z = net.encode(x)
    assert z.shape == (5, 3)
    assert net.decode(x[:, 2:], z).shape == net(with_jitter(x, 3)).shape == (5, 2, *grid)


def test_it_starts_with_the_linear_part() -> None:
    net = Bottleneck((32,), in_channels=3, out_channels=1, latents=1)
    net.start(torch.full((COMPONENTS, 32), 1 / 32), torch.randn(COMPONENTS, 32))
    x = torch.randn(4, 2, 32)
    expected = math.sqrt(3) * torch.tanh(x[:, :1].mean(2) / math.sqrt(3))
    torch.testing.assert_close(net.encode(x), expected)


def test_the_jitter_moves_z() -> None:
    net = Bottleneck((32,), in_channels=3, out_channels=1)
    x = torch.randn(4, 2, 32)
    torch.testing.assert_close(net(with_jitter(x)), net.decode(x[:, 1:], net.encode(x)))
    torch.testing.assert_close(net(with_jitter(x, eta=1.0)), net.decode(x[:, 1:], net.encode(x) + JITTER))


def test_the_output_depends_on_the_field_only_through_z() -> None:
    """Two fields with the same linear part give the same reconstruction, as E starts with zero."""
    net = Bottleneck((32,), in_channels=3, out_channels=1).eval()
    net.start(torch.full((COMPONENTS, 32), 1 / 32), torch.randn(COMPONENTS, 32))
    c, r = torch.randn(1, 1, 32), torch.randn(1, 1, 32)
    other = torch.flip(r, (2,))
    first, second = (net(with_jitter(torch.cat([field, c], 1))) for field in (r, other))
    torch.testing.assert_close(first, second)
    assert np.abs((net(with_jitter(torch.cat([r + 1, c], 1))) - first).detach().numpy()).max() > 1e-6


def test_the_linear_bottleneck_is_a_projection() -> None:
    """Two orthogonal directions of any length: the field is its own reconstruction if it is in their span."""
    net = LinearBottleneck((8,), in_channels=2, out_channels=1, latents=2)
    directions = torch.stack([torch.ones(8), 3 * torch.tensor([1.0, -1] * 4)])
    net.start(directions, torch.zeros(1, 8))
    fields = (torch.tensor([[2.0, -0.5]]) @ directions)[:, None]
    c = torch.randn(1, 1, 8)
    torch.testing.assert_close(net(torch.cat([fields, c], 1)), fields)
    other = fields + torch.tensor([1.0, 1, -1, -1] * 2)  # orthogonal to both
    torch.testing.assert_close(net(torch.cat([other, c], 1)), fields)


def test_the_encoder_sees_the_coefficients_on_the_conditions():
    """Of a field that is a multiple of a condition, whatever its sign."""
    net, seen = Bottleneck((32,), in_channels=4, out_channels=1, latents=1), []
    net.encoder.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    conditions, factor = torch.randn(3, 2, 32), torch.tensor([2.0, -1.0, 0.0])
    net.encode(torch.cat([factor[:, None, None] * conditions[:, 1:], conditions], 1))
    size = conditions[:, 1].square().mean(1)
    torch.testing.assert_close(seen[0][:, -1], factor * size / (size + SMALL))
