"""Sums of means: residuals by explicit refits, operators that a sum recovers exactly, shares of time, and saving."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pdno.learning.budget
from pdno import UserError
from pdno.data.split import folds
from pdno.learning.budget import Terms
from pdno.mean import Constant, mean_from_state
from pdno.mean.base import Mean, named_state, pairs_of, refitted
from pdno.mean.kernel.kernel import Kernel
from pdno.mean.linear.linear import Linear
from pdno.mean.sum import Sum
from pdno.work.state import State, flatten
from tests.mean.states import from_file, same_state

PLAIN = {"log": False, "degree": 1, "smooth": False, "sparse": False}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def error(mean: Mean, a: np.ndarray, u: np.ndarray) -> float:
    return float(np.linalg.norm(mean(a) - u) / np.linalg.norm(u))


class Average(Mean):
    """The average of the training outputs, times a number. It records what it was trained on."""

    name = "average"

    def __init__(self, times: float = 1.0) -> None:
        self.times = times
        self.seen: list[tuple[Any, ...]] = []
        self.terms: list[Terms] = []

    def learn(self, pairs, held_out, terms) -> "Average":
        self.seen.append((pairs.a, pairs.filled, pairs.scalars, terms.seed))
        self.terms.append(terms)
        self.average = self.times * pairs.filled.mean(axis=0)
        return self

    def __call__(self, a, scalars=None) -> np.ndarray:
        return np.repeat(self.average[None], len(a), axis=0)

    def residuals(self, a, u, scalars=None, group=None, count=5, seed=0) -> np.ndarray:
        return refitted(self, a, u, scalars, group, count, seed)

    def describe(self) -> str:
        return f"A mean called {self.name}."

    def state(self) -> State:
        return State({"times": self.times}, {"average": self.average})

    @classmethod
    def from_state(cls, state) -> "Average":
        new = cls(state.settings["times"])
        new.average = state.arrays["average"]
        return new


class Fixed(Average):
    """A map that is given and not trained."""

    name = "fixed"

    def __call__(self, a, scalars=None) -> np.ndarray:
        return np.sin(3 * a) if scalars is None else np.sin(3 * a) + scalars[:, :, None]

    def state(self) -> State:
        return State({"times": self.times})

    @classmethod
    def from_state(cls, state) -> "Fixed":
        assert not state.arrays
        return cls(state.settings["times"])


def restored(state: State) -> Mean:
    """Restore a mean, which may have parts of this file."""
    own = {kind.name: kind for kind in (Average, Fixed)}
    name = state.settings["name"]
    if name == "sum":
        return Sum.from_state(State({"count": state.settings["count"]}, state.arrays, state.parts), restored)
    return own[name].from_state(state) if name in own else mean_from_state(state)


def without(u: np.ndarray, times: float, group: np.ndarray | None = None) -> np.ndarray:
    """Residuals of averages over the other folds."""
    left = np.empty(u.shape)
    for kept, out in folds(len(u), 5, group):
        left[out] = u[out] - times * u[kept].mean(axis=0)
    return left


# Training


def test_each_part_is_trained_on_out_of_fold_residuals() -> None:
    a, u = normal(20, 1, 4), 5 + normal(20, 1, 4, seed=1)
    parts = [Average(0.5), Average(0.25), Average()]
    mean = Sum(*parts).fit(a, u)
    first = without(u, 0.5)
    second = without(first, 0.25)
    for part, target in zip(parts, (u, first, second), strict=True):
        assert len(part.seen) == 1  # copies are trained on folds
        np.testing.assert_array_equal(part.seen[0][1], target)
    expected = 0.5 * u.mean(axis=0) + 0.25 * first.mean(axis=0) + second.mean(axis=0)
    np.testing.assert_allclose(mean(a[:3]), np.repeat(expected[None], 3, axis=0), rtol=1e-12)


def test_a_mean_that_interpolates_has_residuals() -> None:
    """40 inputs and 20 pairs: in-sample residuals would be zero."""
    a, u = normal(20, 1, 40), normal(20, 1, 3, seed=1)
    second = Average()
    mean = Sum(Linear(**PLAIN, penalty=1e-9), second).fit(a, u)
    assert np.abs(mean.parts[0](a) - u).max() < 1e-5
    refits = [
        u[i] - Linear(**PLAIN, penalty=1e-9).fit(np.delete(a, i, 0), np.delete(u, i, 0))(a[i : i + 1])[0] for i in range(20)
    ]
    np.testing.assert_allclose(second.seen[0][1], refits, rtol=0.05, atol=0.02)
    assert np.square(second.seen[0][1]).mean() > 0.3


def test_pairs_of_equal_inputs_are_left_out_together() -> None:
    a, s, u = normal(20, 1, 4), np.zeros((20, 1)), normal(20, 1, 4, seed=1)
    a[10:] = a[:10]
    second = Average()
    Sum(Average(), second).fit(a, u, s)
    np.testing.assert_array_equal(second.seen[0][1], without(u, 1.0, pairs_of(a, u, s).labels()))
    s[10:] = 1  # other scalars, so they are other inputs
    Sum(Average(), second).fit(a, u, s)
    np.testing.assert_array_equal(second.seen[1][1], without(u, 1.0))


def test_missing_outputs_do_not_count() -> None:
    """Nodes that are missing in all samples: the average of other folds is over observed nodes, and outputs there stay zero."""
    a, u = normal(20, 1, 6), 5 + normal(20, 1, 6, seed=1)
    mask = np.broadcast_to(np.arange(6) % 3 > 0, u.shape)
    second = Average()
    Sum(Constant("scalar"), second).learn(pairs_of(a, np.where(mask, u, 1e9), mask=mask), None, Terms(progress=False))
    expected = np.zeros(u.shape)
    for kept, out in folds(20, 5):
        expected[out] = np.where(mask[out], u[out] - u[kept][mask[kept]].mean(), 0)
    np.testing.assert_allclose(second.seen[0][1], expected, rtol=1e-12, atol=1e-12)


def test_fixed_part_and_affine_part_are_exact() -> None:
    a, new = normal(60, 1, 8), normal(30, 1, 8, seed=1)
    mean = Sum(Fixed(), Linear()).fit(a, np.sin(3 * a) + 2 * a[:, :, ::-1] + 1)
    np.testing.assert_allclose(mean(new), np.sin(3 * new) + 2 * new[:, :, ::-1] + 1, atol=1e-10)
    s, more = normal(60, 1, seed=2), normal(30, 1, seed=3)
    mean = Sum(Fixed(), Linear()).fit(a, np.sin(3 * a) + 3 * s[:, :, None] + a, s)
    np.testing.assert_allclose(mean(new, more), np.sin(3 * new) + 3 * more[:, :, None] + new, atol=1e-10)


@pytest.mark.parametrize("seed", range(2))
def test_sum_is_better_than_its_parts(seed) -> None:
    """A strong affine map of all inputs and a curved one of few: over 20 seeds 0.59 to 0.93 of the better part's error."""
    b = 3 * normal(24, 12, seed=99)

    def operator(x) -> np.ndarray:
        return x @ b + np.cos(2 * x[:, :, :1]) + np.tanh(3 * x[:, :, 1:2])

    a, new = normal(150, 1, 24, seed=seed), normal(200, 1, 24, seed=seed + 50)
    a[:, :, 2:], new[:, :, 2:] = 0.1 * a[:, :, 2:], 0.1 * new[:, :, 2:]
    parts = [Linear(degree=1), Kernel("matern52")]
    errors = [
        error(each.fit(a, operator(a)), new, operator(new)) for each in (*parts, Sum(Linear(degree=1), Kernel("matern52")))
    ]
    assert errors[2] < min(errors[:2])


