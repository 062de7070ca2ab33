r"""The default for the mean operator: try, measure, choose, say why.

Candidates, from cheap to dear, are measured by the mean absolute error of their answers to the held-out inputs, as a fraction
of what the training mean leaves:

    linear → kernel → fno and slim, each for a short while → the better one of these two, for the rest of its share of the time

(one that has hardly begun to learn in its short while, where the other one has, gets a longer one; where they are close, each
goes on for half of the time).

Trying ends early where nothing is left to learn: the answers are exact, or what they leave is white noise (neighbouring points
have nothing in common with each other, nor with the input there). Networks go on unless, at the pace of PACE, they would not
get below the best so far. Of candidates whose errors differ by less than the standard error of the difference, the cheaper one
is taken.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..basis import Kind
from ..data.pairs import Pairs
from ..errors import UserError
from ..grid import Axis, Grid, interpolate
from ..learning.loop import Training
from ..model.surrogate import Terms
from ..symmetry import Own
from . import Kernel, Linear, Mean, Network, mean_of
from .choice import Chosen, Trial
from .network import recipe

__all__ = ["NETWORKS", "learn_mean", "zeroed"]

Array = NDArray[Any]
EXACT = 1e-6  # error, as a fraction of the spread of u, below which nothing is left to learn
WHITE = 0.03  # correlation of neighbouring points, below which what is left is noise
KERNEL, SHORT = 0.35, 0.1  # shares of the time for the kernel, and for a first look at a network
PACE = 0.7  # errors of networks fall at most about as time to the power −PACE
CLOSE = 1.5  # ratio of errors after a short while, below which either network may be the better one in the end
YOUNG = 0.5  # error above which a network has hardly begun to learn, and its pace says nothing
LEAST, LOST = 32, 0.05  # points that networks need, and what a coarser mesh may cost, over the least error so far
TINY = 1e-300
FEW = 8  # pairs below which networks are not tried
NETWORKS = {"fno": "a Fourier neural operator", "slim": "a slim UNet"}


def learn_mean(
    asked: str | Mapping[str, Any] | Mean,
    pairs: Pairs,
    validation: Pairs | None,
    terms: Terms,
    *,
    symmetries: Sequence[str | Own] = (),
    kind: Kind | Sequence[Kind] = "cell",
    training: Training | None = None,
    share: float = 1.0,
    tell: Callable[[str], None] = lambda text: None,
) -> Chosen:
    """A mean operator that has learned from pairs: the one asked for, or the best of some ("auto").

    Args:
        asked: "auto", or what `pdno.mean.mean_of` takes.
        pairs: to learn from.
        validation: held out, to choose by.
        terms: seed, folder, devices and deadline.
        symmetries, kind: of the operator and of the grid's axes.
        training: of networks; None for their own recipe.
        share: of the time that is left, for all of it.
        tell: called with each trial, in a line.
    """
    contest = Contest(pairs, validation, terms, tuple(symmetries), kind, training, share, tell)
    if asked != "auto":
        mean = mean_of(asked, symmetries=contest.symmetries, kind=kind)
        if contest.holes and not isinstance(mean, Network):
            raise UserError(
                f"{mean.name} regression needs outputs that are known at the same places in all samples; learn with a network, "
                "such as mean='slim'"
            )
        networks = [part for part in mean.parts_below() if isinstance(part, Network)]
        for part in networks:
            contest.limit(part, None if contest.budget is None else contest.budget / len(networks))
        if isinstance(mean, Kernel) and not isinstance(asked, Mean) and contest.alone:
            mean.budget = contest.budget  # one that was brought keeps its own
        contest.learned(mean, "mean")
        return Chosen(mean, contest.settled("mean"), "as asked for", bool(validation) and contest.exact("mean"))
    if not validation:
        raise UserError('mean="auto" chooses by pairs that are not learned from; hold some out (validation=0.1)')
    return contest.run()


class Contest:
    """Candidates that learn one after the other."""

    def __init__(
        self,
        pairs: Pairs,
        validation: Pairs | None,
        terms: Terms,
        symmetries: tuple[str | Own, ...],
        kind: Kind | Sequence[Kind],
        training: Training | None,
        share: float,
        tell: Callable[[str], None],
    ) -> None:
        self.pairs, self.validation, self.terms = pairs, validation, terms
        self.symmetries, self.kind, self.training, self.tell = symmetries, kind, training, tell
        left = terms.left(share)
        self.alone = terms.alone
        self.budget, self.end = left, None if left is None else time.monotonic() + left
        self.trials: list[Trial] = []
        self.errors: dict[str, Array] = {}  # of each held-out pair
        self.means: dict[str, Mean] = {}
        self.holes = pairs.mask is not None and bool((pairs.mask != pairs.mask[:1]).any())
        self.centre = zeroed(pairs).sum(axis=0) / (len(pairs) if pairs.mask is None else np.maximum(pairs.mask.sum(axis=0), 1))
        self.unit = _unit(validation, self.centre) if validation else np.ones(0)

    def run(self) -> Chosen:
        """Go through the candidates until nothing is left to learn, or no time."""
        self.closed("linear", Linear())
        if (reason := self.finished()) is None:
            limit = None if self.end is None or not self.alone else KERNEL * max(0.0, self.end - time.monotonic())
            self.closed("kernel", Kernel(symmetries=self.symmetries, kind=self.kind, budget=limit))
            reason = self.finished()
        if reason is None:
            reason = self.networks()
        best = self.best()
        return Chosen(self.means[best], self.settled(best), f"{self.named(best)} was taken: {reason}", self.exact(best))

    def settled(self, taken: str) -> tuple[Trial, ...]:
        return tuple(replace(trial, taken=trial.name == taken) for trial in self.trials)

    def closed(self, name: str, mean: Mean) -> None:
        """A candidate with a closed form."""
        if self.holes:
            self.skip(name, "outputs are known at different places in different samples, which only networks can learn from")
            return
        try:
            self.learned(mean, name)
        except (UserError, MemoryError, np.linalg.LinAlgError) as error:
            self.skip(name, str(error) or "there is not enough memory")

    def networks(self) -> str:
        """A short look at each network, then the better one for as long as it may; why the contest ended."""
        if len(self.pairs) < FEW:
            return f"{len(self.pairs)} pairs are too few for networks" if self.means else self.must("slim")
        short = None if self.budget is None else self.budget * (SHORT if self.alone else 1 / 3)
        for name in NETWORKS:
            self.look(name, short)
        looks = self.looks
        if not looks or short is None or self.end is None or not self.alone:
            return "it has the smallest error on held-out pairs"
        for name in [name for name in looks if looks[name] > YOUNG > min(looks.values())]:
            self.look(name, 2 * short, "longer")
        return self.race(short, self.end - time.monotonic())

    def race(self, short: float, left: float) -> str:
        """The better network, or both where they are close, for the time that is left; why the contest ended."""
        looks = self.looks
        best = min(looks.values())
        hoped = best * max(1.0, left / short) ** -PACE
        if left < 2 * short or (hoped > self.error(self.best()) and best < YOUNG):
            return "networks would not get below its error in the time that is left, at the pace of their first steps"
        close = [name for name in looks if looks[name] <= (CLOSE if left > 4 * short else 1.0) * best]
        for name in close:
            try:
                self.learned(self.network(name, left / len(close)), name)
            except UserError as error:  # such as a loss that is no number
                self.skip(name, str(error))
        return "it has the smallest error on held-out pairs"

    def look(self, name: str, seconds: float | None, how: str = "short") -> None:
        """Let a network learn for a while."""
        if self.alone and self.end is not None and seconds is not None:
            seconds = min(seconds, self.end - time.monotonic())
            if seconds < 1:
                self.skip(name, "no time was left")
                return
        try:
            self.learned(self.network(name, seconds), name if seconds is None else f"{name}, {how}")
        except UserError as error:  # grids that a network cannot work on
            self.skip(name, str(error))

    @property
    def looks(self) -> dict[str, float]:
        """Networks that have learned, and the least error of each."""
        found: dict[str, float] = {}
        for trial in self.trials:
            name = trial.name.split(",")[0]
            if name in NETWORKS and trial.error is not None:
                found[name] = min(trial.error, found.get(name, np.inf))
        return found

    def must(self, name: str) -> str:
        self.learned(self.network(name, self.budget), name)
        return "nothing else can learn from these pairs"

    def network(self, name: str, budget: float | None) -> Network:
        return self.limit(Network(name, self.symmetries, self.kind, points=self.mesh), budget)

    @cached_property
    def mesh(self) -> int | None:
        """Points of the coarsest mesh, by halves, that networks need on a line: it loses LOST of the least error so far."""
        assert self.validation
        a, u = self.validation.a, self.validation.u
        if u.ndim != 3 or a.shape[2:] != u.shape[2:] or self.validation.mask is not None or not self.errors:
            return None
        points, axis = u.shape[2], Axis(u.shape[2], self.kind if isinstance(self.kind, str) else self.kind[0])
        fine = Grid((axis,))

        def lost(count: int) -> float:
            coarse = fine.with_points(count)
            back = [interpolate(interpolate(x, fine, coarse, "spectral"), coarse, fine, "spectral") for x in (a, u)]
            return max(float(np.abs(y - x).mean() / max(x.std(), TINY)) for x, y in zip((a, u), back, strict=True))

        try:
            while points // 2 >= LEAST and lost(points // 2) < LOST * self.error(self.best()):
                points //= 2
        except UserError:  # an axis without such a series
            return None
        return points if points < u.shape[2] else None

    def limit(self, mean: Network, budget: float | None) -> Network:
        """Give a network the loop and the time that it has not brought itself."""
        if mean.budget is None:
            mean.model.budget = budget
        if mean.training is None:
            loop = recipe(mean.model.budget is not None, self.training, mean.model.asked)
            mean.model.training = replace(loop, batch=min(loop.batch, len(self.pairs)))
        return mean

    def learned(self, mean: Mean, name: str) -> None:
        """Fit a candidate and measure it."""
        begin = time.monotonic()
        if isinstance(mean, Network):
            mean.learn(self.pairs, self.validation, self.terms, name.replace(", ", "-"))
        else:
            mean.fit(self.pairs.a, zeroed(self.pairs), self.pairs.scalars, self.terms.seed)
        seconds = time.monotonic() - begin
        error = None
        if self.validation:
            self.errors[name] = _errors(mean, self.validation, self.unit)
            error = float(self.errors[name].mean())
        self.means[name] = mean
        self.trials.append(Trial(name, error, mean.describe(), seconds))
        told = "" if error is None else f" leaves {error:.3g} of the variation"
        self.tell(f"{name}:{told} ({seconds:.0f} s)")

    def skip(self, name: str, reason: str) -> None:
        self.trials.append(Trial(name, None, reason))
        self.tell(f"{name}: left out, {reason}")

    def error(self, name: str) -> float:
        """Mean error over what the training mean leaves."""
        return float(self.errors[name].mean())

    def exact(self, name: str) -> bool:
        """In every channel."""
        return float(self.errors[name].mean(axis=0).max()) < EXACT

    def best(self) -> str:
        """The cheapest of those that are as good as the best but for chance."""
        if not self.errors:
            raise UserError("; ".join(f"{trial.name}: {trial.note}" for trial in self.trials))
        leader = min(self.errors, key=self.error)
        for name in self.errors:
            gain = (self.errors[name] - self.errors[leader]).mean(axis=1)
            doubt = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
            if gain.mean() <= min(doubt, 0.02 * self.errors[leader].mean()):
                return name
        return leader

    def finished(self) -> str | None:
        """Why nothing is left to learn; None if something is."""
        if not self.errors:
            return None
        best = self.best()
        if self.exact(best):
            return "its answers are exact, but for rounding"
        assert self.validation
        residual = self.validation.u - self.means[best](self.validation.a, self.validation.scalars)
        white = abs(correlation(residual, self.validation.mask)) < WHITE and not related(residual, self.validation)
        return "what it leaves is white noise" if white else None

    @staticmethod
    def named(name: str) -> str:
        short = name.split(",")[0]
        return NETWORKS.get(short, f"{short} regression")


def correlation(residual: Array, mask: Array | None = None) -> float:
    """Correlation of neighbouring points, the largest over the axes; channels count alike."""
    r = residual if mask is None else np.where(mask, residual, 0.0)
    size = np.sqrt(np.mean(r**2, axis=(0, *range(2, r.ndim)), keepdims=True))
    r = np.divide(r, size, out=np.zeros(r.shape), where=size > 0)
    power = float(np.mean(r**2))
    if power == 0:
        return 0.0
    axes = range(2, r.ndim)
    near = [np.mean(np.take(r, range(1, r.shape[k]), k) * np.take(r, range(r.shape[k] - 1), k)) for k in axes if r.shape[k] > 1]
    return float(max(near, key=abs) / power) if near else 1.0


def related(residual: Array, pairs: Pairs, bins: int = 20) -> bool:
    """Whether residuals have other means where the input has other values, there or next to it: noise has not."""
    a = pairs.a
    if a.shape[2:] != residual.shape[2:] or pairs.mask is not None:
        return False
    nearby = [a, *(np.roll(a, shift, axis) for axis in range(2, a.ndim) for shift in (-1, 1))]
    for values in (x[:, c] for x in nearby for c in range(a.shape[1])):
        edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
        label = np.digitize(values, edges).ravel()
        count = np.maximum(np.bincount(label, minlength=len(edges) + 1), 1)
        for r in (residual[:, c].ravel() for c in range(residual.shape[1])):
            told = float((np.bincount(label, r, minlength=len(count)) ** 2 / count).sum())
            if told > (bins + 6 * np.sqrt(2 * bins)) * float(np.mean(r**2)):  # χ² of so many bins, but for chance
                return True
    return False


def _errors(mean: Mean, validation: Pairs, unit: Array) -> Array:
    """Mean absolute error of each held-out pair and channel, over the unit of the channel."""
    return _mean_absolute(validation.u - mean(validation.a, validation.scalars), validation.mask) / unit


def _unit(validation: Pairs, centre: Array) -> Array:
    """What the training mean leaves of each channel; its size if it is constant but for rounding."""
    size, spread = (_mean_absolute(v, validation.mask).mean(axis=0) for v in (validation.u, validation.u - centre))
    unit = np.where(spread > 1e-12 * size, spread, size)
    return np.where(unit > 0, unit, 1.0)


def _mean_absolute(values: Array, mask: Array | None) -> Array:
    """Of each sample and channel."""
    axes = tuple(range(2, values.ndim))
    if mask is None:
        return np.asarray(np.abs(values).mean(axis=axes))
    return np.asarray(np.where(mask, np.abs(values), 0).sum(axis=axes) / np.maximum(mask.sum(axis=axes), 1))


def zeroed(pairs: Pairs) -> Array:
    """Outputs with zeros where they are not known."""
    return pairs.u if pairs.mask is None else np.where(pairs.mask, pairs.u, 0.0)
