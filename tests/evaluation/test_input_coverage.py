"""Coverage input by input: unequal coverage is found, shared errors are not mistaken for it, and parameters are named."""

import numpy as np
import pandas as pd
import pytest

import pdno
from pdno.evaluation.input_coverage import by_input, input_coverage, member_decile
from pdno.evaluation.verdict import verdict

POINTS = 40


def evaluated(sizes, shared: bool):
    """Evaluate a Gaussian model of the same size for all inputs on errors of these sizes."""
    rng = np.random.default_rng(0)
    count = len(sizes)
    shape = (400 + count, 1 if shared else POINTS)
    u = np.broadcast_to(rng.normal(size=shape), (400 + count, POINTS)).copy()
    u[400:] *= np.asarray(sizes)[:, None]
    p = rng.random((400 + count, 2))
    p[400:, 0] = np.asarray(sizes)
    p[:400, 0] = rng.choice(sizes, 400)
    table = pd.DataFrame(p, columns=["speed", "angle"])
    pairs = pdno.Pairs.of(np.zeros_like(u), u, scalars=table)
    model = pdno.PDNO(mean="constant", law=pdno.residual.Gaussian()).learn(pairs[:340], pairs[340:400], progress=False)
    return pdno.evaluate(model, pairs[400:], members=50, progress=False)


def test_quantiles_are_those_of_the_coverage_of_inputs() -> None:
    inside = np.arange(POINTS) < np.linspace(0, POINTS, 11).astype(int)[:, None]
    each = by_input(inside[:, None])
    np.testing.assert_allclose(each, np.linspace(0, 1, 11))
    scores = input_coverage(inside[:, None])
    np.testing.assert_allclose([scores[name].value for name in ("median", "lowest_decile", "worst")], [0.5, 0.1, 0])
    assert input_coverage(inside[:5, None]) == {}  # too few inputs
    mask = np.arange(POINTS) < 20
    np.testing.assert_array_equal(by_input(inside[:, None], np.broadcast_to(mask, inside[:, None].shape))[5:], 1)


def test_members_of_independent_values_have_a_narrow_decile() -> None:
    shown = np.random.default_rng(0).uniform(size=(50, 8, 1, 400))
    bounds = np.full((50, 1, 400), 0.05), np.full((50, 1, 400), 0.95)
    binomial = 0.9 - 1.28 * np.sqrt(0.9 * 0.1 / 400)
    np.testing.assert_allclose(member_decile(shown, *bounds).value, binomial, atol=0.005)


@pytest.mark.parametrize("shared", [False, True])
def test_equal_sizes_are_no_defect(shared) -> None:
    """Errors that a whole field shares give a coverage of 0 or 1 for single inputs, and so do members."""
    e = evaluated(np.ones(60), shared)
    low, members = (e.scores[f"coverage_90_lowest_decile{name}"].value for name in ("", "_members"))
    assert e.scores["coverage_90_worst"].value < 0.1 if shared else abs(low - members) < 0.1
    assert "not for every input" not in verdict(e)[1].headline
    assert "Coverage of single inputs: median" in verdict(e)[1].text


def test_inputs_with_larger_errors_are_found_and_named() -> None:
    """Most inputs have smaller errors than the model predicts, and some, of high speed, larger ones."""
    e = evaluated(np.repeat([0.7, 2.1], [48, 12]), shared=False)
    assert e.scores["coverage_90_median"].value > 0.93
    assert e.scores["coverage_90_lowest_decile"].value < 0.6 < e.scores["coverage_90_lowest_decile_members"].value
    assert "but not for every input" in verdict(e)[1].headline
    assert any(region.description.startswith("where speed is between 0.7 and 2.1") for region in e.low_coverage)
    assert not any("angle" in region.description for region in e.low_coverage)
