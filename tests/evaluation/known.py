"""A model and pairs with a known distribution."""

from collections.abc import Iterator

import numpy as np

import pdno
from pdno.data.spaces import Spaces
from pdno.evaluation.novelty import Novelty

POINTS, SIGMA = 16, 0.3


class Known:
    """u | a ~ N(a + shift, (factor·SIGMA)²) at each point; a fraction `shared` of the variance is common to a field."""

    parameters = 0

    def __init__(self, data, shift=0.0, factor=1.0, shared=0.0, deterministic=False, exact=False) -> None:
        self.shift, self.factor, self.shared = shift, factor, shared
        self.deterministic, self.exact = deterministic, exact
        self.spaces = Spaces.of(data.train)
        self.novelty = Novelty.halves(data.train.a)
        self.provenance = {"pairs": len(data.train)}
        self.calls = 0

    def evaluations(self, **sampling: object) -> int:
        return 1

    def given(self, a, scalars=None) -> "Given":
        self.calls += 1
        return Given(self, a)


class Given:
    """The distribution of `Known` for some inputs."""

    def __init__(self, model: Known, a: np.ndarray) -> None:
        self.model, self.a, self.mean = model, a, a + model.shift if model.exact else None

    def stream(self, members, seed=0, *, chunk=None, start=0, **sampling: object) -> Iterator[tuple]:
        m = self.model
        for i, field in enumerate(self.a):
            rng = np.random.default_rng((seed, start + i))
            for first in range(0, members, 32):
                count = min(32, members - first)
                if m.deterministic:
                    yield np.full(1, i), np.zeros(1, int), field[None] + m.shift
                    continue
                eta = rng.normal(size=(count, *field.shape)) * np.sqrt(1 - m.shared)
                eta += np.sqrt(m.shared) * rng.normal(size=(count, *[1] * field.ndim))
                yield np.full(count, i), first + np.arange(count), field + m.shift + m.factor * SIGMA * eta


def pairs(count: int, seed: int, shared: float = 0.0, mask=None) -> pdno.Pairs:
    rng = np.random.default_rng(seed)
    a = 2 + rng.normal(size=(count, 1, POINTS))
    eta = np.sqrt(1 - shared) * rng.normal(size=a.shape) + np.sqrt(shared) * rng.normal(size=(count, 1, 1))
    return pdno.Pairs.of(a, a, u_eta=a + SIGMA * eta, mask=mask)
