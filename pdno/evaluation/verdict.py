"""Summary of an evaluation in words: accuracy, calibration, noise and limitations of the model.

    accuracy       good if the error is below 10 % of that of the unconditional mean, fair below 50 %
    calibration    good unless the coverage of 90 % intervals is significantly below 87 % or above 93 %, fair unless
                   significantly below 82 % or above 98 %; at best fair if whole fields are miscalibrated
    noise          poor if members lack correlation that held-out errors have, or intervals of the mean, the maximum or the
                   roughness of fields cover significantly less than 82 %; fair below 87 %
    limitations    regions and ranges of predictions with low coverage; out-of-distribution inputs

"Significantly" has a false-positive rate of 1 % for each comparison: intervals of coverages are those of
`pdno.evaluation.proportion`, other numbers have errors with quantiles of Student's t, both over independent test inputs (groups
count as one). With several channels, each is judged by itself, at a rate of 1 % for all of them together, and each statement is
that of the worst channel. Values that agree to rounding are exact, and not judged.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

from .calibration import Diagnosis
from .ensemble import ROUNDING
from .noise import MIN_EXPLAINED, within
from .ranks import FUNCTIONALS
from .score import Score
from .scoring import ALPHA, LEVEL, Evaluation
from .structure import Source

__all__ = ["Statement", "percent", "rounded", "verdict"]

Grade = Literal["good", "fair", "poor", "unknown"]
GRADES = ("good", "unknown", "fair", "poor")  # from the best to the worst

ACCURACY = "Accuracy"
CALIBRATION = "Calibration"
NOISE = "Noise"
LIMITATIONS = "Limitations"

GOOD_DEVIATION = 0.03  # of the coverage of 90 % intervals from its nominal level
FAIR_DEVIATION = 0.08  # likewise
LOW_DECILE = 0.6  # of the coverage of single inputs, below which it is reported as a defect
STRONG_COMPONENT = 0.15  # smallest component of ranks of whole fields that is reported, however significant
LOST_CORRELATION = 0.15  # smallest difference between correlations of errors and of members that is reported
LOST_WIDTH = 0.7  # largest ratio of the stds of the field's average, of members and of errors, that is reported
SMALL_GROWTH = 0.2  # exponents of growth below this are not reported
MIN_INPUTS = 5  # test inputs below which noise is not described
FEW_INPUTS = 20  # test inputs below which scores are called imprecise
OUTLIER = 5  # largest error / mean error that is reported

FINDING_WORDS = {"skewed": "of the wrong skewness", "wrong shape": "of the wrong shape"}
WHOLE_FIELD_WORDS = {
    ("field means", "too narrow"): "errors that all points share are larger than the spread of the members",
    ("field means", "too wide"): "errors that all points share are smaller than the spread of the members",
    ("field means", "biased high"): "the means of members are too high",
    ("field means", "biased low"): "the means of members are too low",
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
    """Return statements about accuracy, calibration, noise and limitations, in this order."""
    if not e.channels:
        return _accuracy(e), _calibration(e), _noise(e), _limitations(e)
    by_channel = {name: verdict(each) for name, each in e.channels.items()}
    return tuple(_worst({name: parts[i] for name, parts in by_channel.items()}) for i in range(4))


def _worst(channels: dict[str, Statement]) -> Statement:
    """Return the statement of the worst channel, with its name and the grades of the others."""
    name = max(channels, key=lambda channel: GRADES.index(channels[channel].grade))
    worst = channels[name]
    if all(other == worst for other in channels.values()):
        return worst
    others = ", ".join(f"{other} {each.grade}" for other, each in channels.items() if other != name)
    return Statement(worst.about, worst.grade, f"{name}: {worst.headline}", f"{worst.text} Other channels: {others}.".strip())


def _significant(e: Evaluation) -> float:
    """Return the number of standard errors that is exceeded with probability ALPHA, in both directions."""
    return float(student.isf(ALPHA / 2, max(1, e.metadata["independent"] - 1)))


def _inputs(e: Evaluation, count: int) -> str:
    """Return a number of test inputs as text, and that of their groups."""
    groups = e.metadata["independent"]
    return f"{count} test inputs" + (f" in {groups} groups" if groups < e.metadata["inputs"] else "")


# Numbers for readers


def rounded(value: float, error: float | None = None) -> tuple[str, str]:
    """Return a number and its error as text, both to the second digit of the error.

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
    """Return a fraction as text.

    >>> percent(0.00543), percent(0.9031), percent(2e-9), percent(0.0598, 0.00097)
    ('0.54 %', '90.3 %', '2e-07 %', '5.980 ± 0.097 %')
    """
    if error is not None and np.isfinite(error) and error > 0:
        return "{} ± {} %".format(*rounded(100 * x, 100 * error))
    if x == 0 or not np.isfinite(x):
        return f"{x:.0f} %"
    return f"{100 * x:.1f} %" if abs(x) >= 0.1 else f"{100 * x:.2g} %"


