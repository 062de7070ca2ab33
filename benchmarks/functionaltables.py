"""Tables of diffusions in function space, a line for each model and a column for each grid, and of the cascade."""

from typing import Any

__all__ = ["TABLES", "cascade_table", "functional_table"]

SHOWN = ("crps_ratio", "energy_ratio", "std_ratio", "increment_ratio")
INPUTS = 40  # of the cascade
GRIDS = ("training grid", "2 × as fine", "4 × as fine")


def functional_table(contents: dict[str, Any]) -> tuple[list[list[str]], str]:
    """Return the lines of the table as lists of cells, the first one with the headings, and a note."""
    rows = contents["rows"]
    values = {(row["test"], row["method"], row["grid"], row["metric"]): row["value"] for row in rows}
    lines = [["problem", "target, base distribution", "parameters", *GRIDS, "training time (s)"]]
    for test, method in sorted(dict.fromkeys((row["test"], row["method"]) for row in rows), key=lambda key: key[0]):
        own = [row for row in rows if (row["test"], row["method"]) == (test, method)]
        cells = [
            ", ".join(_ratio(values[test, method, grid, metric]) for metric in SHOWN)
            for grid in dict.fromkeys(row["grid"] for row in own)
        ]
        name = f"{test}, {own[0]['grid']}"
        lines.append([name, method, f"{own[0]['parameters']:,}", *cells, f"{own[0]['train_seconds']:.0f}"])
    return lines, "Each cell has the ratios of CRPS, energy score, standard deviation and increments of neighbours; 1 is best."


def cascade_table(contents: dict[str, Any]) -> tuple[list[list[str]], str]:
    """Return the lines of the table as lists of cells, the first one with the headings, and no note."""
    metrics, rows = {"MRLE": "mrle", "CRPS": "crps", "energy score": "energy_score"}, contents["rows"]
    lines = [["grid", "members", *metrics, "training time (s)", "time of a member (ms)"]]
    keys = dict.fromkeys((row["grid"], row["method"]) for row in rows)
    for grid, method in sorted(keys, key=lambda key: int(key[0].split("x")[0])):
        own = {row["metric"]: row for row in rows if (row["grid"], row["method"]) == (grid, method)}
        first, scores = own["mrle"], [own.get(metric, {}).get("value") for metric in metrics.values()]
        each = 1000 * first["sample_seconds"] / (first["members"] * INPUTS)
        times = [f"{first['train_seconds']:.0f}", f"{each:.1f}"] if first["train_seconds"] else ["", ""]
        lines.append([grid, method, *("" if score is None else f"{score:.3g}" for score in scores), *times])
    return lines, ""


def _ratio(value: float | None) -> str:
    """Return a ratio with two decimals, none if it is large."""
    return "∞" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


TABLES = {"results/functional.json": functional_table, "results/cascade.json": cascade_table}
