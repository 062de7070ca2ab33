"""Summaries of the ensembles that a model draws, accumulated while streaming: memory does not grow with the number of members.

X_1, …, X_M ~ q_θ(· | a),    y = u^η:        mean, std, central intervals, rank of y, CRPS, energy score, spectrum

Differences below 10⁻⁹ of the size of a channel are rounding: members and observation are equal then, and where all of them are,
there is nothing to judge and no rank.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from .._typing import Array, Floats, Ints, Mask
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from .metrics import spectrum
from .novelty import Novelty
from .ranks import Ranks, channel_functionals
from .running import RunningCRPS, RunningEnergy
from .streaming import Moments, Statistics, central

__all__ = [
    "FUNCTIONAL_LEVEL",
    "LEVELS",
    "ROUNDING",
    "SHOWN_MEMBERS",
    "EnsembleSummary",
    "Forecaster",
    "GivenInputs",
    "channel_rms",
    "observations",
    "summarise",
]

LEVELS = (0.5, 0.9, 0.95)  # nominal levels of the central intervals
SHOWN_MEMBERS = 3  # fewest members of each input that are kept, to be plotted
KEPT_FIELDS = 300  # members of all inputs that are kept, if SHOWN_MEMBERS of each are fewer
FUNCTIONAL_LEVEL = 0.9  # nominal level of the intervals of functionals
SPECTRUM_MEMBERS = 100  # members that the mean spectrum is computed from
ROUNDING = 1e-9  # of the size of a channel, up to which values are equal
CHANNEL_AXIS = {"shown": 2, "bounds": 3, "joint_pit": 2, "joint_observed": 2, "joint_std": 2, "joint_bounds": 3}
OF_ALL_CHANNELS = ("energy", "spectrum")  # fields of a summary without an axis of channels
UNITLESS = ("pit", "joint_pit")


class GivenInputs(Protocol):
    """The predictive distribution for some inputs."""

    @property
    def mean(self) -> Array | None:
        """Exact mean of the distribution, (sample, channel, *grid); None if it is available only from members."""

    def stream(
        self, members: int, seed: int = 0, *, chunk: int | None = None, start: int = 0, **sampling: Any
    ) -> Iterator[tuple[Ints, Ints, Array]]:
        """Yield (inputs, members, values): numbers (row,) of inputs and members, and values (row, channel, *grid).

        All members of the first input come first, then those of the second, and so on.

        Args:
            members: number of members for each input.
            seed: of the members.
            chunk: rows per call of the network.
            start: number of the first input; members are a function of it.
            sampling: sampling settings, such as steps=20.
        """


class Forecaster(Protocol):
    """What evaluation requires of a fitted model."""

    @property
    def deterministic(self) -> bool:
        """Whether all members of an input are equal."""

    @property
    def parameters(self) -> int:
        """Number of fitted parameters."""

    @property
    def novelty(self) -> Novelty | None:
        """Novelty score of inputs, if there is one."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata of the fit, such as the number of training pairs."""

    @property
    def spaces(self) -> Spaces:
        """Grids and channels of a and u."""

    def given(self, a: Any, scalars: Any = None) -> GivenInputs:
        """Return the predictive distribution for inputs a (sample, channel, *grid) and scalars (sample, parameter)."""

    def evaluations(self, **sampling: Any) -> int:
        """Return the number of network evaluations per member."""


