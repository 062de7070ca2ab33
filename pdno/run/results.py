"""Rows of `results.json`: one number each, with all that is needed to reproduce it.

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
from ..model.paper import CELLS
from ..work.engine import cores
from ..work.files import replacing

__all__ = [
    "DESCRIPTIONS",
    "FIELDS",
    "NOISE",
    "QUANTILES",
    "SOURCES",
    "duration",
    "machine",
    "paper",
    "plain",
    "read",
    "renamed_trial",
    "row",
    "write",
]

SCHEMA = 1

DESCRIPTIONS = {  # metrics of `pdno evaluate`, in the order of its table
    "mrle": "relative L2 error of the mean",
    "mrle_debiased": "relative L2 error, corrected for finite ensemble size",
    "mrle_member": "relative L2 error of one member",
    "mrle_unconditional": "relative L2 error of the mean training output",
    "rmse": "root mean square error of the mean",
    "crps": "fair CRPS",
    "crps_unconditional": "fair CRPS of training outputs as ensemble",
    "energy_score": "fair energy score, root-mean-square norm",
    "nll": "Gaussian negative log-likelihood per point",
    "spectral_distance": "log10 distance between power spectra",
    "mean_std": "standard deviation of the members",
    "mstd": "MSTD as printed in the paper",
    "std_noise_ratio": "standard deviation of the members / of the noise",
    "coverage_50": "coverage of 50 % intervals",
    "coverage_90": "coverage of 90 % intervals",
    "coverage_90_median": "coverage of 90 % intervals of single inputs, median",
    "coverage_90_lowest_decile": "coverage of 90 % intervals of single inputs, lowest decile",
    "coverage_90_lowest_decile_members": "the same of members in place of observations",
    "coverage_90_worst": "coverage of 90 % intervals of single inputs, worst",
    "coverage_95": "coverage of 95 % intervals",
    "coverage_90_mean": "coverage of 90 % intervals, mean of the field",
    "coverage_90_maximum": "coverage of 90 % intervals, maximum of the field",
    "coverage_90_roughness": "coverage of 90 % intervals, roughness of the field",
    "width_90": "mean width of 90 % intervals",
    "spread_skill": "spread–skill ratio, with √(1+1/M)",
    "coverage_90_conformal": "coverage of conformal 90 % intervals",
    "width_90_conformal": "mean width of conformal 90 % intervals",
    "band_coverage_90_conformal": "coverage of simultaneous conformal 90 % bands, observed points",
    "residual_mean": "relative residual of the equation, mean",
    "residual_member": "relative residual of the equation, one member",
    "residual_u": "relative residual of the equation, clean outputs",
    "ood_fraction": "fraction of out-of-distribution inputs",
}

NOISE = {  # statistics of the noise: short and long description; metrics have the prefix of a source
    "std": ("standard deviation", "standard deviation at a point"),
    "average_std": ("relative average std", "standard deviation of the field's average / of held-out errors at a point"),
    "neighbour_correlation": ("neighbour correlation", "correlation of neighbouring nodes"),
    "shared_fraction": ("shared fraction", "fraction of the variance that the whole field shares"),
    "correlation_length": ("correlation length", "correlation length / length of the axis"),
    "growth": ("growth with |mean|", "exponent b of std ∝ |mean|^b at a node"),
    "input_dependence": ("R² of log size, input", "variance of the log size that the input explains (R²)"),
    "average_modes": ("modes of the average", "modes of the field's average"),
    "point_modes": ("modes at largest std", "modes where the standard deviation is largest"),
}
SOURCES = {"noise": "held-out errors", "members": "members", "truth": "true noise"}  # prefix → description
DESCRIPTIONS |= {
    f"{prefix}_{name}": f"{text} ({source})" for name, (_, text) in NOISE.items() for prefix, source in SOURCES.items()
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
    "channel",
    "quantile",
    "law",
)
QUANTILES = {  # metrics that are a quantile over inputs: its level
    "coverage_90_median": 0.5,
    "coverage_90_lowest_decile": 0.1,
    "coverage_90_lowest_decile_members": 0.1,
    "coverage_90_worst": 0.0,
}

OLD_METRICS = {  # old name → new name
    "mrle_fair": "mrle_debiased",
    "mrle_ignoring_a": "mrle_unconditional",
    "crps_ignoring_a": "crps_unconditional",
    "std_over_noise": "std_noise_ratio",
    "coverage_90_repaired": "coverage_90_conformal",
    "width_90_repaired": "width_90_conformal",
    "fields_90_repaired": "band_coverage_90_conformal",
    "unfamiliar": "ood_fraction",
    "time_over_budget": "budget_fraction",
    "accused": "rejection_rate",
}
OLD_METADATA = {  # likewise
    "held": "calibration_pairs",
    "alarm": "novelty_alpha",
    "mrle_spread": "relative_spread",
    "learned": "training_file",
    "said": "fit_summary",
    "trials": "leaderboard",
}
OLD_TRIAL = {"taken": "selected", "note": "description"}  # likewise


def row(metric: str, value: float | np.floating[Any], **fields: Any) -> dict[str, Any]:
    """Return a row with all its fields; None for those not given.

    Args:
        metric: name of the number.
        value: the number; None in the row if it is NaN or infinite.
        fields: other fields of the row.

    >>> row("mrle", 0.5, test="mine")["value"]
    0.5
    """
    unknown = set(fields) - set(FIELDS)
    if unknown:
        raise UserError(f"a row of results has no field {min(unknown)!r}; it has {', '.join(FIELDS)}")
    given = {"version": __version__, **fields, "metric": metric, "value": _number(value)}
    return {name: _number(given[name]) if isinstance(given.get(name), float) else given.get(name) for name in FIELDS}


def duration(seconds: float) -> str:
    """Return a time as text.

    >>> duration(0.0123), duration(75), duration(5400)
    ('12 ms', '75 s', '90 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def paper(test: str, grid: str, noise: str, metric: str, method: str = "pdno") -> float | None:
    """Return the value in the tables of the paper: of its FNO for "fno", of PDNO for other methods but regressions, or None."""
    cell = CELLS.get(f"{test}-{grid.split('x')[0]}") if noise == "none" else None
    if cell is None or method in ("linear", "kernel"):
        return None
    return {"mrle": cell.fno}.get(metric) if method == "fno" else {"mrle": cell.mrle, "mstd": cell.mstd}.get(metric)


def machine() -> dict[str, Any]:
    """Return processor and number of cores, to which times refer."""
    return {"processor": platform.processor() or platform.machine(), "cores": cores()}


def write(path: Path, rows: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """Write a file of results atomically; `more` has further top-level keys."""
    text = json.dumps({"schema": SCHEMA, **more, "rows": list(rows)}, indent=1, ensure_ascii=False, allow_nan=False)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a file of results; old names are replaced by new ones."""
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not a file of results ({error}); run `pdno evaluate RUN` again") from None
    if not isinstance(contents, dict) or not isinstance(contents.get("rows"), list):
        raise UserError(f"{path} is not a file of results: it has no rows; run `pdno evaluate RUN` again")
    if contents.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {contents.get('schema')}, this version reads schema {SCHEMA}; update pdno")
    return _renamed(contents)


def _renamed(contents: dict[str, Any]) -> dict[str, Any]:
    """Replace old names of metrics and keys."""
    rows = [{**row, "metric": OLD_METRICS.get(row["metric"], row["metric"])} for row in contents["rows"]]
    if (metadata := contents.pop("facts", None)) is not None:
        metadata = {OLD_METADATA.get(key, key): value for key, value in metadata.items()}
        metadata["leaderboard"] = [renamed_trial(trial) for trial in metadata.get("leaderboard", ())]
        contents["metadata"] = metadata
    return {**contents, "rows": rows}


def renamed_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Replace old keys of a candidate for the mean model."""
    return {OLD_TRIAL.get(key, key): value for key, value in trial.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON types; None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: Any) -> float | None:
    """Return a number for JSON; None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None
