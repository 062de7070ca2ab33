"""Rows of `results.json`: a number each, with everything that is needed to make it again.

{"schema": 1, "rows": [{"test": "darcy", "method": "pdno", "grid": "64x64", …, "metric": "mrle", "value": 0.0046, …}]}
"""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import UserError
from ..work.engine import cores
from ..work.whole import replacing

__all__ = ["MEANING", "machine", "paper", "plain", "read", "row", "write"]

SCHEMA = 1

MEANING = {  # of the metrics of `pdno evaluate`, in the order of its table
    "mrle": "relative L2 error of the mean",
    "mrle_fair": "the same for very many members, estimated",
    "mrle_member": "relative L2 error of one member",
    "mrle_ignoring_a": "relative L2 error of the training mean",
    "rmse": "root mean square error of the mean",
    "crps": "fair CRPS",
    "crps_ignoring_a": "fair CRPS of training outputs",
    "energy_score": "fair energy score, root-mean-square norm",
    "nll": "negative log-likelihood of a Gaussian, a point",
    "spectral_distance": "log10 distance of power spectra",
    "mean_std": "standard deviation of the members",
    "mstd": "MSTD as printed in the paper",
    "std_over_noise": "standard deviation over that of the noise",
    "coverage_50": "observations inside 50 % intervals",
    "coverage_90": "observations inside 90 % intervals",
    "coverage_95": "observations inside 95 % intervals",
    "width_90": "width of 90 % intervals",
    "spread_skill": "spread over error, √(1+1/M) included",
    "coverage_90_repaired": "observations inside repaired 90 % intervals",
    "width_90_repaired": "width of repaired 90 % intervals",
    "fields_90_repaired": "whole fields inside repaired 90 % bands",
    "residual_mean": "residual of the equation, of the mean",
    "residual_member": "residual of the equation, of one member",
    "residual_u": "residual of the equation, of the clean outputs",
    "unfamiliar": "inputs flagged as unlike the training inputs",
}

FIELDS = (
    "test",
    "method",
    "grid",
    "train",
    "noise",
    "metric",
    "value",
    "error",
    "paper",
    "members",
    "evaluations",
    "parameters",
    "train_seconds",
    "sample_seconds",
    "seed",
    "command",
    "version",
)

PAPER = {  # the paper's PDNO on noise-free data: MRLE and MSTD
    ("darcy", "64x64"): (0.0046, 5.08e-7),
    ("darcy", "128x128"): (0.0022, 3.52e-7),
    ("darcy", "256x256"): (0.0037, 1.21e-5),
    ("burgers", "512"): (0.0047, 5.47e-4),
    ("burgers", "1024"): (0.0053, 7.93e-4),
    ("burgers", "2048"): (0.0152, 1.51e-3),
    ("advection", "256"): (0.0062, 7.91e-4),
    ("advection", "512"): (0.0081, 7.38e-4),
    ("advection", "1024"): (0.0445, 2.59e-3),
}


def row(metric: str, value: float | np.floating[Any], **known: Any) -> dict[str, Any]:
    """A row with all its fields; those that are not known are None.

    >>> row("mrle", 0.5, test="mine")["value"]
    0.5
    """
    unknown = set(known) - set(FIELDS)
    if unknown:
        raise UserError(f"a row of results has no field {min(unknown)!r}; it has {', '.join(FIELDS)}")
    given = {"version": __version__, **known, "metric": metric, "value": _number(value)}
    return {name: _number(given[name]) if isinstance(given.get(name), float) else given.get(name) for name in FIELDS}


def paper(test: str, grid: str, noise: str, metric: str) -> float | None:
    """What the paper's PDNO has in its tables, None if it is not in one."""
    found = PAPER.get((test, grid)) if noise == "none" else None
    return dict(zip(("mrle", "mstd"), found, strict=True)).get(metric) if found else None


def machine() -> dict[str, Any]:
    """The kind of machine that times belong to."""
    return {"processor": platform.processor() or platform.machine(), "cores": cores()}


def write(path: Path, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write a file of results, whole or not at all."""
    text = json.dumps({"schema": SCHEMA, **more, "rows": list(rows)}, indent=1, ensure_ascii=False, allow_nan=False)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A file of results."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not a file of results ({error}); `pdno evaluate RUN` writes it anew") from None
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        raise UserError(f"{path} is not a file of results: it has no rows; `pdno evaluate RUN` writes it anew")
    if found.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {found.get('schema')}, this version reads schema {SCHEMA}; update pdno")
    return found


def plain(value: Any) -> Any:
    """A value as JSON knows it: what is NaN or infinite becomes None."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: Any) -> float | None:
    """A number that JSON knows; None for what is NaN or infinite."""
    return float(value) if np.isfinite(value) else None
