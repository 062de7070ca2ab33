"""Evaluation of a model on held-out pairs: all scores and diagnostics.

    accuracy        mean against the clean u                      MRLE, RMSE, residual of the equation
    distribution    members against observations u^η              fair CRPS, energy score, NLL, spectra
    calibration     ranks of observations among members           coverage, rank histogram, diagnosis, spread–skill ratio
    joint           functionals of fields: mean, maximum, roughness  coverage of their intervals
    noise           residuals beside members                      std, correlation, modes, dependence on u and a
    conformal       intervals from calibration pairs              coverage, width, coverage of simultaneous bands
    novelty         out-of-distribution inputs

If the data have no noisy test outputs, u is also used as the observation. Dependent test pairs (groups, repeated inputs,
blocks of a series) are averaged: errors and tests are those of independent groups. With several channels, each has its own
scores, and the scores of all are those of channels in standard units (`pdno.evaluation.channels`).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._typing import Array, Floats, Ints, Mask
from ..data.arrays import check_finite
from ..data.dataset import Dataset
from ..data.nodes import Nodes
from ..data.pairs import Pairs
from ..data.split import one_of_each, some_rows
from ..errors import UserError
from ..work.progress import progress_bar
from .calibration import Curve, Diagnosis, Histogram, SpreadSkill, coverage, diagnose, rank_histogram, spread_skill
from .channels import channel_names, channel_units, in_units, live_channels
from .conformal import Conformal
from .dependence import groups_of
from .ensemble import SHOWN_MEMBERS, EnsembleSummary, Forecaster, channel_rms, observations, summarise
from .low_coverage import Region, low_coverage_range, low_coverage_region
from .metrics import spectrum
from .ranks import FUNCTIONALS
from .score import Score, group_means, per_sample
from .scores import LEVEL, accuracy, coverages, distribution, masked, of_whole_outputs
from .scores import conformal as conformal_scores
from .structure import NoiseStructure, noise_structure

__all__ = ["ALPHA", "LEVEL", "MIN_MEMBERS", "Case", "Evaluation", "evaluate"]

ALPHA = 0.01  # false-positive rate of all diagnoses together
MIN_MEMBERS = 19  # fewest members for a 90 % interval: its bounds are their minimum and maximum
INFINITE = 10**9  # number of members of an exact mean
WHOLE_FIELDS = {"field means": "mean", "roughness": "roughness"}  # diagnosis → functional
CURVE_LEVELS = np.linspace(0.02, 0.98, 49)  # nominal levels of the coverage curve


@dataclass(frozen=True)
class Case:
    """One input with its prediction, to be plotted; fields are (channel, *grid)."""

    title: str
    number: int
    a: Array
    u: Array
    observed: Array
    mean: Array
    std: Array
    lower: Array
    upper: Array
    members: Array


@dataclass(frozen=True)
class Evaluation:
    """Scores and diagnostics of a model. `pdno.evaluation.verdict` summarises them in words, `pdno.run.report` as HTML."""

    scores: dict[str, Score]
    metadata: dict[str, Any]
    cases: tuple[Case, ...]
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)  # of "points", "field means", "roughness"
    coverage: Curve | None = None
    histogram: Histogram | None = None
    spread_skill: SpreadSkill | None = None
    coverage_map: Floats | None = None  # coverage of LEVEL intervals at each point, (channel, *grid)
    low_coverage: tuple[Region, ...] = ()  # where LEVEL intervals cover significantly less, lowest coverage first
    axes: dict[str, Array] = field(default_factory=dict)  # name → nodes of each axis of the grid
    spectra: tuple[Floats, Floats] | None = None  # of members and observations, (band,)
    novelty: Floats | None = None  # novelty scores of test inputs
    validation_novelty: Floats | None = None  # novelty scores of validation inputs
    conformal: dict[str, Conformal] = field(default_factory=dict)  # for "points" and "fields"
    noise: NoiseStructure | None = None  # None if residuals are zero
    nodes: Nodes | None = None  # of the mesh that u is on; None for a grid
    joint: tuple[Floats, Floats] | None = None  # functionals of observations (sample, 3, channel), and bounds (2, sample, …)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)  # of expected coverages, at confidence 1 − ALPHA
    channels: dict[str, "Evaluation"] = field(default_factory=dict)  # each by itself in units of u, if there are several


def evaluate(
    model: Forecaster,
    data: Dataset | Pairs,
    *,
    members: int = 100,
    seed: int = 0,
    calibrate: int = 100,
    progress: bool = True,
    **sampling: Any,
) -> Evaluation:
    """Evaluate a model on the test pairs of these data.

    Args:
        model: any model or baseline.
        data: test pairs, or a Dataset with them. Of a Dataset, validation pairs serve for conformal calibration, training pairs
            for scores of unconditional predictions, and the equation, if there is one, for residuals. Validation pairs are not
            used if the model was selected by cross-validation, because it was trained on them.
        members: number of members for each input.
        seed: of the members.
        calibrate: maximum number of validation pairs for conformal calibration, one of each group; 0 for none.
        progress: show a bar on terminals.
        sampling: sampling settings of the model, such as steps=20.

    Returns:
        Scores with standard errors, diagnostics, conformal calibrations and example predictions.

    Raises:
        UserError: if there are no test pairs, their shapes differ from the training data, or members are too few.

    Warns:
        UserWarning: if the model was trained or validated on some of the test inputs.
    """
    dataset = data if isinstance(data, Dataset) else Dataset(data[:0], data, {"name": "pairs"})
    test = _checked(model, dataset.test, "test")
    trained_on = _trained_on(model, test)
    calibration = _for_calibration(model, dataset.validation, calibrate)
    if isinstance(members, bool) or (members < MIN_MEMBERS and not model.deterministic):
        raise UserError(f"members = {members}: 90 % intervals require at least {MIN_MEMBERS}")
    inputs = len(test) + (len(calibration) if calibration else 0)
    with _counter(inputs * (1 if model.deterministic else members), progress) as count:
        units = channel_units(observations(test), test.mask)
        e = summarise(model, test, members, seed, 0, count, units, **sampling)
        c = summarise(model, calibration, members, seed, len(test), count, units, **sampling) if calibration else None
    groups = groups_of(test)
    part = _assessed(e, test, dataset, units, groups)
    scores = part.scores | of_whole_outputs(e, test, units, groups)
    conformal: dict[str, Conformal] = {}
    if c is not None and calibration is not None:
        conformal, more = conformal_scores(e, c, test, calibration, units, groups)
        scores |= more
    novelty = _novelty(model, test)
    if novelty is not None:
        scores["ood_fraction"] = Score.mean((novelty > 1).astype(float), groups)
    metadata = _metadata(model, dataset, e, len(calibration) if calibration and conformal else 0, sampling, groups)
    metadata |= {"novelty_p": _excess(model, novelty, groups), "trained_on": trained_on, **part.metadata}
    channels = {k: replace(each, metadata=metadata | each.metadata, novelty=novelty) for k, each in part.channels.items()}
    return replace(
        part,
        scores=scores,
        metadata=metadata,
        cases=_cases(test, e, part.scores),
        channels=channels,
        conformal=conformal,
        novelty=novelty,
        validation_novelty=_novelty(model, calibration),
        spectra=_spectra(e, test, units),
        axes=_axes(test),
        nodes=test.nodes,
        joint=None if model.deterministic else (e.joint_observed, e.joint_bounds),
    )


@contextmanager
def _counter(total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts members as they are drawn; with `progress`, a bar on terminals shows the count."""
    with progress_bar("evaluating", "members") if progress else nullcontext() as bar:
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if bar is not None:
                bar(min(done, total), total)

        yield count


