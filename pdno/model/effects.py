r"""The mean under structured noise: refit it with each field's random effect removed, until it settles.

    r_i = Σ_k z_ik v_k + e_i,        e_i ~ N(0, Σ),  Σ diagonal,        ẑ_i = (Vᵀ Σ⁻¹ V)⁻¹ Vᵀ Σ⁻¹ r_i

A number that a whole field shares, such as an offset, is noise of full size at all nodes for a regression of u. V has the
leading principal components of the residuals, and z is estimated by generalised least squares: nodes where the error of the
mean is small, as next to a boundary with known values, have a large weight. The mean is trained again on u_i − Σ_k z̃_ik v_k,
and kept if what is left of held-out residuals is smaller than before. z̃ = ẑ, unless z has modes. An error of the mean that is
a multiple of v is part of ẑ, and would be learned again: it was trained on outputs with random z. Modes show it, because none
can be narrower than this error. With σ the width of the narrowest one, and components of weights w_j, means μ_j and widths s_j,

    z̃ = E[z | ẑ] = Σ_j p(j | ẑ) (μ_j + (1 − σ²/s_j²) (ẑ − μ_j)).

 Means with cheap folds are trained again up to three
times. Where the effects have most of the variance, a network is then trained once on outputs without them. Effects that are not
a multiple of one field are left to a network that takes z beside a (`pdno.residual.statistics`).
"""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from ..draw import generator
from ..errors import UserError
from ..evaluation.density import Mixture
from ..evaluation.mixture import components
from ..evaluation.principal import principal, reconstruction
from ..learning.budget import Terms
from ..mean.choice import Choice, Effects, Trial
from ..mean.choose import MeanSelection
from ..residual.estimate import estimate_scale
from ..residual.law import MeanResiduals, Residuals
from ..residual.sizes import root_mean_square
from ..residual.spread import Spread

__all__ = ["RandomEffect", "network_without_effects", "refit"]

MOST = 4  # components, at most
LEAST_SHARE = 0.2  # of the variance, that a component has
LEAST_LEFT = 1e-9  # of the residuals, below which nothing else is left
ESTIMATES = 20  # of Σ and ẑ, one after the other
ROUNDS = 3  # of refitting, at most
TIME_SHARE = 0.15  # of the remaining time, that a round may take
MODES_TIME_SHARE = 0.3  # likewise, if effects have modes: one round removes most of the error
SMALLER = 0.98  # ratio of what is left after and before, below which a refitted mean is kept; 1 if effects have modes
LARGER = 1.02  # ratio of the errors of the mean itself, above which it is not
REFITTED = "; refitted"  # in the reason of a choice
NETWORK_SHARE = 0.7  # of the remaining time, for a network that is trained on outputs without effects
LEAST_SECONDS = 5.0  # for this network
DOMINANT = 0.5  # share of the variance that effects have, from which such a network is tried
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class RandomEffect:
    """V and Σ.

    Args:
        fields: v, (component, channel, *grid).
        spread: of what is left, S with Σ = S Sᵀ.
        modes: distribution of ẑ of the leading component; None if it has one mode.
    """

    fields: Array
    spread: Spread
    modes: Mixture | None = None

    @classmethod
    def of(cls, residuals: Residuals, seed: int = 0, most: int = MOST) -> "RandomEffect | None":
        """Estimate V and Σ; None if no component has enough of the variance, nothing else is left, or values are missing.

        Σ is that of residuals without draws of z given r (stochastic expectation–maximisation): with ẑ, Σ would be too small.
        """
        if residuals.mask is not None:
            return None
        unit = np.maximum(root_mean_square(residuals.values), TINY)
        scaled = residuals.values / unit
        directions, shares = principal(scaled, most)
        count = int((shares > LEAST_SHARE).sum())
        if not count:
            return None
        fields = unit * reconstruction(directions[:count]).reshape(count, *scaled.shape[1:])
        numbers = scaled.reshape(len(scaled), -1) @ directions[:count].T
        for number in range(ESTIMATES):
            left = residuals.values - np.tensordot(numbers, fields, 1)
            if (root_mean_square(left) <= LEAST_LEFT * unit).any():
                return None
            effect = cls(fields, Spread(estimate_scale(left, "point", group=residuals.groups())))
            xi = generator(seed, "effects", number).standard_normal(numbers.shape)
            numbers = effect.numbers(residuals.values) + xi @ effect.posterior_root
        found = components(effect.numbers(residuals.values)[:, 0], labels=residuals.groups(), seed=seed)
        return effect if found is None or found.modes < 2 else replace(effect, modes=found.mixture)

    def numbers(self, values: Array) -> Array:
        """Return ẑ of residual fields: (sample, component)."""
        v, r = self._white, self.spread.white(values).reshape(len(values), -1)
        return np.linalg.solve(v @ v.T, v @ r.T).T

    @property
    def posterior_root(self) -> Array:
        """A with AᵀA = (Vᵀ Σ⁻¹ V)⁻¹, the covariance of z given r."""
        return np.linalg.cholesky(np.linalg.inv(self._white @ self._white.T)).T

    @cached_property
    def _white(self) -> Array:
        """S⁻¹ V, (component, value)."""
        return self.spread.white(self.fields).reshape(len(self.fields), -1)

    def left(self, values: Array) -> Array:
        """Return residual fields without the effect."""
        return np.asarray(values - np.tensordot(self.numbers(values), self.fields, 1))

    def effects(self, values: Array, centre: Array | None = None) -> Effects:
        """Return the effects in residual fields, less a centre, (component,), that is part of m(a); default: their mean."""
        numbers = self.numbers(values)
        if self.modes is not None:
            numbers[:, 0] = without_error(numbers[:, 0], self.modes)
        return Effects(numbers - (numbers.mean(axis=0) if centre is None else centre), self.fields)


