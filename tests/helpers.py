"""Functions that several test files share."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from pdno import PDNO, Diffusion, Schedule, Training

SMALL = (
    "--set network.kind=unet --set network.base=8 --set network.multipliers=[1,2] --set diffusion.n_steps=8 "
    "--set training.updates=2 --set training.batch=4"
)
TINY = {"kind": "unet", "base": 8, "multipliers": (1, 2)}
TWO = Training(updates=2, batch=4)


def digest(store: Path) -> str:
    """SHA-256 of every path and byte below a folder."""
    total = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        total.update(str(path.relative_to(store)).encode() + b"\0")
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def alive_in_session(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def small(**settings: Any) -> PDNO:
    """A model that takes milliseconds."""
    return PDNO(**{"network": TINY, "mean": None, "diffusion": Diffusion(Schedule.cosine(10)), "training": TWO, **settings})


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)