def _percent(score: Score) -> str:
    return percent(score.value, score.error)


def _graded(value: float, good: float, fair: float) -> Grade:
    return "good" if value <= good else "fair" if value <= fair else "poor"


# Accuracy


def _accuracy(e: Evaluation) -> Statement:
    if "mrle" not in e.scores:
        text = "All test outputs are zero, so the relative error is undefined."
        return Statement(ACCURACY, "unknown", f"The root mean square error of the mean is {e.scores['rmse'].value:.3g}.", text)
    error, debiased = e.scores["mrle"], e.scores.get("mrle_debiased")
    clean = e.metadata["observed"] == "u_eta" or e.metadata["noise"] == "none"
    each = error.each[np.isfinite(error.each)]
    text = f"Relative L2 error over {_inputs(e, len(each))}: {_percent(error)}, range {percent(each.min())} to "
    text += f"{percent(each.max())}."
    if debiased is not None and clean and debiased.value < 0.95 * error.value:
        text += f" Part of it is the sampling error of a mean over {e.metadata['members']} members; with many more members, "
        text += f"the error would be about {percent(debiased.value)}." if debiased.value > 0 else "the error would be near 0."
    if not clean:
        text += " The noise level is unknown; noise in the test outputs counts as error here."
        if e.metadata["relative_spread"] is not None:
            text += f" The spread of the members is {percent(e.metadata['relative_spread'])} of the outputs."
    grade, unconditional = _graded(error.value, 0.05, 0.2), e.scores.get("mrle_unconditional")
    reference = "clean solution" if clean else "test outputs"
    if error.value <= ROUNDING:
        return Statement(ACCURACY, "good", f"The mean is equal to the {reference}, up to rounding.", "")
    headline = f"The mean differs from the {reference} by {percent(error.value)}."
    if unconditional is not None:
        best = error.value if debiased is None or not clean else debiased.value  # attained with more members
        grade = _graded(best / max(unconditional.value, 1e-300), 0.1, 0.5)
        if not clean:
            grade = _graded(e.scores["crps"].value / max(e.scores["crps_unconditional"].value, 1e-300), 0.5, 0.9)
        text += f" The error of the unconditional mean (average training output) is {percent(unconditional.value)}."
        if error.value > unconditional.value:
            grade = "poor"
            headline = f"{headline[:-1]}, more than the unconditional mean ({percent(unconditional.value)})."
    return Statement(ACCURACY, grade, headline, text)


# Calibration


