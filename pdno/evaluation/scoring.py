"""Evaluation of a model on held-out pairs: all scores and diagnostics.

    accuracy        mean against the clean u                      MRLE, RMSE, residual of the equation
    distribution    members against observations u^η              fair CRPS, energy score, NLL, spectra
    calibration     ranks of observations among members           coverage, rank histogram, diagnosis, spread–skill ratio
    joint           functionals of fields: mean, maximum, roughness  coverage of their intervals
    noise           residuals beside members                      std, correlation, modes, dependence on u and a
    conformal       intervals from calibration pairs              coverage, width, coverage of simultaneous bands
    novelty         out-of-distribution inputs

If the data have no noisy test outputs, u is also used as the observation.
"""

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import Array, Floats, Mask
from ..data.arrays import check_finite
from ..data.nodes import Nodes
from ..data.pairs import Dataset, Pairs
from ..data.split import some_rows
from ..equation import Equation
from ..errors import UserError
from ..work.progress import progress_bar
from .calibration import Curve, Diagnosis, Histogram, SpreadSkill, coverage, diagnose, rank_histogram, sharpness, spread_skill
from .conformal import Conformal
from .density import recovered
from .ensemble import FUNCTIONAL_LEVEL, LEVELS, SHOWN_MEMBERS, EnsembleSummary, Forecaster, observations, summarise
from .input_coverage import input_coverage, member_decile
from .low_coverage import Region, low_coverage_range, low_coverage_region
from .metrics import mean_std, mrle, mstd, nll, relative_residual, rmse, spectral_distance, spectrum
from .ranks import FUNCTIONALS
from .running import RunningCRPS
from .score import Score, per_sample
from .structure import NoiseStructure, known_noise, noise_structure

__all__ = ["ALPHA", "LEVEL", "MIN_MEMBERS", "Case", "Evaluation", "evaluate"]

LEVEL = 0.9  # nominal level of the conformal intervals and of the coverage map
ALPHA = 0.01  # false-positive rate of all diagnoses together
MIN_MEMBERS = 19  # fewest members for a 90 % interval: its bounds are their minimum and maximum
MIN_CALIBRATION_PAIRS = 9  # fewest pairs for conformal 90 % intervals
MEAN_PAIRS = 1000  # training outputs that the unconditional mean is computed from
UNCONDITIONAL_MEMBERS = 100  # training outputs that form the unconditional ensemble
INFINITE = 10**9  # number of members of an exact mean
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
            for scores of unconditional predictions, and the equation, if there is one, for residuals.
        members: number of members for each input.
        seed: of the members.
        calibrate: maximum number of validation pairs for conformal calibration; 0 for none.
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
    if trained_on := _trained_on(model, test):
        text = f"the model was trained or validated on {trained_on} of these {len(test)} test inputs: scores are optimistic"
        warnings.warn(f"{text}; pass held-out pairs", stacklevel=2)
    held_out = dataset.validation[:calibrate] if dataset.validation and calibrate > 0 else None
    calibration = None if held_out is None else _checked(model, held_out, "validation")
    if isinstance(members, bool) or (members < MIN_MEMBERS and not model.deterministic):
        raise UserError(f"members = {members}: 90 % intervals require at least {MIN_MEMBERS}")
    total = (len(test) + (len(calibration) if calibration else 0)) * (1 if model.deterministic else members)
    with progress_bar("evaluating", "members") if progress else nullcontext() as bar:
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if bar is not None:
                bar(min(done, total), total)

        e = summarise(model, test, members, seed, 0, count, **sampling)
        c = summarise(model, calibration, members, seed, len(test), count, **sampling) if calibration else None
    scores = {**_accuracy(e, test, dataset), **_distribution(e, test, dataset)}
    diagnostics: dict[str, Any] = {} if model.deterministic else _calibration(e, test, scores)
    noise = noise_structure(e, test, dataset)
    scores |= {} if noise is None else noise.scores()
    conformal = {} if c is None or calibration is None else _conformal(e, c, test, calibration, scores)
    novelty, validation_novelty = (_novelty(model, pairs) for pairs in (test, calibration))
    if novelty is not None:
        scores["ood_fraction"] = Score.mean((novelty > 1).astype(float))
    spectra = e.spectrum.mean(axis=0), spectrum(_masked(observations(test), test)).mean(axis=0)
    return Evaluation(
        scores,
        {
            **_metadata(model, dataset, e, len(calibration) if calibration and conformal else 0, sampling),
            "trained_on": trained_on,
        },
        _cases(test, e, scores["mrle" if "mrle" in scores else "rmse"].each),
        conformal=conformal,
        novelty=novelty,
        validation_novelty=validation_novelty,
        spectra=spectra,
        axes=_axes(test),
        nodes=test.nodes,
        noise=noise,
        joint=None if model.deterministic else (e.joint_observed, e.joint_bounds),
        **diagnostics,
    )


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
    """Return the number of test inputs that the model was trained or validated on, if it has their fingerprints."""
    return int(np.isin(test.fingerprints(), getattr(model, "fingerprints", ())).sum())