@dataclass(frozen=True)
class EnsembleSummary:
    """Statistics of the ensembles for some pairs. Fields are (sample, channel, *grid).

    `energy` and `spectrum` are those of channels in units of `units`.
    """

    mean: Floats
    std: Floats
    shown: Array  # the first members, at least SHOWN_MEMBERS if there are so many, (sample, member, channel, *grid)
    pit: Floats  # NaN where u is missing, or equal to all members
    bounds: Floats  # of the central intervals of LEVELS, (level, 2, sample, channel, *grid)
    joint_pit: Floats  # PIT of the functionals of each channel, (sample, functional, channel); NaN as pit
    joint_observed: Floats  # the functionals of the observations, in the same shape
    joint_std: Floats  # standard deviation of the functionals over members, in the same shape
    joint_bounds: Floats  # of their central intervals of FUNCTIONAL_LEVEL, (2, sample, functional, channel)
    crps: Floats
    energy: Floats  # (sample,)
    spectrum: Floats  # mean over members, (sample, band)
    members: int
    seconds: float
    exact_mean: bool = False  # whether `mean` is that of the distribution instead of the members

    @property
    def judged(self) -> Mask:
        """Where observations differ from members, so that they can be judged, (sample, channel, *grid)."""
        return np.isfinite(self.pit)

    def in_units(self, channels: Sequence[int], units: Floats) -> "EnsembleSummary":
        """Return the summary of some channels, divided by their units (of the selected channels)."""
        parts: dict[str, Any] = {}
        for name, values in ((f.name, getattr(self, f.name)) for f in fields(self)):
            if isinstance(values, np.ndarray) and name not in OF_ALL_CHANNELS:
                axis = CHANNEL_AXIS.get(name, 1)
                part = np.take(values, channels, axis=axis)
                unit = units.reshape(-1, *(1,) * (part.ndim - axis - 1))
                parts[name] = part if name in UNITLESS else part / unit
        return replace(self, **parts)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the bounds of the central interval of one of LEVELS."""
        lower, upper = self.bounds[LEVELS.index(level)]
        return lower, upper


class _Accumulator:
    """Statistics of the ensemble for one input, updated with batches of members."""

    def __init__(
        self,
        observed: Array,
        mask: Mask | None,
        weights: Array | None,
        scales: tuple[Floats, Floats],
        members: int,
        kept: int,
        seed: int,
        index: int,
    ) -> None:
        self.mask, self.kept = mask, kept
        self.units, tolerance = (x.reshape(-1, *(1,) * (observed.ndim - 1)) for x in scales)
        u = self._masked(observed)
        self.quantile_levels = [central(level, members) for level in LEVELS]
        self.statistics = Statistics(u.shape, sorted({p for pair in self.quantile_levels for p in pair}))
        self.crps, self.energy = RunningCRPS(u), RunningEnergy(u / self.units, mask=mask, weights=weights)
        self.ranks = Ranks(np.where(True if mask is None else mask, observed, np.nan), seed, index, tolerance)
        self.joint = channel_functionals(u[None], mask=mask)[0]
        self.joint_members: list[Floats] = []
        self.joint_ranks = Ranks(self.joint, seed + 2, index, scales[1])
        self.spectrum = Moments(spectrum(u[None]).shape[1:])
        self.shown: list[Array] = []

    def _masked(self, fields: Array) -> Array:
        """Set missing points to 0."""
        return fields if self.mask is None else np.where(self.mask, fields, 0.0)

    def add(self, members: Array) -> None:
        """Add a batch of members, (k, channel, *grid)."""
        self.shown += list(members[: max(0, self.kept - len(self.shown))])
        members = self._masked(members)
        for each in (self.statistics, self.crps, self.ranks):
            each.add(members)
        self.energy.add(members / self.units)
        self.joint_members.append(channel_functionals(members, mask=self.mask))
        used = members[: max(0, SPECTRUM_MEMBERS - self.spectrum.count)]
        if len(used):
            self.spectrum.add(spectrum(used / self.units))

    @property
    def count(self) -> int:
        """Number of members so far."""
        return self.statistics.moments.count

    def result(self) -> dict[str, Any]:
        """Return the fields of `EnsembleSummary` for this input."""
        moments, quantiles = self.statistics.moments, self.statistics.quantiles.values
        joint = np.concatenate(self.joint_members)
        self.joint_ranks.add(joint)
        return {
            "mean": moments.mean,
            "std": moments.std if self.count > 1 else np.zeros_like(moments.mean),
            "shown": np.stack(self.shown),
            "pit": _judged(self.ranks),
            "bounds": np.stack([[quantiles[low], quantiles[high]] for low, high in self.quantile_levels]),
            "joint_pit": _judged(self.joint_ranks),
            "joint_observed": self.joint,
            "joint_std": joint.std(axis=0, ddof=1) if self.count > 1 else np.zeros_like(self.joint),
            "joint_bounds": _quantiles(joint, central(FUNCTIONAL_LEVEL, self.count)),
            "crps": self.crps.value,
            "energy": self.energy.value,
            "spectrum": self.spectrum.mean,
        }


def _judged(ranks: Ranks) -> Floats:
    """Return PIT; NaN where all members are equal to the observation."""
    return np.where(ranks.tied, np.nan, ranks.pit)


def _quantiles(values: Floats, levels: tuple[float, float]) -> Floats:
    """Return quantiles over the first axis, as numpy.quantile, which is slower for few values."""
    ordered, position = np.sort(values, axis=0), np.array(levels) * (len(values) - 1)
    low, high = np.floor(position).astype(int), np.ceil(position).astype(int)
    fraction = (position - low).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(ordered[low] + (ordered[high] - ordered[low]) * fraction)


def summarise(
    model: Forecaster,
    pairs: Pairs,
    members: int = 100,
    seed: int = 0,
    start: int = 0,
    progress: Callable[[int], None] | None = None,
    units: Floats | None = None,
    **sampling: Any,
) -> EnsembleSummary:
    """Draw members for the inputs of these pairs, and compare them with the observations.

    Args:
        model: any model or baseline; a deterministic one has a single member.
        pairs: inputs and observations.
        members: number of members for each input.
        seed: of the members.
        start: number of the first input; members are a function of it.
        progress: called after every batch with its number of members.
        units: of the channels in energy scores and spectra, (channel,); default: 1.
        sampling: sampling settings, such as steps=20.
    """
    begin = perf_counter()
    observed, mask, weights = observations(pairs), pairs.mask, pairs.weights
    count = 1 if model.deterministic else members
    scales = np.ones(observed.shape[1]) if units is None else units, ROUNDING * channel_rms(observed, mask)
    kept = min(count, max(SHOWN_MEMBERS, KEPT_FIELDS // len(pairs)))
    given = model.given(pairs.a, pairs.scalars)
    results: list[dict[str, Any]] = []
    current: _Accumulator | None = None
    for inputs, _, values in given.stream(count, seed, start=start, **sampling):
        for i in np.unique(inputs):
            if current is None:
                seen = None if mask is None else mask[i]
                current = _Accumulator(observed[i], seen, weights, scales, count, kept, seed, start + int(i))
            current.add(values[inputs == i])
            if current.count == count:
                results.append(current.result())
                current = None
        if progress is not None:
            progress(len(inputs))
    parts = {name: np.stack([result[name] for result in results]) for name in results[0]}
    parts["bounds"] = np.moveaxis(parts["bounds"], 0, 2)
    parts["joint_bounds"] = np.moveaxis(parts["joint_bounds"], 0, 1)
    exact = given.mean
    if exact is not None:
        parts["mean"] = exact
    return EnsembleSummary(**parts, members=count, seconds=perf_counter() - begin, exact_mean=exact is not None)


def channel_rms(values: Array, mask: Mask | None) -> Floats:
    """Return the root mean square of each channel of fields (sample, channel, *grid) where they are observed, (channel,)."""
    axes = (0, *range(2, values.ndim))
    observed = np.broadcast_to(True if mask is None else mask, values.shape)
    squares = np.square(np.where(observed, values, 0.0), dtype=np.float64).sum(axis=axes)
    return np.asarray(np.sqrt(squares / np.maximum(observed.sum(axis=axes), 1)))


def observations(pairs: Pairs) -> Array:
    """Return the noisy outputs u_eta if there are any, else u."""
    return pairs.u if pairs.u_eta is None else pairs.u_eta
