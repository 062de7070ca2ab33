"""``pdno inspect``: print the contents of a file, its problems, and the commands that use it."""

import math
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._typing import Array, Ints
from ..data import store
from ..data.dataset import Dataset, open_store
from ..data.findings import Finding, check
from ..data.formats import Contents, contents
from ..data.nodes import NODE, raster
from ..data.open import open_file, table_in
from ..data.pairs import Pairs
from ..data.parameters import read_parameters
from ..data.selection import SAMPLE, Selection, float_type
from ..data.suggest import complete, obstacle, samples_last, with_dims
from ..errors import UserError
from ..work.engine import memory_allowed
from .terminal import text_table

__all__ = ["inspect", "sketch"]

FILE_BYTES = 2**29  # largest file that is checked completely
SAMPLE_BYTES = 2**27  # of a larger file that are checked: rows from its beginning, middle and end
FEWEST_ROWS = 21  # of each array of a larger file that are checked at least
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
    if plot is not None:
        _check_plot(plot)
    if store.is_store(path):
        data = open_store(path)
        console.print(f"{path}: a store of pdno", soft_wrap=True, markup=False)
        _show(console, data, plot)
        console.print("\nNext:", markup=False)
        _command(console, f"pdno train {shlex.quote(str(path))} --out {shlex.quote(path.stem + '-run')}")
        _command(console, f"pdno.open({str(path)!r})")
        return
    file = contents(path, memory_allowed())
    part = _sample(file)
    count = len(file.entries)
    console.print(f"{path}: {file.format}, {count} array{'s' if count != 1 else ''}", soft_wrap=True, markup=False)
    console.print(_table(file, part))
    if part is not file:
        console.print("The file is large: ranges (≈) and findings are those of rows from its beginning, middle and end.")
    for note in (*file.notes, *_types(file)):
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    selection = table_in(path) or _only_table(console, file) if selection is None else selection
    table = None if selection is None or selection.parameters is None else read_parameters(selection.parameters)
    chosen = _choose(console, file, selection, 0 if table is None else len(table))
    if chosen is None:
        return
    if part is not file and table is not None:
        table = table[_sampled(len(table), part.entries[chosen.u].shape[0])] if chosen.u in part.entries else None
    findings = _show(console, open_file(part, chosen, mask=mask, table=table), plot)
    errors = [finding for finding in findings if finding.level == "error"]
    if errors and all(finding.where.endswith(" u") for finding in errors):
        mask = "nan"
    elif errors:
        console.print("\nCorrect these values first: the commands below would stop at them.", markup=False)
    _print_commands(console, path, chosen, mask)


def _choose(console: Console, file: Contents, selection: Selection | None, rows: int) -> Selection | None:
    """Return the selection with all that can be suggested, and print it; None if it is unclear which arrays are a and u.

    Args:
        console: to print to.
        file: contents of the file.
        selection: of the user.
        rows: of the table of parameters.
    """
    named = selection is not None and selection.u is not None
    suggestion = with_dims(file, selection) if named and selection else complete(file, selection, rows)
    if suggestion is not None:
        certainty, advice = ("Recognised", "") if suggestion.certain else ("A guess", "; check the names and dimensions below")
        console.print(f"{certainty}: {suggestion.reason}{advice}", soft_wrap=True, markup=False)
        return suggestion.selection
    if not named:
        console.print(_ambiguous(file, selection, rows), soft_wrap=True, markup=False)
    return selection if named else None


