"""Attention layers against their definitions, and hand-written derivatives against finite differences."""

import pytest
import torch

from pdno.nn.attention import LinearAttention, gather, scatter


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_gather_and_scatter_are_softmax_products() -> None:
    """For logits whose exponentials overflow."""
    z, m = torch.randn(3, 50, 8, dtype=torch.float64), torch.randn(3, 128, 8, dtype=torch.float64)
    w, bias = 300 * torch.randn(128, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    torch.testing.assert_close(gather(z, w), (z @ w.T).softmax(1).mT @ z)
    q = (z @ w.T).unflatten(2, (4, 32)).softmax(3).flatten(2)
    torch.testing.assert_close(scatter(z, w, m, bias), q @ m + bias)


def test_derivatives_of_gather_and_scatter(monkeypatch) -> None:
    """By finite differences, for blocks of two samples."""
    monkeypatch.setattr("pdno.nn.attention.BLOCK", 2 * 3 * 128)
    z, m = torch.randn(5, 3, 2, dtype=torch.float64), torch.randn(5, 128, 2, dtype=torch.float64)
    w, bias = torch.randn(128, 2, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in (z, w, m, bias)]
    assert torch.autograd.gradcheck(gather, inputs[:2], fast_mode=True)
    assert torch.autograd.gradcheck(scatter, inputs, fast_mode=True)


@pytest.mark.parametrize("dim", [1, 2])
def test_both_branches_of_the_linear_attention_agree(dim) -> None:
    layer = LinearAttention(dim, 16).double()
    z = torch.randn(2, 40, 16, dtype=torch.float64)
    torch.testing.assert_close(layer._few(z, 0.3), layer._many(z, 0.3))


def test_linear_attention_commutes_with_permutations_of_positions() -> None:
    layer = LinearAttention(1, 16)
    x, order = torch.randn(2, 16, 1, 40), torch.randperm(40)
    torch.testing.assert_close(layer(x)[..., order], layer(x[..., order]), rtol=1e-4, atol=1e-5)