def _novelty(model: Forecaster, pairs: Pairs | None) -> Floats | None:
    """Return the novelty scores of the inputs, (sample,), if the model and the pairs exist."""
    return None if model.novelty is None or pairs is None else model.novelty.distance(pairs.a, pairs.scalars)


def _masked(fields: Array, pairs: Pairs) -> Array:
    """Set points where outputs are missing to 0."""
    return fields if pairs.mask is None else np.where(pairs.mask, fields, 0.0)


def _points(pairs: Pairs) -> dict[str, Any]:
    """Return the mask and the weights of points, as scores take them; only nodes of a mesh have weights."""
    return {"mask": pairs.mask, "weights": pairs.weights}


def _accuracy(e: EnsembleSummary, test: Pairs, data: Dataset) -> dict[str, Score]:
    """Score the mean and one member against the clean u."""
    u, on = test.u, _points(test)
    scores = {"rmse": rmse(e.mean, u, **on)}
    size = per_sample(np.square(u), **on)
    predictions = {"mrle": e.mean} | ({"mrle_member": e.shown[:, 0]} if e.members > 1 else {})
    if len(data.train) and data.train.mask is None:
        average = data.train[some_rows(len(data.train), MEAN_PAIRS)].u.mean(axis=0)
        predictions["mrle_unconditional"] = np.broadcast_to(average, u.shape)
    for name, v in predictions.items() if size.any() else ():
        scores[name] = mrle(v, u, **on)
    if e.members > 1 and size.any() and not e.exact_mean:
        variance_of_mean = e.std**2 / e.members
        square = per_sample((e.mean - u) ** 2 - variance_of_mean, **on)
        scores["mrle_debiased"] = Score.root_of_ratio(square, size)
    if data.equation is not None and test.mask is None:
        scores |= _residuals(data.equation, e, test)
    return scores


def _residuals(equation: Equation, e: EnsembleSummary, test: Pairs) -> dict[str, Score]:
    """Score residuals of the equation, ‖𝒢(v; a)‖/‖𝒢(0; a)‖: 1 for v = 0, 0 for a solution."""
    if test.u.shape[1:] != (1, *equation.grid.shape):
        return {}
    reference = equation.residual(np.zeros_like(test.u), test.a)
    fields = {"mean": e.mean, "u": test.u} | ({"member": e.shown[:, 0]} if e.members > 1 else {})
    return {f"residual_{name}": relative_residual(equation.residual(v, test.a), reference) for name, v in fields.items()}


def _distribution(e: EnsembleSummary, test: Pairs, data: Dataset) -> dict[str, Score]:
    """Score members against observations."""
    observed, on = observations(test), _points(test)
    scores = {"crps": Score.mean(per_sample(e.crps, **on)), "energy_score": Score.mean(e.energy)}
    scores["spectral_distance"] = spectral_distance(e.spectrum, spectrum(_masked(observed, test)))
    if len(data.train) and data.train.mask is None:
        outputs = data.train[some_rows(len(data.train), UNCONDITIONAL_MEMBERS)].u
        scores["crps_unconditional"] = Score.mean([_crps(outputs, v, test, i) for i, v in enumerate(observed)])
    if e.members > 1:
        scores["nll"] = nll(e.mean, e.std, observed, **on)
        scores["mean_std"], scores["mstd"] = mean_std(e.std, **on), mstd(e.std, e.members, **on)
        noise = known_noise(data)
        if noise is not None:
            scores["std_noise_ratio"] = recovered(e.std, noise.std, mask=test.mask)
    return scores


