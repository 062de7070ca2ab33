"""Tables of the benchmarks of conditional distributions, with the aims that a value must meet.

Each function takes the contents of a file of results and returns the lines of the table as lists of cells, the first one with
the headings, and a sentence that follows the table.
"""

from typing import Any

__all__ = ["TABLES", "Table"]

Row = dict[str, Any]
Table = tuple[list[list[str]], str]

RATIOS = {"64": 1.05, "32x32": 1.08}  # largest ratio of a score to that of the truth, by grid
STDS = (0.95, 1.05)  # aim of the ratio of standard deviations
COVERAGE = (0.86, 0.94)  # aim of the coverage of 90 % intervals
LARGEST = (0.80, 0.97)  # likewise, of values where the true spread is largest
DISCRETE = 0.95  # coverage by draws of the truth above which a functional is discrete: there is no upper aim
LAW_METRICS = {  # heading → metric
    "CRPS": "crps_ratio",
    "energy score": "energy_ratio",
    "std": "std_ratio",
    "values": "coverage_90",
    "largest spread": "coverage_90_largest_spread",
    "mean": "coverage_90_mean",
    "maximum": "coverage_90_maximum",
    "roughness": "coverage_90_roughness",
}


def aim(metric: str, own: dict[str, float], grid: str) -> tuple[float, float]:
    """Return the smallest and the largest value that meet the aim of a metric.

    Args:
        metric: its name.
        own: all values of the model by metric.
        grid: of the law.
    """
    if metric in ("crps_ratio", "energy_ratio"):
        return 0.0, RATIOS[grid]
    if metric == "std_ratio":
        return STDS
    low, high = LARGEST if metric.endswith("largest_spread") else COVERAGE
    return low, 1.0 if own[f"truth_{metric}"] > DISCRETE else high


def laws(contents: dict[str, Any]) -> Table:
    """Return the table of the plain default on distributions with a known truth."""
    headings = ["distribution", "grid", *LAW_METRICS, "law selected", "training time (s)", "drawing time (s)"]
    lines, within = [headings], 0
    for model, rows in _models(contents, ("test", "grid", "method")):
        if model["method"] != "pdno":
            continue
        own, missed, cells = {row["metric"]: float(row["value"]) for row in rows}, 0, []
        for metric in LAW_METRICS.values():
            low, high = aim(metric, own, model["grid"])
            met = low <= round(own[metric], 3) <= high
            missed += not met
            cells.append(f"{own[metric]:.3f}" if met else f"**{own[metric]:.3f}**")
        within += not missed
        times = [f"{rows[0][name]:.3g}" for name in ("train_seconds", "sample_seconds")]
        lines.append([model["test"], model["grid"], *cells, model["law"], *times])
    return lines, f"Bold values miss their aim; {within} of {len(lines) - 1} distributions meet all aims."


def _models(contents: dict[str, Any], fields: tuple[str, ...]) -> list[tuple[dict[str, Any], list[Row]]]:
    """Return each model with its rows, which have the same values of these fields."""
    return [
        (model, [row for row in contents["rows"] if all(row[name] == model[name] for name in fields)])
        for model in contents.get("models", [])
    ]


TABLES = {"results/laws.json": laws}
