"""Learning curves: the extrapolated law is that of errors with a known one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import qmc

import pdno
from pdno.model.design.curve import PowerLaw, fit_power_law

SIZES = np.array([8, 15, 30, 60])


@pytest.mark.parametrize("law", [PowerLaw(0.3, 2.0, 0.5), PowerLaw(0.0, 2.0, 1.0), PowerLaw(0.5, 0.0, 0.7)])
def test_a_power_law_with_a_floor_is_recovered(law) -> None:
    found = fit_power_law(SIZES, np.array([law(n) ** 2 for n in SIZES]))
    np.testing.assert_allclose(found.floor, law.floor, atol=0.01)
    np.testing.assert_allclose([found(n) for n in (120, 240)], [law(n) for n in (120, 240)], rtol=0.01)


def test_the_error_of_an_average_is_that_of_noise_and_of_its_mean() -> None:
    """The average of n fields of noise of size σ has the error e² = σ² (1 + 1/n) for a new one."""
    u = 2 * np.random.default_rng(0).normal(size=(100, 4000))
    model = pdno.baseline.Deterministic("constant").fit(np.zeros((100, 4000)), u, validation=0)
    curve = pdno.learning_curve(model, pdno.Pairs.of(np.zeros((100, 4000)), u, group=np.arange(100)), repetitions=6)
    exact = 2 * np.sqrt(1 + 1 / curve.runs)
    np.testing.assert_allclose(np.sqrt(np.square(curve.errors).mean(axis=0)), exact, rtol=0.005)
    for value, expected in (
        (curve.forecast(200), 2 * np.sqrt(1 + 1 / 200)),
        (curve.forecast(400), 2 * np.sqrt(1 + 1 / 400)),
        (curve.floor, 2.0),
    ):
        np.testing.assert_allclose(value[0], expected, rtol=0.02)
        assert value[1] < 0.05
    assert "No number of runs will bring it below 1" in curve.describe()  # about 100 % of the spread of outputs


def test_data_without_noise_have_no_floor() -> None:
    x = np.random.default_rng(0).random((40, 1))
    u = np.abs(x - 0.4) + np.zeros((40, 8))
    model = pdno.baseline.Deterministic("process").fit(None, u, scalars=x, validation=0)
    curve = pdno.learning_curve(model, pdno.Pairs.of(np.zeros((40, 8)), u, scalars=x), repetitions=3)
    assert curve.floor[0] < curve.forecast(40)[0] / 2
    assert curve.forecast(80)[0] < 0.8 * curve.forecast(40)[0]
    assert "No lower limit was found" in curve.describe()


@pytest.mark.parametrize("rough", [False, True])
def test_twice_the_runs_bring_what_the_posterior_expects(rough) -> None:
    """Errors of a smooth function fall to .13, those of one with kinks to .6 of the present ones: within a factor of two."""
    new, ratios, forecasts = np.random.default_rng(0).random((500, 2)), [], []

    def f(x: np.ndarray) -> np.ndarray:
        smooth = np.abs(x[:, :1] - 0.4) + np.abs(x[:, 1:] - 0.7) if rough else np.sin(4 * x[:, :1]) * np.cos(5 * x[:, 1:])
        return smooth * np.linspace(1, 2, 8)

    for seed in range(3):
        errors = []
        for n in (20, 40):
            x = qmc.LatinHypercube(2, rng=seed).random(n)
            model = pdno.baseline.Deterministic("process").fit(None, f(x), scalars=x, validation=0)
            errors.append(np.sqrt(np.mean((model.predict(np.zeros((500, 8)), scalars=new).mean - f(new)) ** 2)))
            if n == 20:
                curve = pdno.learning_curve(model, pdno.Pairs.of(np.zeros((n, 8)), f(x), scalars=x), repetitions=1)
                forecasts.append(np.log(curve.forecast(40)[0] / curve.forecast(20)[0]))
        ratios.append(np.log(errors[1] / errors[0]))
    assert abs(np.mean(forecasts) - np.mean(ratios)) < np.log(2)
    assert bool(np.mean(forecasts) > np.log(0.4)) is rough


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_outputs_that_do_not_depend_on_parameters_have_a_finite_forecast(size) -> None:
    """Constant ones, and pure noise, which twice the runs do not reduce."""
    rng = np.random.default_rng(0)
    x, u = rng.random((24, 2)), 1 + size * rng.standard_normal((24, 8))
    model = pdno.baseline.Deterministic("process").fit(None, u, scalars=x, validation=0)
    curve = pdno.learning_curve(model, pdno.Pairs.of(np.zeros((24, 8)), u, scalars=x), repetitions=1)
    now, twice = (np.array(curve.forecast(n)) for n in (24, 48))
    assert np.isfinite([now, twice]).all()
    assert 0.9 * now[0] <= twice[0] <= now[0]
    assert ("All outputs are equal" in curve.describe()) is (size == 0)


def test_the_default_takes_few_runs_with_equal_outputs() -> None:
    x, u = np.random.default_rng(0).random((24, 2)), np.ones((24, 8))
    model = pdno.PDNO(budget=20).fit(None, u, scalars=x, progress=False)
    np.testing.assert_allclose(model.sample(u[:3], 4, scalars=x[:3]), 1, rtol=1e-12)


def test_validation_pairs_are_used_and_groups_stay_together() -> None:
    """With each input observed twice, the error is that of other inputs, not zero."""
    x = np.repeat(np.random.default_rng(0).random((30, 1)), 2, axis=0)
    noise = np.repeat(np.random.default_rng(1).normal(size=(30, 5)), 2, axis=0)
    pairs = pdno.Pairs.of(np.zeros((60, 5)), noise, scalars=x)
    data = pdno.Dataset(pairs, pairs[:0], {"name": "pairs"}).split(0.2, 0.0)
    model = pdno.baseline.Deterministic("process").learn(data.train, None)
    curve = pdno.learning_curve(model, data, repetitions=1)
    assert curve.runs[-1] == 27  # of 30 different inputs
    assert curve.errors.min() > 0.5


def test_costly_means_and_few_runs_are_refused() -> None:
    x = np.random.default_rng(0).random((10, 6))
    model = pdno.baseline.Deterministic("linear").fit(x, x, validation=0)
    with pytest.raises(pdno.UserError, match="10 different runs are too few"):
        pdno.learning_curve(model, pdno.Pairs.of(x, x))
    model.law = replace(model.law, mean=pdno.mean.mean_of("fno"))
    with pytest.raises(pdno.UserError, match="the mean 'network' is too costly"):
        pdno.learning_curve(model, pdno.Pairs.of(x, x))
