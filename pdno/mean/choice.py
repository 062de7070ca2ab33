"""The selected mean model and the other candidates, kept in the folder of a run.

A run that is interrupted while its residual law is trained resumes with the same mean. A second selection, which depends on the
clock, might select another mean with other residuals than those that the law is trained on.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._typing import Array
from ..errors import UserError
from ..work import checkpoint
from ..work.folder import RunFolder
from ..work.state import State
from .base import Mean, named_state
from .build import MEANS, mean_from_state

__all__ = ["Choice", "Effects", "Trial"]

KIND = "mean"


@dataclass(frozen=True)
class Trial:
    """A candidate of the model selection.

    Args:
        name: of the candidate.
        error: on held-out pairs, see `pdno.mean.choose`; None if it was not measured.
        description: of the trained model, or why it was not tried.
        seconds: training time.
        selected: whether it is the model that was selected.
    """

    name: str
    error: float | None
    description: str
    seconds: float = field(default=0.0, compare=False)
    selected: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the time, which differs from run to run."""
        return {name: value for name, value in asdict(self).items() if name != "seconds"}


@dataclass(frozen=True, eq=False)
class Effects:
    """Random effects that whole fields share, and that were removed from the training outputs: Σ_k z_k v_k.

    Args:
        numbers: z, (pair, component).
        fields: v, (component, channel, *grid).

    >>> Effects(np.array([[1.0], [-1.0]]), np.ones((1, 1, 2)))().tolist()
    [[[1.0, 1.0]], [[-1.0, -1.0]]]
    """

    numbers: Array
    fields: Array

    def __call__(self) -> Array:
        """Return the effect in each pair, (pair, channel, *grid)."""
        return np.tensordot(self.numbers, self.fields, 1)


@dataclass(frozen=True)
class Choice:
    """The selected mean, all candidates, and the reason in words.

    Args:
        mean: trained.
        trials: all candidates.
        reason: why this one was selected.
        exact: whether its predictions are exact up to rounding.
        held_out: u − m(a) of the held-out pairs, if it has been computed; it is not saved.
        law: name of the residual law that was selected together with the mean; empty if it is still to be selected.
        effects: that were removed from the outputs on which the mean was trained; None if there are none.
        completed: outputs on which it was trained, if some are missing, see `pdno.model.missing`; None if it needs no such.
    """

    mean: Mean
    trials: tuple[Trial, ...]
    reason: str
    exact: bool = False
    held_out: Array | None = None
    law: str = ""
    effects: Effects | None = None
    completed: Array | None = None

    def save(self, folder: Path, plan: Mapping[str, Any]) -> None:
        """Write the choice into the folder of a run with this plan; nothing is written for a mean with code of the user."""
        if not _is_restorable(self.mean):
            return
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"trials": [asdict(trial) for trial in self.trials], "reason": self.reason, "exact": self.exact}
        settings |= {"law": self.law}
        arrays = {} if self.effects is None else {"numbers": self.effects.numbers, "fields": self.effects.fields}
        arrays |= {} if self.completed is None else {"completed": self.completed}
        state = State({**settings, "plan": _plain(plan)}, arrays, {"mean": named_state(self.mean)})
        checkpoint.save_state(RunFolder(folder).mean, KIND, state)

    @classmethod
    def load(cls, folder: Path, plan: Mapping[str, Any]) -> "Choice | None":
        """Return the choice of a run with the same plan; None if there is none, or it cannot be read."""
        try:
            state = checkpoint.load_state(RunFolder(folder).mean, KIND)
            if state.settings["plan"] != _plain(plan):
                return None
            mean = mean_from_state(state.parts["mean"])
        except UserError:
            return None
        trials = tuple(Trial(**trial) for trial in state.settings["trials"])
        effects = Effects(*(state.arrays[name] for name in ("numbers", "fields"))) if "numbers" in state.arrays else None
        reason, exact, law = (state.settings[name] for name in ("reason", "exact", "law"))
        return cls(mean, trials, reason, exact, law=law, effects=effects, completed=state.arrays.get("completed"))


def _is_restorable(mean: Mean) -> bool:
    """Return whether a mean and all its parts are classes of pdno, which are restored by name."""
    return type(mean) in MEANS.values() and all(map(_is_restorable, mean.parts))


def _plain(plan: Mapping[str, Any]) -> Any:
    """Return the plan as it is read back from a file."""
    return json.loads(json.dumps(plan, default=str))
