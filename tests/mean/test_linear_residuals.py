"""Leave-one-out residuals of linear means: those of refits without each pair, and nothing is fitted twice."""

from copy import deepcopy

import numpy as np
import pytest

import pdno
from pdno.data.split import folds
from pdno.equation import Elliptic1D
from pdno.mean.linear.linear import Linear
from pdno.mean.linear.ridge import Ridge, transform
from tests.mean.problems import PLAIN, normal, scaled, smooth


@pytest.mark.parametrize("p", [5, 30])
@pytest.mark.parametrize("basis", [False, "cosines"])
def test_residuals_are_those_of_refits(p, basis) -> None:
    n, penalty = 12, 0.05
    a, u = normal(n, 1, p), normal(n, 1, 6, seed=1)
    found = Linear(**{**PLAIN, "smooth": basis}, penalty=penalty).residuals(a, u)
    z, y = scaled(a), u[:, 0]
    for i in range(n):
        rest, others = np.delete(z, i, axis=0), np.delete(y, i, axis=0)
        centred = rest - rest.mean(axis=0)
        b = np.linalg.solve(centred.T @ centred + n * penalty * np.eye(p), centred.T @ (others - others.mean(axis=0)))
        expected = y[i] - others.mean(axis=0) - (z[i] - rest.mean(axis=0)) @ b
        np.testing.assert_allclose(found[i, 0], expected, atol=1e-10)


def test_residuals_of_bands_are_those_of_refits() -> None:
    """Each mode has penalties nλ of the coefficients and n(1/f₀ − 1) of the mean; the centre is the mean of all inputs."""
    n, a = 30, smooth(30, 16, seed=2)
    u = np.cumsum(a, axis=2) + 2 * normal(n, 1, 16, seed=3)
    ridge = Ridge.of(a[:, 0], u, ("cosines",))
    assert {0 < kept < 1 for kept in ridge.kept} == {True, False}
    assert len(np.unique(ridge.penalty)) > 3
    phi = np.column_stack([np.ones(n), a[:, 0] - a[:, 0].mean(axis=0)])
    fit, left = (transform(values[:, 0], (1, 16), "cosines") for values in (ridge.affine()(a[:, 0])[:, None], ridge.left_out()))
    for j, y in enumerate(transform(u[:, 0], (1, 16), "cosines").T):
        with np.errstate(divide="ignore"):
            penalty = n * np.array([1 / ridge.kept[ridge.band[j]] - 1, *[ridge.penalty[ridge.band[j]]] * 16])
        x, used = phi[:, np.isfinite(penalty)], np.diag(penalty[np.isfinite(penalty)])
        for i, rows in enumerate([slice(None), *(np.arange(n) != i for i in range(n))]):
            guess = x @ np.linalg.solve(x[rows].T @ x[rows] + used, x[rows].T @ y[rows]) if x.size else np.zeros(n)
            if i == 0:
                np.testing.assert_allclose(fit[:, j], guess, atol=1e-8)
            else:
                np.testing.assert_allclose(left[i - 1, j], (y - guess)[i - 1], atol=1e-8)


def test_residuals_are_as_large_as_those_of_new_pairs() -> None:
    """Over ten seeds the ratio was between 0.97 and 1.04, that of residuals of the fit itself between 0.83 and 0.89."""
    data = pdno.generate(Elliptic1D(64, log_scale=0.5), train=200, test=200, noise="gaussian:0.01", seed=1)
    mean = Linear().fit(data.train.a, data.train.u)
    left, new = mean.residuals(data.train.a, data.train.u), data.test.u_eta - mean(data.test.a)
    inside = data.train.u - mean(data.train.a)
    assert np.sqrt(np.square(left).mean() / np.square(new).mean()) == pytest.approx(1, abs=0.1)
    assert np.square(inside).mean() < 0.9 * np.square(left).mean()


