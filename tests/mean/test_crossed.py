"""Cross-validation of ridge regression on folds of whole groups: errors are those of refits with each penalty."""

import numpy as np
import pytest

from pdno.data.split import folds
from pdno.mean.linear.ridge import MEANS, PENALTIES, Ridge, transform
from tests.mean.problems import normal

LABELS = np.repeat(np.arange(12), 3)


def refits(phi: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return mean square errors on the folds, (f₀, λ, mode)."""
    errors = np.zeros((len(MEANS), len(PENALTIES), y.shape[1]))
    for kept, left in folds(len(y), 5, LABELS):
        centre, mean = phi[kept].mean(axis=0), y[kept].mean(axis=0)
        x = phi[kept] - centre
        for j, penalty in enumerate(PENALTIES):
            b = np.zeros((x.shape[1], y.shape[1]))
            if np.isfinite(penalty):
                b = np.linalg.solve(x.T @ x + len(kept) * penalty * np.eye(len(b)), x.T @ (y[kept] - mean))
            for i, f in enumerate(MEANS):
                errors[i, j] += np.square(y[left] - f * mean - (phi[left] - centre) @ b).sum(axis=0) / len(y)
    return errors


@pytest.mark.parametrize("basis", ["nodes", "cosines"])
@pytest.mark.parametrize("repeated", [True, False])
def test_errors_on_folds_are_those_of_refits(repeated, basis) -> None:
    """No other f₀ has a smaller error with the λ of a band, and the sum over bands is the score."""
    a = normal(12, 1, 6)[LABELS] if repeated else normal(36, 1, 6)
    u = a @ normal(6, 5, seed=1) + 2 * normal(36, 1, 5, seed=2)
    ridge = Ridge.of(a[:, 0], u, (basis,), None, LABELS)
    errors = refits(a[:, 0], transform(u[:, 0], (1, 5), basis))
    errors = errors[:1] if basis == "nodes" else errors
    total = 0.0
    for band in range(ridge.band.max() + 1):
        of_means = errors[:, ridge.penalty[band] == PENALTIES][..., ridge.band == band].sum(axis=(1, 2))
        assert MEANS[of_means.argmin()] == ridge.kept[band]
        total += of_means.min()
    assert ridge.score == pytest.approx(total / np.square(u - u.mean(axis=0)).sum() * 36, rel=1e-9)


def test_the_penalty_is_the_best_on_folds_unless_it_is_unlikely() -> None:
    a = normal(12, 1, 6)[LABELS]
    u = a @ normal(6, 5, seed=1) + 2 * normal(12, 1, 5, seed=2)[LABELS]  # what an input shares is no part of the map
    ridge = Ridge.of(a[:, 0], u, ("nodes",), None, LABELS)
    best = PENALTIES[refits(a[:, 0], u[:, 0])[0].sum(axis=1).argmin()]
    assert ridge.penalty[0] == best
    assert Ridge.of(a[:, 0], u, ("nodes",)).penalty[0] < best  # by GCV, which leaves out one of three


def test_exact_maps_stay_exact() -> None:
    a = normal(12, 1, 6)[LABELS]
    u = a @ normal(6, 5, seed=1)
    np.testing.assert_allclose(Ridge.of(a[:, 0], u, ("nodes",), None, LABELS).affine()(a[:, 0]), u[:, 0], atol=1e-11)