def _check_plot(path: Path) -> None:
    """Refuse a name whose suffix is not that of a picture."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise UserError(f"--plot {path}: {path.suffix!r} is not a format of pictures; choose {', '.join(sorted(known))}")


def _sample(file: Contents) -> Contents:
    """Return the file, or of a large one some rows of its arrays."""
    sizes = {name: entry.dtype.itemsize * math.prod(entry.shape) for name, entry in file.entries.items()}
    if sum(sizes.values()) <= FILE_BYTES:
        return file
    entries = dict(file.entries)
    for name, entry in entries.items():
        rows = max(FEWEST_ROWS, SAMPLE_BYTES * entry.shape[0] // sum(sizes.values())) // 3 if len(entry.shape) > 1 else 0
        if 0 < 3 * rows < entry.shape[0]:
            values = np.concatenate([entry.read(block) for block in _blocks(entry.shape[0], rows)])
            entries[name] = replace(entry, shape=values.shape, read=values.__getitem__)
    return replace(file, entries=entries)


def _blocks(count: int, rows: int) -> list[slice]:
    """Return the slices of rows at the beginning, the middle and the end of an array."""
    return [slice(start, start + rows) for start in (0, (count - rows) // 2, count - rows)]


def _sampled(count: int, sampled: int) -> Ints:
    """Return the numbers of the rows that `_sample` takes of an array."""
    rows = np.arange(count)
    return rows if sampled == count else np.concatenate([rows[block] for block in _blocks(count, sampled // 3)])


def _table(file: Contents, part: Contents) -> Table:
    """Return a table of all arrays with shape, type and range, which is that of a part of the file."""
    rows = []
    for entry in file.entries.values():
        shape = " × ".join(map(str, entry.shape)) or "scalar"
        if entry.dims:
            shape += f" ({', '.join(entry.dims)})"
        sample = part.entries[entry.name]
        complete = sample.shape == entry.shape
        rows.append((Text(entry.name), shape, str(entry.dtype), *_range(sample.read(slice(None)), complete)))
    return text_table(("array", "shape", "type", "minimum", "maximum", "mean"), rows, left=3, tight=True)


def _types(file: Contents) -> Iterator[str]:
    """Yield notes on arrays whose type is converted."""
    for entry in file.entries.values():
        if len(entry.shape) > 1 and entry.dtype.kind in "biu" and SAMPLE in (entry.dims or (SAMPLE,)):
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


def _show(console: Console, data: Dataset, plot: Path | None) -> list[Finding]:
    """Print the numbers of pairs, findings and a preview of the first pair; return the findings."""
    console.print(repr(data), soft_wrap=True, markup=False)
    findings = check(data)
    for finding in findings or [Finding("note", "data", "no problems found")]:
        console.print(Text(str(finding), style=STYLE[finding.level]), soft_wrap=True)
    if data.train.scalars is not None:
        console.print(_parameters(data.train))
    for name in ("u",) if data.train.without_field else ("a", "u"):
        values = getattr(data.train, name)[0]
        console.print(f"\n{name} of the first pair{f', first of {len(values)} channels' if len(values) > 1 else ''}:")
        nodes = data.train.nodes if data.train.xarray[name].dims[-1] == NODE else None
        console.print(sketch(values[0] if nodes is None else raster(nodes, values[0])), markup=False, highlight=False)
    if plot is not None:
        from ..plot.forecasts import preview

        preview(data).savefig(plot, dpi=DPI)
        console.print(f"\nPlot: {plot}", soft_wrap=True, markup=False)
    return findings


def _parameters(pairs: Pairs) -> Table:
    """Return a table of the parameters with their ranges."""
    values = np.asarray(pairs.scalars)
    ranges = [(*_range(column, complete=True), str(len(np.unique(column)))) for column in values.T]
    rows = ((Text(name), *cells) for name, cells in zip(pairs.parameters, ranges, strict=True))
    return text_table(("parameter", "minimum", "maximum", "mean", "different values"), rows, tight=True)


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
    finite = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    part = np.zeros(len(values)) if high == low else (finite - low) / (high - low)
    return "".join(scale[min(int(p * len(scale)), len(scale) - 1)] for p in part)


def _print_commands(console: Console, path: Path, selection: Selection, mask: str | None) -> None:
    """Print the commands that train on the file, convert it, and open it in Python."""
    settings = {**asdict(selection), "mask": mask}
    arguments = ", ".join(f"{key}={value!r}" for key, value in settings.items() if value is not None)
    options = selection.options() + (f" --mask {mask}" if mask else "")
    file = shlex.quote(str(path))
    target = shlex.quote(path.with_suffix(".zarr").name if path.suffix != ".zarr" else f"{path.stem}-pdno.zarr")
    console.print("\nNext:", markup=False)
    _command(console, f"pdno train {file} {options} --out {shlex.quote(path.stem + '-run')}")
    _command(console, f"pdno convert {file} {options} --out {target}")
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
        f"{file.path.name}: {obstacle(file)}\n"
        f"  pdno inspect {name} --a NAME --u NAME --dims {'x,sample' if samples_last(file) else 'sample,x'}\n"
        f"{found}:\n  pdno inspect {name} --parameters {table}"
    )


def _only_table(console: Console, file: Contents) -> Selection | None:
    """Return the only table beside a file that has no pair of arrays, and print that it is used; None if there is none."""
    if complete(file, None, 0) is not None or len(beside := _tables_beside(file)) != 1:
        return None
    table = str(beside[0])
    console.print(f"Parameters: {table}, which has as many rows as an array has samples", soft_wrap=True, markup=False)
    return Selection(parameters=table)


def _tables_beside(file: Contents) -> list[Path]:
    """Return the .csv files in the folder of a file that have as many rows as one of its arrays has samples."""
    samples, found = {entry.shape[0] for entry in file.entries.values() if len(entry.shape) > 1}, []
    for path in sorted(file.path.parent.glob("*.csv"))[:MOST_TABLES]:
        with suppress(UserError):
            found += [path] if len(read_parameters(path)) in samples else []
    return found
