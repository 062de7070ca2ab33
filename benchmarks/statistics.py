"""Measure false positives and coverage of the evaluation, into results/statistics.json. Run by ``make statistics``.

The observations are draws of the predicted distribution, so that every finding is a false positive. With n independent test
pairs, or groups, the rates are measured for n = 5 … 100 and three kinds of data:

    independent     n pairs
    grouped         n groups of four pairs; 80 % of the variance of the errors is common to a group
    masked          n pairs; 30 % of the points of each are observed

The file is completed part by part; an interrupted run resumes. Errors of a field are smooth (a correlation length of a fifth
of the axis), which is between white errors and those of one fate.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import norm

import pdno
from benchmarks.known import Known
from benchmarks.measured import Key, Measured
from benchmarks.problem import Row
from pdno._typing import Floats, Ints, Mask
from pdno.data.split import one_of_each
from pdno.evaluation.averages import averages
from pdno.evaluation.calibration import diagnose
from pdno.evaluation.conformal import Conformal
from pdno.evaluation.low_coverage import low_coverage_range, low_coverage_region
from pdno.evaluation.novelty import Novelty
from pdno.evaluation.proportion import dependence, interval
from pdno.evaluation.scoring import evaluate
from pdno.evaluation.verdict import verdict
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "statistics.json"
COMMAND = "make statistics"
COUNTS = (5, 10, 20, 40, 100)  # independent pairs or groups
KINDS = ("independent", "grouped", "masked")
POINTS = 32
GROUP = 4  # pairs
COMMON = 0.8  # of the variance, in groups
OBSERVED = 0.3  # of the points, where masked
LENGTH = 0.2  # correlation length of errors
LEVEL = 0.9
REPEATS = 1000  # of tests of ranks, and of conformal calibrations
NOVELTY_REPEATS = 200
VERDICTS = 50  # whole evaluations
FITS = 40  # models
NEW = 20  # new pairs of each calibration

X = np.linspace(0, 1, POINTS)
ROOT = np.linalg.cholesky(np.exp(-(((X[:, None] - X) / LENGTH) ** 2) / 2) + 1e-9 * np.eye(POINTS))
Draws = tuple[Floats, Ints | None, Mask | None]  # fields (sample, 1, point), groups, mask
Values = dict[tuple[str, int], list[float]]  # by metric and n


def draw(kind: str, n: int, rng: np.random.Generator) -> Draws:
    """Return standard Gaussian smooth errors of n independent pairs or groups."""
    if kind == "grouped":
        labels = np.repeat(np.arange(n), GROUP)
        common, own = _smooth(n, rng)[labels], _smooth(n * GROUP, rng)
        return np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own, labels, None
    mask = rng.random((n, 1, POINTS)) < OBSERVED if kind == "masked" else None
    if mask is not None:
        mask[:, 0, 0] = True  # every field has a point
    return _smooth(n, rng), None, mask


def _smooth(count: int, rng: np.random.Generator) -> Floats:
    return np.asarray((rng.standard_normal((count, POINTS)) @ ROOT.T)[:, None])


def ranks(repeats: int, kind: str) -> Values:
    """Test ranks of calibrated predictions: the calibration test, the interval of the coverage, regions and ranges."""
    found: Values = {}
    for n, rng in _cases(repeats, 1, kind):
        z, groups, mask = draw(kind, n, rng)
        pit = np.where(True if mask is None else mask, norm.cdf(z), np.nan)
        inside, seen = np.abs(pit - 0.5) <= LEVEL / 2, np.isfinite(pit)
        low, high = interval(averages(inside, seen, None, groups), 0.99, dependence(pit, groups))
        region = low_coverage_region(inside, {"x": X}, LEVEL, seen, groups=groups)
        predicted = _smooth(len(z), rng)
        ranges = low_coverage_range(inside, predicted, LEVEL, "the prediction is", seen, groups=groups)
        values = {
            "diagnose": not diagnose(pit, groups=groups, alpha=0.01).passed,
            "coverage": low > 0.93 or high < 0.87,
            "region": region is not None,
            "range": ranges is not None,
        }
        _add(found, n, values)
    return found


def novelty(repeats: int, kind: str) -> Values:
    """Score inputs from the training distribution, of n trajectories with six frames that are alike, or of n pairs."""
    found: Values = {}
    for n, rng in _cases(repeats, 2, kind):
        training, labels, _ = draw(kind, 60, rng)
        score = Novelty.halves(training, group=labels)
        new, groups, _ = draw(kind, n, rng)
        if score is not None:
            flagged = averages(score.flag(new)[:, None].astype(float), np.ones((len(new), 1), bool), None, groups)
            many = flagged.sum() > max(2.0, 3 * score.alpha * n) and score.excess(int((flagged > 0.5).sum()), n) <= 0.01
            _add(found, n, {"novelty": float(flagged.mean()), "novelty_many": many})
    return found


def conformal(repeats: int, kind: str) -> Values:
    """Calibrate deterministic predictions on n independent pairs or groups; coverage at points and of observed fields."""
    found: Values = {}
    for n, rng in _cases(repeats, 3, kind):
        if n < 10:  # at least 9 pairs are needed
            continue
        z, groups, mask = draw(kind, n, rng)
        rows = one_of_each(groups, len(z), seed=int(rng.integers(2**31)))
        new, _, unseen = draw("masked" if kind == "masked" else "independent", NEW, rng)
        zero, one = np.zeros_like(z[rows]), np.ones_like(z[rows])
        u, seen = np.abs(z[rows]), None if mask is None else mask[rows]
        if mask is None or mask.sum(axis=0).min() >= 9:
            points = Conformal.of(-one, zero, one, u, LEVEL, mask=seen)
            _add(found, n, {"conformal": (np.abs(new) <= points.apply(-one[:1], zero[:1], one[:1])[1]).mean()})
        band = Conformal.of(-one, zero, one, u, LEVEL, share=1.0, mask=seen)
        inside = np.abs(new) <= band.apply(-one[:1], zero[:1], one[:1])[1]
        _add(found, n, {"band": (inside | (False if unseen is None else ~unseen)).all(axis=(1, 2)).mean()})
    return found


def verdicts(repeats: int, kind: str) -> Values:
    """Evaluate perfect models; count verdicts that find a defect."""
    found: Values = {}
    for n, rng in _cases(repeats, 4, kind):
        train = 3 * _smooth(60, rng)
        z, groups, mask = draw(kind, n, rng)
        a = 3 * (_smooth(len(z), rng) if groups is None else _smooth(n, rng)[groups] + 0.1 * _smooth(len(z), rng))
        test = pdno.Pairs.of(a, a, u_eta=a + z, group=groups, mask=mask)
        data = pdno.Dataset(pdno.Pairs.of(train, train + _smooth(60, rng)), test, {"name": "known"})
        e = evaluate(
            Known(data.train, lambda members, shape, rng: _smooth(members, rng), Novelty.halves(data.train.a)),
            data,
            members=40,
            seed=int(rng.integers(2**31)),
            calibrate=0,
            progress=False,
        )
        _, calibration, noise, limitations = verdict(e)
        values = {
            "verdict_calibration": calibration.grade in ("fair", "poor"),
            "verdict_noise": noise.grade in ("fair", "poor"),
            "verdict_limitations": bool(e.low_coverage) or limitations.grade == "poor",
        }
        _add(found, n, values)
    return found


def fitted(repeats: int, kind: str) -> Values:
    """Fit a model; conformal intervals from its n validation pairs, which have also chosen the scale of its residuals."""
    found: Values = {}
    for n, rng in _cases(repeats, 5, kind, (20, 40, 100)):
        sets = []
        for count in (200, n, 200):
            a = _smooth(count, rng)
            sets.append(pdno.Pairs.of(a, np.cumsum(a, axis=-1) / 8 + 0.3 * _smooth(count, rng)))
        model = pdno.PDNO(mean="linear", law="gaussian")
        model.learn(sets[0], sets[1], seed=0, progress=False)
        data = pdno.Dataset(sets[0], sets[2], {"name": "linear"}, None, sets[1])
        e = evaluate(model, data, members=40, progress=False)
        _add(found, n, {"conformal_fitted": e.scores["coverage_90_conformal"].value})
    return found


def _cases(repeats: int, seed: int, kind: str, counts: tuple[int, ...] = ()) -> Iterator[tuple[int, np.random.Generator]]:
    """Yield n and a random generator for each repetition."""
    for n in counts or COUNTS:
        for repeat in range(repeats):
            yield n, np.random.default_rng((seed, KINDS.index(kind), n, repeat))


def _add(found: Values, n: int, values: Mapping[str, float]) -> None:
    for metric, value in values.items():
        found.setdefault((metric, n), []).append(float(value))


def rows_of(found: Values, key: Key) -> list[Row]:
    """Return rows with means, standard errors, and numbers of repetitions; `train` is n."""
    rows = []
    for (metric, n), values in found.items():
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        common = {**key, "grid": str(POINTS), "train": n, "evaluations": len(values), "seed": 0, "command": COMMAND}
        rows.append(results.row(metric, float(np.mean(values)), error=error, **common))
    return rows


PARTS: dict[str, tuple[Callable[[int, str], Values], int, tuple[str, ...]]] = {  # function, repetitions, kinds of data
    "ranks": (ranks, REPEATS, KINDS),
    "novelty": (novelty, NOVELTY_REPEATS, ("independent", "grouped")),
    "conformal": (conformal, REPEATS, KINDS),
    "fitted": (fitted, FITS, ("independent",)),
    "verdicts": (verdicts, VERDICTS, KINDS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="measure again what the file has")
    options = parser.parse_args()
    measured = Measured(options.out)
    for name in options.only:
        part, repeats, kinds = PARTS[name]
        for kind in kinds:
            key = {"test": kind, "method": name}
            if options.again or not measured.has(key, repeats):
                rows = rows_of(part(repeats, kind), key)
                measured.add(key, rows, budget=repeats)
                for row in rows:
                    print(
                        f"{row['metric']:<20} {kind:<12} {row['train']:>4} {row['value']:.4f} ± {row['error']:.4f}", flush=True
                    )


if __name__ == "__main__":
    main()
