"""The conformal calibration of a model: intervals at points and bands around whole fields, of one level.

It is a part of the model's file after `Surrogate.calibrate`; `pdno evaluate` writes it into a file of its own in the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..evaluation.conformal import Conformal
from ..work import checkpoint
from ..work.folder import RunFolder
from ..work.state import State

__all__ = ["KIND", "Intervals", "intervals_in"]

KIND = "intervals"  # of the file in a run


@dataclass(frozen=True, eq=False)
class Intervals:
    """Corrections of the central intervals of members, on the grid of training.

    Args:
        points: for intervals at single points.
        fields: for bands that cover whole fields.
        sampling: settings of the members that they were computed with, such as {"steps": 20}.
        members: their number: the bounds of fewer members vary more. None if it is not known.
    """

    points: Conformal
    fields: Conformal
    sampling: Mapping[str, Any] = field(default_factory=dict)
    members: int | None = None

    @property
    def level(self) -> float:
        """Nominal level of coverage."""
        return self.points.level

    def belong_to(self, members: int | None, sampling: Mapping[str, Any]) -> bool:
        """Return whether they were computed with so many members (None for a deterministic model) and these settings."""
        return self.sampling == dict(sampling) and (members is None or self.members in (None, members))

    def state(self) -> State:
        """Return what `from_state` needs."""
        settings = {"sampling": dict(self.sampling), "members": self.members}
        return State(settings, {}, {"points": self.points.state(), "fields": self.fields.state()})

    @classmethod
    def from_state(cls, state: State) -> "Intervals":
        """Restore what `state` returned."""
        points, fields = (Conformal.from_state(state.parts[name]) for name in ("points", "fields"))
        return cls(points, fields, state.settings.get("sampling", {}), state.settings.get("members"))


def intervals_in(run: RunFolder) -> Intervals | None:
    """Return the calibration that `pdno evaluate` has written into a run; None unless it belongs to its present model."""
    if not run.intervals.exists():
        return None
    state = checkpoint.load_state(run.intervals, KIND)
    return Intervals.from_state(state) if state.settings.get("model") == run.digest() else None
