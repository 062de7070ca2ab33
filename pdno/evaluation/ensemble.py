"""Members of a model beside observations, compared as they come: memory does not grow with their number.

X_1, …, X_M ~ q_θ(· | a),    y = u^η:        mean, std, central intervals, rank of y, CRPS, energy score, spectrum
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.pairs import Pairs
from .calibration import Ranks, functionals
from .metrics import RunningCRPS, RunningEnergy, spectrum
from .streaming import Moments, Statistics, central

if TYPE_CHECKING:
    from ..model.surrogate import Surrogate

__all__ = ["LEVELS", "Forecast", "forecast", "observations"]

Array = NDArray[Any]
LEVELS = (0.5, 0.9, 0.95)  # of the central intervals
SEEN = 100  # members from which spectra are taken


@dataclass(frozen=True)
class Forecast:
    """What was forecast for some pairs. Fields are (sample, channel, *grid)."""

    mean: Array
    std: Array
    member: Array  # the first one
    pit: Array
    ends: Array  # (level, 2, sample, channel, *grid): of the central intervals of LEVELS
    whole: Array  # PIT of the functionals of whole fields, (sample, 2)
    crps: Array
    energy: Array  # (sample,)
    spectrum: Array  # (sample, band), mean over members
    members: int
    seconds: float
    exact: bool = False  # whether the mean is that of very many members

    def interval(self, level: float) -> tuple[Array, Array]:
        """Lower and upper end of the central interval of one of LEVELS."""
        low, high = self.ends[LEVELS.index(level)]
        return low, high


class _Judge:
    """One input's ensemble, judged as its members come."""

    def __init__(self, observed: Array, mask: Array | None, members: int, seed: int, index: int) -> None:
        self.mask = mask
        u = self._known(observed)
        self.levels = [central(level, members) for level in LEVELS]
        self.statistics = Statistics(u.shape, sorted({p for pair in self.levels for p in pair}))
        self.crps, self.energy = RunningCRPS(u), RunningEnergy(u, mask=mask)
        self.ranks = Ranks(u, seed, index)
        self.whole = Ranks(functionals(u[None], mask=mask)[0], seed + 1, index)
        self.spectrum = Moments(spectrum(u[None]).shape[1:])
        self.first: Array | None = None

    def _known(self, fields: Array) -> Array:
        return fields if self.mask is None else np.where(self.mask, fields, 0.0)

    def add(self, members: Array) -> None:
        self.first = members[0] if self.first is None else self.first
        members = self._known(members)
        for judge in (self.statistics, self.crps, self.energy, self.ranks):
            judge.add(members)
        self.whole.add(functionals(members, mask=self.mask))
        seen = members[: max(0, SEEN - self.spectrum.count)]
        if len(seen):
            self.spectrum.add(spectrum(seen))

    @property
    def count(self) -> int:
        return self.statistics.moments.count

    def results(self) -> dict[str, Any]:
        moments, quantiles = self.statistics.moments, self.statistics.quantiles.values
        return {
            "mean": moments.mean,
            "std": moments.std if self.count > 1 else np.zeros_like(moments.mean),
            "member": self.first,
            "pit": self.ranks.pit,
            "ends": np.stack([[quantiles[low], quantiles[high]] for low, high in self.levels]),
            "whole": self.whole.pit,
            "crps": self.crps.value,
            "energy": self.energy.value,
            "spectrum": self.spectrum.mean,
        }


def forecast(
    model: "Surrogate",
    pairs: Pairs,
    members: int = 100,
    seed: int = 0,
    start: int = 0,
    progress: Callable[[int], None] | None = None,
    **how: Any,
) -> Forecast:
    """Forecast these pairs and compare members with observations as they come.

    Args:
        model: any model or baseline; a deterministic one gives a single member.
        pairs: inputs and observations.
        members: to draw for each input.
        seed: of the members.
        start: number of the first input, which its members are a function of.
        progress: called with the number of members after each call of the network.
        how: handed on to the model, such as steps=20.
    """
    begin = perf_counter()
    outputs, mask = observations(pairs), pairs.mask
    drawn = 1 if model.deterministic else members
    found: list[dict[str, Any]] = []
    judge: _Judge | None = None
    for inputs, _, values in model.stream(pairs.a, pairs.scalars, drawn, seed, None, start, **how):
        for i in np.unique(inputs):
            if judge is None:
                judge = _Judge(outputs[i], None if mask is None else mask[i], drawn, seed, start + int(i))
            judge.add(values[inputs == i])
            if judge.count == drawn:
                found.append(judge.results())
                judge = None
        if progress is not None:
            progress(len(inputs))
    fields = {name: np.stack([one[name] for one in found]) for name in found[0]}
    fields["ends"] = np.moveaxis(fields["ends"], 0, 2)
    if (known := model.known_mean(pairs.a, pairs.scalars)) is not None:
        fields["mean"] = known
    return Forecast(**fields, members=drawn, seconds=perf_counter() - begin, exact=known is not None)


def observations(pairs: Pairs) -> Array:
    """The noisy outputs where there are such, else u."""
    return pairs.u if pairs.u_eta is None else pairs.u_eta