def test_groups_are_left_out_as_one() -> None:
    """Each pair occurs twice: the other one determines it, unless both are left out."""
    a, u, group = (
        np.repeat(normal(20, 1, 40), 2, axis=0),
        np.repeat(normal(20, 1, 4, seed=1), 2, axis=0),
        np.repeat(range(20), 2),
    )
    mean = Linear(**PLAIN, penalty=1e-8)
    assert np.abs(mean.residuals(a, u)).max() < 1e-4
    together = mean.residuals(a, u, group=group)
    assert np.sqrt(np.square(together).mean()) > 0.5
    expected = np.empty(u.shape)
    for kept, left in folds(40, 5, group):
        expected[left] = u[left] - Linear(**PLAIN, penalty=1e-8).fit(a[kept], u[kept])(a[left])
    np.testing.assert_array_equal(together, expected)
    np.testing.assert_array_equal(mean.residuals(a, u, group=np.arange(40)), mean.residuals(a, u))


@pytest.fixture
def fits(monkeypatch) -> list[int]:
    """The numbers of pairs of all ridge regressions."""
    counts: list[int] = []
    of = Ridge.of.__func__
    monkeypatch.setattr(Ridge, "of", classmethod(lambda cls, phi, *rest: counts.append(len(phi)) or of(cls, phi, *rest)))
    return counts


def test_nothing_is_fitted_twice(fits) -> None:
    """Residuals of the training pairs are those of training, bitwise identical to those of another fit."""
    a, u, s = normal(30, 1, 8), normal(30, 1, 8, seed=1), normal(30, 1, seed=2)
    mean = Linear(sparse=False).fit(a, u, s)
    count = len(fits)
    assert count > 1
    residuals = mean.residuals(a.copy(), u.copy(), s.copy(), np.arange(30))  # equal arrays need not be the same object
    assert len(fits) == count
    np.testing.assert_array_equal(Linear(sparse=False).residuals(a, u, s), residuals)
    assert len(fits) == 2 * count
    np.testing.assert_array_equal(mean.residuals(a, u, s), residuals)
    assert len(fits) == 3 * count  # they are kept for one use


def test_other_arrays_are_fitted_again(fits) -> None:
    a, u = normal(30, 1, 8), normal(30, 1, 8, seed=1)
    mean = Linear(sparse=False).fit(a, u)
    for given in ({"u": u + a}, {"a": a**2}, {"seed": 1}, {"scalars": a[:, 0]}):
        del fits[:]
        arguments = {"a": a, "u": u} | given
        np.testing.assert_array_equal(mean.residuals(**arguments), Linear(sparse=False).residuals(**arguments))
        assert len(fits) > 2
        assert len(fits) % 2 == 0  # both have fitted as often
    del fits[:]
    mean.residuals(a, u)
    assert fits == []  # those of training are still there


def test_a_sparse_map_is_selected_once(monkeypatch) -> None:
    """Its residuals are those of folds; the map of all pairs is not selected a second time."""
    rows: list[int] = []
    select = Linear._select
    monkeypatch.setattr(Linear, "_select", lambda self, a, *rest: rows.append(len(a)) or select(self, a, *rest))
    a = normal(200, 1, 16)
    u = np.roll(a, 3, axis=2) + 0.3 * normal(200, 1, 16, seed=1)
    mean = Linear().fit(a, u)
    assert mean.is_sparse
    assert rows == [200]
    residuals = mean.residuals(a, u)
    assert rows == [200] + [160] * 5
    np.testing.assert_array_equal(residuals, Linear().residuals(a, u))


def test_copies_do_not_share_residuals(fits) -> None:
    """A copy that is trained again, or residuals that are changed, leave those of others as they are."""
    a, u = normal(30, 1, 8), normal(30, 1, 8, seed=1)
    mean = Linear(sparse=False).fit(a, u)
    twin, other = deepcopy(mean), deepcopy(mean).fit(a, 2 * u)
    first = mean.residuals(a, u)
    expected = first.copy()
    first += 1
    del fits[:]
    np.testing.assert_array_equal(twin.residuals(a, u), expected)
    found = other.residuals(a, 2 * u)
    assert fits == []
    np.testing.assert_array_equal(found, Linear(sparse=False).residuals(a, 2 * u))
