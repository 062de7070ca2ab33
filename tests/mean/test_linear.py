"""Linear means: smooth and rough outputs, problems of the paper, little data, saving, and mistakes."""

import numpy as np
import pytest

import pdno
from pdno import UserError
from pdno.equation import Advection, Elliptic1D
from pdno.mean.linear.linear import Linear
from pdno.work.state import State
from tests.mean.problems import PLAIN, error, normal, smooth
from tests.mean.states import from_file

# Smooth and rough outputs


@pytest.mark.parametrize("seed", range(3))
def test_smooth_outputs_are_smoothed(seed) -> None:
    """Over 20 seeds the error was at most 0.56 of the one without."""
    a, clean = smooth(300, 64, seed=seed), np.cumsum(smooth(300, 64, seed=seed), axis=2) / 20
    u = clean + normal(300, 1, 64, seed=seed + 100)
    new, truth = smooth(200, 64, seed=seed + 200), np.cumsum(smooth(200, 64, seed=seed + 200), axis=2) / 20
    mean, plain = Linear().fit(a, u), Linear(**PLAIN).fit(a, u)
    assert mean.basis != "nodes"
    assert mean.score < plain.score
    assert error(mean, new, truth) < 0.75 * error(plain, new, truth)


@pytest.mark.parametrize("seed", range(3))
def test_rough_outputs_take_no_harm(seed) -> None:
    """Outputs in no order, by a dense map: over 20 seeds the error was between 0.98 and 1.01 of the one without."""
    b, a, new = normal(20, 64, seed=seed), normal(300, 1, 20, seed=seed + 50), normal(200, 1, 20, seed=seed + 100)
    u = a @ b + 3 * normal(300, 1, 64, seed=seed + 200)
    mean, plain = Linear(degree=1).fit(a, u), Linear(**PLAIN).fit(a, u)
    assert mean.score <= plain.score
    assert error(mean, new, new @ b) < 1.05 * error(plain, new, new @ b)


# Problems of the paper


def test_advection_without_noise_is_exact() -> None:
    data = pdno.generate(Advection(64), train=300, test=100)
    mean = Linear().fit(data.train.a, data.train.u)
    assert error(mean, data.test.a, data.test.u) < 1e-9
    assert mean.basis == "nodes"  # no other basis is tried
    assert np.abs(mean.residuals(data.train.a, data.train.u)).max() < 1e-9


def test_elliptic_with_noise() -> None:
    """Over ten seeds the error was between 0.46 and 0.54 of that of plain ridge regression."""
    data = pdno.generate(Elliptic1D(64), train=2000, test=100, noise="gaussian:0.05")
    mean, plain = (Linear(**options).fit(data.train.a, data.train.u) for options in ({}, PLAIN))
    assert mean.logged
    assert error(mean, data.test.a, data.test.u) < 0.65 * error(plain, data.test.a, data.test.u)


# Little data


def test_one_pair_and_two() -> None:
    a, u = normal(2, 1, 8), normal(2, 1, 8, seed=1)
    one = Linear().fit(a[:1], u[:1])
    np.testing.assert_allclose(one(a), np.repeat(u[:1], 2, axis=0), atol=1e-12)
    assert "too few pairs" in one.describe()
    two = Linear().fit(a, u)
    assert np.isfinite(two(normal(9, 1, 8, seed=2))).all()
    assert np.isfinite(Linear().residuals(a, u)).all()
    with pytest.raises(UserError, match="provide at least two"):
        Linear().residuals(a[:1], u[:1])


@pytest.mark.parametrize("n", [3, 30])
def test_constant_outputs(n) -> None:
    mean = Linear().fit(normal(n, 1, 8), np.full((n, 2, 8), 3.0))
    np.testing.assert_allclose(mean(normal(4, 1, 8, seed=1)), 3, atol=1e-12)
    assert mean.score == pytest.approx(0, abs=1e-24)
    np.testing.assert_allclose(Linear().residuals(normal(n, 1, 8), np.zeros((n, 2, 8))), 0, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1e6 / 3])
def test_constant_inputs(value) -> None:
    a, u = np.full((20, 1, 8), value), normal(20, 1, 5)
    mean = Linear(smooth=False).fit(a, u)
    np.testing.assert_allclose(mean(a), np.broadcast_to(u.mean(axis=0), u.shape), atol=1e-12)
    np.testing.assert_allclose(mean.residuals(a, u), (u - u.mean(axis=0)) * 20 / 19, atol=1e-12)


def test_rounding_is_no_input() -> None:
    a, u = normal(30, 2, 8), normal(30, 1, 8, seed=1)
    a[:, 1] = 1e6 * (1 + 1e-15 * a[:, 1])
    both, one = (Linear(sparse=False).fit(part, u)(part) for part in (a, a[:, :1]))
    np.testing.assert_allclose(both, one, atol=1e-6)


