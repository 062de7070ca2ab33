"""The verdict in plain words: how accurate is the model, are its error bars honest, and where should it not be trusted?"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .calibration import Diagnosis
from .evaluation import LEVEL, Evaluation
from .metrics import Score

__all__ = ["Statement", "verdict"]

Array = NDArray[np.float64]
Grade = Literal["good", "fair", "poor", "unknown"]
BLOCKS = 8  # parts of an axis of which the coverage is compared
SMALL, LARGE = 0.03, 0.08  # departures of the coverage of 90 % intervals: what is honest, and what is not
FEW = 20  # test inputs

WHOLES = {
    ("field means", "too narrow"): "errors that all points of a field share are larger than the members say",
    ("field means", "too wide"): "members differ as whole fields more than observations do",
    ("field means", "biased high"): "members lie too high as whole fields",
    ("field means", "biased low"): "members lie too low as whole fields",
    ("roughness", "biased high"): "members are rougher than observations",
    ("roughness", "biased low"): "members are smoother than observations",
}


@dataclass(frozen=True)
class Statement:
    """One part of the verdict."""

    about: str
    grade: Grade
    headline: str
    text: str


def verdict(e: Evaluation) -> tuple[Statement, ...]:
    """Accuracy, honesty and caution, in this order."""
    return _accuracy(e), _honesty(e), _caution(e)


def percent(x: float) -> str:
    """A fraction for readers.

    >>> percent(0.00543), percent(0.9031), percent(2e-9)
    ('0.54 %', '90.3 %', '2e-07 %')
    """
    if x == 0 or not np.isfinite(x):
        return f"{x:.0f} %"
    return f"{100 * x:.1f} %" if abs(x) >= 0.1 else f"{100 * x:.2g} %"


def _graded(value: float, good: float, fair: float) -> Grade:
    return "good" if value <= good else "fair" if value <= fair else "poor"


def _accuracy(e: Evaluation) -> Statement:
    error, fair = e.scores["mrle"], e.scores.get("mrle_fair")
    clean = e.facts["observed"] == "u_eta" or e.facts["noise"] == "none"
    what = "the clean solution" if clean else "the test outputs"
    best = fair if fair is not None and clean else error
    text = f"Relative L2 error over {e.facts['inputs']} test inputs: {_with_error(error)}, "
    text += f"from {percent(error.each.min())} to {percent(error.each.max())}."
    if fair is not None and clean and fair.value < 0.95 * error.value:
        text += f" Part of it is chance, as the mean is that of {e.facts['members']} members; without, {percent(fair.value)}."
    if not clean:
        text += " The data have no clean outputs, so noise in the test outputs counts as error."
    grade: Grade = _graded(best.value, 0.05, 0.2)
    ignoring = e.scores.get("mrle_ignoring_a")
    if ignoring is not None:
        text += f" The average training output, which ignores the input, is off by {percent(ignoring.value)}."
        grade = _graded(best.value / max(ignoring.value, 1e-300), 0.1, 0.5)
        if not clean:
            grade = _graded(e.scores["crps"].value / max(e.scores["crps_ignoring_a"].value, 1e-300), 0.5, 0.9)
    return Statement("How accurate?", grade, f"The mean is {percent(best.value)} off {what}.", text)


def _honesty(e: Evaluation) -> Statement:
    if e.facts["deterministic"]:
        return _no_error_bars(e)
    measured = e.scores["coverage_90"]
    departure = abs(measured.value - LEVEL)
    grade: Grade = _graded(departure, SMALL, LARGE)
    points, told = e.diagnoses["points"], f"90 % intervals hold {_with_error(measured)} of observations"
    headline = {
        "good": f"The error bars are honest: {told}.",
        "fair": f"The error bars are roughly right: {told}.",
        "poor": f"The error bars are not honest: {told}.",
    }[grade]
    wholes = [WHOLES[name, finding] for name, d in e.diagnoses.items() for finding in d.findings if (name, finding) in WHOLES]
    if wholes and grade == "good":
        grade, headline = "fair", f"Point by point the error bars are honest ({told}), but not for whole fields."
    text = _tested(points)
    if wholes:
        text += f" Taken as whole fields, {'; '.join(wholes)}."
    if grade != "good" and "coverage_90_repaired" in e.scores:
        repaired = e.scores["coverage_90_repaired"]
        text += f" Intervals repaired with {e.facts['held']} held-out pairs hold {_with_error(repaired)}; "
        text += "`pdno predict` writes them."
    return Statement("Are the error bars honest?", grade, headline, text)


def _tested(d: Diagnosis) -> str:
    """What the test of ranks says."""
    if not d.judged:
        return f"{d.samples} test inputs are too few to test that."
    rate = f"{d.samples} fields, false-alarm rate {percent(d.alarm)}"
    if not d.findings:
        return f"No bias, wrong width or wrong shape can be detected ({rate})."
    return f"Detected: members are {', '.join(d.findings)} ({rate})."


def _no_error_bars(e: Evaluation) -> Statement:
    text = "Its members are all the same."
    if "coverage_90_repaired" in e.scores:
        repaired, width = e.scores["coverage_90_repaired"], e.scores["width_90_repaired"]
        text += f" 90 % intervals from the errors of {e.facts['held']} held-out pairs are {width.value:.3g} wide"
        text += f" and hold {_with_error(repaired)} of observations; `pdno predict` writes them."
    return Statement("Are the error bars honest?", "unknown", "This model has no error bars of its own.", text)


def _caution(e: Evaluation) -> Statement:
    found = []
    region = None if e.trust is None else _weakest(e.trust)
    if region is not None:
        found.append(region)
    worst = next(case for case in e.cases if case.title == "worst")
    largest = e.scores["mrle"].each.max()
    if largest > 3 * e.scores["mrle"].value:
        found.append(f"The error of test input {worst.number} is {percent(largest)}, far above the average.")
    if e.facts["inputs"] < FEW:
        found.append(f"Only {e.facts['inputs']} test inputs were judged; take these numbers as rough.")
    count = 0 if e.novelty is None else int((e.novelty > 1).sum())
    odd = count > max(1, 3 * (e.facts["alarm"] or 0) * e.facts["inputs"])
    if odd:
        found.append(
            f"{count} of {e.facts['inputs']} test inputs are unlike the training inputs; their error bars may be wrong."
        )
    headline = found[0] if found else "No weak place was found among the test inputs."
    rest = found[1:]
    if e.facts["alarm"] is not None:
        rest.append(
            "Inputs of another kind than those learned from are beyond any test made here: `pdno predict` flags them as "
            f"unfamiliar (and at most {percent(e.facts['alarm'])} of inputs of the same kind by mistake)."
        )
    return Statement("Where not to trust it?", "fair" if found else "good", headline, " ".join(rest))


def _weakest(trust: Array) -> str | None:
    """The part of the domain whose intervals hold least, if that is much less than they should."""
    grid = trust.mean(axis=0)  # over channels
    for axis, n in enumerate(grid.shape):
        parts = np.array_split(np.arange(n), min(BLOCKS, n))
        grid = np.stack([grid.take(part, axis=axis).mean(axis=axis) for part in parts], axis=axis)
    place = np.unravel_index(int(grid.argmin()), grid.shape)
    if grid[place] > LEVEL - LARGE:
        return None
    names = ("first", "second", "third")
    where = " and ".join(
        f"{percent(k / n)} to {percent((k + 1) / n)} of the {names[axis]} axis"
        if len(place) > 1
        else f"{percent(k / n)} to {percent((k + 1) / n)} of the axis"
        for axis, (k, n) in enumerate(zip(place, grid.shape, strict=True))
    )
    return f"90 % intervals hold least, {percent(float(grid[place]))}, at {where}."


def _with_error(score: Score) -> str:
    """A value and its Monte-Carlo error."""
    return percent(score.value) if not np.isfinite(score.error) else f"{percent(score.value)} ± {percent(score.error)}"