def _calibration(e: Evaluation) -> Statement:
    if e.metadata["deterministic"]:
        return _deterministic(e)
    if "coverage_90" not in e.scores:
        text = "Members and observations are equal, up to rounding."
        return Statement(CALIBRATION, "good", "All predictions are exact, so there is no spread to assess.", text)
    measured = e.scores["coverage_90"]
    coverage = f"90 % intervals cover {_percent(measured)} of observations"
    direction = "wide" if measured.value > LEVEL else "narrow"
    if not e.diagnoses["points"].enough_samples:
        count, what = e.metadata["independent"], "group" if e.metadata["independent"] < e.metadata["inputs"] else "test input"
        few = f"{count} {what}{'s are' if count > 1 else ' is'} too few"
        text = f"Use at least {FEW_INPUTS} test inputs.{_conformal(e)}"
        return Statement(CALIBRATION, "unknown", f"{few} to assess calibration: {coverage}.", text)
    grade = _graded(_excess(*e.bounds["coverage_90"]), GOOD_DEVIATION, FAIR_DEVIATION)
    headline = {
        "good": f"The intervals are calibrated on average: {coverage}.",
        "fair": f"The intervals are somewhat too {direction}: {coverage}.",
        "poor": f"The intervals are too {direction}: {coverage}.",
    }[grade]
    off = grade != "good"
    if _unequal(e) and grade == "good":
        grade, headline = "fair", f"The intervals are calibrated on average ({coverage}), but not for every input."
    wholes = [
        WHOLE_FIELD_WORDS[name, finding]
        for name, d in e.diagnoses.items()
        for finding in d.findings
        if (name, finding) in WHOLE_FIELD_WORDS and abs(d.orders[0 if "biased" in finding else 1].mean) > STRONG_COMPONENT
    ]
    if wholes and grade == "good":
        grade, headline = "fair", f"The intervals are calibrated at points ({coverage}), but not for whole fields."
    text = _tested(e.diagnoses["points"], direction if off else "") + _by_input(e)
    if wholes:
        text += f" For whole fields, {'; '.join(wholes)}."
    if grade != "good":
        text += _conformal(e)
    return Statement(CALIBRATION, grade, headline, text)


def _excess(low: float, high: float) -> float:
    """Return the distance of the nominal level from an interval."""
    return max(0.0, LEVEL - high, low - LEVEL)


def _by_input(e: Evaluation) -> str:
    """Describe the coverage of single inputs."""
    if "coverage_90_worst" not in e.scores:
        return ""
    low, members, *others = (
        e.scores[f"coverage_90_{name}"] for name in ("lowest_decile", "lowest_decile_members", "median", "worst")
    )
    return (
        f" Coverage of single inputs: median {percent(others[0].value)}, lowest decile {percent(low.value)} (of members of the "
        f"model: {percent(members.value)}), worst {percent(others[1].value)}."
    )


def _unequal(e: Evaluation) -> bool:
    """Return whether the lowest decile of the coverage of single inputs is lower than the model's own members have it."""
    low, members = (e.scores.get(f"coverage_90_lowest_decile{name}") for name in ("", "_members"))
    if low is None or members is None:
        return False
    count = len(members.each)  # sets of members, whose deciles vary by chance as that of the observations does
    chance = (
        float(student.isf(ALPHA, max(1, count - 1)) * members.each.std(ddof=1) * np.sqrt(1 + 1 / count)) if count > 1 else 1
    )
    return low.value < LOW_DECILE and members.value - low.value > max(FAIR_DEVIATION, chance, _significant(e) * low.error)


def _tested(d: Diagnosis, width: str) -> str:
    """Describe the result of the test of ranks, so that it agrees with the headline about the width of intervals.

    Args:
        d: the result.
        width: "wide" or "narrow" as in the headline; "" if that calls the intervals calibrated on average.
    """
    rate = f"{d.samples} independent fields, false-positive rate {percent(ALPHA)}"
    if not d.findings:
        return f"No bias{'' if width else ', wrong width'} or wrong shape was detected by the calibration test ({rate})."
    findings = ", ".join(FINDING_WORDS.get(finding, finding) for finding in d.findings)
    widths = {finding for finding in d.findings if finding in ("too wide", "too narrow")}
    levels = " over all levels" if width and widths - {f"too {width}"} else ""
    effect = "; the effect on 90 % intervals is small" if widths and not width else ""
    return f"The calibration test detects that members are {findings}{levels} ({rate}){effect}."