def _crps(outputs: Array, observed: Array, test: Pairs, i: int) -> float:
    """Return the CRPS of outputs (member, channel, *grid) for the observation of test pair i."""
    running = RunningCRPS(np.nan_to_num(observed))
    running.add(outputs)
    return float(per_sample(running.value[None], **_points(test[i : i + 1]))[0])


def _calibration(e: EnsembleSummary, test: Pairs, scores: dict[str, Score]) -> dict[str, Any]:
    """Return the diagnostics of ranks as fields of `Evaluation`; add coverage, width and spread–skill ratio to the scores."""
    mask, observed, on = test.mask, observations(test), _points(test)
    for level in [level for level in LEVELS if e.members >= (1 + level) / (1 - level) - 1e-9]:
        inside = (np.abs(e.pit - 0.5) <= level / 2).astype(float)
        scores[f"coverage_{100 * level:.0f}"] = Score.mean(per_sample(inside, **on))
    scores[f"width_{100 * LEVEL:.0f}"] = sharpness(*e.interval(LEVEL), **on)
    for k, name in enumerate(FUNCTIONALS):
        within = np.where(np.isnan(pit := e.joint_pit[:, k]), np.nan, np.abs(pit - 0.5) <= FUNCTIONAL_LEVEL / 2)
        scores[f"coverage_{100 * FUNCTIONAL_LEVEL:.0f}_{name}"] = Score.mean(np.nanmean(within, axis=1))
    averaged = INFINITE if e.exact_mean else e.members
    spread = spread_skill(e.std, _masked(observed - e.mean, test), averaged, mask=mask)
    scores["spread_skill"] = Score(spread.ratio, spread.ratio_error, np.empty(0))
    inside = np.abs(e.pit - 0.5) <= LEVEL / 2
    present = np.ones(inside.shape, dtype=bool) if mask is None else mask
    single = {f"coverage_90_{name}": score for name, score in input_coverage(inside, mask).items()}
    if single:
        scores |= single | {"coverage_90_lowest_decile_members": member_decile(e.shown, *e.interval(LEVEL), mask)}
    counts = np.where(present.any(axis=0), present.sum(axis=0), np.nan)
    coverage_map = np.where(present, inside, 0).sum(axis=0) / counts
    regions = (
        *_parameter_ranges(inside, test, present),
        low_coverage_region(inside, _axes(test), LEVEL, present),
        low_coverage_range(inside, e.mean, LEVEL, "the prediction is", present),  # not by spread, which is small also by chance
    )
    wholes = {"field means": e.functional_pit[:, :1], "roughness": e.functional_pit[:, 1:]}
    return {
        "diagnoses": {
            "points": diagnose(e.pit, mask=mask, alpha=ALPHA / 3),
            **{name: diagnose(pit, alpha=ALPHA / 3) for name, pit in wholes.items()},
        },
        "coverage": coverage(e.pit, CURVE_LEVELS, mask=mask),
        "histogram": rank_histogram(e.pit, mask=mask),
        "spread_skill": spread,
        "coverage_map": coverage_map,
        "low_coverage": tuple(sorted((r for r in regions if r is not None), key=lambda r: r.coverage)),
    }


def _parameter_ranges(inside: Mask, test: Pairs, present: Mask) -> list[Region | None]:
    """Return the range of each parameter with significantly low coverage."""
    scalars = np.empty((len(test), 0)) if test.scalars is None else test.scalars
    fields = [np.broadcast_to(p.reshape(-1, *(1,) * (inside.ndim - 1)), inside.shape) for p in scalars.T]
    named = zip(test.parameters, fields, strict=True)
    return [low_coverage_range(inside, p, LEVEL, f"{name} is", present, len(fields)) for name, p in named]