def _assessed(e: EnsembleSummary, test: Pairs, dataset: Dataset, units: Floats, groups: Ints | None) -> Evaluation:
    """Return scores and diagnostics of all channels together in their units, and of each channel by itself."""
    count = test.u.shape[1]
    live = live_channels(e)
    together = replace(dataset, test=test)
    if count == 1:
        return _part(e, test, together, groups, ALPHA)
    names = channel_names(test)
    channels = {names[c]: _part(*in_units(e, together, [c], np.ones(1)), groups, ALPHA / len(live)) for c in range(count)}
    whole = _part(*in_units(e, together, live, units[live]), groups, ALPHA)
    relative = accuracy(*in_units(e, together, live, channel_rms(test.u, test.mask)[live]), groups)
    scores = {name: score for name, score in whole.scores.items() if not name.endswith("_std") or name == "mean_std"}
    scores |= {name: score for name, score in relative.items() if name.startswith("mrle")}
    noise, raw = noise_structure(e, test, dataset, groups), coverage_map(e)
    return replace(whole, scores=scores, channels=channels, noise=noise, coverage_map=raw)


def _part(e: EnsembleSummary, test: Pairs, data: Dataset, groups: Ints | None, alpha: float) -> Evaluation:
    """Return scores and diagnostics of some channels, with a false-positive rate for all diagnoses together."""
    scores = {**accuracy(e, test, data, groups), **distribution(e, test, data, groups)}
    diagnostics: dict[str, Any] = {}
    if e.members > 1 and e.judged.any():
        more, bounds = coverages(e, test, groups, alpha)
        scores |= more
        diagnostics = _diagnostics(e, test, groups, alpha) | {"bounds": bounds}
        spread = diagnostics["spread_skill"]
        scores["spread_skill"] = Score(spread.ratio, spread.ratio_error, np.empty(0))
    noise = noise_structure(e, test, data, groups)
    scores |= {} if noise is None else noise.scores()
    return Evaluation(scores, {"relative_spread": _relative_spread(e, test)}, (), noise=noise, **diagnostics)


