"""Structure of the noise, u given a minus its mean: held-out residuals, members and the truth side by side.

    residuals    u^η − m̂(a)          errors of the predicted mean on held-out pairs: noise, and the error of the mean
    members      X_j − m̂(a)          what the model draws in their place
    truth        η                   draws of the recorded noise distribution, or u^η − u, if either is known

If the model is right, residuals and members have the same statistics within their errors. Correlation that residuals have and
members lack is invisible at single points, but intervals for averages over the domain are then too narrow.
"""

from dataclasses import dataclass, replace

import numpy as np

from .._typing import Array, Floats, Ints, Mask
from ..data.dataset import Dataset
from ..data.pairs import Pairs
from ..data.split import some_rows
from ..errors import UserError
from ..noise import FieldNoise, Gaussian, GaussianMixture, parse
from .density import Mixture
from .ensemble import EnsembleSummary, observations
from .mixture import Components, components, count_modes
from .noise import NoiseStatistics, growth, input_dependence, noise_statistics, rms_field, scale_of
from .score import Score

__all__ = ["PREFIXES", "NoiseStructure", "Place", "Source", "known_noise", "noise_structure"]

PREFIXES = {"residuals": "noise", "members": "members", "truth": "truth"}  # source → prefix of its scores
TRUE_FIELDS = 400  # draws of a known noise distribution
TRUE_VALUES = 2**22  # numbers in them: 32 MB; at least 50 fields are drawn
ROUNDING = 1e-9  # noise below this fraction of u is rounding
MOST_VALUES = 2000  # draws of a scalar that mixtures are fitted to
PRINCIPAL = 3  # principal components of a among the features of the input
MODES = ("average_modes", "point_modes")  # scores of the fits at the first and at the last place
COLUMNS = 256  # most values of a that they are computed from

KnownNoise = Gaussian | GaussianMixture | FieldNoise


@dataclass(frozen=True)
class Place:
    """A scalar of the field whose distribution is shown: the value at a node of the first channel, or the average (None)."""

    name: str
    node: tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class Source:
    """Statistics of the noise of one source.

    Args:
        statistics: of the fields.
        scores: all numbers by name, those of `statistics` included.
        p_value: of the dependence on the input, None without a test.
        values: draws of the scalar at each place.
        fits: mixture fitted to those of the first and the last place, None if they are constant; () for a known distribution.
    """

    statistics: NoiseStatistics
    scores: dict[str, Score]
    p_value: float | None
    values: tuple[Floats, ...]
    fits: tuple[Components | None, ...]


@dataclass(frozen=True, eq=False)
class NoiseStructure:
    """Noise of each source by its name, and the places whose densities are shown, with the exact density where it is known."""

    sources: dict[str, Source]
    places: tuple[Place, ...]
    exact: tuple[Mixture | None, ...]

    def scores(self) -> dict[str, Score]:
        """Return all finite numbers, with the prefix of their source."""
        return {
            f"{PREFIXES[name]}_{key}": score
            for name, source in self.sources.items()
            for key, score in source.scores.items()
            if np.isfinite(score.value)
        }


@dataclass(frozen=True, eq=False)
class _Sample:
    """Noise fields, what they depend on, and which of them belong together."""

    fields: Floats
    mask: Mask | None
    labels: Ints | None
    mean: Array | None = None  # m(a) of each field
    size: Floats | None = None  # mean square of one field of each input
    features: Floats | None = None  # of each input
    input_labels: Ints | None = None  # of each input
    fitted: bool = True  # whether mixtures are fitted


def noise_structure(e: EnsembleSummary, test: Pairs, data: Dataset, groups: Ints | None = None) -> NoiseStructure | None:
    """Return the structure of the noise of test pairs and of their ensembles; None if residuals are zero.

    Args:
        e: ensembles of the test pairs.
        test: pairs.
        data: with the recorded noise distribution.
        groups: labels of dependent pairs, (sample,); default: those of groups and repeated inputs.
    """
    mask, observed = test.mask, observations(test)
    labels = test.shared_labels() if groups is None else groups
    residuals = np.asarray(observed - e.mean, dtype=np.float64)
    scale = scale_of(residuals, mask)
    scale = np.where(scale > ROUNDING * scale_of(observed, mask), scale, 0.0)
    if not scale.any():
        return None
    features = _features(test.a, test.scalars)
    samples = {"residuals": _Sample(residuals, mask, labels, e.mean, _size(residuals, mask, scale), features, labels)}
    if e.members > 1:
        samples["members"] = _members(e, mask, labels, scale, features)
    known = known_noise(data)
    truth = _truth(known, test, data, labels)
    if truth is not None:
        samples["truth"] = truth
    places = _places(residuals, mask)
    sources = {name: source for name, s in samples.items() if (source := _source(s, scale, places)) is not None}
    if "members" in sources:
        sources["members"] = _streamed(sources["members"], e, mask, scale)
    draws = sources["truth"].values if "truth" in sources else ()
    nodes = int(np.prod(residuals.shape[2:]))
    exact = tuple(_exact(known, place, values, nodes) for place, values in zip(places, draws, strict=False))
    if exact and not sources["truth"].fits:
        modes = {name: _count(count_modes(law)) for name, law in zip(MODES, (exact[0], exact[-1]), strict=True) if law}
        sources["truth"] = replace(sources["truth"], scores=sources["truth"].scores | modes)
    return NoiseStructure(sources, places, exact or (None,) * len(places))


