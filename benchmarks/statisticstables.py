"""The table of false positives and coverage of the evaluation: a line for each rate and kind of data."""

from typing import Any

__all__ = ["TABLES", "rates_table"]

RATES = {  # metric → (what, stated rate)
    "diagnose": ("calibration test: any finding", "≤ 1 %"),
    "coverage": ("coverage of 90 % intervals called too wide or narrow", "≤ 1 %"),
    "region": ("a region of low coverage", "≤ 1 %"),
    "range": ("a range of predictions of low coverage", "≤ 1 %"),
    "novelty": ("inputs flagged as out of distribution", "≤ 7 %"),
    "novelty_many": ("the number of flagged inputs called too large", "≤ 1 %"),
    "verdict_calibration": ("verdict: calibration is fair or poor", "≤ 3 %"),
    "verdict_noise": ("verdict: noise is fair or poor", "≤ 5 %"),
    "verdict_limitations": ("verdict: low coverage, or many flagged inputs", "≤ 3 %"),
    "conformal": ("coverage of conformal 90 % intervals", "≥ 90 %"),
    "band": ("coverage of conformal 90 % bands, observed points", "≥ 90 %"),
    "conformal_fitted": ("the same as intervals, validation pairs also used in training", ""),
}


def rates_table(contents: dict[str, Any]) -> tuple[list[list[str]], str]:
    """Return the lines of the table as lists of cells, the first one with the headings, and a note."""
    cells = {(row["metric"], row["test"], row["train"]): row for row in contents["rows"]}
    counts = sorted({n for _, _, n in cells})
    lines = [["rate", "stated", "data", *(f"n = {n}" for n in counts)]]
    for metric, (what, stated) in RATES.items():
        for kind in dict.fromkeys(test for name, test, _ in cells if name == metric):
            lines.append([what, stated, kind, *(_cell(cells.get((metric, kind, n))) for n in counts)])
    numbers = sorted({row["evaluations"] for row in contents["rows"]})
    return lines, f"Errors are standard errors of the simulation, with {numbers[0]} to {numbers[-1]} repetitions."


def _cell(row: dict[str, Any] | None) -> str:
    """Return a rate with its error, in percent."""
    if row is None:
        return ""
    return f"{100 * row['value']:.1f} ± {100 * row['error']:.1f} %" if row["error"] else f"{100 * row['value']:.1f} %"


TABLES = {"results/statistics.json": rates_table}
