"""Sensitivity indices are those of functions with known ones, and responses those of a known mean and spread."""

import numpy as np
import pandas as pd
import pytest

import pdno
from pdno.model.design.sensitivity import responses, sobol_indices

ISHIGAMI = np.array([[-np.pi, np.pi]] * 3)


def test_indices_of_the_ishigami_function() -> None:
    """sin x₁ + a sin² x₂ + b x₃⁴ sin x₁ has the indices of Ishigami and Homma (1990)."""
    a, b = 7.0, 0.1
    main, main_error, total, total_error, std = sobol_indices(
        lambda x: np.sin(x[:, 0]) + a * np.sin(x[:, 1]) ** 2 + b * x[:, 2] ** 4 * np.sin(x[:, 0]), ISHIGAMI, 4096
    )
    first = (1 + b * np.pi**4 / 5) ** 2 / 2
    second, third = a**2 / 8, b**2 * np.pi**8 * (1 / 18 - 1 / 50)
    variance = first + second + third
    exact = np.array([first, second, 0]) / variance, np.array([first + third, second, third]) / variance
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=0.02)
    for found, error, expected in zip((main, total), (main_error, total_error), exact, strict=True):
        assert (np.abs(found - expected) < 3 * error + 1e-3).all()
        assert error.max() < 0.04


def test_a_constant_function_has_no_indices() -> None:
    main, _, total, _, std = sobol_indices(lambda x: np.ones(len(x)), ISHIGAMI, 64)
    assert std == 0
    assert not main.any()
    assert not total.any()


@pytest.fixture(scope="module")
def model():
    """A linear model: u = (3 speed + angle) · x, with no dependence on a third parameter."""
    p = np.random.default_rng(0).random((60, 3))
    p[:2] = [[0, 0, 0], [1, 1, 1]]  # the ranges are 0 to 1
    u = (3 * p[:, :1] + p[:, 1:2]) * np.linspace(0, 2, 9)
    return pdno.baseline.Deterministic("linear").fit(None, u, scalars=pd.DataFrame(p, columns=list("sah")), validation=0)


@pytest.mark.parametrize("functional", ["mean", "maximum", lambda u: u[:, 0, 3]])
def test_indices_of_a_linear_model(model, functional) -> None:
    found = pdno.sensitivity(model, functional)
    assert found.parameters == ("s", "a", "h")
    np.testing.assert_allclose(found.main, [0.9, 0.1, 0], atol=0.02)
    np.testing.assert_allclose(found.total, [0.9, 0.1, 0], atol=0.02)
    table = pdno.sensitivity(model, functional, box={"s": (0, 1e-6)}).to_frame()
    np.testing.assert_allclose(table.loc["a", "total"], 1, atol=0.02)


def test_responses_are_those_of_the_mean(model) -> None:
    first, second, third = responses(model, "mean", points=5)
    np.testing.assert_allclose(first.x, np.linspace(0, 1, 5), atol=1e-12)
    np.testing.assert_allclose(first.centre, 3 * first.x + 0.5, rtol=1e-3)
    np.testing.assert_allclose(second.centre, 1.5 + second.x, rtol=1e-3)
    np.testing.assert_allclose(third.low, 2, rtol=1e-3)
    np.testing.assert_allclose(third.low, third.high)  # deterministic


def test_the_band_of_a_response_is_that_of_members() -> None:
    """The average of n independent errors of size σ has the 90 % interval ± 1.645 σ/√n."""
    rng = np.random.default_rng(0)
    x = rng.random((300, 1))
    u = x + rng.normal(size=(300, 16))
    model = pdno.PDNO(mean="linear", law="gaussian").fit(None, u, scalars=x)
    (response,) = responses(model, points=3, members=400)
    np.testing.assert_allclose(response.high - response.low, 2 * 1.645 / 4, rtol=0.2)


def test_mistakes(model) -> None:
    for functional, message in (("maximun", "unknown; .*maximum"), (lambda u: u, "expected a finite number for each")):
        with pytest.raises(pdno.UserError, match=message):
            pdno.sensitivity(model, functional)
    a = np.random.default_rng(0).random((30, 8))
    with pytest.raises(pdno.UserError, match="field input"):
        pdno.sensitivity(pdno.baseline.Deterministic("linear").fit(a, a, validation=0))