def test_residuals_are_of_refits_of_the_whole_sum() -> None:
    a, s = normal(30, 1, 4), normal(30, 1, seed=1)
    u, group = a**2 + s[:, :, None], np.repeat(np.arange(15), 2)
    mean = Sum(Linear(**PLAIN), Average()).fit(a[:10], u[:10], s[:10])
    before = mean(a, s)
    found, expected = mean.residuals(a, u, s, group, count=3, seed=7), np.empty(u.shape)
    for kept, left in folds(30, 3, group, 7):
        pairs = pairs_of(a[kept], u[kept], s[kept], group=group[kept])  # groups are left out together within a fold, too
        copy = Sum(Linear(**PLAIN), Average()).learn(pairs, None, Terms(7, progress=False))
        expected[left] = u[left] - copy(a[left], s[left])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(mean(a, s), before)


def test_scalars_and_seed_reach_all_parts() -> None:
    a, s = normal(20, 1, 4), normal(20, 2, seed=1)
    parts = Average(), Average()
    Sum(*parts).fit(a, a, s, seed=3)
    for part in parts:
        np.testing.assert_array_equal(part.seen[0][2], s)
        assert part.seen[0][3] == 3


def test_training_again_starts_from_the_beginning() -> None:
    a, new = normal(40, 1, 6), normal(10, 1, 6, seed=1)
    again, fresh = (Sum(Linear(), Kernel("matern52")) for _ in range(2))
    again.fit(a, np.cos(a)).fit(a, a**2)
    np.testing.assert_array_equal(again(new), fresh.fit(a, a**2)(new))


