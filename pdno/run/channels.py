"""Channels of u in tables of the terminal and the report, and in its figures."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from .._typing import Array
from ..evaluation.verdict import rounded
from .terminal import text_table

__all__ = ["channel_of", "channel_rows", "channel_table", "plotted"]

METRICS = {  # → heading
    "mrle": "relative error",
    "mrle_unconditional": "of the mean output",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_90": "90 % coverage",
    "width_90": "width",
    "spread_skill": "spread–skill",
}
MOST_CHANNELS = 4  # that are plotted
PERCENTAGES = ("mrle", "coverage")  # prefixes of the metrics that are shown in percent


def channel_rows(contents: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of the table, as text; no rows for a single channel."""
    channels = contents.get("channels") or {}
    values = {name: {row["metric"]: row for row in rows} for name, rows in channels.items()}
    metrics = [metric for metric in METRICS if any(metric in by_metric for by_metric in values.values())]
    rows = [[name, *(_cell(by_metric.get(metric)) for metric in metrics)] for name, by_metric in values.items()]
    return ["in units of the channel", *(METRICS[metric] for metric in metrics)], rows


def channel_table(contents: Mapping[str, Any]) -> Table | None:
    """Return the scores of each channel as a table for the terminal; None for a single channel."""
    columns, rows = channel_rows(contents)
    return text_table(columns, rows) if rows else None


def _cell(row: Mapping[str, Any] | None) -> str:
    """Return value and error of a row of results."""
    if row is None or row["value"] is None:
        return ""
    factor, unit = (100, " %") if row["metric"].startswith(PERCENTAGES) else (1, "")
    value, error = rounded(factor * row["value"], row["error"] and factor * row["error"])
    return f"{value}{unit}" if error == "–" else f"{value} ± {error}{unit}"


def plotted(contents: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels that are plotted, for captions; [""] for a single channel."""
    return [f", {name}" for name in contents.get("channels") or ()][:MOST_CHANNELS] or [""]


def channel_of(values: Array, c: int, name: str) -> Any:
    """Return channel c of the fields of a case; the first one of a, which may have others."""
    if name == "members":
        return [member[c : c + 1] for member in values]
    return values[:1] if name == "a" else values[c : c + 1]
