"""The verdict in plain words: how accurate is the model, are its error bars honest, and where should it not be trusted?

    accuracy      good if the error is below a tenth of that of ignoring the input, fair below a half
    honesty       good unless 90 % intervals demonstrably hold less than 87 or more than 93 % of observations, fair unless less
                  than 82 or more than 98 %; fair at best if whole fields are wrong
    caution       the part of the domain, and the range of predictions, where intervals hold least; inputs that stand out

"Demonstrably" is by 2.6 standard errors over the test inputs.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .calibration import Diagnosis
from .metrics import Score
from .scoring import ALARM, LEVEL, Evaluation

__all__ = ["Statement", "percent", "rounded", "verdict"]

Grade = Literal["good", "fair", "poor", "unknown"]
SMALL, LARGE = 0.03, 0.08  # departures of the coverage of 90 % intervals: what is honest, and what is not
SURE = 2.6  # standard errors: one in a hundred by chance
STRONG = 0.15  # of a component of ranks: what counts for whole fields, however many of them show less
FEW = 20  # test inputs

ABOUT = "Are the error bars honest?"
WORDS = {"skewed": "skewed the wrong way", "wrong shape": "of the wrong shape"}
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


# Numbers for readers


def rounded(value: float, error: float | None = None) -> tuple[str, str]:
    """A number and its error, both to the second digit of the error.

    >>> rounded(0.059812, 0.00097), rounded(1234.5, 2.0), rounded(0.5, None)
    (('0.05981', '0.00097'), ('1234.5', '2.0'), ('0.5', '–'))
    """
    if error is None or not np.isfinite(error) or error <= 0 or not np.isfinite(value):
        return f"{value:.3g}", "–"
    digits = 1 - int(np.floor(np.log10(error)))
    if not 0 <= digits <= 7:
        return f"{value:.3g}", f"{error:.2g}"
    return f"{value:.{digits}f}", f"{error:.{digits}f}"


def percent(x: float, error: float | None = None) -> str:
    """A fraction for readers.

    >>> percent(0.00543), percent(0.9031), percent(2e-9), percent(0.0598, 0.00097)
    ('0.54 %', '90.3 %', '2e-07 %', '5.980 ± 0.097 %')
    """
    if error is not None and np.isfinite(error) and error > 0:
        return "{} ± {} %".format(*rounded(100 * x, 100 * error))
    if x == 0 or not np.isfinite(x):
        return f"{x:.0f} %"
    return f"{100 * x:.1f} %" if abs(x) >= 0.1 else f"{100 * x:.2g} %"


def _of(score: Score) -> str:
    return percent(score.value, score.error)


def _graded(value: float, good: float, fair: float) -> Grade:
    return "good" if value <= good else "fair" if value <= fair else "poor"


# How accurate?


def _accuracy(e: Evaluation) -> Statement:
    about = "How accurate?"
    if "mrle" not in e.scores:
        text = "All test outputs are zero, so that there is no relative error."
        return Statement(about, "unknown", f"The mean is off by {e.scores['rmse'].value:.3g} (root mean square).", text)
    error, fair = e.scores["mrle"], e.scores.get("mrle_fair")
    clean = e.facts["observed"] == "u_eta" or e.facts["noise"] == "none"
    each = error.each[np.isfinite(error.each)]
    text = f"Relative L2 error over {len(each)} test inputs: {_of(error)}, from {percent(each.min())} to {percent(each.max())}."
    if fair is not None and clean and fair.value < 0.95 * error.value:
        text += f" Part of it is chance, as the mean is that of {e.facts['members']} members: of many more, it would be "
        text += f"about {percent(fair.value)} off." if fair.value > 0 else "as good as exact."
    if not clean:
        text += " Whether these outputs carry noise was not told; if they do, it counts as error here."
        if "mrle_spread" in e.facts:
            text += f" The members differ from their mean by {percent(e.facts['mrle_spread'])}."
    grade, ignoring = _graded(error.value, 0.05, 0.2), e.scores.get("mrle_ignoring_a")
    headline = f"The mean is {percent(error.value)} off {'the clean solution' if clean else 'the test outputs'}."
    if ignoring is not None:
        best = error.value if fair is None or not clean else fair.value  # more members are to be had
        grade = _graded(best / max(ignoring.value, 1e-300), 0.1, 0.5)
        if not clean:
            grade = _graded(e.scores["crps"].value / max(e.scores["crps_ignoring_a"].value, 1e-300), 0.5, 0.9)
        text += f" The average training output, which ignores the input, is off by {percent(ignoring.value)}."
        if error.value > ignoring.value:
            grade, headline = "poor", f"{headline[:-1]}, worse than ignoring the input ({percent(ignoring.value)})."
    return Statement(about, grade, headline, text)


# Are the error bars honest?


def _honesty(e: Evaluation) -> Statement:
    if e.facts["deterministic"]:
        return _no_error_bars(e)
    measured = e.scores["coverage_90"]
    told, direction = f"90 % intervals hold {_of(measured)} of observations", "wide" if measured.value > LEVEL else "narrow"
    if not e.diagnoses["points"].judged:
        few = f"{e.facts['inputs']} test input{'s' * (e.facts['inputs'] > 1)}"
        return Statement(ABOUT, "unknown", f"{few} cannot tell: {told}.", f"At least {FEW} should be judged by.{_repaired(e)}")
    sure = SURE * measured.error if np.isfinite(measured.error) else 0.0
    grade = _graded(max(0.0, abs(measured.value - LEVEL) - sure), SMALL, LARGE)
    headline = {
        "good": f"The error bars are honest on average: {told}.",
        "fair": f"The error bars are somewhat too {direction}: {told}.",
        "poor": f"The error bars are too {direction}: {told}.",
    }[grade]
    wholes = [
        WHOLES[name, finding]
        for name, d in e.diagnoses.items()
        for finding in d.findings
        if (name, finding) in WHOLES and abs(d.orders[0 if "biased" in finding else 1].mean) > STRONG
    ]
    if wholes and grade == "good":
        grade, headline = "fair", f"Point by point the error bars are honest ({told}), but not for whole fields."
    text = _tested(e.diagnoses["points"])
    if wholes:
        text += f" Taken as whole fields, {'; '.join(wholes)}."
    if grade != "good":
        text += _repaired(e)
    return Statement(ABOUT, grade, headline, text)


def _tested(d: Diagnosis) -> str:
    """What the test of ranks says."""
    rate = f"{d.samples} fields, false-alarm rate {percent(ALARM)}"
    if not d.findings:
        return f"No bias, wrong width or wrong shape can be detected ({rate})."
    return f"Detected: members are {', '.join(WORDS.get(finding, finding) for finding in d.findings)} ({rate})."


def _repaired(e: Evaluation) -> str:
    repaired = e.scores.get("coverage_90_repaired")
    if repaired is None:
        return ""
    if repaired.value < LEVEL - LARGE:
        return f" Here even intervals repaired with held-out pairs hold only {_of(repaired)}: these inputs are different."
    return f" Intervals repaired with {e.facts['held']} held-out pairs hold {_of(repaired)}; `pdno predict` writes them."


def _no_error_bars(e: Evaluation) -> Statement:
    text = "Its members are all the same."
    if "coverage_90_repaired" in e.scores:
        text += f" 90 % intervals from held-out errors are {e.scores['width_90_repaired'].value:.3g} wide." + _repaired(e)
    return Statement(ABOUT, "unknown", "This model has no error bars of its own.", text)


# Where not to trust it?


def _caution(e: Evaluation) -> Statement:
    inputs, found = e.facts["inputs"], []
    count = 0 if e.novelty is None else int((e.novelty > 1).sum())
    odd = count > max(2, 3 * (e.facts["alarm"] or 0) * inputs)
    if odd:
        found.append(f"{count} of {inputs} test inputs are unlike the training inputs; their error bars cannot be trusted.")
    shares = [f"{percent(place.share, place.error)} {place.words}" for place in e.weak]
    found += [f"90 % intervals hold least, {', and '.join(shares)}."] if shares else []
    if "mrle" in e.scores:
        each = np.nan_to_num(e.scores["mrle"].each)
        if each.max() > 5 * e.scores["mrle"].value:
            found.append(f"The error of test input {each.argmax()} is {percent(each.max())}, far above the average.")
    if inputs < FEW:
        found.append(f"Only {inputs} test input{'s were' if inputs > 1 else ' was'} judged; take these numbers as rough.")
    headline, rest = (found[0], found[1:]) if found else ("No weak place was found among the test inputs.", [])
    if e.facts["alarm"] is not None and not odd:
        rest.append(
            "Inputs of another kind than those learned from are beyond any test made here: `pdno predict` flags them as "
            f"unfamiliar (and about {percent(e.facts['alarm'])} of inputs of the same kind by mistake)."
        )
    return Statement("Where not to trust it?", "poor" if odd else "fair" if found else "good", headline, " ".join(rest))
