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
FEW_RATIO = 1.03  # largest ratio of a score to that of the best textbook method, on small data sets
FEW_COVERAGE = (0.80, 0.96)  # aim of the coverage of 90 % intervals there
MOST_COMPONENTS = 4  # of the noise of Darcy flow
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
    models = [pair for pair in _models(contents, ("test", "grid", "method")) if pair[0]["method"] == "pdno"]
    for model, rows in sorted(models, key=lambda pair: list(RATIOS).index(pair[0]["grid"])):
        own, missed, cells = {row["metric"]: float(row["value"]) for row in rows}, 0, []
        for metric in LAW_METRICS.values():
            cells.append(_marked(own[metric], *aim(metric, own, model["grid"])))
            missed += cells[-1].startswith("**")
        within += not missed
        times = [f"{rows[0][name]:.3g}" for name in ("train_seconds", "sample_seconds")]
        lines.append([model["test"], model["grid"], *cells, model["law"], *times])
    return lines, f"Bold values miss their aim; {within} of {len(lines) - 1} distributions meet all aims."


def darcy_noise(contents: dict[str, Any]) -> Table:
    """Return the table of the noise of Darcy flow: for each model the weights of the training set, then two inputs."""
    headings = [
        "noise",
        "grid",
        "input",
        "weights",
        "means",
        "stds",
        "W₁",
        "W₁, training weights",
        "error of m(a)",
        "MRLE of m(a)",
    ]
    lines = [[*headings, "MRLE of members", "law selected", "training time (s)", "drawing time (s)", "memory (GB)"]]
    for model, rows in _models(contents, ("test", "grid", "method")):
        own = {row["metric"]: row["value"] for row in rows}
        seconds = {row["metric"]: row["sample_seconds"] for row in rows}
        name = [model["test"], model["grid"]]
        mean = [f"{own[metric]:.4f}" for metric in ("mrle_mean_model", "mrle_debiased")]
        end = [*mean, model["law"], f"{rows[0]['train_seconds']:.0f}", "", ""]
        lines.append([*name, "training set", _listed(own, "training_weight"), "", "", "", "", "", *end])
        for i in (1, 2):
            lists = [_listed(own, f"input_{i}_{part}") for part in ("weight", "mean", "std")]
            distances = [f"{own[f'input_{i}_{metric}']:.3f}" for metric in ("w1", "w1_training", "mean_error")]
            cost = [f"{seconds[f'input_{i}_w1']:.3g}", f"{own[f'input_{i}_peak_gigabytes'] or 0:.2g}"]
            lines.append(["", "", str(i), *lists, *distances, "", "", "", "", *cost])
    return lines, ""


def _listed(own: dict[str, Any], prefix: str) -> str:
    """Return the values prefix_1, prefix_2, …"""
    names = [f"{prefix}_{k}" for k in range(1, MOST_COMPONENTS + 1)]
    return ", ".join(f"{own[name]:.3f}" for name in names if name in own)


def purenoise(contents: dict[str, Any]) -> Table:
    """Return the table of pure noise: coverage over seeds, and how often the noise was taken for something else."""
    columns = ["noise", "pairs", "seeds", "90 % coverage", "lowest", "highest", "90 % coverage of the field's average"]
    lines = [[*columns, "another law than Gaussian", "another mean than constant"]]
    rows = contents["rows"]
    for test, train in dict.fromkeys((row["test"], row["train"]) for row in rows):
        own: dict[str, list[float]] = {}
        for row in rows:
            if (row["test"], row["train"]) == (test, train):
                own.setdefault(row["metric"], []).append(row["value"])
        values, average = own["coverage_90"], own["coverage_90_mean"]
        coverage = [sum(values) / len(values), min(values), max(values), sum(average) / len(average)]
        counts = [f"{sum(own[metric]):.0f} of {len(values)}" for metric in ("other_law", "other_mean")]
        lines.append([test, str(train), str(len(values)), *(f"{value:.3f}" for value in coverage), *counts])
    return lines, ""


