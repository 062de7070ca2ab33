r"""Residuals of a trained mean, on which the residual law is trained.

Residuals are out of fold where the mean has them cheaply. For other means (networks) those of the training pairs are in-sample:
the scale is estimated from the held-out pairs, and the law is trained on in-sample residuals only if these are about as large.
If held-out residuals are much larger than out-of-fold ones, the scale is estimated from them, too.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..mean.base import Mean, out_of_fold
from ..mean.choice import Choice
from ..residual.choose import MeanResiduals
from ..residual.law import Residuals
from ..symmetry import Symmetry

__all__ = ["decompose", "in_sample"]

FEWEST_HELD_OUT = 20  # held-out pairs that can show a distribution shift
SHIFT = 1.5  # ratio of held-out to out-of-fold residuals above which a distribution shift is reported
SOME = 200  # pairs on which in-sample residuals are compared with held-out ones
OVERFITTED = 0.7  # ratio of in-sample to held-out residuals below which they are not representative
TINY = 1e-300


def decompose(
    choice: Choice,
    pairs: Pairs,
    held_out: Pairs | None,
    spaces: Spaces,
    elements: Sequence[Symmetry] = (),
    seed: int = 0,
) -> tuple[MeanResiduals, list[str]]:
    """Return the residuals of a trained mean, and remarks for the user.

    Args:
        choice: the mean, and how it was selected.
        pairs: its training pairs.
        held_out: validation pairs.
        spaces: those of the pairs.
        elements: of the group of symmetries.
        seed: of the folds.

    Raises:
        UserError: if the mean needs held-out pairs, and there are none.
    """
    mean = choice.mean
    if not mean.cheap_folds and not held_out:
        raise UserError("a network mean needs validation pairs to estimate the residual scale; got none, pass validation=0.1")

    def residuals(some: Pairs, values: Array) -> Residuals:
        prediction = None if some.mask is None else mean(some.a, some.scalars)
        return Residuals(some, values, elements, tuple(kind == "periodic" for kind in spaces.kind), prediction)

    validation = residuals(held_out, _residual(mean, held_out, choice.held_out)) if held_out else None
    folded = mean.cheap_folds and len(np.unique(pairs.labels())) > 1
    if folded:
        train, representative = residuals(pairs, _out_of_fold(mean, pairs, seed)), True
    else:
        train, representative = _in_sample(mean, pairs, validation, residuals)
    use_validation = validation is not None and (not folded or _is_larger(validation.values, train.values))
    measured = validation if validation is not None and use_validation else train
    shift = "Held-out residuals are larger than out-of-fold ones, so the scale is theirs: check for distribution shift."
    remarks = [shift] if folded and use_validation else []
    return MeanResiduals(train, validation, measured, choice.exact, representative), remarks


def in_sample(mean: Mean, pairs: Pairs, spaces: Spaces, elements: Sequence[Symmetry] = ()) -> Residuals:
    """Return the in-sample residuals u − m(a) of training pairs.

    Args:
        mean: trained.
        pairs: its training pairs.
        spaces: those of the pairs.
        elements: of the group of symmetries.
    """
    return Residuals(pairs, _residual(mean, pairs), elements, tuple(kind == "periodic" for kind in spaces.kind))


def _in_sample(
    mean: Mean, pairs: Pairs, validation: Residuals | None, make: Callable[[Pairs, Array], Residuals]
) -> tuple[Residuals, bool]:
    """Return in-sample residuals and whether they are representative; if not, those of some pairs only."""
    some = pairs[:: max(1, len(pairs) // SOME)]
    few = make(some, _residual(mean, some))
    ratio = 1.0 if validation is None else float(np.mean(_rms(few.values) / np.maximum(_rms(validation.values), TINY)))
    if validation is not None and not ratio > OVERFITTED:
        return few, False
    return (few if len(some) == len(pairs) else make(pairs, _residual(mean, pairs))), True


def _is_larger(held_out: Array, out_of_fold: Array) -> bool:
    """Whether held-out residuals are much larger than out-of-fold ones."""
    ratio = _rms(held_out) / np.maximum(_rms(out_of_fold), TINY)
    return len(held_out) >= FEWEST_HELD_OUT and bool(np.mean(ratio) > SHIFT)


def _out_of_fold(mean: Mean, pairs: Pairs, seed: int) -> Array:
    values = out_of_fold(mean, pairs, pairs.shared_labels(), seed)
    return values if pairs.mask is None else np.where(pairs.mask, values, 0.0)


def _residual(mean: Mean, pairs: Pairs, values: Array | None = None) -> Array:
    """Return u − m(a), zero where u is missing; `values` if it has been computed."""
    values = pairs.u - mean(pairs.a, pairs.scalars) if values is None else values
    return values if pairs.mask is None else np.where(pairs.mask, values, 0.0)


def _rms(values: Array) -> Array:
    """Return the root mean square per channel."""
    return np.asarray(np.sqrt(np.mean(values**2, axis=(0, *range(2, values.ndim)))))
