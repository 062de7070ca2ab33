"""Put the numbers of results/*.json into the tables of the documentation. Run by ``python -m benchmarks.tables``.

A table stands between two comments, of which the first one names the file:

<!-- results/problem.json -->
<!-- end -->

A word after the file, as in "results/accuracy.json brief", names another table from the same file. Tables of `pdno bench` have
a folder in place of the file: "results/bench darcy".
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    benchtables,
    claimtables,
    functionaltables,
    lawtables,
    meshtables,
    nodetables,
    runtables,
    statisticstables,
)

ROOT = Path(__file__).parents[1]
BENCH = "results/bench"  # folder of the results of `pdno bench`
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- (results/(?:[\w/-]+\.json(?: \w+)?|bench \w+)) -->\n).*?(<!-- end -->)", re.DOTALL)

TABLES: dict[str, Callable[[dict[str, Any]], tuple[list[list[str]], str]]] = {
    **lawtables.TABLES,
    **claimtables.TABLES,
    **functionaltables.TABLES,
    **meshtables.TABLES,
    **nodetables.TABLES,
    **runtables.TABLES,
    **statisticstables.TABLES,
}

Row = dict[str, Any]
Cell = tuple[str, str] | Callable[[list[Row]], float]  # (method, metric or field), or a function of the rows of a problem

COLUMNS = {  # heading → field, in tables of one line per row
    "problem": "test",
    "grid": "grid",
    "pairs": "train",
    "noise": "noise",
    "members": "members",
    "sampling steps": "evaluations",
}
DESCRIPTIONS = {  # of metrics, in tables of one line per row
    "max_error": "largest error of 1000 solutions, against a grid 16 times finer",
    "solve_over_bare_solve": "time of a solve / time of its bare sparse factorisation",
    "solve_over_spsolve": "time of a solve / time of `scipy.sparse.linalg.spsolve` on the same matrix",
    "generate_seconds": "seconds to generate the pairs, start-up included",
    "max_change_refined": "largest relative change when resolution is doubled and the step halved",
    "max_cole_hopf_residual": "largest relative distance from the Cole–Hopf solution",
    "mean_distance_from_8192": "mean relative distance from the solution on 8192 points, at common nodes",
    "two_workers_over_one": "speed-up with two workers (pairs per second), without start-up",
    "cached_batches_over_memory": "random batches per second, file of ten times the memory limit / data in memory",
    "help_seconds": "seconds for `pdno --help`",
    "step_over_matmul": "operations per second, training step of the UNet / 2048² matrix product",
    "plain_over_fast": "time of a training step, plain UNet / `pdno.nn.UNet`",
    "step_over_matmul_avx2": "operations per second, training step / matrix product, both without AVX-512",
    "plain_over_fast_avx2": "time of a training step, plain UNet / `pdno.nn.UNet`, both without AVX-512",
    "peak_gigabytes": "peak memory of the evaluation of 100 inputs (GB)",
    "peak_gigabytes_before": "peak memory before (GB)",
    "crps_ratio": "measured CRPS / exact CRPS",
    "coverage_90_ratio": "measured coverage of 90 % intervals / exact coverage",
    "ood_fraction": "fraction of 1000 inputs flagged as out of distribution",
    "rejection_rate": "rejection rate of 1000 calibration tests",
    "mrle": "MRLE of the mean of the members",
    "mrle_one_evaluation": "MRLE of `model.mean(a)`, from one evaluation of the network",
    "mean_std": "mean std of the members",
    "mean_std_over_noise": "mean std of the members / std of the noise",
}


def ratio_to_best(rows: list[Row]) -> float:
    """Return the CRPS of pdno / the smallest CRPS of linear, kernel, FNO and UNet regression."""
    scores = {row["method"]: float(row["value"]) for row in rows if row["metric"] == "crps"}
    return scores["pdno"] / min(value for name, value in scores.items() if name not in ("pdno", "ridge"))


ACCURACY: dict[str, Cell] = {
    "MRLE of m(a)": ("pdno", "mrle_mean_model"),
    "diffusion evaluations": ("pdno", "evaluations"),
    "MRLE, the paper's PDNO": ("pdno", "paper"),
}
BASELINES: dict[str, Cell] = {
    "CRPS, pdno": ("pdno", "crps"),
    **{name: (name, "crps") for name in ("ridge", "linear", "kernel", "fno", "unet")},
    "pdno / best baseline": ratio_to_best,
    "MRLE, pdno": ("pdno", "mrle"),
    "90 % coverage": ("pdno", "coverage_90"),
    "time / budget": ("pdno", "budget_fraction"),
}
BY_PROBLEM: dict[str, dict[str, Cell]] = {  # tables of one line per problem: heading → cell
    "results/accuracy.json": {
        **ACCURACY,
        "std / noise": ("pdno", "std_noise_ratio"),
        "50 % coverage": ("pdno", "coverage_50"),
        "90 % coverage": ("pdno", "coverage_90"),
        "95 % coverage": ("pdno", "coverage_95"),
        "training time (s)": ("pdno", "train_seconds"),
    },
    "results/accuracy.json brief": {**ACCURACY, "training time (s)": ("pdno", "train_seconds")},
    "results/budget.json": {
        "training time (s)": ("pdno", "train_seconds"),
        "time / budget": ("pdno", "budget_fraction"),
        "MRLE of m(a)": ("pdno", "mrle_mean_model"),
    },
    "results/laws.json field": {
        "CRPS": ("pdno-field", "crps_ratio"),
        "energy score": ("pdno-field", "energy_ratio"),
        "std": ("pdno-field", "std_ratio"),
        "90 % of values": ("pdno-field", "coverage_90"),
        "90 % of field means": ("pdno-field", "coverage_90_mean"),
        "90 % of roughness": ("pdno-field", "coverage_90_roughness"),
        "training time (s)": ("pdno-field", "train_seconds"),
    },
    "results/physics.json": {
        f"MRLE, {name}": (name, "mrle_mean_model")
        for name in (
            "kernel",
            "data",
            "equation",
            "equation, further inputs",
            "equation, further inputs, s = 1",
            "both",
            "both, further inputs",
        )
    },
    "results/auto.json": BASELINES,
    "results/auto_long.json": BASELINES,
}
BY_METHOD: dict[str, dict[str, str]] = {  # tables of one line per problem and method: heading → metric
    "results/mixture.json": {
        "largest error of a weight": "weight_error",
        "std of the narrowest component / true": "narrowest_std_ratio",
        "std of the widest component / true": "widest_std_ratio",
    },
}
BY_ROW: dict[str, dict[str, str]] = {  # tables of one line per row whose rows have one metric: heading → field
    "results/means.json": {
        "mean model": "method",
        "MRLE of m(a)": "value",
        "training time (s)": "train_seconds",
        "MRLE, the paper's PDNO": "paper",
    },
}

FILTERS: dict[str, Callable[[Row], bool]] = {  # word after the file → rows of the table
    "brief": lambda row: row["paper"] is not None,
    "field": lambda row: row["method"] == "pdno-field",
}


def by_problem(rows: list[Row], cells: dict[str, Cell]) -> list[str]:
    """Return a table with a line for each problem, in the order of the rows."""
    keys = ("test", "grid", "train", "noise")
    lines = header(["problem", "grid", "pairs", "noise", *cells])
    for problem in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in keys) == problem]
        lines.append(line([*problem, *(value_of(cell, own) for cell in cells.values())]))
    return lines


def by_method(rows: list[Row], metrics: dict[str, str]) -> list[str]:
    """Return a table with a line for each problem and method, in the order of the rows."""
    keys = ("test", "grid", "method", "evaluations")
    lines = header(["problem", "grid", "sampler", "sampling steps", *metrics])
    for case in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        own = {row["metric"]: float(row["value"]) for row in rows if tuple(row[key] for key in keys) == case}
        lines.append(line([*case, *(own[metric] for metric in metrics.values())]))
    return lines


def value_of(cell: Cell, rows: list[Row]) -> float | None:
    """Return the number of a cell, from the rows of its problem; None if there is none."""
    if callable(cell):
        return cell(rows)
    method, name = cell
    values = [row["value"] for row in rows if (row["method"], row["metric"]) == (method, name)]
    values += [row[name] for row in rows if row["method"] == method and row.get(name) is not None]
    return values[0] if values else None


def by_row(rows: list[Row], fields: dict[str, str]) -> list[str]:
    """Return a table with a line for each row; columns without values are left out."""
    columns = {heading: key for heading, key in COLUMNS.items() if any(row[key] not in (None, "none") for row in rows)}
    lines = header([*columns, *(fields or ("metric", "value"))])
    for row in rows:
        end = [row[key] for key in fields.values()] if fields else [DESCRIPTIONS[row["metric"]], float(row["value"])]
        lines.append(line([*(row[key] for key in columns.values()), *end]))
    return lines


def header(headings: list[str]) -> list[str]:
    """Return the first two lines of a table."""
    return [line(headings), "|---" * len(headings) + "|"]


def line(cells: list[Any]) -> str:
    """Return a line of a table; None is an empty cell."""
    texts = ("" if cell is None else number(cell) if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


def number(value: float) -> str:
    """Return a number with three digits, without an exponent from 100 to 100,000."""
    return f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.3g}"


def table(source: str) -> str:
    """Return the rows of a results file as a Markdown table; empty if nothing has been measured yet."""
    file, _, name = source.partition(" ")
    if file == BENCH:
        cells, note = benchtables.table(name)
        return "\n".join([*header(cells[0]), *map(line, cells[1:]), *(["", note] if note else [])]) + "\n"
    results = json.loads((ROOT / file).read_text()) if (ROOT / file).exists() else {"rows": []}
    rows = list(filter(FILTERS.get(name), results["rows"]))
    lines, note = lines_of(source, rows, results) if rows else ([], "")
    if len(lines) <= 2:  # no more than the header
        return ""
    machine, commands = results["machine"], " and ".join(dict.fromkeys(f"`{row['command']}`" for row in rows))
    first = f"Measured by {commands} on {benchtables.count_of_cores(machine['cores'])} ({machine['processor']}), in `{file}`:"
    return "\n".join([first, "", *lines, *(["", note] if note else [])]) + "\n"


def lines_of(source: str, rows: list[Row], results: dict[str, Any]) -> tuple[list[str], str]:
    """Return the lines of a table, and a sentence that follows it."""
    if source in TABLES:
        cells, note = TABLES[source](results)
        return [*header(cells[0]), *map(line, cells[1:])], note
    if source in BY_METHOD:
        return by_method(rows, BY_METHOD[source]), ""
    return by_problem(rows, BY_PROBLEM[source]) if source in BY_PROBLEM else by_row(rows, BY_ROW.get(source, {})), ""


def render(text: str) -> str:
    """Return a page with its tables updated."""
    return MARKED.sub(lambda match: match[1] + table(match[2]) + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(render(page.read_text()))