def _conformal(e: Evaluation) -> str:
    """Describe the coverage of conformal intervals."""
    conformal = e.scores.get("coverage_90_conformal")
    if conformal is None:
        return ""
    if conformal.value < LEVEL - FAIR_DEVIATION:
        return f" Even conformal intervals cover only {_percent(conformal)} here: check for distribution shift."
    pairs = e.metadata["calibration_pairs"]
    return f" Conformal intervals from {pairs} calibration pairs cover {_percent(conformal)}; `pdno predict` computes them."


def _deterministic(e: Evaluation) -> Statement:
    text = "Its ensemble has a single member."
    if "coverage_90_conformal" in e.scores:
        text += f" Conformal 90 % intervals have the mean width {e.scores['width_90_conformal'].value:.3g}." + _conformal(e)
    return Statement(CALIBRATION, "unknown", "This model is deterministic and predicts no intervals.", text)


# Noise


def _noise(e: Evaluation) -> Statement:
    if e.noise is None:
        return Statement(NOISE, "unknown", "The predictions have no error, so there is no noise to describe.", "")
    sources = e.noise.sources
    if e.metadata["independent"] < MIN_INPUTS or "residuals" not in sources:
        return Statement(NOISE, "unknown", f"{_inputs(e, e.metadata['inputs'])} are too few to describe the noise.", "")
    errors, members = sources["residuals"], sources.get("members")
    headline = f"Held-out errors are {errors.statistics.word or 'single numbers'}."
    text = [_described(errors, _significant(e))]
    if "truth" in sources and (word := sources["truth"].statistics.word):
        text.append(f"The true noise is {word}.")
    if members is None:
        return Statement(NOISE, "unknown", headline, " ".join(filter(None, text)))
    near = [s.scores.get("neighbour_correlation") for s in (errors, members)]
    if near[0] is not None and near[1] is not None:
        headline = (
            f"{headline[:-1]}; neighbouring nodes correlate by {within(near[0])} in errors, {within(near[1])} in members."
        )
    grade, worst, covered = _joint(e)
    significant = _significant(e)
    warning = _lost(errors, members, significant) or worst
    modes = _modes(errors, members)
    if warning:
        text.insert(0, headline)
    lost = warning != worst
    grade = "poor" if lost else "fair" if modes and grade == "good" else grade
    return Statement(NOISE, grade, warning or headline, " ".join(filter(None, [*text, modes, covered])))


def _modes(errors: Source, members: Source) -> str:
    """Compare the numbers of modes of errors and of members; "" if members have as many."""
    words = []
    for key, place in (("average_modes", "the field's average has"), ("point_modes", "the place of the largest errors has")):
        counts = [s.scores[key].value for s in (errors, members) if key in s.scores]
        if len(counts) == 2 and counts[1] < counts[0]:
            words.append(f"{place} {counts[0]:.0f} modes in errors, {counts[1]:.0f} in members")
    return f"Members have fewer modes: {'; '.join(words)}." if words else ""


def _lost(errors: Source, members: Source, significant: float) -> str:
    """Return a warning if members lack the correlation of errors, by so many standard errors; "" if they do not."""
    parts = []
    near = [s.scores.get("neighbour_correlation") for s in (errors, members)]
    if near[0] is not None and near[1] is not None:
        slack = significant * np.hypot(near[0].error, near[1].error)
        if near[0].value - near[1].value > max(LOST_CORRELATION, slack):
            parts.append(f"neighbouring nodes correlate by {within(near[0])} in errors, but by {within(near[1])} in members")
    wide, narrow = (s.scores["average_std"] for s in (errors, members))
    slack = significant * np.hypot(wide.error, LOST_WIDTH * narrow.error)
    if narrow.value < LOST_WIDTH * wide.value and LOST_WIDTH * wide.value - narrow.value > LOST_WIDTH * slack:
        parts.append(
            f"the field's average has a standard deviation of {within(wide)} in errors, but of {within(narrow)} in members "
            "(in units of the errors at a point)"
        )
    return f"Members lack correlation that errors have: {', and '.join(parts)}." if parts else ""


