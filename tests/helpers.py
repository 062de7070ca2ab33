"""Functions that several test files share."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pdno import PDNO, Diffusion, Schedule, Training

SMALL = (
    "--set network.kind=unet --set network.base=8 --set network.multipliers=[1,2] --set diffusion.n_steps=8 "
    "--set training.updates=2 --set training.batch=4"
)
TINY = {"kind": "unet", "base": 8, "multipliers": (1, 2)}
TWO = Training(updates=2, batch=4)
STILL = Training(updates=1, batch=2, rate=1e-12, ema=0.0)  # weights stay as they are


def digest(store: Path) -> str:
    """Return the SHA-256 of all paths and bytes below a folder."""
    total = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        total.update(str(path.relative_to(store)).encode() + b"\0")
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def alive_in_session(session: int) -> list[int]:
    """Return the processes of a session that still run."""
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
    """Return a model that trains within milliseconds."""
    return PDNO(**{"network": TINY, "mean": None, "diffusion": Diffusion(Schedule.cosine(10)), "training": TWO, **settings})


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Return independent standard normal values."""
    return np.random.default_rng(seed).standard_normal(shape)


class ExactDenoiser(nn.Module):
    """A network that returns E[U_0 | U_n = v] for u | a ~ N(slope·a, s²); γ is that of the full chain."""

    def __init__(self, slope: float = 1.0, s: float = 0.0, schedule: Schedule | None = None) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))
        self.slope, self.s = slope, s
        gamma = (Schedule.cosine(100) if schedule is None else schedule).gamma
        self.register_buffer("gamma", torch.as_tensor(gamma, dtype=torch.float32))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        gamma = self.gamma[n].reshape(-1, *(1,) * (v.ndim - 1))
        gain = gamma.sqrt() * self.s**2 / (gamma * self.s**2 + 1 - gamma)
        mean = self.slope * a
        return self.one * (mean + gain * (v - gamma.sqrt() * mean))


def exact(slope: float = 1.0, s: float = 0.0, **settings: Any) -> PDNO:
    """Return the paper's model with the exact network for u | a ~ N(slope·a, s²)."""
    return PDNO(ExactDenoiser(slope, s), mean=None, normalise="none", training=STILL, **settings)


def linear_pairs(count: int = 400, sigma: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs (count, 1, 16), outputs that are linear in them with white noise of std sigma, and clean outputs."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((count, 1, 16))
    clean = np.cumsum(a, axis=2) / 4 + 1
    return a, clean + sigma * rng.standard_normal(clean.shape), clean


def square_mesh(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes (node, 2) and the triangles (cell, 3) of the unit square, with so many points along a side."""
    x = np.linspace(0, 1, points)
    corner = (np.arange(points - 1)[:, None] * points + np.arange(points - 1)).reshape(-1, 1)
    cells = corner + np.array([[0, 1, points + 1], [0, points + 1, points]]).reshape(1, 6)
    return np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2), cells.reshape(-1, 3)
