"""Layers that several networks share."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pdno.nn.layers import Conv, crop, pointwise, sinusoid


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_sinusoid_of_the_step() -> None:
    """sin, then cos, of (n − 1)·10^(−4i/3) for four frequencies, by hand."""
    embedding = sinusoid(torch.tensor([1, 8]), 8, torch.float64)
    angles = [7 * 10 ** (-4 * i / 3) for i in range(4)]
    expected = [[0.0] * 4 + [1.0] * 4, [math.sin(x) for x in angles] + [math.cos(x) for x in angles]]
    torch.testing.assert_close(embedding, torch.tensor(expected, dtype=torch.float64))


def test_crop_takes_the_near_corner() -> None:
    x = torch.arange(24.0).reshape(1, 1, 4, 6)
    assert torch.equal(crop(x, torch.Size((2, 3))), x[:, :, :2, :3])


def test_pointwise_is_a_1x1_convolution() -> None:
    layer, x = nn.Linear(3, 5), torch.randn(2, 3, 4, 6)
    torch.testing.assert_close(pointwise(layer, x), F.conv2d(x, layer.weight[:, :, None, None], layer.bias))


@pytest.mark.parametrize("dim", [1, 2])
def test_a_standardised_kernel_has_mean_0_and_variance_1(dim) -> None:
    """A constant input gives the bias, and a unit impulse in the middle gives back the kernel, standardised by hand."""
    layer = Conv(dim, 2, 3, 3, standardise=True).double()
    grid = (1, 5) if dim == 1 else (5, 5)
    impulse = torch.zeros(1, 2, *grid, dtype=torch.float64)
    impulse[0, 1, grid[0] // 2, 2] = 1
    w = layer.weight.detach()
    axes = (1, 2, 3)
    standardised = (w - w.mean(axes, keepdim=True)) / (w.var(axes, correction=0, keepdim=True) + 1e-5).sqrt()
    response = layer(impulse)[0, :, :, 1:4] - layer.bias[:, None, None]
    response = response if dim == 1 else response[:, 1:4]
    torch.testing.assert_close(response.detach(), standardised[..., 1].flip(1, 2))
