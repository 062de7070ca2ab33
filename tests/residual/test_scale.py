"""The algebra of S against dense matrices and densities of scipy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pdno import UserError
from pdno.residual.estimate import estimate_scale
from pdno.residual.scale import Scale
from pdno.work.state import State
from tests.helpers import normal
from tests.residual.scales import by_kind, dense, random_scale

GRIDS = [
    ((7,), (False,)),
    ((8,), (True,)),
    ((5,), (True,)),
    ((4, 3), (False, True)),
    ((4, 5), (True, True)),
    ((2, 4, 3), (True, False, True)),
]
by_grid = pytest.mark.parametrize(("grid", "periodic"), GRIDS, ids=str)


@by_kind
@by_grid
def test_inverse_sqrt_is_the_inverse_of_sqrt(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    r = normal(3, 5, 2, *grid)
    np.testing.assert_allclose(scale.inverse_sqrt(scale.sqrt(r)), r, atol=1e-12)
    np.testing.assert_allclose(scale.sqrt(scale.inverse_sqrt(r)), r, atol=1e-12)
    np.testing.assert_array_equal(scale.sqrt(r)[1, 2], scale.sqrt(r[1, 2]))


@by_grid
def test_s_is_d_times_a_symmetric_root_of_c(grid, periodic) -> None:
    scale = random_scale(grid, periodic)
    matrix = dense(scale, (2, *grid))
    root = matrix / scale.point.reshape(-1, 1)
    np.testing.assert_allclose(root, root.T, atol=1e-13)
    np.testing.assert_allclose(np.linalg.eigvalsh(root), np.sort(scale.mode.ravel()), atol=1e-12)  # B is orthonormal
    assert np.trace(root @ root) == pytest.approx(len(root))
    half = len(root) // 2
    assert not root[:half, half:].any()  # channels are independent


@by_kind
@by_grid
def test_std_is_the_root_of_the_diagonal(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    matrix = dense(scale, (2, *grid))
    expected = np.sqrt(np.diag(matrix @ matrix.T)).reshape(2, *grid)
    np.testing.assert_allclose(np.broadcast_to(scale.std, expected.shape), expected, rtol=1e-12)


@by_kind
@by_grid
def test_log_likelihood_is_that_of_scipy(grid, periodic, kind) -> None:
    scale = random_scale(grid, periodic, kind)
    matrix, values = dense(scale, (2, *grid)), normal(4, 2, *grid)
    expected = multivariate_normal(cov=matrix @ matrix.T).logpdf(values.reshape(4, -1))
    np.testing.assert_allclose(scale.log_likelihood(values), expected, rtol=1e-9)
    volume = -scale.log_likelihood(np.zeros((1, 2, *grid)))[0] - len(matrix) * np.log(2 * np.pi) / 2
    assert volume == pytest.approx(np.log(np.linalg.svd(matrix, compute_uv=False)).sum(), abs=1e-10)


@by_grid
def test_log_likelihood_ignores_nodes_where_d_is_zero(grid, periodic) -> None:
    """It is the density of the other nodes; a channel that is 0 everywhere contributes nothing."""
    for some in (slice(0, 1), slice(1, 2), slice(None)):
        scale = random_scale(grid, periodic)
        zero = np.zeros(scale.point.shape, bool)
        zero.reshape(2, -1)[some, [0, -2]] = True
        for left_out in (zero, zero | (np.arange(2) == 1).reshape(2, *(1,) * len(grid))):
            scale = replace(scale, point=np.where(left_out, 0.0, scale.point))
            matrix, values, kept = dense(scale, (2, *grid)), normal(4, 2, *grid), ~left_out.ravel()
            covariance = (matrix @ matrix.T)[np.ix_(kept, kept)]
            expected = multivariate_normal(cov=covariance).logpdf(values.reshape(4, -1)[:, kept])
            np.testing.assert_allclose(scale.log_likelihood(values), expected, rtol=1e-9)
            inverse = np.linalg.pinv(matrix, rcond=1e-12) @ values.reshape(4, -1).T
            np.testing.assert_allclose(scale.inverse_sqrt(values).reshape(4, -1).T, inverse, atol=1e-9)
            np.testing.assert_allclose(scale.sqrt(scale.inverse_sqrt(values)), np.where(left_out, 0, values), atol=1e-10)


# Saving, descriptions, mistakes


@by_kind
def test_the_state_is_all_of_a_scale(kind) -> None:
    scale = random_scale((4, 3), (False, True), kind)
    state = scale.state()
    assert all(each.dtype == np.float64 for each in state.arrays.values())
    again, values = Scale.from_state(state), normal(3, 2, 4, 3)
    assert (again.kind, again.periodic) == (kind, (False, True))
    np.testing.assert_array_equal(again.inverse_sqrt(values), scale.inverse_sqrt(values))
    np.testing.assert_array_equal(again.sqrt(values), scale.sqrt(values))


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (Scale(np.array([[0.05]]), np.ones((1, 1)), (False,), "scalar"), "one standard deviation, 0.05"),
        (
            Scale(np.array([[0.05], [2.0]]), np.ones((1, 1)), (False,), "scalar"),
            "one standard deviation per channel, from 0.05 to 2",
        ),
        (
            Scale(np.array([[0.0, 0.05, 1.0]]), np.ones((1, 1)), (False,), "point"),
            "a standard deviation at each node, from 0.05 to 1; 0 at 1 of 3 nodes",
        ),
        (
            Scale(np.array([[0.05]]), np.array([[1.9, 0.1, 0.6]]), (True,), "mode"),
            "correlated errors: one standard deviation, 0.05; 90 % of the variance is in 1 of 3 modes",
        ),
    ],
)
def test_descriptions(scale, words) -> None:
    assert scale.describe() == words


def test_fields_of_other_shapes_are_refused() -> None:
    number, each = (estimate_scale(normal(9, 2, 8), kind) for kind in ("scalar", "mode"))
    assert number.inverse_sqrt(np.ones((2, 5))).shape == (2, 5)  # one number fits all grids
    for scale, shape in [(each, (2, 5)), (each, (3, 8)), (number, (3, 8)), (number, (8,))]:
        with pytest.raises(UserError, match="fields have the shape"):
            scale.inverse_sqrt(np.ones(shape))
        with pytest.raises(UserError, match="fields have the shape"):
            scale.sqrt(np.ones(shape))
    with pytest.raises(UserError, match=r"expected \(sample, 2, 8\) as the residuals"):
        each.log_likelihood(np.ones((2, 8)))
    with pytest.raises(UserError, match="residuals are NaN"):
        each.log_likelihood(np.full((1, 2, 8), np.nan))


def test_states_of_something_else_are_refused() -> None:
    state = random_scale((4,), (False,)).state()
    with pytest.raises(UserError, match="a residual scale lacks mode"):
        Scale.from_state(State(state.settings, {"point": state.arrays["point"]}))
    with pytest.raises(UserError, match="a residual scale has the kind 'pixel', expected one of scalar, point, mode, both"):
        Scale.from_state(State({**state.settings, "kind": "pixel"}, state.arrays))
    with pytest.raises(UserError, match="a residual scale has the kind None"):
        Scale.from_state(State({"periodic": [False]}, state.arrays))


@pytest.mark.parametrize("kind", ["point", "both"])
def test_the_null_space_of_s_is_filled_with_noise(kind) -> None:
    """S maps the filling to 0, r is white, and nothing changes if S has no null space."""
    rng = np.random.default_rng(0)
    residuals = np.cumsum(rng.standard_normal((4000, 1, 12)), axis=2)
    residuals[..., [0, 5]] = 0
    scale = estimate_scale(residuals, kind)
    r = scale.filled(scale.inverse_sqrt(residuals), seed=1)
    np.testing.assert_allclose(scale.sqrt(r), residuals, atol=1e-9)
    np.testing.assert_allclose(np.var(r, axis=0)[0, [0, 5]], 1, atol=0.15)
    whole = estimate_scale(residuals[..., 6:], kind)
    np.testing.assert_array_equal(whole.filled(residuals[..., 6:]), residuals[..., 6:])


@by_kind
def test_the_rank_is_that_of_the_matrix(kind) -> None:
    scale = random_scale((6,), (False,), kind)
    zero = np.array([[False] * 6, [True, False, False, True, False, False]])
    scale = replace(scale, point=np.where(zero, 0.0, scale.point))
    assert scale.rank((2, 6)) == np.linalg.matrix_rank(dense(scale, (2, 6))) == 10
