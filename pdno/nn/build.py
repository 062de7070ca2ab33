"""From a name or settings to a network."""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..errors import UserError, nearest
from .fno import FNO
from .layers import Network
from .slim import Slim
from .spectral import Spectral
from .unet import UNet
from .zero import Zero

__all__ = ["NETWORKS", "build"]

NETWORKS: dict[str, type[Network]] = {"unet": UNet, "fno": FNO, "slim": Slim, "spectral": Spectral, "zero": Zero}


def build(asked: Any, grid: tuple[int, ...], in_channels: int, out_channels: int, time: bool, seed: int) -> nn.Module:
    """A network for a grid, with weights that are a function of the seed; a module that was asked for is copied.

    >>> type(build({"kind": "fno", "modes": 4, "width": 8}, (32,), 2, 1, True, seed=0)).__name__
    'FNO'
    """
    if isinstance(asked, nn.Module):
        if not any(True for _ in asked.parameters()):
            raise UserError("the network has no parameters, so there is nothing to learn; give a module that has some")
        return deepcopy(asked)
    if not isinstance(asked, str | Mapping):
        raise UserError(f"network = {asked!r}: expected a name, a mapping of settings, or a torch module")
    settings = {"kind": asked} if isinstance(asked, str) else dict(asked)
    kind = settings.pop("kind", "auto")
    if kind == "auto":
        kind, settings = _slim(grid, settings)
    settings = {**_fitting(kind, grid), **settings}
    if kind not in NETWORKS:
        raise UserError(f"network {kind!r} is unknown; {nearest(str(kind), ['auto', *NETWORKS])}")
    given: dict[str, Any] = {"dim": len(grid), "in_channels": in_channels, "out_channels": out_channels, "time": time}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        try:
            return NETWORKS[kind](**{**given, **settings})
        except TypeError as error:
            raise UserError(f"the network {kind!r} does not take these settings: {error}") from None


def _fitting(kind: str, grid: tuple[int, ...]) -> dict[str, Any]:
    """Settings for grids that are too small for a network's defaults."""
    least = min(grid)
    if kind == "fno" and least < 24:
        return {"modes": max(1, least // 2)}
    if kind == "spectral" and least < 47:
        return {"modes": max(1, (least + 1) // 2)}
    if kind == "slim" and least < 8:
        return {"patch": 1, "widths": (48, 96)[: max(1, least.bit_length() - 1)]}
    return {}


def _slim(grid: tuple[int, ...], settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A small network for a grid: a UNet with as many levels as it has room for, an FNO in three dimensions."""
    if len(grid) > 2:
        return "fno", {"modes": max(1, min(8, min(grid) // 2)), "width": 24, **settings}
    levels = max(1, min(4, int(math.log2(min(grid))) - 1))
    return "unet", {"base": 16, "multipliers": (1, 2, 4, 8)[:levels], **settings}
