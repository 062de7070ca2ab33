"""``pdno inspect``: print the contents of a file, its problems, and the commands that use it."""

import math
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._typing import Array
from ..data import store
from ..data.findings import Finding, check
from ..data.formats import Contents, Entry, contents
from ..data.open import open_file
from ..data.pairs import Dataset, Pairs, open_store
from ..data.parameters import read_parameters
from ..data.selection import Selection, float_type
from ..data.suggest import complete
from ..errors import UserError
from ..work.engine import memory_allowed

__all__ = ["inspect", "sketch"]

FILE_BYTES = 2**31  # largest file that is checked completely; of a larger one, the first samples are
FEWEST_ROWS = 20  # of each array of a larger file that are checked at least
RANGE_BYTES = 2**28  # of an array from which the table computes minimum, maximum and mean
MOST_TABLES = 20  # that are looked at beside a file
DPI = 110  # of the plot
BARS = "▁▂▃▄▅▆▇█"  # characters for a field in one dimension, from low to high
SHADES = " ░▒▓█"  # characters for a field in two dimensions, from low to high
STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def inspect(path: Path, selection: Selection | None = None, plot: Path | None = None, mask: str | None = None) -> None:
    """Print the arrays of a file, findings, a preview, and the commands that use it.

    Args:
        path: of the file.
        selection: of a and u; default: the suggested one.
        plot: image file to write.
        mask: "nan" marks NaN in u as missing.
    """
    console = Console(width=max(Console().width, 80))
    if store.is_store(path):
        data = open_store(path)
        console.print(f"{path}: a store of pdno", soft_wrap=True, markup=False)
        _show(console, data, plot)
        console.print("\nNext:", markup=False)
        _command(console, f"pdno train {shlex.quote(str(path))} --out {shlex.quote(path.stem + '-run')}")
        _command(console, f"pdno.open({str(path)!r})")
        return
    file = contents(path, memory_allowed())
    console.print(f"{path}: {file.format}, {len(file.entries)} arrays", soft_wrap=True, markup=False)
    console.print(_table(file))
    for note in (*file.notes, *_types(file)):
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    table = None if selection is None or selection.parameters is None else read_parameters(selection.parameters)
    if selection is None or selection.u is None:
        suggestion = complete(file, selection, 0 if table is None else len(table))
        if suggestion is None:
            console.print(_ambiguous(file, selection, 0 if table is None else len(table)), soft_wrap=True, markup=False)
            return
        certainty, advice = ("Recognised", "") if suggestion.certain else ("A guess", "; check the names and dimensions below")
        console.print(f"{certainty}: {suggestion.reason}{advice}", soft_wrap=True, markup=False)
        selection = suggestion.selection
    part = _first_samples(file)
    if part is not file:
        console.print("The file is large: only the first samples of each array are checked below.")
        table = None if table is None or selection.u not in part.entries else table[: part.entries[selection.u].shape[0]]
    _show(console, open_file(part, selection, mask=mask, table=table), plot)
    _print_commands(console, path, selection)