def _for_calibration(model: Forecaster, validation: Pairs | None, most: int) -> Pairs | None:
    """Return at most so many independent validation pairs, drawn at random: one of each group.

    None if there are none, or if the model was selected by cross-validation and so trained on them.
    """
    if not validation or most <= 0 or model.provenance.get("cross_validated", False):
        return None
    rows = one_of_each(groups_of(validation), len(validation))
    return _checked(model, validation[rows[some_rows(len(rows), most)]], "validation")


def _checked(model: Forecaster, pairs: Pairs, name: str) -> Pairs:
    """Return the pairs; raise UserError unless the model can be evaluated on them."""
    if not len(pairs):
        raise UserError(f"there are no {name} pairs to evaluate on; hold some out, or pass other data")
    model.spaces.inputs(pairs.a, pairs.scalars)
    if pairs.u.shape[1:] != model.spaces.u_shape:
        raise UserError(
            f"{name} outputs have shape {pairs.u.shape[1:]}, expected {model.spaces.u_shape} as in training; pass pairs with "
            "the same channels and grid"
        )
    check_finite(pairs)
    return pairs


def _trained_on(model: Forecaster, test: Pairs) -> int:
    """Return the number of test inputs that the model was trained or validated on, if it has their fingerprints.

    Warns the caller of `evaluate` if there are any.
    """
    count = int(np.isin(test.fingerprints(), getattr(model, "fingerprints", ())).sum())
    if count:
        text = f"the model was trained or validated on {count} of these {len(test)} test inputs: scores are optimistic"
        warnings.warn(f"{text}; pass held-out pairs", stacklevel=3)
    return count


def _novelty(model: Forecaster, pairs: Pairs | None) -> Floats | None:
    """Return the novelty scores of the inputs, (sample,), if the model and the pairs exist."""
    return None if model.novelty is None or pairs is None else model.novelty.distance(pairs.a, pairs.scalars)


def _diagnostics(e: EnsembleSummary, test: Pairs, groups: Ints | None, alpha: float) -> dict[str, Any]:
    """Return the diagnostics of ranks as fields of `Evaluation`."""
    judged, tests = e.judged, max(1, round(ALPHA / alpha))
    inside = np.abs(e.pit - 0.5) <= LEVEL / 2
    regions = (
        *_parameter_ranges(inside, test, judged, tests, groups),
        low_coverage_region(inside, _axes(test), LEVEL, judged, tests, groups),
        # not by spread, which is small also by chance
        low_coverage_range(inside, e.mean, LEVEL, "the prediction is", judged, tests, groups),
    )
    wholes = {name: e.joint_pit[:, FUNCTIONALS.index(functional)] for name, functional in WHOLE_FIELDS.items()}
    averaged = INFINITE if e.exact_mean else e.members
    return {
        "diagnoses": {
            name: diagnose(pit, alpha=alpha / 3, groups=groups) for name, pit in ({"points": e.pit} | wholes).items()
        },
        "coverage": coverage(e.pit, CURVE_LEVELS, groups=groups),
        "histogram": rank_histogram(e.pit, groups=groups),
        "spread_skill": spread_skill(e.std, masked(observations(test) - e.mean, test), averaged, mask=judged, groups=groups),
        "coverage_map": coverage_map(e),
        "low_coverage": tuple(sorted((r for r in regions if r is not None), key=lambda r: r.coverage)),
    }


