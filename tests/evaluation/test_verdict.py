"""The verdict agrees with itself, and scores of pairs that the model was trained on are called optimistic."""

from dataclasses import replace

import numpy as np
import pytest

import pdno
from pdno.evaluation.calibration import Diagnosis
from pdno.evaluation.score import Score
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.verdict import verdict
from tests.evaluation.known import Known, pairs


@pytest.fixture(scope="module")
def perfect():
    data = pdno.Dataset(pairs(60, 0), pairs(40, 1), {"name": "known"})
    return evaluate(Known(data), data, members=40, progress=False)


@pytest.mark.parametrize(
    ("coverage", "findings", "words", "never"),
    [
        (0.9807, (), "No bias or wrong shape was detected", "width"),  # significantly too wide at 90 %, not over all levels
        (0.9807, ("too wide",), "detects that members are too wide (", "over all levels"),
        (0.9807, ("too narrow",), "detects that members are too narrow over all levels (", "No bias"),
        (
            0.91,
            ("too narrow",),
            "too narrow (40 independent fields, false-positive rate 1 %); the effect on 90 % intervals is small",
            "No",
        ),
        (0.91, (), "No bias, wrong width or wrong shape was detected", "detects"),
        (0.91, ("biased low",), "detects that members are biased low (", "small"),
    ],
)
def test_headline_and_test_of_the_width_agree(perfect, coverage, findings, words, never) -> None:
    """The example: 90 % intervals that cover 98.07 % are too wide, so that no text may say that no wrong width was found."""
    d = Diagnosis(perfect.diagnoses["points"].orders, 0.5, 0.01, 40, findings)
    score = Score(coverage, 0.002, perfect.scores["coverage_90"].each)
    scores = {**perfect.scores, "coverage_90": score}
    bounds = {**perfect.bounds, "coverage_90": (coverage - 0.006, coverage + 0.006)}
    calibration = verdict(replace(perfect, scores=scores, bounds=bounds, diagnoses={**perfect.diagnoses, "points": d}))[1]
    assert ("too wide" in calibration.headline) == (coverage > 0.93)
    assert words in calibration.text
    assert never not in calibration.text


def test_pairs_that_the_model_was_trained_on_are_named() -> None:
    a = np.random.default_rng(0).standard_normal((40, 16))
    model = pdno.baseline.Deterministic("linear")
    model.fit(a[:30], 2 * a[:30], seed=0)
    with pytest.warns(UserWarning, match="was trained or validated on 5 of these 15 test inputs: scores are optimistic"):
        e = evaluate(model, pdno.Pairs.of(a[25:], 2 * a[25:]), progress=False)
    assert verdict(e)[3].headline == "The model was trained or validated on 5 of the 15 test inputs: scores are optimistic."
    e = evaluate(model, pdno.Pairs.of(a[30:], 2 * a[30:]), progress=False)  # warnings are errors in tests
    assert e.metadata["trained_on"] == 0
