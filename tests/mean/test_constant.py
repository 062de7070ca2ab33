"""The constant mean: averages and out-of-fold residuals by hand, masks, symmetries, saving."""

import numpy as np
import pytest

from pdno import Pairs, UserError
from pdno.data.split import folds
from pdno.grid import Grid
from pdno.learning.budget import Terms
from pdno.mean import Constant, mean_from_state
from pdno.mean.base import named_state, out_of_fold, pairs_of
from pdno.symmetry import group
from tests.mean.states import from_file, same_state

QUIET = Terms(progress=False)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def masked_average(u: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, u, 0).sum(axis=0) / np.maximum(mask.sum(axis=0), 1)


# Averages


def test_it_is_the_average_of_the_outputs() -> None:
    """At each node, over all nodes of a channel, or zero; the input is ignored."""
    a, u = normal(10, 1, 5), 3 + normal(10, 2, 4, 4, seed=1)
    for normalise, expected in (
        ("pointwise", u.mean(axis=0)),
        ("scalar", u.mean(axis=(0, 2, 3), keepdims=True)[0]),
        ("none", np.zeros((1, 1, 1))),
    ):
        mean = Constant(normalise).fit(a, u)
        for new in (a[:3], 1e3 * a[:3]):
            np.testing.assert_allclose(mean(new), np.broadcast_to(expected, (3, 2, 4, 4)), rtol=1e-13)
        assert mean(a[:0]).shape == (0, 2, 4, 4)