def coverage_map(e: EnsembleSummary) -> Floats:
    """Return the coverage of LEVEL intervals at each point, (channel, *grid); NaN where there is nothing to judge."""
    judged = e.judged
    counts = np.where(judged.any(axis=0), judged.sum(axis=0), np.nan)
    return np.asarray((judged & (np.abs(e.pit - 0.5) <= LEVEL / 2)).sum(axis=0) / counts)


def _parameter_ranges(inside: Mask, test: Pairs, judged: Mask, tests: int, groups: Ints | None) -> list[Region | None]:
    """Return the range of each parameter with significantly low coverage."""
    scalars = np.empty((len(test), 0)) if test.scalars is None else test.scalars
    fields = [np.broadcast_to(p.reshape(-1, *(1,) * (inside.ndim - 1)), inside.shape) for p in scalars.T]
    named = zip(test.parameters, fields, strict=True)
    tests *= max(1, len(fields))
    return [low_coverage_range(inside, p, LEVEL, f"{name} is", judged, tests, groups) for name, p in named]


def _excess(model: Forecaster, novelty: Floats | None, groups: Ints | None) -> float | None:
    """Return the p-value of the number of flagged test inputs; a group counts as one, flagged if most of it is."""
    if model.novelty is None or novelty is None:
        return None
    flagged = group_means((novelty > 1).astype(float), groups)
    return model.novelty.excess(int((flagged > 0.5).sum()), len(flagged))


def _spectra(e: EnsembleSummary, test: Pairs, units: Floats) -> tuple[Floats, Floats]:
    """Return the mean spectra of members and observations in units (channel,), (band,)."""
    observed = masked(observations(test), test) / units.reshape(-1, *(1,) * (test.u.ndim - 2))
    return e.spectrum.mean(axis=0), spectrum(observed).mean(axis=0)


def _metadata(
    model: Forecaster, data: Dataset, e: EnsembleSummary, pairs: int, sampling: dict[str, Any], groups: Ints | None
) -> dict[str, Any]:
    """Return what the scores refer to; `pairs` is the number of calibration pairs."""
    crossed = model.provenance.get("cross_validated", False)
    return {
        "data": str(data.provenance.get("name", "pairs")),
        "noise": data.provenance.get("noise"),
        "grid": "x".join(map(str, data.test.u.shape[2:])),
        "train": len(data.train) if data.train and not crossed else model.provenance.get("pairs"),
        "inputs": len(data.test),
        "independent": len(data.test) if groups is None else len(np.unique(groups)),
        "calibration_pairs": pairs,
        "observed": "u" if data.test.u_eta is None else "u_eta",
        "members": e.members,
        "evaluations": model.evaluations(**sampling),
        "parameters": model.parameters,
        "sample_seconds": e.seconds,
        "deterministic": model.deterministic,
        "novelty_alpha": None if model.novelty is None else float(model.novelty.alpha),
    }


def _relative_spread(e: EnsembleSummary, test: Pairs) -> float | None:
    """Return RMS of std / RMS of u, which is comparable with the relative error; None without spread or for u = 0."""
    variance, size = (per_sample(np.square(masked(v, test)), mask=test.mask).mean() for v in (e.std, test.u))
    return float(np.sqrt(variance / size)) if size > 0 and e.members > 1 else None


def _axes(pairs: Pairs) -> dict[str, Array]:
    """Return name → nodes of each axis of u; indices where there are no numerical coordinates."""
    u = pairs.xarray["u"]
    nodes = {str(x): pairs.xarray[x].values if x in pairs.xarray.coords else np.arange(u.sizes[x]) for x in u.dims[2:]}
    return {x: v if v.dtype.kind in "iuf" else np.arange(len(v)) for x, v in nodes.items()}


def _cases(test: Pairs, e: EnsembleSummary, scores: dict[str, Score]) -> tuple[Case, ...]:
    """Return the inputs with the smallest, the median and the largest relative error of the mean."""
    errors = scores["mrle" if "mrle" in scores else "rmse"].each
    order = np.argsort(errors, kind="stable")[: max(1, np.isfinite(errors).sum())]  # errors for u = 0 are NaN and sorted last
    ranks = {"best": 0, "typical": len(order) // 2, "worst": len(order) - 1}
    observed, (lower, upper) = observations(test), e.interval(LEVEL)
    cases = []
    for title, rank in ranks.items():
        i = int(order[rank])
        fields = (test.a[i], test.u[i], observed[i], e.mean[i], e.std[i], lower[i], upper[i], e.shown[i, :SHOWN_MEMBERS])
        cases.append(Case(title, i, *fields))
    return tuple(cases)