def test_residuals_of_the_last_part_are_not_computed(monkeypatch) -> None:
    first, last, calls = Average(), Average(), []
    for part in (first, last):
        monkeypatch.setattr(part, "residuals", lambda *_, part=part, **__: calls.append(part) or normal(20, 1, 4))
    Sum(first, last).fit(normal(20, 1, 4), normal(20, 1, 4, seed=1))
    assert calls == [first]


def test_cost_is_that_of_the_costliest_part() -> None:
    class Costly(Average):
        cheap_folds = False

    assert Sum(Linear(), Average()).cheap_folds
    assert not Sum(Linear(), Costly()).cheap_folds


def test_leaves_are_the_parts_of_parts() -> None:
    parts = [Average(), Average(), Linear()]
    assert Sum(parts[0], Sum(*parts[1:])).leaves() == parts
    assert parts[0].leaves() == parts[:1]


# Time


def test_parts_share_the_deadline(monkeypatch) -> None:
    """A third of the time for the first of three, half of the rest for the second, all that is left for the third.

    By a clock on which training takes as long as it may for the first part, and no time for the second.
    """
    now = [100.0]
    monkeypatch.setattr(pdno.learning.budget, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Average):
        def learn(self, pairs, held_out, terms) -> "Slow":
            if terms.deadline is not None and not self.seen:
                now[0] = terms.deadline
            return super().learn(pairs, held_out, terms)

    parts = Slow(), Average(), Average()
    Sum(*parts).learn(pairs_of(normal(20, 1, 4), normal(20, 1, 4)), None, Terms(deadline=160.0))
    assert now[0] == 120
    assert [part.terms[0].deadline for part in parts] == [120, 140, 160]


def test_each_part_has_a_folder_and_no_deadline_if_there_is_none(tmp_path) -> None:
    parts = Average(), Average()
    Sum(*parts).learn(pairs_of(normal(20, 1, 4), normal(20, 1, 4)), None, Terms(run=tmp_path))
    assert [part.terms[0].run for part in parts] == [tmp_path / "part-0", tmp_path / "part-1"]
    assert [part.terms[0].deadline for part in parts] == [None, None]
    assert list(Path(tmp_path).iterdir()) == []


def test_the_deadline_is_kept_by_the_parts(monkeypatch) -> None:
    """Kernels that have no time left train on as few pairs as they may."""
    monkeypatch.setattr("pdno.mean.kernel.search.COARSE", 12)
    pairs = pairs_of(normal(40, 1, 6), normal(40, 1, 6, seed=1))
    late, free = (
        Sum(Kernel("matern52"), Kernel("matern52")).learn(pairs, None, Terms(deadline=deadline))
        for deadline in (time.monotonic(), None)
    )
    assert late.describe().count("on 12 pairs of 40") == 2
    assert free.describe().count("on 40 pairs:") == 2


