"""How good is a model, and how far can it be trusted? All scores of its forecasts for pairs that it has not learned from.

    accuracy      the mean against the clean u                      MRLE, RMSE, residual of the equation
    law           members against observations u^η                  fair CRPS, energy score, NLL, spectra
    honesty       the rank of observations among members            coverage, rank histogram, diagnosis, spread–skill
    repair        conformal intervals, from pairs that were held out
    familiarity   inputs that are unlike those learned from

Data without noisy test outputs are judged by their u throughout.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.pairs import Dataset, Pairs
from ..data.spaces import check_finite
from ..equation import Equation
from ..errors import UserError
from ..noise import FieldNoise, Gaussian, GaussianMixture, parse
from ..work.progress import progress_bar
from .calibration import Curve, Diagnosis, Histogram, SpreadSkill, coverage, diagnose, rank_histogram, sharpness, spread_skill
from .conformal import Conformal
from .density import recovered
from .ensemble import LEVELS, Forecast, forecast, observations
from .metrics import (
    RunningCRPS,
    Score,
    mean_std,
    mrle,
    mstd,
    nll,
    per_sample,
    relative_residual,
    rmse,
    spectral_distance,
    spectrum,
)
from .weak import Place, weak_range, weak_region

if TYPE_CHECKING:
    from ..model.surrogate import Surrogate

__all__ = ["ALARM", "FEWEST", "LEVEL", "Case", "Evaluation", "evaluate"]

Array = NDArray[Any]
LEVEL = 0.9  # of the intervals that are repaired and mapped
IGNORING = 100  # training outputs that stand for "ignoring a"
SHOWN = 3  # members in a picture
ENDLESS = 10**9
FEWEST = 19  # members of which the smallest and the largest are the ends of a 90 % interval
NEEDED = 9  # pairs, for the repair of 90 % intervals
ALARM = 0.01  # rate of false alarms of all diagnoses together


@dataclass(frozen=True)
class Case:
    """One input to look at, with its forecast; fields are (channel, *grid)."""

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
    """Scores and diagnostics of a model. `pdno.evaluation.verdict` puts them into words, `pdno.run.report` on a page."""

    scores: dict[str, Score]
    facts: dict[str, Any]
    cases: tuple[Case, ...]
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict)  # of "points", "field means", "roughness"
    coverage: Curve | None = None
    histogram: Histogram | None = None
    spread_skill: SpreadSkill | None = None
    trust: Array | None = None  # coverage of LEVEL intervals at each point
    weak: tuple[Place, ...] = ()  # where LEVEL intervals hold much less than they should
    axes: dict[str, Array] = field(default_factory=dict)  # nodes of the grid
    spectra: tuple[Array, Array] | None = None  # of members and observations: (band,)
    novelty: Array | None = None  # of test inputs
    novelty_held: Array | None = None  # of validation inputs
    repair: dict[str, Conformal] = field(default_factory=dict)  # for "points" and "fields"


def evaluate(
    model: "Surrogate",
    data: Dataset | Pairs,
    *,
    members: int = 100,
    seed: int = 0,
    calibrate: int = 100,
    progress: bool = True,
    **how: Any,
) -> Evaluation:
    """Judge a model by the test pairs of these data.

    Args:
        model: any model or baseline.
        data: test pairs to judge by; of a Dataset, validation pairs are those that intervals are repaired with, training
            pairs tell what ignoring the input would give, and the equation, if it is known, what the residual is.
        members: to draw for each input.
        seed: of the members.
        calibrate: at most this many validation pairs are forecast for the repair; 0 for none.
        progress: show a bar on terminals.
        how: handed on to the model, such as steps=20.
    """
    whole = data if isinstance(data, Dataset) else Dataset(data[:0], data, {"name": "pairs"})
    test = _checked(model, whole.test, "test")
    held = _checked(model, whole.validation[:calibrate], "validation") if whole.validation and calibrate > 0 else None
    if isinstance(members, bool) or (members < FEWEST and not model.deterministic):
        raise UserError(f"members = {members}: to judge 90 % intervals, at least {FEWEST} are needed")
    total = (len(test) + (len(held) if held else 0)) * (1 if model.deterministic else members)
    with progress_bar("judging", "members") if progress else nullcontext() as bar:
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if bar is not None:
                bar(min(done, total), total)

        f = forecast(model, test, members, seed, 0, count, **how)
        g = forecast(model, held, members, seed, len(test), count, **how) if held else None
    scores = {**_accuracy(f, test, whole), **_law(f, test, whole)}
    diagnostics: dict[str, Any] = {} if model.deterministic else _honesty(f, test, scores)
    repair = {} if g is None or held is None else _repair(f, g, test, held, scores)
    novelty = None if model.novelty is None else model.novelty.distance(test.a, test.scalars)
    if novelty is not None:
        scores["unfamiliar"] = Score.mean((novelty > 1).astype(float))
    held_novelty = None if model.novelty is None or held is None else model.novelty.distance(held.a, held.scalars)
    observed = spectrum(_known(observations(test), test))
    return Evaluation(
        scores,
        _facts(model, whole, f, len(held) if held and repair else 0, how),
        _cases(model, test, f, scores["mrle" if "mrle" in scores else "rmse"].each, seed, how),
        repair=repair,
        novelty=novelty,
        novelty_held=held_novelty,
        spectra=(f.spectrum.mean(axis=0), observed.mean(axis=0)),
        axes=_axes(test),
        **diagnostics,
    )


def _checked(model: "Surrogate", pairs: Pairs, what: str) -> Pairs:
    """Pairs that this model can be asked about."""
    if not len(pairs):
        raise UserError(f"there are no {what} pairs to judge by; hold some out, or bring other data")
    frame = model.fitted()
    frame.inputs(pairs.a, pairs.scalars)
    if pairs.u.shape[1:] != frame.u_shape:
        raise UserError(f"{what} outputs have shape {pairs.u.shape[1:]}, but the model learned {frame.u_shape}")
    check_finite(pairs)
    return pairs


def _known(fields: Array, pairs: Pairs) -> Array:
    """Fields with zeros where outputs are not known."""
    return fields if pairs.mask is None else np.where(pairs.mask, fields, 0.0)


def _accuracy(f: Forecast, test: Pairs, data: Dataset) -> dict[str, Score]:
    """The mean and one member against the clean u."""
    u, mask = test.u, test.mask
    found = {"rmse": rmse(f.mean, u, mask=mask)}
    size = per_sample(np.square(u), mask=mask)
    fields = {"mrle": f.mean} | ({"mrle_member": f.member} if f.members > 1 else {})
    if len(data.train) and data.train.mask is None:
        fields["mrle_ignoring_a"] = np.broadcast_to(data.train[:1000].u.mean(axis=0), u.shape)
    for name, v in fields.items() if size.any() else ():
        found[name] = mrle(v, u, mask=mask)
    if f.members > 1 and size.any() and not f.exact:
        chance = f.std**2 / f.members  # what a mean over so many members owes to it
        found["mrle_fair"] = Score.root_of_ratio(per_sample((f.mean - u) ** 2 - chance, mask=mask), size)
    if data.equation is not None and mask is None:
        found |= _residuals(data.equation, f, test)
    return found


def _residuals(equation: Equation, f: Forecast, test: Pairs) -> dict[str, Score]:
    """‖𝒢(v; a)‖/‖𝒢(0; a)‖: 1 for a field of zeros, 0 for a solution."""
    if test.u.shape[1:] != (1, *equation.grid.shape):
        return {}
    reference = equation.residual(np.zeros_like(test.u), test.a)
    fields = {"mean": f.mean, "u": test.u} | ({"member": f.member} if f.members > 1 else {})
    return {f"residual_{name}": relative_residual(equation.residual(v, test.a), reference) for name, v in fields.items()}


def _law(f: Forecast, test: Pairs, data: Dataset) -> dict[str, Score]:
    """Members against observations."""
    observed, mask = observations(test), test.mask
    found = {"crps": Score.mean(per_sample(f.crps, mask=mask)), "energy_score": Score.mean(f.energy)}
    found["spectral_distance"] = spectral_distance(f.spectrum, spectrum(_known(observed, test)))
    if len(data.train) and data.train.mask is None:
        outputs = data.train[:IGNORING].u
        found["crps_ignoring_a"] = Score.mean([_crps(outputs, v, test, i) for i, v in enumerate(observed)])
    if f.members > 1:
        found["nll"] = nll(f.mean, f.std, observed, mask=mask)
        found["mean_std"], found["mstd"] = mean_std(f.std, mask=mask), mstd(f.std, f.members, mask=mask)
        noise = _noise_std(data)
        if noise is not None:
            found["std_over_noise"] = recovered(f.std, noise, mask=mask)
    return found


def _noise_std(data: Dataset) -> float | None:
    """Of the noise that was put into the data, where that is known and one number."""
    try:
        noise = parse(str(data.provenance.get("noise", "none")))
    except UserError:  # a law of the user's own
        return None
    return float(noise.std) if isinstance(noise, Gaussian | GaussianMixture | FieldNoise) else None


def _crps(outputs: Array, observed: Array, test: Pairs, i: int) -> float:
    running = RunningCRPS(np.nan_to_num(observed))
    running.add(outputs)
    return float(per_sample(running.value[None], mask=None if test.mask is None else test.mask[i : i + 1])[0])


def _honesty(f: Forecast, test: Pairs, scores: dict[str, Score]) -> dict[str, Any]:
    """Observations among members; adds coverage and spread to the scores."""
    mask, observed = test.mask, observations(test)
    levels = np.linspace(0.02, 0.98, 49)
    for level in [level for level in LEVELS if f.members >= (1 + level) / (1 - level) - 1e-9]:
        inside = (np.abs(f.pit - 0.5) <= level / 2).astype(float)
        scores[f"coverage_{100 * level:.0f}"] = Score.mean(per_sample(inside, mask=mask))
    scores[f"width_{100 * LEVEL:.0f}"] = sharpness(*f.interval(LEVEL), mask=mask)
    averaged = ENDLESS if f.exact else f.members  # that the mean is one of
    spread = spread_skill(f.std, _known(observed - f.mean, test), averaged, mask=mask)
    scores["spread_skill"] = Score(spread.ratio, spread.ratio_error, np.empty(0))
    inside = np.abs(f.pit - 0.5) <= LEVEL / 2
    known = np.ones(inside.shape, dtype=bool) if mask is None else mask
    trust = np.where(known, inside, 0).sum(axis=0) / np.where(known.any(axis=0), known.sum(axis=0), np.nan)
    weak = (
        weak_region(inside, _axes(test), LEVEL, known),
        weak_range(inside, f.mean, LEVEL, "u is predicted", known),  # not by spread: a small one may be so by chance
    )
    whole = {"field means": f.whole[:, :1], "roughness": f.whole[:, 1:]}
    return {
        "diagnoses": {
            "points": diagnose(f.pit, mask=mask, alarm=ALARM / 3),
            **{name: diagnose(pit, alarm=ALARM / 3) for name, pit in whole.items()},
        },
        "coverage": coverage(f.pit, levels, mask=mask),
        "histogram": rank_histogram(f.pit, mask=mask),
        "spread_skill": spread,
        "trust": trust,
        "weak": tuple(sorted((place for place in weak if place is not None), key=lambda place: place.share)),
    }


def _repair(f: Forecast, g: Forecast, test: Pairs, held: Pairs, scores: dict[str, Score]) -> dict[str, Conformal]:
    """Intervals for points and bands for whole fields, from the held-out forecast g, tried on f."""
    observed, mask = _known(observations(test), test), test.mask
    fields = *g.interval(LEVEL), g.std, _known(observations(held), held)
    known = np.ones(held.u.shape, dtype=bool) if held.mask is None else held.mask
    known = known & (known.sum(axis=0) >= NEEDED)  # points that are known too seldom keep their intervals
    if not known.any():
        return {}
    found = {
        "points": Conformal.of(*fields, LEVEL, mask=known),
        "fields": Conformal.of(*fields, LEVEL, share=1.0, mask=known),
    }
    for name, conformal in found.items():
        low, high = conformal.repair(*f.interval(LEVEL), f.std)
        inside = (low <= observed) & (observed <= high)
        if name == "points":
            scores["coverage_90_repaired"] = Score.mean(per_sample(inside.astype(float), mask=mask))
            scores["width_90_repaired"] = sharpness(low, high, mask=mask)
        else:
            known = inside if mask is None else inside | ~mask
            scores["fields_90_repaired"] = Score.mean(known.reshape(len(known), -1).all(axis=1).astype(float))
    return found


def _facts(model: "Surrogate", data: Dataset, f: Forecast, held: int, how: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": str(data.provenance.get("name", "pairs")),
        "noise": data.provenance.get("noise"),
        "grid": "x".join(map(str, data.test.u.shape[2:])),
        "train": len(data.train) or model.provenance.get("pairs"),
        "inputs": len(data.test),
        "held": held,
        "observed": "u" if data.test.u_eta is None else "u_eta",
        "members": f.members,
        "evaluations": model.evaluations(**how),
        "parameters": model.parameters,
        "sample_seconds": f.seconds,
        "deterministic": model.deterministic,
        "alarm": None if model.novelty is None else float(model.novelty.alarm),
        "mrle_spread": _spread(f, data.test),
    }


def _spread(f: Forecast, test: Pairs) -> float | None:
    """Size of the members' spread in units of u, to be compared with the relative error."""
    variance, size = (per_sample(np.square(_known(v, test)), mask=test.mask).mean() for v in (f.std, test.u))
    return float(np.sqrt(variance / size)) if size > 0 and f.members > 1 else None


