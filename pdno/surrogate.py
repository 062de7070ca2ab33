"""What models and baselines share: fit on pairs, sample, predict at constant memory, save.

A model says how it learns (`objective`) and how it draws members (`draw`); everything else is here, so that judgement cannot
tell models apart. Member m of input i is a function of (seed, i, m): not of how many are asked for. Calls of the network have
a fixed number of rows, the last one padded, so that a member is the same to the bit at equal `chunk`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from . import __version__, checkpoint
from .dataset import Dataset, Pairs
from .engine import fabric
from .errors import UserError
from .frame import Frame, arranged, check_finite
from .nn import NETWORKS, build
from .novelty import Novelty
from .progress import progress_bar
from .scaling import Normalise, Scaling
from .statistics import Statistics
from .train import Objective, Trained, Training, train

__all__ = ["Prediction", "Surrogate", "normalise_of"]

Array = NDArray[Any]
ROWS = 2**13  # numbers of a field times rows of a call


@dataclass(frozen=True)
class Prediction:
    """Statistics of the members of each input, in the shape of u.

    Quantiles are exact where `rank_error` is 0; else their rank is wrong by at most this fraction of the members. `novelty`
    is each input's distance from those learned from, see `pdno.novelty`: (sample,), above 1 where it is flagged.
    """

    mean: Any
    std: Any
    members: int
    quantiles: dict[float, Any] = field(default_factory=dict)
    rank_error: float = 0.0
    novelty: Array | None = None

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


class Surrogate(ABC):
    """A model of u | a on one grid. Subclasses: `pdno.PDNO`, and the baselines.

    Args:
        network: "auto", a kind ("unet", "fno"), a mapping {"kind": "unet", "base": 16, …}, or a torch module.
        normalise: of a and u, see `pdno.scaling`; a pair of two kinds normalises a and u differently.
        training: settings of the loop.
        budget: seconds that training may take.
    """

    name: ClassVar[str]  # of the model, as in results and files
    timed: ClassVar[bool]  # whether its network takes (n, v, a), or a alone
    deterministic: ClassVar[bool] = False  # whether all members are the same

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "auto",
        normalise: Normalise | tuple[Normalise, Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
    ) -> None:
        self.asked, self.normalise, self.budget = network, normalise, budget
        self.network = network  # a module once there is one; every fit starts from what was asked for
        self.training = Training() if training is None else training
        self.frame: Frame | None = None
        self.scalings: dict[str, Scaling] = {}
        self.history: list[dict[str, Any]] = []
        self.provenance: dict[str, Any] = {}
        self.novelty: Novelty | None = None
        self.seen: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # fingerprints of the pairs that it was made from

    # To be said by a model

    @abstractmethod
    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        """The loss of some rows of these pairs, as `pdno.train` takes it."""

    @abstractmethod
    def draw(self, condition: Tensor, inputs: Array, members: Array, seed: int, how: Mapping[str, Any]) -> Tensor:
        """Normalised members, one row for each (input, member): (rows, channel, *grid)."""

    def evaluations(self, **how: Any) -> int:
        """Evaluations of the network for one member."""
        return 1

    @property
    def parameters(self) -> int:
        """Numbers that the network has learned."""
        assert isinstance(self.network, nn.Module)
        return sum(p.numel() for p in self.network.parameters())

    def settings(self) -> dict[str, Any]:
        """Everything that defines the model but data and weights, as plain JSON types."""
        kinds = {cls: kind for kind, cls in NETWORKS.items()}
        known = isinstance(self.network, nn.Module) and type(self.network) in kinds
        network = {"kind": kinds[type(self.network)], **self.network.settings} if known else "own"  # type: ignore[index, dict-item, union-attr]
        return {"network": network, "normalise": self.normalise}

    # Learning

    def fit(
        self,
        a: Any,
        u: Any,
        *,
        scalars: Any = None,
        mask: Any = None,
        group: Any = None,
        dims: str | None = None,
        validation: float | Pairs | tuple[Any, Any] = 0.1,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Learn from pairs: NumPy, torch or xarray.

        Args:
            a: inputs (sample, *grid) or (sample, channel, *grid); None if there are scalars only.
            u: outputs, likewise; on a grid of its own or that of a.
            scalars: further parameters, (sample, parameter).
            mask: True where u is known, or "nan": nothing is learned from the rest.
            group: labels; pairs with the same one stay on one side of the split.
            dims: "sample,x,y", or "sample,x:sample,channel,x" for a and u, where shapes leave a choice.
            validation: fraction of the pairs to hold out, or pairs (a, u) of your own. They are not learned from, but the
                reverse variance is measured on them.
            seed: of everything that is drawn.
            options: of `learn`.
        """
        pairs, channel = arranged(a, u, scalars, mask, group, dims)
        if isinstance(validation, tuple):
            validation = arranged(*validation, None, mask if isinstance(mask, str) else None, None, dims)[0]
        if isinstance(validation, Pairs):
            return self.learn(pairs, validation, seed=seed, channel=channel, **options)
        if len(pairs) < 2:
            raise UserError(f"{len(pairs)} pairs are too few to learn from and to check with; bring at least two")
        if not 0 <= validation < 1 or round(validation * len(pairs)) == len(pairs):
            raise UserError(f"validation = {validation}: expected a fraction that leaves some of {len(pairs)} pairs to learn")
        whole = Dataset(pairs, pairs[:0], {"name": "pairs"})
        data = whole.split(max(validation, 1 / len(pairs)) if validation else 0.0, 0.0, seed)
        return self.learn(data.train, data.validation, seed=seed, channel=channel, **options)

    def learn(
        self,
        pairs: Pairs,
        validation: Pairs | None,
        *,
        seed: int = 0,
        channel: bool = True,
        run: str | Path | None = None,
        device: str = "auto",
        devices: int = 1,
        precision: str = "32-true",
        progress: bool = True,
    ) -> Self:
        """Learn from pairs that are split already.

        Args:
            pairs: to learn from.
            validation: held out; None if there are none.
            seed: of everything that is drawn.
            channel: whether predictions have an axis of channels.
            run: folder for checkpoints and logs; a run that is found there is gone on with.
            device: "auto", "cpu", "cuda", …
            devices: processes on this machine; under torchrun, those that it started.
            precision: "32-true", "64-true" or "bf16-mixed".
            progress: show a bar on terminals.
        """
        seed = int(seed)
        for part in (pairs, validation):
            if part is not None:
                check_finite(part)
        self.frame = Frame.of(pairs, channel)
        kinds = self.normalise if isinstance(self.normalise, tuple) else (self.normalise, self.normalise)
        self.scalings = {"a": Scaling.of(pairs.a, kinds[0]), "u": Scaling.of(pairs.u, kinds[1], pairs.mask)}
        if pairs.scalars is not None:
            self.scalings["scalars"] = Scaling.of(pairs.scalars, "scalar")
        self.network = self._built(seed).double() if precision == "64-true" else self._built(seed)
        plan = {**self._plan(pairs, seed), "precision": precision}
        try:
            engine = fabric(device, devices, precision)
            with progress_bar("training", "steps") if progress else nullcontext() as bar:
                trained = self._train(pairs, validation, seed, None if run is None else Path(run), engine, plan, bar)
        except BaseException:
            self.frame = None  # nothing was learned that could be asked
            raise
        self.network, self.history = trained.network, trained.history
        prints = pairs.fingerprints()
        self.seen = np.unique(prints if validation is None else np.concatenate([prints, validation.fingerprints()]))
        self.novelty = Novelty.halves(pairs.a, pairs.scalars, prints if pairs.group is None else pairs.group)
        self.provenance = {"version": __version__, "seed": seed, "pairs": len(pairs), "updates": trained.updates}
        return self

    def _train(
        self, pairs: Pairs, validation: Pairs | None, seed: int, run: Path | None, engine: Any, plan: dict[str, Any], bar: Any
    ) -> Trained:
        assert isinstance(self.network, nn.Module)
        rows = 0 if validation is None else min(len(validation), 256)

        def validate(network: nn.Module) -> float:
            assert validation is not None
            loss = self.objective(validation, seed, "validation")
            size = min(self.training.batch, rows)
            starts = range(0, rows - size + 1, size)
            with torch.no_grad():
                return float(np.mean([float(loss(network, np.arange(lo, lo + size), lo, 0)) for lo in starts]))

        return train(
            self.network,
            self.objective(pairs, seed, "train"),
            len(pairs),
            self.training,
            engine,
            seed=seed,
            folder=run,
            plan=plan,
            budget=self.budget,
            validate=validate if rows else None,
            progress=bar,
        )

    def _plan(self, pairs: Pairs, seed: int) -> dict[str, Any]:
        """What two runs must share for one to go on with the other."""
        assert self.frame is not None
        loop = {k: v for k, v in vars(self.training).items() if k != "checkpoint_seconds"}
        data: dict[str, Any] = {name: [float(s.mean.mean()), float(s.std.mean())] for name, s in self.scalings.items()}
        first = pairs.u[0] if pairs.mask is None else np.where(pairs.mask[0], pairs.u[0], 0.0)
        data |= {"pairs": len(pairs), "first": float(first.mean())}
        plan = {"training": loop, "data": data, "frame": self.frame.to_json(), "seed": seed, "budget": self.budget}
        return {**self.settings(), **plan}

    def _built(self, seed: int) -> nn.Module:
        """The network for this frame, with weights that are a function of the seed."""
        assert self.frame is not None
        channels = (self.frame.channels + self.timed * self.frame.u_shape[0], self.frame.u_shape[0])
        return build(self.asked, self.frame.u_shape[1:], *channels, self.timed, seed)

    def rows(self, pairs: Pairs) -> Callable[[NDArray[np.int64]], tuple[Tensor, Tensor, Tensor | None]]:
        """Rows ↦ the condition, normalised outputs and mask of these pairs, on the network's device."""
        a, u, scalars, mask = pairs.a, pairs.u, pairs.scalars, pairs.mask

        def get(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor | None]:
            condition = self.condition(a[rows], None if scalars is None else scalars[rows])
            outputs = self.scalings["u"].normalise(u[rows])
            known = None if mask is None else self.tensor(mask[rows])
            return condition, self.tensor(outputs if mask is None else np.where(mask[rows], outputs, 0.0)), known

        return get

    def condition(self, a: Array, scalars: Array | None) -> Tensor:
        """What the network is told about inputs: (sample, channel, *grid of u)."""
        if scalars is not None:
            scalars = self.scalings["scalars"].normalise(scalars)
        return self.tensor(self.fitted().condition(self.scalings["a"].normalise(a), scalars))

    def tensor(self, values: Array) -> Tensor:
        """Numbers of the type, and in the place, of the network's own."""
        assert isinstance(self.network, nn.Module)
        like = next(self.network.parameters())
        dtype = np.float64 if like.dtype == torch.float64 else np.float32
        return torch.as_tensor(np.asarray(values, dtype=dtype)).to(like.device)

    def fitted(self) -> Frame:
        if self.frame is None:
            raise UserError("this model has not learned anything yet; call fit first, or load one")
        return self.frame

    # Answering

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
        mean, std, *rest = (frame.outputs(values, a) for values in out)
        novelty = None if self.novelty is None else self.novelty.distance(fields, parameters)
        return Prediction(mean, std, members, dict(zip(quantiles, rest, strict=True)), rank_error, novelty)

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
        size = int(np.clip(ROWS // np.prod(frame.u_shape), 4, 64)) if chunk is None else _positive(chunk, "chunk")
        for first in range(0, total, size):
            flat = np.minimum(np.arange(first, first + size), total - 1)
            inputs = flat // members
            condition = self.condition(a[inputs], None if scalars is None else scalars[inputs])
            values = self.draw(condition, start + inputs, flat % members, seed, how)
            kept = flat[: min(size, total - first)]
            restored = self.scalings["u"].restore(values[: len(kept)].double().cpu().numpy())
            yield kept // members, kept % members, restored

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write the model into one file, which `pdno.load` reads; no code is stored, and none is run on loading."""
        frame = self.fitted()
        assert isinstance(self.network, nn.Module)
        tensors = {f"network.{name}": v for name, v in self.network.state_dict().items()}
        for name, scaling in self.scalings.items():
            tensors |= {f"scaling.{name}.{k}": torch.from_numpy(np.array(v)) for k, v in vars(scaling).items()}
        numbers = {axis: c for axis, c in frame.coordinates.items() if c.dtype.kind in "iuf"}
        tensors |= {f"coordinate.{axis}": torch.from_numpy(np.array(c)) for axis, c in numbers.items()}
        tensors |= {f"model.{name}": torch.from_numpy(v) for name, v in self.arrays().items()}
        tensors["seen"] = torch.from_numpy(self.seen)
        if self.novelty is not None:
            tensors |= {f"novelty.{name}": torch.from_numpy(np.array(v)) for name, v in self.novelty.arrays().items()}
        metadata = {"model": self.name, **self.settings(), "frame": frame.to_json(), "provenance": self.provenance}
        checkpoint.save(Path(path), "model", tensors, metadata)

    def arrays(self) -> dict[str, Array]:
        """Arrays of the model's own that are to be saved."""
        return {}


def _levels(quantiles: Any) -> tuple[float, ...]:
    """Levels, each once."""
    if isinstance(quantiles, str) or not np.iterable(quantiles):
        raise UserError(f"quantiles = {quantiles!r}: expected levels, such as (0.05, 0.95)")
    return tuple(dict.fromkeys(quantiles))


def normalise_of(settings: Mapping[str, Any]) -> Any:
    """The normalisation that settings from a file name."""
    kinds = settings.get("normalise", "scalar")
    return tuple(kinds) if isinstance(kinds, list) else kinds


def _positive(number: int, what: str = "members") -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise UserError(f"{what} = {number!r}: expected a whole number of at least 1")
    return int(number)
