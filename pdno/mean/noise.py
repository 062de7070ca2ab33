r"""How much of the residuals of a mean is noise, from those of other means.

    r = n + e,  r' = n + e'        ⇒        ⟨r, r'⟩ ≈ ⟨n, n⟩

Residuals of two means on new pairs have the noise n in common. Their errors e and e' have less in common, the more the two
methods differ, so that the share ⟨r, r'⟩ / ⟨r, r⟩ is an upper estimate of that of noise.
"""

from collections.abc import Iterable

import numpy as np

from .._typing import Array

__all__ = ["noise_share"]

COMPARABLE = 3.0  # ratio of the sizes of residuals up to which they are compared
TINY = 1e-300


def noise_share(residuals: Array, others: Iterable[Array]) -> float:
    """Return an upper estimate of the share of noise in the variance of residuals.

    Args:
        residuals: of the best mean on held-out pairs, (sample, channel, *grid), 0 where outputs are missing.
        others: those of means of other kinds, likewise. The smallest estimate counts, and 1 if all are much larger.

    >>> rng = np.random.default_rng(0)
    >>> n, e, f = rng.normal(size=(3, 100, 1, 20))
    >>> round(noise_share(n + e, [n + f]), 1), round(noise_share(n + 0.1 * e, [n + 0.1 * f]), 1)
    (0.5, 1.0)
    """
    total = max(float(np.mean(residuals**2)), TINY)
    comparable = [r for r in others if float(np.mean(r**2)) < COMPARABLE**2 * total]
    return min((float(np.mean(residuals * r)) / total for r in comparable), default=1.0)
