"""Networks that work on another mesh than that of the data."""

import numpy as np
import pytest

from pdno import Pairs, UserError
from pdno.mean import Network
from tests.mean.networks import QUIET, SHORT, SLIM, SPECTRAL, noise, waves


def test_the_network_may_work_on_a_coarser_mesh() -> None:
    """Functions that both meshes resolve: as a network that is trained on every second point."""
    a, new = waves(20, 32), waves(5, 32, seed=1)
    u = np.roll(a, 8, axis=-1)
    mean = Network(SPECTRAL, kind="periodic", training=SHORT, points=16).fit(a, u)
    coarse = Network(SPECTRAL, kind="periodic", training=SHORT).fit(a[..., ::2], u[..., ::2])
    assert mean.trained.spaces.u_shape == (1, 16)
    assert mean(new).shape == (5, 1, 32)
    np.testing.assert_allclose(mean(new)[..., ::2], coarse(new[..., ::2]), rtol=0, atol=1e-4)
    spectrum = np.abs(np.fft.rfft(mean(new)))
    assert spectrum[..., 9:].max() < 1e-12 * spectrum.max()  # between them is the series through these points


def test_predictions_are_on_the_mesh_of_the_input() -> None:
    mean = Network(SPECTRAL, kind="periodic", training=SHORT, points=16).fit(waves(20, 32), 1 + waves(20, 32))
    learned = mean(waves(5, 32, seed=1))
    for points in (16, 48, 160):
        found = mean(waves(5, points, seed=1))
        assert found.shape == (5, 1, points)
        np.testing.assert_allclose(found[..., :: points // 16], learned[..., ::2], rtol=0, atol=1e-5)


def test_a_mesh_of_cells_keeps_the_symmetry() -> None:
    a, new = noise(12, 1, 12, 12), noise(3, 1, 12, 18, seed=1)
    mean = Network(SLIM, "reflection", "cell", training=SHORT, points=8).fit(a, a)
    assert mean(new).shape == new.shape
    for axis in (2, 3):
        np.testing.assert_allclose(mean(np.flip(new, axis)), np.flip(mean(new), axis), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs.of(noise(8), noise(8), mask=noise(8) > 0),
        Pairs.of(noise(8), noise(8, 1, 24), dims=(("sample", "channel", "x"),) * 2),
    ],
    ids=["mask", "grids"],
)
def test_another_mesh_needs_one_grid_without_missing_values(pairs) -> None:
    with pytest.raises(
        UserError, match="another mesh needs inputs and outputs on one grid, without missing values; omit `points`"
    ):
        Network(SLIM, training=SHORT, points=8).learn(pairs, None, QUIET)
    Network(SLIM, training=SHORT).learn(pairs, None, QUIET)


def test_an_operator_is_evaluated_on_any_grid() -> None:
    """The spectral network has modes as averages over the nodes: outputs of band-limited inputs are nearly one function."""
    mean = Network(SPECTRAL, "translation", kind="periodic", training=SHORT).fit(waves(20, 32), 1 + waves(20, 32))
    assert mean.any_grid
    new = mean(waves(5, 32, seed=1))
    np.testing.assert_allclose(mean.on_grid(waves(5, 32, seed=1)), new, rtol=0, atol=1e-6)
    for points in (64, 160):
        found = mean.on_grid(waves(5, points, seed=1))
        np.testing.assert_allclose(found[..., :: points // 32], new, rtol=0, atol=1e-3)
    assert not Network(SLIM, training=SHORT).fit(noise(8, 1, 8, 8), noise(8, 1, 8, 8)).any_grid
