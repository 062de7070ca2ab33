"""How much of the paper's experiments is run: all of it on a GPU, what an ordinary machine can do, or a smoke test."""

from dataclasses import dataclass

from ..errors import UserError, nearest
from ..model.paper import Setting

__all__ = ["SCALES", "Scale", "scale_of"]

MINUTE = 60.0
FEWEST_MEMBERS = 20  # where the paper has one: its MRLE is that of single members
FIRST_GRIDS = ("elliptic1d-128-gaussian:0.01", "darcy-64", "burgers-512", "advection-256")
SMOKE_POINTS = {"elliptic1d": 32, "darcy": 16, "burgers": 32, "advection": 32}


@dataclass(frozen=True)
class Scale:
    """The size of an experiment.

    Args:
        name: "smoke", "cpu" or "paper".
        seconds: of training a diffusion or the default on the first grid of a test; None for as many epochs as in the paper.
        other_seconds: the same on other grids and noise levels.
        baseline_seconds: of training a baseline.
        most_pairs: training pairs, at most.
        most_inputs: test inputs, at most.
        most_members: of each test input, at most.
        claim_updates: training steps of each network of a claim.
        claim_inputs: test inputs of a claim, at most.
        points: of each axis by test; None for those of the setting.
    """

    name: str
    seconds: float | None
    other_seconds: float | None
    baseline_seconds: float | None
    most_pairs: int
    most_inputs: int
    most_members: int
    claim_updates: int
    claim_inputs: int
    points: dict[str, int] | None = None

    def budget(self, setting: Setting, is_baseline: bool) -> float | None:
        """Return the training time in seconds; None for the number of epochs of the paper."""
        if is_baseline:
            return self.baseline_seconds
        return self.seconds if setting.name in FIRST_GRIDS else self.other_seconds

    def train(self, setting: Setting) -> int:
        """Return the number of training pairs."""
        return min(setting.train, self.most_pairs)

    def inputs(self, setting: Setting) -> int:
        """Return the number of test inputs."""
        return min(setting.table.test, self.most_inputs)

    def members(self, setting: Setting) -> int:
        """Return the number of members of each test input, as many at least as scores and intervals need."""
        return max(FEWEST_MEMBERS, min(setting.members, self.most_members))

    def grid_points(self, setting: Setting) -> int:
        """Return the points of each axis."""
        return setting.points if self.points is None else self.points[setting.test]


SCALES = {
    "smoke": Scale("smoke", 2.0, 2.0, 1.0, 64, 4, FEWEST_MEMBERS, 2, 4, SMOKE_POINTS),
    "cpu": Scale("cpu", 45 * MINUTE, 20 * MINUTE, 10 * MINUTE, 10_000, 100, 100, 600, 16),
    "paper": Scale("paper", None, None, None, 10_000, 10_000, 10_000, 200_000, 100),
}


def scale_of(name: str) -> Scale:
    """Return the scale of this name.

    Raises:
        UserError: if there is none.
    """
    if name not in SCALES:
        raise UserError(f"--scale {name} is unknown; {nearest(name, SCALES)}")
    return SCALES[name]
