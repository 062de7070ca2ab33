"""What models and baselines share: fit on pairs, answer (`pdno.model.prediction`), save.

A model says how it learns (`prepare`, `objective`) and how it draws members (`centre`, `draw`); everything else is here and
there, so that judgement cannot tell models apart.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import __version__
from ..basis import Kind
from ..data.pairs import Dataset, Pairs
from ..data.spaces import Frame, arranged, check_finite
from ..errors import UserError
from ..evaluation.novelty import Novelty
from ..learning.loop import Objective, Trained, Training, train
from ..learning.normalisation import Normalise, Scaling
from ..nn import NETWORKS, build
from ..symmetry import Own, Symmetry, augment, check, group
from ..work import checkpoint
from ..work.engine import fabric
from ..work.progress import progress_bar
from .prediction import Answers

__all__ = ["Surrogate", "Terms", "chosen"]

Array = NDArray[Any]
TRAINING = 0.9  # share of the time that is left, for training; the rest is for measuring


@dataclass(frozen=True)
class Terms:
    """On what terms a model learns; arguments of `Surrogate.learn`."""

    seed: int = 0
    run: Path | None = None
    device: str = "auto"
    devices: int = 1
    precision: str = "32-true"
    progress: bool = True
    deadline: float | None = None  # on the monotonic clock

    @property
    def alone(self) -> bool:
        """Whether there is one process: several must not decide by their clocks, which may differ."""
        return self.devices == 1 and int(os.environ.get("WORLD_SIZE", "1")) == 1

    def left(self, share: float = 1.0) -> float | None:
        """Seconds that are left, or a share of them; None if time does not matter."""
        return None if self.deadline is None else max(0.0, share * (self.deadline - time.monotonic()))

    def options(self, below: str = "") -> dict[str, Any]:
        """Arguments of `Surrogate.learn` for a part of the work, with a folder of its own."""
        run = None if self.run is None else self.run / below
        names = ("seed", "device", "devices", "precision", "progress")
        return {"run": run, **{name: getattr(self, name) for name in names}}


class Surrogate(Answers):
    """A model of u | a on one grid. Subclasses: `pdno.PDNO`, and the baselines.

    Args:
        network: "auto", a kind ("unet", "fno"), a mapping {"kind": "unet", "base": 16, …}, or a torch module.
        normalise: of a and u, see `pdno.learning.normalisation`; a pair of two kinds normalises a and u differently.
        training: settings of the loop.
        budget: seconds that learning may take.
        symmetries: exact ones of the operator, by name or as own maps, see `pdno.symmetry`: pairs are learned from in every
            orientation. Declare only what holds.
        kind: of the grid's axes, one for all or one each; it says what a reflection or a shift is.
    """

    name: ClassVar[str]  # of the model, as in results and files
    timed: ClassVar[bool]  # whether its network takes (n, v, a), or a alone

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "auto",
        normalise: Normalise | tuple[Normalise, Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.asked, self.normalise, self.budget = network, normalise, budget
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self.kind = kind if isinstance(kind, str) else tuple(kind)
        self.elements: tuple[Symmetry, ...] = ()  # of the group, once there is a grid
        self.network = network  # a module once there is one; every fit starts from what was asked for
        self.training = Training() if training is None else training
        self.frame: Frame | None = None
        self.scalings: dict[str, Scaling] = {}
        self.history: list[dict[str, Any]] = []
        self.provenance: dict[str, Any] = {}
        self.novelty: Novelty | None = None
        self.seen: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # fingerprints of the pairs that it was made from

    # To be said by a model

    def objective(self, pairs: Pairs, seed: int, purpose: str) -> Objective:
        """The loss of some rows of these pairs, as `pdno.learning.loop` takes it, if there is a network to train."""
        raise TypeError(f"{self.label} has no network to train")

    def prepare(self, pairs: Pairs, validation: Pairs | None, terms: "Terms") -> tuple[Pairs, Pairs | None]:
        """The pairs that the network learns from, and those held out; scalings are known."""
        return pairs, validation

    def finish(self, validation: Pairs | None, terms: "Terms") -> None:
        """Measure what is to be measured on held-out pairs, as `prepare` left them, once the network has learned."""
        return None

    @property
    def label(self) -> str:
        """The name of the method in results."""
        return self.name

    @property
    def parameters(self) -> int:
        """Numbers that were learned."""
        assert isinstance(self.network, nn.Module)
        return sum(p.numel() for p in self.network.parameters())

    def settings(self) -> dict[str, Any]:
        """Everything that defines the model but data and weights, as plain JSON types."""
        kinds = {cls: kind for kind, cls in NETWORKS.items()}
        known = isinstance(self.network, nn.Module) and type(self.network) in kinds
        network = {"kind": kinds[type(self.network)], **self.network.settings} if known else "own"
        named = [each if isinstance(each, str) else "own" for each in self.symmetries]
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        return {"network": network, "normalise": self.normalise, "symmetries": named, "kind": kind}

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
        validation: float | Pairs | tuple[Any, ...] = 0.1,
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
            validation: fraction of the pairs to hold out, or pairs (a, u) or (a, u, scalars) of your own. They are not learned
                from, but the reverse variance is measured on them.
            seed: of everything that is drawn.
            options: of `learn`.
        """
        pairs, channel = arranged(a, u, scalars, mask, group, dims)
        if isinstance(validation, tuple):
            x, y, s = validation if len(validation) == 3 else (*validation, None)
            validation = arranged(x, y, s, mask if isinstance(mask, str) else None, None, dims)[0]
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
        for part in (pairs, validation):
            if part is not None:
                check_finite(part)
        deadline = None if self.budget is None else time.monotonic() + self.budget
        folder = None if run is None else Path(run)
        terms = Terms(int(seed), folder, device, devices, precision, progress, deadline)
        self._describe(pairs, channel)
        if validation:
            _check_alike(pairs, validation)
        self.history = []
        try:
            plan = {**self._plan(pairs, terms.seed), "precision": precision}
            trained = self._train(*self.prepare(pairs, validation, terms), terms, plan)
        except BaseException:
            self.frame = None  # nothing was learned that could be asked
            raise
        prints = pairs.fingerprints()
        self.seen = np.unique(prints if validation is None else np.concatenate([prints, validation.fingerprints()]))
        self.novelty = Novelty.halves(pairs.a, pairs.scalars, prints if pairs.group is None else pairs.group)
        self.provenance |= {"version": __version__, "seed": terms.seed, "pairs": len(pairs), "updates": trained}
        return self

    def _describe(self, pairs: Pairs, channel: bool) -> None:
        """The frame of these pairs, their scales, and the group of symmetries on their grid."""
        self.frame, self.provenance = Frame.of(pairs, channel), {}
        kinds = self.normalise if isinstance(self.normalise, tuple) else (self.normalise, self.normalise)
        self.scalings = {"a": Scaling.of(pairs.a, kinds[0]), "u": Scaling.of(pairs.u, kinds[1], pairs.mask)}
        if pairs.scalars is not None:
            self.scalings["scalars"] = Scaling.of(pairs.scalars, "scalar")
        if self.symmetries and pairs.mask is not None:
            raise UserError("symmetries cannot be used with a mask, which they would have to move too; leave one of them out")
        self.orient()
        if self.elements:
            check(self.elements, pairs.a[:1], pairs.u[:1])

    def orient(self) -> None:
        """The group of symmetries on the grid of u."""
        self.elements = group(self.symmetries, self.fitted().grid(self.kind)) if self.symmetries else ()

    def _train(self, pairs: Pairs, validation: Pairs | None, terms: "Terms", plan: dict[str, Any]) -> int:
        """Train the network, if it has anything to learn; how many steps it took."""
        self.network = self._built(terms.seed).double() if terms.precision == "64-true" else self._built(terms.seed)
        if any(True for _ in self.network.parameters()):
            known = {name: value for name, value in self.settings().items() if name not in ("trials", "said")}
            first = pairs.u[0] if pairs.mask is None else np.where(pairs.mask[0], pairs.u[0], 0.0)
            plan |= known | {"first": float(f"{np.abs(first).mean():.5g}")}  # now that all parts are known
            engine = fabric(terms.device, terms.devices, terms.precision)
            with progress_bar("training", "steps") if terms.progress else nullcontext() as bar:
                trained = self._steps(pairs, validation, terms, engine, plan, bar)
            self.network, self.history = trained.network, trained.history
        self.finish(validation, terms)
        return self.history[-1]["step"] if self.history else 0

    def _steps(
        self, pairs: Pairs, validation: Pairs | None, terms: "Terms", engine: Any, plan: dict[str, Any], bar: Any
    ) -> Trained:
        assert isinstance(self.network, nn.Module)
        rows, seed = 0 if validation is None else min(len(validation), 256), terms.seed

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
            folder=terms.run,
            plan=plan,
            budget=terms.left(TRAINING),
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
        plan = {"training": loop, "data": data, "frame": self.frame.to_json(), "seed": seed}
        return {**self.settings(), **plan}

    def _built(self, seed: int) -> nn.Module:
        """The network for this frame, with weights that are a function of the seed."""
        assert self.frame is not None
        channels = (self.frame.channels + self.timed * self.frame.u_shape[0], self.frame.u_shape[0])
        return build(self.asked, self.frame.u_shape[1:], *channels, self.timed, seed)

    def rows(self, pairs: Pairs, seed: int | None = None) -> Callable[..., tuple[Tensor, Tensor, Tensor | None]]:
        """(rows, first, step) ↦ the condition, normalised outputs and mask of these pairs, on the network's device.

        With a seed each pair is turned by a symmetry, if there are any: a function of (seed, place in the batch, step).
        """
        a, u, scalars, mask = pairs.a, pairs.u, pairs.scalars, pairs.mask

        def get(rows: NDArray[np.int64], first: int = 0, step: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
            x, y = a[rows], u[rows]
            if self.elements and seed is not None:
                x, y = augment(x, y, self.elements, seed, np.arange(first, first + len(rows)), step)
            condition = self.condition(x, None if scalars is None else scalars[rows])
            outputs = self.scalings["u"].normalise(y)
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
        like = next(chain(self.network.parameters(), self.network.buffers()))
        dtype = np.float64 if like.dtype == torch.float64 else np.float32
        return torch.as_tensor(np.asarray(values, dtype=dtype)).to(like.device)

    def to(self, device: str) -> Self:
        """Compute on this device; "auto" takes a GPU if there is one."""
        assert isinstance(self.network, nn.Module)
        names = {"auto": "cuda" if torch.cuda.is_available() else "cpu", "gpu": "cuda"}
        try:
            self.network.to(names.get(device, device))
        except (RuntimeError, AssertionError, NotImplementedError) as error:  # which torch raises, by device
            raise UserError(f"this machine cannot compute on {device!r}: {str(error).splitlines()[0]}") from None
        return self

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write the model into one file, which `pdno.load` reads; no code is stored, and none is run on loading."""
        frame = self.fitted()
        assert isinstance(self.network, nn.Module)
        if not all(isinstance(each, str) for each in self.symmetries):
            raise UserError("own maps among the symmetries cannot be saved; expected names, such as 'square'")
        tensors = self.weights()
        numbers = {axis: c for axis, c in frame.coordinates.items() if c.dtype.kind in "iuf"}
        tensors |= {f"coordinate.{axis}": torch.from_numpy(np.array(c)) for axis, c in numbers.items()}
        tensors |= {f"model.{name}": torch.from_numpy(np.array(v, order="C")) for name, v in self.arrays().items()}
        tensors["seen"] = torch.from_numpy(self.seen)
        if self.novelty is not None:
            tensors |= {f"novelty.{name}": torch.from_numpy(np.array(v)) for name, v in self.novelty.arrays().items()}
        metadata = {"model": self.name, **self.settings(), "frame": frame.to_json(), "provenance": self.provenance}
        checkpoint.save(Path(path), "model", tensors, metadata)

    def weights(self) -> dict[str, Tensor]:
        """Those of the network, and of the scales of what it sees."""
        assert isinstance(self.network, nn.Module)
        found = {f"network.{name}": v for name, v in self.network.state_dict().items()}
        for name, scaling in self.scalings.items():
            found |= {f"scaling.{name}.{k}": torch.from_numpy(np.array(v)) for k, v in vars(scaling).items()}
        return found

    def arrays(self) -> dict[str, Array]:
        """Arrays of the model's own that are to be saved."""
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        """Take in what `arrays` gave."""
        return self


def _check_alike(pairs: Pairs, validation: Pairs) -> None:
    """Held-out pairs must be such as those that are learned from."""
    got, expected = (
        (f"a {p.a.shape[1:]}, u {p.u.shape[1:]}, {0 if p.scalars is None else p.scalars.shape[1]} scalars")
        for p in (validation, pairs)
    )
    if got != expected:
        raise UserError(f"held-out pairs have {got}, expected {expected} as those learned from; give both alike, or a fraction")


def chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings from a file say about normalisation and symmetries, as arguments of `Surrogate`."""
    kinds = settings.get("normalise", "scalar")
    symmetries = {"symmetries": settings.get("symmetries", ()), "kind": settings.get("kind", "cell")}
    return {"normalise": tuple(kinds) if isinstance(kinds, list) else kinds, **symmetries}
