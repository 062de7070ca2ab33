"""``pdno inspect``: what is in a file, what is wrong with it, and what to type next."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data import store
from ..data.findings import Finding, check
from ..data.formats import Contents, Entry, contents
from ..data.open import memory_allowed, open_file
from ..data.pairs import Dataset, open_store
from ..data.selection import Selection, float_type
from ..data.suggest import suggest

__all__ = ["inspect", "sketch"]

WHOLE = 2**31  # bytes of a file that is looked at as a whole; of a larger one the first samples
LOOK = 2**28  # bytes of an array that the table reads for its range
BARS, SHADES = "▁▂▃▄▅▆▇█", " ░▒▓█"
STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def inspect(path: Path, chosen: Selection | None = None, plot: Path | None = None, mask: str | None = None) -> None:
    """Print what a file holds: arrays, findings, a preview, and the commands that use it."""
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
    if chosen is None:
        found = suggest(file)
        if found is None:
            console.print(_unknown(path), soft_wrap=True, markup=False)
            return
        doubt = "" if found.certain else "; check the names and the dimensions below"
        console.print(f"{'Taken' if found.certain else 'A guess'}: {found.reason}{doubt}", soft_wrap=True, markup=False)
        chosen = found.selection
    part = _part(file)
    if part is not file:
        console.print("The file is large: what follows is about the first samples of each array.")
    _show(console, open_file(part, chosen, mask=mask), plot)
    _next(console, path, chosen)


def _part(file: Contents) -> Contents:
    """The file, or of a large one the first rows of its arrays."""
    sizes = {name: entry.dtype.itemsize * math.prod(entry.shape) for name, entry in file.entries.items()}
    if sum(sizes.values()) <= WHOLE:
        return file
    entries = dict(file.entries)
    for name, entry in entries.items():
        rows = max(20, WHOLE * entry.shape[0] // sum(sizes.values())) if len(entry.shape) > 1 else 0
        if 0 < rows < entry.shape[0]:
            entries[name] = replace(entry, shape=(rows, *entry.shape[1:]), read=partial(_read_first, entry, rows))
    return replace(file, entries=entries)


def _read_first(entry: Entry, rows: int, wanted: slice) -> NDArray[Any]:
    return entry.read(slice(*wanted.indices(rows)))


def _table(file: Contents) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True)
    for heading in ("array", "shape", "type", "minimum", "maximum", "mean"):
        table.add_column(heading, justify="left" if heading in ("array", "shape", "type") else "right")
    for entry in file.entries.values():
        shape = " × ".join(map(str, entry.shape)) or "one value"
        if entry.dims:
            shape += f" ({', '.join(entry.dims)})"
        rows = max(1, LOOK // max(1, entry.dtype.itemsize * int(np.prod(entry.shape[1:]))))
        whole = not entry.shape or entry.shape[0] <= rows
        table.add_row(Text(entry.name), shape, str(entry.dtype), *_range(entry.read(slice(0, rows)), whole))
    return table


def _types(file: Contents) -> Iterator[str]:
    """What is said of types that are not what a model computes with."""
    for entry in file.entries.values():
        if len(entry.shape) > 1 and entry.dtype.kind in "biu":
            what = "truth values" if entry.dtype.kind == "b" else "whole numbers"
            yield f"{entry.name!r} holds {what}, read as {float_type(entry.dtype)}"
        if not entry.dtype.isnative:
            yield f"{entry.name!r} is stored with its bytes in the other order ({entry.dtype.str}), and read in this machine's"


def _range(values: NDArray[Any], whole: bool) -> tuple[str, str, str]:
    known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not known.size:
        return ("", "", "")
    about = "" if whole else "≈"
    return tuple(f"{about}{v:.4g}" for v in (known.min(), known.max(), known.mean(dtype=np.float64)))  # type: ignore[return-value]


def _show(console: Console, data: Dataset, plot: Path | None) -> None:
    """Counts, findings and a preview of the first pair."""
    console.print(repr(data), soft_wrap=True, markup=False)
    findings = check(data)
    for finding in findings or [Finding("note", "data", "nothing conspicuous was found")]:
        console.print(Text(str(finding), style=STYLE[finding.level]), soft_wrap=True)
    for name in ("a", "u"):
        values = getattr(data.train, name)[0]
        console.print(f"\n{name} of the first pair{f', first of {len(values)} channels' if len(values) > 1 else ''}:")
        console.print(sketch(values[0]), markup=False, highlight=False)
    if plot is not None:
        from ..plot.forecasts import preview

        preview(data).savefig(plot, dpi=110)
        console.print(f"\nPicture: {plot}", soft_wrap=True, markup=False)


def sketch(field: NDArray[Any], width: int = 60) -> str:
    """A field in characters: bars for one dimension, shades for two (of more, the first slice).

    >>> sketch(np.linspace(0, 1, 8))
    '▁▂▃▄▅▆▇█'
    """
    while field.ndim > 2:
        field = field[..., 0]
    known = field[np.isfinite(field)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    if field.ndim < 2:
        return _characters(_thin(np.atleast_1d(field), width), low, high, BARS)
    rows = _thin(_thin(field.T, width).T, width // 2)
    return "\n".join(_characters(column, low, high, SHADES) for column in rows.T[::-2] if rows.size)


def _thin(values: NDArray[Any], size: int) -> NDArray[Any]:
    """At most `size` evenly spaced entries along the first axis."""
    return values if len(values) <= size else values[np.linspace(0, len(values) - 1, size).round().astype(int)]


def _characters(values: NDArray[Any], low: float, high: float, scale: str) -> str:
    part = np.zeros(len(values)) if high == low else (np.nan_to_num(values, nan=low) - low) / (high - low)
    return "".join(scale[min(int(p * len(scale)), len(scale) - 1)] for p in part)


def _next(console: Console, path: Path, chosen: Selection) -> None:
    arguments = ", ".join(f"{key}={value!r}" for key, value in asdict(chosen).items() if value is not None)
    file = shlex.quote(str(path))
    target = shlex.quote(path.with_suffix(".zarr").name if path.suffix != ".zarr" else f"{path.stem}-pdno.zarr")
    console.print("\nNext:", markup=False)
    _command(console, f"pdno train {file} {chosen.options()} --out {shlex.quote(path.stem + '-run')}")
    _command(console, f"pdno convert {file} {chosen.options()} --out {target}")
    _command(console, f"pdno.open({str(path)!r}, {arguments})")


def _command(console: Console, text: str) -> None:
    console.print(f"  {text}", soft_wrap=True, markup=False, highlight=False)


def _unknown(path: Path) -> str:
    return (
        "Which arrays are a and u cannot be told. Name them (and their dimensions, where shapes leave a choice):\n"
        f"  pdno inspect {shlex.quote(str(path))} --a NAME --u NAME --dims sample,x"
    )
