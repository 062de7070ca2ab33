"""Monotone maps of coordinates."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from pdno.mean.process.regression import Hyper, select
from pdno.mean.process.warp import Warp, _objective, curve, warped

T = np.linspace(-0.5, 1.5, 201)[:, None]
X = np.random.default_rng(0).uniform(size=(20, 2))


@pytest.mark.parametrize("bend", [-4.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 4.0])
def test_a_curve_is_increasing_and_keeps_the_range(bend):
    w = curve(T, np.array([bend]))
    assert (np.diff(w[:, 0]) > 0).all()
    assert curve(np.array([[0.0], [1.0]]), np.array([bend])).ravel() == pytest.approx([0, 1], abs=1e-12)
    for end in (0.0, 1.0):  # no kink
        below, at, above = curve(np.array([[end - 1e-6], [end], [end + 1e-6]]), np.array([bend])).ravel()
        assert above - at == pytest.approx(at - below, rel=1e-3)
    beyond = (T[1:-1, 0] < -0.02) | (T[1:-1, 0] > 1.02)
    assert np.diff(w[:, 0], 2)[beyond] == pytest.approx(0, abs=1e-12)  # linear


def test_a_curve_is_a_logarithm_or_its_mirror_image():
    """From 1 to 50: w = log x/log 50 with x = 1 + 49 t, and c = log 50."""
    c = np.log(50.0)
    inside = T[(T[:, 0] >= 0) & (T[:, 0] <= 1)]
    assert curve(inside, np.array([c])) == pytest.approx(np.log(1 + 49 * inside) / c)
    assert curve(inside, np.array([-c])) == pytest.approx(1 - curve(1 - inside, np.array([c])))


def test_slopes_are_those_of_the_objective():
    rng = np.random.default_rng(1)
    hyper = Hyper(np.array([0, 1]), rng.normal(size=(2, 3)))
    objective = _objective(X, rng.normal(size=(20, 2)), hyper)
    at = np.append(hyper.log.ravel(), [0.7, -1.5])
    error = check_grad(lambda v: objective(v[None], None)[0][0], lambda v: objective(v[None], None)[1][0], at, epsilon=1e-6)
    assert error < 1e-4 * np.abs(objective(at[None], None)[1]).max()


def test_a_parameter_with_a_logarithmic_effect_is_bent():
    x = np.stack([np.linspace(0, 1, 24), np.random.default_rng(2).uniform(size=24)], axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    t = np.linspace(0, 1, 24)
    y = np.stack([np.sin(2 * np.log(1 + 50 * t)), np.cos(2 * np.log(1 + 50 * t))], axis=1)
    start = select(x, y)
    warp, _ = warped(x, y, start)
    assert warp.bend[0] > 2
    assert abs(warp.bend[1]) < 0.5  # a parameter without effect stays as it is
    assert warp(x).std(axis=0) == pytest.approx([1, 1])


def test_a_coordinate_that_is_constant_stays_zero():
    warp = Warp.of(np.stack([X[:, 0], np.full(20, 3.0)], axis=1))
    assert warp(np.array([[0.5, 3.0], [0.2, 9.0]]))[:, 1].tolist() == [0.0, 0.0]
