"""Tables of docs/results.md: results of `pdno bench` beside those of the paper, from the files in results/bench.

A part without a file is "not run", a figure without a file "not drawn".
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pdno.bench.figures import FIGURES, file_name
from pdno.bench.part import PARTS, Part
from pdno.bench.scale import SCALES
from pdno.model.paper import CELLS, SETTINGS
from pdno.run import results

__all__ = ["TABLES", "count_of_cores", "table"]

FOLDER = Path(__file__).parents[1] / "results" / "bench"
SCALE = "cpu"  # of the commands of parts that were not run
SCORES = {  # heading → metric
    "MRLE": "mrle",
    "MRLE of one member": "mrle_member",
    "std of members": "mean_std",
    "MSTD": "mstd",
    "std / noise": "std_noise_ratio",
    "90 % coverage": "coverage_90",
}
METHODS = {  # method → heading of the table of cells
    "diffusion": "diffusion (pdno)",
    "default": "default (pdno)",
    "fno": "FNO",
    "linear": "linear regression",
    "kernel": "kernel regression",
}
FREE = ("MRLE", "MRLE of one member", "std of members", "MSTD")  # columns without noise
NOISY = ("MRLE", "std of members", "std / noise", "90 % coverage")  # with noise
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the training, after which its error is shown
PAPER_EPOCHS = 1000
OF_PAPER = ("mrle", "mstd")  # metrics that the paper has
REST = ("evaluations", "parameters", "training (min)", "command")

TABLES = {  # name → tests of the table, and whether their data are noisy
    "elliptic1d": (("elliptic1d",), True),
    "darcy": (("darcy",), False),
    "burgers": (("burgers",), False),
    "advection": (("advection",), False),
    "noisy": (("darcy", "advection"), True),
}


def table(name: str, folder: Path = FOLDER) -> tuple[list[list[Any]], str]:
    """Return the lines of a table as lists of cells, the first with the headings, and a sentence about the machines.

    Args:
        name: one of `TABLES`, "cells" for the MRLE in each cell of the paper's tables, "epochs" for errors during training, or
            "figures".
        folder: with a file for each part, and a folder of figures.
    """
    if name == "figures":
        return _figures(folder), ""
    if name == "epochs":
        return _epochs(folder), ""
    if name == "cells":
        return _cells(folder), _machines(folder, [PARTS[f"{cell}/diffusion"] for cell in CELLS])
    tests, noisy = TABLES[name]
    parts = [part for part in PARTS.values() if part.setting.test in tests and part.setting.noisy == noisy]
    columns = NOISY if noisy else FREE
    headings = [heading for column in columns for heading in _headings(column, noisy)]
    lines: list[list[Any]] = [["problem", *(["noise"] if noisy else []), "method", *headings, *REST]]
    return lines + [_line(part, columns, folder) for part in parts], _machines(folder, parts)


def _headings(column: str, noisy: bool) -> list[str]:
    return [column, f"{column}, paper"] if SCORES[column] in OF_PAPER and not noisy else [column]


def _line(part: Part, columns: Iterable[str], folder: Path) -> list[Any]:
    """Return the cells of a part."""
    setting, path = part.setting, folder / part.file
    rows = {row["metric"]: row for row in results.read(path)["rows"]} if path.exists() else {}
    method = rows["mrle"]["method"] if rows else part.label(SCALES[SCALE])
    cells: list[Any] = [f"{setting.test} {setting.grid}", *([setting.noise] if setting.noisy else []), method]
    for column in columns:
        metric = SCORES[column]
        cells.append(rows.get(metric, {}).get("value") if rows else "not run")
        if len(_headings(column, setting.noisy)) == 2:
            cells.append(results.paper(setting.test, setting.grid, setting.noise, metric, part.method.name))
    if not rows:
        return [*cells, None, None, None, f"`pdno bench {part.name} --scale {SCALE}`"]
    row = rows["mrle"]
    return [*cells, row["evaluations"], f"{row['parameters']:,}", f"{row['train_seconds'] / 60:.1f}", f"`{row['command']}`"]


def _cells(folder: Path) -> list[list[Any]]:
    """Return a line for each cell of the paper's tables, with the MRLE of each method."""
    of_diffusion = ["one member of the diffusion", "training of the diffusion (min)"]
    headings = ["problem", "PDNO, paper", "FNO, paper", *METHODS.values(), *of_diffusion]
    lines: list[list[Any]] = [headings]
    for name, cell in CELLS.items():
        found = {method: _row(PARTS[f"{name}/{method}"], "mrle", folder) for method in METHODS}
        values = [row["value"] if row else None for row in found.values()]
        row, setting = found["diffusion"], SETTINGS[name]
        member = _row(PARTS[f"{name}/diffusion"], "mrle_member", folder)
        minutes = f"{row['train_seconds'] / 60:.0f}" if row else None
        one = member["value"] if member else None
        lines.append([f"{setting.test} {setting.grid}", cell.mrle, cell.fno, *values, one, minutes])
    return lines


def _epochs(folder: Path) -> list[list[Any]]:
    """Return a line for each part with errors by epoch: after shares of its training, and the paper's at the end of its own."""
    headings = [f"after {share:.0%} of them" for share in SHARES[:-1]]
    lines: list[list[Any]] = [["part", "epochs", *headings, "at the end", "MRLE, paper", "epochs, paper"]]
    for part in PARTS.values():
        path = folder / part.file
        errors = results.read(path).get("errors") if path.exists() else None
        if errors:
            setting, count = part.setting, len(errors["mrle"])
            values = [errors["mrle"][max(0, round(share * count) - 1)] for share in SHARES]
            paper = results.paper(setting.test, setting.grid, setting.noise, "mrle", part.method.name)
            lines.append([f"`{part.name}`", f"{errors['epoch'][-1]:.0f}", *values, paper, PAPER_EPOCHS])
    return lines


def _row(part: Part, metric: str, folder: Path) -> dict[str, Any] | None:
    """Return the row of a metric; None if the part was not run."""
    path = folder / part.file
    rows = results.read(path)["rows"] if path.exists() else []
    return next((row for row in rows if row["metric"] == metric), None)


def count_of_cores(count: int) -> str:
    """Return a number of cores in words."""
    return "one core" if count == 1 else f"{count} cores"


def _machines(folder: Path, parts: Iterable[Part]) -> str:
    """Return a sentence about the machines on which parts were run."""
    files = [path for part in parts if (path := folder / part.file).exists()]
    machines = [results.read(path).get("machine", {}) for path in files]
    names = dict.fromkeys(f"{count_of_cores(machine['cores'])} ({machine['processor']})" for machine in machines if machine)
    return f"Measured on {' and '.join(names)}." if names else ""


def _figures(folder: Path) -> list[list[Any]]:
    """Return the table of figures, with links from docs/."""
    sources = folder / "figures" / "figures.json"
    drawn: dict[str, list[str]] = json.loads(sources.read_text()) if sources.exists() else {}
    lines: list[list[Any]] = [["figure of the paper", "drawn from", "file"]]
    for label in FIGURES:
        file = file_name(label)
        is_there = (folder / "figures" / file).exists()
        link = f"[{file}](../results/bench/figures/{file})" if is_there else "not drawn"
        lines.append([f"`{label}`", ", ".join(drawn.get(label, ())) if is_there else None, link])
    return lines