def _described(source: Source, significant: float) -> str:
    """Describe modes and dependence of errors, where they are remarkable."""
    words, scores = [], source.scores
    if "average_modes" in scores and scores["average_modes"].value > 1:
        words.append(f"Their average over the field has {scores['average_modes'].value:.0f} modes.")
    b, explained = scores.get("growth"), scores.get("input_dependence")
    if b is not None and abs(b.value) > max(SMALL_GROWTH, significant * b.error):
        words.append(f"Their standard deviation varies as |mean| to the power of {within(b)}.")
    if explained is not None and source.p_value is not None and source.p_value <= ALPHA and explained.value > MIN_EXPLAINED:
        words.append(f"The input explains {_percent(explained)} of the variance of their log size.")
    return " ".join(words)


def _joint(e: Evaluation) -> tuple[Grade, str, str]:
    """Return grade, warning ("" if good) and description of the coverage of intervals of functionals of the field."""
    excess, covered = {}, []
    for name in (name for name in FUNCTIONALS if f"coverage_90_{name}" in e.scores):
        excess[name] = max(0.0, LEVEL - e.bounds[f"coverage_90_{name}"][1])
        covered.append(f"{_percent(e.scores[f'coverage_90_{name}'])} for the {name}")
    if not excess:
        return "good", "", ""
    worst = max(excess, key=lambda name: excess[name])
    grade = _graded(excess[worst], GOOD_DEVIATION, FAIR_DEVIATION)
    listed = " and ".join(filter(None, [", ".join(covered[:-1]), covered[-1]]))
    text = f"90 % intervals of functionals of the field cover {listed}."
    warning = f"90 % intervals of the field's {worst} cover only {_percent(e.scores[f'coverage_90_{worst}'])}."
    return grade, "" if grade == "good" else warning, text


# Limitations


def _limitations(e: Evaluation) -> Statement:
    inputs, alpha, findings = e.metadata["inputs"], e.metadata["novelty_alpha"], []
    count = 0 if e.novelty is None else int((e.novelty > 1).sum())
    shifted = count > max(2, 3 * (alpha or 0) * inputs) and (e.metadata["novelty_p"] or 0) <= ALPHA
    if shifted:
        findings.append(f"{count} of {inputs} test inputs are flagged as out of distribution; their intervals are unreliable.")
    regions = [f"{percent(r.coverage, r.error)} {r.description}" for r in e.low_coverage]
    findings += [f"The lowest coverage of 90 % intervals is {', and '.join(regions)}."] if regions else []
    if "mrle" in e.scores:
        each = np.nan_to_num(e.scores["mrle"].each)
        if each.max() > OUTLIER * e.scores["mrle"].value:
            findings.append(f"The error of test input {each.argmax()} is {percent(each.max())}, far above the average.")
    if (independent := e.metadata["independent"]) < FEW_INPUTS:
        what = f"{'group' if independent < inputs else 'test input'}{'s' * (independent > 1)}"
        findings.append(f"There {'are' if independent > 1 else 'is'} only {independent} {what}: scores are imprecise.")
    if known := e.metadata.get("trained_on"):
        findings.insert(0, f"The model was trained or validated on {known} of the {inputs} test inputs: scores are optimistic.")
    headline, rest = (findings[0], findings[1:]) if findings else ("No region of low coverage was found.", [])
    if alpha is not None and not shifted:
        rest.append(
            "These scores do not apply to inputs from another distribution; `pdno predict` flags inputs that appear to be out "
            f"of distribution, with a false-positive rate of about {percent(alpha)}."
        )
    return Statement(LIMITATIONS, "poor" if shifted else "fair" if findings else "good", headline, " ".join(rest))