def few(contents: dict[str, Any]) -> Table:
    """Return the table of small data sets: scores of the default relative to the best textbook method, and coverage."""
    headings = ["data set", "pairs", "CRPS / best", "energy score / best", "best by CRPS", "values", "average of the field"]
    lines, within = [[*headings, "training time (s)", "seconds per input"]], 0
    rows = contents["rows"]
    for test in dict.fromkeys(row["test"] for row in rows):
        own = {(row["method"], row["metric"]): row for row in rows if row["test"] == test}
        scores = {pair: float(row["value"]) for pair, row in own.items()}
        others = sorted({method for method, _ in own} - {"pdno"})
        best = min(others, key=lambda method: scores[method, "crps"])
        cells = []
        for metric in ("crps", "energy_score"):
            ratio = scores["pdno", metric] / min(scores[method, metric] for method in others)
            cells.append(_marked(ratio, 0.0, FEW_RATIO))
        cells.append(best)
        cells += [_marked(scores["pdno", metric], *FEW_COVERAGE) for metric in ("coverage_90", "coverage_90_mean")]
        within += not any(cell.startswith("**") for cell in cells)
        first = own["pdno", "crps"]
        times = [f"{first['train_seconds']:.0f}", f"{scores['pdno', 'seconds_per_input']:.2g}"]
        lines.append([test, str(first["train"]), *cells, *times])
    return lines, f"Bold values miss their aim; {within} of {len(lines) - 1} data sets meet all aims."


def _marked(value: float, low: float, high: float) -> str:
    """Return a value, in bold if it is not between the bounds."""
    return f"{value:.3f}" if low <= round(value, 3) <= high else f"**{value:.3f}**"


def steps(contents: dict[str, Any]) -> Table:
    """Return the table of few and many sampling steps of one model."""
    lines = [["distribution", "sampling steps", "CRPS", "energy score", "std", "drawing time (s)"]]
    names = ("crps_ratio", "energy_ratio", "std_ratio")
    rows = [row for row in contents["rows"] if row["metric"] in names]
    for test, count in dict.fromkeys((row["test"], row["evaluations"]) for row in rows):
        own = {row["metric"]: row for row in rows if (row["test"], row["evaluations"]) == (test, count)}
        seconds = f"{own['crps_ratio']['sample_seconds']:.3g}"
        lines.append([test, str(count), *(f"{own[name]['value']:.3f}" for name in names), seconds])
    ratios = [row["value"] for row in contents["rows"] if row["metric"].endswith("_few_to_many")]
    return lines, f"The largest ratio of a score with few steps to that with many is {max(ratios):.3f}."


def drawing(contents: dict[str, Any]) -> Table:
    """Return the table of the time and memory of drawing many members of a large field."""
    headings = ["law", "grid", "network evaluations per member", "members drawn", "seconds for 10⁴ members"]
    lines = [[*headings, "memory, a tenth of the members (GB)", "memory (GB)"]]
    for model, rows in _models(contents, ("test", "grid", "method")):
        own = {row["metric"]: row["value"] for row in rows}
        cells = [str(rows[0]["evaluations"]), str(rows[0]["members"]), f"{own['seconds_10000']:.3g}"]
        memory = [f"{own[name]:.2g}" for name in ("peak_gigabytes_tenth", "peak_gigabytes")]
        lines.append([model["law"], model["grid"], *cells, *memory])
    return lines, ""


def _models(contents: dict[str, Any], fields: tuple[str, ...]) -> list[tuple[dict[str, Any], list[Row]]]:
    """Return each model with its rows, which have the same values of these fields."""
    return [
        (model, [row for row in contents["rows"] if all(row[name] == model[name] for name in fields)])
        for model in contents.get("models", [])
    ]


TABLES = {
    "results/laws.json": laws,
    "results/darcy_noise.json": darcy_noise,
    "results/purenoise.json": purenoise,
    "results/few.json": few,
    "results/steps.json": steps,
    "results/drawing.json": drawing,
}
