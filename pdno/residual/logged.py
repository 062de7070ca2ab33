"""Members that are drawn during the training of a diffusion, whose error is logged."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .._typing import Array
from ..data.pairs import Pairs
from .law import Residuals

if TYPE_CHECKING:
    from .diffused import Diffused

__all__ = ["members_to_log"]

MOST = 20  # pairs, one member each
FEWEST = 4  # of large fields
VALUES = 2**15  # of all these fields together
FIRST = 2**31  # number of the first pair, beyond the inputs of predictions: its draws are others


def members_to_log(law: "Diffused", held_out: Residuals | None, seed: int) -> tuple[Pairs, Callable[[Pairs], Array]] | None:
    """Return a few pairs, and the function that draws one member of u for each of them by the law's own sampler.

    If the reverse variance needs e_n, it is measured before each draw, on as many held-out pairs.

    Args:
        law: in training.
        held_out: residuals of validation pairs; those of `law.log_by` are preferred for the members.
        seed: of the draws.

    Returns:
        None if there are no pairs.
    """
    logged = law.log_by or held_out
    if not logged:
        return None
    some = logged[: max(FEWEST, min(MOST, VALUES // logged.values[0].size))]

    def members(pairs: Pairs) -> Array:
        if law.reverse.variance == "analytic" and held_out is not None:
            law.error = law.denoising_error(law.normalised(held_out[: len(pairs)], seed, "validation"), seed).mean
        inputs = some.inputs
        (drawn,) = law.members(inputs, np.arange(len(pairs)), 1, seed, FIRST)
        return np.asarray(inputs.mean + drawn)

    return some.pairs, members
