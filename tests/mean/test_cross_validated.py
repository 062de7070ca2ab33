"""Selection of the mean by cross-validation."""

import numpy as np
import pytest

import pdno
from pdno.learning.budget import Terms
from pdno.mean.base import pairs_of
from pdno.mean.crossed import cross_validated, suits
from pdno.model.search import Search

TERMS = Terms(0, progress=False)
X = np.random.default_rng(0).uniform(-1, 1, (24, 2))
GRID = np.linspace(0, 1, 10)


def fronts(x):
    """Return fields whose position and width depend on two parameters."""
    return np.tanh((GRID - 0.5 - 0.2 * x[:, :1]) * np.exp(1.5 + 0.5 * x[:, 1:]))


def runs(u, x=X):
    return pairs_of(np.zeros((len(x), 1, 10)), u.reshape(len(x), 1, 10), x)


SMOOTH = np.sin(4 * X[:, :1] + GRID) * np.exp(X[:, 1:])
LINEAR = X @ np.random.default_rng(1).normal(size=(2, 10)) + 0.1 * np.random.default_rng(2).normal(size=(24, 10))


@pytest.mark.parametrize(("u", "name"), [(SMOOTH, "process"), (LINEAR, "linear")])
def test_the_best_candidate_is_selected(u, name):
    choice = cross_validated(runs(u), TERMS, {})
    assert choice.mean.name == name
    assert [trial.name for trial in choice.trials if trial.selected] == [name]
    assert "cross-validation" in choice.reason


def test_errors_are_those_of_folds_without_the_run():
    """A lone outlier cannot be predicted by the others: its error is its own size."""
    u = np.zeros((24, 10))
    u[3] = 1.0
    trials = {trial.name: trial for trial in cross_validated(runs(u), TERMS, {}).trials}
    assert min(trial.error for trial in trials.values()) > 0.45  # in units of the training mean, 2·(1/24)·(23/24)


def test_few_runs_are_not_compared():
    choice = cross_validated(runs(SMOOTH[:6], X[:6]), TERMS, {})
    assert [trial.name for trial in choice.trials] == ["process"]
    assert "6 runs are too few to compare" in choice.reason


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (runs(SMOOTH), True),
        (runs(SMOOTH, np.zeros((24, 2))), False),  # no parameter varies: all inputs are equal
        (runs(np.zeros((320, 10)), np.random.default_rng(0).normal(size=(320, 2))), False),
        (runs(SMOOTH, np.random.default_rng(0).normal(size=(24, 20))), False),
        (pairs_of(np.random.default_rng(0).normal(size=(24, 1, 40)), np.zeros((24, 1, 40)), X), False),
        (pairs_of(np.outer(X[:, 0], GRID)[:, None], np.zeros((24, 1, 10))), False),
        (pairs_of(np.outer(X[:, 0], GRID)[:, None], np.zeros((24, 1, 10)), X), True),
    ],
    ids=["few runs", "no parameter", "many runs", "many parameters", "rough fields", "fields alone", "smooth fields"],
)
def test_what_it_suits(pairs, expected):
    assert suits(pairs) is expected


def test_the_default_trains_on_all_runs_and_covers():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (24, 2))
    model = pdno.PDNO(budget=60).fit(None, fronts(x), scalars=x, dims="sample,x", progress=False)
    assert (model.fitted.mean.name, model.fitted.residual.name) == ("process", "posterior")
    assert len(model.fitted.mean._fitted.x) == model.provenance["pairs"] == 24  # no pair is held out
    new = rng.uniform(-1, 1, (50, 2))
    truth = fronts(new)
    pred = model.predict(np.zeros((50, 10)), 100, scalars=new, progress=False)
    inside = (truth >= pred.quantile(0.05)) & (truth <= pred.quantile(0.95))
    assert 0.8 < inside.mean() <= 1.0
    assert np.abs(pred.mean - truth).mean() < 0.1 * truth.std()
    assert pred.epistemic_std.shape == truth.shape


def test_runs_that_were_trained_on_do_not_calibrate_conformal_intervals():
    x = np.random.default_rng(3).uniform(-1, 1, (110, 2))
    pairs = runs(x @ np.ones((2, 10)) + 0.1 * np.random.default_rng(4).normal(size=(110, 10)), x)
    data = pdno.Dataset(pairs, pairs[:0], {"name": "runs"}).split(0.1, 0.1)
    model = pdno.PDNO(mean="linear", law="gaussian").learn(data.train, data.validation, progress=False)
    assert pdno.evaluate(model, data, members=20, progress=False).conformal
    model.annotate(cross_validated=True, pairs=99)
    e = pdno.evaluate(model, data, members=20, progress=False)
    assert (e.conformal, e.metadata["train"]) == ({}, 99)


def test_other_data_are_searched_as_before(tiny_search):
    assert tiny_search.joined("auto", "auto") is tiny_search


@pytest.fixture
def tiny_search():
    pairs = pairs_of(np.random.default_rng(0).normal(size=(30, 1, 40)), np.zeros((30, 1, 40)))
    return Search(pairs[:24], pairs[24:], None, (), TERMS, None, None)  # type: ignore[arg-type]