def without_error(z: Array, modes: Mixture) -> Array:
    """Return z̃ = E[z | ẑ], with an error as wide as the narrowest component.

    >>> modes = Mixture(np.array([0.5, 0.5]), np.array([-1.0, 1.0]), np.array([0.1, 0.2]))
    >>> without_error(np.array([-1.1, -0.9, 1.2]), modes).round(3).tolist()
    [-1.0, -1.0, 1.15]
    """
    error = modes.stds.min()
    kept = 1 - (error / modes.stds) ** 2
    logs = np.log(modes.weights / modes.stds) - 0.5 * ((z[:, None] - modes.means) / modes.stds) ** 2
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray((shares * (modes.means + kept * (z[:, None] - modes.means))).sum(axis=1))


def refit(
    choice: Choice,
    pairs: Pairs,
    held_out: Pairs,
    residuals: MeanResiduals,
    decomposed: Callable[[Choice], MeanResiduals],
    terms: Terms,
) -> tuple[Choice, MeanResiduals]:
    """Return the mean and its residuals, refitted as often as that makes them smaller.

    Args:
        choice: the mean, with cheap folds.
        pairs: its training pairs.
        held_out: validation pairs.
        residuals: of the mean.
        decomposed: returns the residuals of a mean.
        terms: seed, devices and deadline.
    """
    seconds = max((trial.seconds for trial in choice.trials if trial.selected), default=0.0)
    effect = RandomEffect.of(residuals.train, terms.seed)
    for number in range(1, ROUNDS + 1):
        left = terms.left_here(TIME_SHARE if effect is None or effect.modes is None else MODES_TIME_SHARE)
        if effect is None or residuals.held_out is None or (left is not None and seconds > left):
            break
        effects = effect.effects(residuals.train.values)
        mean = deepcopy(choice.mean).learn(pairs.with_outputs(pairs.u - effects()), None, terms.within(left))
        reason = (
            f"{choice.reason.split(REFITTED)[0]}{REFITTED} {number} time{'s' * (number > 1)} without what whole fields share"
        )
        new = replace(
            choice, mean=mean, effects=effects, reason=reason, held_out=held_out.u - mean(held_out.a, held_out.scalars)
        )
        after = decomposed(new)
        new_effect = RandomEffect.of(after.train, terms.seed, len(effect.fields))
        if new_effect is None or after.held_out is None:
            break
        old, values = residuals.held_out.values, after.held_out.values
        ratio, whole = _ratio(new_effect.left(values), effect.left(old)), _ratio(values, old)
        terms.log(f"refitted mean: what is left of held-out residuals, relative to before: {ratio:.3g}")
        if ratio > (SMALLER if effect.modes is None else 1.0) or whole > LARGER:
            break
        choice, residuals, effect = new, after, new_effect
    return choice, residuals


def network_without_effects(
    means: MeanSelection,
    choice: Choice,
    residuals: MeanResiduals,
    decomposed: Callable[[Choice], MeanResiduals],
    terms: Terms,
) -> tuple[Choice, MeanResiduals]:
    """Return a network that is trained on outputs without random effects, and its residuals; the old mean if it is better.

    Args:
        means: the candidates for the mean; the network is the one with the smallest error of their screening.
        choice: the mean so far.
        residuals: of this mean.
        decomposed: returns the residuals of a mean.
        terms: seed, devices and deadline.
    """
    seconds, held_out, screened = terms.left_here(NETWORK_SHARE), means.held_out, means.screened
    if residuals.held_out is None or not held_out or not screened or seconds is None or seconds < LEAST_SECONDS:
        return choice, residuals
    effect, train, new = RandomEffect.of(residuals.train, terms.seed), residuals.train.values, residuals.held_out.values
    if effect is None or _left_share(effect, train) > 1 - DOMINANT:
        return choice, residuals
    kind = min(screened, key=lambda name: screened[name])
    centre = effect.numbers(train).mean(axis=0)
    clean, clean_new = (
        some.with_outputs(some.u - effect.effects(values, centre)()) for some, values in ((means.pairs, train), (held_out, new))
    )
    network, name, begin = means.network(kind, means.is_short(kind, seconds)), f"{kind}-refitted", time.monotonic()
    try:
        network.learn(clean, clean_new, terms.below(name).within(seconds))
    except UserError as error:  # such as a loss that is NaN
        return replace(choice, trials=(*choice.trials, Trial(name, None, str(error)))), residuals
    values = held_out.u - network(held_out.a, held_out.scalars)
    ratio, whole = _ratio(effect.left(values), effect.left(new)), _ratio(values, new)
    terms.log(f"{name}: what is left of held-out residuals, relative to before: {ratio:.3g}")
    is_better = ratio < SMALLER and whole < LARGER
    trial = Trial(name, means.relative_error(values), network.describe(), time.monotonic() - begin, is_better)
    if not trial.selected:
        return replace(choice, trials=(*choice.trials, trial)), residuals
    trials = (*(replace(each, selected=False) for each in choice.trials), trial)
    reason = f"{means.title(kind)} was selected: it was trained without what whole fields share"
    after = Choice(network, trials, reason, False, values)
    return after, decomposed(after)


def _left_share(effect: RandomEffect, values: Array) -> float:
    """Return the share of the variance of residual fields that is not explained by the effect, averaged over channels."""
    return float(np.mean((root_mean_square(effect.left(values)) / np.maximum(root_mean_square(values), TINY)) ** 2))


def _ratio(new: Array, old: Array) -> float:
    """Return the ratio of the root mean squares of two sets of fields, averaged over channels."""
    return float(np.mean(root_mean_square(new) / np.maximum(root_mean_square(old), TINY)))
