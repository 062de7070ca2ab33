"""Networks by name or by settings, for a given grid."""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..errors import UserError, nearest
from .base import GridNetwork
from .fno import FNO
from .local import LocalFNO
from .slim import Slim
from .spectral import Spectral
from .unet import UNet

__all__ = ["NETWORKS", "SMALL", "build"]

NETWORKS: dict[str, type[GridNetwork]] = {"unet": UNet, "fno": FNO, "slim": Slim, "spectral": Spectral, "local": LocalFNO}

SMALL: dict[str, dict[str, Any]] = {  # many cheap steps: better than larger networks in minutes of training on a few cores
    "small": {"kind": "slim", "widths": (24, 48, 64), "blocks": 1},
    "small-local": {"kind": "local", "modes": 8, "width": 24},
    "small-fno": {"kind": "fno", "modes": 8, "width": 12},
}
OPERATOR = "operator"  # the network "local" with `points`, which can be evaluated on other grids
FINE = 128  # points per side from which a small UNet has larger patches
FINE_SETTINGS = {"patch": 4, "widths": (48, 64, 96)}
FINE_WIDTHS = (32, 64, 96)  # of a diffusion on such grids, which evaluates its network for each member


def build(
    network: Any,
    grid: tuple[int, ...],
    in_channels: int,
    out_channels: int,
    time: bool,
    seed: int,
    periodic: tuple[bool, ...] = (),
) -> nn.Module:
    """Return a network for a grid, with weights that are a function of the seed.

    Args:
        network: "auto", "operator" or a name of `NETWORKS` or `SMALL`; a mapping with this name as "kind" and settings of the
            network; or a module, of which a copy is returned.
        grid: number of points along each axis.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n.
        seed: of the initial weights.
        periodic: whether each axis is periodic, for networks whose modes depend on it; default: none is.

    Returns:
        A module that maps (n, v, a) with time=True, otherwise a, to (batch, out_channels, *grid).

    Raises:
        UserError: if the name or a setting is unknown, or if a module has no parameters.

    >>> type(build({"kind": "fno", "modes": 4, "width": 8}, (32,), 2, 1, True, seed=0)).__name__
    'FNO'
    """
    if isinstance(network, nn.Module):
        if not any(True for _ in network.parameters()):
            raise UserError("the network has no parameters to train; expected a module with parameters")
        return deepcopy(network)
    if not isinstance(network, str | Mapping):
        raise UserError(f"network = {network!r}: expected a name, a mapping of settings, or a torch module")
    settings = {"kind": network} if isinstance(network, str) else dict(network)
    kind = settings.pop("kind", "auto")
    if kind == "auto":
        kind, settings = _auto(grid, settings)
    if kind == OPERATOR:
        kind, settings = "local", {"points": list(grid), **settings}
    preset: dict[str, Any] = {"modes": 10, "width": 40} if kind == "local" and len(grid) == 2 else {}
    if kind in SMALL:
        preset = {**SMALL[kind], **(FINE_SETTINGS if kind == "small" and min(grid) >= FINE else {})}
        kind = preset.pop("kind")
    if kind not in NETWORKS:
        raise UserError(f"network {kind!r} is unknown; {nearest(str(kind), ['auto', *NETWORKS, OPERATOR, *SMALL])}")
    shared: dict[str, Any] = {"dim": len(grid), "in_channels": in_channels, "out_channels": out_channels, "time": time}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        try:
            return NETWORKS[kind](**{**shared, **preset, **_grid_settings(kind, grid, periodic), **settings})
        except TypeError as error:
            raise UserError(f"the network {kind!r} does not take these settings: {error}") from None


def _grid_settings(kind: str, grid: tuple[int, ...], periodic: tuple[bool, ...]) -> dict[str, Any]:
    """Return settings that the grid asks for: modes that fit its boundary, and fewer on grids that are too small."""
    side = min(grid)
    if kind == "local":
        return {"periodic": list(periodic) if periodic else [False] * len(grid)}
    if kind == "fno" and side < 24:
        return {"modes": max(1, side // 2)}
    if kind == "spectral" and side < 47:
        return {"modes": max(1, (side + 1) // 2)}
    if kind == "slim" and side < 8:
        return {"patch": 1, "widths": (48, 96)[: max(1, side.bit_length() - 1)]}
    return {}


def _auto(grid: tuple[int, ...], settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return kind and settings of a small network with a spectral and a local path; in three dimensions, of an FNO.

    On fine two-dimensional grids it is a small UNet of patches, whose evaluation takes a fortieth of the time. Settings of a
    UNet select a small UNet with as many levels as fit the grid.
    """
    if len(grid) > 2:
        return "fno", {"modes": max(1, min(8, min(grid) // 2)), "width": 24, **settings}
    if not {"base", "multipliers", "attention"} & set(settings):
        return ("small", {"widths": FINE_WIDTHS, **settings}) if len(grid) == 2 and min(grid) >= FINE else ("local", settings)
    levels = max(1, min(4, int(math.log2(min(grid))) - 1))
    return "unet", {"base": 16, "multipliers": (1, 2, 4, 8)[:levels], **settings}
