"""A model with a known distribution, for measurements of the evaluation itself."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pdno
from pdno._typing import Array, Floats, Ints
from pdno.data.spaces import Spaces
from pdno.evaluation.novelty import Novelty

__all__ = ["Known"]

BATCH = 50  # members that are drawn at a time

Noise = Callable[[int, tuple[int, ...], np.random.Generator], Floats]  # (members, shape, stream) ↦ (member, *shape)


class Known:
    """A model of u | a ~ a + noise.

    Args:
        train: pairs whose inputs are those of training.
        noise: draws of the noise of one output.
        novelty: of inputs.
    """

    parameters = 0
    deterministic = False

    def __init__(self, train: pdno.Pairs, noise: Noise, novelty: Novelty | None = None) -> None:
        self.spaces, self.noise, self.novelty = Spaces.of(train), noise, novelty
        self.provenance: dict[str, Any] = {"pairs": len(train) if novelty else 0}

    def evaluations(self, **sampling: Any) -> int:
        return 0

    def given(self, a: Any, scalars: Any = None) -> "Given":
        return Given(a, self.noise)


class Given:
    """The distribution of `Known` for some inputs."""

    mean = None

    def __init__(self, a: Array, noise: Noise) -> None:
        self.a, self.noise = a, noise

    def stream(
        self, members: int, seed: int = 0, *, chunk: int | None = None, start: int = 0, **sampling: Any
    ) -> Iterator[tuple[Ints, Ints, Array]]:
        for i, field in enumerate(self.a):
            rng = np.random.default_rng((seed, start + i))
            for first in range(0, members, BATCH):
                numbers = np.arange(first, min(first + BATCH, members))
                yield np.full(len(numbers), i), numbers, field + self.noise(len(numbers), field.shape, rng)
