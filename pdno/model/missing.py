r"""Means in closed form from outputs that are observed at different nodes in different samples, by expectation–maximisation.

    E:   û = m(a) + E[e | e at observed nodes],        e = u − m(a) ~ N(0, S Sᵀ),        at the missing nodes
    M:   m is fitted to the completed outputs,         S is estimated from the residuals at observed nodes

starting from the average of the observed outputs. m(a) in the first line is out of fold, so that a pair is not completed by
what was completed before. The conditional expectation is

    E[e | e_o] = C P (P C P)⁻¹ e_o,        C = S Sᵀ,        P: restriction to the observed nodes,

by conjugate gradients: C is applied in the basis in which it is diagonal (`pdno.residual.scale`). The steps converge slowly if
most outputs are missing; those of a linear mean, which are cheap, are extrapolated, and other means start from their result.
"""

from collections.abc import Callable

import numpy as np

from .._typing import Array, Floats, Mask
from ..data.pairs import Pairs
from ..learning.budget import Terms
from ..mean.base import Mean, out_of_fold
from ..mean.constant import Constant
from ..mean.linear.linear import Linear
from ..residual.estimate import estimate_scale
from ..residual.scale import Scale

__all__ = ["expected", "learn_observed"]

CYCLES = 5  # of the linear mean, at most: three steps and one estimate of S each
ROUNDS = 2  # of another mean, which starts from outputs that the linear one has completed
SETTLED = 0.01  # change of the completed outputs, relative to the residuals at observed nodes, that ends the cycles
ITERATIONS = 60  # of conjugate gradients
TOLERANCE = 1e-4  # relative residual at which they end
TINY = 1e-300


def learn_observed(mean: Mean, pairs: Pairs, terms: Terms, periodic: tuple[bool, ...]) -> Array:
    """Train a mean on outputs of which some are missing.

    Args:
        mean: that needs complete outputs.
        pairs: with a mask.
        terms: seed, folder and deadline.
        periodic: whether each axis is periodic.

    Returns:
        The completed outputs that it was trained on, in the shape of u.
    """
    steps = _Steps(pairs, terms, periodic)
    u, share = steps.start(), terms.within(terms.left(1 / (ROUNDS + 1)))
    linear = mean if mean.name == Linear.name else Linear()
    for _ in range(CYCLES):
        u, change = steps.cycle(linear, u)
        if change < SETTLED or share.left_here() == 0:
            break
    for turn in range(0 if linear is mean else ROUNDS - 1):
        u = steps.step(mean, u, terms.within(terms.left(1 / (ROUNDS - turn))))
    mean.learn(steps.whole(u), None, terms)
    return u


class _Steps:
    """Both steps, for some pairs.

    Args:
        pairs: with a mask.
        terms: seed and deadline.
        periodic: whether each axis is periodic.
    """

    def __init__(self, pairs: Pairs, terms: Terms, periodic: tuple[bool, ...]) -> None:
        self.pairs, self.terms, self.periodic, self.labels = pairs, terms, periodic, pairs.shared_labels()
        self.observed = np.ones(pairs.u.shape, dtype=bool) if pairs.mask is None else pairs.mask
        self.kind, self.size = "auto", 1.0
        self.scale: Scale | None = None

    def start(self) -> Array:
        """Return outputs that are completed with the average of all samples as the mean."""
        return self.completed(Constant().learn(self.pairs, None, self.terms)(self.pairs.a))

    def whole(self, u: Array) -> Pairs:
        """Return the pairs with completed outputs."""
        return self.pairs.with_outputs(u, complete=True)

    def step(self, mean: Mean, u: Array, terms: Terms, scale: Scale | None = None) -> Array:
        """Fit the mean to completed outputs; complete them anew, with this S or an estimated one."""
        mean.learn(self.whole(u), None, terms)
        return self.completed(u - out_of_fold(mean, self.whole(u), self.labels, self.terms.seed), scale)

    def completed(self, prediction: Array, scale: Scale | None = None) -> Array:
        """Return outputs with their expectation at missing nodes, given those that are observed."""
        values = self.pairs.filled
        residuals = np.where(self.observed, values - prediction, 0.0)
        if scale is None:
            scale = estimate_scale(residuals, self.kind, self.observed, self.periodic, self.labels)
            self.kind = scale.kind
        self.scale, self.size = scale, max(float(np.sqrt(np.mean(residuals[self.observed] ** 2))), TINY)
        return np.where(self.observed, values, prediction + expected(scale, residuals, self.observed))

    def cycle(self, mean: Mean, u: Array) -> tuple[Array, float]:
        """Take two steps, extrapolate (SQUAREM, Varadhan and Roland 2008), take a third; return outputs and their change."""
        first = self.step(mean, u, self.terms)
        second = self.step(mean, first, self.terms, self.scale)
        r, v = first - u, second - 2 * first + u
        factor = max(1.0, float(np.linalg.norm(r)) / max(float(np.linalg.norm(v)), TINY))
        new = self.step(mean, u + 2 * factor * r + factor**2 * v, self.terms, self.scale)
        return new, float(np.sqrt(np.mean((new - u)[~self.observed] ** 2))) / self.size


def expected(scale: Scale, values: Array, observed: Mask) -> Floats:
    """Return E[e | e at observed nodes] for e ~ N(0, S Sᵀ): (sample, channel, *grid).

    Args:
        scale: S.
        values: e, (sample, channel, *grid).
        observed: True where it is observed.
    """
    known = observed & (np.broadcast_to(scale.std, values.shape[1:]) > 0)
    e = np.where(known, values, 0.0)
    return e if scale.independent else scale.covariance(_solved(lambda x: np.where(known, scale.covariance(x), 0.0), e))


def _solved(apply: Callable[[Floats], Floats], right: Floats) -> Floats:
    """Solve A x = right for each sample and channel by conjugate gradients, A being positive definite."""
    axes = tuple(range(2, right.ndim))

    def inner(x: Floats, y: Floats) -> Floats:
        return np.asarray((x * y).sum(axis=axes, keepdims=True))

    x, r = np.zeros(right.shape), right.copy()
    p, square = r, inner(r, r)
    least = TOLERANCE**2 * square
    for _ in range(ITERATIONS):
        if (square <= least).all():
            break
        moved = apply(p)
        curvature = inner(p, moved)
        step = np.divide(square, curvature, where=(square > least) & (curvature > 0), out=np.zeros(square.shape))
        x, r = x + step * p, r - step * moved
        new = inner(r, r)
        p = r + np.divide(new, square, where=square > 0, out=np.zeros(square.shape)) * p
        square = new
    return x