def test_its_normalisation_has_the_standard_deviation() -> None:
    u = normal(50, 1, 6) * np.arange(1, 7)
    np.testing.assert_allclose(Constant().fit(u, u).normalisation.std, u.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(Constant("scalar").fit(u, u).normalisation.std.item(), u.std(), rtol=1e-12)


def test_missing_outputs_are_not_counted() -> None:
    """Neither in the average nor in the standard deviation, whatever their values are."""
    a, u = normal(40, 1, 6), 3 + normal(40, 1, 6, seed=1)
    mask = normal(40, 1, 6, seed=2) > 0
    mean = Constant().learn(Pairs.of(a, np.where(mask, u, 1e9), mask=mask), None, QUIET)
    average = masked_average(u, mask)
    np.testing.assert_allclose(mean(a[:1])[0], average, rtol=1e-12)
    np.testing.assert_allclose(mean.normalisation.std, np.sqrt(masked_average((u - average) ** 2, mask)), rtol=1e-12)
    assert Constant.accepts_missing


# Residuals


@pytest.mark.parametrize("labels", [None, np.repeat(np.arange(5), 2)], ids=["pairs", "groups"])
def test_residuals_are_out_of_fold(labels) -> None:
    """u_i minus the average of the outputs of the other folds, by hand."""
    a, u = normal(10, 1, 3), normal(10, 1, 3, seed=1)
    mean = Constant().fit(a, u)
    residuals = mean.residuals(a, u, group=labels, count=3, seed=4)
    seen = []
    for kept, left in folds(10, 3, labels, 4):
        np.testing.assert_allclose(residuals[left], u[left] - u[kept].mean(axis=0), rtol=1e-12, atol=1e-14)
        seen += left.tolist()
    assert sorted(seen) == list(range(10))
    np.testing.assert_allclose(mean(a[:1])[0], u.mean(axis=0), rtol=1e-12)  # the mean itself stays as it was


def test_leaving_out_one_pair_is_the_textbook_formula() -> None:
    """u_i − ū_{−i} = (u_i − ū) n/(n − 1)."""
    a, u = normal(7, 1, 3), normal(7, 1, 3, seed=1)
    expected = (u - u.mean(axis=0)) * 7 / 6
    np.testing.assert_allclose(Constant().fit(a, u).residuals(a, u, count=7), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("normalise", ["pointwise", "scalar"])
def test_missing_outputs_are_not_counted_in_residuals(normalise) -> None:
    """Averages of the other folds are over observed values; with zeros in the place of missing ones they would be too small."""
    a, u = normal(40, 1, 6), 3 + normal(40, 1, 6, seed=1)
    mask = normal(40, 1, 6, seed=2) > 0
    pairs = Pairs.of(a, np.where(mask, u, np.nan), mask="nan")
    mean = Constant(normalise).learn(pairs, None, QUIET)
    found = out_of_fold(mean, pairs, seed=1)
    for kept, left in folds(40, 5, None, 1):
        average = masked_average(u[kept], mask[kept]) if normalise == "pointwise" else u[kept][mask[kept]].mean()
        np.testing.assert_allclose(found[left][mask[left]], (u[left] - average)[mask[left]], rtol=1e-12, atol=1e-13)


# Symmetries


@pytest.mark.parametrize(
    ("symmetries", "kind", "shape"),
    [
        ("square", "cell", (1, 6, 6)),
        ("reflection-complement", "vertex", (1, 7)),
        (["translation", "odd-reflection"], "periodic", (1, 8)),
        ([(np.negative, lambda u: 1 - u)], "cell", (2, 5)),
    ],
)
def test_it_is_invariant_under_the_group(symmetries, kind, shape) -> None:
    """g m = m and, for the linear part of g, |g S| = S; m is the average over all copies of the pairs."""
    a, u = normal(9, *shape), 2 + normal(9, *shape, seed=1) * np.arange(1, 1 + shape[-1])
    mean = Constant(symmetries=symmetries, kind=kind).fit(a, u)
    value, std = mean(a[:1]), np.broadcast_to(mean.normalisation.std, shape)[None]
    elements = group(symmetries, Grid.uniform(shape[1:], kind=kind))
    assert len(elements) > 1
    for g in elements:
        np.testing.assert_allclose(g.on_u(value), value, atol=1e-12)
        np.testing.assert_allclose(np.abs(g.linear.on_u(std)), std, rtol=1e-12)
    np.testing.assert_allclose(value[0], np.mean([g.on_u(u) for g in elements], axis=(0, 1)), atol=1e-12)
    variance = np.mean([g.linear.on_u(u.std(axis=0)[None]) ** 2 for g in elements], axis=(0, 1))
    np.testing.assert_allclose(std[0], np.sqrt(variance), rtol=1e-12)
    assert np.abs(Constant(kind=kind).fit(a, u)(a[:1]) - value).max() > 0.1  # without symmetries it is another one


def test_transformed_residuals_are_residuals_of_transformed_pairs() -> None:
    a, u = normal(9, 1, 7), normal(9, 1, 7, seed=1)
    mean = Constant(symmetries="reflection-complement", kind="vertex").fit(a, u)
    for g in group("reflection-complement", Grid.uniform(7, kind="vertex")):
        np.testing.assert_allclose(g.on_u(u) - mean(g.on_a(a)), g.linear.on_u(u - mean(a)), atol=1e-12)


def test_symmetries_and_a_mask_cannot_be_combined() -> None:
    a = normal(9, 1, 6)
    pairs = pairs_of(a, a, mask=normal(9, 1, 6, seed=1) > 0)
    with pytest.raises(UserError, match="symmetries cannot be combined with a mask"):
        Constant(symmetries="reflection").learn(pairs, None, QUIET)


# Saving, and mistakes


@pytest.mark.parametrize(
    "settings", [{}, {"normalise": "scalar"}, {"normalise": "none"}, {"symmetries": ["reflection"], "kind": ["cell"]}], ids=str
)
def test_a_saved_mean_is_restored_bitwise(settings) -> None:
    a, u = normal(10, 1, 6), normal(10, 2, 6, seed=1)
    mean = Constant(**settings).fit(a, u)
    again = mean_from_state(from_file(named_state(mean)))
    np.testing.assert_array_equal(again(a), mean(a))
    np.testing.assert_array_equal(again.residuals(a, u), mean.residuals(a, u))
    assert same_state(named_state(again), named_state(mean))
    assert again.describe() == mean.describe() == "The average of the training outputs, which ignores the input."


def test_symmetries_of_the_user_are_saved_as_their_effect() -> None:
    a, u = normal(10, 1, 6), normal(10, 1, 6, seed=1)
    mean = Constant(symmetries=[(np.negative, np.negative)]).fit(a, u)
    np.testing.assert_allclose(mean(a), 0, atol=1e-15)
    again = mean_from_state(from_file(named_state(mean)))
    np.testing.assert_array_equal(again(a), mean(a))
    with pytest.raises(UserError, match="symmetry 'own' is unknown"):  # code, which is not saved, would be needed to train it
        again.fit(a, u)


def test_mistakes_are_explained() -> None:
    a = normal(5, 1, 6)
    with pytest.raises(UserError, match=r"has not been trained; call fit\(a, u\) first"):
        Constant()(a)
    with pytest.raises(UserError, match="normalise 'points' is unknown"):
        Constant("points").fit(a, a)
    with pytest.raises(UserError, match="outputs contain NaN"):
        Constant().fit(a, a * np.nan)
