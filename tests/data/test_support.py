"""The values that outputs can take: bounds that are attained, and a few values."""

import numpy as np

from pdno import PDNO, load
from pdno.data.support import Support

RNG = np.random.default_rng(0)


def test_noise_has_no_bounds() -> None:
    assert Support.of(RNG.standard_normal((100, 2, 32))) is None


def test_each_channel_has_its_own_bounds() -> None:
    values = RNG.standard_normal((200, 1, 32))
    u = np.concatenate([values, np.clip(values, -0.5, None), np.clip(1e-6 * values, -1e-6, 2e-7)], axis=1)
    support = Support.of(u)
    np.testing.assert_array_equal(support.bounds, [[-np.inf, np.inf], [-0.5, np.inf], [-1e-6, 2e-7]])
    assert np.isnan(support.values).all()
    np.testing.assert_array_equal(support.nearest(np.full((1, 3, 1), 5.0)).ravel(), [5, 5, 2e-7])


def test_a_few_values_are_the_only_ones() -> None:
    u = RNG.choice([-1.0, 0.5, 2.0], (50, 1, 16))
    support = Support.of(u)
    np.testing.assert_array_equal(support.nearest(np.array([[[-3, -0.3, -0.2, 1.2, 1.3, 9.0]]])), [[[-1, -1, 0.5, 0.5, 2, 2]]])
    np.testing.assert_array_equal(support.clipped(np.array([[[-3, 0.1, 9.0]]])), [[[-1, 0.1, 2]]])
    again = Support.from_state(support.state())
    np.testing.assert_array_equal(again.nearest(u + 0.1), u)


def test_values_that_are_not_observed_are_ignored() -> None:
    values = np.maximum(RNG.standard_normal((100, 1, 32)), 0)
    assert Support.of(values, values > 0) is None


def test_a_constant_channel_has_one_value() -> None:
    """Members and mean are this value exactly, also if training values differ by rounding; other channels stay as they are."""
    u = RNG.standard_normal((100, 2, 4))
    u[:, 1] = 273.15 * (1 + 1e-15 * RNG.choice([-1, 0, 0, 1], size=(100, 4)))
    support = Support.of(u)
    assert support is not None
    new = RNG.standard_normal((3, 2, 4))
    for moved in (support.clipped(new), support.nearest(new)):
        np.testing.assert_array_equal(moved[:, 0], new[:, 0])
        np.testing.assert_array_equal(moved[:, 1], 273.15)


def test_members_are_within_the_bounds() -> None:
    a = RNG.standard_normal((200, 1, 8))
    u = np.maximum(a + 0.3 * RNG.standard_normal(a.shape), 0)
    model = PDNO(mean="linear", law="gaussian").fit(a, u)
    members = model.sample(a[:20], members=20)
    assert members.min() == 0
    assert np.mean(members == 0) > 0.2
    assert model.predict(a[:5], members=10, progress=False).mean.min() >= 0


def test_members_have_the_values_of_the_outputs(tmp_path) -> None:
    a = RNG.standard_normal((200, 1, 8))
    u = np.sign(a + 0.3 * RNG.standard_normal(a.shape))
    model = PDNO(mean="linear", law="gaussian").fit(a, u)
    model.save(tmp_path / "model.pdno")
    for each in (model, load(tmp_path / "model.pdno")):
        assert set(np.unique(each.sample(a[:20], members=5))) == {-1.0, 1.0}
