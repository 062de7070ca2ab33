"""A cascade: members of a coarse model, to which a second model adds detail."""

from functools import cache

import numpy as np
import pytest

from pdno import PDNO, Grid, UserError
from pdno.grid import interpolate, restrict
from pdno.model.cascade import SETTINGS, WAYS, Cascade

FINE, COARSE = (Grid.uniform(points, kind="cell") for points in (24, 8))


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of white noise, and outputs: a smooth linear map of R a, a tenth of the rest of a, and a little noise.

    Both are (count, 1, 24).
    """
    a, noise = np.random.default_rng(seed).standard_normal((2, count, 1, 24))
    low = restrict(a, FINE, COARSE, "average")
    smooth = interpolate(low @ np.tri(8) / 8, COARSE, FINE, "spectral", "neumann")
    return a, smooth + 0.1 * (a - np.repeat(low, 3, axis=-1)) + 0.002 * noise


@cache
def cascade() -> Cascade:
    parts = [PDNO(mean="linear", law="gaussian") for _ in range(2)]
    return Cascade(*parts, factor=3).fit(*data(150, 0), progress=False)


def test_members_have_the_detail_that_the_coarse_grid_has_not() -> None:
    """Both maps are linear, so that the detail is predicted to 1 %, and lost by interpolation."""
    a, u = data(20, 1)
    error = [float(np.square(each(a, 4) - u).mean()) for each in (cascade().sample, cascade().interpolated)]
    detail = float(np.square(u - cascade().raised(cascade().restricted(u))).mean())
    assert error[1] > 0.8 * detail
    assert error[0] < 1e-2 * detail


def test_the_interpolation_is_that_with_the_smallest_detail() -> None:
    low = cascade().restricted(data(150, 0)[1])
    sizes = [np.square(data(150, 0)[1] - cascade().raised(low, way)).sum() for way in WAYS]
    assert cascade().way == WAYS[int(np.argmin(sizes))] == ("spectral", None)


def test_a_member_is_a_function_of_seed_input_and_number() -> None:
    a = data(3, 2)[0]
    many = cascade().sample(a, 3, seed=5)
    np.testing.assert_allclose(cascade().sample(a[:2], 2, seed=5), many[:2, :2], rtol=1e-10, atol=1e-12)
    assert np.abs(many[0] - many[1]).max() > 0
    assert np.abs(many - cascade().sample(a, 3, seed=6)).max() > 0
    details = many - cascade().interpolated(a, 3, seed=5)
    mean = details.mean(axis=0)
    assert np.abs(details - mean).max() > 0  # members also differ in their details


def test_a_saved_cascade_draws_the_same_members(tmp_path) -> None:
    a = data(2, 3)[0]
    cascade().save(tmp_path / "both")
    again = Cascade.load(tmp_path / "both")
    np.testing.assert_array_equal(again.sample(a, 2), cascade().sample(a, 2))
    (tmp_path / "both" / SETTINGS).write_text("{}")
    with pytest.raises(UserError, match="does not describe a cascade"):
        Cascade.load(tmp_path / "both")


@pytest.mark.parametrize(
    ("factor", "shapes", "message"),
    [
        (1, ((4, 1, 8), (4, 1, 8)), "factor = 1: a coarse grid needs a factor of at least 2"),
        (3, ((4, 1, 8), (4, 1, 8)), "a grid of 8 is not a multiple of 3"),
        (2, ((4, 1, 8), (4, 1, 4)), "a cascade needs both on one grid"),
    ],
)
def test_mistakes_are_explained(factor, shapes, message) -> None:
    with pytest.raises(UserError, match=message):
        Cascade(PDNO(), PDNO(), factor).fit(*map(np.zeros, shapes))


@pytest.mark.parametrize(("kind", "points", "coarse"), [("vertex", 9, 5), ("periodic", 8, 4), ("left", 8, 4)])
def test_other_grids_take_every_second_node(kind, points, coarse) -> None:
    cascade = Cascade(PDNO(), PDNO(), 2, kind)
    u = np.random.default_rng(0).standard_normal((2, 1, points))
    low = cascade.restricted(u)
    np.testing.assert_array_equal(low, u[..., ::2])
    assert low.shape[-1] == coarse
    assert cascade.raised(low).shape == u.shape
