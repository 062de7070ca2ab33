"""The paper's experiments as data: its hyper-parameters (Tables A1–A4), its settings, and the numbers of its tables.

What the paper does not give is ours, and marked so: the training of its FNO, and where weights are averaged or clipped (never).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..diffusion.base import White
from ..diffusion.chain import Diffusion
from ..diffusion.schedule import Schedule
from ..learning.normalisation import Normalise
from ..learning.settings import Training

__all__ = ["CELLS", "FNO_TESTS", "PDNO_TESTS", "SETTINGS", "Cell", "Setting", "Table"]


@dataclass(frozen=True)
class Table:
    """One of the Tables A1–A4; of two values, the first is for noise-free and the second for noisy data.

    Args:
        label: in the paper.
        base: initial base channels.
        batch: size of a batch.
        train: M_train.
        schedule: "cosine" or "linear".
        rate: learning rate.
        halved: whether it is halved every hundred epochs.
        normalised: whether data are normalised.
        test: M_test.
        members: M_infer.
        multipliers: of the channels, at each level.
        blocks: residual blocks per resolution.
        n_steps: N.
        epochs: number of epochs.
    """

    label: str
    base: int
    batch: int
    train: tuple[int, int]
    schedule: str
    rate: float
    halved: bool
    normalised: tuple[bool, bool]
    test: int
    members: tuple[int, int]
    multipliers: tuple[int, ...] = (1, 2, 4, 8)
    blocks: int = 2
    n_steps: int = 100
    epochs: int = 1000

    def arguments(self, noisy: bool) -> dict[str, Any]:
        """Return the arguments of `PDNO`: target ε, σ_n of the theorem, Adam, and no mean model."""
        schedule = {"cosine": Schedule.cosine, "linear": Schedule.linear}[self.schedule]
        training = Training(
            epochs=self.epochs,
            batch=self.batch,
            optimizer="adam",
            rate=self.rate,
            rate_schedule="step" if self.halved else "constant",
            ema=0.0,
            clip=0.0,
        )
        return {
            "network": {"kind": "unet", "base": self.base},
            "diffusion": Diffusion(schedule(self.n_steps), White(), "eps", "ddsm"),
            "variance": "gaussian" if noisy else "noise-free",
            "steps": self.n_steps,
            "mean": None,
            "normalise": "scalar" if self.normalised[noisy] else "none",
            "training": training,
        }


PDNO_TESTS = {
    "elliptic1d": Table("tab:params-test1", 32, 50, (10_000, 10_000), "cosine", 1e-4, True, (False, False), 10_000, (1, 500)),
    "darcy": Table("tab:params-test2", 64, 20, (1000, 1000), "cosine", 1e-4, True, (True, True), 100, (1, 500)),
    "burgers": Table("tab:params-test3", 32, 32, (1024, 1024), "linear", 1e-4, True, (False, False), 1024, (1, 1)),
    "advection": Table("tab:params-test4", 32, 20, (1500, 10_000), "cosine", 8e-5, False, (False, True), 300, (1, 10_000)),
}
DENSITY_MEMBERS = 10_000  # for `fig:noise_distribution`, whose text has more members than Table A2


@dataclass(frozen=True)
class Setting:
    """An experiment of the paper.

    Args:
        test: key of `PDNO_TESTS`.
        points: of each axis.
        noise: of the training outputs, as on the command line.
        members_own: M_infer, if it is not that of the table.
    """

    test: str
    points: int
    noise: str = "none"
    members_own: int | None = None

    @property
    def name(self) -> str:
        """Test, points and noise: "darcy-64", "elliptic1d-128-gaussian:0.05"."""
        return f"{self.test}-{self.points}" + ("" if self.noise == "none" else f"-{self.noise}")

    @property
    def noisy(self) -> bool:
        """Whether training outputs are noisy."""
        return self.noise != "none"

    @property
    def grid(self) -> str:
        """Name of the grid in results."""
        return f"{self.points}x{self.points}" if self.test == "darcy" else str(self.points)

    @property
    def table(self) -> Table:
        """The table of its hyper-parameters."""
        return PDNO_TESTS[self.test]

    @property
    def train(self) -> int:
        """M_train."""
        return self.table.train[self.noisy]

    @property
    def members(self) -> int:
        """M_infer."""
        return self.members_own or self.table.members[self.noisy]


def _settings() -> Iterator[Setting]:
    for sigma in ("0.01", "0.05", "1"):
        yield Setting("elliptic1d", 128, f"gaussian:{sigma}")
    for test, grids in (("darcy", (64, 128, 256)), ("burgers", (512, 1024, 2048)), ("advection", (256, 512, 1024))):
        for points in grids:
            yield Setting(test, points)
    for points in (64, 128):
        for case in (1, 2):
            yield Setting("darcy", points, f"mixture:{case}", DENSITY_MEMBERS)
    for points in (256, 512):
        yield Setting("advection", points, "gaussian:0.5")


SETTINGS = {setting.name: setting for setting in _settings()}


@dataclass(frozen=True)
class Cell:
    """Numbers of the paper's tables for one grid, noise-free.

    Args:
        mrle: of PDNO.
        mstd: of PDNO.
        fno: MRLE of the FNO.
    """

    mrle: float
    mstd: float
    fno: float


CELLS = {  # `tab:darcy_error`, `tab:burgers`, `tab:adv_error`
    "darcy-64": Cell(0.0046, 5.08e-7, 0.0060),
    "darcy-128": Cell(0.0022, 3.52e-7, 0.0078),
    "darcy-256": Cell(0.0037, 1.21e-5, 0.0050),
    "burgers-512": Cell(0.0047, 5.47e-4, 0.0005),
    "burgers-1024": Cell(0.0053, 7.93e-4, 0.0005),
    "burgers-2048": Cell(0.0152, 1.51e-3, 0.0005),
    "advection-256": Cell(0.0062, 7.91e-4, 0.0514),
    "advection-512": Cell(0.0081, 7.38e-4, 0.1072),
    "advection-1024": Cell(0.0445, 2.59e-3, 0.1325),
}


def _fno(modes: int, width: int, halve_every: float, normalise: Normalise = "none") -> dict[str, Any]:
    """Return arguments of `FNO`: the paper's numbers of parameters, and settings of ours, common to all FNO baselines."""
    training = Training(
        epochs=500,
        batch=20,
        optimizer="adam",
        rate=1e-3,
        rate_schedule="step",
        halve_every=halve_every,
        weight_decay=1e-4,
        ema=0.0,
        clip=0.0,
    )
    return {"network": {"kind": "fno", "modes": modes, "width": width}, "normalise": normalise, "training": training}


FNO_TESTS = {
    "darcy": _fno(12, 32, 100, "pointwise"),
    "burgers": _fno(16, 64, 50),
    "advection": _fno(16, 128, 50),
}
