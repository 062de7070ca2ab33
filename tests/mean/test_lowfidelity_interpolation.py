"""Solvers on other grids: fields that an interpolation resolves are exact."""

from functools import partial

import numpy as np
import pytest

from pdno import UserError
from pdno.grid import Axis, Grid
from pdno.mean.lowfidelity import LowFidelity
from tests.mean.problems import Nothing, normal, wavy

RESOLVED = ["linear", "cosines", "sines", "periodic", "left"]


def series(name: str, nodes: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Four functions that the interpolation of this name resolves, with coefficients that are not affine in a."""
    waves = np.arange(4)
    functions = {
        "linear": lambda x: np.stack([np.ones(len(x)), x, 1 - x, 3 * x - 2]),
        "left": lambda x: np.stack([np.ones(len(x)), x, 1 - x, 3 * x - 2]),
        "cosines": lambda x: np.cos(np.pi * waves[:, None] * x),
        "sines": lambda x: np.sin(np.pi * (1 + waves[:, None]) * x),
        "periodic": lambda x: np.cos(2 * np.pi * (waves[:, None] // 2 + 1) * x + waves[:, None]),
    }
    return np.cos(3 * a[:, :, :4]) @ functions[name](nodes)


@pytest.mark.parametrize("points", [(9, 24), (24, 9)])
@pytest.mark.parametrize("name", RESOLVED)
def test_what_an_interpolation_resolves_is_exact(name, points) -> None:
    kind = name if name in ("periodic", "left") else "cell"
    x, y = (Axis(n, kind).nodes for n in points)
    a, new = normal(50, 2, 5), normal(9, 2, 5, seed=1)
    mean = LowFidelity(partial(series, name, x), Nothing(), kind=kind).fit(a, 2 * series(name, y, a))
    np.testing.assert_allclose(mean.factor, 2, rtol=1e-9)
    np.testing.assert_allclose(mean(new), 2 * series(name, y, new), atol=1e-8)
    if kind == "cell":
        assert mean.interpolation == name


def test_axes_of_different_kinds() -> None:
    grids = [Grid((Axis(n, "periodic"), Axis(m, "vertex", name="y"))) for n, m in ((8, 7), (12, 16))]
    a, new = normal(50, 1, 5), normal(9, 1, 5, seed=1)

    def field(grid: Grid, a: np.ndarray) -> np.ndarray:
        x, y = grid.mesh()
        turned = np.cos(2 * np.pi * x[None, None] + a[:, :, :1, None])
        return np.exp(a[:, :, 1:2, None]) + turned * np.cos(3 * np.pi * y)

    mean = LowFidelity(partial(field, grids[0]), Nothing(), kind=("periodic", "vertex")).fit(a, field(grids[1], a))
    assert mean.interpolation == "cosines"
    np.testing.assert_allclose(mean(new), field(grids[1], new), atol=1e-9)
    with pytest.raises(UserError, match=r"got 3 kinds of axes for a grid of \(12, 16\)"):
        LowFidelity(partial(field, grids[0]), kind=["cell"] * 3).fit(a, field(grids[1], a))


def test_grids_of_two_points_and_of_one() -> None:
    a = normal(30, 1, 5)
    for kind in ("vertex", "cell", "periodic", "left"):
        assert np.isfinite(LowFidelity(lambda x: wavy(x)[:, :, :2], kind=kind).fit(a, wavy(a))(a)).all()
    same = LowFidelity(lambda x: wavy(x)[:, :, None], Nothing()).fit(a, 2 * wavy(a)[:, :, None])
    np.testing.assert_allclose(same(a), 2 * wavy(a)[:, :, None], atol=1e-10)
