r"""Residuals of a trained mean, on which the residual law is trained.

Residuals are out of fold where the mean has them cheaply. For other means (networks) those of the training pairs are in-sample.
If these are about as large as held-out ones, the law is trained on them; if not, because the mean is overfitted, on
cross-fitted residuals (`pdno.model.crossfit`) where there is time for them. The scale has its correlation from all these pairs
and its size from the held-out ones. It is estimated from the held-out pairs alone in three cases: if their residuals are much
larger than out-of-fold ones; if there are many of them and in-sample residuals are smaller; and if there is no time for
cross-fitting. Residuals of a mean whose training outputs were completed (`pdno.model.missing`) have the size of held-out ones
if these are larger.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .._typing import Array
from ..basis import waves_of
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..evaluation.bands import enlarged
from ..evaluation.principal import leading
from ..learning.budget import Terms
from ..mean.base import Components, Componentwise, Mean, out_of_fold
from ..mean.choice import Choice
from ..residual.law import MeanResiduals, Residuals
from ..residual.sizes import root_mean_square
from ..symmetry import Symmetry
from .crossfit import cross_fitted, number_of_folds, scaled_to

__all__ = ["decompose", "in_sample"]

FEWEST_HELD_OUT = 20  # held-out pairs that can show a distribution shift
SHIFT = 1.5  # ratio of held-out to out-of-fold residuals above which a distribution shift is reported
SOME = 200  # pairs on which in-sample residuals are compared with held-out ones
OVERFITTED = 0.7  # ratio of in-sample to held-out residuals below which they are not representative
ENOUGH_HELD_OUT = 50  # held-out pairs from which a scale is estimated as well as from smaller in-sample residuals
SHARED = 0.2  # share of the variance of a component that whole fields share
DOMINANT = 0.5  # of all these components together
SIMILAR = 0.9  # ratio of in-sample to held-out residuals above which the former, which are more, are preferred
ROUNDING = 1e-12  # relative to the largest output of a channel: smaller residuals are rounding errors
TINY = 1e-300


def decompose(
    choice: Choice,
    pairs: Pairs,
    held_out: Pairs | None,
    spaces: Spaces,
    elements: Sequence[Symmetry] = (),
    seed: int = 0,
    terms: Terms | None = None,
) -> tuple[MeanResiduals, list[str]]:
    """Return the residuals of a trained mean, and remarks for the user.

    Args:
        choice: the mean, and how it was selected.
        pairs: its training pairs.
        held_out: validation pairs.
        spaces: those of the pairs.
        elements: of the group of symmetries.
        seed: of the folds.
        terms: folder, devices and deadline for cross-fitting; default: no cross-fitting.

    Raises:
        UserError: if the mean needs held-out pairs, and there are none.
    """
    mean = choice.mean
    if not mean.cheap_folds and not held_out:
        raise UserError("a network mean needs validation pairs to estimate the residual scale; got none, pass validation=0.1")

    def residuals(some: Pairs, values: Array, components: Components | None = None) -> Residuals:
        prediction, values = None, _without_rounding(values, some)
        if some.mask is not None:  # where u is missing, m(a) is not u − residual
            prediction = np.where(some.mask, some.u - values, mean(some.a, some.scalars))
        return Residuals(some, values, elements, waves_of(spaces.kind), prediction, components)

    own = mean if isinstance(mean, Componentwise) else None
    validation = None
    if held_out:
        posterior = None if own is None else own.components(held_out.a, held_out.scalars)
        validation = residuals(held_out, _residual(mean, held_out, choice.held_out), posterior)
    if mean.cheap_folds and len(np.unique(pairs.labels())) > 1:
        left_out = _out_of_fold(choice, pairs, seed)
        train = residuals(pairs, left_out, None if own is None else own.left_out_components())
        if choice.completed is not None and validation is not None:  # other pairs were completed by what all pairs showed
            sizes = [root_mean_square(each.values, each.mask) for each in (train, validation)]
            train = _scaled(train, np.maximum(*sizes))
        if validation is None or not _is_larger(validation, train):
            return MeanResiduals(train, validation, train, choice.exact), []
        shift = "Held-out residuals are larger than out-of-fold ones, so the scale is theirs: check for distribution shift."
        return MeanResiduals(train, validation, validation, choice.exact), [shift]
    train, representative = _in_sample(mean, pairs, validation, residuals)
    if validation is None:
        return MeanResiduals(train, None, train, choice.exact, representative, out_of_fold=False), []
    remarks, is_crossed = list[str](), False
    if not representative and terms is not None and (values := _cross_fitted(choice, pairs, terms)) is not None:
        train = _scaled(residuals(pairs, values), root_mean_square(validation.values, validation.mask))
        representative = is_crossed = True
        remarks = ["The mean is overfitted: residuals are those of copies of it that were trained without the pair."]
    measured = _measured(train, validation) if representative else validation
    return MeanResiduals(train, validation, measured, choice.exact, representative, is_crossed), remarks


def in_sample(mean: Mean, pairs: Pairs, spaces: Spaces, elements: Sequence[Symmetry] = ()) -> Residuals:
    """Return the in-sample residuals u − m(a) of training pairs.

    Args:
        mean: trained.
        pairs: its training pairs.
        spaces: those of the pairs.
        elements: of the group of symmetries.
    """
    return Residuals(pairs, _residual(mean, pairs), elements, waves_of(spaces.kind))


def _in_sample(
    mean: Mean, pairs: Pairs, validation: Residuals | None, make: Callable[[Pairs, Array], Residuals]
) -> tuple[Residuals, bool]:
    """Return in-sample residuals and whether they are representative; if not, those of some pairs only."""
    some = pairs[:: max(1, len(pairs) // SOME)]
    few = make(some, _residual(mean, some))
    if validation is None:
        ratio = 1.0
    else:
        ratio = float(
            np.mean(
                root_mean_square(few.values, few.mask) / np.maximum(root_mean_square(validation.values, validation.mask), TINY)
            )
        )
    if validation is not None and not ratio > OVERFITTED:
        return few, False
    return (few if len(some) == len(pairs) else make(pairs, _residual(mean, pairs))), True


def _cross_fitted(choice: Choice, pairs: Pairs, terms: Terms) -> Array | None:
    """Return cross-fitted residuals; None if there is no time for them."""
    seconds = max((trial.seconds for trial in choice.trials if trial.selected), default=0.0)
    count, each = number_of_folds(seconds, terms.left_here())
    if not count or len(np.unique(pairs.labels())) < count:
        return None
    return cross_fitted(choice.mean, pairs, count, each, terms)


def _measured(train: Residuals, validation: Residuals) -> Residuals:
    """Return the residuals from which the scale is estimated: of many pairs, with the size of held-out residuals.

    In-sample residuals are too small: if they are larger than held-out ones, these are so by chance. If they are much smaller,
    and there are enough held-out ones, it is estimated from these alone. Components that whole fields share, and that have most
    of the variance, are enlarged only if held-out ones are significantly larger: modes of narrow distributions would move.
    """
    sizes = [root_mean_square(each.values, each.mask) for each in (train, validation)]
    enough = len(validation) >= ENOUGH_HELD_OUT
    if enough and np.mean(sizes[0] / np.maximum(sizes[1], TINY)) < SIMILAR:
        return validation
    if not enough or train.mask is not None or validation.mask is not None:
        return _scaled(train, np.maximum(*sizes))
    unit = np.maximum(sizes[0], TINY)
    shared = leading(train.values / unit, SHARED, together=DOMINANT)
    part, part_new = (unit * shared(each.values / unit) for each in (train, validation))
    ratio = root_mean_square(part_new) / np.maximum(root_mean_square(part), TINY)
    part_size = np.where(ratio > 1 + 2 / np.sqrt(2 * len(validation)), ratio, 1.0)  # by more than two standard errors
    values = part_size * part + enlarged(train.values - part, validation.values - part_new, train.periodic)
    return replace(train, values=values, prediction=train.inputs.mean)


def _scaled(residuals: Residuals, size: Array) -> Residuals:
    """Return residuals with this root mean square per channel; predictions stay the same."""
    values = scaled_to(residuals.values, residuals.mask, size)
    return replace(residuals, values=values, prediction=residuals.inputs.mean)


def _is_larger(held_out: Residuals, out_of_fold: Residuals) -> bool:
    """Whether held-out residuals are much larger than out-of-fold ones."""
    ratio = root_mean_square(held_out.values, held_out.mask) / np.maximum(
        root_mean_square(out_of_fold.values, out_of_fold.mask), TINY
    )
    return len(held_out) >= FEWEST_HELD_OUT and bool(np.mean(ratio) > SHIFT)


def _out_of_fold(choice: Choice, pairs: Pairs, seed: int) -> Array:
    """Return the out-of-fold residuals of training pairs; effects that were removed for the training of the mean are added."""
    if choice.effects is not None:
        effects = choice.effects()
        some = pairs.with_outputs(pairs.u - effects)
        return out_of_fold(choice.mean, some, pairs.shared_labels(), seed) + effects
    some = pairs if choice.completed is None else pairs.with_outputs(choice.completed, complete=True)
    values = out_of_fold(choice.mean, some, pairs.shared_labels(), seed)
    return values if pairs.mask is None else np.where(pairs.mask, values, 0.0)


def _without_rounding(values: Array, pairs: Pairs) -> Array:
    """Return residuals with 0 at nodes where they are never more than rounding errors of their channel, such as boundaries."""
    size = np.abs(pairs.filled).max(axis=(0, *range(2, values.ndim)), keepdims=True)
    return np.where((np.abs(values) <= ROUNDING * size).all(axis=0), 0.0, values)


def _residual(mean: Mean, pairs: Pairs, values: Array | None = None) -> Array:
    """Return u − m(a), zero where u is missing; `values` if it has been computed."""
    values = pairs.u - mean(pairs.a, pairs.scalars) if values is None else values
    return values if pairs.mask is None else np.where(pairs.mask, values, 0.0)