def _conformal(
    e: EnsembleSummary, c: EnsembleSummary, test: Pairs, calibration: Pairs, scores: dict[str, Score]
) -> dict[str, Conformal]:
    """Calibrate pointwise intervals and bands for whole fields on the ensembles c; score them on the test ensembles e."""
    observed, mask, on = _masked(observations(test), test), test.mask, _points(test)
    fields = *c.interval(LEVEL), c.std, _masked(observations(calibration), calibration)
    present = np.ones(calibration.u.shape, dtype=bool) if calibration.mask is None else calibration.mask
    present = present & (present.sum(axis=0) >= MIN_CALIBRATION_PAIRS)  # points with fewer observations keep their intervals
    if not present.any():
        return {}
    points = Conformal.of(*fields, LEVEL, mask=present)
    low, high = points.apply(*e.interval(LEVEL), e.std)
    inside = (low <= observed) & (observed <= high)
    scores["coverage_90_conformal"] = Score.mean(per_sample(inside.astype(float), **on))
    scores["width_90_conformal"] = sharpness(low, high, **on)
    bands = Conformal.of(*fields, LEVEL, share=1.0, mask=present)
    low, high = bands.apply(*e.interval(LEVEL), e.std)
    inside = (low <= observed) & (observed <= high)
    inside = inside if mask is None else inside | ~mask
    scores["band_coverage_90_conformal"] = Score.mean(inside.reshape(len(inside), -1).all(axis=1).astype(float))
    return {"points": points, "fields": bands}


def _metadata(model: Forecaster, data: Dataset, e: EnsembleSummary, pairs: int, sampling: dict[str, Any]) -> dict[str, Any]:
    """Return what the scores refer to; `pairs` is the number of calibration pairs."""
    return {
        "data": str(data.provenance.get("name", "pairs")),
        "noise": data.provenance.get("noise"),
        "grid": "x".join(map(str, data.test.u.shape[2:])),
        "train": len(data.train) or model.provenance.get("pairs"),
        "inputs": len(data.test),
        "calibration_pairs": pairs,
        "observed": "u" if data.test.u_eta is None else "u_eta",
        "members": e.members,
        "evaluations": model.evaluations(**sampling),
        "parameters": model.parameters,
        "sample_seconds": e.seconds,
        "deterministic": model.deterministic,
        "novelty_alpha": None if model.novelty is None else float(model.novelty.alpha),
        "relative_spread": _relative_spread(e, data.test),
    }


def _relative_spread(e: EnsembleSummary, test: Pairs) -> float | None:
    """Return RMS of std / RMS of u, which is comparable with the relative error; None without spread or for u = 0."""
    variance, size = (per_sample(np.square(_masked(v, test)), mask=test.mask).mean() for v in (e.std, test.u))
    return float(np.sqrt(variance / size)) if size > 0 and e.members > 1 else None


def _axes(pairs: Pairs) -> dict[str, Array]:
    """Return name → nodes of each axis of u; indices where there are no numerical coordinates."""
    u = pairs.xarray["u"]
    nodes = {str(x): pairs.xarray[x].values if x in pairs.xarray.coords else np.arange(u.sizes[x]) for x in u.dims[2:]}
    return {x: v if v.dtype.kind in "iuf" else np.arange(len(v)) for x, v in nodes.items()}


def _cases(test: Pairs, e: EnsembleSummary, errors: Floats) -> tuple[Case, ...]:
    """Return the inputs with the smallest, the median and the largest relative error of the mean."""
    order = np.argsort(errors, kind="stable")[: max(1, np.isfinite(errors).sum())]  # errors for u = 0 are NaN and sorted last
    ranks = {"best": 0, "typical": len(order) // 2, "worst": len(order) - 1}
    observed, (lower, upper) = observations(test), e.interval(LEVEL)
    cases = []
    for title, rank in ranks.items():
        i = int(order[rank])
        fields = (test.a[i], test.u[i], observed[i], e.mean[i], e.std[i], lower[i], upper[i], e.shown[i, :SHOWN_MEMBERS])
        cases.append(Case(title, i, *fields))
    return tuple(cases)