def test_repeated_inputs() -> None:
    """Inputs are left out with all of their outputs: what ten inputs do not predict is not interpolated, an affine map is."""
    a, new = np.repeat(normal(10, 1, 40), 20, axis=0), normal(200, 1, 40, seed=3)
    noise, unrelated = 0.1 * normal(200, 1, 4, seed=2), 10 * np.repeat(normal(10, 1, 4, seed=1), 20, axis=0)
    predictions = Linear(**PLAIN).fit(a, unrelated + noise)(new)
    assert predictions.std(axis=0).max() < 0.1 * unrelated.std()
    affine = Linear(**PLAIN).fit(a[:, :, :3], a[:, :, :3] @ normal(3, 4) + noise)
    np.testing.assert_allclose(affine(new[:, :, :3]), new[:, :, :3] @ normal(3, 4), atol=0.2)


def test_outputs_without_a_grid() -> None:
    a, b = normal(50, 1, 6), normal(6, 2, seed=1)
    mean = Linear().fit(a, a[:, 0] @ b)
    assert mean(a[:3]).shape == (3, 2)
    np.testing.assert_allclose(mean(a), a[:, 0] @ b, atol=1e-10)


# Saving, and mistakes


@pytest.mark.parametrize(
    "options",
    [{}, PLAIN, {"sparse": True}, {"degree": 2, "components": 3, "log": False, "smooth": "polynomials", "penalty": 0.1}],
)
def test_a_saved_mean_is_restored_bitwise(options) -> None:
    a, s = np.exp(0.3 * normal(200, 2, 8)), np.exp(normal(200, 1, seed=1))
    u = np.log(a[:, :1]) + s[:, :, None] + 0.1 * normal(200, 1, 8, seed=2)
    mean = Linear(**options).fit(a, u, s)
    state = mean.state()
    assert all(array.dtype == np.float64 for array in state.arrays.values())
    again = Linear.from_state(from_file(state))
    np.testing.assert_array_equal(again(a, s), mean(a, s))
    assert again.state().settings == state.settings
    assert again.describe() == mean.describe()
    assert (again.score, again.is_sparse, again.logged) == (mean.score, mean.is_sparse, mean.logged)
    assert again.state().arrays.keys() == state.arrays.keys()
    for name, array in again.state().arrays.items():
        np.testing.assert_array_equal(array, state.arrays[name])


def test_description() -> None:
    a = np.exp(normal(300, 1, 8))
    assert Linear().describe() == "A linear mean that has not been trained."
    text = Linear(smooth="cosines").fit(a, np.log(a) + np.log(a) ** 2 + 0.1 * normal(300, 1, 8, seed=1)).describe()
    assert "bands of cosines" in text
    assert "logarithms" in text
    assert "products of 8" in text
    assert Linear(**PLAIN, penalty=0.5).fit(a, a).describe().startswith("Ridge regression on 8 inputs with a penalty of 0.5; ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log": "yes"}, "log = 'yes' is unknown.*expected one of True, False, auto"),
        ({"degree": 3}, "degree = 3 is unknown"),
        ({"degree": True}, "degree = True is unknown"),
        ({"smooth": "cosine"}, "did you mean 'cosines'"),
        ({"sparse": None}, "sparse = None"),
        ({"penalty": -1}, "penalty = -1: expected a non-negative number"),
        ({"penalty": float("nan")}, "penalty = nan"),
        ({"components": 0}, "components = 0: expected a positive integer"),
    ],
)
def test_settings_are_checked(options, message) -> None:
    with pytest.raises(UserError, match=message):
        Linear(**options)


def test_data_are_checked() -> None:
    a = np.exp(normal(20, 1, 8))
    with pytest.raises(UserError, match=r"shapes \(20, 1, 8\), \(19, 1, 8\).*the same number of samples"):
        Linear().fit(a, a[1:])
    with pytest.raises(UserError, match="the same number of samples"):
        Linear().fit(a[:, 0, 0], a)
    with pytest.raises(UserError, match="the same number of samples"):
        Linear().fit(a, a, a[:, 0, 0])
    with pytest.raises(UserError, match="neither values nor scalars"):
        Linear().fit(a[:, :0], a)
    with pytest.raises(UserError, match="outputs contain NaN"):
        Linear().fit(a, a * np.nan)
    with pytest.raises(UserError, match="log = True, but inputs have values down to -"):
        Linear(log=True).fit(-a, a)
    with pytest.raises(UserError, match="this linear mean has not been trained"):
        Linear()(a)
    with pytest.raises(UserError, match="has not been trained"):
        Linear().state()
    mean = Linear(log=True).fit(a, a)
    with pytest.raises(UserError, match="an input has 7 values, expected 8"):
        mean(a[:, :, 1:])
    with pytest.raises(UserError, match=r"values down to 0.*log=False"):
        mean(0 * a)
    state = mean.state()
    with pytest.raises(UserError, match=r"arrays \['modes'\].*are missing"):
        Linear.from_state(State(state.settings, {name: array for name, array in state.arrays.items() if name != "modes"}))
