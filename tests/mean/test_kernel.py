"""Kernel means: kinds of data, saving, limits of memory, and mistakes."""

import numpy as np
import pytest

import pdno.mean.kernel.kernel as module
from pdno import UserError
from pdno.mean.kernel.kernel import ARRAYS, Kernel
from tests.mean.kernels import POINTS, fitted, inputs, operator
from tests.mean.states import from_file

# Kinds of data


def test_constant_outputs() -> None:
    kernel = Kernel().fit(inputs(10), np.full((10, 1, POINTS), 3.0))
    np.testing.assert_allclose(kernel(inputs(3, seed=1)), 3.0, rtol=1e-12)
    assert kernel.posterior_std(inputs(3, seed=1)).max() < 1e-9
    assert kernel.error < 1e-12


def test_channels_in_any_units_are_learned() -> None:
    """Small channels are as good as large ones, and are not taken for rounding errors."""
    a = inputs(60)
    u = np.concatenate([1e5 * operator(a), 1e-8 * operator(a), np.full_like(a, 273.15)], axis=1)
    kernel = Kernel("matern52").fit(a[:50], u[:50])
    large, small, constant = np.moveaxis(kernel(a[50:]), 1, 0)
    np.testing.assert_allclose(1e13 * small, large, rtol=1e-6)
    np.testing.assert_allclose(constant, 273.15, rtol=1e-12)
    left = kernel.residuals(a[:50], u[:50])
    np.testing.assert_allclose(1e13 * left[:, 1], left[:, 0], rtol=1e-5, atol=1)


def test_constant_inputs() -> None:
    a, u = np.ones((10, 1, POINTS)), inputs(10, seed=1)
    np.testing.assert_allclose(Kernel().fit(a, u)(a[:1])[0], u.mean(axis=0), atol=0.4)  # shrunk, so not quite the mean


def test_two_pairs() -> None:
    a, u = inputs(2), operator(inputs(2))
    kernel = Kernel().fit(a, u)
    assert np.isfinite(kernel(inputs(3, seed=1))).all()
    assert kernel.residuals(a, u).shape == u.shape
    with pytest.raises(UserError, match="got 1 pairs, expected at least two"):
        Kernel().fit(a[:1], u[:1])


def test_channels_and_grids_may_differ() -> None:
    a = np.concatenate([inputs(80, 1, 4, 4), 1000 * inputs(80, 1, 4, 4, seed=1)], axis=1)
    u = np.stack([a[:, 0, 0], 1e-3 * a[:, 1, 1], a[:, 0, 0] + a[:, 1, 1]], axis=1)  # in units of their own
    kernel = Kernel().fit(a[:70], u[:70])
    error = np.sqrt(np.square(kernel(a[70:]) - u[70:]).mean(axis=(0, 2)))
    assert (error < 1e-3 * u.std(axis=(0, 2))).all()


def test_no_grid_at_all() -> None:
    a = inputs(40, 3)
    kernel = Kernel().fit(a[:30], a[:30, :2] ** 2)
    np.testing.assert_allclose(kernel(a[30:]), a[30:, :2] ** 2, atol=0.5)
    assert kernel.posterior_std(a).shape == (40, 2)


def test_predictions_do_not_depend_on_the_block(monkeypatch) -> None:
    kernel, _, _ = fitted()
    new = inputs(7, seed=1)
    whole = kernel(new)
    monkeypatch.setattr(module, "BLOCK", 1)
    np.testing.assert_allclose(kernel(new), whole, rtol=1e-7)


# Saving, limits, mistakes


@pytest.mark.parametrize("symmetries", [(), "reflection"])
def test_a_saved_kernel_is_restored_bitwise(symmetries) -> None:
    kernel, a, u = fitted(noise=0.1, symmetries=symmetries, kernel="rq")
    new = inputs(5, seed=1)
    again = Kernel.from_state(from_file(kernel.state()))
    np.testing.assert_array_equal(again(new), kernel(new))
    np.testing.assert_array_equal(again.posterior_std(new), kernel.posterior_std(new))
    np.testing.assert_array_equal(again.residuals(a, u), kernel.residuals(a, u))
    assert (again.describe(), again.error) == (kernel.describe(), kernel.error)
    assert again.state().settings == kernel.state().settings
    assert again.state().arrays.keys() == kernel.state().arrays.keys() == set(ARRAYS)
    for name, values in kernel.state().arrays.items():
        np.testing.assert_array_equal(again.state().arrays[name], values)


@pytest.mark.parametrize("name", ARRAYS)
def test_missing_arrays_are_named(name) -> None:
    state = fitted()[0].state()
    del state.arrays[name]
    with pytest.raises(UserError, match=rf"arrays \['{name}'\] of a kernel mean are missing"):
        Kernel.from_state(state)


def test_own_maps_are_not_saved() -> None:
    kernel, _, _ = fitted(symmetries=["reflection", (np.negative, np.negative)])
    assert kernel.state().settings["symmetries"] == ["reflection", "own"]
    with pytest.raises(UserError, match="with symmetries of your own is code, which is not saved"):
        Kernel.from_state(kernel.state())


def test_memory_is_a_limit(monkeypatch) -> None:
    """Fewer pairs are used, which `describe` says, or a requested number is refused."""
    monkeypatch.setattr(module, "memory_allowed", lambda: 100_000)
    kernel, a, u = fitted(80)  # 8·n·(5·n + 8·16) bytes for n pairs
    assert "on 38 pairs of 80" in kernel.describe()
    assert len(kernel.state().arrays["a"]) == 38
    assert kernel.residuals(a, u).shape == u.shape
    with pytest.raises(UserError, match=r"regression on 80 pairs needs 0\.0 GB of memory, .* set most=38"):
        fitted(80, most=80)
    kernel, _, _ = fitted(80, most=30)
    assert "on 30 pairs of 80" in kernel.describe()


def test_sentence() -> None:
    kernel, _, _ = fitted(kernel="rq")
    text = kernel.describe()
    assert text.startswith("Gaussian-process regression on 40 pairs: a rational quadratic kernel of shape ")
    assert text.endswith(f"the leave-one-out relative error is {kernel.error:.3g}.")
    assert Kernel().describe() == "A kernel mean that has not been trained."
    assert "of the modes of a weighted by (k² + 2)^(−" in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Kernel("matern"), "kernel 'matern' is unknown; did you mean"),
        (lambda: Kernel(most=1), "most = 1: expected at least two training pairs"),
        (lambda: Kernel()(inputs(2)), r"this kernel mean has not been trained; call fit\(a, u\) first"),
        (lambda: Kernel().fit(inputs(4), inputs(5)), r"have shapes \(4, 1, 8\), \(5, 1, 8\) and \(4, 0\)"),
        (lambda: Kernel().fit(inputs(4) / 0.0, inputs(4)), "NaN or infinite"),
        (lambda: Kernel(kind=["cell", "cell"]).fit(inputs(4), inputs(4)), "got 2 kinds of axes"),
        (lambda: Kernel(symmetries="square").fit(inputs(4), inputs(4)), "two axes of equal points"),
        (lambda: Kernel(symmetries=[(lambda a: 5 - 2 * a, np.negative)]).fit(inputs(4), inputs(4)), "expected a group"),
        (lambda: fitted()[0](inputs(2, 1, 9)), r"an input has shape \(1, 9\) .* expected \(1, 8\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
