"""Bounds that outputs attain."""

import numpy as np

from pdno import PDNO
from pdno.data.bounds import attained_bounds

RNG = np.random.default_rng(0)


def test_noise_has_no_bounds() -> None:
    assert attained_bounds(RNG.standard_normal((100, 2, 32))) is None


def test_each_channel_has_its_own_bounds() -> None:
    values = RNG.standard_normal((200, 1, 32))
    u = np.concatenate([values, np.clip(values, -0.5, None), np.clip(1e-6 * values, -1e-6, 2e-7)], axis=1)
    np.testing.assert_array_equal(attained_bounds(u), [[-np.inf, np.inf], [-0.5, np.inf], [-1e-6, 2e-7]])


def test_values_that_are_not_observed_are_ignored() -> None:
    values = np.maximum(RNG.standard_normal((100, 1, 32)), 0)
    mask = values > 0
    assert attained_bounds(values, mask) is None


def test_a_constant_channel_has_no_bounds() -> None:
    assert attained_bounds(np.ones((5, 1, 4))) is None


def test_members_are_within_the_bounds() -> None:
    a = RNG.standard_normal((200, 1, 8))
    u = np.maximum(a + 0.3 * RNG.standard_normal(a.shape), 0)
    model = PDNO(mean="linear", law="gaussian").fit(a, u)
    members = model.sample(a[:20], members=20)
    assert members.min() == 0
    assert np.mean(members == 0) > 0.2
    assert model.predict(a[:5], members=10, progress=False).mean.min() >= 0