# Saving, and mistakes


def test_a_saved_sum_is_restored_bitwise() -> None:
    a, s = np.exp(normal(40, 1, 6)), normal(40, 1, seed=1)
    u = np.log(a) ** 2 + s[:, :, None]
    mean = Sum(Linear(), Kernel("matern52"), Sum(Average(0.5), Fixed())).fit(a, u, s)
    state = from_file(named_state(mean))
    assert state.settings == {"name": "sum", "count": 3}
    assert [state.parts[str(i)].settings["name"] for i in range(3)] == ["linear", "kernel", "sum"]
    inner = [part.settings for _, part in sorted(state.parts["2"].parts.items())]
    assert inner == [{"name": "average", "times": 0.5}, {"name": "fixed", "times": 1.0}]
    assert state.parts["1"].settings["kind"] == "cell"
    arrays = flatten(state)[0]
    assert {name.split(".")[0] for name in arrays} == {"0", "1", "2"}
    np.testing.assert_array_equal(arrays["2.0.average"], mean.parts[2].parts[0].average)
    again = restored(state)
    np.testing.assert_array_equal(again(a, s), mean(a, s))
    assert again.describe() == mean.describe()
    assert same_state(again.state(), mean.state())


def test_means_of_the_user_are_not_restored_by_name() -> None:
    a = normal(20, 1, 4)
    state = named_state(Sum(Linear(), Average()).fit(a, a**2))
    with pytest.raises(UserError, match=r"the file has a mean 'average' of your own; pass its class"):
        mean_from_state(state)
    with pytest.raises(UserError, match=r"restored from the states of its parts; use pdno\.mean\.mean_from_state"):
        Sum.from_state(state)


def test_description() -> None:
    a = normal(30, 1, 4)
    mean = Sum(Linear(), Average())
    assert mean.describe() == "A sum of means (linear, average) that has not been trained."
    mean.fit(a, a**2)
    assert mean.describe() == f"{mean.parts[0].describe()[:-1]} plus {mean.parts[1].describe()[:-1]}."
    assert ". plus" not in mean.describe()


@pytest.mark.parametrize("parts", [(), (Linear(),), (Linear(), "kernel"), (Linear(), None)])
def test_two_means_are_needed(parts) -> None:
    with pytest.raises(UserError, match=r"got a sum of (nothing|linear.*), expected two means or more, for instance"):
        Sum(*parts)


def test_mistakes() -> None:
    a, linear = normal(20, 1, 4), Linear()
    with pytest.raises(UserError, match="in the sum twice"):
        Sum(linear, linear)
    mean = Sum(Linear(), Kernel("matern52"))
    with pytest.raises(UserError, match="has not been trained"):
        mean(a)
    with pytest.raises(UserError, match="has not been trained"):
        mean.state()
    state = named_state(mean.fit(a, a**2))
    with pytest.raises(UserError, match=r"a sum of means has the parts \['0', '1', '2'\], expected \['0', '1'\]"):
        mean_from_state(State(state.settings, {}, {**state.parts, "2": State({})}))
    with pytest.raises(UserError, match=r"a sum of means has the parts \['1'\], expected \['0', '1'\]"):
        mean_from_state(State(state.settings, {}, {"1": state.parts["1"]}))
    for index, array, name in (("0", "modes", "linear"), ("1", "numbers", "kernel")):
        part = state.parts[index]
        broken = State(part.settings, {key: v for key, v in part.arrays.items() if key != array})
        with pytest.raises(UserError, match=rf"arrays \['{array}'\] of a {name} mean are missing"):
            mean_from_state(State(state.settings, {}, {**state.parts, index: broken}))
    broken, before = a.copy(), mean(a)
    broken[3] = np.nan
    with pytest.raises(UserError, match="NaN"):
        mean.fit(a, broken)
    np.testing.assert_array_equal(mean(a), before)  # refused before training begins
    with pytest.raises(UserError, match="NaN"):
        mean.learn(pairs_of(a, broken), None, Terms())
    with pytest.raises(UserError, match="has not been trained"):  # half of it was trained on other data
        mean(a)
