"""Inputs and outputs of different dimensions: line to plane and back, and scalars to a plane, with closed forms."""

import numpy as np
import pytest
import torch
import xarray as xr

import pdno
from pdno import PDNO, Training, UserError
from tests.helpers import normal, small

LINE, SIDES, TRAIN, NOISE = 12, (12, 10), 100, 0.02
X, Y = ((np.arange(n) + 0.5) / n for n in SIDES)
NETWORKS = {
    "slim": {"name": "slim", "widths": (16, 32), "patch": 1, "blocks": 1},
    "fno": {"name": "fno", "modes": 3, "width": 8},
    "local": {"name": "local", "modes": 4, "width": 16, "layers": 2},
}
FEW = Training(updates=60, batch=32, rate=5e-3, ema=0.98)


def product() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return c, a(x) = c₁ cos πx + c₂ cos 2πx and u(x, y) = sin(πx) (c₁ y + c₂ cos πy) with a little noise."""
    c = normal(TRAIN + 20, 2)
    a = c[:, :1] * np.cos(np.pi * X) + c[:, 1:] * np.cos(2 * np.pi * X)
    g = c[:, :1] * Y + c[:, 1:] * np.cos(np.pi * Y)
    u = np.sin(np.pi * X)[:, None] * g[:, None, :]
    return c, a[:, None], u[:, None] + NOISE * normal(len(c), 1, *SIDES, seed=1)


def error(model: PDNO, a: np.ndarray, u: np.ndarray, **more: np.ndarray) -> float:
    """Return the relative error of the mean."""
    return float(np.linalg.norm(model.mean(a, **more) - u) / np.linalg.norm(u))


C, A, U = product()
DIRECTIONS = {"line to plane": (A, U), "plane to line": (U, A)}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("mean", "largest"), [("slim", 0.15), ("fno", 0.4), ("local", 0.6)])
def test_networks_learn_a_map_between_dimensions(direction, mean, largest, tmp_path) -> None:
    a, u = DIRECTIONS[direction]
    model = PDNO(mean=NETWORKS[mean], law="gaussian", training=FEW).fit(a[:TRAIN], u[:TRAIN], seed=0)
    assert error(model, a[TRAIN:], u[TRAIN:]) < largest
    assert model.predict(a[:3], members=2).std.shape == u[:3].shape
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.sample(a[:3], 2, chunk=6), model.sample(a[:3], 2, chunk=6))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("mean", "largest"), [("linear", 0.04), ("kernel", 0.04)])
def test_regressions_need_no_projection(direction, mean, largest) -> None:
    a, u = DIRECTIONS[direction]
    model = PDNO(mean=mean, law="gaussian").fit(a[:TRAIN], u[:TRAIN], seed=0)
    assert error(model, a[TRAIN:], u[TRAIN:]) < largest


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_diffusion_without_a_mean_learns_a_map_between_dimensions(direction, tmp_path) -> None:
    a, u = DIRECTIONS[direction]
    network = {"kind": "local", "modes": 4, "width": 16, "layers": 2}
    model = PDNO(network, mean=None, training=Training(updates=100, batch=32, rate=5e-3, ema=0.98))
    assert error(model.fit(a[:TRAIN], u[:TRAIN], seed=0), a[TRAIN:], u[TRAIN:]) < 0.4
    model.save(tmp_path / "model.safetensors")
    again = pdno.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.sample(a[:2], 2, chunk=4), model.sample(a[:2], 2, chunk=4))


def test_a_functional_that_is_not_linear() -> None:
    """u(x) = (1 + c²) sin πx from a = c cos πx cos πy: no linear map of a predicts more than the mean of u."""
    c = normal(TRAIN + 30, 1)[:, :, None]
    a = c[..., None] * np.outer(np.cos(np.pi * X), np.cos(np.pi * Y))
    u = (1 + c**2) * np.sin(np.pi * X)
    network = PDNO(mean=NETWORKS["slim"], law="gaussian", training=FEW).fit(a[:TRAIN], u[:TRAIN], seed=0)
    constant = u[TRAIN:] - u[:TRAIN].mean(axis=0)
    assert error(network, a[TRAIN:], u[TRAIN:]) < 0.6 * np.linalg.norm(constant) / np.linalg.norm(u[TRAIN:])


def test_scalars_alone_become_a_plane() -> None:
    model = PDNO(mean=NETWORKS["slim"], law="gaussian", training=FEW).fit(None, U[:TRAIN], scalars=C[:TRAIN], seed=0)
    assert error(model, None, U[TRAIN:], scalars=C[TRAIN:]) < 0.3


def test_scalars_beside_a_line() -> None:
    s = normal(TRAIN + 20, 1, seed=3)
    u = U + s[:, :, None, None]
    model = PDNO(mean=NETWORKS["slim"], law="gaussian", training=FEW).fit(A[:TRAIN], u[:TRAIN], scalars=s[:TRAIN], seed=0)
    assert error(model, A[TRAIN:], u[TRAIN:], scalars=s[TRAIN:]) < 0.2


@pytest.mark.parametrize("law", ["scaled", *(pytest.param(law, marks=pytest.mark.slow) for law in ("statistics", "diffusion"))])
def test_laws_with_networks_depend_on_an_input_of_another_dimension(law, tmp_path) -> None:
    few = Training(updates=3)
    model = PDNO(mean="constant", law=law, training=few, budget=20).fit(A[:TRAIN], U[:TRAIN], seed=0)
    drawn, other = model.sample(A[:2], 2, chunk=4), model.sample(A[:2] + 1, 2, chunk=4)
    assert drawn.shape == (2, 2, 1, *SIDES)
    assert not np.allclose(drawn, other)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "model.safetensors").sample(A[:2], 2, chunk=4), drawn)


def test_named_axes_and_dims_make_a_table_a_field() -> None:
    a, u = A[:20, 0], U[:20, 0]
    by_dims = small().fit(a, U[:20], dims="sample,x:sample,channel,x,y")
    names = xr.DataArray(a, dims=("sample", "x")), xr.DataArray(u, dims=("sample", "x", "y"))
    by_names = small().fit(*names)
    assert by_dims.spaces.a_shape == by_names.spaces.a_shape == (1, LINE)
    assert not by_names.spaces.scalars
    drawn = by_names.sample(names[0][:2])
    assert drawn.dims == ("member", "sample", "x", "y")
    assert small().fit(a, U[:20]).spaces.scalars == LINE  # a table without names has parameters
    last = np.moveaxis(U[:20], 1, -1) if U.ndim == 4 else U[:20, ..., None]
    assert small().fit(a, last, dims="sample,x,y,channel").spaces.scalars == LINE  # these are names of u alone


def test_a_network_of_the_user_takes_inputs_on_their_own_grid() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(LINE, SIDES[0] * SIDES[1])

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            return self.layer(a[:, 0]).reshape(-1, 1, *SIDES)

    model = PDNO(mean=pdno.mean.Network(Outer(), training=FEW), law="gaussian").fit(A[:TRAIN], U[:TRAIN], seed=0)
    assert error(model, A[TRAIN:], U[TRAIN:]) < 0.5


@pytest.mark.parametrize("mean", ["kernel", "fno", None])
def test_symmetries_are_refused(mean) -> None:
    with pytest.raises(UserError, match="inputs have 1 dimensions and outputs 2; omit the symmetries"):
        PDNO(mean=mean, symmetries="square").fit(A[:20], U[:20])


@pytest.mark.parametrize(("kind", "expected"), [("periodic", ("periodic",)), (("periodic", "cell"), ("cell",))])
def test_kinds_of_axes_are_those_of_the_output(kind, expected) -> None:
    model = small(mean="kernel", law="gaussian", kind=kind).fit(A[:20], U[:20])
    assert tuple(axis.kind for axis in model.spaces.a_grid.axes) == expected
