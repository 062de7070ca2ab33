"""Put the numbers of results/*.json into the tables of the documentation, between their marks:

<!-- results/problem.json -->
<!-- end -->

A name after the file, as in "results/accuracy.json brief", is that of another table from it.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKED = re.compile(r"(<!-- (results/\w+\.json(?: \w+)?) -->\n).*?(<!-- end -->)", re.DOTALL)

COLUMNS = {"problem": "test", "grid": "grid", "pairs": "train", "noise": "noise", "members": "members", "steps": "evaluations"}

MEANING = {
    "max_error": "largest error of 1000 solutions, against a grid 16 times finer",
    "solve_over_bare_solve": "time of a solve over that of its bare sparse factorisation",
    "solve_over_spsolve": "time of a solve over that of `scipy.sparse.linalg.spsolve` on the same matrix",
    "generate_seconds": "seconds to generate the pairs, start-up included",
    "max_change_refined": "largest relative change when resolution is doubled and the step halved",
    "max_cole_hopf_residual": "largest relative distance from the Cole–Hopf solution",
    "mean_distance_from_8192": "mean relative distance from the solution on 8192 points, at common nodes",
    "two_workers_over_one": "pairs a second of two workers over one, start-up aside",
    "cached_batches_over_memory": "random batches a second of a file ten times the memory allowed, over those from memory",
    "help_seconds": "seconds for `pdno --help`",
    "step_over_matmul": "operations a second of a training step of the UNet over those of a 2048² matrix product",
    "plain_over_fast": "time of a training step of a plain UNet over that of ours",
    "step_over_matmul_avx2": "operations a second over those of a matrix product, both without AVX-512",
    "plain_over_fast_avx2": "time of a plain UNet over that of ours, both without AVX-512",
    "judged_gigabytes": "peak memory of judging 100 inputs, in GB",
    "judged_gigabytes_before": "memory before, in GB",
    "crps_over_truth": "CRPS that was found over the true one",
    "coverage_90_over_truth": "coverage of 90 % intervals that was found over the true one",
    "flagged": "share of 1000 inputs that are flagged as unfamiliar",
    "accused": "share of 1000 judgements that find a flaw",
    "mrle": "MRLE of the mean of the members",
    "mrle_mean_operator": "MRLE of m(a), {method}, fitted in {train_seconds:.1f} s; the paper's PDNO: {paper}",
    "mrle_one_evaluation": "MRLE of `model.mean(a)`, from one evaluation of the network",
    "mean_std": "mean std of the members",
    "mean_std_over_noise": "mean std of the members over the std of the noise",
}


Row = dict[str, Any]
Cell = tuple[str, str] | Callable[[list[Row]], float]  # method and metric, or field; or what follows from a problem's rows


def over_the_best(rows: list[Row]) -> float:
    """CRPS over the least of linear, kernel, FNO and UNet."""
    scores = {row["method"]: float(row["value"]) for row in rows if row["metric"] == "crps"}
    return scores["pdno"] / min(value for name, value in scores.items() if name not in ("pdno", "ridge"))


RIVALS: dict[str, Cell] = {
    "CRPS, pdno": ("pdno", "crps"),
    **{name: (name, "crps") for name in ("ridge", "linear", "kernel", "fno", "unet")},
    "pdno over the best": over_the_best,
    "MRLE, pdno": ("pdno", "mrle"),
    "inside 90 %": ("pdno", "coverage_90"),
    "time over budget": ("pdno", "time_over_budget"),
}
WIDE: dict[str, dict[str, Cell]] = {  # a line a problem: column → cell
    "results/accuracy.json": {
        "MRLE": ("pdno", "mrle_mean_operator"),
        "the paper's PDNO": ("pdno", "paper"),
        "std over noise": ("pdno", "std_over_noise"),
        "inside 50 %": ("pdno", "coverage_50"),
        "90 %": ("pdno", "coverage_90"),
        "95 %": ("pdno", "coverage_95"),
        "seconds to learn": ("pdno", "train_seconds"),
    },
    "results/accuracy.json brief": {
        "MRLE": ("pdno", "mrle_mean_operator"),
        "the paper's PDNO": ("pdno", "paper"),
        "seconds to learn": ("pdno", "train_seconds"),
    },
    "results/budget.json": {
        "seconds to learn": ("pdno", "train_seconds"),
        "over the budget": ("pdno", "time_over_budget"),
        "MRLE of the mean": ("pdno", "mrle_mean_operator"),
    },
    "results/auto.json": RIVALS,
    "results/auto_long.json": RIVALS,
}


def wide(rows: list[Row], cells: dict[str, Cell]) -> list[str]:
    """A line for each problem, in the order of the rows."""
    keys = ("test", "grid", "train", "noise")
    lines = [f"| {' | '.join(['problem', 'grid', 'pairs', 'noise', *cells])} |", "|---" * (len(keys) + len(cells)) + "|"]
    for problem in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in keys) == problem]
        found = []
        for cell in cells.values():
            if callable(cell):
                found.append(number(cell(own)))
                continue
            method, name = cell
            values = [row["value"] for row in own if (row["method"], row["metric"]) == (method, name)]
            values += [row[name] for row in own if row["method"] == method and row.get(name) is not None]
            found.append(number(values[0]) if values else "")
        lines.append("| " + " | ".join([*(str("" if key is None else key) for key in problem), *found]) + " |")
    return lines


def number(value: float) -> str:
    return f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.3g}"


def table(source: str) -> str:
    """The rows of a results file as a Markdown table."""
    file, _, name = source.partition(" ")
    results = json.loads((ROOT / file).read_text())
    machine = results["machine"]
    rows = [row for row in results["rows"] if name != "brief" or row["paper"] is not None]
    command = rows[0]["command"]
    lines = [f"Measured by `{command}` on {machine['cores']} cores ({machine['processor']}), in `{file}`:", ""]
    if source in WIDE:
        return "\n".join([*lines, *wide(rows, WIDE[source])]) + "\n"
    columns = {name: key for name, key in COLUMNS.items() if any(row[key] not in (None, "none") for row in rows)}
    lines += [f"| {' | '.join([*columns, 'what', 'value'])} |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        cells = [row[key] if row[key] is not None else "" for key in columns.values()]
        known = {**row, "paper": row["paper"] or "no number"}
        lines.append(
            "| " + " | ".join(map(str, (*cells, MEANING[row["metric"]].format(**known), f"{row['value']:.3g}"))) + " |"
        )
    return "\n".join(lines) + "\n"


def render(text: str) -> str:
    """A page with its tables made anew."""
    return MARKED.sub(lambda match: match[1] + table(match[2]) + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(render(page.read_text()))
