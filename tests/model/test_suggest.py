"""Where to run next: the selection is the best one by brute force, fills gaps, and does not repeat itself."""

import numpy as np
import pandas as pd
import pytest

import pdno
from pdno.mean.process.regression import Hyper, Regression
from pdno.model.design.belief import Belief
from pdno.model.design.suggest import box_of, points_of

X = np.array([0.0, 0.1, 0.2, 0.3, 0.9, 1.0])[:, None]
NODES = np.linspace(0, 1, 8)


def fields(x):
    return np.sin(3 * x * NODES)


@pytest.fixture(scope="module", params=["process", "linear"])
def model(request):
    return pdno.baseline.Deterministic(request.param).fit(None, fields(X), scalars=pd.DataFrame(X, columns=["x"]), validation=0)


@pytest.fixture
def data():
    return pdno.Pairs.of(np.zeros((6, 8)), fields(X), scalars=X)


def test_the_largest_gap_is_filled_first(model, data) -> None:
    design = pdno.suggest(model, count=3, data=data)
    x = design.parameters["x"].to_numpy()
    assert 0.45 < x[0] < 0.8
    assert np.diff(np.sort(np.r_[x, X[:, 0]])).max() < 0.3  # of 0.6
    assert (np.diff(design.remaining) < 0).all()
    assert 0 < design.remaining[-1] < 0.1


def test_a_design_is_a_function_of_the_seed(model, data) -> None:
    first, again, other = (pdno.suggest(model, count=3, data=data, seed=s).parameters["x"].to_numpy() for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_allclose(first[0], other[0], atol=0.05)  # nearly the same place


def test_rows_of_a_pool_are_neither_repeated_nor_equal(model, data) -> None:
    pool = pd.DataFrame({"x": [0.5, 0.5, 0.6, 0.6, 0.05, 0.7]})
    design = pdno.suggest(model, pool, count=4, data=data)
    np.testing.assert_array_equal(pool["x"].to_numpy()[design.rows], design.parameters["x"])
    assert len(set(design.parameters["x"])) == 4
    with pytest.raises(pdno.UserError, match="5 inputs are to be selected from 4 different ones"):
        pdno.suggest(model, pool, count=5, data=data)


def test_conditioning_on_an_input_is_that_of_regression_with_it() -> None:
    """The update without outputs has the covariance that a refit with the same hyper-parameters has."""
    rng = np.random.default_rng(0)
    x, new = rng.random((6, 2)), rng.random((9, 2))
    hyper = Hyper(np.array([0, 1]), np.log([[0.4, 0.7, 1e-3], [0.5, 0.3, 1e-2]]))
    belief = Belief(Regression(x, np.zeros((6, 2)), hyper).joint(new), hyper.nugget)
    gains, before = belief.gains(), np.square(belief.std).sum()
    sums = []
    for i in range(9):
        refit = Regression(np.concatenate([x, new[i : i + 1]]), np.zeros((7, 2)), hyper).joint(new)
        sums.append(np.trace(refit.sum(axis=0)))
    np.testing.assert_allclose(before - gains, sums, rtol=1e-9)
    belief.observe(4)
    np.testing.assert_allclose(np.square(belief.std).sum(), sums[4], rtol=1e-9)


def test_variances_of_a_process_are_those_of_its_joint_covariance() -> None:
    x = np.random.default_rng(0).random((9, 2))
    process = pdno.mean.Process().fit(np.zeros((9, 1, 8)), fields(x[:, :1])[:, None] + x[:, 1:, None], x)
    new = np.zeros((4, 1, 8)), np.random.default_rng(1).random((4, 2))
    covariance, noise = process.joint(*new, most=100)
    exact = np.square(process.uncertainty(*new)[1]).mean(axis=(1, 2))
    np.testing.assert_allclose(np.diagonal(covariance.sum(axis=0)), exact, rtol=1e-6, atol=1e-15)
    assert noise.shape == covariance.shape[:1]


def test_spread_attracts_suggestions() -> None:
    """Of inputs that are equally far from training inputs, those where the model predicts more spread are selected."""
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 200)[:, None]
    u = rng.normal(size=(200, 8)) * np.where(x > 0, 1.0, 0.05)
    model = pdno.PDNO(mean="linear", law="gaussian").fit(None, u, scalars=x)
    chosen = pdno.suggest(model, np.linspace(-1, 1, 80)[:, None], count=3).parameters["p1"]
    assert (chosen > 0).all()


def test_a_pool_of_fields_gives_its_rows() -> None:
    a = np.random.default_rng(0).random((30, 8))
    model = pdno.baseline.Deterministic("linear").fit(a, np.cumsum(a, axis=1), validation=0)
    far = np.concatenate([a[:10], 5 + a[:1]])
    assert pdno.suggest(model, far, count=2, data=pdno.Pairs.of(a, a)).rows[0] == 10
    with pytest.raises(pdno.UserError, match=r"field input, .* give a pool"):
        pdno.suggest(model)


def test_boxes(model) -> None:
    np.testing.assert_array_equal(box_of(model.spaces), [[0, 1]])
    points = points_of(box_of(model.spaces, {"x": (2, 4)}), 100)
    assert points.shape == (128, 1)
    assert np.abs(np.sort(points[:, 0]) - (2 + (np.arange(128) + 0.5) / 64)).max() < 1 / 64  # one in each cell
    for box, message in (
        ({"y": (0, 1)}, "no parameter 'y'; .*x"),
        ([(0, 1), (0, 1)], "got 2 ranges"),
        ({"x": (1, 0)}, "range of 'x' is 1 to 0"),
        ({"x": (0, np.inf)}, "range of 'x'"),
    ):
        with pytest.raises(pdno.UserError, match=message):
            pdno.suggest(model, box=box)
    with pytest.raises(pdno.UserError, match="both a pool and a box"):
        pdno.suggest(model, X, box={"x": (0, 1)})
