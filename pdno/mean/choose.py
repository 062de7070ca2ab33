r"""Model selection for the mean: train candidates within the time budget, compare them on held-out pairs, give the reason.

Candidates are tried from cheap to costly and compared by the mean absolute error on held-out pairs / that of the training mean:

    constant → linear → kernel → screening of two or three networks → final training of the best one

The networks are an FNO and a slim UNet; in two dimensions also an FNO with a local path, and all are small unless there is
time for many steps of a large one.

A network that has hardly started to learn, while another one has, is screened for longer; close ones share the remaining time.

Selection stops early if nothing is left to learn: the predictions are exact, or the residuals are white noise (uncorrelated
between neighbouring nodes and unrelated to the input there). Final training is skipped if the error extrapolated by
time^−PACE would not beat the best so far. Of candidates whose errors differ by less than one standard error of the difference,
the cheapest is selected.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .._typing import Array
from ..basis import Kind
from ..data.pairs import Pairs
from ..errors import UserError
from ..evaluation.principal import principal, without_leading
from ..evaluation.whiteness import depends_on_input, is_uncorrelated
from ..learning.budget import Terms
from ..learning.network import NEEDS_GRID
from ..learning.resume import session_seconds
from ..symmetry import Own
from .base import Mean
from .build import mean_of
from .choice import Choice, Trial
from .compare import equally_good, mean_absolute, unit_of_errors
from .constant import Constant
from .kernel.kernel import Kernel
from .linear.linear import Linear
from .mesh import coarsest
from .network import Network
from .noise import noise_share
from .process.process import Process

__all__ = ["CANDIDATES", "EXACT", "MeanSelection", "choose_mean"]

EXACT = 1e-6  # error, relative to the spread of u, below which nothing is left to learn
KERNEL_FRACTION = 0.2  # of the time, for the kernel
SCREENING_FRACTION = 0.08  # of the time, for screening one network
PACE = 0.7  # the error of a network falls at most about as time^−PACE
CLOSE = 1.5  # ratio of errors after screening below which either network may win
STARTED = 0.5  # error above which a network has hardly started to learn, and its pace is unknown
COARSE_LOSS = 0.05  # error that a coarser mesh may add, relative to the smallest error so far
FEWEST_PAIRS = 8  # below which networks are not tried
DOMINANT = 0.5  # share of the variance of residuals in one component, above which it hides errors of the mean
SHARED = 0.2  # share of the variance of a component that is removed then
ENOUGH_STEPS = 1500  # of a large network: if there is no time for them, many steps of a small one are better
COST = 5.5  # time of a step of a large network, relative to that of a small one
NETWORKS = {"fno": "A Fourier neural operator", "slim": "A slim UNet", "local": "A Fourier neural operator with a local path"}
TRIED = {1: ("fno", "slim"), 2: ("slim", "local", "fno"), 3: ("fno",)}  # by dimension
SMALL = {"slim": "small", "local": "small-local", "fno": "small-fno"}  # for short training in two dimensions and more
CANDIDATES = (
    "mean",
    *(f"{name}{stage}" for name in NETWORKS for stage in ("", "-small", "-screening", "-extended", "-refitted")),
)
TINY = 1e-300

Observed = Callable[[Mean, Pairs, Terms], Array]


def choose_mean(
    mean: str | Mapping[str, Any] | Mean,
    pairs: Pairs,
    held_out: Pairs | None,
    terms: Terms,
    *,
    symmetries: Sequence[str | Own] = (),
    kind: Kind | Sequence[Kind] = "cell",
    learn_observed: Observed | None = None,
) -> Choice:
    """Train the requested mean, or select the best candidate ("auto").

    Args:
        mean: "auto", or what `pdno.mean.mean_of` takes.
        pairs: training pairs.
        held_out: validation pairs to select by.
        terms: seed, folder, devices and deadline; `terms.log` receives a line for each candidate.
        symmetries: exact symmetries of the operator.
        kind: of the grid's axes.
        learn_observed: see `MeanSelection`.

    Returns:
        The trained mean, all candidates, and the reason in words.

    Raises:
        UserError: if "auto" has no held-out pairs, or the requested mean cannot be trained on these pairs.
    """
    selection = MeanSelection(pairs, held_out, terms, tuple(symmetries), kind, learn_observed)
    if mean != "auto":
        return selection.only(mean_of(mean, symmetries=tuple(symmetries), kind=kind))
    if not held_out:
        raise UserError('mean="auto" is selected on held-out pairs; got none, pass validation=0.1')
    return selection.run(held_out)


class MeanSelection:
    """Candidates that are trained one after the other.

    Args:
        pairs: training pairs.
        held_out: validation pairs to select by.
        terms: seed, folder, devices and deadline.
        symmetries: exact symmetries of the operator.
        kind: of the grid's axes.
        learn_observed: trains a mean that needs complete outputs on outputs that are observed at different nodes in different
            samples, and returns the completed ones; None if there is no such method.
    """

    def __init__(
        self,
        pairs: Pairs,
        held_out: Pairs | None,
        terms: Terms,
        symmetries: tuple[str | Own, ...],
        kind: Kind | Sequence[Kind],
        learn_observed: Observed | None = None,
    ) -> None:
        self.pairs, self.held_out, self.terms = pairs, held_out, terms
        self.symmetries, self.kind, self.learn_observed = symmetries, kind, learn_observed
        self.on_nodes = "node" in kind
        self.budget = terms.left()
        self.trials: list[Trial] = []
        self.means: dict[str, Mean] = {}
        self.residuals: dict[str, Array] = {}  # of the held-out pairs
        self.completed: dict[str, Array] = {}  # outputs on which a mean was trained, if some are missing
        self.errors: dict[str, Array] = {}  # of each held-out pair and channel
        count = len(pairs) if pairs.mask is None else np.maximum(pairs.mask.sum(axis=0), 1)
        self.unit = unit_of_errors(held_out, pairs.filled.sum(axis=0) / count) if held_out else np.ones(0)

    def only(self, mean: Mean) -> Choice:
        """Train the mean that was requested."""
        self.train(mean, "mean", self.terms.below("mean"))
        return self.choice("mean", "As requested")

    def run(self, held_out: Pairs) -> Choice:
        """Train one candidate after the other until residuals are noise or the time is used up; select the best."""
        reason = self.screen(held_out)
        return self.selected(self.finish(self.terms.left()) if reason is None else reason)

    def screen(self, held_out: Pairs) -> str | None:
        """Train the candidates with closed-form solutions, then screen the networks.

        Returns:
            Why the selection ended; None if the final training of a network may still be better.
        """
        if len(held_out):
            self.train(Constant(symmetries=self.symmetries, kind=self.kind), "constant", self.terms)
        self.closed_form("linear", Linear(smooth=False if self.on_nodes else "auto"), 1.0)
        if (reason := self.finished(held_out)) is not None:
            return reason
        self.closed_form("kernel", Kernel(symmetries=self.symmetries, kind=self.kind), KERNEL_FRACTION)
        if Process.suits(self.pairs):
            self.closed_form("process", Process(), KERNEL_FRACTION)
        return self.finished(held_out) or self.screen_networks()

    def noise_share(self) -> float:
        """Return an upper estimate of the share of noise in the held-out residuals of the best candidate."""
        best = self.best()
        others = [name for name in self.residuals if name != "constant" and _kind(name) != _kind(best)]
        return noise_share(self._scaled(best), map(self._scaled, others))

    def _scaled(self, name: str) -> Array:
        """Return held-out residuals in units of the spread of each channel, 0 where outputs are missing."""
        mask = None if self.held_out is None else self.held_out.mask
        r = self.residuals[name] / self.unit_fields
        return r if mask is None else np.where(mask, r, 0.0)

    def selected(self, reason: str, cheap_folds: bool = False) -> Choice:
        """Return the best candidate so far.

        Args:
            reason: why the selection ended.
            cheap_folds: whether it must have out-of-fold residuals that take little time; one that ignores the input has them.
        """
        best = self.best([name for name, mean in self.means.items() if mean.cheap_folds or not cheap_folds])
        return self.choice(best, f"{self.title(best)} was selected: {reason}")

    def choice(self, name: str, reason: str) -> Choice:
        trials = tuple(replace(trial, selected=trial.name == name) for trial in self.trials)
        exact = name in self.errors and self.is_exact(name)
        return Choice(self.means[name], trials, reason, exact, self.residuals.get(name), completed=self.completed.get(name))

    def closed_form(self, name: str, mean: Mean, fraction: float) -> None:
        """Train a candidate with a closed-form solution."""
        try:
            self.train(mean, name, self.terms.within(self.terms.left(fraction)))
        except (UserError, MemoryError, np.linalg.LinAlgError) as error:
            self.skip(name, str(error) or "there is not enough memory")

    def screen_networks(self) -> str | None:
        """Train each network for a short time; return why the selection ended, None if the better one may be trained longer."""
        if self.on_nodes:
            self.skip("networks", NEEDS_GRID)
            return "it has the smallest error on held-out pairs"
        if len(self.pairs) < FEWEST_PAIRS:
            if any(name != "constant" for name in self.means):
                return f"{len(self.pairs)} pairs are too few for networks"
            self.train(self.network("slim"), "slim", self.terms.below("slim").within(self.budget))
            return "no other candidate can be trained on these pairs"
        single, seconds = self.terms.single_process, self.screening_seconds
        for name in TRIED.get(self.pairs.u.ndim - 2, ("fno",)):
            self.screen_network(name, seconds)
        screened = self.screened
        if not screened or seconds is None or not single:
            return "it has the smallest error on held-out pairs"
        for name in [name for name in screened if screened[name] > STARTED > min(screened.values())]:
            self.screen_network(name, 2 * seconds, "extended")
        return None

    @property
    def screening_seconds(self) -> float | None:
        """Time for screening one network."""
        return None if self.budget is None else self.budget * (SCREENING_FRACTION if self.terms.single_process else 1 / 3)

    def finish(self, left: float | None) -> str:
        """Train the better network, or both if they are close, for the remaining time; return why the selection ended.

        Args:
            left: seconds.
        """
        screened, screening, left = self.screened, self.screening_seconds or 0.0, left or 0.0
        best = min(screened.values())
        extrapolated = best * max(1.0, left / screening) ** -PACE
        if left < 2 * screening or (extrapolated > self.error(self.best()) and best < STARTED):
            return "the extrapolated error of networks does not beat it in the remaining time"
        close = [name for name in screened if screened[name] <= (CLOSE if left > 4 * screening else 1.0) * best]
        for name in close:
            try:
                is_short = self.is_short(name, seconds := left / len(close))
                terms = self.terms.below(f"{name}-small" if is_short else name).within(seconds)
                self.train(self.network(name, is_short), name, terms)
            except UserError as error:  # such as a loss that is NaN
                self.skip(name, str(error))
        return "it has the smallest error on held-out pairs"

    def screen_network(self, name: str, seconds: float | None, stage: str = "screening") -> None:
        """Train a network for a short time."""
        left = self.terms.left_here()
        if left is not None and seconds is not None:
            seconds = min(seconds, left)
            if seconds < 1 and self.means:
                self.skip(name, "no time was left")
                return
        title = name if seconds is None else f"{name}-{stage}"
        try:
            is_short = seconds is not None and self.terms.single_process
            self.train(self.network(name, is_short), title, self.terms.below(title).within(seconds))
        except UserError as error:  # such as a grid that the network does not support
            self.skip(name, str(error))

    @property
    def screened(self) -> dict[str, float]:
        """The networks that were screened, with the smallest error of each."""
        errors: dict[str, float] = {}
        for trial in self.trials:
            name = _kind(trial.name)
            if name in NETWORKS and trial.error is not None:
                errors[name] = min(trial.error, errors.get(name, np.inf))
        return errors

    def network(self, name: str, is_short: bool = False) -> Network:
        """Return an untrained network; in two and three dimensions a small one if there are not many steps."""
        small = is_short and self.pairs.u.ndim > 3
        return Network(SMALL[name] if small else name, self.symmetries, self.kind, points=self.mesh)

    def is_short(self, name: str, seconds: float) -> bool:
        """Return whether there is no time for many steps of a large network, from the pace of the screening of a small one."""
        paces = []
        for trial in (trial for trial in self.trials if trial.name.startswith(f"{name}-") and trial.seconds > 0):
            earlier = [] if self.terms.run is None else session_seconds(self.terms.run / trial.name)
            paces.append(self.means[trial.name].networks[0].updates / max(trial.seconds, sum(earlier)))
        return not paces or seconds * max(paces) / COST < ENOUGH_STEPS

    @cached_property
    def mesh(self) -> int | None:
        """Points of the coarsest mesh, by halving, that networks need in 1-D; None for the mesh of the data."""
        if self.held_out is None or not self.errors:
            return None
        a, u = self.held_out.a, self.held_out.u
        if u.ndim != 3 or a.shape[2:] != u.shape[2:] or self.held_out.mask is not None:
            return None
        kind = self.kind if isinstance(self.kind, str) else self.kind[0]
        points = coarsest((a, u), kind, COARSE_LOSS * self.error(self.best()))
        return points if points < u.shape[2] else None

    def train(self, mean: Mean, name: str, terms: Terms) -> None:
        """Train a candidate and measure its error on the held-out pairs."""
        begin = time.monotonic()
        if mean.accepts_missing or not self.pairs.mask_varies:
            mean.learn(self.pairs, self.held_out, terms)
        elif self.learn_observed is None:
            raise UserError(f"{mean.name} regression needs outputs that are observed at the same nodes in all samples")
        else:
            self.completed[name] = self.learn_observed(mean, self.pairs, terms)
        seconds = time.monotonic() - begin
        error = None
        if self.held_out:
            self.residuals[name] = self.held_out.u - mean(self.held_out.a, self.held_out.scalars)
            self.errors[name] = self._errors(self.residuals[name])
            error = self.error(name)
        self.means[name] = mean
        self.trials.append(Trial(name, error, mean.describe(), seconds))
        self.terms.log(f"{name}: {'' if error is None else f'relative error {error:.3g} '}({seconds:.0f} s)")

    def skip(self, name: str, reason: str) -> None:
        self.trials.append(Trial(name, None, reason))
        self.terms.log(f"{name}: skipped, {reason}")

    def _errors(self, residuals: Array) -> Array:
        """Return the errors of each held-out pair and channel."""
        return mean_absolute(residuals, None if self.held_out is None else self.held_out.mask) / self.unit

    def relative_error(self, residuals: Array) -> float:
        """Return the mean absolute value of held-out residuals, relative to those of the training mean."""
        return float(self._errors(residuals).mean())

    def error(self, name: str) -> float:
        """Return the mean absolute error relative to that of the training mean."""
        return float(self.errors[name].mean())

    def is_exact(self, name: str) -> bool:
        """Whether predictions are exact up to rounding, in every channel."""
        return float(self.errors[name].mean(axis=0).max()) < EXACT

    def best(self, names: Collection[str] | None = None) -> str:
        """Return the cheapest candidate within one standard error of the smallest error, of some candidates or of all.

        If one number per field dominates the residuals, such as a random offset, it hides the errors of the means. Candidates
        with equal errors are then compared by the errors without the leading components of their residuals.
        """
        if not self.errors:
            raise UserError("; ".join(f"{trial.name}: {trial.description}" for trial in self.trials))
        labels = None if self.held_out is None else self.held_out.labels()
        equal = equally_good({name: errors for name, errors in self.errors.items() if names is None or name in names}, labels)
        if len(equal) == 1 or self.held_out is None or self.held_out.mask is not None:
            return equal[0]
        residuals = {name: self.residuals[name] / self.unit_fields for name in equal}
        if not principal(residuals[equal[0]], 1)[1][0] > DOMINANT:
            return equal[0]
        left = {name: mean_absolute(without_leading(r, SHARED), None) for name, r in residuals.items()}
        return equally_good(left, labels)[0]

    @property
    def unit_fields(self) -> Array:
        """`unit` in a shape that broadcasts against fields: (channel, 1, …)."""
        return self.unit.reshape(-1, *(1,) * (self.pairs.u.ndim - 2))

    def finished(self, held_out: Pairs) -> str | None:
        """Return why further candidates cannot be better; None if they can."""
        if not self.errors:
            return None
        best = self.best()
        if self.is_exact(best):
            return "its predictions are exact up to rounding"
        residual = self.residuals[best]
        near = held_out.along(residual), None if held_out.mask is None else held_out.along(held_out.mask)
        white = is_uncorrelated(*near) and not depends_on_input(residual, held_out)
        return "its residuals are white noise" if white else None

    @staticmethod
    def title(name: str) -> str:
        short = _kind(name)
        return NETWORKS.get(short, "The training mean" if short == "constant" else f"{short.capitalize()} regression")


def _kind(name: str) -> str:
    return name.split("-")[0]