def _axes(pairs: Pairs) -> dict[str, Array]:
    """Nodes of the grid of u by name; numbers where there are no coordinates, or coordinates that are no numbers."""
    u = pairs.xarray["u"]
    nodes = {str(x): pairs.xarray[x].values if x in pairs.xarray.coords else np.arange(u.sizes[x]) for x in u.dims[2:]}
    return {x: v if v.dtype.kind in "iuf" else np.arange(len(v)) for x, v in nodes.items()}


def _cases(model: "Surrogate", test: Pairs, f: Forecast, errors: Array, seed: int, how: dict[str, Any]) -> tuple[Case, ...]:
    """The best, a typical and the worst input, by the relative error of the mean."""
    order = np.argsort(errors, kind="stable")[: max(1, np.isfinite(errors).sum())]  # outputs that are zero come last
    places = {"best": 0, "typical": len(order) // 2, "worst": len(order) - 1}
    observed, (lower, upper) = observations(test), f.interval(LEVEL)
    cases = []
    for title, place in places.items():
        i = int(order[place])
        a, s = test.a[i : i + 1], None if test.scalars is None else test.scalars[i : i + 1]
        shown = 1 if model.deterministic else min(SHOWN, f.members)
        members = np.concatenate([values for _, _, values in model.stream(a, s, shown, seed, None, i, **how)])
        fields = (test.u[i], observed[i], f.mean[i], f.std[i], lower[i], upper[i])
        cases.append(Case(title, i, a[0], *fields, members))
    return tuple(cases)
