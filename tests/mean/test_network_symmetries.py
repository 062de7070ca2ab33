"""Symmetries of networks: averages of predictions, and training pairs that are transformed."""

import numpy as np
import pytest
import torch

from pdno import Pairs
from pdno.draw import generator
from pdno.grid import Grid
from pdno.mean import Network
from pdno.symmetry import average, group
from pdno.work.state import State, flatten
from tests.mean.networks import SHORT, SLIM, noise, same_arrays, short


def without_symmetries(mean: Network) -> Network:
    """The same network, whose predictions are not averaged."""
    state = mean.state()
    return Network.from_state(State({**state.settings, "symmetries": []}, state.arrays, state.parts))


@pytest.mark.parametrize(
    ("symmetries", "kind", "shape"),
    [
        ("reflection", "cell", (1, 12)),
        ("reflection", "cell", (2, 8, 12)),
        ("square", "cell", (1, 8, 8)),
        ("odd-reflection", "periodic", (1, 16)),
    ],
)
def test_averages_over_a_small_group_are_equivariant(symmetries, kind, shape) -> None:
    """For any weights, up to the rounding of a sum; without the average they are not."""
    mean = short(a=noise(12, *shape), symmetries=symmetries, kind=kind)
    plain = without_symmetries(mean)
    new = noise(3, *shape, seed=1)
    elements = group(symmetries, Grid.uniform(shape[1:], kind=kind))
    assert len(elements) == len(mean.trained.elements) <= 8
    for g in elements[1:]:
        np.testing.assert_allclose(mean(g.on_a(new)), g.on_u(mean(new)), rtol=0, atol=1e-12)
        assert np.abs(plain(g.on_a(new)) - g.on_u(plain(new))).max() > 1e-3
    np.testing.assert_allclose(mean(new), average(plain, new, elements), rtol=0, atol=1e-12)


def test_averages_over_a_large_group_take_eight_elements() -> None:
    mean = short(a=noise(12), symmetries="translation", kind="periodic")
    plain, new = without_symmetries(mean), noise(3, seed=1)
    assert len(mean.trained.elements) == 16
    np.testing.assert_allclose(mean(new), average(plain, new, mean.trained.elements, 8), rtol=0, atol=1e-12)
    everywhere = average(plain, new, mean.trained.elements)
    assert 1e-6 < np.abs(mean(new) - everywhere).max() < np.abs(plain(new) - everywhere).max()


def test_the_element_of_a_pair_is_a_function_of_seed_place_and_step() -> None:
    a, u = noise(12), noise(12, seed=1)
    mean = Network(SLIM, "translation", "periodic", "none", SHORT).fit(a, u)
    get, rows = mean.trained.rows(Pairs.of(a, u), 7), np.array([3, 3, 11, 0, 5])
    for first, step in ((0, 0), (4, 0), (0, 9)):
        turned_a, turned_u, mask = get(rows, first, step)
        assert mask is None
        for place, row in enumerate(rows):
            k = generator(7, "symmetry", first + place, step).integers(16)
            for turned, x in ((turned_a, a), (turned_u, u)):
                np.testing.assert_array_equal(turned[place], np.roll(x[row], k, axis=-1).astype(np.float32))
    halves = [get(rows[:2], 0, 9)[0], get(rows[2:], 2, 9)[0]]  # as if two processes shared a batch
    np.testing.assert_array_equal(torch.cat(halves), get(rows, 0, 9)[0])
    np.testing.assert_array_equal(
        mean.trained.rows(Pairs.of(a, u))(rows)[0], a[rows].astype(np.float32)
    )  # held out: not transformed


def test_training_transforms_the_pairs() -> None:
    """Two runs are equal, and differ from one with other symmetries or none; the weights of the network are compared."""
    runs = [short(symmetries=names, kind="periodic") for names in ("translation", "translation", "odd-reflection", ())]
    assert same_arrays(runs[0], runs[1])
    weights = [flatten(run.state())[0]["network.weights.out.weight"] for run in runs]
    assert not np.array_equal(weights[0], weights[2])
    assert not np.array_equal(weights[0], weights[3])