def _first_samples(file: Contents) -> Contents:
    """Return the file, or of a large one the first rows of its arrays."""
    sizes = {name: entry.dtype.itemsize * math.prod(entry.shape) for name, entry in file.entries.items()}
    if sum(sizes.values()) <= FILE_BYTES:
        return file
    entries = dict(file.entries)
    for name, entry in entries.items():
        rows = max(FEWEST_ROWS, FILE_BYTES * entry.shape[0] // sum(sizes.values())) if len(entry.shape) > 1 else 0
        if 0 < rows < entry.shape[0]:
            entries[name] = replace(entry, shape=(rows, *entry.shape[1:]), read=partial(_read_first, entry, rows))
    return replace(file, entries=entries)


def _read_first(entry: Entry, rows: int, part: slice) -> Array:
    """Read a part of the first rows of an array."""
    return entry.read(slice(*part.indices(rows)))


def _table(file: Contents) -> Table:
    """Return a table of all arrays with shape, type and range."""
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading in ("array", "shape", "type", "minimum", "maximum", "mean"):
        table.add_column(heading, justify="left" if heading in ("array", "shape", "type") else "right")
    for entry in file.entries.values():
        shape = " × ".join(map(str, entry.shape)) or "scalar"
        if entry.dims:
            shape += f" ({', '.join(entry.dims)})"
        rows = max(1, RANGE_BYTES // max(1, entry.dtype.itemsize * int(np.prod(entry.shape[1:]))))
        complete = not entry.shape or entry.shape[0] <= rows
        table.add_row(Text(entry.name), shape, str(entry.dtype), *_range(entry.read(slice(0, rows)), complete))
    return table


def _types(file: Contents) -> Iterator[str]:
    """Yield notes on arrays whose type is converted."""
    for entry in file.entries.values():
        if len(entry.shape) > 1 and entry.dtype.kind in "biu":
            values = "booleans" if entry.dtype.kind == "b" else "whole numbers"
            yield f"{entry.name!r} holds {values}, converted to {float_type(entry.dtype)}"
        if not entry.dtype.isnative:
            yield f"{entry.name!r} is stored in the other byte order ({entry.dtype.str}), converted to that of this machine"


def _range(values: Array, complete: bool) -> tuple[str, str, str]:
    """Return minimum, maximum and mean of the finite values as text; ≈ if these are not all values of the array."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not finite.size:
        return ("", "", "")
    about = "" if complete else "≈"
    low, high, mean = (f"{about}{v:.4g}" for v in (finite.min(), finite.max(), finite.mean(dtype=np.float64)))
    return low, high, mean


def _show(console: Console, data: Dataset, plot: Path | None) -> None:
    """Print the numbers of pairs, findings and a preview of the first pair."""
    console.print(repr(data), soft_wrap=True, markup=False)
    findings = check(data)
    for finding in findings or [Finding("note", "data", "no problems found")]:
        console.print(Text(str(finding), style=STYLE[finding.level]), soft_wrap=True)
    if data.train.scalars is not None:
        console.print(_parameters(data.train))
    for name in ("u",) if data.train.without_field else ("a", "u"):
        values = getattr(data.train, name)[0]
        console.print(f"\n{name} of the first pair{f', first of {len(values)} channels' if len(values) > 1 else ''}:")
        console.print(sketch(values[0]), markup=False, highlight=False)
    if plot is not None:
        from ..plot.forecasts import preview

        preview(data).savefig(plot, dpi=DPI)
        console.print(f"\nPlot: {plot}", soft_wrap=True, markup=False)


def _parameters(pairs: Pairs) -> Table:
    """Return a table of the parameters with their ranges."""
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading in ("parameter", "minimum", "maximum", "mean", "different values"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for name, values in zip(pairs.parameters, np.asarray(pairs.scalars).T, strict=True):
        table.add_row(Text(name), *_range(values, complete=True), str(len(np.unique(values))))
    return table


def sketch(field: Array, width: int = 60) -> str:
    """Draw a field in characters: bars for one dimension, shades for two; of more dimensions, the first slice.

    Args:
        field: values on a grid.
        width: largest number of characters of a line.

    >>> sketch(np.linspace(0, 1, 8))
    '▁▂▃▄▅▆▇█'
    """
    while field.ndim > 2:
        field = field[..., 0]
    finite = field[np.isfinite(field)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if field.ndim < 2:
        return _characters(_thin(np.atleast_1d(field), width), low, high, BARS)
    rows = _thin(_thin(field.T, width).T, width // 2)
    return "\n".join(_characters(column, low, high, SHADES) for column in rows.T[::-2] if rows.size)


def _thin(values: Array, size: int) -> Array:
    """Return at most `size` evenly spaced entries along the first axis."""
    return values if len(values) <= size else values[np.linspace(0, len(values) - 1, size).round().astype(int)]


def _characters(values: Array, low: float, high: float, scale: str) -> str:
    """Return a character for each value, from the first of the scale at `low` to its last at `high`."""
    part = np.zeros(len(values)) if high == low else (np.nan_to_num(values, nan=low) - low) / (high - low)
    return "".join(scale[min(int(p * len(scale)), len(scale) - 1)] for p in part)


def _print_commands(console: Console, path: Path, selection: Selection) -> None:
    """Print the commands that train on the file, convert it, and open it in Python."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in asdict(selection).items() if value is not None)
    file = shlex.quote(str(path))
    target = shlex.quote(path.with_suffix(".zarr").name if path.suffix != ".zarr" else f"{path.stem}-pdno.zarr")
    console.print("\nNext:", markup=False)
    _command(console, f"pdno train {file} {selection.options()} --out {shlex.quote(path.stem + '-run')}")
    _command(console, f"pdno convert {file} {selection.options()} --out {target}")
    _command(console, f"pdno.open({str(path)!r}, {arguments})")


def _command(console: Console, text: str) -> None:
    console.print(f"  {text}", soft_wrap=True, markup=False, highlight=False)


def _ambiguous(file: Contents, selection: Selection | None, rows: int) -> str:
    """Return the hint for a file whose inputs and outputs are ambiguous."""
    name = shlex.quote(str(file.path))
    if selection is not None:
        return (
            f"{selection.parameters} has {rows} rows, but no array above has as many samples: expected a row for each sample."
        )
    beside = _tables_beside(file)
    table = shlex.quote(str(beside[0])) if beside else "runs.csv"
    found = f"{table} has as many rows as an array has samples" if beside else "If outputs depend on parameters in a table"
    return (
        "It is unclear which arrays are a and u. Name them (and their dimensions, where shapes are ambiguous):\n"
        f"  pdno inspect {name} --a NAME --u NAME --dims sample,x\n"
        f"{found}:\n  pdno inspect {name} --parameters {table}"
    )


def _tables_beside(file: Contents) -> list[Path]:
    """Return the .csv files in the folder of a file that have as many rows as one of its arrays has samples."""
    samples, found = {entry.shape[0] for entry in file.entries.values() if len(entry.shape) > 1}, []
    for path in sorted(file.path.parent.glob("*.csv"))[:MOST_TABLES]:
        with suppress(UserError):
            found += [path] if len(read_parameters(path)) in samples else []
    return found