def _count(number: int) -> Score:
    return Score(float(number), np.nan, np.empty(0))


def known_noise(data: Dataset) -> KnownNoise | None:
    """Return the noise distribution in the metadata of the data, if it can be drawn from and is not zero."""
    try:
        noise = parse(str(data.provenance.get("noise", "none")))
    except UserError:  # a distribution defined by the user
        return None
    return noise if isinstance(noise, KnownNoise) and noise.std > 0 else None


def _members(e: EnsembleSummary, mask: Mask | None, labels: Ints | None, scale: Floats, features: Floats) -> _Sample:
    """Return the kept members minus the mean; members of one input are dependent."""
    n, kept = e.shown.shape[:2]
    noise = np.asarray(e.shown - e.mean[:, None], dtype=np.float64)
    inputs = np.repeat(np.arange(n) if labels is None else labels, kept)
    return _Sample(
        noise.reshape(n * kept, *noise.shape[2:]),
        None if mask is None else np.repeat(mask, kept, axis=0),
        inputs,
        np.repeat(e.mean, kept, axis=0),
        _size(noise[:, 0], mask, scale),
        features,
        labels,
    )


def _truth(known: KnownNoise | None, test: Pairs, data: Dataset, labels: Ints | None) -> _Sample | None:
    """Return draws of the known noise, else the noise of the test pairs, if clean outputs are known."""
    if known is not None:
        count = int(np.clip(TRUE_VALUES // max(1, int(np.prod(test.u.shape[1:]))), 50, TRUE_FIELDS))
        fields = known.sample((count, *test.u.shape[1:]), seed=1)
        mean = known.mean if isinstance(known, GaussianMixture) else 0.0
        return _Sample(
            fields - mean, None if test.mask is None else test.mask[np.arange(count) % len(test)], None, fitted=False
        )
    if test.u_eta is None or data.provenance.get("noise") == "none":
        return None
    noise = np.asarray(test.u_eta - test.u, dtype=np.float64)
    return _Sample(noise, test.mask, labels, test.u)


def _source(s: _Sample, scale: Floats, places: tuple[Place, ...]) -> Source | None:
    """Return the statistics of noise fields; None if there is no noise."""
    statistics = noise_statistics(s.fields, mask=s.mask, labels=s.labels, scale=scale)
    if statistics is None or statistics.scores["average_std"].value < ROUNDING:
        return None
    scores, p_value = dict(statistics.scores), None
    if s.mean is not None and (b := growth(s.fields, s.mean, mask=s.mask, labels=s.labels)) is not None:
        scores["growth"] = b
    if s.size is not None and s.features is not None:
        explained = input_dependence(s.size, s.features, labels=s.input_labels)
        if explained is not None:
            scores["input_dependence"], p_value = explained
    drawn = [_values(s.fields, s.mask, place) for place in places]
    fits = [
        components(values[some], labels=None if s.labels is None else s.labels[rows][some])
        for values, rows in ((drawn[0], drawn[-1]) if s.fitted else ())
        for some in [some_rows(len(values), MOST_VALUES)]
    ]
    scores |= {name: _count(fit.modes) for name, fit in zip(MODES, fits, strict=False) if fit is not None}
    return Source(statistics, scores, p_value, tuple(values for values, _ in drawn), tuple(fits))


def _streamed(source: Source, e: EnsembleSummary, mask: Mask | None, scale: Floats) -> Source:
    """Replace standard deviations of the kept members by those of all members."""
    std, error = rms_field(e.std, mask)
    unit = np.where(scale > 0, scale, np.inf)
    with np.errstate(invalid="ignore"):
        average = np.nan_to_num(e.joint_std[:, 0] / unit) ** 2
    count = np.maximum((np.isfinite(e.joint_pit[:, 0]) & (scale > 0)).sum(axis=1), 1)
    one = np.ones(len(average))
    scores = source.scores | {
        "std": Score.root_of_ratio(_size(e.std, mask, np.ones(len(scale))), one),
        "average_std": Score.root_of_ratio(average.sum(axis=1) / count, one),
    }
    return replace(source, statistics=replace(source.statistics, std=std, std_error=error), scores=scores)


def _size(fields: Array, mask: Mask | None, scale: Floats) -> Floats:
    """Return the mean square of each field (field, channel, *grid), in units of the channels: (field,)."""
    unit = np.where(scale > 0, scale, np.inf).reshape(1, -1, *[1] * (fields.ndim - 2))
    observed = np.ones(fields.shape, dtype=bool) if mask is None else mask
    axes = tuple(range(1, fields.ndim))
    return np.asarray((np.where(observed, fields / unit, 0.0) ** 2).sum(axis=axes) / np.maximum(observed.sum(axis=axes), 1))


def _places(residuals: Floats, mask: Mask | None) -> tuple[Place, ...]:
    """Return the average, the central node and the node with the largest standard deviation, of the first channel."""
    std = rms_field(residuals[:, 0], None if mask is None else mask[:, 0])[0]
    if mask is not None:
        count = mask[:, 0].sum(axis=0)
        std = np.where(count >= max(1, 0.5 * count.max()), std, np.nan)  # nodes that are observed often enough
    if not np.isfinite(std).any():
        return (Place("field average", None),)
    largest = tuple(int(i) for i in np.unravel_index(np.nanargmax(std), std.shape))
    centre = tuple(n // 2 for n in std.shape)
    places = [Place("field average", None), Place("centre", centre), Place("largest standard deviation", largest)]
    return tuple(places if np.isfinite(std[centre]) and centre != largest else [places[0], places[2]])


def _values(fields: Floats, mask: Mask | None, place: Place) -> tuple[Floats, Ints]:
    """Return the scalar at a place, and the numbers of the fields in which it is observed."""
    first = fields[:, 0]
    observed = np.ones(first.shape, dtype=bool) if mask is None else mask[:, 0]
    if place.node is not None:
        k = int(np.ravel_multi_index(place.node, first.shape[1:]))
        rows = np.flatnonzero(observed.reshape(len(first), -1)[:, k])
        return first.reshape(len(first), -1)[rows, k], rows
    axes = tuple(range(1, first.ndim))
    count = observed.sum(axis=axes)
    rows = np.flatnonzero(count)
    return np.where(observed, first, 0.0).sum(axis=axes)[rows] / count[rows], rows


def _exact(known: KnownNoise | None, place: Place, draws: Floats, nodes: int) -> Mixture | None:
    """Return the exact density of a scalar of the known noise; for field noise a Gaussian with the std of draws.

    Args:
        known: distribution.
        place: of the scalar.
        draws: of the scalar.
        nodes: over which the average is taken.
    """
    one = np.ones(1)
    shrink = 1.0 if place.node is not None else np.sqrt(nodes)
    if isinstance(known, GaussianMixture) and (place.node is not None or known.shared):
        means, stds = known.scale * np.array(known.means) - known.mean, known.scale * np.array(known.stds) / shrink
        return Mixture(np.array(known.weights), means, np.maximum(stds, 1e-9 * known.std))
    if isinstance(known, Gaussian):
        return Mixture(one, 0 * one, known.std / shrink * one)
    return Mixture(one, 0 * one, np.sqrt(np.mean(draws**2)) * one) if isinstance(known, FieldNoise) else None


def _features(a: Array, scalars: Array | None) -> Floats:
    """Return features of inputs, (sample, feature): mean and log std of each channel, principal components, scalars."""
    flat = np.asarray(a, dtype=np.float64).reshape(*a.shape[:2], -1)
    std = flat.std(axis=2)
    rows = flat.reshape(len(flat), -1)
    rows = rows[:, :: max(1, rows.shape[1] // COLUMNS)]
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    principal = (u * s)[:, :PRINCIPAL][:, s[:PRINCIPAL] > 1e-9 * max(1e-300, float(np.abs(rows).max(initial=0.0)))]
    parts = [flat.mean(axis=2), np.log(std + 1e-12 * max(1e-300, float(std.max(initial=0.0)))), principal]
    return np.concatenate([*parts, *([] if scalars is None else [np.asarray(scalars, dtype=np.float64)])], axis=1)
