"""What a model answers: members of u | a, and their statistics in memory that does not grow with their number.

Member m of input i is a function of (seed, i, m): not of how many are asked for. Calls of the network have a fixed number of
rows, the last one padded, so that a member is the same to the bit at equal `chunk`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..data.spaces import Frame
from ..errors import UserError
from ..evaluation.novelty import Novelty
from ..evaluation.streaming import Statistics
from ..work.progress import progress_bar

__all__ = ["Answers", "Prediction"]

Array = NDArray[Any]
ROWS = 2**13  # numbers of a field times rows of a call
CENTRES = 16  # inputs whose centres are computed at once


@dataclass(frozen=True)
class Prediction:
    """Statistics of the members of each input, in the shape of u; the mean is that of very many members where it is known.

    Quantiles are exact where `rank_error` is 0; else their rank is wrong by at most this fraction of the members. `novelty`
    is each input's distance from those learned from, see `pdno.evaluation.novelty`: (sample,), above 1 where it is flagged. Where
    the model can tell them apart, `noise_std` is the part of the spread that the data have themselves, and `model_std` the part
    that more data would remove.
    """

    mean: Any
    std: Any
    members: int
    quantiles: dict[float, Any] = field(default_factory=dict)
    rank_error: float = 0.0
    novelty: Array | None = None
    noise_std: Any = None
    model_std: Any = None

    @property
    def unfamiliar(self) -> Array | None:
        """Which inputs are unlike those learned from: there no error bar can be trusted. None if that is not known."""
        return None if self.novelty is None else self.novelty > 1

    def quantile(self, level: float) -> Any:
        """The quantile of this level, which must be among those asked for."""
        if level not in self.quantiles:
            known = ", ".join(f"{q:g}" for q in self.quantiles) or "none"
            raise UserError(f"quantile {level} was not computed (only {known}); ask for it: predict(…, quantiles=({level},))")
        return self.quantiles[level]


class Answers(ABC):
    """A model that can be asked once it has learned. It says what members are (`centre`, `draw`); the rest is here."""

    deterministic: ClassVar[bool] = False  # whether all members are the same
    network: Any
    frame: Frame | None
    novelty: Novelty | None

    # To be said by a model

    @abstractmethod
    def draw(self, a: Array, scalars: Array | None, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Array:
        """Members about the centres and over their scatter, one row for each (input, member): (rows, channel, *grid)."""

    def centre(self, a: Array, scalars: Array | None) -> tuple[Array, Array] | None:
        """About what members of an input scatter, (sample, channel, *grid), and how much: (sample,). None for 0 and 1."""
        return None

    def spread(self, a: Array, scalars: Array | None) -> tuple[Array | None, Array | None]:
        """Standard deviations of the data's own noise and of the model's error, in the shape of u, as far as they are known."""
        return None, None

    def evaluations(self, **how: Any) -> int:
        """Evaluations of the network for one member."""
        return 1

    def known_mean(self, a: Array, scalars: Array | None) -> Array | None:
        """The mean of all members, where it is known without drawing any."""
        return None

    def chunk(self, numbers: int) -> int:
        """Rows of a call, for fields of so many numbers."""
        return int(np.clip(ROWS // numbers, 4, 64))

    # The same for all

    def fitted(self) -> Frame:
        if self.frame is None:
            raise UserError("this model has not learned anything yet; call fit first, or load one")
        return self.frame

    def sample(
        self,
        a: Any,
        members: int = 1,
        seed: int = 0,
        *,
        scalars: Any = None,
        chunk: int | None = None,
        first: int = 0,
        **how: Any,
    ) -> Any:
        """Members of u | a: (members, *shape of u). Arguments as in `predict`."""
        frame = self.fitted()
        fields, parameters = frame.inputs(a, scalars)
        out = np.empty((_positive(members), len(fields), *frame.u_shape))
        for inputs, numbers, values in self.stream(fields, parameters, members, seed, chunk, first, **how):
            out[numbers, inputs] = values
        return frame.outputs(out, a)

    def predict(
        self,
        a: Any,
        members: int = 100,
        seed: int = 0,
        quantiles: tuple[float, ...] = (0.05, 0.95),
        *,
        scalars: Any = None,
        chunk: int | None = None,
        first: int = 0,
        progress: bool = True,
        **how: Any,
    ) -> Prediction:
        """Mean, std and quantiles of each input's members, in memory that does not grow with their number.

        Args:
            a: inputs, as in `fit`.
            members: to draw for each input.
            seed: of the members; those of `sample` with the same seed.
            quantiles: levels in [0, 1].
            scalars: as in `fit`.
            chunk: rows of a call of the network; members are the same to the bit at equal chunk.
            first: number of the first input, which its members are a function of.
            progress: show a bar on terminals.
            how: handed on to the model, such as steps=20.
        """
        frame = self.fitted()
        fields, parameters = frame.inputs(a, scalars)
        quantiles = _levels(quantiles)
        out = np.empty((2 + len(quantiles), len(fields), *frame.u_shape))
        current, rank_error, done = Statistics(frame.u_shape, quantiles), 0.0, 0
        drawn = 1 if self.deterministic else _positive(members)
        with progress_bar("predicting", "members") if progress else nullcontext() as bar:
            for inputs, _, values in self.stream(fields, parameters, drawn, seed, chunk, first, **how):
                for i in np.unique(inputs):
                    current.add(values[inputs == i])
                    if current.moments.count == drawn:
                        std = np.zeros(frame.u_shape) if self.deterministic else current.moments.std
                        out[:, i] = [current.moments.mean, std, *current.quantiles.values.values()]
                        rank_error = max(rank_error, current.quantiles.rank_error)
                        current = Statistics(frame.u_shape, quantiles)
                done += len(inputs)
                if bar is not None:
                    bar(done, len(fields) * drawn)
        if (known := self.known_mean(fields, parameters)) is not None:
            out[0] = known
        mean, std, *rest = (frame.outputs(values, a) for values in out)
        novelty = None if self.novelty is None else self.novelty.distance(fields, parameters)
        parts = [None if part is None else frame.outputs(part, a) for part in self.spread(fields, parameters)]
        return Prediction(mean, std, members, dict(zip(quantiles, rest, strict=True)), rank_error, novelty, *parts)

    @torch.no_grad()
    def stream(
        self,
        a: Array,
        scalars: Array | None = None,
        members: int = 1,
        seed: int = 0,
        chunk: int | None = None,
        start: int = 0,
        **how: Any,
    ) -> Iterator[tuple[Array, Array, Array]]:
        """(inputs, members, values) for all members of all inputs in turn, chunk by chunk, in the memory of a chunk.

        Inputs are (sample, channel, *grid) and (sample, parameter), and are numbered from `start`.
        """
        frame = self.fitted()
        assert isinstance(self.network, nn.Module)
        self.network.eval()
        total = len(a) * members

        @lru_cache(maxsize=2)
        def centres(block: int) -> tuple[Array, Array] | None:
            rows = np.minimum(np.arange(block * CENTRES, (block + 1) * CENTRES), len(a) - 1)  # as many in every block
            return self.centre(a[rows], None if scalars is None else scalars[rows])

        size = self.chunk(int(np.prod(frame.u_shape))) if chunk is None else _positive(chunk, "chunk")
        for first in range(0, total, size):
            flat = np.minimum(np.arange(first, first + size), total - 1)
            inputs = flat // members
            described = a[inputs], None if scalars is None else scalars[inputs]
            values = self.draw(*described, start + inputs, flat % members, seed, how)
            for block in np.unique(inputs // CENTRES):
                if (about := centres(int(block))) is not None:
                    rows = inputs // CENTRES == block
                    centre, scatter = (part[inputs[rows] - block * CENTRES] for part in about)
                    values[rows] = centre + scatter.reshape(-1, *(1,) * (values.ndim - 1)) * values[rows]
            kept = flat[: min(size, total - first)]
            yield kept // members, kept % members, values[: len(kept)]


def _levels(quantiles: Any) -> tuple[float, ...]:
    """Levels, each once."""
    if isinstance(quantiles, str) or not np.iterable(quantiles):
        raise UserError(f"quantiles = {quantiles!r}: expected levels, such as (0.05, 0.95)")
    return tuple(dict.fromkeys(quantiles))


def _positive(number: int, what: str = "members") -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise UserError(f"{what} = {number!r}: expected a whole number of at least 1")
    return int(number)
