r"""The number of members that a tolerance of the Monte-Carlo error requires.

    error of the mean / std = 1/√M,        error of the std / std = √((κ − 1)/(4M)),        κ = E(u − m)⁴/std⁴

κ is the kurtosis, 3 for a Gaussian. It is estimated from pilot members of a few inputs; the number of members is the same for
all inputs, so that predictions of different inputs are comparable. The first condition is omitted if the mean is exact.
"""

from typing import Any

import numpy as np

from .law import Given

__all__ = ["MOST", "TOLERANCE", "members_needed"]

TOLERANCE = 0.03  # default of the largest Monte-Carlo error of mean and std, relative to the std
PILOT_INPUTS = 4  # inputs of which pilot members are drawn
PILOT_MEMBERS = 128  # of each
FEWEST = 20  # members, however large the tolerance: enough for 90 % intervals
MOST = 10_000  # members, however small the tolerance


def members_needed(given: Given, tolerance: float, seed: int, start: int = 0, **sampling: Any) -> int:
    """Return the number of members for which the errors of mean and std, relative to the std, are below a tolerance.

    Args:
        given: the distribution for some inputs.
        tolerance: positive; a number above `MOST` is never returned.
        seed, start, sampling: as in `Given.stream`.
    """
    if given.law.residual.deterministic:
        return 1
    few = given.law.given(given.a[:PILOT_INPUTS], None if given.scalars is None else given.scalars[:PILOT_INPUTS])
    drawn = np.empty((PILOT_MEMBERS, len(few.a), *given.law.spaces.u_shape))
    for inputs, numbers, values in few.stream(PILOT_MEMBERS, seed, start=start, **sampling):
        drawn[numbers, inputs] = values
    centred = drawn - drawn.mean(axis=0)
    square, fourth = (centred**2).mean(axis=0), (centred**4).mean(axis=0)
    kurtosis = np.divide(fourth, square**2, out=np.full(square.shape, 3.0), where=square > 0).mean(
        axis=tuple(range(1, square.ndim))
    )
    of_std = (float(kurtosis.max()) - 1) / (4 * tolerance**2)
    of_mean = 0.0 if given.mean is not None else 1 / tolerance**2
    return int(np.clip(np.ceil(max(of_std, of_mean)), FEWEST, MOST))
