"""How much of the paper's experiments is run: all of it on a GPU, what an ordinary machine can do, or a smoke test."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..errors import UserError, nearest
from ..model.paper import Setting

__all__ = ["SCALES", "Scale", "scale_of"]

MINUTE = 60.0
FEWEST_MEMBERS = 20  # where the paper has one: its MRLE is that of single members
FIRST_GRIDS = ("elliptic1d-128-gaussian:0.01", "darcy-64", "burgers-512", "advection-256")
EPOCHS = {"advection-256": 200}  # 15,000 updates: the first fifth of the paper's training, as its learning rate is constant
PAPER_INPUTS = {"elliptic1d": 20, "darcy": 4, "burgers": 20, "advection": 20}  # a member takes 100 evaluations of a large UNet
LOGGED = 40  # errors that are logged during a training of given length
SMOKE_BASE = 8  # channels of the paper's network, which has 32 or 64
SMOKE_STEPS = 20  # of the diffusion, which has 100 in the paper
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
        figure_members: of an input of a figure, at most.
        log_error: epochs between two errors that diffusions log during training.
        claim_updates: training steps of each network of a claim.
        claim_inputs: test inputs of a claim, at most.
        points: of each axis by test; None for those of the setting.
        base: channels of the paper's network; None for those of the paper.
        n_steps: of the diffusion, N.
        epochs: of the paper's network by experiment, where time does not limit it.
        paper_inputs: test inputs of the paper's network by test, each with FEWEST_MEMBERS; none for those of other methods.
        minutes: to which the training of all parts was shortened; None for the times above.
    """

    name: str
    seconds: float | None
    other_seconds: float | None
    baseline_seconds: float | None
    most_pairs: int
    most_inputs: int
    most_members: int
    figure_members: int
    log_error: float
    claim_updates: int
    claim_inputs: int
    points: dict[str, int] | None = None
    base: int | None = None
    n_steps: int = 100
    epochs: Mapping[str, int] = field(default_factory=dict)
    paper_inputs: Mapping[str, int] = field(default_factory=dict)
    minutes: float | None = None

    def within(self, minutes: float | None) -> "Scale":
        """Return the scale with a shorter training of each part, in minutes; None for its own.

        Raises:
            UserError: if parts of this scale have no time limit, or a shorter one.
        """
        if minutes is None:
            return self
        if self.seconds is None or self.other_seconds is None or self.baseline_seconds is None:
            raise UserError(f"--minutes {minutes:g}: parts of the scale {self.name} train for the epochs of the paper; omit it")
        most = minutes * MINUTE
        if not 0 < most <= self.seconds:
            raise UserError(f"--minutes {minutes:g}: expected more than 0 and at most {self.seconds / MINUTE:g}")
        other, baseline = min(most, self.other_seconds), min(most, self.baseline_seconds)
        return replace(self, seconds=most, other_seconds=other, baseline_seconds=baseline, epochs={}, minutes=minutes)

    @property
    def options(self) -> str:
        """Options of the command line that select it."""
        return f"--scale {self.name}" + ("" if self.minutes is None else f" --minutes {self.minutes:g}")

    def budget(self, setting: Setting) -> float | None:
        """Return the training time of a diffusion or the default in seconds; None for the number of epochs of the paper."""
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

    def scored(self, setting: Setting, of_paper: bool) -> tuple[int, int]:
        """Return the numbers of test inputs and of members that are scored, of the paper's network or of another method."""
        if not of_paper or not self.paper_inputs:
            return self.inputs(setting), self.members(setting)
        return min(self.inputs(setting), self.paper_inputs[setting.test]), FEWEST_MEMBERS

    def drawn(self, setting: Setting) -> int:
        """Return the number of members of an input of a figure: as many as the paper has for noisy data."""
        return max(FEWEST_MEMBERS, min(setting.members, self.figure_members))

    def log_interval(self, setting: Setting) -> float:
        """Return the number of epochs between two errors that are logged: forty times in a training of given length."""
        return max(self.log_error, self.epochs.get(setting.name, 0) / LOGGED)

    def grid_points(self, setting: Setting) -> int:
        """Return the points of each axis."""
        return setting.points if self.points is None else self.points[setting.test]


SCALES = {
    "smoke": Scale("smoke", 1.0, 1.0, 0.5, 64, 2, FEWEST_MEMBERS, 50, 5, 2, 4, SMOKE_POINTS, SMOKE_BASE, SMOKE_STEPS),
    "cpu": Scale(
        "cpu",
        45 * MINUTE,
        20 * MINUTE,
        10 * MINUTE,
        10_000,
        100,
        100,
        1000,
        1,
        600,
        16,
        epochs=EPOCHS,
        paper_inputs=PAPER_INPUTS,
    ),
    "paper": Scale("paper", None, None, None, 10_000, 10_000, 10_000, 10_000, 20, 200_000, 100),
}


def scale_of(name: str) -> Scale:
    """Return the scale of this name.

    Raises:
        UserError: if there is none.
    """
    if name not in SCALES:
        raise UserError(f"--scale {name} is unknown; {nearest(name, SCALES)}")
    return SCALES[name]
