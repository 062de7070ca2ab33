"""The learned projection to a grid of another dimension: closed forms for given weights, and its start."""

import numpy as np
import pytest
import torch

from pdno.nn import FNO, Projected, Projection
from pdno.nn.projection import MODES

LINE, PLANE = ((20,), (False,)), ((12, 9), (False, True))


def cosines(points: int, *k: int) -> np.ndarray:
    """Return the sum of cos(πkx) at cell centres."""
    x = (np.arange(points) + 0.5) / points
    return np.sum([np.cos(np.pi * each * x) for each in k], axis=0)


def set_weight(project: Projection, entries: dict[tuple[int, int], float]) -> Projection:
    """Set W to these entries (row, column), and all else to zero."""
    with torch.no_grad():
        project.linear.weight.zero_()
        project.linear.bias.zero_()
        for place, value in entries.items():
            project.linear.weight[place] = value
    return project


def apply(project: Projection, a: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return project.double()(torch.as_tensor(a)).numpy()


def test_the_identity_of_modes_repeats_a_line_along_the_other_axis() -> None:
    project = Projection(LINE, PLANE, in_channels=1, out_channels=1)
    count, across = min(MODES[2], 12), min(MODES[2], 9)
    set_weight(project, {(k * across, k): 1.0 for k in range(count)})  # mode (k, 0) of u from mode k of a
    a = 0.3 + 2 * cosines(20, 1) - cosines(20, 4)
    expected = 0.3 + 2 * cosines(12, 1) - cosines(12, 4)
    np.testing.assert_allclose(apply(project, a[None, None])[0, 0], np.repeat(expected[:, None], 9, axis=1), atol=1e-12)


def test_the_transpose_is_the_average_over_an_axis() -> None:
    project = Projection(((12, 10), (False, False)), LINE, in_channels=1, out_channels=1)
    set_weight(project, {(k, k * 10): 1.0 for k in range(12)})
    a = np.outer(1 + cosines(12, 2), 5 + cosines(10, 1, 3))
    np.testing.assert_allclose(apply(project, a[None, None])[0, 0], 5 * (1 + cosines(20, 2)), atol=1e-12)


def test_channels_are_apart() -> None:
    project = Projection(LINE, PLANE, in_channels=2, out_channels=2)
    modes = 12 * 9
    set_weight(project, {(0, 20): 3.0, (modes, 0): 1.0})  # the mean of each channel goes to the other one
    a = np.stack([np.full(20, 2.0), np.full(20, 5.0)])[None]
    out = apply(project, a)[0]
    np.testing.assert_allclose(out[0], 15.0)
    np.testing.assert_allclose(out[1], 2.0)


def test_high_modes_of_the_input_are_ignored() -> None:
    project = Projection(((100,), (False,)), PLANE, in_channels=1, out_channels=3)
    low = cosines(100, 1)
    with_high = low + cosines(100, MODES[1] + 5)
    np.testing.assert_allclose(apply(project, low[None, None]), apply(project, with_high[None, None]), atol=1e-12)
    assert np.abs(apply(project, low[None, None]) - apply(project, 2 * low[None, None])).max() > 1e-3


def test_weights_are_a_function_of_the_seed_and_the_start_is_affine() -> None:
    first, same, other = (Projection(LINE, PLANE, 1, 2, seed) for seed in (1, 1, 2))
    a, b = np.random.default_rng(0).standard_normal((2, 3, 1, 20))
    np.testing.assert_array_equal(apply(first, a), apply(same, a))
    assert not np.allclose(apply(first, a), apply(other, a))
    zero = apply(first, np.zeros((1, 1, 20)))
    np.testing.assert_allclose(apply(first, a + b) - zero, apply(first, a) + apply(first, b) - 2 * zero, atol=1e-12)


@pytest.mark.parametrize("time", [False, True])
def test_a_projected_network_is_the_network_of_the_projection(time) -> None:
    project = Projection(LINE, PLANE, in_channels=1, out_channels=2)
    network = FNO(2, modes=2, width=4, in_channels=2 + time, time=time)
    both, a, v = Projected(project, network), torch.randn(3, 1, 20), torch.randn(3, 1, 12, 9)
    first = (torch.tensor([1, 5, 9]), v) if time else ()
    assert torch.equal(both(*first, a), network(*first, project(a)))
    assert sum(p.numel() for p in both.parameters()) == sum(p.numel() for m in (project, network) for p in m.parameters())
