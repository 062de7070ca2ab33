"""Selection of the number of sampling steps: the fewest whose scores on held-out pairs are as good as the best."""

import time
from collections.abc import Callable

import numpy as np

from .._typing import Array
from ..diffusion.reverse import AUTO_STEPS
from ..evaluation.metrics import crps, energy_score
from ..learning.budget import Terms

__all__ = ["STEP_PAIRS", "fewest_steps"]

TRIED_STEPS = (5, 10, 20, 40)  # numbers of sampling steps that are compared
STEP_PAIRS = 32  # held-out pairs for this comparison
STEP_MEMBERS = 20  # members of each
STEP_TOLERANCE = 1.01  # ratio of CRPS, and of energy score, that fewer steps may cost


def fewest_steps(
    draw: Callable[[int, int], Array], u: Array, mask: Array | None, longest: int, terms: Terms
) -> tuple[int, str]:
    """Return the fewest sampling steps whose CRPS and energy score are both within 1 % of the best, and a sentence about it.

    Args:
        draw: (number of the member, steps) ↦ one member of each pair, in the shape of u.
        u: held-out outputs, (sample, channel, *grid).
        mask: True where u is observed; None if it is everywhere.
        longest: largest number of steps.
        terms: with the deadline; if time is short, the default number is returned.
    """
    scores: dict[int, Array] = {}
    begin = time.monotonic()
    draw(0, 1)
    second = STEP_MEMBERS * (time.monotonic() - begin)  # for all members, per step
    for steps in [k for k in TRIED_STEPS if k <= longest]:
        if (left := terms.left_here()) is None or steps * second < left:
            members = np.stack([draw(member, steps) for member in range(STEP_MEMBERS)])
            scores[steps] = np.array([score(members, u, mask=mask).value for score in (crps, energy_score)])
    usual = min(AUTO_STEPS, longest)
    if max(scores, default=0) < usual:
        return usual, f"The default of {usual} sampling steps is used: there was no time to compare others."
    best = np.min(list(scores.values()), axis=0)
    fewest = min((k for k in scores if (scores[k] <= STEP_TOLERANCE * best).all()), default=max(scores))
    return fewest, f"{fewest} sampling steps suffice, by CRPS and energy score of held-out pairs."
