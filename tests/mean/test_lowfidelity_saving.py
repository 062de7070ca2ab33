"""Solvers and their corrections: saving, descriptions, and mistakes in solutions, settings and data."""

import numpy as np
import pytest

from pdno import UserError
from pdno.mean import mean_from_state
from pdno.mean.base import named_state
from pdno.mean.kernel.kernel import Kernel
from pdno.mean.linear.linear import Linear
from pdno.mean.lowfidelity import LowFidelity
from pdno.work.state import State, flatten
from tests.mean.problems import PLAIN, normal, wavy
from tests.mean.states import from_file, same_state


@pytest.mark.parametrize("correction", [Linear, Kernel])
@pytest.mark.parametrize("step", [1, 2])
def test_a_saved_mean_is_restored_bitwise(correction, step) -> None:
    a, s = normal(40, 2, 8), normal(40, 1, seed=1)

    def solver(x, scalars) -> np.ndarray:
        return wavy(x)[:, :, ::step] + scalars[:, :, None]

    mean = LowFidelity(solver, correction(), kind=["vertex"]).fit(a, 2 * wavy(a) + a**3, s)
    state = from_file(mean.state())
    assert all(array.dtype == np.float64 for array in flatten(state)[0].values())
    assert state.parts["correction"].settings["name"] == correction.name
    again = LowFidelity.from_state(state, solver)
    np.testing.assert_array_equal(again(a, s), mean(a, s))
    assert again.describe() == mean.describe()
    assert same_state(again.state(), mean.state())
    with pytest.raises(UserError, match="the array 'factor' of a LowFidelity mean is missing"):
        LowFidelity.from_state(State(state.settings, {}, state.parts), solver)
    other = LowFidelity.from_state(state, lambda x, scalars: solver(x, scalars)[:, :, :3])
    with pytest.raises(
        UserError, match=r"'<lambda>' returns fields of shape \(2, 3\), expected \(2, .*as in training; use the same"
    ):
        other(a, s)


def test_the_solver_is_not_saved() -> None:
    a = normal(20, 1, 6)
    mean = LowFidelity(wavy).fit(a, a)
    with pytest.raises(UserError, match="code, which is not saved; pass it"):
        LowFidelity.from_state(mean.state())
    with pytest.raises(UserError, match="'lowfidelity' of your own"):
        mean_from_state(named_state(mean))


def test_missing_array_of_the_correction() -> None:
    a = normal(20, 1, 6)
    state = LowFidelity(wavy, Kernel("matern52")).fit(a, a).state()
    del state.parts["correction"].arrays["numbers"]
    with pytest.raises(UserError, match=r"arrays \['numbers'\] of a kernel mean are missing"):
        LowFidelity.from_state(state, wavy)


def test_description() -> None:
    a = normal(40, 2, 8)
    mean = LowFidelity(lambda x: wavy(x)[:, :, ::2], Linear(**PLAIN), kind="vertex")
    assert mean.describe() == "A solver ('<lambda>') whose correction has not been trained."
    mean.fit(a, np.array([2.0, -1.0])[:, None] * wavy(a))
    how = {"linear": "linearly", "cosines": "by cosines", "sines": "by sines"}[mean.interpolation]
    factors = f"{mean.factor[0]:.3g} and {mean.factor[1]:.3g}"
    correction = mean.correction.describe()
    assert mean.describe() == f"The solver '<lambda>' times {factors}, interpolated {how}; its correction: {correction}"
    assert "interpolated" not in LowFidelity(wavy).fit(a, wavy(a)).describe()


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (lambda a: a[1:], r"returns shape \(19, 1, 6\), expected \(20, 1, points\); return \(sample, channel"),
        (lambda a: np.concatenate([a, a], axis=1), r"returns shape \(20, 2, 6\), expected \(20, 1, points\)"),
        (lambda a: a[:, 0], r"returns shape \(20, 6\), expected \(20, 1, points\)"),
        (lambda a: a[..., None], r"returns shape \(20, 1, 6, 1\)"),
        (lambda a: a[:, :, :1], r"returns shape \(20, 1, 1\), which cannot be interpolated .* at least two points"),
        (lambda a: a[:, :, :0], r"returns shape \(20, 1, 0\), which cannot be interpolated"),
        (lambda a: None, r"returns shape \(\), expected \(20, 1, points\)"),
        (lambda a: {"u": a}, "returns dict, expected an array of numbers"),
        (
            lambda a: np.where(np.arange(20)[:, None, None] % 10 == 3, np.nan, a),
            "NaN or infinite values for 2 of 20 inputs, the first of which is number 3, expected finite numbers; correct it",
        ),
        (lambda a: a + np.inf, "NaN or infinite values for 20 of 20"),
    ],
)
def test_solutions_are_checked(solver, message) -> None:
    a = normal(20, 1, 6)
    with pytest.raises(UserError, match=f"^the solver '<lambda>' .*({message})"):
        LowFidelity(solver).fit(a, a)


def test_solutions_for_new_inputs_are_checked() -> None:
    a = normal(20, 1, 6)
    mean = LowFidelity(lambda x: np.where(x > 50, np.nan, x)).fit(a, wavy(a))
    with pytest.raises(UserError, match="for 1 of 20 inputs, the first of which is number 0"):
        mean(a + 100 * (np.arange(20) == 0)[:, None, None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": 3}, "solver = 3: expected a function of a"),
        ({"correction": "linear"}, "correction = 'linear': expected a mean model"),
        ({"kind": "cells"}, "kind 'cells' of an axis is unknown; did you mean 'cell'"),
        ({"kind": ["cell", None]}, "kind None of an axis is unknown"),
    ],
)
def test_settings_are_checked(arguments, message) -> None:
    with pytest.raises(UserError, match=message):
        LowFidelity(**{"solver": wavy} | arguments)


def test_data_are_checked() -> None:
    a = normal(20, 1, 6)
    for wrong in ((a, a[1:]), (a, a[:, 0, 0]), (a, a, a[1:, 0]), (a, a, a), (a[:0], a[:0])):
        with pytest.raises(UserError, match=r"a, u and scalars have shapes .*the same number of samples"):
            LowFidelity(wavy).fit(*wrong)
    for i, name in enumerate(("inputs", "outputs", "scalars")):
        data = [a.copy(), a.copy(), a[:, 0].copy()]
        data[i][0] = np.nan
        with pytest.raises(UserError, match=f"^{name} contain NaN"):
            LowFidelity(wavy).fit(*data)
    for use in (lambda mean: mean(a), lambda mean: mean.state()):
        with pytest.raises(UserError, match="the correction of 'wavy' has not been trained; call fit"):
            use(LowFidelity(wavy))
