"""The table of fields on triangulations: a line for each problem and method."""

from typing import Any

__all__ = ["TABLES", "triangulation_table"]


def triangulation_table(contents: dict[str, Any]) -> tuple[list[list[str]], str]:
    """Return the lines of the table as lists of cells, the first one with the headings, and a note."""
    rows = contents["rows"]
    lines = [["problem", "nodes", "runs", "method", "CRPS", "90 % coverage", "relative L2 error", "training time (s)"]]
    for test, method in dict.fromkeys((row["test"], row["method"]) for row in rows):
        own = {row["metric"]: row for row in rows if (row["test"], row["method"]) == (test, method)}
        first, crps = next(iter(own.values())), own["crps"]
        coverage, error = (f"{100 * own[name]['value']:.1f} %" for name in ("coverage_90", "mrle"))
        score = f"{crps['value']:.3g} ± {crps['error']:.1g}"
        nodes = first["grid"].removesuffix(" nodes")
        lines.append([test, nodes, str(first["train"]), method, score, coverage, error, f"{first['train_seconds']:.0f}"])
    return lines, "Scores are weighted by areas; the noise counts in the relative error."


TABLES = {"results/triangulations.json": triangulation_table}
