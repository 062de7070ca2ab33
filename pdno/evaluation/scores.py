"""Scores of the ensembles of a model: accuracy, distribution, calibration and conformal intervals."""

from typing import Any

import numpy as np

from .._typing import Array, Floats, Ints, Mask
from ..data.dataset import Dataset
from ..data.pairs import Pairs
from ..data.split import some_rows
from ..equation import Equation
from .averages import has_points
from .calibration import sharpness
from .conformal import Conformal
from .density import recovered
from .ensemble import FUNCTIONAL_LEVEL, LEVELS, ROUNDING, EnsembleSummary, channel_rms, observations
from .input_coverage import input_coverage, member_decile
from .metrics import mean_std, mrle, mstd, nll, relative_residual, rmse, spectral_distance, spectrum
from .proportion import dependence, interval
from .ranks import FUNCTIONALS
from .running import RunningCRPS
from .score import Score, group_means, per_sample
from .structure import known_noise

__all__ = ["LEVEL", "accuracy", "conformal", "coverages", "distribution", "masked", "of_whole_outputs", "points_of"]

LEVEL = 0.9  # nominal level of the conformal intervals and of the coverage map
MIN_CALIBRATION_PAIRS = 9  # fewest independent pairs for conformal 90 % intervals
MEAN_PAIRS = 1000  # training outputs that the unconditional mean is computed from
UNCONDITIONAL_MEMBERS = 100  # training outputs that form the unconditional ensemble

Scores = dict[str, Score]


def masked(fields: Array, pairs: Pairs) -> Array:
    """Set points where outputs are missing to 0."""
    return fields if pairs.mask is None else np.where(pairs.mask, fields, 0.0)


def points_of(pairs: Pairs) -> dict[str, Any]:
    """Return the mask and the weights of points, as scores take them; only nodes of a mesh have weights."""
    return {"mask": pairs.mask, "weights": pairs.weights}


# Accuracy


def accuracy(e: EnsembleSummary, test: Pairs, data: Dataset, groups: Ints | None) -> Scores:
    """Score the mean and one member against the clean u."""
    u, on = test.u, points_of(test)
    size = per_sample(np.square(u), **on)
    predictions = {"mrle": e.mean} | ({"mrle_member": e.shown[:, 0]} if e.members > 1 else {})
    if len(data.train) and data.train.mask is None:
        average = data.train[some_rows(len(data.train), MEAN_PAIRS)].u.mean(axis=0)
        predictions["mrle_unconditional"] = np.broadcast_to(average, u.shape)
    scores = {"rmse": _rmse(e.mean, test, groups)}
    for name, v in predictions.items() if size.any() else ():
        scores[name] = mrle(v, u, **on).grouped(groups)
    if e.members > 1 and size.any() and not e.exact_mean:
        square = per_sample((e.mean - u) ** 2 - e.std**2 / e.members, **on)
        scores["mrle_debiased"] = _debiased(square, size, groups)
    if data.equation is not None and test.mask is None:
        scores |= {name: score.grouped(groups) for name, score in _residuals(data.equation, e, test).items()}
    return scores


def _rmse(v: Array, test: Pairs, groups: Ints | None) -> Score:
    """Return the root mean square error, over groups."""
    score = rmse(v, test.u, **points_of(test))
    if groups is None:
        return score
    root = Score.root_of_ratio(np.square(score.each), np.ones(len(score.each)), groups)
    return Score(root.value, root.error, score.each)


