"""Saved networks: restored bitwise, with their settings, and with code that is given again."""

import numpy as np
import pytest

from pdno import Pairs, UserError
from pdno.learning.budget import Terms
from pdno.mean import Network, mean_from_state
from pdno.mean.base import named_state
from pdno.work.state import State, flatten
from tests.mean.networks import SHORT, SLIM, Factor, noise, same_arrays, short
from tests.mean.states import from_file, same_state


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"symmetries": "translation", "kind": ["periodic"]},
        {"points": 8, "kind": "periodic"},
        {"normalise": ("none", "pointwise")},
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_a_saved_network_is_restored_bitwise(settings) -> None:
    mean, new = short(**settings), noise(5, seed=1)
    again = mean_from_state(from_file(named_state(mean)))
    assert isinstance(again, Network)
    np.testing.assert_array_equal(again(new), mean(new))
    assert same_state(again.state(), mean.state())
    assert (again.label, again.describe(), again.parameters) == (mean.label, mean.describe(), mean.parameters)
    assert again.training == SHORT
    again.fit(noise(12), np.cumsum(noise(12), axis=-1))
    assert same_arrays(again, mean)  # settings are enough to train it again


@pytest.mark.parametrize("budget", [None, 7.0])
def test_settings_of_training_are_saved(budget) -> None:
    mean = Network(SLIM, training=SHORT, budget=budget).fit(noise(12), noise(12, seed=1))
    again = Network.from_state(from_file(mean.state()))
    assert (again.training, again.budget) == (SHORT, budget)
    state = mean.state()
    plain = Network.from_state(State({**state.settings, "training": None}, state.arrays, state.parts))
    assert plain.training is None


def test_own_code_is_given_when_a_network_is_restored() -> None:
    a = noise(12)
    mean = Network(Factor(), training=SHORT).fit(a, 3 * a)
    with pytest.raises(UserError, match="the weights of a network of your own; pass it"):
        Network.from_state(from_file(mean.state()))
    again = Network.from_state(from_file(mean.state()), Factor())
    np.testing.assert_array_equal(again(a), mean(a))
    symmetric = Network(SLIM, symmetries=[(np.negative, np.negative)], training=SHORT).fit(a, a)
    with pytest.raises(UserError, match="with symmetries of your own is code, which is not saved"):
        Network.from_state(from_file(symmetric.state()))


def test_scalars_and_double_precision_are_restored_bitwise() -> None:
    a, s = noise(12), noise(12, 2, seed=1)
    pairs = Pairs.of(a, a, scalars=s)
    mean = Network(SLIM, training=SHORT).learn(pairs, None, Terms(precision="64-true", progress=False))
    assert flatten(mean.state())[0]["network.weights.out.weight"].dtype == np.float64
    again = Network.from_state(from_file(mean.state()))
    np.testing.assert_array_equal(again(a, s), mean(a, s))
    assert same_arrays(again, mean)
