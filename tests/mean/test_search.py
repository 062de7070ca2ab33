"""The search for hyper-parameters of kernel means: limits of time, scalars and logarithms."""

import time
from dataclasses import replace

import numpy as np
import pytest

import pdno.mean.kernel.search as search
from pdno import UserError
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.mean.kernel.kernel import Kernel
from tests.mean.kernels import inputs, operator


def test_time_is_a_limit(monkeypatch) -> None:
    """Without time the search ends where it begins, and as many pairs are used for training as it used."""
    monkeypatch.setattr(search, "COARSE", 12)
    a = inputs(40)
    begun = Kernel("matern52", budget=1e-9).fit(a, operator(a))
    assert "on 12 pairs of 40" in begun.describe()
    assert begun.hyper.length in (1.0, 4.0, 16.0)
    assert begun.residuals(a, operator(a)).shape == a.shape
    whole = Kernel("matern52", budget=1e9).fit(a, operator(a))
    np.testing.assert_array_equal(whole(a), Kernel("matern52").fit(a, operator(a))(a))


def test_the_deadline_of_the_model_is_a_limit(monkeypatch) -> None:
    """It limits a kernel without a budget of its own, in one process; several processes must not decide by their clocks."""
    monkeypatch.setattr(search, "COARSE", 12)
    pairs = pairs_of(inputs(40), operator(inputs(40)))
    late = Terms(progress=False, deadline=time.monotonic())
    assert "on 12 pairs of 40" in Kernel("matern52").learn(pairs, None, late).describe()
    for kernel, terms in ((Kernel("matern52", budget=1e9), late), (Kernel("matern52"), replace(late, devices=2))):
        assert "on 40 pairs:" in kernel.learn(pairs, None, terms).describe()


def test_scalars_count() -> None:
    a, s = inputs(100), inputs(100, 1, seed=1) * 1e3 + 5e3
    u = np.sin(s[:, :, None] / 500) + a
    kernel = Kernel("matern52").fit(a[:80], u[:80], s[:80])
    assert np.sqrt(np.square(kernel(a[80:], s[80:]) - u[80:]).mean()) < 0.2 * u.std()
    assert kernel.hyper.balance > 1  # u is linear in the field and not in the scalar
    assert kernel.residuals(a, u, s).shape == u.shape


def test_logarithms_are_taken_where_they_help() -> None:
    a = np.exp(inputs(60))
    assert Kernel("linear").fit(a, np.log(a)).hyper.log
    assert not Kernel("linear").fit(a, 2 * a).hyper.log
    assert not Kernel("linear").fit(a - 3, 2 * a).hyper.log
    with pytest.raises(UserError, match="log = True, but inputs or their symmetric copies are not all positive"):
        Kernel(log=True).fit(a - 3, a)
