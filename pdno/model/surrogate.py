"""The protocol of models: fit on pairs, predict, save. It is the same for all models, and so is their evaluation.

A model implements `learn_law`, `settings` and `from_settings`; all other methods are shared.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, final

import numpy as np

from .. import __version__
from .._typing import Array, Ints
from ..basis import Kind
from ..data.arrays import arranged, check_alike, check_finite
from ..data.dataset import Dataset
from ..data.meshes import Points, on_one_grid, spaces_on
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..evaluation.novelty import Novelty
from ..learning.budget import Terms
from ..learning.errorlog import check_log
from ..mean.choice import Trial
from ..symmetry import Own
from ..work import checkpoint
from ..work.engine import check_engine
from ..work.state import State
from ..work.threads import suitable_threads
from .law import Given, Law
from .members import TOLERANCE
from .prediction import Prediction, calibrate, draw_members, predict
from .transfer import Transfer

__all__ = ["Surrogate"]

KIND = "model"
THREADS_MEASURED = 20.0  # seconds of budget from which it is measured whether one thread is faster than all


class Surrogate(ABC):
    """A model of u | a.

    Args:
        budget: seconds that training may take; None for no limit.
        symmetries: exact symmetries of the operator, by name or as custom maps, see `pdno.symmetry`. Declare exact ones only.
        kind: of the grid's axes, one for all or one each, see `pdno.grid`; reflections and shifts depend on it.

    `law` is the learned distribution; it is None before `fit`.
    """

    name: ClassVar[str]  # in results and files
    named_after_mean: ClassVar[bool] = False  # whether results name the mean instead
    law: Law | None = None

    def __init__(
        self,
        budget: float | None = None,
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
    ) -> None:
        self.budget = budget
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self.kind = kind if isinstance(kind, str) else tuple(kind)
        self.log: Callable[[str], None] = lambda text: None  # receives a line for each candidate that is tried

    # Each model says

    @abstractmethod
    def learn_law(self, pairs: Pairs, held_out: Pairs | None, spaces: Spaces, terms: Terms) -> Law:
        """Learn the distribution of u given a.

        Args:
            pairs: training pairs.
            held_out: validation pairs; None if there are none.
            spaces: grids and channels of the pairs.
            terms: seed, folder, devices and deadline.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments as plain JSON types; "own" stands for code of the user."""

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: Mapping[str, Any], law: Law) -> Self:
        """Return the model with these settings and this law; parts that are "own" are taken from the law."""

    # Training

    @final
    def fit(
        self,
        a: Any,
        u: Any = None,
        *,
        scalars: Any = None,
        mask: Any = None,
        group: Any = None,
        dims: str | None = None,
        validation: float | Pairs | tuple[Any, ...] = 0.1,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Train on pairs: NumPy, torch or xarray.

        Args:
            a: inputs (sample, *grid) or (sample, channel, *grid); None if there are scalars only. Pairs on several grids are a
                list [(a1, u1), (a2, u2), …] without u; they are interpolated to the finest grid.
            u: outputs, likewise; on a grid of their own or that of a.
            scalars: further parameters, (sample, parameter).
            mask: True where u is observed, or "nan"; missing values are ignored in training.
            group: labels; pairs with the same label stay on one side of the split.
            dims: "sample,x,y", or "sample,x:sample,channel,x" for a and u, where shapes are ambiguous.
            validation: fraction of the pairs to hold out, or pairs (a, u) or (a, u, scalars) of your own. Models, scales and
                numbers of steps are selected on them.
            seed: of everything that is drawn.
            options: see `learn`.

        Returns:
            The fitted model itself.

        Raises:
            UserError: if the arrays do not fit together, or the model cannot be trained on them.
        """
        if u is None and isinstance(a, list):
            a, u, dims, options["note"] = on_one_grid(a, self.kind, dims)
        pairs, channel = arranged(a, u, scalars, mask, group, dims)
        if isinstance(validation, tuple):
            x, y, s = validation if len(validation) == 3 else (*validation, None)
            validation = arranged(x, y, s, mask if isinstance(mask, str) else None, None, dims)[0]
        if isinstance(validation, Pairs):
            return self.learn(pairs, validation, seed=seed, channel=channel, **options)
        if len(pairs) < 2:
            raise UserError(f"{len(pairs)} pairs are too few for training and validation; give at least two")
        if not 0 <= validation < 1 or round(validation * len(pairs)) == len(pairs):
            raise UserError(
                f"validation = {validation}: expected a fraction that leaves some of {len(pairs)} pairs to train on"
            )
        whole = Dataset(pairs, pairs[:0], {"name": "pairs"})
        data = whole.split(max(validation, 1 / len(pairs)) if validation else 0.0, 0.0, seed)
        if number := data.provenance.get("series"):
            self.log(f"Consecutive samples are alike, as in a time series: splits and folds are of {number} blocks of them.")
        return self.learn(data.train, data.validation, seed=seed, channel=channel, **options)

    @final
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
        log_error: float = 0.0,
        log_pairs: Pairs | None = None,
        note: str = "",
    ) -> Self:
        """Train on pairs that are split already.

        Args:
            pairs: training pairs.
            validation: held-out pairs; None if there are none.
            seed: of everything that is drawn.
            channel: whether predictions have a channel axis.
            run: folder for checkpoints and logs; an unfinished run in it is resumed.
            device: "auto", "cpu", "cuda", …
            devices: processes on this machine; under torchrun, those that it started.
            precision: "32-true", "64-true" or "bf16-mixed".
            progress: show progress bars on terminals.
            log_error: epochs between two measurements of the MRLE of a network that is trained, in its history and log: of its
                prediction, or of one member each of at most 20 pairs for a diffusion; 0 for none.
            log_pairs: pairs of these measurements where one network learns u; default: the validation pairs.
            note: a sentence about the pairs, for the summary.
        """
        self.law = None
        check_engine(device, devices, precision)
        deadline = None if self.budget is None else time.monotonic() + self.budget
        for part in (pairs, validation, log_pairs):
            if part is not None:
                check_finite(part)
        validation = validation.in_random_order(seed) if validation else validation
        spaces = Spaces.of(pairs, channel, self.kind)
        self.kind = spaces.kind if "node" in spaces.kind else self.kind  # all parts need it
        for part in filter(None, (validation, log_pairs)):
            check_alike(pairs, part)
        check_log(log_error, log_pairs or validation)
        place = None if run is None else Path(run), device, devices, precision, progress, deadline
        terms = Terms(int(seed), *place, log=self.log, log_error=float(log_error), log_pairs=log_pairs)
        is_long = self.budget is not None and self.budget >= THREADS_MEASURED and terms.single_process
        with suitable_threads() if is_long else nullcontext():
            law = self.learn_law(pairs, validation or None, spaces, terms)
        prints = pairs.fingerprints()
        facts = {"version": __version__, "seed": terms.seed, "pairs": len(pairs)}
        facts |= {"updates": sum(network.updates for network in law.residual.networks)}
        transfer = None if "node" in spaces.kind else Transfer.of(law.mean, validation or pairs, spaces)
        self.law = replace(
            law,
            transfer=transfer,
            summary=(*([note] if note else []), *law.summary, *([] if transfer is None else [transfer.describe()])),
            novelty=Novelty.halves(pairs.a, pairs.scalars, prints if pairs.group is None else pairs.group),
            fingerprints=np.unique(prints if validation is None else np.append(prints, validation.fingerprints())),
            history=law.history or tuple(row for network in law.residual.networks for row in network.history),
            provenance={**facts, **law.provenance},
        )
        return self

    # Prediction

    @final
    @property
    def fitted(self) -> Law:
        """The learned distribution.

        Raises:
            UserError: before `fit`.
        """
        if self.law is None:
            raise UserError("this model has not been fitted; call fit first, or load one")
        return self.law

    @final
    def given(self, a: Array, scalars: Array | None = None) -> Given:
        """Return the distribution of u for inputs (sample, channel, *grid) and scalars (sample, parameter)."""
        return self.fitted.on(spaces_on(self.spaces, a)).given(a, scalars)

    @final
    def sample(
        self,
        a: Any,
        members: int = 1,
        seed: int = 0,
        *,
        scalars: Any = None,
        chunk: int | None = None,
        first: int = 0,
        points: Points | None = None,
        **sampling: Any,
    ) -> Any:
        """Draw members of u | a: (members, *shape of u). Arguments and exceptions as in `predict`."""
        return draw_members(self.fitted, a, members, seed, scalars, chunk, first, points, **sampling)

    @final
    def predict(
        self,
        a: Any,
        members: int | Literal["auto"] = 100,
        seed: int = 0,
        quantiles: tuple[float, ...] = (0.05, 0.95),
        *,
        scalars: Any = None,
        chunk: int | None = None,
        first: int = 0,
        progress: bool = True,
        tolerance: float = TOLERANCE,
        points: Points | None = None,
        **sampling: Any,
    ) -> Prediction:
        """Return mean, std and quantiles of each input's members, in memory that does not grow with their number.

        Args:
            a: inputs, as in `fit`, on any grid of the same domain.
            members: to draw for each input; "auto" for as many as the tolerance requires, at most 10,000.
            seed: of the members, which are those of `sample` with the same seed.
            quantiles: levels in [0, 1].
            scalars: as in `fit`.
            chunk: rows of a call of the network; members are bitwise identical at equal chunk.
            first: number of the first input; members are functions of (seed, number of the input, number of the member).
            progress: show a progress bar on terminals.
            tolerance: with members="auto", the largest Monte-Carlo error of mean and std, relative to the std.
            points: of the grid of the prediction, one number or one for each axis; default: that of a, if a and u share a grid
                in training, else that of training.
            sampling: settings of the residual law, such as steps=20.

        Returns:
            Statistics in the shape of u, as xarray for xarray inputs and as NumPy otherwise.

        Raises:
            UserError: if the model has not been fitted, or inputs or settings do not fit it.
        """
        options: dict[str, Any] = {"scalars": scalars, "chunk": chunk, "start": first, "progress": progress}
        options |= {"tolerance": tolerance, "points": points}
        return predict(self.fitted, a, members, seed, quantiles, **options, **sampling)

    @final
    def calibrate(
        self, pairs: Pairs, level: float = 0.9, members: int = 100, seed: int = 0, progress: bool = True, **sampling: Any
    ) -> Self:
        """Make the intervals and bands of predictions conformal, by held-out pairs, and return the model itself.

        Args:
            pairs: not trained on, from the distribution that the model will be used on; at least level / (1 − level)
                independent ones, of which one of each group is used.
            level: of the intervals and bands.
            members, seed, progress, sampling: as in `predict`. Predictions with others, but for the seed, are not calibrated.
        """
        intervals = calibrate(self.fitted, pairs, level, members, seed, progress, **sampling)
        self.law = replace(self.fitted, intervals=intervals)
        return self

    @final
    def evaluations(self, **sampling: Any) -> int:
        """Return the number of network evaluations for one member."""
        return self.fitted.evaluations(**sampling)

    @final
    @property
    def method(self) -> str:
        """Name of the method in results."""
        return self.fitted.mean.name if self.named_after_mean else self.name

    @final
    @property
    def deterministic(self) -> bool:
        """Whether all members are the same."""
        return self.fitted.residual.deterministic

    @final
    @property
    def parameters(self) -> int:
        """Number of values that were learned."""
        return self.fitted.parameters

    @final
    @property
    def spaces(self) -> Spaces:
        """Grids and channels of a and u."""
        return self.fitted.spaces

    @final
    @property
    def novelty(self) -> Novelty | None:
        """Out-of-distribution score of inputs; None if there were too few to estimate it from."""
        return self.fitted.novelty

    @final
    @property
    def fingerprints(self) -> Ints:
        """Fingerprints of the training and validation pairs, sorted."""
        return self.fitted.fingerprints

    @final
    @property
    def provenance(self) -> Mapping[str, Any]:
        """Version, seed, number of pairs and of updates."""
        return self.fitted.provenance

    @final
    @property
    def fit_summary(self) -> list[str]:
        """What was selected and why, in sentences."""
        return list(self.fitted.summary)

    @final
    @property
    def leaderboard(self) -> tuple[Trial, ...]:
        """The candidates for the mean."""
        return self.fitted.leaderboard

    @final
    @property
    def history(self) -> list[dict[str, Any]]:
        """Rows of the training log of the residual law, or of the mean of a network baseline."""
        return list(self.fitted.history)

    @final
    def annotate(self, **entries: Any) -> None:
        """Add entries to the provenance."""
        self.law = replace(self.fitted, provenance={**self.provenance, **entries})

    @final
    def to(self, device: str) -> Self:
        """Move the model to a device; "auto" chooses a GPU if there is one."""
        self.fitted.to(device)
        return self

    # Saving

    @final
    def save(self, path: str | Path) -> None:
        """Write the model into one file, which `pdno.load` reads; no code is stored, and none is run on loading.

        Raises:
            UserError: if the model has not been fitted, or symmetries are custom maps, which are code.
        """
        law = self.fitted
        if not all(isinstance(each, str) for each in self.symmetries):
            raise UserError("custom maps among the symmetries are code, which is not saved; use named ones, such as 'square'")
        checkpoint.save_state(Path(path), KIND, State({"model": self.name, **self.settings()}, {}, {"law": law.state()}))
