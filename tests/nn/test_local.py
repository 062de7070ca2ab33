"""The Fourier neural operator with a local path: its modes, its symmetries, what its norms keep, and its settings."""

import numpy as np
import pytest
import torch

from pdno import UserError
from pdno.basis import low_modes
from pdno.nn import build
from pdno.nn.local import LocalFNO, _Layer


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(("points", "modes"), [(12, 5), (12, 12), (9, 9), (6, 25)])
def test_modes_are_orthonormal_for_averages_over_the_nodes(points, modes, periodic) -> None:
    b = low_modes(points, modes, periodic)
    assert len(b) == min(points, modes)
    np.testing.assert_allclose(b @ b.T / points, np.eye(len(b)), atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_the_spectral_path_with_unit_matrices_is_the_projection_on_the_modes(dim) -> None:
    layer = _Layer(dim, 4, 3, (True,) * dim).double()
    with torch.no_grad():
        layer.mix.copy_(torch.eye(3).expand(*(4,) * dim, 3, 3))
    b = torch.from_numpy(low_modes(10, 4, True))
    z = torch.randn(2, *(10,) * dim, 3, dtype=torch.float64)
    expected = z
    for axis in range(1, dim + 1):
        expected = torch.tensordot(expected, b.T @ b / 10, dims=([axis], [0])).movedim(-1, axis)
    torch.testing.assert_close(layer._spectral(z, [b] * dim, z), z + expected)


def test_without_coordinates_a_periodic_layer_commutes_with_shifts() -> None:
    torch.manual_seed(0)
    layer = _Layer(1, 5, 4, (True,)).double()
    with torch.no_grad():  # cosine and sine of a wave number must be mixed alike
        layer.mix[2], layer.mix[4] = layer.mix[1], layer.mix[3]
        layer.down.weight.normal_()
    x, film = torch.randn(2, 12, 4, dtype=torch.float64), torch.randn(2, 64, dtype=torch.float64)
    b = [torch.from_numpy(low_modes(12, 5, True))]
    torch.testing.assert_close(layer(x.roll(3, 1), film, b), layer(x, film, b).roll(3, 1))


def test_the_network_sees_mean_and_size_of_a_field() -> None:
    """Norms over space would make the outputs for v and 2 v + 3 equal up to the same map."""
    torch.manual_seed(0)
    net = LocalFNO(dim=1, modes=3, width=8, in_channels=2, time=True)
    torch.nn.init.normal_(net.out.weight)
    v, a = torch.randn(1, 1, 16), torch.zeros(1, 1, 16)
    with torch.no_grad():
        one, two, three = (net(5, w, a) for w in (v, v + 3, 2 * v))
    assert (one - two).abs().max() > 1e-3
    assert (one - three).abs().max() > 1e-3


def test_the_output_is_zero_at_first() -> None:
    net = LocalFNO(dim=2, modes=3, width=8, in_channels=2, time=True)
    assert net(1, torch.randn(2, 1, 8, 6), torch.randn(2, 1, 8, 6)).abs().max() == 0


def test_it_is_built_for_the_boundary_of_the_grid() -> None:
    net = build("local", (16, 12), 2, 1, True, 0, periodic=(True, False))
    assert net.settings["periodic"] == [True, False]
    again = build({"kind": "local", **net.settings}, (16, 12), 2, 1, True, 0)
    assert again.settings == net.settings
    with pytest.raises(UserError, match="one and two dimensions; use an FNO"):
        LocalFNO(dim=3)