def _debiased(square: Floats, size: Floats, groups: Ints | None) -> Score:
    """Return the mean of ‖mean − u‖/‖u‖ without the sampling error of the mean.

    Args:
        square: unbiased estimates of ‖mean − u‖², which are negative by chance where the mean is exact: their signed roots
            cancel, (sample,).
        size: ‖u‖², (sample,).
        groups: labels of dependent samples.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(size > 0, np.sign(square) * np.sqrt(np.abs(square) / size), np.nan)
    score = Score(0.0, 0.0, each).grouped(np.arange(len(each)) if groups is None else groups)
    return Score(max(0.0, score.value), score.error, each)


def _residuals(equation: Equation, e: EnsembleSummary, test: Pairs) -> Scores:
    """Score residuals of the equation, ‖𝒢(v; a)‖/‖𝒢(0; a)‖: 1 for v = 0, 0 for a solution."""
    if test.u.shape[1:] != (1, *equation.grid.shape):
        return {}
    reference = equation.residual(np.zeros_like(test.u), test.a)
    fields = {"mean": e.mean, "u": test.u} | ({"member": e.shown[:, 0]} if e.members > 1 else {})
    return {f"residual_{name}": relative_residual(equation.residual(v, test.a), reference) for name, v in fields.items()}


# Distribution


def distribution(e: EnsembleSummary, test: Pairs, data: Dataset, groups: Ints | None) -> Scores:
    """Score members against observations."""
    observed, on = observations(test), points_of(test)
    scores = {"crps": Score.mean(per_sample(e.crps, **on), groups)}
    if len(data.train) and data.train.mask is None:
        outputs = data.train[some_rows(len(data.train), UNCONDITIONAL_MEMBERS)].u
        at_points = np.stack([_crps(outputs, v) for v in observed])
        scores["crps_unconditional"] = Score.mean(per_sample(at_points, **on), groups)
    if e.members > 1:
        rows = has_points(e.judged)
        if rows.any():  # elsewhere the density is infinite
            judged = {"mask": e.judged[rows], "weights": test.weights}
            scores["nll"] = nll(e.mean[rows], e.std[rows], masked(observed, test)[rows], **judged).grouped(_some(groups, rows))
        scores["mean_std"], scores["mstd"] = mean_std(e.std, **on), mstd(e.std, e.members, **on)
        scores |= {name: scores[name].grouped(groups) for name in ("mean_std", "mstd")}
        noise = known_noise(data)
        if noise is not None:
            scores["std_noise_ratio"] = recovered(e.std, noise.std, mask=test.mask)
    return scores


def of_whole_outputs(e: EnsembleSummary, test: Pairs, units: Floats, groups: Ints | None) -> Scores:
    """Return the scores that all channels have together: energy score and distance of spectra."""
    observed = spectrum(masked(observations(test), test) / units.reshape(-1, *(1,) * (test.u.ndim - 2)))
    distance = spectral_distance(e.spectrum, observed)
    error = distance.grouped(groups).error  # `each` has the pseudo-values of the jackknife
    return {"energy_score": Score.mean(e.energy, groups), "spectral_distance": Score(distance.value, error, distance.each)}


def _crps(outputs: Array, observed: Array) -> Floats:
    """Return the CRPS of outputs (member, channel, *grid) for an observation, at each point."""
    running = RunningCRPS(np.nan_to_num(observed))
    running.add(outputs)
    return running.value


# Calibration


def coverages(
    e: EnsembleSummary, test: Pairs, groups: Ints | None, alpha: float
) -> tuple[Scores, dict[str, tuple[float, float]]]:
    """Return coverage and width of intervals, and for coverages of 90 % also bounds of their expectations.

    Args:
        e: ensembles.
        test: pairs.
        groups: labels of dependent pairs.
        alpha: probability that a calibrated coverage is outside its bounds.
    """
    scores: Scores = {}
    bounds: dict[str, tuple[float, float]] = {}
    judged, rows = e.judged, has_points(e.judged)
    for level in [level for level in LEVELS if e.members >= (1 + level) / (1 - level) - 1e-9]:
        inside = (np.abs(e.pit - 0.5) <= level / 2).astype(float)
        each = per_sample(inside[rows], mask=judged[rows], weights=test.weights)
        scores[name := f"coverage_{100 * level:.0f}"] = Score.mean(each, _some(groups, rows))
        if level == LEVEL:
            bounds[name] = _bounds(each, e.pit[rows], _some(groups, rows), alpha)
    scores[f"width_{100 * LEVEL:.0f}"] = sharpness(*e.interval(LEVEL), **points_of(test), groups=groups)
    for k, functional in enumerate(FUNCTIONALS):
        pit = e.joint_pit[:, k]
        some = has_points(np.isfinite(pit))
        if some.any():
            within = np.where(np.isnan(pit), np.nan, np.abs(pit - 0.5) <= FUNCTIONAL_LEVEL / 2)
            each, name = np.nanmean(within[some], axis=1), f"coverage_{100 * FUNCTIONAL_LEVEL:.0f}_{functional}"
            scores[name] = Score.mean(each, _some(groups, some))
            bounds[name] = _bounds(each, pit[some], _some(groups, some), alpha)
    inside, judged_inputs = np.abs(e.pit - 0.5) <= LEVEL / 2, e.judged
    single = {f"coverage_90_{name}": score for name, score in input_coverage(inside, judged_inputs, groups).items()}
    if single:
        scores |= single | {"coverage_90_lowest_decile_members": member_decile(e.shown, *e.interval(LEVEL), judged_inputs)}
    return scores, bounds


def _bounds(each: Floats, pit: Floats, groups: Ints | None, alpha: float) -> tuple[float, float]:
    return interval(group_means(each, groups), 1 - alpha, dependence(pit, groups))


def _some(groups: Ints | None, rows: Mask) -> Ints | None:
    return None if groups is None else np.asarray(groups)[rows]


# Conformal intervals


def conformal(
    e: EnsembleSummary, c: EnsembleSummary, test: Pairs, calibration: Pairs, units: Floats, groups: Ints | None
) -> tuple[dict[str, Conformal], Scores]:
    """Calibrate pointwise intervals and bands for whole fields on the ensembles c; score them on the test ensembles e.

    Args:
        e, c: ensembles of test and calibration pairs.
        test, calibration: pairs; those for calibration are independent.
        units: of the channels, in which widths are averaged.
        groups: labels of dependent test pairs.
    """
    observed, mask, on = masked(observations(test), test), test.mask, points_of(test)
    fields = *c.interval(LEVEL), c.std, masked(observations(calibration), calibration)
    present = np.ones(calibration.u.shape, dtype=bool) if calibration.mask is None else calibration.mask
    present = present & (present.sum(axis=0) >= MIN_CALIBRATION_PAIRS)  # points with fewer observations keep their intervals
    if not present.any():
        return {}, {}
    points = Conformal.of(*fields, LEVEL, mask=present)
    low, high = points.apply(*e.interval(LEVEL), e.std)
    rounding = ROUNDING * channel_rms(observed, mask).reshape(-1, *(1,) * (low.ndim - 2))
    inside = (low - rounding <= observed) & (observed <= high + rounding)
    unit = units.reshape(-1, *(1,) * (low.ndim - 2))
    scores = {
        "coverage_90_conformal": Score.mean(per_sample(inside.astype(float), **on), groups),
        "width_90_conformal": sharpness(low / unit, high / unit, **on, groups=groups),
    }
    bands = Conformal.of(*fields, LEVEL, share=1.0, mask=present)
    low, high = bands.apply(*e.interval(LEVEL), e.std)
    inside = (low - rounding <= observed) & (observed <= high + rounding)
    inside = inside if mask is None else inside | ~mask
    whole = inside.reshape(len(inside), -1).all(axis=1).astype(float)
    scores["band_coverage_90_conformal"] = Score.mean(whole, groups)
    return {"points": points, "fields": bands}, scores
